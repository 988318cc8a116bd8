//! Operations of the placed level, with adversarial timing.
//!
//! A program is one thread here. Shared memory is poisoned when it is allocated and where an asynchronous copy is
//! in flight; copies land at their wait and no earlier. Warp groups are coroutines that run until they have to wait
//! at a barrier; when all wait, that is a [deadlock](FaultKind::Deadlock).

use std::ptr;

use crate::ir::DType;

use super::code::{Inst, Lane, Load, Pc, RegId};
use super::fault::FaultKind;
use super::lanes::Bits;
use super::machine::{Exit, Flow, Machine};

/// What poisoned shared memory is filled with: NaN in every float dtype.
const POISON: u8 = 0xff;

/// A barrier with phases.
#[derive(Clone, Copy, Debug)]
struct Barrier {
    /// Arrivals that complete a phase.
    count: u32,
    /// Arrivals in the current phase.
    arrived: u32,
    /// Phases completed so far.
    completed: u64,
}

/// An asynchronous copy in flight.
#[derive(Debug)]
struct Copy {
    /// Where it lands in the arena.
    to: usize,
    data: Vec<u8>,
    /// The group that it belongs to, once that is committed.
    group: Option<u64>,
}

/// The asynchronous copies of one warp group.
#[derive(Default, Debug)]
struct Queue {
    copies: Vec<Copy>,
    committed: u64,
}

/// What a program's GPU operations have done so far.
#[derive(Debug)]
pub(super) struct Gpu {
    barriers: Vec<Barrier>,
    queues: Vec<Queue>,
    /// The queue of the warp group that runs.
    current: usize,
}

impl Default for Gpu {
    fn default() -> Gpu {
        Gpu { barriers: Vec::new(), queues: vec![Queue::default()], current: 0 }
    }
}

