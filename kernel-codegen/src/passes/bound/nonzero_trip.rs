//! Loops of products that are known to run.
//!
//! A sum of products begins with zeros, and the instructions of tensor cores can ignore what was in their registers
//! before: the first iteration overwrites it, and the zeros are needed only if there is no iteration. That way around
//! the loop is never taken by a sensible launch, but it costs the driver's compiler a seventh of its time, as the
//! registers of both ways meet behind the loop. So where the arguments alone say how often such a loop runs, the
//! launch conditions say that it does:
//!
//! ```text
//! %acc = for 0, %k, 64, %zeros {..} { .. dot .. }
//! ```
//! gets the condition `0 <= k - 1` and is marked `runs`. A launch with `k = 0` takes the other variant.

use kernel_core::backend::conditions::Condition;
use kernel_core::ir::{Bound, ControlOp, Func, Op, OpId};

use crate::analysis::intervals::{Describer, Source};
use crate::analysis::lanes::constant;
use crate::error::CodegenError;
use crate::passes::pass::Unit;

/// Marks loops of products that run, in a kernel whose launches the host decides about.
///
/// # Errors
/// None.
pub(crate) fn run(kernel: &mut Bound, unit: &mut Unit) -> Result<(), CodegenError> {
    let func = kernel.func_mut();
    if !unit.decides_at_launch(func) || !func.ops.iter().any(|operation| operation.op.multiplies()) {
        return Ok(());
    }
    let mut found = Vec::new();
    Describer::new(func, &mut unit.plan.conditions).visit(&mut |describer, id| {
        if is_loop_of_products(describer.func, id) && runs(describer, id) {
            found.push(id);
        }
    });
    for id in found {
        if let Op::Control(ControlOp::For { runs, .. }) = &mut func.ops[id.index()].op {
            *runs = true;
        }
    }
    Ok(())
}

fn is_loop_of_products(func: &Func, id: OpId) -> bool {
    let operation = func.op(id);
    let multiplies = |&inner: &OpId| func.op(inner).op.multiplies();
    matches!(operation.op, Op::Control(ControlOp::For { .. }))
        && func.region(operation.regions[0]).ops.iter().any(multiplies)
}

/// Whether a loop is known to run, if need be because the launch must show it.
fn runs(describer: &mut Describer<'_>, id: OpId) -> bool {
    let func = describer.func;
    let &[lo, hi, step, ..] = func.op(id).operands.as_slice() else { return false };
    if constant(func, step).is_none_or(|by| by <= 0) {
        return false;
    }
    if let (Some(first), Some(end)) = (constant(func, lo), constant(func, hi)) {
        return first < end;
    }
    let [lo, hi] = [lo, hi].map(|bound| describer.describe_value(bound));
    let decided = lo.source == Source::Launch && hi.source == Source::Launch;
    if decided {
        describer.require(Condition::AtMost(lo.node, hi.node, -1));
    }
    decided
}
