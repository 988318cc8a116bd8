//! Which streams still use a buffer, and what its contents may depend on.
//!
//! A launch returns before its kernel ends, so the borrow of a buffer ends before its use does.
//! Soundness rests on this record alone, never on the drop of a guard: a use on another stream
//! first waits for the uses that conflict with it, and freeing waits for all.
//!
//! Nothing is recorded in the stream when a buffer is used. When another stream has to wait, the
//! event is recorded *then*: streams run in order, so it covers the earlier use (and perhaps some
//! later work, which costs time but is sound). While all uses are on one stream, which is nearly
//! always, a use costs one atomic compare.
//!
//! All views of a buffer share its record: two halves that are written on two streams are ordered. Since a use
//! on one stream replaces those before it, which may not have been given to their stream yet if a second thread makes
//! them, uses of halves are behind the buffer's [`gate`](crate::gate).
//!
//! Beside that it keeps the place in the [`ledger`](crate::ledger) of the last operation that wrote the
//! buffer, if that depends on a launch that can fail.

use crate::error::Result;
use crate::ledger::{BufferId, Ledger, LogPosition};
use crate::stream::Stream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Stands for no stream in [`Tracking::sole`].
const MIXED: u64 = 0;

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Tracking {
    /// The key of the one stream on which all uses in `uses` are, or [`MIXED`].
    sole: AtomicU64,
    /// The place of the last operation in the ledger that wrote the buffer, zero if none did.
    suspect: AtomicU64,
    /// How the ledger names the contents.
    contents: AtomicU64,
    uses: Mutex<Uses>,
}

#[derive(Debug)]
struct Uses {
    /// The stream of the last write; the stream on which the memory was allocated counts as one.
    writer: StreamUse,
    /// The streams that have read since.
    readers: Vec<StreamUse>,
}

#[derive(Debug, Clone)]
struct StreamUse {
    stream: Stream,
    key: u64,
}

impl StreamUse {
    fn of(stream: &Stream) -> Self {
        StreamUse { stream: stream.clone(), key: stream.key() }
    }
}

impl Uses {
    /// Lets `stream` run after the uses that a write conflicts with: all of them.
    fn join_all(&self, stream: &Stream, key: u64) -> Result<()> {
        for other in std::iter::once(&self.writer).chain(&self.readers) {
            if other.key != key {
                stream.run_after(&other.stream, other.key)?;
            }
        }
        Ok(())
    }
}

