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

use crate::ir::{CreateOp, FloatFlags, Func, Level, Op, OpId, ShapeOp, Ty, ValueId};
use crate::passes::util::{Action, Rewriter, splat_source};

/// Runs the pass; returns whether anything changed.
pub fn run(func: &mut Func) -> bool {
    if func.level == Level::Placed {
        return false;
    }
    Rewriter::run(func, &mut |rewriter, id| sink(rewriter, id).unwrap_or(Action::Keep))
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

fn sink(rewriter: &mut Rewriter<'_>, id: OpId) -> Option<Action> {
    let operation = rewriter.func.op(id);
    let (Op::Elementwise(elementwise), &[result]) = (&operation.op, operation.results.as_slice()) else { return None };
    let operands: Vec<Grown> = operation.operands.iter().map(|&v| grown(rewriter.func, v)).collect::<Option<_>>()?;
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
    let (op, small) = way?;
    let (op, shape) = (op.clone(), small.shape.clone());
    if shape.is_empty() {
        return None;
    }
    let (elementwise, flags, span) = (elementwise.clone(), operation.flags, operation.span);
    let mut inputs = Vec::new();
    for operand in &operands {
        inputs.push(match operand {
            Grown::By(_, _, source) => *source,
            Grown::Splat(scalar) => {
                let splat = CreateOp::Splat { shape: shape.clone() };
                rewriter.insert(splat, &[*scalar], FloatFlags::default(), span).ok()?
            }
        });
    }
    let value = rewriter.insert(elementwise, &inputs, flags, span).ok()?;
    let tile = rewriter.insert(op, &[value], FloatFlags::default(), span).ok()?;
    rewriter.replace(result, tile);
    Some(Action::Remove)
}
