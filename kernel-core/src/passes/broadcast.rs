//! Computes before broadcasting: an elementwise operation on tiles that were repeated the same way is done on the
//! small tiles.
//!
//! Before:
//! ```text
//! %3: i32[64, 1] = expand_dims %1 {axis = 1}
//! %4: i32[64, 1] = splat %stride
//! %5: i32[64, 1] = mul %3, %4
//! %6: i32[64, 128] = broadcast %5
//! %7: i32[64, 128] = splat %n
//! %8: bool[64, 128] = cmp.lt %6, %7
//! ```
//! After, with the multiplication on 64 elements in one dimension and the comparison on 64 instead of 8192:
//! ```text
//! %4: i32[64] = splat %stride
//! %5: i32[64] = mul %1, %4
//! %6: i32[64] = splat %n
//! %7: bool[64] = cmp.lt %5, %6
//! %8: bool[64, 1] = expand_dims %7 {axis = 1}
//! %9: bool[64, 128] = broadcast %8
//! ```
//!
//! Pointer arithmetic stays where it is, so that addresses keep the form base + offsets. Generic and bound levels.

use crate::edit::{Action, Result, Rewriter};
use crate::ir::known::splat_source;
use crate::ir::{Func, Level, Op, OpId, ShapeOp, Ty, ValueId};

/// Runs the pass; returns whether anything changed.
///
/// # Errors
/// If the pass writes an operation that breaks a type rule, which is a mistake in it.
pub fn run(func: &mut Func) -> Result<bool> {
    if func.level == Level::Placed {
        return Ok(false);
    }
    Rewriter::run(func, "broadcast", &mut |rewriter, id| match grown_alike(rewriter.func, id) {
        Some(alike) => sink(rewriter, id, alike),
        None => Ok(Action::Keep),
    })
}

/// How an operand came to its shape.
#[derive(PartialEq)]
enum Grown {
    /// By this operation, from a tile of that shape.
    By(ShapeOp, Ty, ValueId),
    /// It repeats one scalar.
    Splat(ValueId),
}

fn grown(func: &Func, value: ValueId) -> Option<Grown> {
    if let Some(scalar) = splat_source(func, value) {
        return Some(Grown::Splat(scalar));
    }
    let operation = func.def_op(value)?;
    let Op::Shape(op @ (ShapeOp::Broadcast { .. } | ShapeOp::ExpandDims { .. })) = &operation.op else { return None };
    let source = operation.moved_operand()?;
    Some(Grown::By(op.clone(), func.ty(source).clone(), source))
}

/// Operands that came to their shape in one way.
struct Alike {
    by: ShapeOp,
    /// The tile before.
    small: Ty,
    operands: Vec<Grown>,
}

/// The operands of an elementwise operation, if they came to their shape in one way.
fn grown_alike(func: &Func, id: OpId) -> Option<Alike> {
    let operation = func.op(id);
    let (Op::Elementwise(_), [_]) = (&operation.op, operation.results.as_slice()) else { return None };
    let operands: Vec<Grown> = operation.operands.iter().map(|&v| grown(func, v)).collect::<Option<_>>()?;
    let mut way: Option<(&ShapeOp, &Ty)> = None;
    for operand in &operands {
        if let Grown::By(op, ty, _) = operand {
            match way {
                Some((other, small)) if other != op || small.shape != ty.shape => return None,
                Some(_) | None => way = Some((op, ty)),
            }
        }
    }
    // Tiles that are all splats belong to the pass `uniform`.
    let (by, small) = way.map(|(op, ty)| (op.clone(), ty.clone()))?;
    (!small.is_scalar()).then_some(Alike { by, small, operands })
}

fn sink(rewriter: &mut Rewriter<'_>, id: OpId, alike: Alike) -> Result<Action> {
    let operation = rewriter.func.op(id);
    let (elementwise, flags, span) = (operation.op.clone(), operation.flags, operation.span);
    let Some(&result) = operation.results.first() else { return Ok(Action::Keep) };
    let mut cursor = rewriter.before(span);
    let mut inputs = Vec::new();
    for operand in &alike.operands {
        inputs.push(match operand {
            Grown::By(_, _, source) => *source,
            Grown::Splat(scalar) => cursor.splat(*scalar, alike.small.shape.clone())?,
        });
    }
    let value = rewriter.before(span).flags(flags).value(elementwise, &inputs)?;
    let tile = rewriter.before(span).value(alike.by, &[value])?;
    rewriter.replace(result, tile);
    Ok(Action::Remove)
}
