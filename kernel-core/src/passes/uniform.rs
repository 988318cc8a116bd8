//! Keeps uniform work scalar: an operation on tiles that repeat one scalar is done once, on the scalars.
//!
//! Before:
//! ```text
//! %3: i32[1024] = splat %0
//! %4: i32[1024] = splat %1
//! %5: i32[1024] = mul %3, %4
//! ```
//! After:
//! ```text
//! %5: i32 = mul %0, %1
//! %6: i32[1024] = splat %5
//! ```
//!
//! Elementwise operations, pointer arithmetic and loads take part; an assertion on a repeated condition looks at it
//! once. It pays in registers, and it lets constants fold. Generic and bound levels.

use crate::edit::{Action, Result, Rewriter};
use crate::ir::known::splat_source;
use crate::ir::{ControlOp, Does, Elements, Func, Level, Op, OpId, ValueId};

/// Runs the pass; returns whether anything changed.
///
/// # Errors
/// If the pass writes an operation that breaks a type rule, which is a mistake in it.
pub fn run(func: &mut Func) -> Result<bool> {
    if func.level == Level::Placed {
        return Ok(false);
    }
    Rewriter::run(func, "uniform", &mut |rewriter, id| uniform(rewriter, id))
}

fn uniform(rewriter: &mut Rewriter<'_>, id: OpId) -> Result<Action> {
    let operation = rewriter.func.op(id).clone();
    if let Op::Control(ControlOp::Assert { .. }) = operation.op {
        let scalar = operation.operands.first().and_then(|&condition| splat_source(rewriter.func, condition));
        if let Some(scalar) = scalar {
            rewriter.func.ops[id.index()].operands[0] = scalar;
            rewriter.set_changed();
        }
        return Ok(Action::Keep);
    }
    let reads = |does: &Does| matches!(does, Does::Reads(_));
    let takes_part = operation.op.elements() == Elements::Each && operation.op.does().iter().all(reads);
    let (&[result], true) = (operation.results.as_slice(), takes_part && operation.regions.is_empty()) else {
        return Ok(Action::Keep);
    };
    let sources = operation.operands.iter().map(|&v| splat_source(rewriter.func, v));
    let Some(scalars) = sources.collect::<Option<Vec<ValueId>>>().filter(|scalars| !scalars.is_empty()) else {
        return Ok(Action::Keep);
    };
    let shape = rewriter.func.ty(result).shape.clone();
    let scalar = rewriter.before(operation.span).flags(operation.flags).value(operation.op, &scalars)?;
    let tile = rewriter.before(operation.span).splat(scalar, shape)?;
    rewriter.replace(result, tile);
    Ok(Action::Remove)
}
