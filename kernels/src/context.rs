//! Where the library's functions run.

use crate::config::{self, Config, DeviceRows, Key, Serves, Table};
use crate::tuning::{Asked, Tunable};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use tilewright::{Device, Result, Stream};

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
    /// What the caller says, which comes first.
    table: Option<Arc<DeviceRows>>,
    /// What was measured.
    own: Result<Option<Arc<DeviceRows>>>,
    /// The configuration of one kernel, whatever the sizes: while it is tuned.
    chosen: Option<Arc<dyn Any + Send + Sync>>,
    /// Where it is noted what functions ask for.
    asked: Option<Arc<Mutex<Vec<Asked>>>>,
}

impl Context {
    /// The default stream of a device, and the configurations that the library chooses: those of its own table
    /// ([`own_table`](crate::config::own_table)), and by rules where that has none.
    pub fn new(device: &Device) -> Self {
        let own = config::of_device(device.name());
        Context { device: device.clone(), stream: None, table: None, own, chosen: None, asked: None }
    }

    /// Launches go to this stream. Tensors that functions allocate still belong to the device, and are ready for any stream.
    pub fn with_stream(mut self, stream: &Stream) -> Self {
        self.stream = Some(stream.clone());
        self
    }

    /// Configurations of this table are taken before those that the library chooses.
    pub fn with_table(mut self, table: Table) -> Self {
        self.table = Some(table.rows_of(self.device.name()));
        self
    }

    /// The library chooses by its rules alone, as for a device that nothing was measured on. Tables that are given with
    /// [`Context::with_table`] stay.
    pub fn by_rules(mut self) -> Self {
        self.own = Ok(None);
        self
    }

    /// This configuration for all launches of its kernel, whatever the sizes, before all tables.
    pub fn with_config<C: Config>(mut self, config: C) -> Self {
        self.chosen = Some(Arc::new(config));
        self
    }

    /// Runs `work`, and gives the configurations that it asked for beside its result, in order: what can be tuned about it.
    pub fn asked<R>(&self, work: impl FnOnce(&Context) -> R) -> (R, Vec<Asked>) {
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let result = work(&Context { asked: Some(asked.clone()), ..self.clone() });
        let noted = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
        (result, noted)
    }

    /// The device that functions run on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The stream that launches go to.
    pub fn stream(&self) -> &Stream {
        self.stream.as_ref().unwrap_or_else(|| self.device.default_stream())
    }

    /// The configuration of a kernel for these sizes: that of a table, else `default`. The library's own table must mean the
    /// very function, as rows for others were not measured with it.
    pub(crate) fn config<C: Tunable>(
        &self,
        key: impl Into<Key>,
        sizes: &[usize],
        default: impl FnOnce() -> C,
    ) -> Result<C> {
        self.fitting_config(key, sizes, |_| true, default)
    }

    /// As [`Context::config`], of tables only what fits: their rows serve sizes that they were not measured with. What the
    /// caller says for all launches is given in any case.
    pub(crate) fn fitting_config<C: Tunable>(
        &self,
        key: impl Into<Key>,
        sizes: &[usize],
        fits: impl Fn(&C) -> bool,
        default: impl FnOnce() -> C,
    ) -> Result<C> {
        let key = key.into();
        let config = self.known(key, sizes, fits)?.unwrap_or_else(default);
        if let Some(asked) = &self.asked {
            asked.lock().unwrap_or_else(PoisonError::into_inner).push(Asked::of(key, sizes, config));
        }
        Ok(config)
    }

