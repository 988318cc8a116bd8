//! Folds what is known: operations on constants, exact identities, conditions and trip counts that are constants.
//!
//! Before:
//! ```text
//! %1: i32 = const 3
//! %2: i32 = const 4
//! %3: i32 = mul %1, %2
//! %4: i32[64] = splat %0          ; %0 is the constant 0
//! %5: i32[64] = add %9, %4
//! %6: i32 = if %true { yield %3 } else { yield %1 }
//! ```
//! After: `%3` is `const 12`, `%5` is `%9`, and `%6` is `%3`.
//!
//! Only what is exact is done: the arithmetic of [`crate::num`], and identities that hold for every value, on floats
//! for infinities, NaNs and both zeros too (`x * 1.0` and `x - 0.0`, but neither `x + 0.0` nor `x * 0.0`).
//! In kernels that flush, arithmetic of f32 is left alone where a subnormal number goes in or comes out, and there are no
//! identities of f32: `x * 1.0` is zero there for some `x`.
//! It pays because binding turns constexprs into constants: conditions, strides and masks fall together.

use crate::edit::{Action, Result, Rewriter};
use crate::ir::known::{constant, known_trip_count, uniform_constant};
use crate::ir::{
    BinaryOp, CmpOp, ControlOp, DType, Dt, ElementwiseOp, Func, Level, Literal, MemoryOp, Op, OpId, Operation,
    Subnormals, UnaryOp, ValueId, view,
};
use crate::num;

/// Runs the pass; returns whether anything changed.
///
/// # Errors
/// If the pass writes an operation that breaks a type rule, which is a mistake in it.
pub fn run(func: &mut Func) -> Result<bool> {
    Rewriter::run(func, "fold", &mut |rewriter, id| {
        let operation = rewriter.func.op(id);
        if let Some((value, dtype)) = evaluate(rewriter.func, &operation.op, &operation.operands) {
            let span = operation.span;
            if let Some(&result) = operation.results.first() {
                let new = rewriter.before(span).constant(value, dtype)?;
                rewriter.replace(result, new);
                return Ok(Action::Remove);
            }
        }
        Ok(match identity(rewriter.func, rewriter.func.op(id)) {
            Some(Same::Value(value)) => replace_result(rewriter, id, value),
            Some(Same::Constant(value)) => fill(rewriter, id, value)?,
            None if rewriter.func.op(id).op.mask().is_some() => masks(rewriter, id),
            None => control(rewriter, id),
        })
    })
}

/// The constant that an operation on scalar constants gives, or on one that decides, with its dtype.
pub fn evaluate(func: &Func, op: &Op, operands: &[ValueId]) -> Option<(Literal, DType)> {
    let Op::Elementwise(op) = op else { return None };
    if let Some(truth) = deciding(op) {
        let decides = |&operand: &ValueId| constant(func, operand) == Some(Literal::Bool(truth));
        if operands.iter().any(decides) {
            return Some((Literal::Bool(truth), DType::Bool));
        }
    }
    let values: Vec<Literal> = operands.iter().map(|&v| constant(func, v)).collect::<Option<_>>()?;
    let dtype = func.ty(*operands.first()?).dtype()?;
    let (value, to) = folded(func, op, operands, &values, dtype)?;
    if flushes(func, op) && (values.iter().any(|&value| is_flushed(value)) || is_flushed(value)) {
        return None;
    }
    Some((value, to))
}

/// The truth that decides `&` and `|`, whatever the other side is.
fn deciding(op: &ElementwiseOp) -> Option<bool> {
    match op {
        ElementwiseOp::Binary { op: BinaryOp::And } => Some(false),
        ElementwiseOp::Binary { op: BinaryOp::Or } => Some(true),
        ElementwiseOp::Binary { .. }
        | ElementwiseOp::Unary { .. }
        | ElementwiseOp::FloatInt { .. }
        | ElementwiseOp::Compare { .. }
        | ElementwiseOp::Select
        | ElementwiseOp::Fma
        | ElementwiseOp::Cast { .. }
        | ElementwiseOp::Bitcast { .. } => None,
    }
}

/// Whether the operation takes subnormal numbers of f32 for zeros. One of another dtype than f32 is not kept from folding
/// by being asked.
fn flushes(func: &Func, op: &ElementwiseOp) -> bool {
    func.subnormals == Subnormals::Flushed
        && match op {
            ElementwiseOp::Unary { .. }
            | ElementwiseOp::Binary { .. }
            | ElementwiseOp::FloatInt { .. }
            | ElementwiseOp::Compare { .. }
            | ElementwiseOp::Fma
            | ElementwiseOp::Cast { .. } => true,
            ElementwiseOp::Select | ElementwiseOp::Bitcast { .. } => false,
        }
}

