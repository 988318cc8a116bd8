//! Rewrites a loop so that its copies run ahead.

use std::collections::HashMap;

use kernel_core::edit::{self, Result, clone_op, replace_all_uses, splice};
use kernel_core::ir::known::constant;
use kernel_core::ir::{
    BinaryOp, CmpOp, ControlOp, DType, Def, Dim, FenceKind, Func, GpuOp, Literal, Op, OpId, RegionId, Span, ValueId,
};

use super::LoopNest;
use super::carry;
use super::find::{Candidate, Found};
use super::flight::{self, Flight, Flown};
use crate::analysis::axis::AxisAnalysis;
use crate::passes::placed::late_waits::{self, Applied, Room};

/// What is known of numbers.
#[derive(Clone, Copy)]
pub(super) struct Numbers<'f> {
    pub(super) axis: &'f AxisAnalysis,
    /// Whether offsets do not wrap on the way, where the masks of their accesses hold.
    pub(super) no_wrap: bool,
}

/// Rewrites the loop with so many slots; returns whether products stay in flight.
pub(super) fn emit(
    func: &mut Func,
    axis: &AxisAnalysis,
    place: &LoopNest,
    found: &Found,
    stages: u32,
    room: Room,
) -> Result<Flown> {
    let no_wrap = matches!(func.op(place.id).op, Op::Control(ControlOp::For { no_wrap: true, .. }));
    let numbers = Numbers { axis, no_wrap };
    let body = func.op(place.id).regions[0];
    let (flight, mut flown) = match flight::find(func, body, found) {
        Ok(flight) if stages > 2 => (Some(flight), Flown::InFlight),
        Ok(_) => {
            (None, Flown::Waits("with two stages, what it reads is overwritten next; a third would let it run on"))
        }
        Err(why) => (None, Flown::Waits(why)),
    };
    let span = func.op(place.id).span;
    let ahead = stages - 1;
    let yields = func.yielded(body).to_vec();
    let mut late = None;
    if flight.is_none() {
        let stays = |func: &Func, product| stages > 2 && flight::may_read_longer(func, body, product, found);
        late = late_waits::wait_late(func, place.id, room, "software_pipeline", &stays)?;
    }
    if late.as_ref().is_some_and(|late| !late.crossing.is_empty()) {
        flown = Flown::InFlight;
    }
    let yields = match late {
        Some(_) => func.yielded(body).to_vec(),
        None => yields,
    };
    let out = Vec::new();
    let owner = place.id;
    let mut emit = Emit { func, numbers, found, owner, span, out, stages, ahead, yields, advances: Vec::new(), late };
    emit.pipeline(place, body, flight.as_ref())?;
    Ok(flown)
}

/// An iteration that may not exist, and what its addresses depend on.
#[derive(Clone)]
struct Iteration {
    exists: ValueId,
    counter: ValueId,
    carried: Vec<ValueId>,
    /// Per candidate, its pointers, if they come from those of the iteration before.
    pointers: Vec<Option<ValueId>>,
}

/// What the copies of an iteration need.
struct Addresses {
    /// Per candidate, the pointers and the mask, or the coordinates.
    operands: Vec<Vec<ValueId>>,
    /// The carried values of the next iteration.
    carried: Vec<ValueId>,
}

/// What the loop runs over.
pub(super) struct Bounds {
    pub(super) lo: ValueId,
    pub(super) hi: ValueId,
    pub(super) step: ValueId,
    /// The step as an unsigned number.
    distance: ValueId,
    unsigned: DType,
}

/// Memory of the pipeline.
pub(super) struct Buffers {
    /// Per candidate, all slots.
    pub(super) slots: Vec<ValueId>,
    /// The barriers of tensor copies, one per slot.
    barrier: Option<ValueId>,
    phases: Option<Phases>,
}

/// Which phases of the barriers of tensor copies are over.
struct Phases {
    /// What the loop begins with.
    first: ValueId,
    /// Whether each slot has a bit of its own: where the loop is visited again, slots have seen different numbers of
    /// phases. Else all slots have the same, which changes when the first is read again.
    per_slot: bool,
    /// What the regions around the loop see.
    seen: Vec<ValueId>,
}

