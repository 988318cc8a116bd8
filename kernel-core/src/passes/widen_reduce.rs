//! Sums and products of f16 and bf16 accumulate in f32, in reductions and in scans.
//!
//! Before:
//! ```text
//! %5: f16 = reduce %4 {axis = 0} (%a: f16, %b: f16) {
//!   %c: f16 = add %a, %b
//!   yield %c
//! }
//! ```
//! After:
//! ```text
//! %6: f32[64] = cast %4
//! %7: f32 = reduce %6 {axis = 0} (%a: f32, %b: f32) {
//!   %c: f32 = add %a, %b
//!   yield %c
//! }
//! %8: f16 = cast %7
//! ```
//!
//! This is what the operations mean (the interpreter computes either form to the same bits), so it is part of
//! binding and cannot be switched off; code generators need to know nothing of it. Regions of more than one
//! operation are left as they are: what a user writes out rounds where it is written.

use std::collections::HashMap;

use crate::edit::{Cursor, Result};
use crate::ir::{
    BinaryOp, ControlOp, DType, Def, Elem, ElementwiseOp, Func, Op, OpId, Operation, RegionId, Ty, ValueId,
};

/// Runs the pass; returns whether anything changed.
///
/// # Errors
/// If the pass writes an operation that breaks a type rule, which is a mistake in it.
pub fn run(func: &mut Func) -> Result<bool> {
    // What stands for a narrow result: the cast of the wide one.
    let mut narrowed = HashMap::new();
    region(func, func.body, &mut narrowed)?;
    for operand in func.ops.iter_mut().flat_map(|op| &mut op.operands) {
        if let Some(&cast) = narrowed.get(operand) {
            *operand = cast;
        }
    }
    // The casts themselves read the wide results, which are the old values with a new type.
    for (wide, cast) in &narrowed {
        if let Def::Result(op, _) = func.value(*cast).def {
            func.ops[op.index()].operands = vec![*wide];
        }
    }
    Ok(!narrowed.is_empty())
}

fn region(func: &mut Func, id: RegionId, narrowed: &mut HashMap<ValueId, ValueId>) -> Result<()> {
    let mut out = Vec::new();
    for op in std::mem::take(&mut func.regions[id.index()].ops) {
        for inner in func.op(op).regions.clone() {
            region(func, inner, narrowed)?;
        }
        match narrow_dtype(func, op) {
            Some(dtype) => widen(func, op, dtype, &mut out, narrowed)?,
            None => out.push(op),
        }
    }
    func.regions[id.index()].ops = out;
    Ok(())
}

/// The dtype of a reduction or scan that is to be widened.
fn narrow_dtype(func: &Func, op: OpId) -> Option<DType> {
    let operation = func.op(op);
    let (Op::Control(ControlOp::Reduce { .. } | ControlOp::Scan { .. }), [operand], [body]) =
        (&operation.op, operation.operands.as_slice(), operation.regions.as_slice())
    else {
        return None;
    };
    let dtype = func
        .ty(*operand)
        .dtype()
        .filter(|dtype| matches!(dtype, DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16))?;
    is_sum_or_product(func, *body).then_some(dtype)
}

/// Whether a region combines its two arguments with one addition or multiplication.
fn is_sum_or_product(func: &Func, id: RegionId) -> bool {
    let body = func.region(id);
    let ([a, b], [first, last]) = (body.args.as_slice(), body.ops.as_slice()) else { return false };
    let (first, last) = (func.op(*first), func.op(*last));
    let Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::Add | BinaryOp::Mul }) = first.op else { return false };
    let on_arguments = first.operands == [*a, *b] || first.operands == [*b, *a];
    on_arguments && last.op == Op::Control(ControlOp::Yield) && last.operands == first.results
}

