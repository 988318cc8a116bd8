//! The records of a stream's launches in page-locked memory, and their reuse.
//!
//! A record is in use from [`Ring::acquire`] until its launch is known to be complete. Three
//! things make that known: a synchronisation of the stream; a *mark*, which is an event recorded
//! after every [`MARK_EVERY`] launches; and, when the ring is at its largest and has run out,
//! waiting for the oldest mark. So a program that launches millions of kernels and never
//! synchronises uses a bounded amount of memory and hardly ever waits.
//!
//! Acquiring a record and launching are two steps, and several threads may be between them on one
//! stream. A mark therefore covers only launches whose [`Ring::launched`] came before it, and a
//! record that is not yet launched is never reclaimed.

use crate::error::{Error, Result};
use crate::record::{LaunchId, LaunchRecord, ReportSource};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

/// Launches between two marks.
const MARK_EVERY: u64 = 256;
/// Records per allocation: 32 KiB.
const BLOCK: usize = 512;
/// The number of records from which on the ring waits rather than grows.
const LARGEST: usize = 2048;

/// What the ring asks of its stream.
pub(crate) trait Queue {
    /// Memory for records that both sides see. Dropping it frees it.
    type Memory;
    /// A point in the stream.
    type Mark;

    /// Allocates zeroed memory for `records` records; gives it with its two addresses.
    fn allocate(&self, records: usize) -> Result<(Self::Memory, NonNull<LaunchRecord>, u64)>;
    /// Marks the end of what the stream was given so far, if marks are possible on it.
    fn mark(&self) -> Result<Option<Self::Mark>>;
    /// Whether everything before the mark is complete.
    fn is_reached(&self, mark: &Self::Mark) -> Result<bool>;
    /// Waits for the mark.
    fn wait_mark(&self, mark: &Self::Mark) -> Result<()>;
    /// Waits for everything that the stream was given.
    fn wait_all(&self) -> Result<()>;
}

#[derive(Clone, Copy)]
struct Slot {
    host: NonNull<LaunchRecord>,
    device: u64,
}

// SAFETY: a slot points to memory that the ring owns and that any thread may access; the ring is
// used under a lock.
unsafe impl Send for Slot {}

impl Slot {
    /// Takes what the launch wrote, and makes the record fresh again.
    ///
    /// # Safety
    ///
    /// The launch is complete and the ring's memory is alive.
    unsafe fn take(self) -> Option<LaunchRecord> {
        // SAFETY: promised by the caller. The GPU wrote the memory behind the compiler's back,
        // hence volatile.
        let record = unsafe { self.host.read_volatile() };
        if record.state == 0 {
            return None;
        }
        // SAFETY: as above; no kernel is using the record.
        unsafe { self.host.write_volatile(LaunchRecord::default()) };
        Some(record)
    }
}

struct Pending {
    launch: LaunchId,
    slot: Slot,
    source: Arc<dyn ReportSource>,
    /// The place in the order of launches, from 1; `None` until the launch was made.
    order: Option<u64>,
}

impl Pending {
    /// # Safety
    ///
    /// As for [`Slot::take`].
    unsafe fn take_error(&self) -> Option<(LaunchId, Error)> {
        // SAFETY: promised by the caller.
        let record = unsafe { self.slot.take() }?;
        Some((self.launch, self.source.error(&record)))
    }
}

/// The records of one stream.
pub(crate) struct Ring<Q: Queue> {
    free: Vec<Slot>,
    /// In the order of launch ids.
    pending: VecDeque<Pending>,
    marks: VecDeque<(u64, Q::Mark)>,
    /// How many launches were made: the order of the latest.
    launched: u64,
    capacity: usize,
    /// Keeps the slots' memory. Freed last, because the fields above point into it.
    memory: Vec<Q::Memory>,
}

impl<Q: Queue> Ring<Q> {
    pub(crate) fn new() -> Self {
        Self {
            free: Vec::new(),
            pending: VecDeque::new(),
            marks: VecDeque::new(),
            launched: 0,
            capacity: 0,
            memory: Vec::new(),
        }
    }

    /// Takes a fresh record; gives the launch's number and the address for the kernel. Errors of
    /// launches that are found complete on the way go to `found`.
    pub(crate) fn acquire(
        &mut self,
        queue: &Q,
        source: Arc<dyn ReportSource>,
        found: &mut dyn FnMut(LaunchId, Error),
    ) -> Result<(LaunchId, u64)> {
        if self.free.is_empty() {
            self.reclaim(queue, found)?;
        }
        if self.free.is_empty() {
            self.grow(queue)?;
        }
        let Some(slot) = self.free.pop() else {
            return Err(Error::OutOfMemory {
                device: "launch records".into(),
                requested: size_of::<LaunchRecord>() as u64,
                free: None,
                total: None,
            });
        };
        let launch = LaunchId::next();
        self.pending.push_back(Pending { launch, slot, source, order: None });
        Ok((launch, slot.device))
    }

