//! Devices, streams and memory of somebody else: how kernels run inside another framework.
//!
//! A framework has a context, a stream and memory, and calls a function that launches kernels. The function asks for a
//! [`Device`] that stands for the framework's stream, which is found in a cache, and borrows the memory:
//!
//! ```
//! use kernel_runtime::Device;
//!
//! # fn main() -> kernel_runtime::Result<()> {
//! // On a GPU: unsafe { Device::of_stream(ordinal, stream) }, and `borrow` for addresses.
//! let device = Device::cpu();
//! let (x, mut out) = (vec![1.0f32; 100], vec![0.0f32; 100]);
//! let (x, mut out) = (device.borrow_slice(&x)?, device.borrow_slice_mut(&mut out)?);
//! // scale::<64>(x, &mut out, 2.0).grid(2).launch(&device)?;
//! assert_eq!((x.len(), out.as_view().len()), (100, 100));
//! # Ok(())
//! # }
//! ```
//!
//! **Order** is the framework's: what is launched runs on its stream, behind what it has given to it. Nothing is waited for,
//! and nobody else's settings are changed.
//!
//! **Errors** of kernels come later, as on every GPU. No buffer of ours is read that could tell them, so whoever stands
//! between asks [`Device::poll_error`] at the next call, which waits for nothing, and [`Device::synchronize`], or
//! [`synchronize_all`], at the end.
//!
//! **Captures.** The framework may be capturing the stream into a CUDA graph. Launches are recorded then, and report what goes
//! wrong in replays for as long as the graph lives (`stream/captured.rs`): on whichever stream these run, the first who asks a
//! stream of the framework in that context is told.
//!
//! The graph keeps our own buffers that are captured, so that they may drop before it does. A buffer that is allocated in the
//! capture is a node of the graph, which allocates it anew at each replay. The order of replays is their owner's business: a
//! replay is no use of a buffer that we know of, so that whoever replays sees to it that nobody else uses the buffers
//! meanwhile. Uses on the captured stream are in order with replays on that stream.
//!
//! A stream of ours is captured as well where it waits for one that is, or where the framework has its handle from
//! [`Stream::cudarc`](crate::Stream::cudarc). Copies from and to the host, waits, and replays of our own graphs are errors on
//! captured streams.

use crate::context::Context;
use crate::device::Device;
use crate::driver::{self, wrap};
use crate::dtype::{DType, ElementType};
use crate::error::{Error, Result};
use crate::graph::capture;
use crate::stream::PER_THREAD_HANDLE;
use crate::view::{View, ViewMut};
use cudarc::driver::{CudaContext, CudaStream, result as cu, sys};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

/// The handle of a stream that stands for another one on each thread.
const PER_THREAD: u64 = PER_THREAD_HANDLE as u64;

/// What tells streams apart, as numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    /// Of the primary context of a GPU, its place among GPUs; else the driver's name of the context.
    context: ContextKey,
    stream: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ContextKey {
    Primary(usize),
    Named(u64),
}

/// Devices that were asked for, the latest last.
type Known = Vec<(Key, Device)>;

/// Devices that a thread remembers.
const REMEMBERED: usize = 8;

thread_local! {
    /// Those that the thread has asked for lately.
    static LATELY: RefCell<Known> = const { RefCell::new(Vec::new()) };
    /// Those of the thread's own default streams.
    static OWN: RefCell<Known> = const { RefCell::new(Vec::new()) };
}

/// Those of streams that all threads share. Those known by name stay: a stream that the framework destroys is a name that the
/// driver gives again. Those of cudarc stay as long as somebody else has the stream.
static SHARED: Mutex<Known> = Mutex::new(Vec::new());

/// Takes out the devices of streams of cudarc that nobody else has any more, and so nobody asks for. Default streams stay: others
/// of cudarc stand for the same.
fn take_gone(known: &mut Known) -> Known {
    let is_gone = |(key, device): &mut (Key, Device)| {
        let stream = device.default_stream().cuda_stream();
        let is_ours = stream.is_some_and(|stream| Arc::strong_count(stream) == 1);
        matches!(key.context, ContextKey::Named(_)) && key.stream > PER_THREAD && is_ours
    };
    known.extract_if(.., is_gone).collect()
}