impl Machine<'_> {
    fn poison(&mut self, offset: usize, bytes: usize) {
        // SAFETY: shared memory lies within the arena.
        unsafe { ptr::write_bytes(self.arena(offset), POISON, bytes) };
    }

    fn set_handle(&mut self, out: RegId, handle: u64) {
        self.set_splat(out, Bits::from_raw(handle, 8));
    }

    fn handle(&self, reg: RegId) -> u64 {
        self.scalar(reg).to_raw(8)
    }

    pub(super) fn shared_alloc(&mut self, out: RegId, offset: usize, bytes: usize) {
        self.poison(offset, bytes);
        self.set_handle(out, offset as u64);
    }

    pub(super) fn shared_index(
        &mut self,
        pc: Pc,
        view: RegId,
        index: RegId,
        out: RegId,
        (count, bytes): (usize, usize),
    ) -> Flow {
        let index = self.scalar(index).to_int(DType::I32) as i64;
        match usize::try_from(index) {
            Ok(position) if position < count => {
                let offset = self.handle(view) + (position * bytes) as u64;
                self.set_handle(out, offset);
                Flow::Next
            }
            Ok(_) | Err(_) => self.stop(pc, FaultKind::SharedOutOfBounds { index, len: count as u64 }),
        }
    }

    pub(super) fn shared_load(&mut self, view: RegId, out: RegId) {
        let (home, bytes) = (self.reg(out).home, self.reg(out).n * self.info(out).lane.bytes());
        let from = self.arena(self.handle(view) as usize);
        // SAFETY: a view has as many elements as the tile in it, and shared memory is nobody's home.
        unsafe { ptr::copy_nonoverlapping(from, home, bytes) };
        if self.info(out).lane == Lane::Data(DType::Bool) {
            // SAFETY: as above; poison is true.
            let lanes = unsafe { std::slice::from_raw_parts_mut(home, bytes) };
            lanes.iter_mut().for_each(|lane| *lane = u8::from(*lane != 0));
        }
        self.set_dense(out);
    }

    pub(super) fn shared_store(&mut self, view: RegId, value: RegId) {
        let from = self.dense(value);
        let bytes = self.reg(value).n * self.info(value).lane.bytes();
        let to = self.arena(self.handle(view) as usize);
        // SAFETY: a view has as many elements as the tile, and shared memory is nobody's home.
        unsafe { ptr::copy_nonoverlapping(from, to, bytes) };
    }

    pub(super) fn async_copy(&mut self, pc: Pc, view: RegId, load: &Load, token: RegId) {
        // The source is read now: `Ptr` memory does not change, and of other memory either value is right.
        self.load(pc, load);
        let from = self.dense(load.out);
        let bytes = self.reg(load.out).n * self.info(load.out).lane.bytes();
        // SAFETY: `dense` returns that many bytes.
        let data = unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec();
        let to = self.handle(view) as usize;
        self.poison(to, bytes);
        let current = self.gpu.current;
        self.gpu.queues[current].copies.push(Copy { to, data, group: None });
        self.set_handle(token, 0);
    }

    pub(super) fn async_commit(&mut self, token: RegId) {
        let queue = &mut self.gpu.queues[self.gpu.current];
        for copy in &mut queue.copies {
            copy.group.get_or_insert(queue.committed);
        }
        queue.committed += 1;
        self.set_handle(token, 0);
    }

    pub(super) fn async_wait(&mut self, token: RegId, pending: u8) {
        let current = self.gpu.current;
        let queue = &mut self.gpu.queues[current];
        // Groups below this number have to be complete.
        let complete = queue.committed.saturating_sub(u64::from(pending));
        let copies = std::mem::take(&mut queue.copies);
        let (landing, flying): (Vec<_>, Vec<_>) =
            copies.into_iter().partition(|copy| copy.group.is_some_and(|group| group < complete));
        self.gpu.queues[current].copies = flying;
        for copy in landing {
            // SAFETY: the view that was the target has room for the tile.
            unsafe { ptr::copy_nonoverlapping(copy.data.as_ptr(), self.arena(copy.to), copy.data.len()) };
        }
        self.set_handle(token, 0);
    }

    pub(super) fn barrier_alloc(&mut self, out: RegId, slots: u32, count: u32) {
        let first = self.gpu.barriers.len() as u64;
        let barrier = Barrier { count, arrived: 0, completed: 0 };
        self.gpu.barriers.extend(std::iter::repeat_n(barrier, slots as usize));
        self.set_handle(out, (first << 32) | u64::from(slots));
    }

    /// The position of a barrier, or its slot and how many there are if that does not exist.
    fn barrier(&self, barrier: RegId, slot: RegId) -> Result<usize, (i64, u64)> {
        let handle = self.handle(barrier);
        let (first, slots) = ((handle >> 32) as usize, handle & 0xffff_ffff);
        let slot = self.scalar(slot).to_int(DType::I32) as i64;
        match u64::try_from(slot) {
            Ok(position) if position < slots => Ok(first + position as usize),
            Ok(_) | Err(_) => Err((slot, slots)),
        }
    }

    pub(super) fn barrier_arrive(&mut self, pc: Pc, barrier: RegId, slot: RegId) -> Flow {
        match self.barrier(barrier, slot) {
            Ok(position) => {
                let barrier = &mut self.gpu.barriers[position];
                barrier.arrived += 1;
                if barrier.arrived >= barrier.count {
                    barrier.arrived = 0;
                    barrier.completed += 1;
                }
                Flow::Next
            }
            Err((index, len)) => self.stop(pc, FaultKind::SharedOutOfBounds { index, len }),
        }
    }

    /// Passes if the phase of that parity is complete: the current phase has the other one.
    pub(super) fn barrier_wait(&mut self, pc: Pc, barrier: RegId, slot: RegId, phase: RegId) -> Flow {
        let parity = self.scalar(phase).to_raw(4) & 1;
        match self.barrier(barrier, slot) {
            Ok(position) if self.gpu.barriers[position].completed & 1 == parity => Flow::Wait,
            Ok(_) => Flow::Next,
            Err((index, len)) => self.stop(pc, FaultKind::SharedOutOfBounds { index, len }),
        }
    }

    /// Reports that the wait at `at` can never pass.
    pub(super) fn deadlock(&mut self, at: Pc) {
        if let Inst::BarrierWait { slot, phase, .. } = &self.code.insts[at.index()] {
            let slot = self.scalar(*slot).to_int(DType::I32) as i64;
            let phase = self.scalar(*phase).to_int(DType::I32) as i32;
            self.report(at, FaultKind::Deadlock { slot, phase });
        }
    }

    /// Runs warp groups in turns until all are done.
    pub(super) fn warp_groups(&mut self, entries: &[Pc], exit: Pc) -> Flow {
        let around = self.gpu.current;
        let first_queue = self.gpu.queues.len();
        self.gpu.queues.extend(entries.iter().map(|_| Queue::default()));
        let mut groups: Vec<Option<Pc>> = entries.iter().copied().map(Some).collect();
        loop {
            let (mut progress, mut waiting) = (false, None);
            for (i, group) in groups.iter_mut().enumerate() {
                let Some(at) = *group else { continue };
                self.gpu.current = first_queue + i;
                match self.exec(at) {
                    Exit::RegionEnd => (*group, progress) = (None, true),
                    Exit::Blocked { at, moved } => {
                        *group = Some(at);
                        progress |= moved;
                        waiting.get_or_insert(at);
                    }
                    stopped @ (Exit::Returned | Exit::Stopped) => return Flow::Exit(stopped),
                }
            }
            match waiting {
                None => break,
                Some(at) if !progress => {
                    self.deadlock(at);
                    return Flow::Exit(Exit::Stopped);
                }
                Some(_) => {}
            }
        }
        self.gpu.current = around;
        self.gpu.queues.truncate(first_queue);
        Flow::Goto(exit)
    }
}
