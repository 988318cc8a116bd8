//! What operations on constants give. `None` where the result is only known to within a bound (`exp`, `sin`),
//! or where the definition leaves a choice (the sign of `minimum(-0.0, 0.0)`).

use super::{from_bits, round, round_int, to_bits};
use crate::ir::{BinaryOp, CmpOp, DType, Literal, UnaryOp};
use crate::math::MathFn;

/// The integer modulo the width of an integer dtype.
pub fn wrap(value: i128, dtype: DType) -> i128 {
    let unused = 128 - dtype.bits();
    if dtype.is_signed_int() { value << unused >> unused } else { ((value as u128) << unused >> unused) as i128 }
}

/// The bits of an integer of that dtype.
fn unsigned(value: i128, dtype: DType) -> u128 {
    value as u128 & (u128::MAX >> (128 - dtype.bits()))
}

/// A float operation in the precision that the dtype computes in, then rounded to the dtype.
fn float(dtype: DType, single: impl FnOnce() -> f32, double: impl FnOnce() -> f64) -> Option<Literal> {
    match dtype {
        DType::F64 => Some(Literal::float(double())),
        DType::F32 | DType::F16 | DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => {
            Some(Literal::float(round(f64::from(single()), dtype)))
        }
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => None,
    }
}

/// The result of an elementwise operation with one operand.
pub fn unary(op: UnaryOp, dtype: DType, a: Literal) -> Option<Literal> {
    match a {
        Literal::Bool(a) => (op == UnaryOp::Not).then_some(Literal::Bool(!a)),
        Literal::Int(a) => {
            let bits = unsigned(a, dtype);
            let value = match op {
                UnaryOp::Neg => -a,
                UnaryOp::Abs => a.abs(),
                UnaryOp::Not => !a,
                UnaryOp::CountOnes => i128::from(bits.count_ones()),
                UnaryOp::LeadingZeros => i128::from(bits.leading_zeros() + dtype.bits() - 128),
                UnaryOp::TrailingZeros => i128::from(bits.trailing_zeros().min(dtype.bits())),
                UnaryOp::ReverseBits => (bits.reverse_bits() >> (128 - dtype.bits())) as i128,
                UnaryOp::Floor
                | UnaryOp::Ceil
                | UnaryOp::Trunc
                | UnaryOp::Round
                | UnaryOp::RoundTiesEven
                | UnaryOp::SqrtRn
                | UnaryOp::Math(_) => return None,
            };
            Some(Literal::Int(wrap(value, dtype)))
        }
        Literal::Float(bits) => {
            let a = f64::from_bits(bits);
            // Exact, but no operation gives an 8-bit float's infinity.
            let whole = |value| Some(Literal::float(round(value, dtype)));
            match op {
                // On the bits, so that NaNs behave as in hardware.
                UnaryOp::Neg => Some(Literal::Float(bits ^ 1 << 63)),
                UnaryOp::Abs => Some(Literal::Float(bits & !(1 << 63))),
                UnaryOp::Floor => whole(a.floor()),
                UnaryOp::Ceil => whole(a.ceil()),
                UnaryOp::Trunc => whole(a.trunc()),
                UnaryOp::Round => whole(a.round()),
                UnaryOp::RoundTiesEven => whole(a.round_ties_even()),
                UnaryOp::SqrtRn | UnaryOp::Math(MathFn::Sqrt) => float(dtype, || (a as f32).sqrt(), || a.sqrt()),
                // The others are known to within their bounds only.
                UnaryOp::Math(_) => None,
                UnaryOp::Not
                | UnaryOp::CountOnes
                | UnaryOp::LeadingZeros
                | UnaryOp::TrailingZeros
                | UnaryOp::ReverseBits => None,
            }
        }
    }
}