pub(super) struct Emit<'f> {
    pub(super) func: &'f mut Func,
    pub(super) numbers: Numbers<'f>,
    pub(super) found: &'f Found,
    /// The loop.
    pub(super) owner: OpId,
    pub(super) span: Span,
    /// Operations that were emitted and belong to no region yet.
    pub(super) out: Vec<OpId>,
    stages: u32,
    /// How many iterations the copies run ahead.
    ahead: u32,
    /// What the loop's body yields before the pass.
    pub(super) yields: Vec<ValueId>,
    /// Per candidate, what each iteration adds to its pointers, if they go on from iteration to iteration.
    advances: Vec<Option<ValueId>>,
    /// The waits of products, if they stand where something looks at their sums.
    late: Option<Applied>,
}

impl Emit<'_> {
    fn pipeline(&mut self, place: &LoopNest, body: RegionId, flight: Option<&Flight>) -> Result<()> {
        let bounds = self.bounds(place.id)?;
        self.advances = self.advances(body, &bounds)?;
        let buffers = self.allocate(place)?;
        let iteration = self.prologue(place.id, body, &bounds, &buffers)?;
        let only = self.only_product(body, flight);
        if only.is_some_and(|only| only.shows_next) {
            self.show((self.ahead - 1) as u8)?;
        }
        let args = self.carry(place.id, body, &iteration, &buffers)?;
        let before = std::mem::take(&mut self.out);

        self.body(body, &args, &bounds, &buffers, flight, only)?;

        self.epilogue(place.id, flight)?;
        if let Some(phases) = buffers.phases.as_ref().filter(|phases| phases.per_slot) {
            // The phases are the last that the loop carries.
            if let Some(&left) = self.func.op(place.id).results.last() {
                carry::leave(self.func, &place.around, &phases.seen, left);
            }
        }
        let after = std::mem::take(&mut self.out);
        splice(self.func, edit::Place::After(place.parent, place.id), after);
        splice(self.func, edit::Place::Before(place.parent, place.id), before);
        Ok(())
    }

    fn bounds(&mut self, id: OpId) -> Result<Bounds> {
        let operands = self.func.op(id).operands.clone();
        let (lo, hi, step) = (operands[0], operands[1], operands[2]);
        let unsigned = match self.func.ty(step).dtype() {
            Some(DType::I8 | DType::U8) => DType::U8,
            Some(DType::I16 | DType::U16) => DType::U16,
            Some(DType::I64 | DType::U64) => DType::U64,
            _ => DType::U32,
        };
        let distance = self.cursor().bitcast(step, unsigned)?;
        Ok(Bounds { lo, hi, step, distance, unsigned })
    }

    /// The slots and barriers.
    fn allocate(&mut self, place: &LoopNest) -> Result<Buffers> {
        let mut slots = Vec::new();
        for candidate in &self.found.candidates {
            let layout = self.func.intern(&candidate.layout);
            let dims = candidate.layout.tile_shape().into_iter().map(|size| Dim::Const(i64::from(size)));
            let shape: Vec<Dim> = [Dim::Const(i64::from(self.stages))].into_iter().chain(dims).collect();
            let alloc = GpuOp::SharedAlloc { shape, dtype: candidate.dtype.into() };
            slots.push(self.cursor().placed(alloc, &[], Some(layout))?);
        }
        if !self.found.candidates.iter().any(Candidate::is_tensor) {
            return Ok(Buffers { slots, barrier: None, phases: None });
        }
        // Barriers are made where the kernel begins.
        let here = std::mem::take(&mut self.out);
        let slots_of = GpuOp::MbarrierAlloc { slots: self.stages, count: 1 };
        let barrier = self.cursor().value(slots_of, &[])?;
        let zero = self.cursor().i32(0)?;
        let first = std::mem::replace(&mut self.out, here);
        let body = self.func.body;
        splice(self.func, edit::Place::Start(body), first);
        let per_slot = place.around.iter().any(|&site| carry::is_loop(self.func, site));
        let seen = if per_slot { carry::enter(self.func, &place.around, zero) } else { vec![zero] };
        let first = seen.last().copied().unwrap_or(zero);
        Ok(Buffers { slots, barrier: Some(barrier), phases: Some(Phases { first, per_slot, seen }) })
    }

    /// The copies of the first iterations; returns the one after them.
    fn prologue(&mut self, id: OpId, body: RegionId, bounds: &Bounds, buffers: &Buffers) -> Result<Iteration> {
        let operands = self.func.op(id).operands.clone();
        let (lo, hi, step) = (operands[0], operands[1], operands[2]);
        let mut exists = self.cursor().compare(CmpOp::Lt, lo, hi)?;
        if !matches!(constant(self.func, step), Some(Literal::Int(1..))) {
            let dtype = self.func.ty(step).dtype().unwrap_or(DType::I32);
            let mut cursor = self.cursor();
            let zero = cursor.constant(Literal::Int(0), dtype)?;
            let forward = cursor.compare(CmpOp::Gt, step, zero)?;
            exists = cursor.binary(BinaryOp::And, exists, forward)?;
        }
        let carried = self.found.carried.iter().map(|&position| operands[3 + position]).collect();
        let mut iteration =
            Iteration { exists, counter: lo, carried, pointers: vec![None; self.found.candidates.len()] };
        for slot in 0..self.ahead {
            let slot = self.cursor().i32(slot as i32)?;
            let addresses = self.addresses(body, &iteration)?;
            iteration = self.copies(&iteration, addresses, bounds, buffers, slot)?;
        }
        Ok(iteration)
    }

    /// Computes what the copies of an iteration need.
    fn addresses(&mut self, body: RegionId, iteration: &Iteration) -> Result<Addresses> {
        let found = self.found;
        let args = self.func.region(body).args.clone();
        let mut map: HashMap<ValueId, ValueId> = HashMap::new();
        map.insert(args[0], iteration.counter);
        for (&position, &value) in found.carried.iter().zip(&iteration.carried) {
            map.insert(args[1 + position], value);
        }
        let mut bounds = HashMap::new();
        for &op in &found.slice {
            let copy = clone_op(self.func, op, &mut map);
            self.restrict(copy, iteration.exists)?;
            if found.candidates.iter().any(|candidate| candidate.end == Some(op)) {
                self.end_with(copy, iteration.exists, &mut bounds)?;
            }
            self.out.push(copy);
        }
        let now = |value: &ValueId| map.get(value).copied().unwrap_or(*value);
        let mut operands = Vec::new();
        for (candidate, &pointer) in found.candidates.iter().zip(&iteration.pointers) {
            self.span = self.func.op(candidate.op).span;
            let mut of: Vec<ValueId> = candidate.address.iter().map(now).collect();
            if let Some(pointer) = pointer {
                of[0] = pointer;
            }
            if !candidate.is_tensor() && candidate.end.is_none() {
                let mask = self.mask(of[0], of.get(1).copied(), iteration.exists)?;
                of.truncate(1);
                of.push(mask);
            }
            operands.push(of);
        }
        let carried = found.carried.iter().map(|&position| now(&self.yields[position])).collect();
        Ok(Addresses { operands, carried })
    }

    /// Issues the copies of an iteration into a slot; returns the next iteration.
    fn copies(
        &mut self,
        iteration: &Iteration,
        addresses: Addresses,
        bounds: &Bounds,
        buffers: &Buffers,
        slot: ValueId,
    ) -> Result<Iteration> {
        let found = self.found;
        let mut tokens = Vec::new();
        let copied = found.candidates.iter().zip(&buffers.slots).zip(&addresses.operands);
        for ((candidate, &slots), operands) in copied.clone().filter(|((candidate, _), _)| !candidate.is_tensor()) {
            self.span = self.func.op(candidate.op).span;
            let view = self.slot(candidate, slots, slot)?;
            let operands: Vec<ValueId> = [view].iter().chain(operands).copied().collect();
            tokens.push(self.cursor().value(GpuOp::AsyncCopy, &operands)?);
        }
        if !tokens.is_empty() {
            self.cursor().value(GpuOp::AsyncCommit, &tokens)?;
        }
        let tensors: Vec<(&Candidate, ValueId, Vec<ValueId>)> = copied
            .filter(|((candidate, _), _)| candidate.is_tensor())
            .map(|((candidate, &slots), coordinates)| (candidate, slots, coordinates.clone()))
            .collect();
        if let Some(barrier) = buffers.barrier {
            self.tensor_copies(&tensors, barrier, slot, iteration.exists)?;
        }
        self.next(iteration, bounds, &addresses)
    }

    /// Tensor copies, which have no masks: they are left out where the iteration does not exist.
    fn tensor_copies(
        &mut self,
        tensors: &[(&Candidate, ValueId, Vec<ValueId>)],
        barrier: ValueId,
        slot: ValueId,
        exists: ValueId,
    ) -> Result<()> {
        let around = std::mem::take(&mut self.out);
        let bytes: u32 = tensors.iter().map(|(candidate, ..)| candidate.bytes()).sum();
        let mut cursor = self.cursor();
        let bytes = cursor.i32(bytes as i32)?;
        cursor.effect(GpuOp::MbarrierArrive, &[barrier, slot, bytes])?;
        for (candidate, slots, coordinates) in tensors {
            self.span = self.func.op(candidate.op).span;
            let view = self.slot(candidate, *slots, slot)?;
            let mut operands = vec![candidate.source, view, barrier, slot];
            operands.extend(coordinates);
            self.cursor().effect(GpuOp::TmaLoad, &operands)?;
        }
        let copies = std::mem::replace(&mut self.out, around);
        let mut cursor = self.cursor();
        let yes = cursor.region(|inner| {
            copies.iter().for_each(|&copy| inner.keep(copy));
            Ok(Vec::new())
        })?;
        let no = cursor.region(|_| Ok(Vec::new()))?;
        cursor.op(ControlOp::If, &[exists], &[yes, no]).map(|_| ())
    }

    /// The iteration after `iteration`: it exists if the counter can take another step and stay below the end.
    fn next(&mut self, iteration: &Iteration, bounds: &Bounds, addresses: &Addresses) -> Result<Iteration> {
        // Where the iteration exists the counter is below the end, so that their distance is exact as an unsigned
        // number.
        let mut cursor = self.cursor();
        let left = cursor.binary(BinaryOp::Sub, bounds.hi, iteration.counter)?;
        let left = cursor.bitcast(left, bounds.unsigned)?;
        let more = cursor.compare(CmpOp::Gt, left, bounds.distance)?;
        let exists = cursor.binary(BinaryOp::And, iteration.exists, more)?;
        let counter = cursor.binary(BinaryOp::Add, iteration.counter, bounds.step)?;
        let mut pointers = Vec::new();
        for (by, operands) in self.advances.clone().into_iter().zip(&addresses.operands) {
            pointers.push(by.map(|by| self.advanced(operands[0], by)).transpose()?);
        }
        Ok(Iteration { exists, counter, carried: addresses.carried.clone(), pointers })
    }
}

