//! A CUDA stream as the ring of its records and the tracking of buffers see it.

use crate::context::CudaMemory;
use crate::driver::{self, CaptureMode, MappedMemory, RawEvent, Timing, wrap};
use crate::error::{Error, Result};
use crate::report_slot::LaunchRecord;
use crate::ring::Queue;
use cudarc::driver::{CudaStream, sys};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

/// The handle value that means "the default stream of whichever thread calls".
pub(crate) const PER_THREAD_HANDLE: usize = 2;

/// The driver's name of a stream.
#[derive(Clone, Copy)]
pub(crate) struct StreamHandle(cudarc::driver::sys::CUstream);

// SAFETY: a handle is a name, which the driver lets any thread use. Who uses it answers for the stream's life.
unsafe impl Send for StreamHandle {}
// SAFETY: as above.
unsafe impl Sync for StreamHandle {}

impl StreamHandle {
    pub(super) fn new(stream: cudarc::driver::sys::CUstream) -> Self {
        StreamHandle(stream)
    }

    /// As the driver takes it.
    #[inline]
    pub(crate) fn get(self) -> cudarc::driver::sys::CUstream {
        self.0
    }

    /// Whether it means the legacy default stream of the current context, by either of its names.
    #[inline]
    fn is_legacy(self) -> bool {
        (self.0 as usize) < PER_THREAD_HANDLE
    }

    /// Whether it means the stream, rather than one of the current context.
    #[inline]
    pub(crate) fn is_own(self) -> bool {
        self.0 as usize > PER_THREAD_HANDLE
    }
}

/// A CUDA stream as the ring and the tracking of buffers see it.
pub(crate) struct CudaQueue {
    /// The driver's name of `stream`.
    pub(super) handle: StreamHandle,
    pub(super) per_thread: bool,
    /// Whether it is somebody else's, who may destroy it.
    pub(super) is_foreign: bool,
    /// Whether somebody else may capture the stream: it is foreign, somebody has a handle of it, or it has joined a capture by
    /// waiting for a stream that took part. It stays so.
    pub(super) is_shared: AtomicBool,
    /// Of a stream that is another one on each thread: the thread that it was made on.
    pub(super) home: ThreadId,
    /// Whether another thread has launched on it, on a stream that nobody can name from here.
    pub(super) strayed: AtomicBool,
    pub(super) memory: Arc<CudaMemory>,
    pub(super) stream: Arc<CudaStream>,
    /// Made once and recorded anew whenever another stream has to wait for this one. A wait
    /// stands for what the event covered when the wait was made, or for more.
    pub(super) join: Mutex<Option<RawEvent>>,
}

impl CudaQueue {
    /// Whether events and waits of this thread cover everything that the stream was given.
    fn is_covered(&self) -> bool {
        !self.per_thread || (self.home == std::thread::current().id() && !self.strayed.load(Ordering::Acquire))
    }

    /// This thread launches on the stream next.
    #[inline]
    pub(super) fn note_thread(&self) {
        if self.per_thread && self.home != std::thread::current().id() {
            self.strayed.store(true, Ordering::Release);
        }
    }

    /// Whether somebody else may be capturing the stream: not the legacy default stream, of which the driver captures nothing.
    #[inline]
    pub(super) fn may_be_captured(&self) -> bool {
        self.is_shared() && !self.handle.is_legacy()
    }

    /// Whether somebody else knows the stream.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        // Whoever captures the stream was given the handle, or has waited, before whoever must see it uses the stream.
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Somebody else has a handle of the stream.
    pub(super) fn share(&self) {
        // Launches of other threads read it: a store would take the line of the cache from them.
        if !self.is_shared() {
            self.is_shared.store(true, Ordering::Relaxed);
        }
    }

    /// The stream has been given a wait for what may be captured, which makes it a part of the capture.
    pub(super) fn note_joined(&self) -> Result<()> {
        if self.is_shared() {
            return Ok(());
        }
        self.memory.bind()?;
        // SAFETY: the stream is alive, its context is current.
        if unsafe { driver::is_captured(self.stream.cu_stream())? } {
            self.share();
        }
        Ok(())
    }

    /// Whether somebody else captures the stream.
    pub(super) fn is_captured(&self) -> Result<bool> {
        if !self.may_be_captured() {
            return Ok(false);
        }
        self.memory.bind()?;
        // SAFETY: the stream is alive, its context is current.
        unsafe { driver::is_captured(self.stream.cu_stream()) }
    }
}

impl Queue for CudaQueue {
    type Memory = MappedMemory;
    type Mark = RawEvent;

    fn allocate(&self, records: usize) -> Result<(MappedMemory, NonNull<LaunchRecord>, u64)> {
        self.memory.bind()?;
        let memory = MappedMemory::new(records * size_of::<LaunchRecord>())?;
        let host = NonNull::new(memory.host().cast()).ok_or_else(|| Error::Unsupported {
            what: "reporting errors of kernels".into(),
            reason: "the driver gave no page-locked memory".into(),
        })?;
        let device = memory.device();
        Ok((memory, host, device))
    }

    fn mark(&self) -> Result<Option<RawEvent>> {
        // An event covers the calling thread's stream only.
        if !self.is_covered() {
            return Ok(None);
        }
        self.memory.bind()?;
        // What is recorded in a capture is nothing that could be waited for.
        if self.is_captured()? {
            return Ok(None);
        }
        let event = RawEvent::new(Timing::Off)?;
        // SAFETY: the stream is alive, its context is current.
        unsafe { event.record(self.stream.cu_stream())? };
        Ok(Some(event))
    }

    fn is_reached(&self, mark: &RawEvent) -> Result<bool> {
        self.memory.bind()?;
        mark.is_complete()
    }

    fn is_idle(&self) -> Result<bool> {
        if !self.is_covered() || self.is_captured()? {
            return Ok(false);
        }
        self.memory.bind()?;
        let _mode = CaptureMode::relaxed();
        // SAFETY: the stream is alive, its context is current.
        match unsafe { sys::cuStreamQuery(self.stream.cu_stream()) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => code.result().map(|()| true).map_err(wrap("cuStreamQuery")),
        }
    }

    fn wait_mark(&self, mark: &RawEvent) -> Result<()> {
        self.memory.bind()?;
        mark.synchronize()
    }

    fn wait_all(&self) -> Result<()> {
        if !self.is_covered() {
            return self.memory.synchronize();
        }
        self.memory.bind()?;
        if self.is_captured()? {
            return Err(Error::Unsupported {
                what: "waiting for a stream that is being captured".into(),
                reason: "nothing of it runs before its graph does; wait when the capture has ended".into(),
            });
        }
        driver::wait_for(&self.stream)
    }
}