/// The result of an elementwise operation with two operands.
pub fn binary(op: BinaryOp, dtype: DType, a: Literal, b: Literal) -> Option<Literal> {
    match (a, b) {
        (Literal::Bool(a), Literal::Bool(b)) => match op {
            BinaryOp::And => Some(Literal::Bool(a & b)),
            BinaryOp::Or => Some(Literal::Bool(a | b)),
            BinaryOp::Xor => Some(Literal::Bool(a ^ b)),
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
        },
        (Literal::Int(a), Literal::Int(b)) => binary_int(op, dtype, a, b).map(|v| Literal::Int(wrap(v, dtype))),
        (Literal::Float(a), Literal::Float(b)) => binary_float(op, dtype, f64::from_bits(a), f64::from_bits(b)),
        (Literal::Bool(_) | Literal::Int(_) | Literal::Float(_), _) => None,
    }
}

fn binary_int(op: BinaryOp, dtype: DType, a: i128, b: i128) -> Option<i128> {
    let width = i128::from(dtype.bits());
    Some(match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        // The low 64 bits of the product are right even where u64 * u64 leaves i128.
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a.checked_div(b).unwrap_or(0),
        BinaryOp::Rem => a.checked_rem(b).unwrap_or(a),
        BinaryOp::DivRn | BinaryOp::CopySign | BinaryOp::NextAfter | BinaryOp::Math(_) => return None,
        BinaryOp::Min | BinaryOp::MinNan => a.min(b),
        BinaryOp::Max | BinaryOp::MaxNan => a.max(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a << (b & (width - 1)),
        BinaryOp::Shr => a >> (b & (width - 1)),
        BinaryOp::Umulhi => {
            let product = unsigned(a, dtype) * unsigned(b, dtype);
            (product >> dtype.bits()) as i128
        }
        // The product of two u64 may leave i128.
        BinaryOp::Mulhi if !dtype.is_signed_int() => return binary_int(BinaryOp::Umulhi, dtype, a, b),
        BinaryOp::Mulhi => (a * b) >> width,
        BinaryOp::RotateLeft => {
            let (bits, count) = (unsigned(a, dtype), b & (width - 1));
            (bits << count | bits >> (width - count)) as i128
        }
        BinaryOp::RotateRight => return binary_int(BinaryOp::RotateLeft, dtype, a, -b),
        BinaryOp::SaturatingAdd => (a + b).clamp(dtype.int_min(), dtype.int_max()),
        // The product of two u64 may leave i128.
        BinaryOp::SaturatingMul => a.saturating_mul(b).clamp(dtype.int_min(), dtype.int_max()),
        BinaryOp::SaturatingSub => (a - b).clamp(dtype.int_min(), dtype.int_max()),
    })
}

fn binary_float(op: BinaryOp, dtype: DType, a: f64, b: f64) -> Option<Literal> {
    let (x, y) = (a as f32, b as f32);
    match op {
        BinaryOp::Add => float(dtype, || x + y, || a + b),
        BinaryOp::Sub => float(dtype, || x - y, || a - b),
        BinaryOp::Mul => float(dtype, || x * y, || a * b),
        BinaryOp::Div | BinaryOp::DivRn => float(dtype, || x / y, || a / b),
        BinaryOp::Rem => float(dtype, || x % y, || a % b),
        // No operation gives an 8-bit float's infinity.
        BinaryOp::Min | BinaryOp::Max | BinaryOp::MinNan | BinaryOp::MaxNan if dtype.is_fp8() => {
            extreme(op, round(a, dtype), round(b, dtype))
        }
        BinaryOp::Min | BinaryOp::Max | BinaryOp::MinNan | BinaryOp::MaxNan => extreme(op, a, b),
        // On the bits, as negation.
        BinaryOp::CopySign => Some(Literal::float(a.copysign(b))),
        BinaryOp::And
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
        | BinaryOp::NextAfter
        | BinaryOp::Math(_) => None,
    }
}

fn extreme(op: BinaryOp, a: f64, b: f64) -> Option<Literal> {
    if a == 0.0 && b == 0.0 && a.to_bits() != b.to_bits() {
        return None;
    }
    let propagates = matches!(op, BinaryOp::MinNan | BinaryOp::MaxNan);
    let smaller = matches!(op, BinaryOp::Min | BinaryOp::MinNan);
    let value = match (a.is_nan(), b.is_nan()) {
        (true, true) => a,
        (true, false) => {
            if propagates {
                a
            } else {
                b
            }
        }
        (false, true) => {
            if propagates {
                b
            } else {
                a
            }
        }
        (false, false) => {
            if (a < b) == smaller {
                a
            } else {
                b
            }
        }
    };
    Some(Literal::float(value))
}

