//! The calls to the CUDA driver, each with its error turned into an [`Error`].
//!
//! cudarc resolves driver functions one by one when they are first called, and panics when the
//! library or a function is missing. So that nothing here ever panics, [`load`] opens the library
//! first and refuses drivers older than CUDA 12.0, which is also the first that reads the PTX
//! that we emit. Functions that cudarc binds to newer names than CUDA 12.0 has, `cuEventElapsedTime` and
//! `cuStreamGetCaptureInfo`, are looked up here.

use crate::error::{Error, Result};
use cudarc::driver::result::{self as cu, DriverError};
use cudarc::driver::{CudaStream, sys};
use std::ffi::c_void;
use std::sync::OnceLock;

/// The oldest driver that is accepted, as `cuDriverGetVersion` counts: 1000 * major + 10 * minor.
const OLDEST_DRIVER: i32 = 12_000;

/// The names under which the driver is opened. cudarc searches these as well.
const LIBRARY_NAMES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so", "libcuda.so.1"] };

type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;

type CaptureInfo = unsafe extern "C" fn(
    sys::CUstream,
    *mut sys::CUstreamCaptureStatus,
    *mut u64,
    *mut sys::CUgraph,
    *mut *const sys::CUgraphNode,
    *mut usize,
) -> sys::CUresult;

/// A driver that has been opened and initialised.
pub(crate) struct Driver {
    elapsed_time: ElapsedTime,
    capture_info: CaptureInfo,
    device_count: usize,
    /// What tells it from others.
    name: String,
    /// The newest CUDA that it supports.
    release: (u32, u32),
    /// Keeps the functions above mapped.
    _library: libloading::Library,
}

impl Driver {
    /// How many CUDA devices this process may use.
    pub(crate) fn device_count(&self) -> usize {
        self.device_count
    }

    /// What tells it, with its compiler, from other drivers: the newest CUDA that it supports, and on Linux its own version.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The newest CUDA that it supports: `(13, 0)`. Its compiler is that of this release.
    pub(crate) fn release(&self) -> (u32, u32) {
        self.release
    }
}

/// Opens the driver once per process.
pub(crate) fn load() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Result<Driver>> = OnceLock::new();
    DRIVER.get_or_init(open).as_ref().map_err(Error::clone)
}

fn open() -> Result<Driver> {
    let library = LIBRARY_NAMES
        .iter()
        // SAFETY: the CUDA driver's library has no constructors that unload or replace anything.
        .find_map(|name| unsafe { libloading::Library::new(*name) }.ok())
        .ok_or_else(|| no_driver(format!("{} was not found", LIBRARY_NAMES.join(" or "))))?;
    let strange = |error| no_driver(format!("the library is not a CUDA driver: {error}"));
    // SAFETY: the signature is that of the CUDA driver API since CUDA 2.0.
    let elapsed_time = *unsafe { library.get::<ElapsedTime>(b"cuEventElapsedTime\0") }.map_err(strange)?;
    // SAFETY: the signature is that of the CUDA driver API since CUDA 11.3.
    let capture_info = *unsafe { library.get::<CaptureInfo>(b"cuStreamGetCaptureInfo_v2\0") }.map_err(strange)?;

    let mut version = 0;
    // SAFETY: the driver's library is loaded; this call needs no initialisation.
    let code = unsafe { sys::cuDriverGetVersion(&mut version) };
    if code != sys::CUresult::CUDA_SUCCESS || version < OLDEST_DRIVER {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return Err(no_driver(format!("the installed driver supports CUDA {major}.{minor} only")));
    }
    let release = (version.unsigned_abs() / 1000, version.unsigned_abs() % 1000 / 10);
    let device_count = match cu::init() {
        Ok(()) => cu::device::get_count().map_err(wrap("cuDeviceGetCount"))?,
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => 0,
        Err(error) => return Err(wrap("cuInit")(error)),
    };
    let device_count = usize::try_from(device_count).unwrap_or(0);
    Ok(Driver { elapsed_time, capture_info, device_count, name: name(release), release, _library: library })
}

/// A driver's name. Two versions of one release of CUDA may compile differently.
fn name((major, minor): (u32, u32)) -> String {
    let module = std::fs::read_to_string(MODULE_VERSION).unwrap_or_default();
    let version = module.split_whitespace().find(|word| is_version(word)).unwrap_or_default();
    format!("driver {version} of CUDA {major}.{minor}")
}