/// Puts a cast to f32 before the operation and one back after it, and makes all between f32.
fn widen(
    func: &mut Func,
    op: OpId,
    dtype: DType,
    out: &mut Vec<OpId>,
    narrowed: &mut HashMap<ValueId, ValueId>,
) -> Result<()> {
    let Operation { operands, results, regions, span, .. } = func.op(op).clone();
    let (Some(&operand), Some(&result), Some(&body)) = (operands.first(), results.first(), regions.first()) else {
        out.push(op);
        return Ok(());
    };
    let mut cursor = Cursor::new(func, out, "widen_reduce").at(span);
    let wide = cursor.value(Op::cast(DType::F32), &[operand])?;
    cursor.keep(op);
    let cast = cursor.value(Op::cast(dtype), &[result])?;
    func.ops[op.index()].operands = vec![wide];
    let inner = func.region(body).ops.iter().flat_map(|&op| func.op(op).results.clone());
    let between: Vec<ValueId> = func.region(body).args.iter().copied().chain(inner).chain([result]).collect();
    for value in between {
        let ty = &mut func.values[value.index()].ty;
        *ty = Ty { elem: Elem::Data(DType::F32.into()), shape: std::mem::take(&mut ty.shape) };
    }
    narrowed.insert(result, cast);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::text::{parse, print};
    use crate::verify::verify;

    fn check(before: &str, after: &str) {
        let mut func = parse(before).unwrap();
        assert_eq!(verify(&func), Ok(()), "{before}");
        let changed = super::run(&mut func);
        assert_eq!(changed, Ok(before != after));
        assert_eq!(verify(&func), Ok(()), "{}", print(&func));
        assert_eq!(print(&func), after);
        assert_eq!(super::run(&mut func), Ok(false), "once is enough");
    }

    #[test]
    fn sums_of_halves_accumulate_in_f32() {
        let before = r#"kernel k "" safe bound {
  param %0 x: ptr f16
  param %1 out: ptr_mut f16
  %2: i32[64] = arange {lo = 0, hi = 64}
  %3: *x[64] = splat %0
  %4: *x[64] = add_ptr %3, %2
  %5: f16[64] = load %4
  %6: f16 = reduce %5 {axis = 0} @3:1+3 (%7: f16, %8: f16) {
    %9: f16 = add contract %8, %7
    yield %9
  }
  %10: f16[64] = scan %5 {axis = 0} (%11: f16, %12: f16) {
    %13: f16 = mul %11, %12
    yield %13
  }
  %14: f16 = add %6, %6
  store %1, %14
  store %4, %10
  return
}
"#
        .replace("store %4, %10", "%15: *out[64] = splat %1\n  %16: *out[64] = add_ptr %15, %2\n  store %16, %10");
        let after = r#"kernel k "" safe bound {
  param %0 x: ptr f16
  param %1 out: ptr_mut f16
  %2: i32[64] = arange {lo = 0, hi = 64}
  %3: *x[64] = splat %0
  %4: *x[64] = add_ptr %3, %2
  %5: f16[64] = load %4
  %6: f32[64] = cast %5 @3:1+3
  %7: f32 = reduce %6 {axis = 0} @3:1+3 (%8: f32, %9: f32) {
    %10: f32 = add contract %9, %8
    yield %10
  }
  %11: f16 = cast %7 @3:1+3
  %12: f32[64] = cast %5
  %13: f32[64] = scan %12 {axis = 0} (%14: f32, %15: f32) {
    %16: f32 = mul %14, %15
    yield %16
  }
  %17: f16[64] = cast %13
  %18: f16 = add %11, %11
  store %1, %18
  %19: *out[64] = splat %1
  %20: *out[64] = add_ptr %19, %2
  store %20, %17
  return
}
"#;
        check(&before, after);
    }

    #[test]
    fn everything_else_stays() {
        let kernel = |dtype: &str, body: &str| {
            format!(
                "kernel k \"\" safe bound {{\n  param %0 n: {dtype}\n  %1: {dtype}[8] = splat %0\n  \
                 %2: {dtype} = reduce %1 {{axis = 0}} (%3: {dtype}, %4: {dtype}) {{\n{body}  }}\n  return\n}}\n"
            )
        };
        for text in [
            kernel("f32", "    %5: f32 = add %3, %4\n    yield %5\n"),
            kernel("i16", "    %5: i16 = add %3, %4\n    yield %5\n"),
            kernel("f16", "    %5: f16 = maximum %3, %4\n    yield %5\n"),
            kernel("bf16", "    %5: bf16 = add %3, %4\n    %6: bf16 = neg %5\n    yield %6\n"),
            kernel("f16", "    %5: f16 = add %3, %3\n    yield %5\n"),
        ] {
            check(&text, &text);
        }
    }
}
