//! Loops of products that are known to run.
//!
//! A sum of products begins with zeros, and the instructions of tensor cores can ignore what was in their registers
//! before: the first trip overwrites it, and the zeros are needed only if there is no trip. That way around the loop is
//! never taken by a sensible launch, but it costs the driver's compiler a seventh of its time, as the registers of both
//! ways meet behind the loop. So where the arguments alone say how often such a loop runs, the launch conditions say that
//! it does:
//!
//! ```text
//! %acc = for 0, %k, 64, %zeros {..} { .. dot .. }
//! ```
//! gets the condition `0 <= k - 1` and is marked `runs`. A launch with `k = 0` takes the other variant.

use kernel_core::ir::{ControlOp, Func, Op, OpId};

use super::describe::{Describer, Source};
use super::lanes::{Lanes, constant};
use kernel_core::backend::conditions::{Condition, LaunchConditions};

/// Demands of the launch that a loop of products runs; returns whether that can be decided, and is worth it.
pub(super) fn require(func: &Func, id: OpId, describer: &mut Describer<'_>, program: &mut LaunchConditions) -> bool {
    let operation = func.op(id);
    let &[lo, hi, step, ..] = operation.operands.as_slice() else { return false };
    let multiplies = |&inner: &OpId| func.op(inner).op.multiplies();
    if !func.region(operation.regions[0]).ops.iter().any(multiplies) || constant(func, step).is_none_or(|by| by <= 0) {
        return false;
    }
    if let (Some(first), Some(end)) = (constant(func, lo), constant(func, hi)) {
        return first < end;
    }
    let [lo, hi] = [lo, hi].map(|bound| describer.describe(Lanes::of(func, bound), program));
    let decided = lo.source == Source::Launch && hi.source == Source::Launch;
    if decided {
        program.require(Condition::AtMost(lo.node, hi.node, -1));
    }
    decided
}

/// Marks a loop as one that runs.
pub(super) fn mark(func: &mut Func, id: OpId) {
    if let Op::Control(ControlOp::For { runs, .. }) = &mut func.ops[id.index()].op {
        *runs = true;
    }
}
