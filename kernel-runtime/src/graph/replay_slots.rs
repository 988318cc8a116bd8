//! Where the launches of a graph report errors: records that are theirs for the graph's life.
//!
//! Replays of one graph use the same records, so they are read only when the latest replay is
//! known to be complete.

use crate::context::CudaMemory;
use crate::driver::MappedMemory;
use crate::error::{Error, Result};
use crate::ledger::Ledger;
use crate::report_slot::{LaunchId, LaunchRecord, ReportSource};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Records per allocation: a page.
const BLOCK: usize = 64;

/// Records that are handed out while launches are recorded.
pub(super) struct RecordPool {
    memory: Arc<CudaMemory>,
    slots: Vec<Slot>,
    blocks: Vec<MappedMemory>,
}

/// The record of one launch.
struct Slot {
    /// The launch's place in the graph.
    launch: u64,
    record: NonNull<LaunchRecord>,
    source: Arc<dyn ReportSource>,
}

// SAFETY: a slot points to memory that lives as long as its owner and that any thread may access;
// slots are used under a lock.
unsafe impl Send for Slot {}

impl RecordPool {
    pub(super) fn new(memory: &Arc<CudaMemory>) -> Self {
        RecordPool { memory: memory.clone(), slots: Vec::new(), blocks: Vec::new() }
    }

    /// A fresh record for a launch: its address on the GPU. Launches come in order, and one that
    /// was not recorded after all asks again.
    pub(super) fn acquire(&mut self, launch: u64, source: Arc<dyn ReportSource>) -> Result<u64> {
        if self.slots.last().is_some_and(|slot| slot.launch == launch) {
            self.slots.pop();
        }
        let (block, place) = (self.slots.len() / BLOCK, self.slots.len() % BLOCK);
        if block == self.blocks.len() {
            self.memory.bind()?;
            self.blocks.push(MappedMemory::new(BLOCK * size_of::<LaunchRecord>())?);
        }
        let memory = &self.blocks[block];
        let first = NonNull::new(memory.host().cast::<LaunchRecord>()).ok_or_else(|| Error::Unsupported {
            what: "reporting errors of kernels".into(),
            reason: "the driver gave no page-locked memory".into(),
        })?;
        // SAFETY: the block holds `BLOCK` records.
        let record = unsafe { first.add(place) };
        self.slots.push(Slot { launch, record, source });
        Ok(memory.device() + (place * size_of::<LaunchRecord>()) as u64)
    }

    /// The records of a graph of so many launches.
    pub(super) fn finish(self, launches: u64) -> GraphRecords {
        let RecordPool { memory, slots, blocks } = self;
        let state = State { slots, launches, replays: 0, first: None, _blocks: blocks };
        GraphRecords { state: Mutex::new(state), memory }
    }
}

/// The records of a graph, and how often it was replayed.
pub(crate) struct GraphRecords {
    state: Mutex<State>,
    memory: Arc<CudaMemory>,
}

struct State {
    slots: Vec<Slot>,
    launches: u64,
    /// How many replays were made.
    replays: u64,
    /// The number of the first launch of the replays that are not known to be complete. As they share their records, a
    /// failure may be that of any of them: they are one to the ledger.
    first: Option<LaunchId>,
    /// Keeps the slots' memory.
    _blocks: Vec<MappedMemory>,
}

impl GraphRecords {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a replay. It is `give`n the number of its first launch, and no other replay comes
    /// between.
    pub(super) fn replay(&self, ledger: &Ledger, give: impl FnOnce(LaunchId) -> Result<()>) -> Result<()> {
        let mut state = self.lock();
        let first = state.first.unwrap_or_else(|| LaunchId::reserve(state.launches));
        if let Err(error) = give(first) {
            if state.first.is_none() {
                ledger.lock().resolve_replay(first, state.launches);
            }
            return Err(error);
        }
        state.replays += 1;
        state.first = Some(first);
        Ok(())
    }

    /// How many replays have been made. They are complete once a synchronisation that starts after
    /// this call has ended.
    pub(crate) fn replays(&self) -> u64 {
        self.lock().replays
    }

    /// Whether a replay may still run.
    pub(super) fn may_be_in_use(&self) -> bool {
        self.lock().first.is_some()
    }

    /// Takes the errors of the first `replays` replays, which are complete; gives the number of their first launch, and
    /// how many launches there are. If there have been more replays since, these may be writing to the records now, and
    /// whoever waits for them takes the errors.
    pub(crate) fn complete(&self, replays: u64, found: &mut dyn FnMut(LaunchId, Error)) -> Option<(LaunchId, u64)> {
        let mut state = self.lock();
        if state.replays != replays {
            return None;
        }
        let first = state.first.take()?;
        for slot in &state.slots {
            // SAFETY: no replay runs, and none starts while the lock is held.
            if let Some(error) = unsafe { slot.take_error() } {
                found(first.plus(slot.launch), error);
            }
        }
        Some((first, state.launches))
    }

    /// Whether a launch has reported an error, if it is one of the replays that are not known to be complete. Another
    /// of them may be writing it now.
    pub(crate) fn has_failed(&self, launch: LaunchId) -> bool {
        let state = self.lock();
        let index = state.first.and_then(|first| launch.get().checked_sub(first.get()));
        let place = index.and_then(|index| state.slots.binary_search_by_key(&index, |slot| slot.launch).ok());
        // SAFETY: the memory is alive. The GPU may be writing it, hence volatile.
        place.is_some_and(
            |place| unsafe { (&raw const (*state.slots[place].record.as_ptr()).state).read_volatile() } != 0,
        )
    }
}

impl Drop for GraphRecords {
    fn drop(&mut self) {
        // The fields free page-locked memory in the current context.
        let _ = self.memory.bind();
    }
}

impl Slot {
    /// Takes what the launch wrote, and makes the record fresh again.
    ///
    /// # Safety
    ///
    /// No replay of the launch is running, and the memory is alive.
    unsafe fn take_error(&self) -> Option<Error> {
        // SAFETY: promised by the caller. The GPU wrote the memory behind the compiler's back,
        // hence volatile.
        let record = unsafe { self.record.read_volatile() };
        if record.state == 0 {
            return None;
        }
        // SAFETY: as above.
        unsafe { self.record.write_volatile(LaunchRecord::default()) };
        Some(self.source.error(&record))
    }
}
