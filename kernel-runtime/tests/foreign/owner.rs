//! Somebody else: a program that has a stream, memory and graphs of the driver, and knows nothing of us.

use cudarc::driver::CudaStream;
use cudarc::driver::sys::{self, CUresult, CUstream};
use kernel_runtime::{Device, Result};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Runs a check if there is a GPU, or says that it is skipped.
pub fn on_a_gpu(check: impl FnOnce() -> Result<()>) -> Result<()> {
    static SKIPPED: AtomicUsize = AtomicUsize::new(0);
    // What owners do, such as waiting, would ruin the captures of other tests.
    static ALONE: Mutex<()> = Mutex::new(());
    if Device::cuda_count() > 0 && cfg!(jit) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        return check();
    }
    let skipped = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    println!("skipped: no CUDA device ({skipped} GPU checks of this run)");
    Ok(())
}

/// The functions that the driver has been called for, where it is the model of it.
fn calls(run: impl FnOnce() -> Result<()>) -> Result<Option<Vec<String>>> {
    #[cfg(target_os = "linux")]
    if tilewright_driver_model::is_the_driver() {
        let before = tilewright_driver_model::trace().len();
        run()?;
        let trace = tilewright_driver_model::trace();
        return Ok(Some(trace[before..].iter().map(|call| call.function.clone()).collect()));
    }
    run().map(|()| None)
}

