//! Buffers: typed memory of a device.
//!
//! A buffer is always initialised, knows its length, and is freed when it drops, in the order of
//! its stream: work that still uses it goes on. Its methods are those of its [`View`] and
//! [`ViewMut`]; kernels take `&Buffer<T>` and `&mut Buffer<T>`.
//!
//! ```
//! use kernel_runtime::Device;
//!
//! # fn main() -> kernel_runtime::Result<()> {
//! let device = Device::cpu();
//! let mut buffer = device.upload(&[1.0f32, 2.0, 3.0])?;
//! buffer.slice_mut(1..)?.fill(0.5)?;
//! assert_eq!(buffer.to_vec()?, [1.0, 0.5, 0.5]);
//! # Ok(())
//! # }
//! ```

use crate::borrowed::Memory;
use crate::claimed_memory::Claim;
use crate::context::Context;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::report_slot::LaunchId;
use crate::storage::{Address, Storage};
use crate::stream::Stream;
use crate::view::{RawBuffer, View, ViewMut};
use cudarc::driver::CudaSlice;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

/// `len` elements of type `T` on a device. Made by [`Device::upload`], [`Device::zeros`] and [`Device::empty`].
pub struct Buffer<T: DType> {
    /// Shared with the graphs that use the buffer, and with nobody else.
    storage: Arc<Storage>,
    len: usize,
    elements: PhantomData<T>,
}

impl<T: DType> Buffer<T> {
    pub(crate) fn from_storage(storage: impl Into<Arc<Storage>>, len: usize) -> Self {
        Buffer { storage: storage.into(), len, elements: PhantomData }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that the buffer lives on.
    pub fn device(&self) -> &Device {
        self.storage.device()
    }

    /// All elements, shared.
    #[inline]
    pub fn as_view(&self) -> View<'_, T> {
        View::new(Memory::Own(&self.storage), self.len)
    }

