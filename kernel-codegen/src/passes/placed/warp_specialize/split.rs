//! Writes the kernel twice: for the warps that multiply, and for the one thread that fetches.
//!
//! Each loop that is fed has a ring of slots in shared memory. Both sides go through it on their own, with a slot
//! number and the parity of the round ("phase"), which all control flow around the loop carries on: a tile begins
//! where the one before it ended.

use std::collections::{BTreeMap, HashMap};

use kernel_core::edit::{Cursor, Result, clone_op};
use kernel_core::ir::{
    BinaryOp, CmpOp, ControlOp, DType, Func, GpuOp, Op, OpId, Operation, RegionId, Span, Unroll, ValueId,
};

use super::PASS;
use super::find::{Copy, FedLoop};
use super::held::Held;
use super::needs::Needs;
use super::outgoing::Way;
use super::ping_pong::Tiles;
use super::prologue::is_assert;
use crate::analysis::control::operands_before_carried;

/// What both sides share: the slots of a loop and who may use them.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    /// Shared memory, per block of the loop.
    pub(super) slots: Vec<ValueId>,
    /// Per part of a slot: it is full when its bytes have arrived.
    pub(super) full: Vec<ValueId>,
    /// Per part of a slot: it is empty when it has been read. One slot more that nobody waits for takes the first release of each tile,
    /// which has nothing to release.
    pub(super) empty: Vec<ValueId>,
}

/// Which side is being written.
pub(super) enum Side<'n> {
    /// The warps that do everything but fetch.
    Consumer,
    /// The thread that fetches; it does only what is needed for that.
    Producer(&'n Needs),
}

/// What a group that takes turns knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) tiles: Tiles,
    /// A barrier per group, which the other arrives at when it has fetched its last factors, and where the order of what
    /// follows matters one more, for when that is over.
    pub(super) barriers: ValueId,
    /// The number of the group.
    pub(super) own: i32,
    /// The phase of both that it waits for, in a tile.
    pub(super) phase: Option<ValueId>,
}

/// Where a side is in a ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) slot: ValueId,
    pub(super) phase: ValueId,
}

/// Copies the operations of the kernel's body into regions.
pub(super) struct Split<'f> {
    pub(super) func: &'f mut Func,
    pub(super) fed_loops: &'f [FedLoop],
    pub(super) held: &'f [Held],
    pub(super) rings: &'f [Ring],
    /// Per operation of control flow, the rings of the fed loops in it.
    pub(super) inside: &'f BTreeMap<OpId, Vec<usize>>,
    /// Per store of a block, how it gets out.
    pub(super) outgoing: &'f BTreeMap<OpId, Way>,
    pub(super) side: Side<'f>,
    /// What a group knows that takes turns with another.
    pub(super) turn: Option<Turn>,
    /// Per loop, what is computed behind it instead of before.
    pub(super) late: BTreeMap<OpId, Vec<OpId>>,
    pub(super) map: HashMap<ValueId, ValueId>,
    pub(super) positions: Vec<Position>,
    pub(super) out: Vec<OpId>,
}