impl Tracking {
    /// Memory that was allocated, and filled, on `stream`.
    pub(crate) fn new(stream: &Stream) -> Self {
        let writer = StreamUse::of(stream);
        Self {
            sole: AtomicU64::new(writer.key),
            suspect: AtomicU64::new(0),
            contents: AtomicU64::new(BufferId::next().get()),
            uses: Mutex::new(Uses { writer, readers: Vec::new() }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of the last write: on it, reading waits for nothing.
    pub(crate) fn home(&self) -> Stream {
        self.lock().writer.stream.clone()
    }

    /// Whether all uses so far were on the stream with this key, so that it orders the next one.
    #[inline]
    pub(crate) fn is_sole(&self, key: u64) -> bool {
        self.sole.load(Ordering::Acquire) == key
    }

    /// How the ledger names the contents.
    #[inline]
    pub(crate) fn contents(&self) -> BufferId {
        // Whoever changes it has the buffer alone, by a borrow or a gate, as for the place below.
        BufferId::from_raw(self.contents.load(Ordering::Relaxed))
    }

    /// Whether the contents may depend on a launch that has failed, or may yet prove to have.
    #[inline]
    pub(crate) fn is_suspect(&self, ledger: &Ledger) -> bool {
        ledger.is_suspect(self.suspect.load(Ordering::Relaxed))
    }

    /// The operation at this place of the ledger writes the buffer, or a part of it.
    #[inline]
    pub(crate) fn set_suspect(&self, place: LogPosition, is_whole: bool) {
        if is_whole {
            // Nobody else writes it meanwhile, and places increase.
            self.suspect.store(place, Ordering::Relaxed);
        } else {
            // Two halves may be written by two threads.
            self.suspect.fetch_max(place, Ordering::Relaxed);
        }
    }

    /// The host sets the whole buffer, or it drops: what the contents depended on concerns nobody any more.
    pub(crate) fn renew(&self, ledger: &Ledger) {
        if self.is_suspect(ledger) {
            ledger.forget(self.contents());
            self.contents.store(BufferId::next().get(), Ordering::Relaxed);
        }
        self.suspect.store(0, Ordering::Relaxed);
    }

    /// Orders a read, which the caller gives to `stream` next, after the last write.
    #[inline]
    pub(crate) fn begin_read(&self, stream: &Stream) -> Result<()> {
        let key = stream.key();
        if self.is_sole(key) { Ok(()) } else { self.begin_read_on_another(stream, key) }
    }

    fn begin_read_on_another(&self, stream: &Stream, key: u64) -> Result<()> {
        let mut uses = self.lock();
        if uses.readers.iter().any(|reader| reader.key == key) {
            return Ok(());
        }
        if uses.writer.key == key {
            // The stream's own order suffices, and as the writer it is waited for anyway.
            return Ok(());
        }
        stream.run_after(&uses.writer.stream, uses.writer.key)?;
        uses.readers.push(StreamUse { stream: stream.clone(), key });
        self.sole.store(MIXED, Ordering::Release);
        Ok(())
    }

    /// Orders a write, which the caller gives to `stream` next, after all uses.
    #[inline]
    pub(crate) fn begin_write(&self, stream: &Stream) -> Result<()> {
        let key = stream.key();
        if self.is_sole(key) { Ok(()) } else { self.begin_write_on_another(stream, key) }
    }

    fn begin_write_on_another(&self, stream: &Stream, key: u64) -> Result<()> {
        let mut uses = self.lock();
        uses.join_all(stream, key)?;
        uses.writer = StreamUse { stream: stream.clone(), key };
        uses.readers.clear();
        self.sole.store(key, Ordering::Release);
        Ok(())
    }

    /// Whether somebody else captures a stream that has used the buffer, in another capture than this.
    pub(crate) fn is_captured(&self, but_in: Option<u64>) -> bool {
        let uses = self.lock();
        std::iter::once(&uses.writer).chain(&uses.readers).any(|used| match used.stream.foreign_capture() {
            Ok(capture) => capture.is_some_and(|capture| Some(capture.number()) != but_in),
            // A capture that is spoilt is one as well.
            Err(_) => true,
        })
    }

    /// Orders the end of the buffer after all uses, on the stream that is returned.
    pub(crate) fn finish(&self) -> Result<Stream> {
        let uses = self.lock();
        let stream = uses.writer.stream.clone();
        uses.join_all(&stream, stream.key())?;
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    fn streams<const N: usize>() -> [Stream; N] {
        let device = Device::cpu();
        [(); N].map(|()| device.new_stream().expect("the CPU has streams"))
    }

    #[test]
    fn uses_on_one_stream_keep_the_fast_path() {
        let [a, b] = streams();
        let tracking = Tracking::new(&a);
        assert_eq!(tracking.sole.load(Ordering::Relaxed), a.key());
        tracking.begin_read(&a).expect("read");
        tracking.begin_write(&a).expect("write");
        assert_eq!(tracking.sole.load(Ordering::Relaxed), a.key());
        tracking.begin_read(&b).expect("read");
        assert_eq!(tracking.sole.load(Ordering::Relaxed), MIXED);
        tracking.begin_read(&b).expect("read");
        assert_eq!(tracking.lock().readers.len(), 1, "a stream is a reader once");
        tracking.begin_write(&b).expect("write");
        assert_eq!(tracking.sole.load(Ordering::Relaxed), b.key());
        assert!(tracking.lock().readers.is_empty() && tracking.home() == b);
    }

    #[test]
    fn what_the_host_sets_depends_on_nothing() {
        let [a] = streams();
        let (tracking, ledger) = (Tracking::new(&a), Ledger::new());
        assert!(!tracking.is_suspect(&ledger));
        tracking.set_suspect(7, false);
        tracking.set_suspect(3, false);
        assert_eq!(tracking.suspect.load(Ordering::Relaxed), 7);
        assert!(tracking.is_suspect(&ledger));
        let before = tracking.contents();
        tracking.renew(&ledger);
        assert!(!tracking.is_suspect(&ledger) && tracking.contents() != before);
        let fresh = tracking.contents();
        tracking.renew(&ledger);
        assert_eq!(tracking.contents(), fresh, "nothing is forgotten where there was nothing");
    }
}
