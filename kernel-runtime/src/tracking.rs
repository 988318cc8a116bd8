//! Which streams still use a buffer, and which launch wrote it last.
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
//! All views of a buffer share its record: two halves that are written on two streams are ordered.

use crate::error::{Error, Result};
use crate::record::LaunchId;
use crate::stream::Stream;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Writes of parts that are remembered at most. When more parts fail and are never read, the
/// errors of the oldest are still delivered by synchronising.
pub(crate) const PARTS_LIMIT: usize = 64;

/// Stands for no stream in [`Tracking::sole`].
const MIXED: u64 = 0;

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Tracking {
    /// The key of the one stream on which all uses in `uses` are, or [`MIXED`].
    sole: AtomicU64,
    /// The latest write of the whole buffer, if it came after every change of `uses.writer`. It
    /// was made on the stream of `uses.writer`.
    whole_write: AtomicU64,
    uses: Mutex<Uses>,
}

#[derive(Debug)]
struct Uses {
    /// The stream of the last write; the stream on which the memory was allocated counts as one.
    writer: StreamUse,
    /// The streams that have read since.
    readers: Vec<StreamUse>,
    /// Writes whose errors a reader must be told, in the order of launches.
    writes: Vec<Write>,
}

#[derive(Debug, Clone)]
struct StreamUse {
    stream: Stream,
    key: u64,
}

#[derive(Debug)]
struct Write {
    range: Range<usize>,
    launch: u64,
    stream: Stream,
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
            whole_write: AtomicU64::new(0),
            uses: Mutex::new(Uses { writer, readers: Vec::new(), writes: Vec::new() }),
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

