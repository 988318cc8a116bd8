//! Ping-pong: two groups of four warps that take tiles in turns, one in its epilogue while the other multiplies.
//!
//! ```text
//! for tile in ..                           each group goes through all tiles, and
//!   if it is its turn {
//!     wait until the other has fetched its last factors
//!     for k in ..                          multiplies every second one as a whole
//!     tell the other
//!     wait until the other has stored its last tile       where the order matters
//!     store, and tell the other
//!   } else { go on by as many slots as the other takes }
//! ```
//!
//! While one group stores a tile, the other has the tensor cores for itself. That hides all that there is between two
//! tiles, for tiles that four warps can hold: 128 x 128 sums in f32.
//!
//! The wait is needed for more than the order: a barrier with phases tells its last phase from the one before and
//! from nothing older, so nobody may wait for a slot that still is a round behind. Once the other has seen all its
//! slots full, none is.
//!
//! A kernel qualifies if its body is one loop over tiles around one loop of products with bounds that are the same for all
//! tiles. Until their products are over, tiles do not depend on each other; behind them, what is read and written through
//! pointers is so tile by tile. Tensor copies that write have no order among tiles.

use kernel_core::edit::{Result, walk_region};
use kernel_core::ir::{
    BinaryOp, CmpOp, ControlOp, Cost, DType, Func, GpuOp, Literal, Op, OpId, ParamKind, RegionId, Span, Ty, ValueId,
    view,
};
use kernel_core::target::GROUP_WARPS;

use super::find::FedLoop;
use super::outgoing::Outgoing;
use super::scratch::Scratch;
use super::split::{Position, Split, Turn, quiet};

/// Groups that take turns.
pub(super) const GROUPS: u32 = 2;

/// The tiles of a kernel that two groups may take in turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    /// The loop over them.
    pub(super) around: OpId,
    /// The first operation behind the products whose order among tiles matters.
    pub(super) in_order: Option<OpId>,
}

impl Tiles {
    /// Barriers by which the groups tell each other.
    pub(super) fn barriers(tiles: Option<Tiles>) -> u32 {
        tiles.map_or(0, |tiles| if tiles.in_order.is_some() { 2 * GROUPS } else { GROUPS })
    }
}

/// The tiles that two groups may take in turns, if this is such a kernel.
pub(super) fn tile_loop(
    func: &Func,
    fed_loops: &[FedLoop],
    outgoing: &[Outgoing],
    scratch: Scratch,
    num_warps: u32,
) -> Option<Tiles> {
    let [fed] = fed_loops else { return None };
    if num_warps != GROUP_WARPS || !scratch.is_empty() {
        return None;
    }
    // A mark on the loop of products alone asks for what it says: that warps fetch.
    let holds = |id: &&OpId| {
        let operation = func.op(**id);
        let Op::Control(ControlOp::For { warp_specialize, .. }) = operation.op else { return false };
        (warp_specialize || !fed.requested) && func.region(operation.regions[0]).ops.contains(&fed.owner)
    };
    let around = func.region(func.body).ops.iter().find(holds).copied()?;
    let operation = func.op(around);
    let body = func.region(operation.regions[0]);
    let carries = operation.operands.len() > 3;
    let bounds = &func.op(fed.owner).operands[..3];
    let mut inside = body.args.clone();
    walk_region(func, operation.regions[0], &mut |id| inside.extend(&func.op(id).results));
    let is_fixed = |bound: &ValueId| !inside.contains(bound) && *func.ty(*bound) == Ty::scalar(DType::I32);
    let mut ops = body.ops.iter();
    let mut apart = ops.by_ref().take_while(|id| **id != fed.owner).all(|&id| is_apart(func, id, outgoing));
    let in_order = ops.find(|id| !is_apart(func, **id, outgoing)).copied();
    apart &= in_order.is_none_or(|id| is_by_pointers(func, id));
    apart &= ops.all(|&id| is_by_pointers(func, id) || is_apart(func, id, outgoing));
    let alone = func.region(func.body).ops.iter().all(|&id| id == around || is_apart(func, id, &[]));
    let fits = bounds.iter().all(is_fixed) && !carries && apart && alone;
    (fits && computes_only(func, fed)).then_some(Tiles { around, in_order })
}

/// Whether an operation reads or writes memory through pointers.
fn is_by_pointers(func: &Func, id: OpId) -> bool {
    view::Load::of(func.op(id)).is_some() || view::Store::of(func.op(id)).is_some()
}

