//! A capture in progress: which launches of this thread are recorded instead of made.
//!
//! A capture belongs to a thread, so that no other thread notices it. Whether there is one is a
//! flag of the thread, which is all that an ordinary launch looks at.

use super::cuda::CudaRecording;
use super::uses::NewUses;
use crate::error::{Error, Result};
use crate::ledger::Touch;
use crate::storage::Storage;
use crate::stream::Stream;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

thread_local! {
    static IS_ACTIVE: Cell<bool> = const { Cell::new(false) };
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// What has been recorded so far.
pub(crate) struct Recording {
    pub(super) stream: Stream,
    pub(super) uses: NewUses,
    pub(super) launches: u64,
    pub(super) work: Work,
}

pub(super) enum Work {
    Host(Vec<Box<dyn HostLaunch>>),
    Cuda(CudaRecording),
}

/// A launch that the host can run at any time.
pub(crate) trait HostLaunch: Send + Sync {
    /// Runs it to its end. Gives the error of the first program that failed, or of the launch.
    ///
    /// # Safety
    ///
    /// The memory of its buffers is alive, and nobody else uses what it writes or writes what it
    /// reads.
    unsafe fn run(&self) -> Result<()>;
}

/// Whether this thread records.
#[inline]
pub(crate) fn is_active() -> bool {
    IS_ACTIVE.get()
}

/// Refuses what cannot be recorded, if this thread records.
#[inline]
pub(crate) fn refuse(what: &str) -> Result<()> {
    if is_active() { Err(refused(what)) } else { Ok(()) }
}

#[cold]
fn refused(what: &str) -> Error {
    Error::Unsupported {
        what: format!("{what} inside `capture`").into(),
        reason: "a graph consists of launches, a replay would not repeat anything else; do it before or after".into(),
    }
}

/// The end of a capture, however it comes.
pub(super) struct Session(());

/// Lets this thread record its launches on `stream`.
pub(super) fn begin(stream: &Stream) -> Result<Session> {
    refuse("another capture")?;
    let work = match stream.cuda_memory() {
        Some(memory) => Work::Cuda(CudaRecording::new(memory)?),
        None => Work::Host(Vec::new()),
    };
    let recording = Recording { stream: stream.clone(), uses: NewUses::default(), launches: 0, work };
    RECORDING.set(Some(recording));
    IS_ACTIVE.set(true);
    Ok(Session(()))
}

impl Session {
    /// What was recorded.
    pub(super) fn end(self) -> Result<Recording> {
        RECORDING.take().ok_or_else(|| refused("ending a capture on another thread"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        IS_ACTIVE.set(false);
        RECORDING.set(None);
    }
}

/// Records a launch on `stream`, if this thread records that stream.
pub(crate) fn record<R>(stream: &Stream, launch: impl FnOnce(&mut Recording) -> Result<R>) -> Result<R> {
    RECORDING.with_borrow_mut(|recording| match recording {
        Some(recording) if recording.stream == *stream => launch(recording),
        Some(_) | None => Err(Error::Unsupported {
            what: "a launch on another stream inside `capture`".into(),
            reason: "it would run now and not when the graph is replayed; name the stream that is captured with \
                     `.stream(..)`, or use `Device::capture` for the default stream"
                .into(),
        }),
    })
}

impl Recording {
    /// Notes that the launch that is recorded next is given a part of a buffer, and what it does to it.
    pub(crate) fn add_use(&mut self, storage: &Arc<Storage>, range: Range<usize>, loads: bool, writes: bool) {
        // The graph keeps buffers that a launch does nothing to as well.
        let touch = Touch::of(loads, writes).unwrap_or(Touch::Read);
        self.uses.add(storage, range, touch, self.launches);
    }

    /// Records a launch of the host.
    pub(crate) fn add_host_launch(&mut self, launch: Box<dyn HostLaunch>) -> Result<()> {
        match &mut self.work {
            Work::Host(launches) => launches.push(launch),
            Work::Cuda(_) => return Err(refused("a launch on the CPU")),
        }
        self.uses.end(self.launches, true);
        self.launches += 1;
        Ok(())
    }

    /// Records a launch on the GPU.
    pub(crate) fn add_kernel(
        &mut self,
        can_fail: bool,
        make: impl FnOnce(&mut CudaRecording, u64) -> Result<()>,
    ) -> Result<()> {
        match &mut self.work {
            Work::Cuda(graph) => make(graph, self.launches)?,
            Work::Host(_) => return Err(refused("a launch on a GPU")),
        }
        self.uses.end(self.launches, can_fail);
        self.launches += 1;
        Ok(())
    }
}
