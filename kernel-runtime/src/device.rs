//! Devices: where kernels run and buffers live.
//!
//! ```
//! use kernel_runtime::Device;
//!
//! # fn main() -> kernel_runtime::Result<()> {
//! let device = Device::best()?; // the first GPU, else the CPU
//! let buffer = device.upload(&[1i32, 2, 3])?;
//! assert_eq!(buffer.to_vec()?, [1, 2, 3]);
//! println!("{} has {} multiprocessors", device.name(), device.multiprocessor_count());
//! # Ok(())
//! # }
//! ```

use crate::buffer::Buffer;
use crate::context::Context;
use crate::driver;
use crate::dtype::{DType, ElementType};
use crate::error::{Error, Result};
use crate::freed_later;
use crate::graph::{Graph, capture};
use crate::settings::{self, DeviceChoice};
use crate::storage::{Fill, Storage};
use crate::stream::{Stream, StreamInner};
use crate::view::as_bytes;
use cudarc::driver::{CudaContext, CudaStream};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A GPU, or the CPU. Clones are cheap and are the same device.
///
/// Two devices are equal if memory of one can be used on the other. Devices that were opened
/// separately are equal but have their own default streams, and with them their own errors.
#[derive(Clone)]
pub struct Device(Arc<DeviceInner>);

struct DeviceInner {
    /// The driver's name of the context, as a number. Zero for the CPU.
    context_number: u64,
    context: Arc<Context>,
    stream: Stream,
    /// The other streams that were made for this device.
    others: Mutex<Vec<Weak<StreamInner>>>,
}

impl Device {
    /// The first CUDA GPU, or the CPU if there is none that can be used or this program neither can compile for it nor has
    /// an [archive](crate::archive) of compiled kernels. The
    /// environment variable `TILEWRIGHT_DEVICE` (`cpu`, `cuda`, `cuda:1`) overrides the choice.
    ///
    /// # Errors
    ///
    /// Only for what the variable asks for: [`Error::InvalidSetting`] if it means nothing, and the
    /// errors of [`Device::cuda`]. Without the variable, a GPU that cannot be used is logged.
    pub fn best() -> Result<Self> {
        Self::choose(settings::device_override()?)
    }

    fn choose(choice: Option<DeviceChoice>) -> Result<Self> {
        match choice {
            Some(DeviceChoice::Cpu) => Ok(Self::cpu()),
            Some(DeviceChoice::Cuda(index)) => Self::cuda(index),
            None if let Some(why) = crate::launch::MISSING_COMPILER.filter(|_| !crate::launch::shipped::any()) => {
                log::debug!("using the CPU: {why}");
                Ok(Self::cpu())
            }
            None => Ok(Self::cuda(0).unwrap_or_else(|error| {
                match error {
                    // A machine without a GPU is nothing to talk about.
                    Error::NoDriver { .. } | Error::NoSuchDevice { .. } => log::debug!("using the CPU: {error}"),
                    _ => log::warn!("using the CPU, because the GPU cannot be used: {error}"),
                }
                Self::cpu()
            })),
        }
    }

    /// The CPU, which runs kernels in the interpreter.
    pub fn cpu() -> Self {
        let context = Arc::new(Context::Cpu);
        let stream = Stream::cpu(context.clone());
        Self::new(context, stream)
    }

    /// The CUDA device with this index, from 0, as the driver counts them.
    ///
    /// # Errors
    ///
    /// [`Error::NoDriver`], [`Error::NoSuchDevice`], or [`Error::Driver`] if the device cannot be
    /// opened.
    pub fn cuda(index: usize) -> Result<Self> {
        let context = Context::cuda(index)?;
        let stream = new_stream(&context)?;
        Ok(Self::new(context, stream))
    }

    /// A device of somebody else, such as candle or burn: kernels are launched on `stream` unless
    /// they name another. Settings of the context stay as they are. Where the stream is captured, see [`Device::of_stream`].
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if the stream belongs to another context; [`Error::NoDriver`] if
    /// the driver is too old.
    pub fn from_cudarc(ctx: Arc<CudaContext>, stream: Arc<CudaStream>) -> Result<Self> {
        let context = Context::from_cudarc(ctx)?;
        let stream = wrap_stream(&context, stream)?;
        Ok(Self::new(context, stream))
    }

