//! The record of a launch, until it is launched.

use super::captured::CapturedLaunch;
use super::{Stream, Work, lock};
use crate::ledger::{Done, LogPosition};
use crate::report_slot::LaunchId;
use crate::ring::Acquired;
use std::sync::atomic::{AtomicBool, Ordering};

/// A launch's record, from acquiring it to launching. Dropping it without
/// [`RecordHandle::launched`] says that the launch was not made.
#[must_use = "say whether the launch was made with `launched`"]
pub struct RecordHandle<'s> {
    stream: &'s Stream,
    launch: LaunchId,
    address: u64,
    /// Where the ledger has it; zero if it may be there several times.
    place: LogPosition,
    /// What tells the ring that the launch was made. `None` on the CPU, and in a capture.
    launched: Option<&'s AtomicBool>,
}

impl<'s> RecordHandle<'s> {
    /// A launch on the CPU.
    pub(super) fn without_record(stream: &'s Stream) -> Self {
        RecordHandle { stream, launch: LaunchId::next(), address: 0, launched: None, place: 0 }
    }

    /// A launch on the stream, whose ring has given the record.
    #[inline]
    pub(super) fn new(stream: &'s Stream, acquired: Acquired, place: LogPosition) -> Self {
        let Acquired { launch, address, launched } = acquired;
        // SAFETY: the ring, which keeps the flag, lives as long as the stream.
        let launched = Some(unsafe { launched.as_ref() });
        RecordHandle { stream, launch, address, launched, place }
    }

    /// A launch that somebody else captures. How it ends is for those who ask the stream.
    pub(super) fn captured(stream: &'s Stream, launch: CapturedLaunch) -> Self {
        let CapturedLaunch { launch, address } = launch;
        RecordHandle { stream, launch, address, launched: None, place: 0 }
    }

    /// The number of the launch.
    pub fn id(&self) -> LaunchId {
        self.launch
    }

    /// Where the GPU finds its [`LaunchRecord`](crate::LaunchRecord). Zero on the CPU.
    pub fn device_ptr(&self) -> u64 {
        self.address
    }

    #[inline]
    pub(crate) fn place(&self) -> LogPosition {
        self.place
    }

    /// Says that the launch was given to the stream. On the CPU it has ended then, so that its error has been reported.
    #[inline]
    pub fn launched(self) {
        match self.launched {
            // Whoever sees the flag marks or waits for what the stream was given before.
            Some(launched) => launched.store(true, Ordering::Release),
            None => self.end(Done { launch: self.launch, place: 0, error: None }),
        }
        std::mem::forget(self);
    }

    fn end(&self, done: Done) {
        self.stream.0.ledger.lock().resolve(self.stream.0.id, done);
    }
}

impl Drop for RecordHandle<'_> {
    fn drop(&mut self) {
        let done = match &self.stream.0.work {
            Work::Cuda { ring, .. } if self.launched.is_some() => lock(ring).cancel(self.launch),
            // The ring knows nothing of a launch that somebody else captures.
            Work::Cuda { .. } | Work::Immediate => Some(Done { launch: self.launch, place: 0, error: None }),
        };
        if let Some(done) = done {
            self.end(done);
        }
    }
}