    fn known<C: Config>(&self, key: Key, sizes: &[usize], fits: impl Fn(&C) -> bool) -> Result<Option<C>> {
        if let Some(chosen) = self.chosen.as_ref().and_then(|chosen| chosen.downcast_ref::<C>()) {
            return config::refuse_zeros(*chosen).map(Some);
        }
        if let Some(table) = &self.table
            && let Some(found) = table.find(key, sizes, Serves::Plainly)?.map(config::refuse_zeros).transpose()?
            && fits(&found)
        {
            return Ok(Some(found));
        }
        match &self.own {
            Ok(None) => Ok(None),
            Ok(Some(own)) => Ok(own.find(key, sizes, Serves::Exactly)?.filter(fits)),
            Err(error) => Err(error.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::ForwardConfig;
    use crate::rows::SoftmaxConfig;
    use tilewright::ElementType;

    const BF16: ElementType = ElementType::BF16;

    fn config(block: usize) -> SoftmaxConfig {
        SoftmaxConfig { block, num_warps: 1 }
    }

    fn table(dtype: &str, block: usize) -> Table {
        let rows = format!("sizes = [64, 64]\nconfig = {{ block = {block}, num_warps = 1 }}");
        Table::parse(&format!("[[softmax]]\ndevice = \"CPU\"\ndtype = \"{dtype}\"\n{rows}")).unwrap()
    }

    /// The block that a function is told.
    fn told(cx: &Context, key: impl Into<Key>) -> usize {
        cx.config(key, &[64, 64], || config(1)).unwrap().block
    }

    /// A context for which the library's own table is this one.
    fn with_own(own: &Table) -> Context {
        let device = Device::cpu();
        Context { own: Ok(Some(own.rows_of(device.name()))), ..Context::new(&device) }
    }

    #[test]
    fn what_the_caller_says_comes_before_what_was_measured_and_that_before_rules() {
        let gradient = Key::of(BF16, "gradient");
        let cx = with_own(&table("bf16", 2));
        assert_eq!((told(&cx, BF16), told(&cx, gradient)), (2, 1), "rows of the library's are for the very function");
        assert_eq!(told(&cx.clone().by_rules(), BF16), 1);
        let cx = cx.with_table(table("bf16", 4));
        assert_eq!((told(&cx, BF16), told(&cx, gradient)), (4, 4), "rows of others' serve all that share them");
        let cx = cx.with_config(config(8));
        assert_eq!((told(&cx, BF16), told(&cx, gradient), told(&cx, ElementType::F32)), (8, 8, 8));
        let cx = with_own(&table("bf16", 2)).with_table(table("f32", 4));
        assert_eq!((told(&cx, BF16), told(&cx, ElementType::F32)), (2, 4));
    }

    #[test]
    fn what_rules_look_at_beside_the_sizes_is_named_in_the_librarys_rows() {
        let key = |programs| Key::from(BF16).and([Some(programs), None]);
        let mut own = table("bf16", 2).to_toml();
        own = own.replace("[\n    64,\n    64,\n]", "[64, 64]").replace("[64, 64]", "[64, 64, 512]");
        let cx = with_own(&Table::parse(&own).unwrap());
        assert_eq!((told(&cx, key(500)), told(&cx, key(1)), told(&cx, BF16)), (2, 1, 1));
        let cx = Context::new(&Device::cpu()).with_table(table("bf16", 4));
        assert_eq!((told(&cx, key(500)), told(&cx, key(1)), told(&cx, BF16)), (4, 4, 4));
    }

    #[test]
    fn blocks_of_nothing_are_refused_whoever_says_them() {
        let refused = |cx: &Context| cx.config(BF16, &[64, 64], || config(1)).unwrap_err().to_string();
        let cx = Context::new(&Device::cpu());
        for cx in [cx.clone().with_config(config(0)), cx.clone().with_table(table("bf16", 0))] {
            assert_eq!(refused(&cx), "block of softmax is set to `0`; expected at least 1");
        }
        // Of some fields 0 means something, and options are for launches to refuse.
        let zeros = ForwardConfig { block_q: 32, block_k: 32, num_warps: 0, num_stages: 0, programs: 0 };
        assert_eq!(cx.with_config(zeros).config(BF16, &[64, 64, 64], || panic!("it is said")), Ok(zeros));
    }

    #[test]
    fn what_was_asked_is_noted_as_tables_name_it() {
        let cx = Context::new(&Device::cpu());
        let key = Key::of(BF16, "gradient").and([Some(3), None]);
        let (block, asked) = cx.asked(|cx| told(cx, key));
        let numbers = [("block".to_string(), 1), ("num_warps".to_string(), 1)];
        let wanted =
            Asked { kernel: "softmax", dtype: "bf16, gradient".into(), sizes: vec![64, 64, 3], config: numbers.into() };
        assert_eq!((block, asked), (1, vec![wanted]));
    }
}
