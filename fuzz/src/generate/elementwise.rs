//! One element at a time: arithmetic, comparisons, selections, conversions.

use kernel_core::ir::{BinaryOp, CmpOp, DType, ElementwiseOp, Op, UnaryOp, ValueId};

use super::features::Feature;
use super::memory::store_output;
use super::some_dtype;
use super::writer::Writer;
use crate::facts::Fact;
use kernel_core::math::{
    BinaryMathFn, FloatIntFn, FloatTy, MathFn, binary_ulp_bound, divide_ulp_bound, float_int_ulp_bound, ulp_bound,
};

/// Operations with one operand whose bits are fixed.
const UNARY: [UnaryOp; 12] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Not,
    UnaryOp::Floor,
    UnaryOp::Ceil,
    UnaryOp::Trunc,
    UnaryOp::Round,
    UnaryOp::RoundTiesEven,
    UnaryOp::CountOnes,
    UnaryOp::LeadingZeros,
    UnaryOp::TrailingZeros,
    UnaryOp::ReverseBits,
];
/// Operations that integers have.
const INTEGERS: [BinaryOp; 19] = [
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Div,
    BinaryOp::Rem,
    BinaryOp::Min,
    BinaryOp::Max,
    BinaryOp::And,
    BinaryOp::Or,
    BinaryOp::Xor,
    BinaryOp::Shl,
    BinaryOp::Shr,
    BinaryOp::Umulhi,
    BinaryOp::Mulhi,
    BinaryOp::RotateLeft,
    BinaryOp::RotateRight,
    BinaryOp::SaturatingAdd,
    BinaryOp::SaturatingSub,
    BinaryOp::SaturatingMul,
];
/// Operations that floats have, by how often they are wanted.
const FLOATS: [BinaryOp; 13] = [
    BinaryOp::Add,
    BinaryOp::Add,
    BinaryOp::Sub,
    BinaryOp::Mul,
    BinaryOp::Mul,
    BinaryOp::Min,
    BinaryOp::Max,
    BinaryOp::MinNan,
    BinaryOp::MaxNan,
    BinaryOp::Rem,
    BinaryOp::DivRn,
    BinaryOp::CopySign,
    BinaryOp::NextAfter,
];

/// One random operation.
pub fn step(w: &mut Writer) -> Option<ValueId> {
    let a = if w.random.chance(20) { w.find(|_, _| true)? } else { w.some_tile() };
    let (dtype, shape) = (w.dtype(a), w.shape(a));
    let value = match w.random.below(12) {
        0 => {
            let op = w.random.pick(&UNARY);
            w.unary(op, a)
        }
        1 | 2 => {
            let b = w.like(dtype, &shape);
            let op = w.random.pick(CmpOp::ALL);
            w.compare(op, a, b)
        }
        3 | 4 => {
            let condition = w.like(DType::Bool, &shape);
            let b = w.like(dtype, &shape);
            w.select(condition, a, b)
        }
        5 | 6 => {
            let to = some_dtype(&mut w.random);
            Some(w.cast(a, to))
        }
        7 if dtype.is_float() => {
            let (b, c) = (w.like(dtype, &shape), w.like(dtype, &shape));
            w.emit(ElementwiseOp::Fma, &[a, b, c])
        }
        7 => bitcast(w, a, dtype),
        _ => {
            let b = w.like(dtype, &shape);
            let op = match dtype {
                DType::Bool => w.random.pick(&[BinaryOp::And, BinaryOp::Or, BinaryOp::Xor]),
                _ if dtype.is_float() => w.random.pick(&FLOATS),
                _ => w.random.pick(&INTEGERS),
            };
            w.binary(op, a, b)
        }
    }?;
    Some(w.keep(value))
}

fn bitcast(w: &mut Writer, a: ValueId, dtype: DType) -> Option<ValueId> {
    let same: Vec<DType> =
        DType::ALL.into_iter().filter(|d| d.bits() == dtype.bits() && *d != dtype && d.is_int()).collect();
    if same.is_empty() {
        return None;
    }
    let to = w.random.pick(&same);
    w.emit(ElementwiseOp::Bitcast { to: to.into() }, &[a])
}

/// Stores an elementary function, or a quotient, of an exact value; the output has the function's own bound.
pub fn rough(w: &mut Writer) -> Option<()> {
    let exact = |w: &Writer, value| {
        let fact: Fact = w.fact(value);
        let plain = matches!(w.dtype(value), DType::F16 | DType::BF16 | DType::F32 | DType::F64);
        plain
            && !fact.special
            && !fact.has_open_zero()
            && fact.step.is_some_and(|step| step >= -4)
            && fact.magnitude() <= 16.0
    };
    let value = w.find(exact)?;
    let dtype = w.dtype(value);
    let ty = match dtype {
        DType::F16 => FloatTy::F16,
        DType::BF16 => FloatTy::Bf16,
        DType::F64 => FloatTy::F64,
        _ => FloatTy::F32,
    };
    let shape = w.shape(value);
    let (op, operands, bound) = match w.random.below(10) {
        0 | 1 => (Op::binary(BinaryOp::Div), vec![value, w.filled(3.0, dtype, &shape)], divide_ulp_bound(ty)),
        2 | 3 => {
            let function = w.random.pick(BinaryMathFn::ALL);
            let other = w.filled(2.5, dtype, &shape);
            (Op::binary(BinaryOp::Math(function)), vec![value, other], binary_ulp_bound(function, ty))
        }
        4 => {
            let function = w.random.pick(FloatIntFn::ALL);
            let n = w.filled(-3.0, DType::I32, &shape);
            (ElementwiseOp::FloatInt { op: function }.into(), vec![value, n], float_int_ulp_bound(function, ty))
        }
        _ => {
            let function = w.random.pick(MathFn::ALL);
            (Op::unary(UnaryOp::Math(function)), vec![value], ulp_bound(function, ty))
        }
    };
    let result = w.raw(op, &operands, &[])?[0];
    w.has(Feature::Rough);
    w.know(result, Fact::any(dtype));
    // Each of two ways may be off by the bound, and the distance is counted from a rounded result.
    store_output(w, result, Some(2.0 * bound + 0.5));
    Some(())
}
