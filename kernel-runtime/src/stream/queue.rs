//! A CUDA stream as the ring of its records and the tracking of buffers see it.

use crate::context::CudaMemory;
use crate::driver::{MappedMemory, RawEvent, Timing, wrap};
use crate::error::{Error, Result};
use crate::report_slot::LaunchRecord;
use crate::ring::Queue;
use cudarc::driver::{CudaStream, result as cu};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// The handle value that means "the default stream of whichever thread calls".
pub(super) const PER_THREAD_HANDLE: usize = 2;

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
    pub(super) memory: Arc<CudaMemory>,
    pub(super) stream: Arc<CudaStream>,
    /// Made once and recorded anew whenever another stream has to wait for this one. A wait
    /// stands for what the event covered when the wait was made, or for more.
    pub(super) join: Mutex<Option<RawEvent>>,
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
        if self.per_thread {
            return Ok(None);
        }
        self.memory.bind()?;
        let event = RawEvent::new(Timing::Off)?;
        // SAFETY: the stream is alive, its context is current.
        unsafe { event.record(self.stream.cu_stream())? };
        Ok(Some(event))
    }

    fn is_reached(&self, mark: &RawEvent) -> Result<bool> {
        self.memory.bind()?;
        mark.is_complete()
    }

    fn wait_mark(&self, mark: &RawEvent) -> Result<()> {
        self.memory.bind()?;
        mark.synchronize()
    }

    fn wait_all(&self) -> Result<()> {
        if self.per_thread {
            return self.memory.synchronize();
        }
        self.memory.bind()?;
        // SAFETY: the stream is alive.
        unsafe { cu::stream::synchronize(self.stream.cu_stream()) }.map_err(wrap("cuStreamSynchronize"))
    }
}
