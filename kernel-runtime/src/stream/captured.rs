//! Launches on a stream that somebody else is capturing into a CUDA graph.
//!
//! Such a launch runs when the graph is replayed, any number of times, and its owner does not tell us when, nor on which
//! stream. So its record belongs to the graph: the graph keeps a *user object*, which the driver destroys with it, and then
//! the records are freed. Until then they are looked at whenever somebody asks a stream of somebody else in the context for
//! errors: who asks first is told. Memory that such launches need beside what they are given lives as long, too, and so do
//! our own buffers that are captured: a buffer that is dropped may be used by the next replay. When that runs is for its owner
//! to order with other uses of the buffer. Buffers that are allocated in the capture are nodes of the graph itself and are left
//! to it. The driver may not be called where it says that a graph is gone: memory is freed when somebody asks the next time,
//! whichever stream, or allocates a buffer on a GPU.

use super::lock;
use crate::context::CudaMemory;
use crate::driver::{self, DeviceMemory, MappedMemory};
use crate::error::{Error, Result};
use crate::ledger::Ledger;
use crate::report_slot::{LaunchId, LaunchRecord, ReportSource};
use crate::storage::Storage;
use cudarc::driver::sys;
use rustc_hash::FxHashMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Records per allocation: a page.
const BLOCK: usize = 64;

/// How long after a record is claimed it is read. Nobody knows whether the replay that claimed it has ended; what the program
/// writes next are a few words, which take microseconds.
const SETTLE: Duration = Duration::from_millis(1);

/// What a stream knows of graphs into which somebody else captures it.
pub(super) struct Captured {
    stream: u64,
    /// That of the context.
    ledger: &'static Ledger,
}

/// The graphs in which launches were captured, by the driver's number of the capture.
static GRAPHS: Mutex<Vec<(u64, Arc<Records>)>> = Mutex::new(Vec::new());
/// Whether there are any, for those who look without the lock.
static ARE_USED: AtomicBool = AtomicBool::new(false);

/// The records of one captured graph, and what else it keeps.
struct Records {
    memory: Arc<CudaMemory>,
    /// The stream that was captured, which is told where nobody else of the context asks.
    stream: u64,
    ledger: &'static Ledger,
    slots: Mutex<Slots>,
    /// Of launches that need it.
    scratch: Mutex<Vec<DeviceMemory>>,
    /// The memory of buffers that launches and copies were given, by its address on the host.
    buffers: Mutex<FxHashMap<usize, Arc<Storage>>>,
    /// Whether the graph is gone, and nothing is left.
    is_freed: AtomicBool,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    blocks: Vec<MappedMemory>,
}

struct Slot {
    launch: LaunchId,
    record: NonNull<LaunchRecord>,
    source: Arc<dyn ReportSource>,
}

// SAFETY: a slot points to memory that lives as long as its owner and that any thread may access; slots are used under a lock.
unsafe impl Send for Slot {}

/// A capture that goes on, of a stream, by somebody else.
pub(crate) struct Capture<'s> {
    captured: &'s Captured,
    memory: &'s Arc<CudaMemory>,
    /// The driver's number of it.
    number: u64,
    graph: sys::CUgraph,
}

/// A launch that is captured: its number, and where the GPU finds its record.
pub(super) struct CapturedLaunch {
    pub(super) launch: LaunchId,
    pub(super) address: u64,
}

/// Records of graphs that the driver has destroyed. It forbids calling it where it says so, so that they are freed later.
static GONE: Mutex<Vec<Arc<Records>>> = Mutex::new(Vec::new());
/// Whether there are any, for those who look without the lock.
static ARE_GONE: AtomicBool = AtomicBool::new(false);

/// What the driver calls when it destroys a graph, and all that was made of it.
unsafe extern "C" fn destroyed(records: *mut c_void) {
    // SAFETY: the graph's own reference, which it gives back once.
    let records = unsafe { Arc::from_raw(records.cast_const().cast::<Records>()) };
    let mut gone = lock(&GONE);
    gone.push(records);
    ARE_GONE.store(true, Ordering::Release);
}

/// Takes the last errors of graphs that are gone, for the stream that asks or else for their own, and frees what they kept.
#[cold]
fn sweep(asking: &Captured) {
    let mut list = lock(&GONE);
    ARE_GONE.store(false, Ordering::Release);
    let gone = std::mem::take(&mut *list);
    // The driver may wait for the list, so that it is not locked while memory is freed.
    drop(list);
    for records in gone {
        records.collect(if asking.is_of(&records) { asking.stream } else { records.stream });
        records.free();
    }
}

impl Captured {
    /// Of the stream with this number, whose errors go to this ledger.
    pub(super) fn new(stream: u64, ledger: &'static Ledger) -> Captured {
        Captured { stream, ledger }
    }

    /// Whether the graph is of the stream's context.
    fn is_of(&self, records: &Records) -> bool {
        std::ptr::eq(self.ledger, records.ledger)
    }