/// Whether a constant is subnormal as an f32, or may have been before it was rounded.
fn is_flushed(value: Literal) -> bool {
    let Literal::Float(bits) = value else { return false };
    let magnitude = f64::from_bits(bits).abs();
    magnitude > 0.0 && magnitude <= f64::from(f32::MIN_POSITIVE)
}

fn folded(
    func: &Func,
    op: &ElementwiseOp,
    operands: &[ValueId],
    values: &[Literal],
    dtype: DType,
) -> Option<(Literal, DType)> {
    match (op, values) {
        (ElementwiseOp::Unary { op }, &[a]) => num::unary(*op, dtype, a).map(|v| (v, dtype)),
        (ElementwiseOp::Binary { op }, &[a, b]) => num::binary(*op, dtype, a, b).map(|v| (v, dtype)),
        (ElementwiseOp::Compare { op }, &[a, b]) => num::compare(*op, a, b).map(|v| (Literal::Bool(v), DType::Bool)),
        (ElementwiseOp::Select, &[condition, a, b]) => {
            Some((num::select(condition, a, b)?, func.ty(*operands.get(1)?).dtype()?))
        }
        (ElementwiseOp::Fma, &[a, b, c]) => num::fma(dtype, a, b, c).map(|v| (v, dtype)),
        (ElementwiseOp::Cast { to: Dt::Known(to) }, &[a]) if *to == dtype => Some((a, dtype)),
        (ElementwiseOp::Cast { to: Dt::Known(to) }, &[a]) => Some((num::cast(a, *to), *to)),
        (ElementwiseOp::Bitcast { to: Dt::Known(to) }, &[a]) => num::bitcast(a, dtype, *to).map(|v| (v, *to)),
        (
            ElementwiseOp::Unary { .. }
            | ElementwiseOp::Binary { .. }
            | ElementwiseOp::FloatInt { .. }
            | ElementwiseOp::Compare { .. }
            | ElementwiseOp::Select
            | ElementwiseOp::Fma
            | ElementwiseOp::Cast { .. }
            | ElementwiseOp::Bitcast { .. },
            _,
        ) => None,
    }
}

/// What an operation's result is equal to.
enum Same {
    /// Another value of the same type.
    Value(ValueId),
    /// A constant, in every element.
    Constant(Literal),
}

fn replace_result(rewriter: &mut Rewriter<'_>, id: OpId, value: ValueId) -> Action {
    let result = rewriter.func.op(id).results.first().copied();
    match result {
        // At the placed level a value of another layout is another value.
        Some(result) if rewriter.func.value(result).layout == rewriter.func.value(value).layout => {
            rewriter.replace(result, value);
            Action::Remove
        }
        Some(_) | None => Action::Keep,
    }
}

/// Replaces the result by a constant of its shape.
fn fill(rewriter: &mut Rewriter<'_>, id: OpId, value: Literal) -> Result<Action> {
    let operation = rewriter.func.op(id);
    let span = operation.span;
    let Some(&result) = operation.results.first() else { return Ok(Action::Keep) };
    let Some(dtype) = rewriter.func.ty(result).dtype() else { return Ok(Action::Keep) };
    let mut cursor = rewriter.before(span);
    let new = cursor.constant(value, dtype)?;
    let new = cursor.splat_like(new, result)?;
    rewriter.replace(result, new);
    Ok(Action::Remove)
}

fn identity(func: &Func, operation: &Operation) -> Option<Same> {
    if let Op::Elementwise(op) = &operation.op {
        let single = |v: &ValueId| matches!(func.ty(*v).dtype(), Some(DType::F32 | DType::BF16));
        if flushes(func, op) && operation.operands.iter().chain(&operation.results).any(single) {
            return None;
        }
        return elementwise(func, op, &operation.operands);
    }
    if let Some(view::AddPtr { pointer, offset, .. }) = view::AddPtr::of(operation) {
        return (uniform_constant(func, offset)? == Literal::Int(0)).then_some(Same::Value(pointer));
    }
    let Some(view::Load { mask: Some(mask), other, .. }) = view::Load::of(operation) else { return None };
    // A load of nothing is `other`, or zero.
    if uniform_constant(func, mask)? != Literal::Bool(false) {
        return None;
    }
    match other {
        Some(other) => Some(Same::Value(other)),
        None => Some(Same::Constant(zero(func.ty(*operation.results.first()?).dtype()?))),
    }
}

