//! Whose errors the reader of a buffer is told.
//!
//! The contents of a buffer depend on the launches that wrote it since the host last set all of it, on
//! those that wrote what these read, and so on. Whoever reads it is told the oldest error among them that
//! nobody has taken:
//!
//! ```text
//! launch 1   reads x      writes tmp           fails
//! launch 2   reads tmp    writes out           reading out gives the error of launch 1
//! launch 3   reads y      writes out           so it does still: what fails is never hidden
//! ```
//!
//! Errors are rare, and on a GPU they are known long after the launch. So nothing is worked out when a
//! kernel is launched. A launch that can fail, or reads what depends on one that may yet prove to have
//! failed, is appended to a [`log`] with the parts of buffers that it uses. Operations leave the log in
//! their order, as soon as those at its front are known to have ended well, which costs next to nothing.
//! Only when one has failed, or the log is full, or a buffer is read while something in it is unknown, are
//! operations turned into [`taints`]: which bytes of which buffers depend on which launch.
//!
//! A launch that cannot fail, on buffers that depend on nothing unknown, pays one load per argument: each
//! buffer keeps the place in the log of the last operation that wrote it, and everything up to
//! [`Ledger::settled`] is known to be good.
//!
//! There is one ledger for each context, because memory of one cannot be used in another. Its lock is taken
//! last: behind it nothing is waited for, and nothing else is locked.

mod log;
mod state;
mod steps;
mod taints;
#[cfg(test)]
mod tests;
mod uses;

use crate::error::Error;
pub(crate) use log::LogPosition;
use smallvec::SmallVec;
pub(crate) use state::{Done, End};
use state::{Look, State};
use std::ops::{Deref, DerefMut, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
pub(crate) use steps::Steps;
pub(crate) use uses::{Touch, Use};

/// Contents of a buffer, from when the host sets all of it to when it does so again, or the buffer drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BufferId(u64);

impl BufferId {
    /// One that nobody else has.
    pub(crate) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        BufferId(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }

    pub(crate) fn from_raw(number: u64) -> Self {
        BufferId(number)
    }
}

/// The launches of a context that may have failed, and what depends on them.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// Operations up to this place have ended well, and so has all that they depend on.
    settled: AtomicU64,
    /// Whether there are errors that nobody has taken.
    has_errors: AtomicBool,
    state: Mutex<State>,
}

/// The state, as long as it is locked.
pub(crate) struct Locked<'l> {
    ledger: &'l Ledger,
    state: MutexGuard<'l, State>,
}

impl Ledger {
    pub(crate) const fn new() -> Self {
        Ledger { settled: AtomicU64::new(0), has_errors: AtomicBool::new(false), state: Mutex::new(State::new()) }
    }

    /// The ledger of the CPU.
    pub(crate) fn cpu() -> &'static Ledger {
        static CPU: Ledger = Ledger::new();
        &CPU
    }

    /// The ledger of the CUDA context with this handle, as a number. It stays for the life of the process.
    pub(crate) fn of_context(context: usize) -> &'static Ledger {
        static KNOWN: Mutex<Vec<(usize, &'static Ledger)>> = Mutex::new(Vec::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ledger)) = known.iter().find(|(number, _)| *number == context) {
            return ledger;
        }
        let ledger = &*Box::leak(Box::new(Ledger::new()));
        known.push((context, ledger));
        ledger
    }

    /// Whether what was written at this place may depend on a launch that has failed, or may yet prove to have.
    #[inline]
    pub(crate) fn is_suspect(&self, place: LogPosition) -> bool {
        place != 0 && place > self.settled.load(Ordering::Acquire)
    }

    /// Whether there are errors that nobody has taken.
    #[inline]
    pub(crate) fn has_errors(&self) -> bool {
        self.has_errors.load(Ordering::Acquire)
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        // Nothing is left half-done by a panic under the lock, and errors must still be found.
        Locked { ledger: self, state: self.state.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Takes the oldest error among the launches that these bytes depend on. All of them are complete.
    pub(crate) fn take_error(&self, buffer: BufferId, range: &Range<usize>) -> Option<Error> {
        let mut examined = Vec::new();
        loop {
            let unknown = match self.lock().look(buffer, range, &examined) {
                Look::Known(error) => return error,
                Look::Unknown(launches) => launches,
            };
            for (launch, stream) in unknown {
                match stream.upgrade() {
                    Some(stream) => {
                        stream.examine(launch);
                        examined.push(launch);
                    }
                    // Another thread drops the stream, and looks at all of its launches.
                    None => std::thread::yield_now(),
                }
            }
        }
    }

    /// Looks at launches that may have ended, so that the log does not fill up.
    #[cold]
    pub(crate) fn poll(&self) {
        let streams: SmallVec<[_; 8]> = self.lock().streams().collect();
        for stream in streams.iter().filter_map(Weak::upgrade) {
            stream.poll();
        }
    }

    /// Notes that the contents of a buffer are gone.
    pub(crate) fn forget(&self, buffer: BufferId) {
        let unread = self.lock().forget(buffer);
        log_unread(&unread);
    }

    /// The stream drops, all of whose launches are known. Errors that nobody can read any more are logged.
    pub(crate) fn remove_stream(&self, stream: u64) {
        let unread = self.lock().remove_stream(stream);
        log_unread(&unread);
    }
}

fn log_unread(errors: &[Error]) {
    for error in errors {
        ::log::error!("a launch failed and nobody read its result or synchronised its stream: {error}");
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.state.settled() {
            self.ledger.settled.store(place, Ordering::Release);
        }
        self.ledger.has_errors.store(self.state.has_errors(), Ordering::Release);
    }
}
