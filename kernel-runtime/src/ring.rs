//! The records of a stream's launches in page-locked memory, and their reuse.
//!
//! A record is in use from [`Ring::acquire`] until its launch is known to be complete. Three
//! things make that known: a synchronisation of the stream; a *mark*, which is an event recorded
//! for every [`MARK_EVERY`] launches; and, when the ring is at its largest and has run out,
//! waiting for the oldest mark. So a program that launches millions of kernels and never
//! synchronises uses a bounded amount of memory and hardly ever waits.
//!
//! Acquiring a record and launching are two steps, and several threads may be between them on one
//! stream. Each sets a flag when its launch was made, which costs no lock. A mark covers only launches whose flag it has
//! seen, and a record that is not yet launched is never reclaimed.

use crate::error::{Error, Result};
use crate::ledger::{Done, LogPosition};
use crate::report_slot::{LaunchId, LaunchRecord, ReportSource};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Launches between two marks.
const MARK_EVERY: u64 = 256;
/// Records per allocation: 32 KiB.
const BLOCK: usize = 512;
/// Launches whose records are looked at one by one before the driver is asked which of them are over: as many as take about as
/// long.
const LOOKED_AT: usize = 32;
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
    /// Whether all that the stream was given is known to be complete, without waiting.
    fn is_idle(&self) -> Result<bool>;
    /// Waits for the mark.
    fn wait_mark(&self, mark: &Self::Mark) -> Result<()>;
    /// Waits for everything that the stream was given.
    fn wait_all(&self) -> Result<()>;
}

#[derive(Clone, Copy)]
struct Slot {
    host: NonNull<LaunchRecord>,
    device: u64,
    /// Whether its launch was made.
    launched: NonNull<AtomicBool>,
}

// SAFETY: a slot points to memory that the ring owns and that any thread may access; the ring is
// used under a lock.
unsafe impl Send for Slot {}