fn zero(dtype: DType) -> Literal {
    if dtype == DType::Bool {
        Literal::Bool(false)
    } else if dtype.is_float() {
        Literal::float(0.0)
    } else {
        Literal::Int(0)
    }
}

fn elementwise(func: &Func, op: &ElementwiseOp, operands: &[ValueId]) -> Option<Same> {
    match (op, operands) {
        (ElementwiseOp::Unary { op: UnaryOp::Not | UnaryOp::Neg }, &[a]) => {
            // Twice the complement or negation is nothing.
            let inner = func.def_op(a)?;
            let same = inner.op == Op::Elementwise(op.clone());
            same.then(|| inner.operands.first().copied().map(Same::Value)).flatten()
        }
        (ElementwiseOp::Binary { op }, &[a, b]) => binary(func, *op, a, b),
        (ElementwiseOp::Compare { op }, &[a, b]) if a == b => {
            let float = func.ty(a).dtype().is_some_and(DType::is_float);
            let result = matches!(op, CmpOp::Eq | CmpOp::Le | CmpOp::Ge);
            (!float).then_some(Same::Constant(Literal::Bool(result)))
        }
        (ElementwiseOp::Select, &[condition, a, b]) => match uniform_constant(func, condition) {
            Some(Literal::Bool(true)) => Some(Same::Value(a)),
            Some(Literal::Bool(false)) => Some(Same::Value(b)),
            Some(Literal::Int(_) | Literal::Float(_)) | None => (a == b).then_some(Same::Value(a)),
        },
        (ElementwiseOp::Cast { to } | ElementwiseOp::Bitcast { to }, &[a]) => {
            if func.ty(a).dt() == Some(*to) {
                return Some(Same::Value(a));
            }
            round_trip(func, op, a, to.known()?)
        }
        (
            ElementwiseOp::Unary { .. }
            | ElementwiseOp::Binary { .. }
            | ElementwiseOp::FloatInt { .. }
            | ElementwiseOp::Compare { .. }
            | ElementwiseOp::Select
            | ElementwiseOp::Fma
            | ElementwiseOp::Cast { .. }
            | ElementwiseOp::Bitcast { .. },
            _,
        ) => None,
    }
}

/// A conversion that undoes one which lost nothing.
fn round_trip(func: &Func, op: &ElementwiseOp, value: ValueId, to: DType) -> Option<Same> {
    let inner = func.def_op(value)?;
    let source = *inner.operands.first()?;
    let (from, through) = (func.ty(source).dtype()?, func.ty(value).dtype()?);
    if from != to {
        return None;
    }
    let lossless = match (op, &inner.op) {
        (ElementwiseOp::Bitcast { .. }, Op::Elementwise(ElementwiseOp::Bitcast { .. })) => true,
        (ElementwiseOp::Cast { .. }, Op::Elementwise(ElementwiseOp::Cast { .. })) => widens(from, through),
        _ => false,
    };
    lossless.then_some(Same::Value(source))
}

/// Whether each value of `from` is a value of `to`, so that the way back gives it again.
fn widens(from: DType, to: DType) -> bool {
    if from.is_float() || to.is_float() {
        return match from {
            DType::F8E4M3 => matches!(to, DType::F16 | DType::BF16 | DType::F32 | DType::F64),
            // Its infinities do not come back.
            DType::F8E5M2 => false,
            DType::F16 | DType::BF16 => matches!(to, DType::F32 | DType::F64),
            DType::F32 => to == DType::F64,
            DType::F64
            | DType::Bool
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64 => false,
        };
    }
    from.is_int() && to.is_int() && to.bits() >= from.bits()
}