/// Whether an operation beside the products may happen in any order with those of other tiles, without other warps.
fn is_apart(func: &Func, id: OpId, outgoing: &[Outgoing]) -> bool {
    let operation = func.op(id);
    if let Some(load) = view::Load::of(operation) {
        let buffer = func.ty(load.pointer).pointee().map(|param| &func.param(param).kind);
        return matches!(buffer, Some(ParamKind::Ptr { mutable: false, .. }));
    }
    // What goes from thread to thread does so within a warp, as there is no shared memory for it.
    let is_within = operation.op.cost() == Cost::Exchange
        && (operation.op.is_function() || matches!(operation.op, Op::Control(ControlOp::Reduce { .. })));
    let all = |&region: &RegionId| func.region(region).ops.iter().all(|&id| is_apart(func, id, &[]));
    let is_function = operation.op.is_arithmetic() || (is_within && operation.regions.iter().all(all));
    is_function || operation.op.is_terminator() || outgoing.iter().any(|one| one.store == id)
}

/// Whether a loop does nothing but load, compute and multiply.
fn computes_only(func: &Func, fed: &FedLoop) -> bool {
    let region = func.op(fed.owner).regions[0];
    func.region(region).ops.iter().all(|&id| {
        let Op::Gpu(op) = &func.op(id).op else {
            return is_apart(func, id, &[]) || fed.copies.iter().any(|copy| copy.load == id);
        };
        match op {
            GpuOp::SharedStore => fed.stores.contains(&id),
            op => !matches!(op, GpuOp::AsyncCopy | GpuOp::TmaStore { .. } | GpuOp::SharedLoad),
        }
    })
}

