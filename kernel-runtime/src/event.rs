//! Points in a stream: to time work, and to order streams.

use crate::context::CudaMemory;
use crate::driver::{RawEvent, Timing};
use crate::error::{Error, Result};
use cudarc::driver::CudaStream;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// A point in a stream, made by [`Stream::record`](crate::Stream::record).
///
/// Dropping it forgets the point; waits for it that were already made stay.
pub struct Event(Kind);

enum Kind {
    Cpu(Instant),
    Cuda(CudaEvent),
}

struct CudaEvent {
    memory: Arc<CudaMemory>,
    event: RawEvent,
    /// Whether it may be a point of somebody else's capture.
    may_be_captured: bool,
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // `event` is destroyed after this, in the current context.
        let _ = self.memory.bind();
    }
}

impl Event {
    pub(crate) fn now() -> Self {
        Event(Kind::Cpu(Instant::now()))
    }

    /// `stream` is of the context `memory`; whether somebody else may be capturing it.
    pub(crate) fn record(memory: &Arc<CudaMemory>, stream: &CudaStream, may_be_captured: bool) -> Result<Self> {
        memory.bind()?;
        let event = CudaEvent { memory: memory.clone(), event: RawEvent::new(Timing::On)?, may_be_captured };
        // SAFETY: the stream is alive, its context is current.
        unsafe { event.event.record(stream.cu_stream())? };
        Ok(Event(Kind::Cuda(event)))
    }

    /// Whether it may be a point of somebody else's capture, which streams join that wait for it.
    pub(crate) fn may_be_captured(&self) -> bool {
        match &self.0 {
            Kind::Cpu(_) => false,
            Kind::Cuda(event) => event.may_be_captured,
        }
    }

    /// Waits until the point is reached. Gives no errors of launches before it: those are
    /// delivered by reading their results, or by synchronising the stream.
    pub fn synchronize(&self) -> Result<()> {
        match &self.0 {
            Kind::Cpu(_) => Ok(()),
            Kind::Cuda(event) => {
                event.memory.bind()?;
                event.event.synchronize()
            }
        }
    }

    /// Whether the point is reached.
    pub fn is_complete(&self) -> Result<bool> {
        match &self.0 {
            Kind::Cpu(_) => Ok(true),
            Kind::Cuda(event) => {
                event.memory.bind()?;
                event.event.is_complete()
            }
        }
    }

    /// The milliseconds from this point to a later one of the same device, after waiting for
    /// both. Negative if `later` came first. The GPU's clock counts in steps of about half a
    /// microsecond.
    pub fn elapsed_ms(&self, later: &Event) -> Result<f64> {
        match (&self.0, &later.0) {
            (Kind::Cpu(start), Kind::Cpu(end)) => Ok(match end.checked_duration_since(*start) {
                Some(time) => time.as_secs_f64() * 1e3,
                None => -start.duration_since(*end).as_secs_f64() * 1e3,
            }),
            (Kind::Cuda(start), Kind::Cuda(end)) if start.memory.ctx == end.memory.ctx => {
                self.synchronize()?;
                later.synchronize()?;
                start.event.elapsed_ms(&end.event).map(f64::from)
            }
            (Kind::Cpu(_) | Kind::Cuda(_), Kind::Cpu(_) | Kind::Cuda(_)) => Err(Error::Unsupported {
                what: "the time between events of two devices".into(),
                reason: "their clocks differ; record both events on streams of one device".into(),
            }),
        }
    }

    /// Lets later work of `stream`, which is of the context `memory`, wait for the point.
    pub(crate) fn block(&self, memory: &CudaMemory, stream: &CudaStream) -> Result<()> {
        match &self.0 {
            Kind::Cpu(_) => Ok(()),
            Kind::Cuda(event) => {
                memory.bind()?;
                // SAFETY: the stream is alive and its context is current. The driver lets a
                // stream wait for an event of another context.
                unsafe { event.event.block(stream.cu_stream()) }
            }
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Cpu(_) => "Event(cpu)",
            Kind::Cuda(_) => "Event(cuda)",
        })
    }
}