fn find(known: &Known, key: Key) -> Option<Device> {
    known.iter().rev().find(|(own, _)| *own == key).map(|(_, device)| device.clone())
}

/// The device of a stream, made if nobody has asked for it before.
#[inline]
fn cached(key: Key, make: impl FnOnce() -> Result<Device>) -> Result<Device> {
    // While a thread is torn down it remembers nothing.
    match LATELY.try_with(|lately| find(&lately.borrow(), key)) {
        Ok(Some(device)) => Ok(device),
        Ok(None) | Err(_) => cached_slow(key, make),
    }
}

#[cold]
fn cached_slow(key: Key, make: impl FnOnce() -> Result<Device>) -> Result<Device> {
    // A stream that ends waits for its work, which no lock should do.
    let mut gone = LATELY.try_with(|lately| take_gone(&mut lately.borrow_mut())).unwrap_or_default();
    let device = match key.stream {
        PER_THREAD => {
            let known = OWN.try_with(|own| find(&own.borrow(), key)).ok().flatten();
            known.map_or_else(make, Ok)?
        }
        _ => {
            let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            match find(&shared, key) {
                Some(device) => device,
                None => {
                    gone.extend(take_gone(&mut shared));
                    let device = make()?;
                    shared.push((key, device.clone()));
                    device
                }
            }
        }
    };
    let _ = LATELY.try_with(|lately| {
        let mut lately = lately.borrow_mut();
        if lately.len() == REMEMBERED {
            lately.remove(0);
        }
        lately.push((key, device.clone()));
    });
    if key.stream == PER_THREAD {
        let _ = OWN.try_with(|own| {
            let mut own = own.borrow_mut();
            if find(&own, key).is_none() {
                own.push((key, device.clone()));
            }
        });
    }
    Ok(device)
}

/// The primary context of a GPU, opened once. Its settings stay as they are.
fn primary(ordinal: usize) -> Result<(Arc<CudaContext>, Arc<Context>)> {
    type Opened = (usize, Arc<CudaContext>, Arc<Context>);
    static OPEN: Mutex<Vec<Opened>> = Mutex::new(Vec::new());
    let count = driver::load()?.device_count();
    if ordinal >= count {
        return Err(Error::NoSuchDevice { requested: ordinal, count });
    }
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, ctx, context)) = open.iter().find(|(index, ..)| *index == ordinal) {
        return Ok((ctx.clone(), context.clone()));
    }
    let before = cu::ctx::get_current().map_err(wrap("cuCtxGetCurrent"))?;
    let ctx = CudaContext::new(ordinal).map_err(wrap("cuDevicePrimaryCtxRetain"))?;
    let context = Context::from_cudarc(ctx.clone())?;
    // Whoever opens a context has it current afterwards; the caller's GPU may be another one.
    if let Some(before) = before {
        // SAFETY: it was current, and nobody else runs on this thread.
        unsafe { cu::ctx::set_current(before) }.map_err(wrap("cuCtxSetCurrent"))?;
    }
    open.push((ordinal, ctx.clone(), context.clone()));
    Ok((ctx, context))
}