fn binary(func: &Func, op: BinaryOp, a: ValueId, b: ValueId) -> Option<Same> {
    let dtype = func.ty(a).dtype()?;
    let (left, right) = (uniform_constant(func, a), uniform_constant(func, b));
    if dtype.is_float() {
        // What an operation on these makes is finite, also of an infinity.
        return if dtype == DType::F8E5M2 { None } else { binary_float(op, a, b, left, right) };
    }
    if dtype == DType::Bool {
        return binary_bool(op, a, b, left, right);
    }
    let int = |literal: Option<Literal>| match literal {
        Some(Literal::Int(value)) => Some(value),
        Some(Literal::Bool(_) | Literal::Float(_)) | None => None,
    };
    let (left, right) = (int(left), int(right));
    let ones = if dtype.is_signed_int() { -1 } else { dtype.int_max() };
    let (zero, value) = (Same::Constant(Literal::Int(0)), Same::Value);
    match op {
        BinaryOp::Add => either(left, right, 0, a, b),
        BinaryOp::Sub if a == b => Some(zero),
        BinaryOp::Sub => (right == Some(0)).then_some(value(a)),
        BinaryOp::Mul if left == Some(0) || right == Some(0) => Some(zero),
        BinaryOp::Mul => either(left, right, 1, a, b),
        BinaryOp::Div if left == Some(0) || right == Some(0) => Some(zero),
        BinaryOp::Div => (right == Some(1)).then_some(value(a)),
        BinaryOp::Rem if right == Some(0) => Some(value(a)),
        BinaryOp::Rem => (right == Some(1) || left == Some(0)).then_some(zero),
        BinaryOp::Min | BinaryOp::Max | BinaryOp::MinNan | BinaryOp::MaxNan => (a == b).then_some(value(a)),
        BinaryOp::And if a == b => Some(value(a)),
        BinaryOp::And if left == Some(0) || right == Some(0) => Some(zero),
        BinaryOp::And => either(left, right, ones, a, b),
        BinaryOp::Or if a == b => Some(value(a)),
        BinaryOp::Or => either(left, right, 0, a, b),
        BinaryOp::Xor if a == b => Some(zero),
        BinaryOp::Xor => either(left, right, 0, a, b),
        BinaryOp::Shl | BinaryOp::Shr | BinaryOp::RotateLeft | BinaryOp::RotateRight if left == Some(0) => Some(zero),
        BinaryOp::Shl | BinaryOp::Shr | BinaryOp::RotateLeft | BinaryOp::RotateRight => {
            // Counts are taken modulo the width.
            (right? & i128::from(dtype.bits() - 1) == 0).then_some(value(a))
        }
        BinaryOp::Umulhi | BinaryOp::Mulhi => (left == Some(0) || right == Some(0)).then_some(zero),
        BinaryOp::SaturatingAdd => either(left, right, 0, a, b),
        BinaryOp::SaturatingMul if left == Some(0) || right == Some(0) => Some(zero),
        BinaryOp::SaturatingMul => either(left, right, 1, a, b),
        BinaryOp::SaturatingSub if a == b => Some(zero),
        BinaryOp::SaturatingSub => (right == Some(0)).then_some(value(a)),
        BinaryOp::DivRn | BinaryOp::CopySign | BinaryOp::NextAfter | BinaryOp::Math(_) => None,
    }
}

/// The other operand where one is the neutral element.
fn either(left: Option<i128>, right: Option<i128>, neutral: i128, a: ValueId, b: ValueId) -> Option<Same> {
    if right == Some(neutral) { Some(Same::Value(a)) } else { (left == Some(neutral)).then_some(Same::Value(b)) }
}

fn binary_bool(op: BinaryOp, a: ValueId, b: ValueId, left: Option<Literal>, right: Option<Literal>) -> Option<Same> {
    let is = |wanted: bool| {
        let wanted = Some(Literal::Bool(wanted));
        if right == wanted { Some((a, b)) } else { (left == wanted).then_some((b, a)) }
    };
    match op {
        BinaryOp::And | BinaryOp::Or if a == b => Some(Same::Value(a)),
        BinaryOp::Xor if a == b => Some(Same::Constant(Literal::Bool(false))),
        // The neutral constant leaves the other operand, the absorbing one itself.
        BinaryOp::And => {
            is(true).map(|(other, _)| Same::Value(other)).or_else(|| is(false).map(|(_, c)| Same::Value(c)))
        }
        BinaryOp::Or => {
            is(false).map(|(other, _)| Same::Value(other)).or_else(|| is(true).map(|(_, c)| Same::Value(c)))
        }
        BinaryOp::Xor => is(false).map(|(other, _)| Same::Value(other)),
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::DivRn
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::MinNan
        | BinaryOp::MaxNan
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Umulhi
        | BinaryOp::Mulhi
        | BinaryOp::RotateLeft
        | BinaryOp::RotateRight
        | BinaryOp::SaturatingAdd
        | BinaryOp::SaturatingSub
        | BinaryOp::SaturatingMul
        | BinaryOp::CopySign
        | BinaryOp::NextAfter
        | BinaryOp::Math(_) => None,
    }
}