#[track_caller]
fn ok(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

/// A stream, in the primary context of the first GPU.
pub struct Owner {
    stream: CUstream,
}

/// A graph that was captured.
pub struct Graph {
    exec: sys::CUgraphExec,
    stream: CUstream,
}

fn open() {
    let (mut device, mut context) = (0, std::ptr::null_mut());
    // SAFETY: results have places.
    unsafe {
        ok(sys::cuInit(0));
        ok(sys::cuDeviceGet(&mut device, 0));
        ok(sys::cuDevicePrimaryCtxRetain(&mut context, device));
        ok(sys::cuCtxSetCurrent(context));
    }
}

fn named(handle: usize) -> Owner {
    open();
    Owner { stream: std::ptr::without_provenance_mut(handle) }
}

impl Owner {
    pub fn new() -> Owner {
        open();
        let mut stream = std::ptr::null_mut();
        // SAFETY: the result has a place.
        ok(unsafe { sys::cuStreamCreate(&mut stream, 1) });
        Owner { stream }
    }

    /// With a stream of cudarc, which is kept.
    pub fn of(stream: &Arc<CudaStream>) -> Owner {
        std::mem::forget(stream.clone());
        named(stream.cu_stream().addr())
    }

    /// With the default stream of the calling thread.
    pub fn of_thread() -> Owner {
        named(2)
    }

    /// With the legacy default stream.
    pub fn legacy() -> Owner {
        named(0)
    }

    /// What a bridge asks for at each call.
    pub fn device(&self) -> Result<Device> {
        // SAFETY: streams of these tests stay.
        unsafe { Device::of_stream(0, self.stream.addr() as u64) }
    }

    pub fn zeros(&self, len: usize) -> u64 {
        self.upload(&vec![0.0f32; len])
    }

    /// Memory of the driver's with these elements. It stays.
    pub fn upload<T: Copy>(&self, elements: &[T]) -> u64 {
        let mut address = 0;
        // SAFETY: the result has a place.
        ok(unsafe { sys::cuMemAlloc_v2(&mut address, size_of_val(elements).max(1)) });
        self.write(address, elements);
        address
    }

    pub fn write<T: Copy>(&self, address: u64, elements: &[T]) {
        // SAFETY: the memory is as large; what the stream was given before is over when this is.
        unsafe {
            ok(sys::cuMemcpyHtoDAsync_v2(address, elements.as_ptr().cast(), size_of_val(elements), self.stream));
        }
        self.wait();
    }

    pub fn read(&self, address: u64, len: usize) -> Vec<f32> {
        let mut elements = vec![0.0f32; len];
        // SAFETY: as above.
        unsafe { ok(sys::cuMemcpyDtoHAsync_v2(elements.as_mut_ptr().cast(), address, 4 * len, self.stream)) };
        self.wait();
        elements
    }

    /// Destroys the stream, without telling anybody.
    pub fn destroy(self) {
        // SAFETY: nobody uses it again.
        ok(unsafe { sys::cuStreamDestroy_v2(self.stream) });
    }

    /// Whether no context is current on this thread.
    pub fn has_left_context() -> bool {
        let mut context = std::ptr::null_mut();
        // SAFETY: the result has a place.
        ok(unsafe { sys::cuCtxGetCurrent(&mut context) });
        context.is_null()
    }

    /// Waits without telling anybody.
    pub fn wait(&self) {
        // SAFETY: the stream is alive.
        ok(unsafe { sys::cuStreamSynchronize(self.stream) });
    }

    /// Captures what is given to the stream, in the mode that keeps all threads from what could disturb it.
    pub fn capture(&self, give: impl FnOnce() -> Result<()>) -> Result<Graph> {
        let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
        let global = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: the stream is alive, results have places.
        unsafe {
            ok(sys::cuStreamBeginCapture_v2(self.stream, global));
            let given = give();
            let ended = sys::cuStreamEndCapture(self.stream, &mut graph);
            assert_eq!((ended, &given), (CUresult::CUDA_SUCCESS, &Ok(())));
            given?;
            ok(sys::cuGraphInstantiateWithFlags(&mut exec, graph, 0));
            ok(sys::cuGraphDestroy(graph));
        }
        Ok(Graph { exec, stream: self.stream })
    }

    /// Asserts that the capture of the stream is not spoiled.
    #[track_caller]
    pub fn check_capture(&self, after: &str) {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the stream is alive, the result has a place.
        ok(unsafe { sys::cuStreamIsCapturing(self.stream, &mut status) });
        assert_eq!(status, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE, "after {after}");
    }

    /// In the model, that a launch which cannot fail is one call of the driver, or two where handles do not name a context.
    pub fn check_that_launches_are_single_calls(&self, launch: impl Fn() -> Result<()>) -> Result<()> {
        self.check_calls_of_launches(&[], launch)
    }

    /// In the model, that a launch which cannot fail is one call of the driver, behind these and questions for the context.
    pub fn check_calls_of_launches(&self, before: &[&str], launch: impl Fn() -> Result<()>) -> Result<()> {
        launch()?;
        if let Some(mut calls) = calls(launch)? {
            calls.retain(|call| call != "cuCtxGetCurrent");
            assert_eq!(calls, [before, &["cuLaunchKernelEx"]].concat());
        }
        Ok(())
    }

    /// Fills so many numbers with zeros.
    pub fn fill(&self, address: u64, len: usize) {
        // SAFETY: the memory is as large.
        ok(unsafe { sys::cuMemsetD32Async(address, 0, len, self.stream) });
    }

    /// In the model, that the driver is not called.
    pub fn check_that_the_driver_is_not_called(&self, run: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Some(calls) = calls(run)? {
            assert_eq!(calls, [""; 0]);
        }
        Ok(())
    }

    /// Leaves this thread without a current context.
    pub fn leave_context(&self) {
        // SAFETY: no context may be current.
        ok(unsafe { sys::cuCtxSetCurrent(std::ptr::null_mut()) });
    }

    /// In the model, that memory is freed that no stream orders.
    pub fn check_that_memory_is_freed(&self, run: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Some(calls) = calls(run)? {
            assert!(calls.iter().any(|call| call == "cuMemFree_v2"), "{calls:?}");
        }
        Ok(())
    }

    /// In the model, that so many buffers are freed.
    pub fn check_that_buffers_are_freed(&self, count: usize, run: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Some(calls) = calls(run)? {
            assert_eq!(calls.iter().filter(|call| *call == "cuMemFreeAsync").count(), count, "{calls:?}");
        }
        Ok(())
    }

    /// In the model, that the host does not wait for the whole context.
    pub fn check_that_nothing_waits_for_all(&self, run: impl FnOnce() -> Result<()>) -> Result<()> {
        if let Some(calls) = calls(run)? {
            let waits = calls.iter().filter(|call| *call == "cuCtxSynchronize").count();
            assert_eq!(waits, 0);
        }
        Ok(())
    }
}

impl Graph {
    pub fn replay(&self) {
        // SAFETY: both are alive.
        ok(unsafe { sys::cuGraphLaunch(self.exec, self.stream) });
    }

    /// On a stream that was not captured.
    pub fn replay_on(&self, owner: &Owner) {
        // SAFETY: both are alive.
        ok(unsafe { sys::cuGraphLaunch(self.exec, owner.stream) });
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: nobody launches it again. The driver refuses it in a capture that keeps threads from what could disturb it.
        unsafe {
            ok(sys::cuThreadExchangeStreamCaptureMode(&mut mode));
            ok(sys::cuGraphExecDestroy(self.exec));
            ok(sys::cuThreadExchangeStreamCaptureMode(&mut mode));
        }
    }
}