impl Device {
    /// The GPU with this index, with a stream of somebody else in its primary context as the default stream: the driver's
    /// name of it, which is 0 for the legacy default stream, and 2 for that of the calling thread. Found in a cache after the
    /// first call of a thread.
    ///
    /// A device of stream 2 is for the thread that asks for it.
    ///
    /// # Captures
    ///
    /// Whoever owns the stream may capture launches, copies and fills into a CUDA graph, which keeps the buffers that they use:
    /// these may drop before the graph does. A replay is no use of a buffer that is known here. It is ordered with uses on the
    /// captured stream if it runs there; whoever replays sees to the order with all others.
    ///
    /// # Errors
    ///
    /// [`Error::NoDriver`]; [`Error::NoSuchDevice`]; [`Error::Driver`].
    ///
    /// # Safety
    ///
    /// The stream belongs to the primary context of the GPU, and is alive whenever the device is used for launches or for
    /// allocating buffers, waited for or asked for errors, and whenever a buffer is used or dropped that was allocated there or
    /// that work on the stream has used. Other devices do not touch it.
    pub unsafe fn of_stream(ordinal: usize, stream: u64) -> Result<Device> {
        cached(Key { context: ContextKey::Primary(ordinal), stream }, || {
            let (ctx, context) = primary(ordinal)?;
            let handle = std::ptr::without_provenance_mut::<sys::CUstream_st>(stream as usize);
            // SAFETY: a name, which is used while the stream is alive, as the caller promises.
            Device::of_foreign_stream(&context, unsafe { ctx.wrap_borrowed_stream(handle) })
        })
    }

    /// The device of a stream of [cudarc](https://docs.rs/cudarc), and so of candle: as [`Device::of_stream`], of any
    /// context, also where it is captured. The device keeps the stream, and so does the cache until another one is asked for and
    /// nobody else has this one. One that cudarc only borrows (`wrap_borrowed_stream`) is to outlive that.
    ///
    /// # Errors
    ///
    /// [`Error::NoDriver`]; [`Error::Driver`].
    pub fn of_cudarc(stream: &Arc<CudaStream>) -> Result<Device> {
        let ctx = stream.context();
        let key =
            Key { context: ContextKey::Named(ctx.cu_ctx().addr() as u64), stream: stream.cu_stream().addr() as u64 };
        cached(key, || Device::of_foreign_stream(&Context::from_cudarc(ctx.clone())?, stream.clone()))
    }