fn binary_float(op: BinaryOp, a: ValueId, b: ValueId, left: Option<Literal>, right: Option<Literal>) -> Option<Same> {
    let is = |literal: Option<Literal>, value: f64| literal == Some(Literal::float(value));
    let (value, one) = (Same::Value, 1.0);
    match op {
        // -0.0 is neutral to addition; 0.0 is not, because -0.0 + 0.0 is 0.0.
        BinaryOp::Add if is(right, -0.0) => Some(value(a)),
        BinaryOp::Add => is(left, -0.0).then_some(value(b)),
        BinaryOp::Sub => is(right, 0.0).then_some(value(a)),
        BinaryOp::Mul if is(right, one) => Some(value(a)),
        BinaryOp::Mul => is(left, one).then_some(value(b)),
        BinaryOp::Div | BinaryOp::DivRn => is(right, one).then_some(value(a)),
        BinaryOp::Min | BinaryOp::Max | BinaryOp::MinNan | BinaryOp::MaxNan => (a == b).then_some(value(a)),
        BinaryOp::Rem
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Umulhi
        | BinaryOp::Mulhi
        | BinaryOp::RotateLeft
        | BinaryOp::RotateRight
        | BinaryOp::SaturatingAdd
        | BinaryOp::SaturatingSub
        | BinaryOp::SaturatingMul
        | BinaryOp::CopySign
        | BinaryOp::NextAfter
        | BinaryOp::Math(_) => None,
    }
}

/// A mask that is true everywhere is dropped; a store under a mask that is false everywhere is.
fn masks(rewriter: &mut Rewriter<'_>, id: OpId) -> Action {
    let operation = rewriter.func.op(id);
    let Op::Memory(op) = &operation.op else { return Action::Keep };
    let unmasked = match op {
        // Without a mask a check of bounds is one of all lanes, which is no simpler.
        MemoryOp::AddPtr | MemoryOp::CheckBounds { .. } => return Action::Keep,
        MemoryOp::Load { .. } | MemoryOp::Store { .. } | MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. } => {
            operation.op.mask()
        }
    };
    let Some(unmasked) = unmasked else { return Action::Keep };
    let stores = operation.results.is_empty();
    match operation.operands.get(unmasked).and_then(|&mask| uniform_constant(rewriter.func, mask)) {
        Some(Literal::Bool(true)) => {
            rewriter.func.ops[id.index()].operands.truncate(unmasked);
            rewriter.set_changed();
            Action::Keep
        }
        Some(Literal::Bool(false)) if stores => Action::Remove,
        Some(Literal::Bool(false) | Literal::Int(_) | Literal::Float(_)) | None => Action::Keep,
    }
}

fn control(rewriter: &mut Rewriter<'_>, id: OpId) -> Action {
    let func = &*rewriter.func;
    let operation = func.op(id);
    let Op::Control(op) = &operation.op else { return Action::Keep };
    match op {
        ControlOp::If => match operation.operands.first().and_then(|&c| constant(func, c)) {
            Some(Literal::Bool(true)) => operation.regions.first().map_or(Action::Keep, |&r| Action::Inline(r)),
            Some(Literal::Bool(false)) => operation.regions.get(1).map_or(Action::Keep, |&r| Action::Inline(r)),
            Some(Literal::Int(_) | Literal::Float(_)) | None => Action::Keep,
        },
        ControlOp::For { .. } => short_loop(rewriter, id),
        ControlOp::Assert { .. } => match operation.operands.first().and_then(|&c| uniform_constant(func, c)) {
            Some(Literal::Bool(true)) => Action::Remove,
            Some(Literal::Bool(false) | Literal::Int(_) | Literal::Float(_)) | None => Action::Keep,
        },
        ControlOp::While
        | ControlOp::Reduce { .. }
        | ControlOp::Scan { .. }
        | ControlOp::Map { .. }
        | ControlOp::Yield
        | ControlOp::Return
        | ControlOp::Print { .. }
        | ControlOp::StaticAssert { .. } => Action::Keep,
    }
}

/// A loop that runs never or once is no loop.
fn short_loop(rewriter: &mut Rewriter<'_>, id: OpId) -> Action {
    if rewriter.func.level == Level::Placed {
        // A carried value may have another layout than what initialises it.
        return Action::Keep;
    }
    let operation = rewriter.func.op(id).clone();
    let Some(iterations) = known_trip_count(rewriter.func, &operation) else { return Action::Keep };
    let (bounds, carried) = operation.operands.split_at(3);
    match (iterations, operation.regions.as_slice()) {
        (0, _) => {
            for (&result, &init) in operation.results.iter().zip(carried) {
                rewriter.replace(result, init);
            }
            Action::Remove
        }
        (1, &[region]) => {
            let args = rewriter.func.region(region).args.clone();
            for (arg, value) in args.into_iter().zip([bounds[0]].into_iter().chain(carried.iter().copied())) {
                rewriter.replace(arg, value);
            }
            Action::Inline(region)
        }
        _ => Action::Keep,
    }
}