/// The result of a comparison.
pub fn compare(op: CmpOp, a: Literal, b: Literal) -> Option<bool> {
    let ordering = match (a, b) {
        (Literal::Bool(a), Literal::Bool(b)) => Some(a.cmp(&b)),
        (Literal::Int(a), Literal::Int(b)) => Some(a.cmp(&b)),
        (Literal::Float(a), Literal::Float(b)) => f64::from_bits(a).partial_cmp(&f64::from_bits(b)),
        (Literal::Bool(_) | Literal::Int(_) | Literal::Float(_), _) => return None,
    };
    Some(match op {
        CmpOp::Eq => ordering.is_some_and(|o| o.is_eq()),
        CmpOp::Ne => ordering.is_none_or(|o| o.is_ne()),
        CmpOp::Lt => ordering.is_some_and(|o| o.is_lt()),
        CmpOp::Le => ordering.is_some_and(|o| o.is_le()),
        CmpOp::Gt => ordering.is_some_and(|o| o.is_gt()),
        CmpOp::Ge => ordering.is_some_and(|o| o.is_ge()),
    })
}

/// `a` where the condition holds, else `b`.
pub fn select(condition: Literal, a: Literal, b: Literal) -> Option<Literal> {
    match condition {
        Literal::Bool(true) => Some(a),
        Literal::Bool(false) => Some(b),
        Literal::Int(_) | Literal::Float(_) => None,
    }
}

/// `a * b + c` with one rounding in the precision that the dtype computes in: `f16` and `bf16` are rounded from that `f32`,
/// as on a GPU.
pub fn fma(dtype: DType, a: Literal, b: Literal, c: Literal) -> Option<Literal> {
    let (Literal::Float(a), Literal::Float(b), Literal::Float(c)) = (a, b, c) else { return None };
    let (a, b, c) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
    float(dtype, || (a as f32).mul_add(b as f32, c as f32), || a.mul_add(b, c))
}

/// The conversion of a constant from one dtype to another, as Rust's `as`, with one rounding.
pub fn cast(value: Literal, to: DType) -> Literal {
    match value {
        Literal::Bool(b) if to == DType::Bool => Literal::Bool(b),
        Literal::Bool(b) => cast(Literal::Int(i128::from(b)), to),
        Literal::Int(i) if to == DType::Bool => Literal::Bool(i != 0),
        Literal::Int(i) if to.is_int() => Literal::Int(wrap(i, to)),
        Literal::Int(i) => Literal::float(round_int(i, to)),
        Literal::Float(bits) => {
            let float = f64::from_bits(bits);
            if to == DType::Bool {
                Literal::Bool(float != 0.0)
            } else if to.is_int() {
                // `as` truncates, saturates at i128 and makes 0 of NaN; the clamp saturates at the dtype.
                Literal::Int((float as i128).clamp(to.int_min(), to.int_max()))
            } else {
                Literal::float(round(float, to))
            }
        }
    }
}

/// The same bits in another dtype of the same width.
pub fn bitcast(value: Literal, from: DType, to: DType) -> Option<Literal> {
    if from.bits() != to.bits() {
        return None;
    }
    to_bits(value, from).map(|bits| from_bits(bits, to))
}

/// The bits of the float next to the first of two on the way to the second, given the bits of both, their values and
/// how wide they are; the second where they are equal, and NaN where one is.
#[cfg(feature = "interp")]
pub(crate) fn next_after([a, b]: [u64; 2], [x, y]: [f64; 2], width: u32) -> u64 {
    if x.is_nan() {
        a
    } else if x == y || y.is_nan() {
        b
    } else if x == 0.0 {
        b & 1 << (width - 1) | 1
    } else if (x < y) == (x > 0.0) {
        a + 1
    } else {
        a - 1
    }
}