impl Slot {
    /// Whether a program has claimed the record. It may still be writing the rest.
    #[inline]
    fn is_claimed(self) -> bool {
        // SAFETY: the ring owns the memory, which lives as long as it. The GPU may be writing it, hence volatile.
        let state = unsafe { (&raw const (*self.host.as_ptr()).state).read_volatile() };
        state != 0
    }

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

/// A record that was handed out.
#[derive(Clone, Copy)]
pub(crate) struct Acquired {
    /// The number of its launch.
    pub(crate) launch: LaunchId,
    /// Where the GPU finds it.
    pub(crate) address: u64,
    /// To be set once the launch was given to the stream. Lives as long as the ring.
    pub(crate) launched: NonNull<AtomicBool>,
}

struct Pending {
    launch: LaunchId,
    /// Where the ledger has it; zero if the ledger has to search.
    place: LogPosition,
    slot: Slot,
    source: Arc<dyn ReportSource>,
    /// The place in the order of launches, from 1; `None` until the launch is known to have been made.
    order: Option<u64>,
}

impl Pending {
    /// # Safety
    ///
    /// As for [`Slot::take`].
    unsafe fn end(&self) -> Done {
        // SAFETY: promised by the caller.
        let record = unsafe { self.slot.take() };
        Done { launch: self.launch, place: self.place, error: record.map(|record| self.source.error(&record)) }
    }
}

/// The records of one stream.
pub(crate) struct Ring<Q: Queue> {
    free: Vec<Slot>,
    /// In the order of launch ids.
    pending: VecDeque<Pending>,
    marks: VecDeque<(u64, Q::Mark)>,
    /// How many records were handed out.
    acquired: u64,
    /// How many launches are known to have been made: the order of the latest.
    launched: u64,
    /// All pending launches before this one have an order.
    ordered_before: Option<LaunchId>,
    capacity: usize,
    /// From how many pending launches on the driver is asked which are over, though none has claimed its record.
    asked_at: usize,
    /// Keeps the slots' flags. Never changed but to grow, because the fields above point into it.
    flags: Vec<Vec<AtomicBool>>,
    /// Keeps the slots' memory. Freed last, for the same reason.
    memory: Vec<Q::Memory>,
}

impl<Q: Queue> Ring<Q> {
    pub(crate) fn new() -> Self {
        Self {
            free: Vec::new(),
            pending: VecDeque::new(),
            marks: VecDeque::new(),
            acquired: 0,
            launched: 0,
            ordered_before: None,
            capacity: 0,
            asked_at: LOOKED_AT,
            flags: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// Takes a fresh record. How launches
    /// ended that are found complete on the way goes to `done`.
    pub(crate) fn acquire(
        &mut self,
        queue: &Q,
        source: Arc<dyn ReportSource>,
        done: &mut dyn FnMut(Done),
    ) -> Result<Acquired> {
        if self.free.is_empty() {
            self.reclaim(queue, done)?;
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
        self.acquired += 1;
        if self.acquired.is_multiple_of(MARK_EVERY) {
            // Without the mark these records are reclaimed by a later one, or by waiting.
            let _ = self.mark(queue);
        }
        // SAFETY: the flags live as long as the ring. Nobody else has this one.
        unsafe { slot.launched.as_ref() }.store(false, Ordering::Relaxed);
        let launch = LaunchId::next();
        self.pending.push_back(Pending { launch, place: 0, slot, source, order: None });
        Ok(Acquired { launch, address: slot.device, launched: slot.launched })
    }

    /// Notes where the ledger has the launch whose record was acquired last.
    #[inline]
    pub(crate) fn set_place(&mut self, place: LogPosition) {
        if let Some(pending) = self.pending.back_mut() {
            pending.place = place;
        }
    }

    /// Gives an order to all launches that are known to have been made.
    fn order(&mut self) {
        let first = self.ordered_before.map_or(0, |before| self.pending.partition_point(|p| p.launch < before));
        self.ordered_before = None;
        for pending in self.pending.range_mut(first..) {
            // SAFETY: the flags live as long as the ring.
            if pending.order.is_none() && unsafe { pending.slot.launched.as_ref() }.load(Ordering::Acquire) {
                self.launched += 1;
                pending.order = Some(self.launched);
            }
            if pending.order.is_none() {
                self.ordered_before.get_or_insert(pending.launch);
            }
        }
        // All have one: those that come are still without.
        if self.ordered_before.is_none() {
            self.ordered_before = self.pending.back().map(|latest| latest.launch);
        }
    }

    /// Marks the end of the launches that were made, if the last mark does not cover them.
    fn mark(&mut self, queue: &Q) -> Result<()> {
        self.order();
        let covered = self.marks.back().map_or(0, |(covered, _)| *covered);
        if self.launched > covered
            && let Some(mark) = queue.mark()?
        {
            self.marks.push_back((self.launched, mark));
        }
        Ok(())
    }

    /// Gives back the record of a launch that was not made, which therefore has not failed.
    pub(crate) fn cancel(&mut self, launch: LaunchId) -> Option<Done> {
        let Pending { place, slot, .. } = self.pending.remove(self.find(launch)?)?;
        self.free.push(slot);
        Some(Done { launch, place, error: None })
    }

    /// The order of the latest launch. Everything up to it is complete once a synchronisation
    /// that starts after this call has ended.
    pub(crate) fn snapshot(&mut self) -> u64 {
        self.order();
        self.launched
    }

    /// Reclaims the records of launches up to `order`, which are complete.
    pub(crate) fn complete(&mut self, order: u64, done: &mut dyn FnMut(Done)) {
        let free = &mut self.free;
        self.pending.retain(|pending| {
            if pending.order.is_none_or(|own| own > order) {
                return true;
            }
            // SAFETY: the launch is complete, as the caller says, and the ring owns its memory.
            done(unsafe { pending.end() });
            free.push(pending.slot);
            false
        });
        while self.marks.front().is_some_and(|(covered, _)| *covered <= order) {
            self.marks.pop_front();
        }
        // After many launches the next few are looked at as soon as if there had been none.
        self.asked_at = self.asked_at.min(self.pending.len() + LOOKED_AT);
    }

    /// How one launch ended, which is complete, if its record has not been reclaimed. The record
    /// has no error any more then.
    pub(crate) fn examine(&mut self, launch: LaunchId) -> Option<Done> {
        let pending = &self.pending[self.find(launch)?];
        // SAFETY: the launch is complete, as the caller says, and the ring owns its memory.
        Some(unsafe { pending.end() })
    }

    /// As [`examine`](Ring::examine), of a launch that may not be complete: nothing unless it has claimed its record.
    pub(crate) fn examine_failed(&mut self, launch: LaunchId) -> Option<Done> {
        let pending = &self.pending[self.find(launch)?];
        if pending.slot.is_claimed() { self.examine(launch) } else { None }
    }

    /// Whether [`poll`](Ring::poll) may find an error, as far as can be told without asking the driver: a launch has claimed
    /// its record, or there are too many to look at each.
    #[inline]
    pub(crate) fn may_have_failed(&self) -> bool {
        self.pending.len() >= self.asked_at || self.pending.iter().any(|pending| pending.slot.is_claimed())
    }

    /// Reclaims what is known to be complete without waiting, and makes a mark for the next time if there is none.
    pub(crate) fn poll(&mut self, queue: &Q, done: &mut dyn FnMut(Done)) -> Result<()> {
        let polled = self.poll_stream(queue, done);
        self.asked_at = self.pending.len() + LOOKED_AT;
        polled
    }

    /// Reclaims what the marks so far say to be complete, which takes nothing of the stream itself.
    pub(crate) fn poll_marks(&mut self, queue: &Q, done: &mut dyn FnMut(Done)) -> Result<()> {
        self.reclaim_reached(queue, done)
    }

    fn poll_stream(&mut self, queue: &Q, done: &mut dyn FnMut(Done)) -> Result<()> {
        self.reclaim_reached(queue, done)?;
        if self.pending.is_empty() {
            return Ok(());
        }
        let order = self.snapshot();
        if queue.is_idle()? {
            self.complete(order, done);
            return Ok(());
        }
        if self.marks.is_empty() { self.mark(queue) } else { Ok(()) }
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

    fn reclaim_reached(&mut self, queue: &Q, done: &mut dyn FnMut(Done)) -> Result<()> {
        while let Some((order, mark)) = self.marks.front()
            && queue.is_reached(mark)?
        {
            let order = *order;
            self.complete(order, done);
        }
        Ok(())
    }

    fn reclaim(&mut self, queue: &Q, done: &mut dyn FnMut(Done)) -> Result<()> {
        self.reclaim_reached(queue, done)?;
        if !self.free.is_empty() || self.capacity < LARGEST {
            return Ok(());
        }
        if let Some((order, mark)) = self.marks.front() {
            queue.wait_mark(mark)?;
            let order = *order;
            self.complete(order, done);
            return Ok(());
        }
        let order = self.snapshot();
        if self.pending.iter().any(|pending| pending.order.is_some()) {
            queue.wait_all()?;
            self.complete(order, done);
        }
        Ok(())
    }

    fn grow(&mut self, queue: &Q) -> Result<()> {
        let (memory, host, device) = queue.allocate(BLOCK)?;
        self.memory.push(memory);
        self.flags.push((0..BLOCK).map(|_| AtomicBool::new(false)).collect());
        let flags = self.flags.last().map_or(&[][..], Vec::as_slice);
        self.capacity += BLOCK;
        // Launches between two growths allocate nothing.
        self.free.reserve(self.capacity);
        self.pending.reserve(BLOCK);
        self.marks.reserve(LARGEST / MARK_EVERY as usize);
        // In reverse, because slots are taken from the end.
        for (index, flag) in flags.iter().enumerate().rev() {
            self.free.push(Slot {
                launched: NonNull::from(flag),
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
        fn is_idle(&self) -> Result<bool> {
            Ok(self.done.get() >= self.given.get())
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

    fn nothing(done: Done) {
        assert!(done.error.is_none(), "unexpected: {done:?}");
    }

    /// The error of a launch that is complete.
    fn take(ring: &mut Ring<Fake>, launch: LaunchId) -> Option<Error> {
        ring.examine(launch).and_then(|done| done.error)
    }

    fn launch(ring: &mut Ring<Fake>, queue: &Fake, done: &mut dyn FnMut(Done)) -> (LaunchId, u64) {
        let acquired = ring.acquire(queue, source(), done).expect("the fake has memory");
        queue.given.set(queue.given.get() + 1);
        launched(acquired);
        (acquired.launch, acquired.address)
    }

    fn launched(acquired: Acquired) {
        // SAFETY: the ring is alive.
        unsafe { acquired.launched.as_ref() }.store(true, Ordering::Release);
    }

    #[test]
    fn an_error_is_found_by_its_launch_once() {
        let (queue, mut ring) = (Fake::default(), Ring::new());
        let (a, a_record) = launch(&mut ring, &queue, &mut nothing);
        let (b, b_record) = launch(&mut ring, &queue, &mut nothing);
        assert_ne!(a_record, b_record);
        assert_eq!(a_record % 64, 0);
        fail(b_record, 7);
        assert_eq!(take(&mut ring, a), None);
        assert_eq!(take(&mut ring, b), Some(error(7)));
        assert_eq!(take(&mut ring, b), None);
        let order = ring.snapshot();
        ring.complete(order, &mut nothing);
        assert!(!ring.is_in_use());
    }

    #[test]
    fn a_launch_that_has_not_failed_may_still_do_so() {
        let (queue, mut ring) = (Fake::default(), Ring::new());
        let (a, record) = launch(&mut ring, &queue, &mut nothing);
        assert!(ring.examine_failed(a).is_none(), "its end is not known");
        fail(record, 4);
        assert_eq!(ring.examine_failed(a).and_then(|done| done.error), Some(error(4)));
        let order = ring.snapshot();
        ring.complete(order, &mut nothing);
        assert!(ring.examine_failed(a).is_none(), "it is over");
    }

    #[test]
    fn completion_finds_errors_and_frees_records() {
        let (queue, mut ring) = (Fake::default(), Ring::new());
        let (a, a_record) = launch(&mut ring, &queue, &mut nothing);
        let order = ring.snapshot();
        let (b, b_record) = launch(&mut ring, &queue, &mut nothing);
        // The second launch is known to have been made, and not to be complete.
        assert_eq!(ring.snapshot(), order + 1);
        fail(a_record, 1);
        fail(b_record, 2);
        let mut seen = Vec::new();
        ring.complete(order, &mut |done| seen.push((done.launch, done.error)));
        assert_eq!(seen, [(a, Some(error(1)))]);
        assert_eq!(take(&mut ring, b), Some(error(2)), "a launch after the snapshot keeps its record");
        let (_, reused) = launch(&mut ring, &queue, &mut nothing);
        assert_eq!(reused, a_record);
        let order = ring.snapshot();
        ring.complete(order, &mut nothing);
    }

    #[test]
    fn a_record_that_is_acquired_but_not_launched_is_not_reclaimed() {
        let (queue, mut ring) = (Fake { marks: true, ..Fake::default() }, Ring::new());
        let first = ring.acquire(&queue, source(), &mut nothing).expect("memory");
        let Acquired { launch: early, address: early_record, .. } = first;
        for _ in 0..LARGEST * 3 {
            let (_, record) = launch(&mut ring, &queue, &mut nothing);
            assert_ne!(record, early_record);
        }
        queue.given.set(queue.given.get() + 1);
        launched(first);
        fail(early_record, 3);
        assert_eq!(take(&mut ring, early), Some(error(3)));
    }

    #[test]
    fn launches_that_are_made_in_another_order_are_all_reclaimed() {
        let (queue, mut ring) = (Fake::default(), Ring::new());
        let [a, b, c, d] = [(); 4].map(|()| ring.acquire(&queue, source(), &mut nothing).expect("memory"));
        let mut seen = Vec::new();
        for (late, site) in [(c, 3), (d, 4), (a, 1), (b, 2)] {
            launched(late);
            fail(late.address, site);
            let order = ring.snapshot();
            ring.complete(order, &mut |done| seen.push((done.launch, done.error)));
            assert_eq!(seen.pop(), Some((late.launch, Some(error(site)))));
            assert!(seen.is_empty());
        }
        assert!(!ring.is_in_use());
    }

    #[test]
    fn a_cancelled_record_is_free_again() {
        let (queue, mut ring) = (Fake::default(), Ring::new());
        let Acquired { launch: id, address: record, .. } =
            ring.acquire(&queue, source(), &mut nothing).expect("memory");
        assert!(ring.cancel(id).is_some_and(|done| done.error.is_none()) && ring.cancel(id).is_none());
        assert!(!ring.is_in_use());
        assert_eq!(launch(&mut ring, &queue, &mut nothing).1, record);
    }

    #[test]
    fn the_ring_is_bounded_with_and_without_marks() {
        for marks in [true, false] {
            let (queue, mut ring) = (Fake { marks, ..Fake::default() }, Ring::new());
            let mut seen = 0;
            for index in 0..20_000 {
                let (_, record) = launch(&mut ring, &queue, &mut |done| seen += usize::from(done.error.is_some()));
                if index % 1000 == 0 {
                    fail(record, 1);
                }
            }
            assert_eq!(ring.capacity, LARGEST);
            assert!(queue.waits.get() > 0);
            let order = ring.snapshot();
            ring.complete(order, &mut |done| seen += usize::from(done.error.is_some()));
            assert_eq!(seen, 20, "every error is found, marks = {marks}");
        }
    }

    #[test]
    fn launches_after_many_are_asked_for_as_soon() {
        let (queue, mut ring) = (Fake::default(), Ring::new());
        for _ in 0..10 * LOOKED_AT {
            launch(&mut ring, &queue, &mut nothing);
        }
        assert!(ring.may_have_failed());
        ring.poll(&queue, &mut nothing).expect("the fake answers");
        assert!(!ring.may_have_failed(), "they run");
        let order = ring.snapshot();
        ring.complete(order, &mut nothing);
        for _ in 0..LOOKED_AT {
            assert!(!ring.may_have_failed());
            launch(&mut ring, &queue, &mut nothing);
        }
        assert!(ring.may_have_failed());
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