    /// The capture of the stream with this handle, which is alive and of the context `memory`, if somebody captures it.
    pub(super) fn capture<'s>(
        &'s self,
        memory: &'s Arc<CudaMemory>,
        stream: sys::CUstream,
    ) -> Result<Option<Capture<'s>>> {
        memory.bind()?;
        // SAFETY: the stream is alive, its context is current.
        let found = unsafe { driver::capture_of(stream)? };
        Ok(found.map(|(number, graph)| Capture { captured: self, memory, number, graph }))
    }

    /// Whether replays may report errors in the stream's context.
    pub(super) fn has_graphs(&self) -> bool {
        ARE_USED.load(Ordering::Acquire) && lock(&GRAPHS).iter().any(|(_, records)| self.is_of(records))
    }

    /// Frees what graphs kept that are gone, and gives their last errors to the ledger.
    #[inline]
    pub(super) fn free_gone(&self) {
        if ARE_GONE.load(Ordering::Acquire) {
            sweep(self);
        }
    }

    /// Gives the errors that replays in the context have reported so far to the ledger, as those of this stream, and frees what
    /// graphs kept that are gone.
    #[inline]
    pub(super) fn collect(&self) {
        self.free_gone();
        if ARE_USED.load(Ordering::Acquire) {
            self.collect_all();
        }
    }

    #[cold]
    fn collect_all(&self) {
        let mut graphs = lock(&GRAPHS);
        graphs.retain(|(_, records)| !records.is_freed.load(Ordering::Acquire));
        ARE_USED.store(!graphs.is_empty(), Ordering::Release);
        for (_, records) in graphs.iter().filter(|(_, records)| self.is_of(records)) {
            records.collect(self.stream);
        }
    }
}

impl Capture<'_> {
    /// The driver's number of the capture, which no other has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// A record for a launch that is given to the stream next.
    pub(super) fn acquire(&self, source: Arc<dyn ReportSource>) -> Result<CapturedLaunch> {
        self.records()?.acquire(source)
    }

    /// The address of memory that the graph keeps.
    pub(super) fn scratch(&self, bytes: usize) -> Result<u64> {
        let records = self.records()?;
        let block = DeviceMemory::new(bytes)?;
        let address = block.address();
        lock(&records.scratch).push(block);
        Ok(address)
    }

    /// Has the graph keep buffers that what is given to the stream next uses. Those that were allocated in this capture are
    /// the graph's already.
    pub(crate) fn keep<'b>(&self, buffers: impl IntoIterator<Item = &'b Arc<Storage>>) -> Result<()> {
        let mut records = None;
        for buffer in buffers.into_iter().filter(|buffer| !buffer.is_of_capture(self.number)) {
            let records: &Arc<Records> = match &mut records {
                Some(records) => records,
                none => none.insert(self.records()?),
            };
            lock(&records.buffers).entry(Arc::as_ptr(buffer).addr()).or_insert_with(|| buffer.clone());
        }
        Ok(())
    }

    /// What the graph keeps.
    fn records(&self) -> Result<Arc<Records>> {
        let mut graphs = lock(&GRAPHS);
        if let Some((_, records)) = graphs.iter().find(|(known, _)| *known == self.number) {
            return Ok(records.clone());
        }
        let records = Arc::new(Records {
            memory: self.memory.clone(),
            stream: self.captured.stream,
            ledger: self.captured.ledger,
            slots: Mutex::default(),
            scratch: Mutex::default(),
            buffers: Mutex::default(),
            is_freed: AtomicBool::new(false),
        });
        let own = Arc::into_raw(records.clone());
        // SAFETY: the graph is being captured, so it is alive; `destroyed` takes what it is given.
        if let Err(error) = unsafe { driver::keep_with_graph(self.graph, own.cast_mut().cast(), destroyed) } {
            // SAFETY: nobody else has taken the reference.
            drop(unsafe { Arc::from_raw(own) });
            return Err(error);
        }
        graphs.push((self.number, records.clone()));
        ARE_USED.store(true, Ordering::Release);
        Ok(records)
    }
}

impl Records {
    fn acquire(&self, source: Arc<dyn ReportSource>) -> Result<CapturedLaunch> {
        let mut state = lock(&self.slots);
        let (block, place) = (state.slots.len() / BLOCK, state.slots.len() % BLOCK);
        if block == state.blocks.len() {
            state.blocks.push(MappedMemory::new(BLOCK * size_of::<LaunchRecord>())?);
        }
        let memory = &state.blocks[block];
        let first = NonNull::new(memory.host().cast::<LaunchRecord>()).ok_or_else(|| Error::Unsupported {
            what: "reporting errors of kernels".into(),
            reason: "the driver gave no page-locked memory".into(),
        })?;
        let address = memory.device() + (place * size_of::<LaunchRecord>()) as u64;
        // SAFETY: the block holds `BLOCK` records.
        let record = unsafe { first.add(place) };
        let launch = LaunchId::next();
        state.slots.push(Slot { launch, record, source });
        Ok(CapturedLaunch { launch, address })
    }

    /// Gives the errors of replays so far to the ledger, as those of a stream.
    fn collect(&self, stream: u64) {
        let state = lock(&self.slots);
        if !state.slots.iter().any(Slot::is_claimed) {
            return;
        }
        std::thread::sleep(SETTLE);
        for slot in state.slots.iter().filter(|slot| slot.is_claimed()) {
            // SAFETY: the memory is alive. The GPU wrote it behind the compiler's back, hence volatile.
            let record = unsafe { slot.record.read_volatile() };
            // SAFETY: as above. A replay that fails from here on claims the record anew.
            unsafe { slot.record.write_volatile(LaunchRecord::default()) };
            self.ledger.lock().push_error(stream, slot.launch, slot.source.error(&record));
        }
    }

    fn free(&self) {
        self.memory.within(|| {
            *lock(&self.slots) = Slots::default();
            lock(&self.scratch).clear();
        });
        // Buffers take locks when they drop, and bind their own context.
        let buffers = std::mem::take(&mut *lock(&self.buffers));
        self.memory.within(|| drop(buffers));
        self.is_freed.store(true, Ordering::Release);
    }
}

impl Slot {
    fn is_claimed(&self) -> bool {
        // SAFETY: the memory is alive. The GPU may be writing it, hence volatile.
        let state = unsafe { (&raw const (*self.record.as_ptr()).state).read_volatile() };
        state != 0
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        if !self.is_freed.load(Ordering::Acquire) {
            self.free();
        }
    }
}