    /// The device of a stream in this context that is not ours.
    pub(crate) fn of_foreign_stream(context: &Arc<Context>, stream: Arc<CudaStream>) -> Result<Self> {
        let stream = wrap_stream(context, stream)?;
        Ok(Self::new(context.clone(), stream))
    }

    fn new(context: Arc<Context>, stream: Stream) -> Self {
        let context_number = match &*context {
            Context::Cpu => 0,
            Context::Cuda(memory) => memory.ctx.cu_ctx() as u64,
        };
        Device(Arc::new(DeviceInner { context_number, context, stream, others: Mutex::default() }))
    }

    /// How many CUDA devices there are. Zero without a driver.
    pub fn cuda_count() -> usize {
        driver::load().map_or(0, driver::Driver::device_count)
    }

    /// The device's name, such as `NVIDIA H100 80GB HBM3`.
    pub fn name(&self) -> &str {
        match &*self.0.context {
            Context::Cpu => "CPU",
            Context::Cuda(memory) => &memory.device_name,
        }
    }

    /// Whether this is a GPU.
    #[inline]
    pub fn is_cuda(&self) -> bool {
        self.0.context_number != 0
    }

    /// What tells contexts apart that are open: the driver's name of this one. Zero for the CPU.
    #[inline]
    pub(crate) fn context_number(&self) -> u64 {
        self.0.context_number
    }

    /// The compute capability, `(9, 0)` for Hopper. `None` for the CPU.
    pub fn compute_capability(&self) -> Option<(u32, u32)> {
        match &*self.0.context {
            Context::Cpu => None,
            Context::Cuda(memory) => Some(memory.compute_capability),
        }
    }

    /// How many programs can make progress at the same time, in units of the device: streaming
    /// multiprocessors, or hardware threads of the CPU.
    pub fn multiprocessor_count(&self) -> usize {
        match &*self.0.context {
            Context::Cpu => std::thread::available_parallelism().map_or(1, usize::from),
            Context::Cuda(memory) => memory.multiprocessors as usize,
        }
    }

    /// Free and total memory in bytes.
    pub fn memory_info(&self) -> Result<(u64, u64)> {
        self.0.context.memory_info()
    }

    /// Gives memory of dropped buffers, which is kept for new ones, back to the system.
    pub fn trim_memory(&self) -> Result<()> {
        match &*self.0.context {
            Context::Cpu => Ok(()),
            Context::Cuda(memory) => {
                self.0.stream.free_gone_graphs();
                freed_later::free();
                memory.trim()
            }
        }
    }

    /// cudarc's context, for what it offers beyond this crate. `None` for the CPU.
    #[inline]
    pub fn cuda_context(&self) -> Option<&Arc<CudaContext>> {
        match &*self.0.context {
            Context::Cpu => None,
            Context::Cuda(memory) => Some(&memory.ctx),
        }
    }

    /// The stream of launches that name none.
    #[inline]
    pub fn default_stream(&self) -> &Stream {
        &self.0.stream
    }

    /// Captures launches that name no stream, as [`Stream::capture`] does on a stream.
    ///
    /// # Errors
    ///
    /// As for [`Stream::capture`].
    pub fn capture(&self, launches: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.0.stream.capture(|_| launches())
    }

    /// A new stream, whose work runs beside that of the others. Buffers order what they must.
    pub fn new_stream(&self) -> Result<Stream> {
        let stream = new_stream(&self.0.context)?;
        self.remember(&stream);
        Ok(stream)
    }

    /// A stream of somebody else.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if it is a stream of another device.
    pub fn wrap_stream(&self, stream: Arc<CudaStream>) -> Result<Stream> {
        if let Some(known) = self.streams().into_iter().find(|known| known.cuda_stream() == Some(&stream)) {
            known.share();
            return Ok(known);
        }
        let stream = wrap_stream(&self.0.context, stream)?;
        self.remember(&stream);
        Ok(stream)
    }

    fn remember(&self, stream: &Stream) {
        let mut others = self.0.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.retain(|other| other.strong_count() > 0);
        others.push(stream.downgrade());
    }

    /// The streams that were made for this device and are still in use.
    fn streams(&self) -> Vec<Stream> {
        // Cloned, because a stream that drops here waits for its work, which no lock should do.
        let others = self.0.others.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut streams = vec![self.0.stream.clone()];
        streams.extend(others.iter().filter_map(Weak::upgrade).map(Stream::from_inner));
        streams
    }