impl Split<'_> {
    /// The loop over tiles of a group that takes turns.
    pub(super) fn take_turns(&mut self, turn: Turn) -> Result<()> {
        let operation = self.func.op(turn.tiles.around).clone();
        let (Op::Control(op), body) = (&operation.op, operation.regions[0]) else { return Ok(()) };
        let ahead = self.ahead()?;
        let mut operands: Vec<ValueId> = operation.operands[..3].iter().map(|&bound| self.mapped(bound)).collect();
        operands.extend(self.state(&[0]));
        // Whose turn it is, and the phase to wait for. On a fresh barrier the one before the first counts as complete.
        operands.push(self.number(0)?);
        operands.push(self.number(i32::from(turn.own == 0))?);
        let copy = self.func.new_region([]);
        self.argument(copy, self.func.region(body).args[0]);
        self.positions[0] = self.position_argument(copy, 0);
        let whose = self.func.add_region_arg(copy, Ty::scalar(DType::I32));
        let phase = self.func.add_region_arg(copy, Ty::scalar(DType::I32));
        let around = std::mem::take(&mut self.out);

        let (own, one) = (self.number(turn.own)?, self.number(1)?);
        let is_own = self.cursor(operation.span).value(Op::compare(CmpOp::Eq), &[whose, own])?;
        let next = self.cursor(operation.span).value(Op::binary(BinaryOp::Xor), &[whose, one])?;
        let outer = std::mem::take(&mut self.out);
        let begin = self.positions[0];
        self.cursor(operation.span).effect(GpuOp::MbarrierWait, &[turn.barriers, own, phase])?;
        // One thread tells the other group for all four warps, so they have to be here together: one that still waits
        // for this phase when the next one is complete would wait for ever.
        self.cursor(operation.span).effect(GpuOp::WarpgroupBarrier, &[])?;
        self.turn = Some(Turn { phase: Some(phase), ..turn });
        self.block(body)?;
        self.end_in_order(turn)?;
        let turned = self.cursor(operation.span).value(Op::binary(BinaryOp::Xor), &[phase, one])?;
        let values: Vec<ValueId> = self.state(&[0]).into_iter().chain([turned]).collect();
        let mine = self.yielding(&values)?;
        let Position { slot, phase: round } = self.further(begin, ahead)?;
        let others = self.yielding(&[slot, round, phase])?;
        self.out = outer;
        let branch = self.cursor(operation.span).op(ControlOp::If, &[is_own], &[mine, others])?;
        let results = self.func.op(branch).results.clone();
        let values = [results[0], results[1], next, results[2]];
        self.cursor(Span::UNKNOWN).op(ControlOp::Yield, &values, &[])?;
        self.func.regions[copy.index()].ops = std::mem::replace(&mut self.out, around);

        let tiles = self.cursor(operation.span).op(quiet(op), &operands, &[copy])?;
        let results = self.func.op(tiles).results.clone();
        self.positions[0] = Position { slot: results[0], phase: results[1] };
        Ok(())
    }

    /// Lets the other group begin: all slots of this one's tile have been full.
    pub(super) fn pass_turn(&mut self) -> Result<()> {
        let Some(turn) = self.turn else { return Ok(()) };
        let other = self.number(1 - turn.own)?;
        self.cursor(Span::UNKNOWN).effect(GpuOp::MbarrierArrive, &[turn.barriers, other]).map(|_| ())
    }

    /// Before an operation whose order among tiles matters: all of the other group's last tile has happened.
    pub(super) fn begin_in_order(&mut self, id: OpId) -> Result<()> {
        let Some(Turn { tiles, barriers, own, phase: Some(phase) }) = self.turn else { return Ok(()) };
        if tiles.in_order != Some(id) {
            return Ok(());
        }
        let own = self.number(GROUPS as i32 + own)?;
        self.cursor(Span::UNKNOWN).effect(GpuOp::MbarrierWait, &[barriers, own, phase]).map(|_| ())
    }

    /// Tells the other group that all four warps have written.
    fn end_in_order(&mut self, turn: Turn) -> Result<()> {
        if turn.tiles.in_order.is_none() {
            return Ok(());
        }
        self.cursor(Span::UNKNOWN).effect(GpuOp::WarpgroupBarrier, &[])?;
        let told = [turn.barriers, self.number(GROUPS as i32 + 1 - turn.own)?];
        self.cursor(Span::UNKNOWN).effect(GpuOp::MbarrierArrive, &told).map(|_| ())
    }

    /// How far a tile takes the ring, of two rounds: more are as good as none.
    fn ahead(&mut self) -> Result<ValueId> {
        let fed = &self.fed_loops[0];
        let (bounds, rounds) = (self.func.op(fed.owner).operands[..3].to_vec(), 2 * fed.stages);
        let bounds: Vec<ValueId> = bounds.iter().map(|&bound| self.mapped(bound)).collect();
        let mut cursor = self.cursor(Span::UNKNOWN);
        let mut wide = Vec::new();
        for &bound in &bounds {
            wide.push(cursor.cast(bound, DType::U32)?);
        }
        // Exact in unsigned arithmetic where the loop runs at all.
        let one = cursor.constant(Literal::Int(1), DType::U32)?;
        let rounds = cursor.constant(Literal::Int(rounds.into()), DType::U32)?;
        let zero = cursor.i32(0)?;
        let span = cursor.binary(BinaryOp::Sub, wide[1], wide[0])?;
        let last = cursor.binary(BinaryOp::Sub, span, one)?;
        let before = cursor.binary(BinaryOp::Div, last, wide[2])?;
        let iterations = cursor.binary(BinaryOp::Add, before, one)?;
        let rest = cursor.binary(BinaryOp::Rem, iterations, rounds)?;
        let rest = cursor.cast(rest, DType::I32)?;
        let runs = cursor.compare(CmpOp::Lt, bounds[0], bounds[1])?;
        let forward = cursor.compare(CmpOp::Gt, bounds[2], zero)?;
        let some = cursor.select(runs, rest, zero)?;
        cursor.select(forward, some, zero)
    }

    /// A position so many slots further, fewer than two rounds.
    fn further(&mut self, at: Position, ahead: ValueId) -> Result<Position> {
        let stages = self.fed_loops[0].stages as i32;
        let mut cursor = self.cursor(Span::UNKNOWN);
        let (one, stages) = (cursor.i32(1)?, cursor.i32(stages)?);
        let mut slot = cursor.binary(BinaryOp::Add, at.slot, ahead)?;
        let mut phase = at.phase;
        for _ in 0..2 {
            let less = cursor.binary(BinaryOp::Sub, slot, stages)?;
            let turned = cursor.binary(BinaryOp::Xor, phase, one)?;
            let is_beyond = cursor.compare(CmpOp::Ge, slot, stages)?;
            slot = cursor.select(is_beyond, less, slot)?;
            phase = cursor.select(is_beyond, turned, phase)?;
        }
        Ok(Position { slot, phase })
    }
}
