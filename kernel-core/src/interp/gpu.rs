//! Operations of the placed level, with adversarial timing.
//!
//! A program is one thread here. Shared memory is poisoned when it is allocated and where an asynchronous copy is
//! in flight; copies land at their wait and no earlier.

use std::ops::Range;
use std::ptr;

use crate::ir::{DType, LayoutId, Span};
use crate::layout::SyncScope;

use super::executor::{Executor, Flow};
use super::fault::FaultKind;
use super::gpu_state::{Barrier, Copy, Landing, POISON};
use super::instructions::{Inst, Load, Step};
use super::lanes::Bits;
use super::order::{Agent, Order, Owner, Touch};
use super::registers::{Holders, Lane, Pc, RegId};

/// Bits of a view's handle that are its place in the arena; those above name its strides.
const PLACE_BITS: u32 = 40;

impl Executor<'_> {
    fn poison(&mut self, offset: usize, bytes: usize) {
        // SAFETY: shared memory lies within the arena.
        unsafe { ptr::write_bytes(self.arena(offset), POISON, bytes) };
    }

    fn set_handle(&mut self, out: RegId, handle: u64) {
        self.set_splat(out, Bits::from_raw(handle, 8));
    }

    pub(super) fn handle(&self, reg: RegId) -> u64 {
        self.scalar(reg).to_raw(8)
    }

    pub(super) fn shared_alloc(&mut self, out: RegId, offset: usize, bytes: usize) {
        self.poison(offset, bytes);
        self.set_handle(out, offset as u64);
    }

    /// The place of a view and its strides, where it is not row-major.
    fn view(&self, handle: u64) -> (usize, Option<&[usize]>) {
        let strides = (handle >> PLACE_BITS) as usize;
        let place = (handle & ((1 << PLACE_BITS) - 1)) as usize;
        (place, strides.checked_sub(1).map(|i| &*self.gpu.strides[i]))
    }

    /// A handle of a view with these strides.
    fn view_handle(&mut self, place: usize, strides: Box<[usize]>) -> u64 {
        let known = self.gpu.strides.iter().position(|s| *s == strides);
        let index = known.unwrap_or_else(|| {
            self.gpu.strides.push(strides);
            self.gpu.strides.len() - 1
        });
        place as u64 | (index as u64 + 1) << PLACE_BITS
    }

    /// Calls `f` with the place in the arena of every element of a view, in row-major order.
    fn for_each_place(&self, handle: u64, dims: &[usize], element: usize, mut f: impl FnMut(usize)) {
        let (place, strides) = self.view(handle);
        let n: usize = dims.iter().product();
        for lane in 0..n {
            let offset = match strides {
                None => lane,
                Some(strides) => {
                    let mut rest = lane;
                    dims.iter().zip(strides).rev().fold(0, |offset, (&dim, &stride)| {
                        let position = rest % dim;
                        rest /= dim;
                        offset + position * stride
                    })
                }
            };
            f(place + offset * element);
        }
    }

    /// Copies what a view holds.
    ///
    /// # Safety
    /// The view has these dimensions, and `to` has room for their elements outside shared memory.
    pub(super) unsafe fn read_view(&self, handle: u64, dims: &[usize], element: usize, to: *mut u8) {
        let mut to = to;
        self.for_each_place(handle, dims, element, |place| {
            // SAFETY: promised by the caller; views lie in the arena.
            unsafe {
                ptr::copy_nonoverlapping(self.arena(place), to, element);
                to = to.add(element);
            }
        });
    }

    /// Writes a view.
    ///
    /// # Safety
    /// The view has these dimensions, and `from` has their elements outside shared memory.
    pub(super) unsafe fn write_view(&self, handle: u64, dims: &[usize], element: usize, from: *const u8) {
        let mut from = from;
        self.for_each_place(handle, dims, element, |place| {
            // SAFETY: promised by the caller; views lie in the arena.
            unsafe {
                ptr::copy_nonoverlapping(from, self.arena(place), element);
                from = from.add(element);
            }
        });
    }

    /// Fills a view with poison.
    pub(super) fn poison_view(&mut self, handle: u64, dims: &[usize], element: usize) {
        self.for_each_place(handle, dims, element, |place| {
            // SAFETY: views lie in the arena.
            unsafe { ptr::write_bytes(self.arena(place), POISON, element) };
        });
    }

    fn land_copy(&mut self, copy: &Landing) {
        // SAFETY: the view that was the target has room for the tile.
        unsafe { self.write_view(copy.view, &copy.dims, copy.element, copy.data.as_ptr()) };
    }

    pub(super) fn shared_index(
        &mut self,
        pc: Pc,
        view: RegId,
        index: RegId,
        out: RegId,
        (count, bytes, element): (usize, usize, usize),
    ) -> Flow {
        let index = self.scalar(index).to_int(DType::I32) as i64;
        match usize::try_from(index) {
            Ok(position) if position < count => {
                let (place, strides) = self.view(self.handle(view));
                let handle = match strides {
                    None => (place + position * bytes) as u64,
                    Some(strides) => {
                        let (place, rest) = (place + position * strides[0] * element, strides[1..].into());
                        self.view_handle(place, rest)
                    }
                };
                self.set_handle(out, handle);
                Flow::Next
            }
            Ok(_) | Err(_) => self.stop(pc, FaultKind::SharedOutOfBounds { index, len: count as u64 }),
        }
    }

    pub(super) fn shared_permute(&mut self, view: RegId, out: RegId, dims: &[usize], perm: &[u8]) {
        let (place, strides) = self.view(self.handle(view));
        let strides: Vec<usize> = match strides {
            Some(strides) => strides.to_vec(),
            None => (0..dims.len()).map(|i| dims[i + 1..].iter().product()).collect(),
        };
        let permuted = perm.iter().map(|&p| strides[usize::from(p)]).collect();
        let handle = self.view_handle(place, permuted);
        self.set_handle(out, handle);
    }

    /// The bytes that a view reaches over.
    fn view_bytes(&self, handle: u64, dims: &[usize], element: usize) -> Range<usize> {
        let (place, strides) = self.view(handle);
        let last: usize = match strides {
            None => dims.iter().product::<usize>().saturating_sub(1),
            Some(strides) => dims.iter().zip(strides).map(|(&d, &s)| (d.max(1) - 1) * s).sum(),
        };
        place..place + (last + 1) * element
    }

    /// Checks the order of something, if that is asked for.
    fn in_order(&mut self, pc: Pc, check: impl FnOnce(&mut Order, Agent, Span) -> Result<(), String>) {
        let agent = self.gpu.current as Agent;
        let span = self.code.spans.get(pc.index()).copied().unwrap_or(Span::UNKNOWN);
        let Some(order) = &mut self.gpu.order else { return };
        if let Err(message) = check(order, agent, span) {
            self.report(pc, FaultKind::Race { message });
        }
    }

    /// Begins an access that goes on until it is waited for; its number, or 0 where nobody checks.
    pub(super) fn begin_access(&mut self, pc: Pc, handle: u64, dims: &[usize], element: usize, touch: Touch) -> u64 {
        if self.gpu.order.is_none() {
            return 0;
        }
        let bytes = self.view_bytes(handle, dims, element);
        let mut number = 0;
        self.in_order(pc, |order, agent, span| {
            let (verdict, id) = order.begin(agent, bytes, touch, span);
            number = id;
            verdict
        });
        number
    }

    /// Ends such an access.
    pub(super) fn end_access(&mut self, flight: u64, owner: Owner) {
        let agent = self.gpu.current as Agent;
        if let Some(order) = &mut self.gpu.order {
            order.end(agent, flight, owner);
        }
    }

    /// Threads pass each other values through these bytes. What was there before is lost.
    pub(super) fn exchange(&mut self, pc: Pc, steps: &[Step]) -> Flow {
        for step in steps {
            self.poison(step.bytes.start, step.bytes.len());
            if step.meets {
                self.barrier_all();
            }
            self.in_order(pc, |order, agent, span| order.exchange(agent, step.bytes.clone(), step.scope, span));
        }
        let meet = steps.iter().any(|step| step.meets || step.scope == SyncScope::Block);
        if meet { self.all_come(pc) } else { Flow::Next }
    }

    pub(super) fn barrier_all(&mut self) {
        let agent = self.gpu.current as Agent;
        if let Some(order) = &mut self.gpu.order {
            order.barrier(agent);
        }
    }

    pub(super) fn warpgroup_barrier(&mut self) {
        let agent = self.gpu.current as Agent;
        if let Some(order) = &mut self.gpu.order {
            order.warpgroup_barrier(agent);
        }
    }

    pub(super) fn proxy_fence(&mut self) {
        let agent = self.gpu.current as Agent;
        if let Some(order) = &mut self.gpu.order {
            order.fence(agent);
        }
    }

    pub(super) fn shared_load(&mut self, pc: Pc, view: RegId, out: RegId, holders: Holders) {
        let handle = self.handle(view);
        if self.gpu.order.is_some() {
            let info = self.info(out);
            let bytes = self.view_bytes(handle, &info.dims, info.lane.bytes());
            let owner = Owner::of(holders, handle);
            self.in_order(pc, |order, agent, span| {
                order.touched(agent, bytes.clone(), false, owner, span);
                order.access(agent, bytes, false, owner, span)
            });
        }
        let (home, info) = (self.reg(out).home, self.info(out));
        // SAFETY: a view has as many elements as the tile in it, and shared memory is nobody's home.
        unsafe { self.read_view(self.handle(view), &info.dims, info.lane.bytes(), home) };
        if info.lane == Lane::Data(DType::Bool) {
            // SAFETY: as above; poison is true.
            let lanes = unsafe { std::slice::from_raw_parts_mut(home, info.n) };
            lanes.iter_mut().for_each(|lane| *lane = u8::from(*lane != 0));
        }
        self.set_dense(out);
    }

    pub(super) fn shared_store(&mut self, pc: Pc, view: RegId, value: RegId, holders: Holders) {
        let handle = self.handle(view);
        if self.gpu.order.is_some() {
            let info = self.info(value);
            let bytes = self.view_bytes(handle, &info.dims, info.lane.bytes());
            let owner = Owner::of(holders, handle);
            self.in_order(pc, |order, agent, span| {
                order.touched(agent, bytes.clone(), true, owner, span);
                order.access(agent, bytes, true, owner, span)
            });
        }
        let from = self.dense(value);
        let info = self.info(value);
        // SAFETY: a view has as many elements as the tile, and shared memory is nobody's home.
        unsafe { self.write_view(self.handle(view), &info.dims, info.lane.bytes(), from) };
    }

    pub(super) fn async_copy(&mut self, pc: Pc, view: RegId, load: &Load, token: RegId, layout: Option<LayoutId>) {
        // The source is read now: `Ptr` memory does not change, and of other memory either value is right.
        self.load(pc, load);
        let from = self.dense(load.out);
        let info = self.info(load.out);
        let bytes = self.reg(load.out).n * info.lane.bytes();
        // SAFETY: `dense` returns that many bytes.
        let data = unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec();
        let (handle, element) = (self.handle(view), info.lane.bytes());
        let owner = Owner::of(Holders { layout, parts: None }, handle);
        let touch = Touch { write: true, asynchronous_proxy: false, owner };
        let flight = self.begin_access(pc, handle, &info.dims, element, touch);
        let landing = Landing { view: handle, dims: info.dims.clone(), element, data, flight };
        self.poison_view(landing.view, &landing.dims, landing.element);
        let current = self.gpu.current;
        self.gpu.queues[current].copies.push(Copy { landing, layout, group: None });
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
            self.land_copy(&copy.landing);
            let landing = &copy.landing;
            if self.gpu.order.is_some() {
                let bytes = self.view_bytes(landing.view, &landing.dims, landing.element);
                let owner = Owner::of(Holders { layout: copy.layout, parts: None }, landing.view);
                self.end_access(landing.flight, owner);
                let agent = self.gpu.current as Agent;
                if let Some(order) = &mut self.gpu.order {
                    order.touched(agent, bytes, true, owner, Span::UNKNOWN);
                }
            }
        }
        self.set_handle(token, 0);
    }

    pub(super) fn mbarrier_alloc(&mut self, out: RegId, slots: u32, count: u32) {
        let first = self.gpu.barriers.len() as u64;
        self.gpu.barriers.extend(std::iter::repeat_n(Barrier::new(count), slots as usize));
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

    pub(super) fn mbarrier_arrive(&mut self, pc: Pc, barrier: RegId, slot: RegId, bytes: Option<RegId>) -> Flow {
        let expected = bytes.map_or(0, |reg| self.scalar(reg).to_int(DType::I32).max(0) as usize);
        match self.barrier(barrier, slot) {
            Ok(position) => {
                let agent = self.gpu.current as Agent;
                if let Some(order) = &mut self.gpu.order {
                    order.arrive(agent, position);
                }
                // One thread says for all how many bytes will come; of what was read, each half of a group says so.
                if bytes.is_some() || !self.arrives_late(position) {
                    self.arrived(position, expected);
                }
                Flow::Next
            }
            Err((index, len)) => self.stop(pc, FaultKind::SharedOutOfBounds { index, len }),
        }
    }

    /// Counts an arrival at a barrier, of which so many bytes are to be expected.
    pub(super) fn arrived(&mut self, position: usize, bytes: usize) {
        // A phase that only waits for its copies is over before the next one begins.
        if self.gpu.barriers[position].ready() {
            self.complete(position);
        }
        let barrier = &mut self.gpu.barriers[position];
        barrier.arrived += 1;
        barrier.expected += bytes;
        if barrier.ready() && barrier.copies.is_empty() {
            self.complete(position);
        }
    }

    /// Ends the phase of a barrier: its copies land.
    fn complete(&mut self, position: usize) {
        let barrier = &mut self.gpu.barriers[position];
        let copies = std::mem::take(&mut barrier.copies);
        (barrier.arrived, barrier.expected) = (0, 0);
        barrier.completed += 1;
        let phase = barrier.completed;
        for copy in &copies {
            self.land_copy(copy);
        }
        if let Some(order) = &mut self.gpu.order {
            let flights: Vec<u64> = copies.iter().map(|copy| copy.flight).collect();
            order.complete(position, phase, &flights);
        }
    }

    /// A copy whose bytes count on the current phase of a barrier.
    pub(super) fn expect_copy(
        &mut self,
        pc: Pc,
        barrier: RegId,
        slot: RegId,
        view: u64,
        (dims, dtype): (&[usize], DType),
        data: Vec<u8>,
    ) -> Flow {
        match self.barrier(barrier, slot) {
            Ok(position) => {
                if self.gpu.barriers[position].ready() && self.gpu.barriers[position].arrived > 0 {
                    self.complete(position);
                }
                let element = dtype.bytes() as usize;
                let touch = Touch { write: true, asynchronous_proxy: true, owner: Owner::UNKNOWN };
                let flight = self.begin_access(pc, view, dims, element, touch);
                self.gpu.barriers[position].copies.push(Landing { view, dims: dims.into(), element, data, flight });
                Flow::Next
            }
            Err((index, len)) => self.stop(pc, FaultKind::SharedOutOfBounds { index, len }),
        }
    }

    /// Passes if the phase of that parity is complete: the current phase has the other one. Copies that the phase
    /// counts land now.
    pub(super) fn mbarrier_wait(&mut self, pc: Pc, barrier: RegId, slot: RegId, phase: RegId) -> Flow {
        let parity = self.scalar(phase).to_raw(4) & 1;
        match self.barrier(barrier, slot) {
            Ok(position) => {
                if self.gpu.barriers[position].completed & 1 == parity {
                    if !self.gpu.barriers[position].ready() {
                        return Flow::Wait;
                    }
                    self.complete(position);
                }
                let agent = self.gpu.current as Agent;
                if let Some(order) = &mut self.gpu.order {
                    order.wait(agent, position);
                }
                Flow::Next
            }
            Err((index, len)) => self.stop(pc, FaultKind::SharedOutOfBounds { index, len }),
        }
    }

    /// Reports that the wait at `at` can never pass.
    pub(super) fn deadlock(&mut self, at: Pc) {
        if let Inst::MbarrierWait { slot, phase, .. } = &self.code.insts[at.index()] {
            let slot = self.scalar(*slot).to_int(DType::I32) as i64;
            let phase = self.scalar(*phase).to_int(DType::I32) as i32;
            self.report(at, FaultKind::Deadlock { slot, phase });
        }
    }

    pub(super) fn all_meet(&mut self) {
        if let Some(order) = &mut self.gpu.order {
            order.all_meet();
        }
    }
}
