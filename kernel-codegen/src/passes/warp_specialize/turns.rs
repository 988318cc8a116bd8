//! Two groups of four warps that take tiles in turns.
//!
//! ```text
//! for tile in ..                           each group goes through all tiles, and
//!   if it is its turn {
//!     wait until the other has fetched its last factors
//!     for k in ..                          multiplies every second one as a whole
//!     tell the other
//!     store
//!   } else { go on by as many slots as the other takes }
//! ```
//!
//! While one group stores a tile, the other has the tensor cores for itself. That hides all that there is between two
//! tiles, for tiles that four warps can hold: 128 x 128 sums in f32.
//!
//! The wait is needed for more than the order: a barrier with phases tells its last phase from the one before and from
//! nothing older, so nobody may wait for a slot that still is a round behind. Once the other has seen all its slots full,
//! none is.
//!
//! A kernel qualifies if its body is one loop over tiles, which do not depend on each other, around one loop of
//! products with bounds that are the same for all tiles. Tiles leave through tensor copies; nothing else is written.

use kernel_core::ir::{
    BinaryOp, CmpOp, ControlOp, DType, ElementwiseOp, Func, GpuOp, Op, OpId, ParamKind, Span, Ty, ValueId,
    result_types, view,
};

use super::find::Channel;
use super::outgoing::Outgoing;
use super::split::{Position, Result, Split, quiet};
use super::{GROUP_WARPS, scratch_bytes};
use crate::analysis::control::for_each_op;

/// Groups that take turns.
pub(super) const GROUPS: u32 = 2;

/// The loop over tiles of a kernel whose tiles two groups may take in turns.
pub(super) fn tile_loop(func: &Func, channels: &[Channel], outgoing: &[Outgoing], num_warps: u32) -> Option<OpId> {
    let [channel] = channels else { return None };
    if num_warps != GROUP_WARPS || scratch_bytes(func, channels) > 0 {
        return None;
    }
    // A mark on the loop of products alone asks for what it says: that warps fetch.
    let holds = |id: &&OpId| {
        let operation = func.op(**id);
        let Op::Control(ControlOp::For { warp_specialize, .. }) = operation.op else { return false };
        (warp_specialize || !channel.asked) && func.region(operation.regions[0]).ops.contains(&channel.owner)
    };
    let around = func.region(func.body).ops.iter().find(holds).copied()?;
    let operation = func.op(around);
    let body = func.region(operation.regions[0]);
    let carries = operation.operands.len() > 3;
    let bounds = &func.op(channel.owner).operands[..3];
    let mut inside = body.args.clone();
    for_each_op(func, operation.regions[0], &mut |id| inside.extend(&func.op(id).results));
    let is_fixed = |bound: &ValueId| !inside.contains(bound) && *func.ty(*bound) == Ty::scalar(DType::I32);
    let apart = body.ops.iter().all(|&id| id == channel.owner || is_apart(func, id, outgoing));
    let alone = func.region(func.body).ops.iter().all(|&id| id == around || is_apart(func, id, &[]));
    let fits = bounds.iter().all(is_fixed) && !carries && apart && alone;
    (fits && computes_only(func, channel)).then_some(around)
}

/// Whether an operation beside the products may happen in any order with those of other tiles, without other warps.
fn is_apart(func: &Func, id: OpId, outgoing: &[Outgoing]) -> bool {
    let operation = func.op(id);
    if let Some(load) = view::Load::of(operation) {
        let buffer = func.ty(load.pointer).pointee().map(|param| &func.param(param).kind);
        return matches!(buffer, Some(ParamKind::Ptr { mutable: false, .. }));
    }
    operation.op.is_arithmetic() || operation.op.is_terminator() || outgoing.iter().any(|one| one.store == id)
}

/// Whether a loop does nothing but load, compute and multiply.
fn computes_only(func: &Func, channel: &Channel) -> bool {
    let region = func.op(channel.owner).regions[0];
    func.region(region).ops.iter().all(|&id| {
        let Op::Gpu(op) = &func.op(id).op else {
            return is_apart(func, id, &[]) || channel.copies.iter().any(|copy| copy.load == id);
        };
        match op {
            GpuOp::SharedStore => channel.stores.contains(&id),
            op => !matches!(op, GpuOp::AsyncCopy | GpuOp::TmaStore { .. } | GpuOp::SharedLoad),
        }
    })
}

/// What a group that takes turns knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// The loop over tiles.
    pub(super) tiles: OpId,
    /// A barrier per group, which the other arrives at when it has fetched its last factors.
    pub(super) barriers: ValueId,
    /// The number of the group.
    pub(super) own: i32,
}

