//! Loads of blocks in front of a loop behind which the blocks are used.

use std::collections::BTreeSet;

use kernel_core::edit::{Place, splice, walk_region};
use kernel_core::ir::{DescOp, Effect, Func, Op, OpId, ParamId, RegionId, Resource, ValueId};

use super::super::carry;
use super::choose::Tensors;

/// Moves loads of blocks that threads load, from in front of a loop to behind it, where they are used: they would take registers
/// all the while.
pub(crate) fn load_late(func: &mut Func, copied: &BTreeSet<ParamId>) {
    for (param, id, around) in Tensors::of(func).ops {
        let region = carry::innermost(func, &around);
        if func.op(id).op == Op::Desc(DescOp::DescLoad)
            && !copied.contains(&param)
            && let Some(late) = behind_loop(func, region, id)
        {
            late.put_off(func, region, id);
        }
    }
}

/// Where a block is first used that is loaded in front of a loop.
pub(super) struct Late {
    /// What is computed from it element by element before, and moves there with its load from shared memory.
    pub(super) moves: Vec<OpId>,
    pub(super) first: OpId,
}

impl Late {
    /// Moves the load of a block to where it is used.
    pub(super) fn put_off(self, func: &mut Func, region: RegionId, load: OpId) {
        let moved: Vec<OpId> = std::iter::once(load).chain(self.moves).collect();
        for &id in &moved {
            splice(func, Place::Instead(region, id), Vec::new());
        }
        splice(func, Place::Before(region, self.first), moved);
    }
}

/// Where a loaded block is first used, if that is behind a loop that is behind the load, and if nothing between them writes what
/// the load reads: the load may as well end there.
pub(super) fn behind_loop(func: &Func, region: RegionId, load: OpId) -> Option<Late> {
    let ops = &func.region(region).ops;
    let from = ops.iter().position(|&id| id == load)?;
    let mut values: BTreeSet<ValueId> = func.op(load).results.iter().copied().collect();
    let (mut moves, mut has_loop) = (Vec::new(), false);
    for &id in &ops[from + 1..] {
        let operation = func.op(id);
        if !uses_any(func, id, &values) {
            let writes =
                |effect: &Effect| effect.writes && !matches!(effect.resource, Resource::Shared | Resource::Barriers);
            if func.effects(id).iter().any(writes) {
                return None;
            }
            has_loop |= operation.op.is_loop();
        } else if has_loop {
            return Some(Late { moves, first: id });
        } else if operation.op.is_arithmetic() || operation.moved_operand().is_some() {
            values.extend(&operation.results);
            moves.push(id);
        } else {
            return None;
        }
    }
    None
}

/// Whether an operation, or one in its regions, uses one of the values.
fn uses_any(func: &Func, id: OpId, values: &BTreeSet<ValueId>) -> bool {
    let is_one = |id: OpId| func.op(id).operands.iter().any(|operand| values.contains(operand));
    let mut found = is_one(id);
    for &region in &func.op(id).regions {
        walk_region(func, region, &mut |inner| found |= is_one(inner));
    }
    found
}
