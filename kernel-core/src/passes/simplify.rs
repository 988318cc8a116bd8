//! Simplifies chains of operations that rearrange elements.
//!
//! Before:
//! ```text
//! %2: f32[64, 1] = expand_dims %1 {axis = 1}
//! %3: f32[64] = reshape %2
//! %4: f32[8, 8] = reshape %3
//! %5: f32[8, 8] = permute %4 {perm = [1, 0]}
//! %6: f32[8, 8] = permute %5 {perm = [1, 0]}
//! %7: i32[1, 64] = reshape %splat
//! ```
//! After: `%4` is a reshape of `%1`, `%6` is `%4`, `%7` is a splat, and what has no uses is left to `dce`.
//!
//! Also a reshape that inserts one dimension becomes `expand_dims`, and one of a scalar a `splat`, so that the passes
//! behind have fewer forms to know. It pays because each of these may move data between threads.
//! Generic and bound levels: at the placed level a layout says more than a shape.

use crate::edit::{Action, Result, Rewriter};
use crate::ir::known::splat_source;
use crate::ir::{CreateOp, Dim, Func, Level, Op, OpId, Operation, ShapeOp, Ty, ValueId};

/// Runs the pass; returns whether anything changed.
///
/// # Errors
/// If the pass writes an operation that breaks a type rule, which is a mistake in it.
pub fn run(func: &mut Func) -> Result<bool> {
    if func.level == Level::Placed {
        return Ok(false);
    }
    Rewriter::run(func, "simplify", &mut |rewriter, id| match simpler(rewriter.func, rewriter.func.op(id)) {
        Some(Simpler::Value(value)) => Ok(replace(rewriter, id, value)),
        Some(Simpler::Op(op, operand)) => {
            let operation = rewriter.func.op(id);
            let (flags, span) = (operation.flags, operation.span);
            let value = rewriter.before(span).flags(flags).value(op, &[operand])?;
            Ok(replace(rewriter, id, value))
        }
        None => Ok(Action::Keep),
    })
}

fn replace(rewriter: &mut Rewriter<'_>, id: OpId, value: ValueId) -> Action {
    let Some(&result) = rewriter.func.op(id).results.first() else { return Action::Keep };
    rewriter.replace(result, value);
    Action::Remove
}

enum Simpler {
    Value(ValueId),
    Op(Op, ValueId),
}

fn simpler(func: &Func, operation: &Operation) -> Option<Simpler> {
    let Op::Shape(op) = &operation.op else { return None };
    // A promise stays where it was made, of what it was made.
    if matches!(op, ShapeOp::Hint { .. }) {
        return None;
    }
    let (operand, &result) = (operation.moved_operand()?, operation.results.first()?);
    let (from, to) = (func.ty(operand), func.ty(result));
    if is_nothing(op, from, to) {
        return Some(Simpler::Value(operand));
    }
    // All elements of the one operand are equal, so those of the result are: only the shape matters.
    let scalar = if from.is_scalar() { Some(operand) } else { splat_source(func, operand) };
    if let Some(scalar) = scalar {
        return Some(match to.is_scalar() {
            true => Simpler::Value(scalar),
            false => Simpler::Op(CreateOp::Splat { shape: to.shape.clone() }.into(), scalar),
        });
    }
    if let Some(simpler) = chain(func, op, operand, to) {
        return Some(simpler);
    }
    let ShapeOp::Reshape { .. } = op else { return None };
    inserted_axis(from, to).map(|axis| Simpler::Op(ShapeOp::ExpandDims { axis }.into(), operand))
}

/// Whether the operation leaves every element where it is.
fn is_nothing(op: &ShapeOp, from: &Ty, to: &Ty) -> bool {
    if let ShapeOp::Permute { perm } = op {
        return perm.iter().enumerate().all(|(i, &p)| i == usize::from(p));
    }
    // These keep the order of the elements.
    let keeps = matches!(op, ShapeOp::Broadcast { .. } | ShapeOp::Reshape { .. } | ShapeOp::Slice { .. });
    keeps && from == to
}

/// Two operations in a row that are one.
fn chain(func: &Func, op: &ShapeOp, operand: ValueId, to: &Ty) -> Option<Simpler> {
    let inner = func.def_op(operand)?;
    let Op::Shape(first) = &inner.op else { return None };
    let source = inner.moved_operand()?;
    let inserts = |op: &ShapeOp| matches!(op, ShapeOp::ExpandDims { .. });
    let reshapes = |op: &ShapeOp| inserts(op) || matches!(op, ShapeOp::Reshape { .. });
    if reshapes(first) && reshapes(op) {
        // Two insertions of dimensions are as simple as one reshape.
        if inserts(first) && inserts(op) {
            return None;
        }
        return Some(if func.ty(source) == to {
            Simpler::Value(source)
        } else {
            Simpler::Op(ShapeOp::Reshape { shape: to.shape.clone() }.into(), source)
        });
    }
    if let (ShapeOp::Broadcast { .. }, ShapeOp::Broadcast { shape }) = (first, op) {
        return Some(Simpler::Op(ShapeOp::Broadcast { shape: shape.clone() }.into(), source));
    }
    let (ShapeOp::Permute { perm: first }, ShapeOp::Permute { perm: second }) = (first, op) else { return None };
    let perm: Vec<u8> = second.iter().map(|&p| first[usize::from(p)]).collect();
    let op = ShapeOp::Permute { perm };
    Some(if is_nothing(&op, func.ty(source), to) { Simpler::Value(source) } else { Simpler::Op(op.into(), source) })
}

/// The axis of the dimension of size 1 that makes `to` out of `from`.
fn inserted_axis(from: &Ty, to: &Ty) -> Option<u8> {
    if to.rank() != from.rank() + 1 {
        return None;
    }
    let fits = |axis: usize| {
        let rest = to.shape.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| d);
        to.shape[axis].is_one() && rest.eq(from.shape.iter().collect::<Vec<&Dim>>())
    };
    (0..to.rank()).find(|&axis| fits(axis)).and_then(|axis| u8::try_from(axis).ok())
}