/// Where Linux says which version of the driver's module is loaded.
const MODULE_VERSION: &str = "/proc/driver/nvidia/version";

/// Whether this is a version, such as `580.159.04`.
fn is_version(word: &str) -> bool {
    word.contains('.') && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

fn no_driver(reason: String) -> Error {
    Error::NoDriver { reason: reason.into() }
}

/// Makes an [`Error`] of a failure of the driver function `call`.
pub(crate) fn wrap(call: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| {
        let text = |found: Result<&std::ffi::CStr, DriverError>, otherwise: &str| -> Box<str> {
            found.map_or_else(|_| otherwise.into(), |text| text.to_string_lossy().into())
        };
        Error::Driver {
            call,
            code: error.0 as u32,
            name: text(error.error_name(), "unknown error"),
            message: text(error.error_string(), "the driver has no text for this code"),
        }
    }
}

/// Whether a failure of the driver means that memory ran out.
pub(crate) fn is_out_of_memory(error: &Error) -> bool {
    const CODE: u32 = sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32;
    matches!(error, Error::Driver { code: CODE, .. })
}

/// A CUDA event.
#[derive(Debug)]
pub(crate) struct RawEvent(sys::CUevent);

// SAFETY: events are handles that the driver lets any thread use.
unsafe impl Send for RawEvent {}
// SAFETY: as above; the driver serialises calls on one event.
unsafe impl Sync for RawEvent {}

/// Whether an event keeps the time at which it completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    /// The event can be passed to [`RawEvent::elapsed_ms`].
    On,
    /// The event only orders work, which is cheaper.
    Off,
}

impl RawEvent {
    /// Makes an event in the current context.
    pub(crate) fn new(timing: Timing) -> Result<Self> {
        let flags = match timing {
            Timing::On => sys::CUevent_flags::CU_EVENT_DEFAULT,
            Timing::Off => sys::CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        cu::event::create(flags).map(RawEvent).map_err(wrap("cuEventCreate"))
    }

    /// Marks the end of what `stream` has been given so far.
    ///
    /// # Safety
    ///
    /// `stream` is alive and belongs to the current context, which is the event's.
    pub(crate) unsafe fn record(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the event is alive because `self` owns it; the caller vouches for the stream.
        unsafe { cu::event::record(self.0, stream) }.map_err(wrap("cuEventRecord"))
    }

    /// Lets later work of `stream` wait for the event.
    ///
    /// # Safety
    ///
    /// As for [`RawEvent::record`].
    pub(crate) unsafe fn block(&self, stream: sys::CUstream) -> Result<()> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: as in `record`.
        unsafe { cu::stream::wait_event(stream, self.0, flags) }.map_err(wrap("cuStreamWaitEvent"))
    }

    /// Lets the host wait for the event.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let _mode = CaptureMode::relaxed();
        // SAFETY: the event is alive because `self` owns it.
        unsafe { cu::event::synchronize(self.0) }.map_err(wrap("cuEventSynchronize"))
    }

    /// Whether the event has been reached.
    pub(crate) fn is_complete(&self) -> Result<bool> {
        let _mode = CaptureMode::relaxed();
        // SAFETY: the event is alive because `self` owns it.
        match unsafe { cu::event::query(self.0) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(error) => Err(wrap("cuEventQuery")(error)),
        }
    }

    /// The milliseconds from this event to `later`. Both have been reached and keep time.
    pub(crate) fn elapsed_ms(&self, later: &RawEvent) -> Result<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive, the function has this signature in every driver.
        let code = unsafe { (load()?.elapsed_time)(&mut milliseconds, self.0, later.0) };
        code.result().map_err(wrap("cuEventElapsedTime"))?;
        Ok(milliseconds)
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        // The driver frees an event that is still awaited when it completes. A failure means
        // that the context is gone, and the event with it.
        // SAFETY: the event is alive and nobody uses it after this.
        let _ = unsafe { cu::event::destroy(self.0) };
    }
}