    /// Notes that the launch was given to the stream.
    pub(crate) fn launched(&mut self, queue: &Q, launch: LaunchId) {
        let Some(index) = self.find(launch) else { return };
        self.launched += 1;
        self.pending[index].order = Some(self.launched);
        if self.launched.is_multiple_of(MARK_EVERY)
            // Without the mark these records are reclaimed by a later one, or by waiting.
            && let Ok(Some(mark)) = queue.mark()
        {
            self.marks.push_back((self.launched, mark));
        }
    }

    /// Gives back the record of a launch that was not made.
    pub(crate) fn cancel(&mut self, launch: LaunchId) {
        if let Some(index) = self.find(launch)
            && let Some(pending) = self.pending.remove(index)
        {
            self.free.push(pending.slot);
        }
    }

    /// The order of the latest launch. Everything up to it is complete once a synchronisation
    /// that starts after this call has ended.
    pub(crate) fn snapshot(&self) -> u64 {
        self.launched
    }

    /// Reclaims the records of launches up to `order`, which are complete.
    pub(crate) fn complete(&mut self, order: u64, found: &mut dyn FnMut(LaunchId, Error)) {
        let free = &mut self.free;
        self.pending.retain(|pending| {
            if pending.order.is_none_or(|own| own > order) {
                return true;
            }
            // SAFETY: the launch is complete, as the caller says, and the ring owns its memory.
            if let Some((launch, error)) = unsafe { pending.take_error() } {
                found(launch, error);
            }
            free.push(pending.slot);
            false
        });
        while self.marks.front().is_some_and(|(covered, _)| *covered <= order) {
            self.marks.pop_front();
        }
    }

    /// Takes the error of one launch, which is complete, if it has failed and its record has not
    /// been reclaimed.
    pub(crate) fn take(&mut self, launch: LaunchId) -> Option<Error> {
        let pending = &self.pending[self.find(launch)?];
        // SAFETY: the launch is complete, as the caller says, and the ring owns its memory.
        unsafe { pending.take_error() }.map(|(_, error)| error)
    }