/// The one product of a loop, which is waited for in its iteration.
#[derive(Clone, Copy)]
struct Only {
    product: OpId,
    /// Whether its iteration waits for what the next one reads, and shows it to the product there: while this one runs, as
    /// nothing runs between them.
    shows_next: bool,
}

/// What the loop carries for the pipeline.
pub(super) struct Args {
    iteration: Iteration,
    /// The slot that is read, and the one that is written.
    pub(super) read: ValueId,
    write: ValueId,
    /// The phase of the barriers.
    phase: Option<ValueId>,
}

impl Emit<'_> {
    /// Makes the loop carry the iteration ahead, the slots and the phase.
    fn carry(&mut self, id: OpId, body: RegionId, iteration: &Iteration, buffers: &Buffers) -> Result<Args> {
        let write = (self.ahead % self.stages) as i32;
        let (zero, write) = (self.cursor().i32(0)?, self.cursor().i32(write)?);
        let mut inits = vec![iteration.exists, iteration.counter];
        inits.extend(&iteration.carried);
        inits.extend(iteration.pointers.iter().flatten());
        inits.extend([zero, write]);
        inits.extend(buffers.phases.as_ref().map(|phases| phases.first));
        let first = self.func.op(id).results.len();
        let mut all = Vec::new();
        for (index, &init) in inits.iter().enumerate() {
            let (ty, layout) = (self.func.ty(init).clone(), self.func.value(init).layout);
            let arg = self.func.add_region_arg(body, ty.clone());
            let result = self.func.new_value(ty, Def::Result(id, (first + index) as u32));
            for value in [arg, result] {
                self.func.values[value.index()].layout = layout;
            }
            let operation = &mut self.func.ops[id.index()];
            operation.operands.push(init);
            operation.results.push(result);
            all.push(arg);
        }
        let mut all = all.into_iter();
        let mut next = || all.next().unwrap_or(zero);
        let (exists, counter) = (next(), next());
        let carried = iteration.carried.iter().map(|_| next()).collect();
        let pointers = iteration.pointers.iter().map(|pointer| pointer.map(|_| next())).collect();
        let ahead = Iteration { exists, counter, carried, pointers };
        Ok(Args { iteration: ahead, read: next(), write: next(), phase: buffers.phases.as_ref().map(|_| next()) })
    }

    fn body(
        &mut self,
        body: RegionId,
        args: &Args,
        bounds: &Bounds,
        buffers: &Buffers,
        flight: Option<&Flight>,
        only: Option<Only>,
    ) -> Result<()> {
        let around = std::mem::take(&mut self.out);
        let found = self.found;
        self.span = found.candidates.first().map_or(self.span, |candidate| self.func.op(candidate.op).span);
        let copies = found.candidates.iter().any(|candidate| !candidate.is_tensor());
        let shares = self.shares();
        let is_shown = only.is_some_and(|only| only.shows_next);
        let feeds_products = self.feeds_products(body);
        let mut old = std::mem::take(&mut self.func.regions[body.index()].ops);
        let Some(end) = old.pop() else { return Ok(()) };
        if copies && !is_shown {
            let pending = self.ahead as u8 - 1;
            self.cursor().value(GpuOp::AsyncWait { pending }, &[])?;
        }
        if let (Some(barrier), Some(phases), Some(mut phase)) = (buffers.barrier, &buffers.phases, args.phase) {
            if phases.per_slot {
                let mut cursor = self.cursor();
                phase = cursor.binary(BinaryOp::Shr, phase, args.read)?;
                let one = cursor.i32(1)?;
                phase = cursor.binary(BinaryOp::And, phase, one)?;
            }
            self.cursor().effect(GpuOp::MbarrierWait, &[barrier, args.read, phase])?;
        }
        if shares {
            if feeds_products && !is_shown {
                // `cp.async` writes through the generic proxy, as stores do, and products read through the
                // asynchronous one: whoever copied shows it to them, before the barrier. The fence costs nothing that
                // can be measured there (products of 2048^3 and 8192^3 within 0.1 % on an H100).
                self.cursor().effect(GpuOp::Fence { kind: FenceKind::ProxyAsync }, &[])?;
            }
            self.cursor().effect(GpuOp::Barrier, &[])?;
        }
        let gone = self.replace_loads(&old, end, args, buffers, flight)?;
        // Ahead of the products, so that ptxas can put the arithmetic between them.
        let mut addresses = Some(self.addresses(body, &args.iteration)?);
        let carried = self.late.as_ref().and_then(|late| late.carried);
        let mut next = None;
        let mut issue = |this: &mut Self| -> Result<Option<Iteration>> {
            // The slot that is written was read in the iteration before: by everybody who has not come to a barrier
            // since. The one for shared copies will do, but not while products still read.
            if flight.is_some() || carried.is_some() || (!shares && buffers.barrier.is_some()) {
                this.cursor().effect(GpuOp::Barrier, &[])?;
            }
            let copies = |addresses| this.copies(&args.iteration, addresses, bounds, buffers, args.write);
            addresses.take().map(copies).transpose()
        };
        if flight.is_none() && carried.is_none() && only.is_none() {
            next = issue(self)?;
        }
        for id in old {
            if !gone.contains(&id) {
                self.out.push(id);
            }
            if let Some(flight) = flight.filter(|flight| flight.last == id) {
                self.wait_for_others(end, flight)?;
                next = issue(self)?;
            }
            if carried == Some(id) {
                next = issue(self)?;
            }
            if only.is_some_and(|only| only.product == id) {
                // Ahead of the copies: the fence waits for all that its threads have on their way, whatever the wait
                // leaves. Behind them it costs an eighth of the time of products with scales by blocks (1.09 and 1.23 ms
                // for FP8 of 8192^3 on an H100).
                if is_shown {
                    self.show((self.ahead - 2) as u8)?;
                }
                next = issue(self)?;
            }
        }
        if let Some(next) = next {
            let per_slot = buffers.phases.as_ref().is_some_and(|phases| phases.per_slot);
            self.advance(end, args, &next, per_slot)?;
        }
        self.out.push(end);
        self.func.regions[body.index()].ops = std::mem::replace(&mut self.out, around);
        Ok(())
    }

    /// Whether threads read what others have copied.
    fn shares(&self) -> bool {
        self.found.candidates.iter().any(|candidate| !candidate.is_tensor() && candidate.crosses_threads)
    }

    /// The one product of the loop, while which copies are made.
    fn only_product(&self, body: RegionId, flight: Option<&Flight>) -> Option<Only> {
        let carried = self.late.as_ref().and_then(|late| late.carried);
        if self.stages <= 2 || flight.is_some() || carried.is_some() {
            return None;
        }
        let product = flight::only_product(self.func, &self.func.region(body).ops, self.found)?;
        Some(Only { product, shows_next: self.shares() && self.feeds_products(body) })
    }

    /// Waits for all copies but the last ones, and shows them to products.
    fn show(&mut self, pending: u8) -> Result<()> {
        let mut cursor = self.cursor();
        cursor.value(GpuOp::AsyncWait { pending }, &[])?;
        cursor.effect(GpuOp::Fence { kind: FenceKind::ProxyAsync }, &[])?;
        Ok(())
    }

    /// Waits for the products of the iteration before; those of this one stay in flight.
    fn wait_for_others(&mut self, end: OpId, flight: &Flight) -> Result<()> {
        let tiles: Vec<ValueId> = flight.chains.iter().map(|&(_, value)| value).collect();
        let waited = self.wait(&tiles, flight.count)?;
        for (&(position, _), value) in flight.chains.iter().zip(waited) {
            self.func.ops[end.index()].operands[position] = value;
        }
        Ok(())
    }

    fn wait(&mut self, tiles: &[ValueId], pending: u8) -> Result<Vec<ValueId>> {
        let id = self.cursor().op(GpuOp::WgmmaWait { pending }, tiles, &[])?;
        let waited = self.func.op(id).results.clone();
        for (&from, &to) in tiles.iter().zip(&waited) {
            self.func.values[to.index()].layout = self.func.value(from).layout;
        }
        Ok(waited)
    }

    /// Yields the iteration after next, the next slots and the phase.
    fn advance(&mut self, end: OpId, args: &Args, next: &Iteration, per_slot: bool) -> Result<()> {
        let (read, wraps) = self.next_slot(args.read)?;
        let (write, _) = self.next_slot(args.write)?;
        let mut cursor = self.cursor();
        let mut flip = |phase| -> Result<ValueId> {
            let one = cursor.i32(1)?;
            let bit = if per_slot { cursor.binary(BinaryOp::Shl, one, args.read)? } else { one };
            let flipped = cursor.binary(BinaryOp::Xor, phase, bit)?;
            if per_slot { Ok(flipped) } else { cursor.select(wraps, flipped, phase) }
        };
        let phase = args.phase.map(&mut flip).transpose()?;
        let mut yields = vec![next.exists, next.counter];
        yields.extend(&next.carried);
        yields.extend(next.pointers.iter().flatten());
        yields.extend([read, write]);
        yields.extend(phase);
        self.func.ops[end.index()].operands.extend(yields);
        Ok(())
    }

    /// The slot after `slot`, and whether that is the first one.
    fn next_slot(&mut self, slot: ValueId) -> Result<(ValueId, ValueId)> {
        let stages = self.stages as i32;
        let mut cursor = self.cursor();
        let (zero, one, count) = (cursor.i32(0)?, cursor.i32(1)?, cursor.i32(stages)?);
        let next = cursor.binary(BinaryOp::Add, slot, one)?;
        let wraps = cursor.compare(CmpOp::Eq, next, count)?;
        Ok((cursor.select(wraps, zero, next)?, wraps))
    }

    /// Behind the loop nothing is in flight.
    fn epilogue(&mut self, id: OpId, flight: Option<&Flight>) -> Result<()> {
        self.span = self.func.op(id).span;
        let mut positions: Vec<usize> = self.late.iter().flat_map(|late| late.crossing.clone()).collect();
        positions.extend(flight.iter().flat_map(|flight| &flight.chains).map(|&(position, _)| position));
        if !positions.is_empty() {
            let results: Vec<ValueId> = positions.iter().map(|&position| self.func.op(id).results[position]).collect();
            let waited = self.wait(&results, 0)?;
            let wait = self.out.last().copied();
            for (&from, &to) in results.iter().zip(&waited) {
                replace_all_uses(self.func, from, to);
            }
            if let Some(wait) = wait {
                self.func.ops[wait.index()].operands = results;
            }
        }
        // Copies of iterations that do not exist still write zeros.
        if self.found.candidates.iter().any(|candidate| !candidate.is_tensor()) {
            self.cursor().value(GpuOp::AsyncWait { pending: 0 }, &[])?;
        }
        Ok(())
    }
}
