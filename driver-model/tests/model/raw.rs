//! The driver's functions, with less to write.

use cudarc::driver::sys::{self, CUcontext, CUevent, CUfunction, CUgraph, CUgraphExec, CUresult, CUstream};
use std::ffi::c_void;

/// Panics unless a call was a success.
#[track_caller]
pub fn ok(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

/// Adds one to a number. Threads all do the same, so that one is enough.
pub const BUMP: &str = "
.version 8.0
.target sm_80
.address_size 64

.visible .entry bump(
	.param .u64 .ptr .align 4 bump_param_0,
	.param .u64 bump_param_1
)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<4>;

	ld.param.b64 	%rd1, [bump_param_0];
	ld.param.b64 	%rd2, [bump_param_1];
	add.s64 	%rd3, %rd1, %rd2;
	ld.global.b32 	%r1, [%rd3];
	add.s32 	%r2, %r1, 1;
	st.global.b32 	[%rd3], %r2;
	ret;
}
";

/// Opens the first GPU for this thread.
pub fn open() -> CUcontext {
    let (mut device, mut context) = (0, std::ptr::null_mut());
    // SAFETY: results have places.
    unsafe {
        ok(sys::cuInit(0));
        ok(sys::cuDeviceGet(&mut device, 0));
        ok(sys::cuDevicePrimaryCtxRetain(&mut context, device));
        ok(sys::cuCtxSetCurrent(context));
    }
    context
}

/// A stream that has nothing to do with the legacy default stream.
pub fn stream() -> CUstream {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the result has a place.
    ok(unsafe { sys::cuStreamCreate(&mut stream, 1) });
    stream
}

pub fn event() -> CUevent {
    let mut event = std::ptr::null_mut();
    // SAFETY: the result has a place.
    ok(unsafe { sys::cuEventCreate(&mut event, 0) });
    event
}

pub fn record(event: CUevent, stream: CUstream) -> CUresult {
    // SAFETY: handles that mean nothing are refused.
    unsafe { sys::cuEventRecord(event, stream) }
}

pub fn wait(stream: CUstream, event: CUevent) -> CUresult {
    // SAFETY: as above.
    unsafe { sys::cuStreamWaitEvent(stream, event, 0) }
}

pub fn synchronize(stream: CUstream) -> CUresult {
    // SAFETY: as above.
    unsafe { sys::cuStreamSynchronize(stream) }
}

pub fn allocate(bytes: usize, stream: CUstream) -> u64 {
    let mut address = 0;
    // SAFETY: the result has a place.
    ok(unsafe { sys::cuMemAllocAsync(&mut address, bytes, stream) });
    address
}

pub fn free(address: u64, stream: CUstream) -> CUresult {
    // SAFETY: what is no allocation is refused.
    unsafe { sys::cuMemFreeAsync(address, stream) }
}

/// Fills 32-bit numbers.
pub fn fill(address: u64, value: u32, count: usize, stream: CUstream) -> CUresult {
    // SAFETY: what is no memory is refused.
    unsafe { sys::cuMemsetD32Async(address, value, count, stream) }
}

/// Reads a 32-bit number, waiting for the stream.
pub fn read(address: u64, stream: CUstream) -> u32 {
    let mut value = 0u32;
    // SAFETY: the number is there until the stream has been waited for.
    unsafe {
        ok(sys::cuMemcpyDtoHAsync_v2((&raw mut value).cast(), address, 4, stream));
        ok(sys::cuStreamSynchronize(stream));
    }
    value
}

pub fn load(text: &str) -> Result<CUfunction, CUresult> {
    let text = std::ffi::CString::new(text).expect("no zero in it");
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the text ends in zero, results have places.
    unsafe {
        sys::cuModuleLoadData(&mut module, text.as_ptr().cast()).result().map_err(|error| error.0)?;
        sys::cuModuleGetFunction(&mut function, module, c"bump".as_ptr()).result().map_err(|error| error.0)?;
    }
    Ok(function)
}

/// Adds one to the number at an address and a distance.
pub fn bump(function: CUfunction, mut address: u64, mut distance: u64, stream: CUstream) -> CUresult {
    let mut params: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut distance).cast()];
    // SAFETY: there is a pointer for each parameter.
    unsafe { sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params.as_mut_ptr(), std::ptr::null_mut()) }
}

/// Begins a capture: 0 is global, 1 of this thread, 2 relaxed.
pub fn begin(stream: CUstream, mode: usize) -> CUresult {
    use sys::CUstreamCaptureMode as Mode;
    let modes = [
        Mode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ];
    // SAFETY: handles that mean nothing are refused.
    unsafe { sys::cuStreamBeginCapture_v2(stream, modes[mode]) }
}

pub fn end(stream: CUstream) -> Result<CUgraph, CUresult> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: as above; the result has a place.
    let code = unsafe { sys::cuStreamEndCapture(stream, &mut graph) };
    assert_eq!(code == CUresult::CUDA_SUCCESS, !graph.is_null());
    code.result().map(|()| graph).map_err(|error| error.0)
}

/// None, active or invalidated: 0, 1 or 2.
pub fn status(stream: CUstream) -> u32 {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the result has a place.
    ok(unsafe { sys::cuStreamIsCapturing(stream, &mut status) });
    status as u32
}

pub fn instantiate(graph: CUgraph) -> CUgraphExec {
    instantiate_with(graph, 0)
}

/// 1 frees what a launch has left before the next.
pub fn instantiate_with(graph: CUgraph, flags: u64) -> CUgraphExec {
    let mut exec = std::ptr::null_mut();
    // SAFETY: the result has a place.
    ok(unsafe { sys::cuGraphInstantiateWithFlags(&mut exec, graph, flags) });
    exec
}

pub fn launch(exec: CUgraphExec, stream: CUstream) -> CUresult {
    // SAFETY: handles that mean nothing are refused.
    unsafe { sys::cuGraphLaunch(exec, stream) }
}