/// Lets the host wait for what a stream was given. Somebody may be capturing another stream, which the wait does not concern.
pub(crate) fn wait_for(stream: &CudaStream) -> Result<()> {
    let _mode = CaptureMode::relaxed();
    // SAFETY: the stream is alive.
    unsafe { cu::stream::synchronize(stream.cu_stream()) }.map_err(wrap("cuStreamSynchronize"))
}

/// The graph that somebody captures a stream into, with the number of the capture. `None` if nobody does.
///
/// # Safety
///
/// The stream is alive and belongs to the current context.
pub(crate) unsafe fn capture_of(stream: sys::CUstream) -> Result<Option<(u64, sys::CUgraph)>> {
    use sys::CUstreamCaptureStatus as Status;
    let (mut status, mut id, mut graph) = (Status::CU_STREAM_CAPTURE_STATUS_NONE, 0, std::ptr::null_mut());
    let (nodes, count) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: promised by the caller; what is not wanted has no place.
    let code = unsafe { (load()?.capture_info)(stream, &mut status, &mut id, &mut graph, nodes, count) };
    code.result().map_err(wrap("cuStreamGetCaptureInfo"))?;
    match status {
        Status::CU_STREAM_CAPTURE_STATUS_NONE => Ok(None),
        Status::CU_STREAM_CAPTURE_STATUS_ACTIVE => Ok(Some((id, graph))),
        Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED => {
            let code = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
            Err(wrap("cuStreamGetCaptureInfo")(DriverError(code)))
        }
    }
}

/// Whether somebody captures a stream.
///
/// # Safety
///
/// As for [`capture_of`].
pub(crate) unsafe fn is_captured(stream: sys::CUstream) -> Result<bool> {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: promised by the caller.
    unsafe { sys::cuStreamIsCapturing(stream, &mut status) }.result().map_err(wrap("cuStreamIsCapturing"))?;
    Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
}

/// Has the driver call `destroy` with `object` when it destroys the graph, and everything that was made of it.
///
/// # Safety
///
/// The graph is alive. `destroy` may be called with `object` on any thread, once, and calls no driver.
pub(crate) unsafe fn keep_with_graph(
    graph: sys::CUgraph,
    object: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
) -> Result<()> {
    let mut kept = std::ptr::null_mut();
    let no_sync = sys::CUuserObject_flags_enum::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32;
    // SAFETY: promised by the caller.
    unsafe { sys::cuUserObjectCreate(&mut kept, object, Some(destroy), 1, no_sync) }
        .result()
        .map_err(wrap("cuUserObjectCreate"))?;
    let moved = sys::CUuserObjectRetain_flags_enum::CU_GRAPH_USER_OBJECT_MOVE as u32;
    // SAFETY: both are alive; the graph takes the only reference. Where that fails, the object stays, and what it keeps.
    unsafe { sys::cuGraphRetainUserObject(graph, kept, 1, moved) }.result().map_err(wrap("cuGraphRetainUserObject"))
}

/// Lets this thread do what could disturb a capture that depends on it, which nothing of ours does: allocate memory that no
/// capture uses, load code, ask whether events are over. Until it drops.
pub(crate) struct CaptureMode(sys::CUstreamCaptureMode);

impl CaptureMode {
    pub(crate) fn relaxed() -> Self {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the mode has a place. If the driver refuses, nothing changes.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        CaptureMode(mode)
    }
}

impl Drop for CaptureMode {
    fn drop(&mut self) {
        // SAFETY: as above.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut self.0) };
    }
}

/// Memory of the GPU that no stream orders: whoever drops it knows that nothing uses it any more. No capture uses it but by
/// its address, so that captures are left alone when it comes and goes.
#[derive(Debug)]
pub(crate) struct DeviceMemory(u64);

impl DeviceMemory {
    /// Allocates memory in the current context.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let _mode = CaptureMode::relaxed();
        // SAFETY: a current context exists.
        unsafe { cu::malloc_sync(bytes.max(1)) }.map(DeviceMemory).map_err(wrap("cuMemAlloc"))
    }

    pub(crate) fn address(&self) -> u64 {
        self.0
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let _mode = CaptureMode::relaxed();
        // SAFETY: the memory is owned, and freed once.
        if let Err(error) = unsafe { cu::free_sync(self.0) } {
            log::warn!("memory of a graph cannot be freed: {error:?}");
        }
    }
}