impl Split<'_> {
    /// The loop over tiles of a group that takes turns.
    pub(super) fn take_turns(&mut self, turn: Turn) -> Result<()> {
        let operation = self.func.op(turn.tiles).clone();
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
        let is_own = self.one(Op::compare(CmpOp::Eq), &[whose, own], operation.span)?;
        let next = self.one(Op::binary(BinaryOp::Xor), &[whose, one], operation.span)?;
        let outer = std::mem::take(&mut self.out);
        let begin = self.positions[0];
        self.effect(GpuOp::BarrierWait, &[turn.barriers, own, phase], operation.span)?;
        // One thread tells the other group for all four warps, so they have to be here together: one that still waits
        // for this phase when the next one is complete would wait for ever.
        self.effect(GpuOp::GroupBarrier, &[], operation.span)?;
        self.block(body)?;
        let turned = self.one(Op::binary(BinaryOp::Xor), &[phase, one], operation.span)?;
        let values = self.state(&[0]).into_iter().chain([turned]).collect();
        let mine = self.yielding(values);
        let Position { slot, phase: round } = self.further(begin, ahead)?;
        let others = self.yielding(vec![slot, round, phase]);
        self.out = outer;
        let results = self.control_op(ControlOp::If, vec![is_own], vec![mine, others], operation.span)?;
        self.terminate(ControlOp::Yield.into(), vec![results[0], results[1], next, results[2]]);
        self.func.regions[copy.index()].ops = std::mem::replace(&mut self.out, around);

        let results = self.control_op(quiet(op), operands, vec![copy], operation.span)?;
        self.positions[0] = Position { slot: results[0], phase: results[1] };
        Ok(())
    }

    fn control_op(
        &mut self,
        op: ControlOp,
        operands: Vec<ValueId>,
        regions: Vec<kernel_core::ir::RegionId>,
        span: Span,
    ) -> Result<Vec<ValueId>> {
        let op = Op::Control(op);
        let tys = result_types(self.func, &op, &operands, &regions)?;
        let id = self.func.new_op(op, operands, tys, regions, Default::default(), span);
        self.out.push(id);
        Ok(self.func.op(id).results.clone())
    }

    /// Lets the other group begin: all slots of this one's tile have been full.
    pub(super) fn pass_turn(&mut self) -> Result<()> {
        let Some(turn) = self.turn else { return Ok(()) };
        let other = self.number(1 - turn.own)?;
        self.effect(GpuOp::BarrierArrive, &[turn.barriers, other], Span::UNKNOWN)
    }

    /// How far a tile takes the ring, of two rounds: more are as good as none.
    fn ahead(&mut self) -> Result<ValueId> {
        let channel = &self.channels[0];
        let (bounds, rounds) = (self.func.op(channel.owner).operands[..3].to_vec(), 2 * channel.stages);
        let bounds: Vec<ValueId> = bounds.iter().map(|&bound| self.mapped(bound)).collect();
        let unknown = Span::UNKNOWN;
        let mut wide = Vec::new();
        for &bound in &bounds {
            wide.push(self.one(Op::cast(DType::U32), &[bound], unknown)?);
        }
        // Exact in unsigned arithmetic where the loop runs at all.
        let number = |this: &mut Self, value: u32| {
            let op = Op::constant(kernel_core::ir::Literal::Int(i128::from(value)), DType::U32);
            this.one(op, &[], unknown)
        };
        let (one, rounds, zero) = (number(self, 1)?, number(self, rounds)?, self.number(0)?);
        let span = self.one(Op::binary(BinaryOp::Sub), &[wide[1], wide[0]], unknown)?;
        let last = self.one(Op::binary(BinaryOp::Sub), &[span, one], unknown)?;
        let before = self.one(Op::binary(BinaryOp::Div), &[last, wide[2]], unknown)?;
        let trips = self.one(Op::binary(BinaryOp::Add), &[before, one], unknown)?;
        let rest = self.one(Op::binary(BinaryOp::Rem), &[trips, rounds], unknown)?;
        let rest = self.one(Op::cast(DType::I32), &[rest], unknown)?;
        let runs = self.one(Op::compare(CmpOp::Lt), &[bounds[0], bounds[1]], unknown)?;
        let forward = self.one(Op::compare(CmpOp::Gt), &[bounds[2], zero], unknown)?;
        let some = self.one(ElementwiseOp::Select, &[runs, rest, zero], unknown)?;
        self.one(ElementwiseOp::Select, &[forward, some, zero], unknown)
    }

    /// A position so many slots further, fewer than two rounds.
    fn further(&mut self, at: Position, ahead: ValueId) -> Result<Position> {
        let (stages, one, unknown) = (self.channels[0].stages as i32, self.number(1)?, Span::UNKNOWN);
        let stages = self.number(stages)?;
        let mut slot = self.one(Op::binary(BinaryOp::Add), &[at.slot, ahead], unknown)?;
        let mut phase = at.phase;
        for _ in 0..2 {
            let less = self.one(Op::binary(BinaryOp::Sub), &[slot, stages], unknown)?;
            let turned = self.one(Op::binary(BinaryOp::Xor), &[phase, one], unknown)?;
            let is_beyond = self.one(Op::compare(CmpOp::Ge), &[slot, stages], unknown)?;
            slot = self.one(ElementwiseOp::Select, &[is_beyond, less, slot], unknown)?;
            phase = self.one(ElementwiseOp::Select, &[is_beyond, turned, phase], unknown)?;
        }
        Ok(Position { slot, phase })
    }
}
