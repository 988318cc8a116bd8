//! L17: turns of the two halves of a warp group come in pairs, on every way through its code.
//!
//! A half that has its turn goes on until its end without the other, which waits for it: so every way that begins a turn ends
//! it, and in between nothing makes both meet. Both halves run the same code, so each has as many turns as the other.

use super::Errors;
use crate::ir::{ControlOp, Func, GpuOp, GroupRole, Op, OpId, RegionId};
use crate::target::GROUP_WARPS;

/// Whether half of a group has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Nobodys,
    Had,
}

pub(super) fn check<'f>(func: &'f Func, errors: &mut Errors<'f>) {
    let mut first = None;
    find(func, func.body, &mut first);
    if first.is_none() {
        return;
    }
    let mut turns = Turns { func, errors };
    let mut owner = None;
    for &id in &func.region(func.body).ops {
        let operation = func.op(id);
        let Op::Gpu(GpuOp::WarpGroups { warps, roles, .. }) = &operation.op else {
            turns.none(id);
            continue;
        };
        for ((&warps, &role), &region) in warps.iter().zip(roles).zip(&operation.regions) {
            let mut begin = None;
            find(func, region, &mut begin);
            let Some(begin) = begin else { continue };
            let halves = role == GroupRole::Consumer && u32::from(warps) == 2 * GROUP_WARPS;
            if !halves || owner.replace(region).is_some() {
                turns.wrong(begin, "turns are taken in one group of eight warps that consume, and in no other");
            } else if turns.region(region, Turn::Nobodys) == Turn::Had {
                turns.wrong(begin, "a warp group ends in a turn, for which half of it waits");
            }
        }
    }
}

fn is_turn(op: &Op) -> bool {
    matches!(op, Op::Gpu(GpuOp::TurnBegin | GpuOp::TurnEnd))
}

/// The first operation about turns in a region.
fn find(func: &Func, region: RegionId, first: &mut Option<OpId>) {
    for (id, operation) in func.region_ops(region) {
        if is_turn(&operation.op) {
            first.get_or_insert(id);
        }
        operation.regions.iter().for_each(|&inner| find(func, inner, first));
    }
}

struct Turns<'a, 'f> {
    func: &'f Func,
    errors: &'a mut Errors<'f>,
}

impl Turns<'_, '_> {
    fn wrong(&mut self, id: OpId, message: &str) {
        self.errors.push(self.func.op(id).span, message);
    }

    /// Whose turn it is behind a region that begins with `turn`.
    fn region(&mut self, region: RegionId, mut turn: Turn) -> Turn {
        for (id, operation) in self.func.region_ops(region) {
            turn = match (&operation.op, turn) {
                (Op::Gpu(GpuOp::TurnBegin), Turn::Nobodys) => Turn::Had,
                (Op::Gpu(GpuOp::TurnEnd), Turn::Had) => Turn::Nobodys,
                (Op::Gpu(GpuOp::TurnBegin), Turn::Had) => {
                    self.wrong(id, "a turn begins in a turn, which nobody has ended");
                    turn
                }
                (Op::Gpu(GpuOp::TurnEnd), Turn::Nobodys) => {
                    self.wrong(id, "a turn ends that has not begun");
                    turn
                }
                (Op::Control(op), _) if operation.op.is_loop_or_branch() => self.control(id, op, turn),
                (_, _) => {
                    self.none(id);
                    turn
                }
            };
            let meet = operation.op == Op::Gpu(GpuOp::Barrier)
                || (!operation.op.allocates_shared() && operation.shared.iter().any(|range| range.meetings() > 0));
            if turn == Turn::Had && meet {
                self.wrong(id, "threads meet in a turn, for which half of them wait");
            }
        }
        turn
    }

    /// Every way through a branch or a loop leaves the turn to the same, and so does every iteration.
    fn control(&mut self, id: OpId, op: &ControlOp, before: Turn) -> Turn {
        let regions = &self.func.op(id).regions;
        let behind: Vec<Turn> = regions.iter().map(|&region| self.region(region, before)).collect();
        if *op == ControlOp::If {
            if behind.iter().any(|&turn| turn != behind[0]) {
                self.wrong(id, "one way through a condition ends in a turn, and the other does not");
            }
            return behind.first().copied().unwrap_or(before);
        }
        if behind.iter().any(|&turn| turn != before) {
            self.wrong(id, "an iteration begins in a turn and does not end in one, or the other way round");
        }
        before
    }

    /// An operation that has nothing to do with turns, nor what is in its regions.
    fn none(&mut self, id: OpId) {
        let func = self.func;
        let mut first = is_turn(&func.op(id).op).then_some(id);
        func.op(id).regions.iter().for_each(|&region| find(func, region, &mut first));
        if let Some(first) = first {
            self.wrong(first, "turns are taken in warp groups, their loops and conditions");
        }
    }
}