/// Page-locked host memory that the GPU can write to. Captures are left alone when it comes and goes.
#[derive(Debug)]
pub(crate) struct MappedMemory {
    host: *mut c_void,
    device: u64,
}

// SAFETY: plain memory; what is read and written there is the owner's business.
unsafe impl Send for MappedMemory {}

impl MappedMemory {
    /// Allocates zeroed memory in the current context.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        let _mode = CaptureMode::relaxed();
        // SAFETY: a current context exists.
        let host = unsafe { cu::malloc_host(bytes, flags) }.map_err(wrap("cuMemHostAlloc"))?;
        // The value owns the memory from here on, so that an error below frees it.
        let mut memory = MappedMemory { host, device: 0 };
        // SAFETY: the driver has just given us `bytes` bytes at `host`.
        unsafe { host.cast::<u8>().write_bytes(0, bytes) };
        // SAFETY: `host` is the start of a device-mapped allocation.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut memory.device, host, 0) }
            .result()
            .map_err(wrap("cuMemHostGetDevicePointer"))?;
        Ok(memory)
    }

    /// Where the host finds the memory.
    pub(crate) fn host(&self) -> *mut c_void {
        self.host
    }

    /// Where the GPU finds the memory.
    pub(crate) fn device(&self) -> u64 {
        self.device
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        let _mode = CaptureMode::relaxed();
        // SAFETY: the memory came from `cuMemHostAlloc`; the owner has waited for the GPU.
        let _ = unsafe { cu::free_host(self.host) };
    }
}

/// Fills `count` elements of `size` bytes at `address` with the low bytes of `pattern`.
///
/// # Safety
///
/// The memory is alive and in the current context, the stream too; `size` is 1, 2 or 4 and
/// divides the address.
pub(crate) unsafe fn fill(address: u64, size: usize, pattern: u32, count: usize, stream: sys::CUstream) -> Result<()> {
    // SAFETY: promised by the caller.
    let code = unsafe {
        match size {
            1 => sys::cuMemsetD8Async(address, pattern as u8, count, stream),
            2 => sys::cuMemsetD16Async(address, pattern as u16, count, stream),
            _ => sys::cuMemsetD32Async(address, pattern, count, stream),
        }
    };
    code.result().map_err(wrap("cuMemsetAsync"))
}

/// Starts a copy from the host.
///
/// # Safety
///
/// Both ranges are alive, the host's until the copy has left it (see `Context::copy_from_host`).
pub(crate) unsafe fn copy_from_host(to: u64, from: *const u8, bytes: usize, stream: sys::CUstream) -> Result<()> {
    // SAFETY: promised by the caller.
    let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream) };
    code.result().map_err(wrap("cuMemcpyHtoDAsync"))
}

/// Starts a copy to the host.
///
/// # Safety
///
/// Both ranges are alive until the stream has been synchronised.
pub(crate) unsafe fn copy_to_host(to: *mut u8, from: u64, bytes: usize, stream: sys::CUstream) -> Result<()> {
    // SAFETY: promised by the caller.
    let code = unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, stream) };
    code.result().map_err(wrap("cuMemcpyDtoHAsync"))
}

/// Starts a copy within the device.
///
/// # Safety
///
/// Both ranges are alive in stream order, in the current context.
pub(crate) unsafe fn copy_within(to: u64, from: u64, bytes: usize, stream: sys::CUstream) -> Result<()> {
    // SAFETY: promised by the caller.
    unsafe { cu::memcpy_dtod_async(to, from, bytes, stream) }.map_err(wrap("cuMemcpyDtoDAsync"))
}

/// Whether a host address belongs to memory that the driver has page-locked or manages, which it
/// reads by DMA after the call that starts a copy has returned.
pub(crate) fn is_known_to_driver(address: *const u8) -> bool {
    let mut kind: u32 = 0;
    let mut attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let mut data = (&raw mut kind).cast();
    // SAFETY: one attribute is asked for, a 32-bit enum; the driver accepts any address, and leaves
    // the attributes of ordinary memory at zero.
    let code = unsafe { sys::cuPointerGetAttributes(1, &mut attribute, &mut data, address as u64) };
    code == sys::CUresult::CUDA_SUCCESS && kind != 0
}