    /// Waits until all streams that were made for this device are done. Gives the oldest error of
    /// a launch on them that nobody has taken yet; call again for the next.
    pub fn synchronize(&self) -> Result<()> {
        capture::refuse("synchronising a device")?;
        self.finish()?;
        self.take_oldest_error().map_or(Ok(()), Err)
    }

    /// Waits until all streams that were made for this device are done, and collects the errors of launches, but takes none.
    pub(crate) fn finish(&self) -> Result<()> {
        for stream in self.streams() {
            stream.finish()?;
            stream.collect_replays();
        }
        Ok(())
    }

    /// The oldest error of a launch on streams that were made for this device, among those that are known.
    pub(crate) fn take_oldest_error(&self) -> Option<Error> {
        let ids: Vec<u64> = self.streams().iter().map(Stream::id).collect();
        self.0.context.ledger().lock().take_oldest(&ids)
    }

    /// A buffer with a copy of `elements`, which may change as soon as this returns.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::Driver`].
    pub fn upload<T: DType>(&self, elements: &[T]) -> Result<Buffer<T>> {
        self.allocate(elements.len(), Fill::Copy(as_bytes(elements)))
    }

    /// A buffer of `len` zeros (`false` for `bool`).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::Driver`].
    pub fn zeros<T: DType>(&self, len: usize) -> Result<Buffer<T>> {
        self.allocate(len, Fill::Zero)
    }

    /// A buffer of `len` elements of whatever values: for what a launch writes from end to end, so that it is written once.
    ///
    /// They are values of `T` all the same, and reading them before they are written is safe. On a GPU they are what the
    /// memory happened to hold. On the CPU they are zeros, or in builds with debug assertions numbers that show up in
    /// results: NaN of floats, the greatest or -1 of integers. Elements of `bool` are `false`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::Driver`].
    pub fn empty<T: DType>(&self, len: usize) -> Result<Buffer<T>> {
        self.allocate(len, if T::ELEMENT == ElementType::Bool { Fill::Zero } else { Fill::Whatever })
    }

    /// A buffer of `len` elements, each `value`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; [`Error::Driver`].
    pub fn full<T: DType>(&self, len: usize, value: T) -> Result<Buffer<T>> {
        let mut buffer = self.allocate(len, Fill::Later)?;
        buffer.fill(value)?;
        Ok(buffer)
    }

    fn allocate<T: DType>(&self, len: usize, fill: Fill<'_>) -> Result<Buffer<T>> {
        let storage = Storage::new(self, &self.0.stream, len, size_of::<T>(), fill)?;
        Ok(Buffer::from_storage(storage, len))
    }

    #[inline]
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.0.context
    }
}

fn new_stream(context: &Arc<Context>) -> Result<Stream> {
    match &**context {
        Context::Cpu => Ok(Stream::cpu(context.clone())),
        Context::Cuda(memory) => {
            memory.bind()?;
            let stream = memory.ctx.new_stream().map_err(driver::wrap("cuStreamCreate"))?;
            Ok(Stream::cuda(context.clone(), memory.clone(), stream, false))
        }
    }
}

fn wrap_stream(context: &Arc<Context>, stream: Arc<CudaStream>) -> Result<Stream> {
    match &**context {
        Context::Cuda(memory) if memory.ctx.cu_ctx() == stream.context().cu_ctx() => {
            Ok(Stream::cuda(context.clone(), memory.clone(), stream, true))
        }
        Context::Cuda(_) | Context::Cpu => Err(Error::WrongDevice {
            argument: "".into(),
            actual: format!("cuda:{}", stream.context().ordinal()).into(),
            expected: context.label().into(),
        }),
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.0.context.is_same(&other.0.context)
    }
}

impl Eq for Device {}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.context.label())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({self}, {})", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_override_chooses_or_fails() {
        assert!(!Device::choose(Some(DeviceChoice::Cpu)).expect("the CPU is always there").is_cuda());
        let absent = Device::choose(Some(DeviceChoice::Cuda(1_000_000)));
        assert!(matches!(absent, Err(Error::NoDriver { .. } | Error::NoSuchDevice { .. })), "{absent:?}");
        let best = Device::choose(None).expect("there is always a device");
        assert_eq!(best.is_cuda(), Device::cuda_count() > 0);
    }
}