    /// Memory that somebody else owns, to read: the address of `len` elements in memory of this device's context, or of the
    /// host if this is the CPU. Costs nothing, also later: nobody claims it, waits for it or frees it. The same memory may be
    /// borrowed several times.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if the address is not a multiple of the size of an element.
    ///
    /// # Safety
    ///
    /// Until all that was given views of the memory is done, also on the GPU: the elements are there, are values of `T`, and
    /// nobody writes them, but in an order that the caller sees to. A graph that the owner of the stream captures uses the
    /// memory at each replay.
    ///
    /// Where launches are noted instead of made ([`shapes_of`](crate::launch::shapes_of)), nothing has to be there.
    #[inline]
    pub unsafe fn borrow<T: DType>(&self, address: u64, len: usize) -> Result<View<'_, T>> {
        Ok(View::borrowed(self, first::<T>(address)?, len))
    }

    /// Memory that somebody else owns, to read and write. As [`Device::borrow`].
    ///
    /// # Errors
    ///
    /// As for [`Device::borrow`].
    ///
    /// # Safety
    ///
    /// As for [`Device::borrow`], and nobody else uses the memory, but in an order that the caller sees to.
    #[inline]
    pub unsafe fn borrow_mut<T: DType>(&self, address: u64, len: usize) -> Result<ViewMut<'_, T>> {
        Ok(ViewMut::borrowed(self, first::<T>(address)?, len))
    }

    /// Elements of the host, to read, for kernels that run on the CPU.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if this is not the CPU.
    pub fn borrow_slice<'a, T: DType>(&'a self, elements: &'a [T]) -> Result<View<'a, T>> {
        self.check_is_cpu()?;
        let address = elements.as_ptr().expose_provenance();
        Ok(View::borrowed(self, address / size_of::<T>(), elements.len()))
    }

    /// Elements of the host, to read and write, for kernels that run on the CPU.
    ///
    /// # Errors
    ///
    /// [`Error::WrongDevice`] if this is not the CPU.
    pub fn borrow_slice_mut<'a, T: DType>(&'a self, elements: &'a mut [T]) -> Result<ViewMut<'a, T>> {
        self.check_is_cpu()?;
        let address = elements.as_mut_ptr().expose_provenance();
        Ok(ViewMut::borrowed(self, address / size_of::<T>(), elements.len()))
    }

    /// The oldest error of a launch on the default stream that nobody has taken, among those that are known. Waits for
    /// nothing: a launch whose end is not known yet is for a later call, or for [`Device::synchronize`].
    #[inline]
    pub fn poll_error(&self) -> Option<Error> {
        self.default_stream().poll_error()
    }

    /// Memory of `bytes` bytes, aligned to 256, for launches on the default stream that need it beside what they are given, if
    /// somebody captures that stream: memory that is free for others after the call would be used again by each replay. The
    /// graph keeps it, and what is made of the graph. `None` if nobody captures.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`], also if there is no memory left.
    pub fn captured_scratch(&self, bytes: usize) -> Result<Option<u64>> {
        self.default_stream().captured_scratch(bytes)
    }

    /// Whether somebody else captures the default stream into a graph.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    pub fn is_captured(&self) -> Result<bool> {
        self.default_stream().is_captured()
    }

    /// Whether the device's context is the calling thread's current one. Where it is not, a launch may make it so: who stands
    /// between a framework and kernels keeps what was current, and restores it. On the CPU there is nothing to keep.
    ///
    /// # Errors
    ///
    /// [`Error::Driver`].
    #[inline]
    pub fn is_current(&self) -> Result<bool> {
        self.default_stream().cuda_memory().map_or(Ok(true), |memory| memory.is_current())
    }

    /// Does something that may make the device's context current on the calling thread, and restores what was. On the CPU there
    /// is nothing to restore.
    #[inline]
    pub fn keeping_current<R>(&self, work: impl FnOnce() -> R) -> R {
        match self.default_stream().cuda_memory() {
            Some(memory) if !memory.is_current().unwrap_or(true) => memory.within(work),
            Some(_) | None => work(),
        }
    }

    fn check_is_cpu(&self) -> Result<()> {
        if !self.is_cuda() {
            return Ok(());
        }
        Err(Error::WrongDevice { argument: "".into(), actual: "cpu".into(), expected: self.to_string().into() })
    }
}

/// Waits until all that these devices were given is done, and of GPUs on which somebody else has captured launches all that
/// they were given by anybody, since nobody knows where a graph is replayed. Gives the oldest error of a launch that nobody has
/// taken, of the first device that has one; call again for the next. What context is current on the calling thread stays so.
///
/// # Errors
///
/// That of a launch; [`Error::Driver`]; [`Error::Unsupported`] while one of the streams is captured.
pub fn synchronize_all(devices: &[Device]) -> Result<()> {
    capture::refuse("synchronising devices")?;
    // All are waited for, whichever fails.
    let mut waited = Ok(());
    for device in devices {
        waited = waited.and(device.keeping_current(|| device.finish()));
    }
    waited?;
    for device in devices.iter().filter(|device| device.default_stream().has_replays()) {
        if let Some(memory) = device.default_stream().cuda_memory() {
            memory.within(|| memory.synchronize())?;
        }
        device.default_stream().collect_replays();
    }
    devices.iter().find_map(Device::take_oldest_error).map_or(Ok(()), Err)
}

/// The place of the element at an address, in elements.
#[inline]
fn first<T: DType>(address: u64) -> Result<usize> {
    let size = size_of::<T>();
    match address as usize {
        address if address.is_multiple_of(size) => Ok(address / size),
        _ => Err(unaligned(T::ELEMENT, address, size)),
    }
}

#[cold]
fn unaligned(dtype: ElementType, address: u64, size: usize) -> Error {
    Error::InvalidTensor {
        tensor: format!("memory of {dtype} at {address:#x}").into(),
        problem: format!("begins at an address that is not a multiple of {size} bytes").into(),
        hint: "borrow memory that is aligned to its elements".into(),
    }
}
