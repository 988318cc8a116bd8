//! Adds to the sums of a product what is added to its result.
//!
//! Before:
//! ```text
//! %4: f32[64, 64] = splat %zero
//! %5: f32[64, 64] = dot %a, %b, %4
//! %6: f32[64, 64] = add contract %acc, %5
//! ```
//! After, as the instructions multiply and accumulate at once:
//! ```text
//! %6: f32[64, 64] = dot %a, %b, %acc
//! ```
//!
//! So `acc += dot(a, b)` and `acc * scale + dot(a, b)` are as fast as `dot(a, b, acc = acc)`. A sum of floats is only
//! taken into the product if it may be fused (`contract`). A product that has other uses stays as it is, and so does one
//! in another region, and one of 8-bit floats in f32: the tensor cores of Hopper keep 13 bits of fraction of their sums, so that
//! a long sum is better made of short ones. Generic and bound levels.

use crate::edit::{Action, Result, Rewriter, Structure, Uses};
use crate::ir::known::uniform_constant;
use crate::ir::{BinaryOp, DType, Def, ElementwiseOp, Func, Level, Literal, Op, OpId, ValueId, view};

/// Runs the pass; returns whether anything changed.
///
/// # Errors
/// If the pass writes an operation that breaks a type rule, which is a mistake in it.
pub fn run(func: &mut Func) -> Result<bool> {
    if func.level == Level::Placed {
        return Ok(false);
    }
    let (uses, structure) = (Uses::new(func), Structure::new(func));
    Rewriter::run(func, "accumulate", &mut |rewriter, id| {
        let Some(Sum { product, addend }) = sum(rewriter.func, &uses, &structure, id) else {
            return Ok(Action::Keep);
        };
        let Some(&result) = rewriter.func.op(id).results.first() else { return Ok(Action::Keep) };
        let dot = rewriter.func.op(product);
        let Some(view::Dot { a, b, .. }) = view::Dot::of(dot) else { return Ok(Action::Keep) };
        let (op, flags, span) = (dot.op.clone(), dot.flags, dot.span);
        let value = rewriter.before(span).flags(flags).value(op, &[a, b, addend])?;
        rewriter.replace(result, value);
        Ok(Action::Remove)
    })
}

/// A sum of a product that starts from zero, and something else.
struct Sum {
    product: OpId,
    addend: ValueId,
}

fn sum(func: &Func, uses: &Uses, structure: &Structure, id: OpId) -> Option<Sum> {
    let operation = func.op(id);
    let (Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::Add }), &[a, b]) =
        (&operation.op, operation.operands.as_slice())
    else {
        return None;
    };
    let exact = func.ty(a).dtype().is_some_and(DType::is_int);
    if !exact && !operation.flags.contract {
        return None;
    }
    [(b, a), (a, b)].into_iter().find_map(|(value, addend)| {
        let Def::Result(product, _) = func.value(value).def else { return None };
        let dot = view::Dot::of(func.op(product))?;
        let is_fp8 = func.ty(dot.a).dtype().is_some_and(DType::is_fp8);
        if is_fp8 && func.ty(value).dtype() == Some(DType::F32) {
            return None;
        }
        let alone = uses.only(value) == Some(id) && structure.region_of(product) == structure.region_of(id);
        (alone && is_zero(func, dot.acc)).then_some(Sum { product, addend })
    })
}

fn is_zero(func: &Func, value: ValueId) -> bool {
    match uniform_constant(func, value) {
        Some(Literal::Int(number)) => number == 0,
        Some(Literal::Float(bits)) => f64::from_bits(bits) == 0.0,
        Some(Literal::Bool(_)) | None => false,
    }
}