    /// Notes a write of the whole buffer on the stream on which all uses are.
    #[inline]
    pub(crate) fn note_write_at_once(&self, launch: LaunchId) {
        self.whole_write.store(launch.get(), Ordering::Release);
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

    /// Orders a write of `range`, which the caller gives to `stream` next as part of `launch`,
    /// after all uses. `len` is the length of the whole buffer.
    #[inline]
    pub(crate) fn begin_write(&self, stream: &Stream, range: Range<usize>, len: usize, launch: LaunchId) -> Result<()> {
        let key = stream.key();
        if range.len() == len && self.is_sole(key) {
            self.note_write_at_once(launch);
            return Ok(());
        }
        self.begin_write_elsewhere(stream, key, range, len, launch)
    }

    /// A write of a part, or on another stream than the last use.
    fn begin_write_elsewhere(
        &self,
        stream: &Stream,
        key: u64,
        range: Range<usize>,
        len: usize,
        launch: LaunchId,
    ) -> Result<()> {
        let is_whole = range.len() == len;
        let is_sole = self.sole.load(Ordering::Acquire) == key;
        let mut uses = self.lock();
        uses.join_all(stream, key)?;
        self.note_whole_write(&mut uses, len);
        if !is_sole {
            uses.writer = StreamUse { stream: stream.clone(), key };
            uses.readers.clear();
        }
        uses.writes.retain(|write| !(range.start <= write.range.start && write.range.end <= range.end));
        if is_whole {
            self.whole_write.store(launch.get(), Ordering::Release);
        } else if !range.is_empty() {
            if uses.writes.len() >= PARTS_LIMIT {
                uses.writes.remove(0);
            }
            uses.writes.push(Write { range, launch: launch.get(), stream: stream.clone() });
        }
        self.sole.store(key, Ordering::Release);
        Ok(())
    }

    /// Moves the latest whole write into the list, before something changes whose it is. It
    /// covers all that was written before it.
    fn note_whole_write(&self, uses: &mut Uses, len: usize) {
        let launch = self.whole_write.swap(0, Ordering::AcqRel);
        if launch != 0 {
            let stream = uses.writer.stream.clone();
            uses.writes.retain(|write| write.launch > launch);
            uses.writes.insert(0, Write { range: 0..len, launch, stream });
        }
    }

    /// Takes the error of the oldest failed launch among those that last wrote a part of `range`.
    /// They are complete.
    pub(crate) fn take_error(&self, range: Range<usize>, len: usize) -> Option<Error> {
        let mut uses = self.lock();
        self.note_whole_write(&mut uses, len);
        let overlaps = |write: &Write| write.range.start < range.end && range.start < write.range.end;
        let error = uses
            .writes
            .iter()
            .filter(|write| overlaps(write))
            .find_map(|write| write.stream.take_error_of(LaunchId::from_raw(write.launch)?));
        if error.is_none() {
            // What is complete and has no error left need not be looked at again, if the read
            // covered all of it.
            uses.writes.retain(|write| !(range.start <= write.range.start && write.range.end <= range.end));
        }
        error
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

    const LEN: usize = 100;

    fn streams<const N: usize>() -> [Stream; N] {
        let device = Device::cpu();
        [(); N].map(|()| device.new_stream().expect("the CPU has streams"))
    }

    fn error(text: &str) -> Error {
        Error::Llvm { message: text.into() }
    }

    /// Writes `range` in a launch that fails with `text`, or succeeds if it is empty.
    fn write(tracking: &Tracking, stream: &Stream, range: Range<usize>, text: &str) -> LaunchId {
        let launch = LaunchId::next();
        tracking.begin_write(stream, range, LEN, launch).expect("the CPU never fails");
        if !text.is_empty() {
            stream.push_error(launch, error(text));
        }
        launch
    }

    #[test]
    fn uses_on_one_stream_keep_the_fast_path() {
        let [a, b] = streams();
        let tracking = Tracking::new(&a);
        assert_eq!(tracking.sole.load(Ordering::Relaxed), a.key());
        tracking.begin_read(&a).expect("read");
        write(&tracking, &a, 0..LEN, "");
        assert_eq!(tracking.sole.load(Ordering::Relaxed), a.key());
        tracking.begin_read(&b).expect("read");
        assert_eq!(tracking.sole.load(Ordering::Relaxed), MIXED);
        tracking.begin_read(&b).expect("read");
        assert_eq!(tracking.lock().readers.len(), 1, "a stream is a reader once");
        write(&tracking, &b, 3..4, "");
        assert_eq!(tracking.sole.load(Ordering::Relaxed), b.key());
        assert!(tracking.lock().readers.is_empty() && tracking.home() == b);
    }

    #[test]
    fn the_last_write_decides_what_a_reader_is_told() {
        let [a] = streams();
        let tracking = Tracking::new(&a);
        write(&tracking, &a, 0..LEN, "first");
        write(&tracking, &a, 0..LEN, "second");
        assert_eq!(tracking.take_error(0..LEN, LEN), Some(error("second")));
        assert_eq!(tracking.take_error(0..LEN, LEN), None);
        assert_eq!(a.synchronize(), Err(error("first")), "an overwritten error is not lost");
        assert_eq!(a.synchronize(), Ok(()));
    }

    #[test]
    fn parts_are_told_apart() {
        let [a, b] = streams();
        let tracking = Tracking::new(&a);
        write(&tracking, &a, 0..LEN, "whole");
        write(&tracking, &b, 0..50, "left");
        write(&tracking, &a, 50..60, "middle");
        assert_eq!(tracking.take_error(0..50, LEN), Some(error("whole")), "50..100 is still of this launch");
        assert_eq!(tracking.take_error(0..50, LEN), Some(error("left")));
        assert_eq!(tracking.take_error(60..LEN, LEN), None);
        assert_eq!(tracking.take_error(55..56, LEN), Some(error("middle")));
        assert_eq!(tracking.take_error(0..LEN, LEN), None);
    }

    #[test]
    fn a_whole_write_replaces_the_parts() {
        let [a, b] = streams();
        for stream in [&a, &b] {
            let tracking = Tracking::new(&a);
            write(&tracking, &a, 0..10, "part");
            write(&tracking, stream, 0..LEN, "");
            assert_eq!(tracking.take_error(0..LEN, LEN), None);
            assert_eq!(a.synchronize(), Err(error("part")));
        }
    }

    #[test]
    fn an_error_is_found_on_the_stream_of_its_launch() {
        let [a, b, c] = streams();
        let tracking = Tracking::new(&a);
        write(&tracking, &b, 0..LEN, "b");
        tracking.begin_read(&c).expect("read");
        write(&tracking, &c, 0..1, "c");
        assert_eq!(tracking.take_error(0..LEN, LEN), Some(error("b")));
        assert_eq!(tracking.take_error(0..LEN, LEN), Some(error("c")));
    }

    #[test]
    fn many_parts_are_remembered_up_to_a_limit() {
        let [a] = streams();
        let tracking = Tracking::new(&a);
        for index in 0..LEN {
            write(&tracking, &a, index..index + 1, &index.to_string());
        }
        assert!(tracking.lock().writes.len() <= PARTS_LIMIT);
        assert_eq!(tracking.take_error(99..LEN, LEN), Some(error("99")));
        assert_eq!(a.synchronize(), Err(error("0")));
    }
}