    /// All elements, exclusive.
    #[inline]
    pub fn as_view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(Memory::Own(&self.storage), self.len)
    }

    /// As [`View::slice`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<View<'_, T>> {
        self.as_view().slice(range)
    }

    /// As [`ViewMut::slice_mut`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<ViewMut<'_, T>> {
        self.as_view_mut().slice_mut(range)
    }

    /// As [`View::split_at`].
    pub fn split_at(&self, at: usize) -> Result<(View<'_, T>, View<'_, T>)> {
        self.as_view().split_at(at)
    }

    /// As [`ViewMut::split_at_mut`].
    pub fn split_at_mut(&mut self, at: usize) -> Result<(ViewMut<'_, T>, ViewMut<'_, T>)> {
        self.as_view_mut().split_at_mut(at)
    }

    /// As [`View::to_vec`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.as_view().to_vec()
    }

    /// As [`View::read_into`].
    pub fn read_into(&self, target: &mut [T]) -> Result<()> {
        self.as_view().read_into(target)
    }

    /// As [`View::copy`].
    pub fn copy(&self) -> Result<Buffer<T>> {
        self.as_view().copy()
    }

    /// As [`View::to_device`].
    pub fn to_device(&self, device: &Device) -> Result<Buffer<T>> {
        self.as_view().to_device(device)
    }

    /// As [`ViewMut::copy_from_slice`].
    pub fn copy_from_slice(&mut self, source: &[T]) -> Result<()> {
        self.as_view_mut().copy_from_slice(source)
    }

    /// As [`ViewMut::copy_from`], from anything that is a view.
    pub fn copy_from<'a>(&mut self, source: impl Into<View<'a, T>>) -> Result<()> {
        self.as_view_mut().copy_from(&source.into())
    }

    /// As [`ViewMut::fill`].
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.as_view_mut().fill(value)
    }

    /// As [`View::raw`].
    pub fn raw(&self) -> RawBuffer {
        self.as_view().raw()
    }

    /// As [`View::prepare_read`].
    pub fn prepare_read(&self, stream: &Stream, launch: LaunchId) -> Result<RawBuffer> {
        self.as_view().prepare_read(stream, launch)
    }

    /// As [`ViewMut::prepare_write`].
    pub fn prepare_write(&mut self, stream: &Stream, launch: LaunchId) -> Result<RawBuffer> {
        self.as_view_mut().prepare_write(stream, launch)
    }

    /// Takes over memory of cudarc. It is used after the work of the slice's own stream, and
    /// freed on the stream that uses it last.
    ///
    /// The contents must be values of `T`; `CudaStream::alloc`, which leaves them undefined, is
    /// unsafe for that reason.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if the slice belongs to another context than `device`; the slice is dropped.
    ///
    /// [`Error::Unsupported`] if the memory is not aligned to the elements, or another buffer that was made here has
    /// some of it. Only slices from cudarc's unsafe `upgrade_device_ptr` can be so. Their memory is not freed: as it
    /// seems, it belongs to somebody else.
    pub fn from_cudarc(device: &Device, slice: CudaSlice<T>) -> Result<Self> {
        let own = device.cuda_context().map(|ctx| ctx.cu_ctx());
        if own != Some(slice.context().cu_ctx()) {
            return Err(Error::WrongDevice {
                argument: "".into(),
                actual: format!("cuda:{}", slice.ordinal()).into(),
                expected: device.to_string().into(),
            });
        }
        let stream = device.wrap_stream(slice.stream().clone())?;
        let (len, bytes) = (slice.len(), slice.num_bytes());
        // `leak` lets the slice's stream wait for what cudarc tracks on others.
        let address = slice.leak();
        let refuse = |reason: &str| Error::Unsupported {
            what: format!("a buffer of {len} elements of {} at address {address:#x}", T::ELEMENT).into(),
            reason: reason.into(),
        };
        if !address.is_multiple_of(size_of::<T>() as u64) {
            return Err(refuse(
                "the address is not a multiple of an element's size; copy the elements to memory that is",
            ));
        }
        let claim = Claim::new(address, bytes).ok_or_else(|| {
            refuse("another buffer has a part of this memory; wrap it once, and pass views of that buffer to kernels")
        })?;
        // SAFETY: the allocation is cudarc's, made by the functions that the context frees with,
        // and nobody else owns it now.
        let storage = unsafe { Storage::adopt(device, &stream, address, bytes, claim) };
        Ok(Buffer::from_storage(storage, len))
    }

    /// Gives the memory to cudarc, after waiting for all work on it. An error of a launch that
    /// wrote the buffer stays with the stream.
    ///
    /// Contexts that [`Device::cuda`] opened have cudarc's event tracking off: whoever uses the
    /// slice on several streams orders them.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the buffer lives on the CPU, or a [`Graph`](crate::Graph) uses it.
    pub fn into_cudarc(self) -> Result<CudaSlice<T>> {
        if matches!(**self.device().context(), Context::Cpu) {
            return Err(Error::Unsupported {
                what: "a cudarc slice of a buffer on the CPU".into(),
                reason: "cudarc knows CUDA devices only; copy the buffer there with `to_device`".into(),
            });
        }
        let len = self.len;
        let storage = Arc::try_unwrap(self.storage).map_err(|_| Error::Unsupported {
            what: "giving away a buffer that a graph uses".into(),
            reason: "its replays would go on using the memory; drop the graph first, or give away a `copy()`".into(),
        })?;
        let (stream, address) = storage.release()?;
        match (stream.cudarc(), address) {
            (Some(stream), Address::Device(address)) => {
                // SAFETY: the allocation holds `len` elements, which are initialised, and is ours
                // to give away.
                Ok(unsafe { stream.upgrade_device_ptr(address, len) })
            }
            (Some(_) | None, Address::Host(_) | Address::Device(_)) => Err(Error::Unsupported {
                what: "a cudarc slice of this buffer".into(),
                reason: "its memory is not on a GPU".into(),
            }),
        }
    }
}

impl<T: DType> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer<{}>({} elements on {})", T::ELEMENT, self.len, self.device())
    }
}
