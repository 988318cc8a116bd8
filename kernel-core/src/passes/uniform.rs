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

use crate::ir::{ControlOp, CreateOp, Does, Elements, FloatFlags, Func, Level, Op, OpId, ValueId};
use crate::passes::util::{Action, Rewriter, splat_source};

/// Runs the pass; returns whether anything changed.
pub fn run(func: &mut Func) -> bool {
    if func.level == Level::Placed {
        return false;
    }
    Rewriter::run(func, &mut |rewriter, id| uniform(rewriter, id).unwrap_or(Action::Keep))
}

fn uniform(rewriter: &mut Rewriter<'_>, id: OpId) -> Option<Action> {
    let operation = rewriter.func.op(id).clone();
    if let Op::Control(ControlOp::Assert { .. }) = operation.op {
        let scalar = splat_source(rewriter.func, *operation.operands.first()?)?;
        rewriter.func.ops[id.index()].operands[0] = scalar;
        rewriter.set_changed();
        return None;
    }
    let reads = |does: &Does| matches!(does, Does::Reads(_));
    let takes_part = operation.op.elements() == Elements::Each && operation.op.does().iter().all(reads);
    let (&[result], true) = (operation.results.as_slice(), takes_part) else { return None };
    let scalars: Vec<ValueId> =
        operation.operands.iter().map(|&v| splat_source(rewriter.func, v)).collect::<Option<_>>()?;
    if scalars.is_empty() {
        return None;
    }
    let shape = rewriter.func.ty(result).shape.clone();
    let scalar = rewriter.insert(operation.op, &scalars, operation.flags, operation.span).ok()?;
    let splat = CreateOp::Splat { shape };
    let tile = rewriter.insert(splat, &[scalar], FloatFlags::default(), operation.span).ok()?;
    rewriter.replace(result, tile);
    Some(Action::Remove)
}