impl<'f> Split<'f> {
    pub(super) fn new(
        func: &'f mut Func,
        (fed_loops, held): (&'f [FedLoop], &'f [Held]),
        rings: &'f [Ring],
        inside: &'f BTreeMap<OpId, Vec<usize>>,
        outgoing: &'f BTreeMap<OpId, Way>,
        side: Side<'f>,
    ) -> Split<'f> {
        let (late, map, positions, out) = (BTreeMap::new(), HashMap::new(), Vec::new(), Vec::new());
        Split { func, fed_loops, held, rings, inside, outgoing, side, turn: None, late, map, positions, out }
    }

    /// A region with one side of the kernel, without arguments and results.
    pub(super) fn region(mut self) -> Result<RegionId> {
        // On a fresh barrier the phase before the first counts as complete: all slots are empty.
        let first_phase = i32::from(matches!(self.side, Side::Producer(_)));
        for _ in self.rings {
            let slot = self.number(0)?;
            let phase = self.number(first_phase)?;
            self.positions.push(Position { slot, phase });
        }
        self.block(self.func.body)?;
        if matches!(self.side, Side::Consumer) && !self.outgoing.is_empty() {
            // Shared memory lasts until the last copy out of it has read it.
            self.cursor(Span::UNKNOWN).effect(GpuOp::TmaStoreWait { pending: 0 }, &[])?;
        }
        self.yielding(&[])
    }

    /// Appends operations to what is being written, for a line of the source.
    pub(super) fn cursor(&mut self, span: Span) -> Cursor<'_> {
        Cursor::new(&mut *self.func, &mut self.out, PASS).at(span)
    }

    /// A number that comes from no line.
    pub(super) fn number(&mut self, value: i32) -> Result<ValueId> {
        self.cursor(Span::UNKNOWN).i32(value)
    }

    pub(super) fn mapped(&self, value: ValueId) -> ValueId {
        self.map.get(&value).copied().unwrap_or(value)
    }

    /// Assertions have been made before.
    fn is_needed(&self, id: OpId) -> bool {
        match self.side {
            Side::Consumer => !is_assert(&self.func.op(id).op),
            Side::Producer(needs) => needs.ops.contains(&id),
        }
    }

    /// Whether this side carries a value through control flow.
    fn carries(&self, value: ValueId) -> bool {
        match self.side {
            Side::Consumer => true,
            Side::Producer(needs) => needs.values.contains(&value),
        }
    }

    /// The operations of a block but its terminator.
    pub(super) fn block(&mut self, region: RegionId) -> Result<()> {
        self.put_off(region);
        for id in self.func.region(region).ops.clone() {
            let is_late = self.late.values().flatten().any(|late| *late == id);
            let written = match self.side {
                Side::Consumer => self.consume_held(id)?,
                Side::Producer(_) => self.produce_held(id)?,
            };
            if written || self.func.op(id).op.is_terminator() || !self.is_needed(id) || is_late {
                continue;
            }
            self.begin_in_order(id)?;
            self.operation(id)?;
            if matches!(self.side, Side::Consumer) {
                self.release_held(id)?;
            }
        }
        Ok(())
    }

    pub(super) fn operation(&mut self, id: OpId) -> Result<()> {
        let operation = self.func.op(id);
        let mut control = None;
        if let Op::Control(op) = &operation.op
            && operation.op.is_loop_or_branch()
        {
            control = Some(op.clone());
        }
        match control {
            Some(op) => self.control(id, &op),
            None if self.outgoing.contains_key(&id) => self.send(id),
            None => {
                let copy = clone_op(self.func, id, &mut self.map);
                self.out.push(copy);
                Ok(())
            }
        }
    }

    fn control(&mut self, id: OpId, op: &ControlOp) -> Result<()> {
        if let Some(number) = self.fed_loops.iter().position(|fed| fed.owner == id) {
            return match self.side {
                Side::Consumer => self.consume(number),
                Side::Producer(_) => self.produce(number),
            };
        }
        if let Some(turn) = self.turn.filter(|turn| turn.tiles.around == id) {
            return self.take_turns(turn);
        }
        let inside = self.inside.get(&id).cloned().unwrap_or_default();
        let operation = self.func.op(id).clone();
        let before = operands_before_carried(op);
        let kept: Vec<usize> = (0..operation.results.len()).filter(|&i| self.carries(operation.results[i])).collect();
        let mut operands: Vec<ValueId> = operation.operands[..before].iter().map(|&v| self.mapped(v)).collect();
        let is_loop = !matches!(op, ControlOp::If);
        if is_loop {
            operands.extend(kept.iter().map(|&index| self.mapped(operation.operands[before + index])));
            operands.extend(self.state(&inside));
        }
        let around = self.positions.clone();
        let mut regions = Vec::new();
        for (number, &region) in operation.regions.iter().enumerate() {
            self.positions.clone_from(&around);
            let is_test = matches!(op, ControlOp::While) && number == 0;
            regions.push(self.nested(region, op, &kept, &inside, is_test)?);
        }
        self.positions = around;
        let op = if inside.is_empty() { op.clone() } else { quiet(op) };
        self.finish(&operation, op, operands, regions, &kept, &inside)
    }

    /// A region of control flow, with the positions in the rings behind what it carries and yields.
    fn nested(
        &mut self,
        region: RegionId,
        op: &ControlOp,
        kept: &[usize],
        inside: &[usize],
        is_test: bool,
    ) -> Result<RegionId> {
        let copy = self.func.new_region([]);
        let first = usize::from(matches!(op, ControlOp::For { .. }));
        let args = self.func.region(region).args.clone();
        if !matches!(op, ControlOp::If) {
            let named = args[..first].iter().chain(kept.iter().map(|&index| &args[first + index]));
            for &arg in named.collect::<Vec<_>>() {
                self.argument(copy, arg);
            }
            for &ring in inside {
                self.positions[ring] = self.position_argument(copy, ring);
            }
        }
        let outer = std::mem::take(&mut self.out);
        self.block(region)?;
        let yields = self.func.yielded(region).to_vec();
        let mut values: Vec<ValueId>;
        if is_test {
            values = yields.iter().map(|&value| self.mapped(value)).collect();
        } else {
            values = kept.iter().map(|&index| self.mapped(yields[index])).collect();
            values.extend(self.state(inside));
        }
        self.cursor(Span::UNKNOWN).op(ControlOp::Yield, &values, &[])?;
        self.func.regions[copy.index()].ops = std::mem::replace(&mut self.out, outer);
        Ok(copy)
    }

    pub(super) fn argument(&mut self, region: RegionId, like: ValueId) -> ValueId {
        let value = self.func.add_region_arg(region, self.func.ty(like).clone());
        self.func.values[value.index()].layout = self.func.value(like).layout;
        self.map.insert(like, value);
        value
    }

    pub(super) fn position_argument(&mut self, region: RegionId, ring: usize) -> Position {
        let ty = self.func.ty(self.positions[ring].slot).clone();
        let slot = self.func.add_region_arg(region, ty.clone());
        let phase = self.func.add_region_arg(region, ty);
        Position { slot, phase }
    }

    pub(super) fn state(&self, inside: &[usize]) -> Vec<ValueId> {
        inside.iter().flat_map(|&ring| [self.positions[ring].slot, self.positions[ring].phase]).collect()
    }

    /// The operation with its new regions; names its results.
    pub(super) fn finish(
        &mut self,
        original: &Operation,
        op: ControlOp,
        operands: Vec<ValueId>,
        regions: Vec<RegionId>,
        kept: &[usize],
        inside: &[usize],
    ) -> Result<()> {
        let mut cursor = self.cursor(original.span).flags(original.flags);
        let id = cursor.op(op, &operands, &regions)?;
        let results = self.func.op(id).results.clone();
        for (&index, &result) in kept.iter().zip(&results) {
            let old = original.results[index];
            self.func.values[result.index()].layout = self.func.value(old).layout;
            self.map.insert(old, result);
        }
        for (&ring, pair) in inside.iter().zip(results[kept.len()..].chunks(2)) {
            self.positions[ring] = Position { slot: pair[0], phase: pair[1] };
        }
        Ok(())
    }

    /// The slot after this one; the phase turns over with the last.
    pub(super) fn advance(&mut self, at: Position, stages: u32) -> Result<Position> {
        let mut cursor = self.cursor(Span::UNKNOWN);
        let (one, zero, count) = (cursor.i32(1)?, cursor.i32(0)?, cursor.i32(stages as i32)?);
        let next = cursor.binary(BinaryOp::Add, at.slot, one)?;
        let wraps = cursor.compare(CmpOp::Eq, next, count)?;
        let slot = cursor.select(wraps, zero, next)?;
        let turn = cursor.cast(wraps, DType::I32)?;
        let phase = cursor.binary(BinaryOp::Xor, at.phase, turn)?;
        Ok(Position { slot, phase })
    }

    /// A loop that fetches: waits for a slot, says how much will come, and asks for it.
    fn produce(&mut self, number: usize) -> Result<()> {
        let (fed, ring) = (self.fed_loops[number].clone(), self.ring_of(number));
        let operation = self.func.op(fed.owner).clone();
        let Op::Control(op) = &operation.op else { return Ok(()) };
        let kept: Vec<usize> = (0..operation.results.len()).filter(|&i| self.carries(operation.results[i])).collect();
        let mut operands: Vec<ValueId> = operation.operands[..3].iter().map(|&v| self.mapped(v)).collect();
        operands.extend(kept.iter().map(|&index| self.mapped(operation.operands[3 + index])));
        operands.extend(self.state(&[fed.ring]));
        let body = operation.regions[0];
        let copy = self.func.new_region([]);
        let args = self.func.region(body).args.clone();
        self.argument(copy, args[0]);
        for &index in &kept {
            self.argument(copy, args[1 + index]);
        }
        let at = self.position_argument(copy, fed.ring);
        let outer = std::mem::take(&mut self.out);
        self.block(body)?;
        let span = operation.span;
        for (part, (&full, &empty)) in ring.full.iter().zip(&ring.empty).enumerate() {
            let copies = || fed.blocks().zip(&ring.slots).filter(|(copy, _)| copy.part == part);
            self.cursor(span).effect(GpuOp::MbarrierWait, &[empty, at.slot, at.phase])?;
            let bytes = self.number(copies().map(|(copy, _)| copy.bytes as i32).sum())?;
            self.cursor(span).effect(GpuOp::MbarrierArrive, &[full, at.slot, bytes])?;
            for (copy, &slots) in copies() {
                self.fetch(copy, slots, full, at)?;
            }
        }
        let next = self.advance(at, fed.stages)?;
        let yields = self.func.yielded(body).to_vec();
        let mut values: Vec<ValueId> = kept.iter().map(|&index| self.mapped(yields[index])).collect();
        values.extend([next.slot, next.phase]);
        self.cursor(Span::UNKNOWN).op(ControlOp::Yield, &values, &[])?;
        self.func.regions[copy.index()].ops = std::mem::replace(&mut self.out, outer);
        self.finish(&operation, quiet(op), operands, vec![copy], &kept, &[fed.ring])
    }

    /// Asks for a block, into a slot.
    pub(super) fn fetch(&mut self, copy: &Copy, slots: ValueId, full: ValueId, at: Position) -> Result<()> {
        let load = self.func.op(copy.load).clone();
        let view = self.slot(slots, at.slot, load.span)?;
        let mut operands = vec![load.operands[0], view, full, at.slot];
        operands.extend(load.operands[1..].iter().map(|&coordinate| self.mapped(coordinate)));
        self.cursor(load.span).effect(GpuOp::TmaLoad, &operands).map(|_| ())
    }

    /// The ring of a fed loop.
    pub(super) fn ring_of(&self, number: usize) -> Ring {
        self.rings[self.fed_loops[number].ring].clone()
    }

    /// The view of a slot, in the layout of the block.
    pub(super) fn slot(&mut self, slots: ValueId, slot: ValueId, span: Span) -> Result<ValueId> {
        let layout = self.func.value(slots).layout;
        self.cursor(span).placed(GpuOp::SharedIndex, &[slots, slot], layout)
    }
}

/// The same control flow, with the wishes about it that have been met taken away.
pub(super) fn quiet(op: &ControlOp) -> ControlOp {
    match op {
        ControlOp::For { reverse, runs, no_wrap, .. } => {
            let (reverse, runs, no_wrap) = (*reverse, *runs, *no_wrap);
            ControlOp::For {
                reverse,
                unroll: Unroll::Never,
                counter: None,
                stages: 1,
                warp_specialize: false,
                runs,
                no_wrap,
                unroll_by: None,
                stages_by: None,
            }
        }
        other => other.clone(),
    }
}