    /// Whether a kernel may still write to a record.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.pending.is_empty()
    }

    #[inline]
    fn find(&self, launch: LaunchId) -> Option<usize> {
        // Whoever asks has mostly just acquired it.
        if self.pending.back().is_some_and(|latest| latest.launch == launch) {
            return Some(self.pending.len() - 1);
        }
        self.pending.binary_search_by_key(&launch, |pending| pending.launch).ok()
    }

    fn reclaim(&mut self, queue: &Q, found: &mut dyn FnMut(LaunchId, Error)) -> Result<()> {
        while let Some((order, mark)) = self.marks.front()
            && queue.is_reached(mark)?
        {
            let order = *order;
            self.complete(order, found);
        }
        if !self.free.is_empty() || self.capacity < LARGEST {
            return Ok(());
        }
        if let Some((order, mark)) = self.marks.front() {
            queue.wait_mark(mark)?;
            let order = *order;
            self.complete(order, found);
        } else if self.pending.iter().any(|pending| pending.order.is_some()) {
            let order = self.snapshot();
            queue.wait_all()?;
            self.complete(order, found);
        }
        Ok(())
    }

    fn grow(&mut self, queue: &Q) -> Result<()> {
        let (memory, host, device) = queue.allocate(BLOCK)?;
        self.memory.push(memory);
        self.capacity += BLOCK;
        // Launches between two growths allocate nothing.
        self.free.reserve(self.capacity);
        self.pending.reserve(BLOCK);
        self.marks.reserve(LARGEST / MARK_EVERY as usize);
        // In reverse, because slots are taken from the end.
        for index in (0..BLOCK).rev() {
            self.free.push(Slot {
                // SAFETY: the block holds `BLOCK` records from `host` on.
                host: unsafe { host.add(index) },
                device: device + (index * size_of::<LaunchRecord>()) as u64,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A stream whose launches complete when the test says so. Orders stand for time.
    #[derive(Default)]
    struct Fake {
        given: Cell<u64>,
        done: Cell<u64>,
        waits: Cell<usize>,
        marks: bool,
    }

    impl Queue for Fake {
        type Memory = Box<[LaunchRecord]>;
        type Mark = u64;

        fn allocate(&self, records: usize) -> Result<(Self::Memory, NonNull<LaunchRecord>, u64)> {
            let mut memory = vec![LaunchRecord::default(); records].into_boxed_slice();
            let host = NonNull::new(memory.as_mut_ptr()).expect("a slice is not null");
            Ok((memory, host, host.as_ptr().expose_provenance() as u64))
        }
        fn mark(&self) -> Result<Option<u64>> {
            Ok(self.marks.then(|| self.given.get()))
        }
        fn is_reached(&self, mark: &u64) -> Result<bool> {
            Ok(self.done.get() >= *mark)
        }
        fn wait_mark(&self, mark: &u64) -> Result<()> {
            self.waits.set(self.waits.get() + 1);
            self.done.set(self.done.get().max(*mark));
            Ok(())
        }
        fn wait_all(&self) -> Result<()> {
            self.waits.set(self.waits.get() + 1);
            self.done.set(self.given.get());
            Ok(())
        }
    }

    fn source() -> Arc<dyn ReportSource> {
        Arc::new(|record: &LaunchRecord| Error::Llvm { message: record.site.to_string().into() })
    }

    fn error(site: u32) -> Error {
        Error::Llvm { message: site.to_string().into() }
    }

    /// What a failing kernel does.
    fn fail(device: u64, site: u32) {
        let record = std::ptr::with_exposed_provenance_mut::<LaunchRecord>(device as usize);
        // SAFETY: the address is that of a record which the ring has handed out.
        unsafe { record.write_volatile(LaunchRecord { state: LaunchRecord::CLAIMED, site, ..Default::default() }) };
    }

    fn nothing(launch: LaunchId, error: Error) {
        panic!("unexpected error of {launch:?}: {error}");
    }

    fn launch(ring: &mut Ring<Fake>, queue: &Fake, found: &mut dyn FnMut(LaunchId, Error)) -> (LaunchId, u64) {
        let (id, device) = ring.acquire(queue, source(), found).expect("the fake has memory");
        queue.given.set(queue.given.get() + 1);
        ring.launched(queue, id);
        (id, device)
    }

    #[test]
    fn an_error_is_found_by_its_launch_once() {
        let (queue, mut ring) = (Fake::default(), Ring::new());
        let (a, a_record) = launch(&mut ring, &queue, &mut nothing);
        let (b, b_record) = launch(&mut ring, &queue, &mut nothing);
        assert_ne!(a_record, b_record);
        assert_eq!(a_record % 64, 0);
        fail(b_record, 7);
        assert_eq!(ring.take(a), None);
        assert_eq!(ring.take(b), Some(error(7)));
        assert_eq!(ring.take(b), None);
        let order = ring.snapshot();
        ring.complete(order, &mut nothing);
        assert!(!ring.is_in_use());
    }

    #[test]
    fn completion_finds_errors_and_frees_records() {
        let (queue, mut ring) = (Fake::default(), Ring::new());
        let (a, a_record) = launch(&mut ring, &queue, &mut nothing);
        let order = ring.snapshot();
        let (b, b_record) = launch(&mut ring, &queue, &mut nothing);
        fail(a_record, 1);
        fail(b_record, 2);
        let mut seen = Vec::new();
        ring.complete(order, &mut |id, error| seen.push((id, error)));
        assert_eq!(seen, [(a, error(1))]);
        assert_eq!(ring.take(b), Some(error(2)), "a launch after the snapshot keeps its record");
        let (_, reused) = launch(&mut ring, &queue, &mut nothing);
        assert_eq!(reused, a_record);
        let order = ring.snapshot();
        ring.complete(order, &mut nothing);
    }

    #[test]
    fn a_record_that_is_acquired_but_not_launched_is_not_reclaimed() {
        let (queue, mut ring) = (Fake { marks: true, ..Fake::default() }, Ring::new());
        let (early, early_record) = ring.acquire(&queue, source(), &mut nothing).expect("memory");
        for _ in 0..LARGEST * 3 {
            let (_, record) = launch(&mut ring, &queue, &mut nothing);
            assert_ne!(record, early_record);
        }
        queue.given.set(queue.given.get() + 1);
        ring.launched(&queue, early);
        fail(early_record, 3);
        assert_eq!(ring.take(early), Some(error(3)));
    }

    #[test]
    fn a_cancelled_record_is_free_again() {
        let (queue, mut ring) = (Fake::default(), Ring::new());
        let (id, record) = ring.acquire(&queue, source(), &mut nothing).expect("memory");
        ring.cancel(id);
        assert!(!ring.is_in_use());
        assert_eq!(launch(&mut ring, &queue, &mut nothing).1, record);
    }

    #[test]
    fn the_ring_is_bounded_with_and_without_marks() {
        for marks in [true, false] {
            let (queue, mut ring) = (Fake { marks, ..Fake::default() }, Ring::new());
            let mut seen = 0;
            for index in 0..20_000 {
                let (_, record) = launch(&mut ring, &queue, &mut |_, _| seen += 1);
                if index % 1000 == 0 {
                    fail(record, 1);
                }
            }
            assert_eq!(ring.capacity, LARGEST);
            assert!(queue.waits.get() > 0);
            let order = ring.snapshot();
            ring.complete(order, &mut |_, _| seen += 1);
            assert_eq!(seen, 20, "every error is found, marks = {marks}");
        }
    }

    #[test]
    fn a_stream_that_keeps_up_never_waits_nor_grows() {
        let (queue, mut ring) = (Fake { marks: true, ..Fake::default() }, Ring::new());
        for _ in 0..20_000 {
            launch(&mut ring, &queue, &mut nothing);
            queue.done.set(queue.given.get());
        }
        assert_eq!((queue.waits.get(), ring.capacity), (0, BLOCK));
    }
}
