//! Where the launches of a graph report errors: records that are theirs for the graph's life.
//!
//! Replays of one graph use the same records, so they are read only when the latest replay is
//! known to be complete.

use crate::context::CudaMemory;
use crate::driver::MappedMemory;
use crate::error::{Error, Result};
use crate::record::{LaunchId, LaunchRecord, ReportSource};
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
        let state = State { slots, launches, replays: 0, completed: 0, first: None, _blocks: blocks };
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
    /// How many of them are known to be complete, with nothing left in the records.
    completed: u64,
    /// The number of the first launch of the latest replay.
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
    pub(super) fn replay(&self, give: impl FnOnce(LaunchId) -> Result<()>) -> Result<()> {
        let mut state = self.lock();
        let first = LaunchId::reserve(state.launches);
        give(first)?;
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
        let state = self.lock();
        state.completed < state.replays
    }

    /// Takes the errors of the first `replays` replays, which are complete. If there have been more
    /// since, these may be writing to the records now, and whoever waits for them takes the errors.
    pub(crate) fn complete(&self, replays: u64, found: &mut dyn FnMut(LaunchId, Error)) {
        let mut state = self.lock();
        let Some(first) = state.first.filter(|_| state.replays == replays && state.completed < replays) else {
            return;
        };
        state.completed = replays;
        for slot in &state.slots {
            // SAFETY: no replay runs, and none starts while the lock is held.
            if let Some(error) = unsafe { slot.take_error() } {
                found(first.plus(slot.launch), error);
            }
        }
    }

    /// Takes the error of a launch, which is complete, if it belongs to the latest replay and has
    /// failed.
    pub(crate) fn take(&self, launch: LaunchId) -> Option<Error> {
        let state = self.lock();
        let index = launch.get().checked_sub(state.first?.get())?;
        let place = state.slots.binary_search_by_key(&index, |slot| slot.launch).ok()?;
        // SAFETY: the launch is complete, and no later replay was made.
        unsafe { state.slots[place].take_error() }
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
