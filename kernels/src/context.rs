//! Where the library's functions run.

use crate::config::{Config, Table};
use std::sync::Arc;
use tilewright::{Device, ElementType, Result, Stream};

/// A device, a stream on it, and the configurations of kernels: what every function of the library takes first.
///
/// ```
/// use tilewright::prelude::*;
/// use tilewright_kernels::{Context, Tensor, rows};
///
/// # fn main() -> Result<(), Error> {
/// let cx = Context::new(&Device::best()?);
/// let x = Tensor::upload(cx.device(), &[1.0f32, 1.0, 2.0, 2.0], [2, 2])?;
/// assert_eq!(rows::softmax(&cx, &x)?.to_vec()?, [0.5; 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    device: Device,
    stream: Option<Stream>,
    table: Option<Arc<Table>>,
}

impl Context {
    /// The default stream of a device, and the configurations that the library chooses.
    pub fn new(device: &Device) -> Self {
        Context { device: device.clone(), stream: None, table: None }
    }

    /// Launches go to this stream. Tensors that functions allocate still belong to the device, and are ready for any stream.
    pub fn with_stream(mut self, stream: &Stream) -> Self {
        self.stream = Some(stream.clone());
        self
    }

    /// Configurations of this table are taken before those that the library chooses.
    pub fn with_table(mut self, table: Table) -> Self {
        self.table = Some(Arc::new(table));
        self
    }

    /// The device that functions run on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The stream that launches go to.
    pub fn stream(&self) -> &Stream {
        self.stream.as_ref().unwrap_or_else(|| self.device.default_stream())
    }

    /// The configuration of a kernel for these sizes: the table's, else `default`.
    pub(crate) fn config<C: Config>(
        &self,
        dtype: ElementType,
        sizes: &[usize],
        default: impl FnOnce() -> C,
    ) -> Result<C> {
        let Some(table) = &self.table else { return Ok(default()) };
        Ok(table.find::<C>(self.device.name(), dtype, sizes)?.unwrap_or_else(default))
    }
}
