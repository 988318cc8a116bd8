//! Every elementwise operation, written from its definition.
//!
//! Integers are computed in 128 bits and wrapped; f16, bf16 and f32 in f64, of which one rounding gives the right
//! result for `+ - * /` and square roots of formats with at most 25 bits (Figueroa, "When is double rounding
//! innocuous?", 1995); f64 by the standard library and the crate `libm`.

use kernel_core::ir::{BinaryOp, CmpOp, DType, UnaryOp};
use kernel_core::math::{
    BinaryMathFn, FloatIntFn, FloatTy, MathFn, binary_ulp_bound, divide_ulp_bound, float_int_ulp_bound, ulp_bound_at,
};

use crate::data::{from_f64, from_int, is_nan, mask, to_f64, to_int};
use crate::expect::Answer;
use crate::rounding::{Format, fused, round, split};

fn float_ty(dtype: DType) -> FloatTy {
    match dtype {
        // Computed in f32 and rounded once, as f16, with fewer bits.
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 => FloatTy::F16,
        DType::BF16 => FloatTy::Bf16,
        DType::F32 => FloatTy::F32,
        DType::F64 => FloatTy::F64,
        other => panic!("{other} is no float"),
    }
}

/// The result of a unary operation.
pub fn unary(op: UnaryOp, dtype: DType, x: u64) -> Answer {
    if !dtype.is_float() {
        return Answer::Exactly(int_unary(op, dtype, x));
    }
    let v = to_f64(dtype, x);
    let sign = 1u64 << (dtype.bits() - 1);
    match op {
        UnaryOp::Neg => Answer::Exactly(x ^ sign),
        UnaryOp::Abs => Answer::Exactly(x & !sign),
        UnaryOp::Floor => Answer::Exactly(from_f64(dtype, v.floor())),
        UnaryOp::Ceil => Answer::Exactly(from_f64(dtype, v.ceil())),
        UnaryOp::Trunc => Answer::Exactly(from_f64(dtype, v.trunc())),
        UnaryOp::Round => Answer::Exactly(from_f64(dtype, v.round())),
        UnaryOp::RoundTiesEven => Answer::Exactly(from_f64(dtype, v.round_ties_even())),
        UnaryOp::SqrtRn => Answer::Exactly(from_f64(dtype, v.sqrt())),
        UnaryOp::Math(function) => Answer::Near(math_function(function, v), ulp_bound_at(function, float_ty(dtype), v)),
        UnaryOp::Not | UnaryOp::CountOnes | UnaryOp::LeadingZeros | UnaryOp::TrailingZeros | UnaryOp::ReverseBits => {
            panic!("{} is not defined for floats", op.name())
        }
    }
}

/// An elementary function, far closer to the exact value than any bound.
fn math_function(function: MathFn, x: f64) -> f64 {
    match function {
        MathFn::Sqrt => x.sqrt(),
        MathFn::Rsqrt => 1.0 / x.sqrt(),
        MathFn::Cbrt => x.cbrt(),
        MathFn::Exp => x.exp(),
        MathFn::Exp2 => x.exp2(),
        MathFn::Expm1 => x.exp_m1(),
        MathFn::Log => x.ln(),
        MathFn::Log2 => x.log2(),
        MathFn::Log1p => x.ln_1p(),
        MathFn::Sin => x.sin(),
        MathFn::Cos => x.cos(),
        // `libm` is off by 3 ulp.
        MathFn::Exp10 => 10.0_f64.powf(x),
        MathFn::Log10 => x.log10(),
        MathFn::Tan => x.tan(),
        MathFn::Asin => x.asin(),
        MathFn::Acos => x.acos(),
        MathFn::Atan => x.atan(),
        MathFn::Sinh => x.sinh(),
        MathFn::Cosh => x.cosh(),
        MathFn::Asinh => libm::asinh(x),
        // `libm` gives numbers for negative ones.
        MathFn::Acosh if x < 1.0 => f64::NAN,
        MathFn::Acosh => libm::acosh(x),
        MathFn::Atanh => libm::atanh(x),
        MathFn::Tanh => x.tanh(),
        // Below 1e-10 the cubic term is lost in rounding; `libm` is off by several ulps for tiny numbers.
        MathFn::Erf if x.abs() < 1e-10 => x * std::f64::consts::FRAC_2_SQRT_PI,
        MathFn::Erf => libm::erf(x),
        MathFn::Erfc => libm::erfc(x),
        MathFn::Erfinv => erfinv(x),
        MathFn::Lgamma => libm::lgamma(x),
        MathFn::Tgamma => libm::tgamma(x),
        MathFn::Sigmoid if x < 0.0 => x.exp() / (1.0 + x.exp()),
        MathFn::Sigmoid => 1.0 / (1.0 + (-x).exp()),
    }
}

/// By Newton's method upon `libm`, from the series for small numbers or the asymptote for large ones.
fn erfinv(x: f64) -> f64 {
    let magnitude = x.abs();
    if magnitude >= 1.0 || x.is_nan() {
        return if magnitude == 1.0 { f64::INFINITY.copysign(x) } else { f64::NAN };
    }
    if magnitude < 1e-10 {
        return x / std::f64::consts::FRAC_2_SQRT_PI;
    }
    let rest = 1.0 - magnitude;
    let mut z = if magnitude < 0.7 { magnitude * 0.89 } else { (-rest.ln()).sqrt() * 0.8 };
    for _ in 0..40 {
        // Of the logarithm of what is left of 1, which is nearly a parabola, where that is little.
        let slope = std::f64::consts::FRAC_2_SQRT_PI * (-z * z).exp();
        z += match magnitude < 0.7 {
            true => (magnitude - libm::erf(z)) / slope,
            false => (libm::erfc(z) / rest).ln() * libm::erfc(z) / slope,
        };
    }
    z.copysign(x)
}

fn int_unary(op: UnaryOp, dtype: DType, x: u64) -> u64 {
    let v = to_int(dtype, x);
    match op {
        UnaryOp::Neg => from_int(dtype, -v),
        UnaryOp::Abs => from_int(dtype, v.abs()),
        UnaryOp::Not => !x & mask(dtype),
        UnaryOp::CountOnes => (0..dtype.bits()).map(|bit| x >> bit & 1).sum(),
        UnaryOp::LeadingZeros => (0..dtype.bits()).rev().take_while(|bit| x >> bit & 1 == 0).count() as u64,
        UnaryOp::TrailingZeros => (0..dtype.bits()).take_while(|bit| x >> bit & 1 == 0).count() as u64,
        UnaryOp::ReverseBits => (0..dtype.bits()).fold(0, |reversed, bit| reversed << 1 | x >> bit & 1),
        UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Trunc
        | UnaryOp::Round
        | UnaryOp::RoundTiesEven
        | UnaryOp::SqrtRn
        | UnaryOp::Math(_) => {
            panic!("{} is not defined for integers", op.name())
        }
    }
}

/// The result of a binary operation.
pub fn binary(op: BinaryOp, dtype: DType, a: u64, b: u64) -> Answer {
    if dtype.is_float() { float_binary(op, dtype, a, b) } else { Answer::Exactly(int_binary(op, dtype, a, b)) }
}

fn float_binary(op: BinaryOp, dtype: DType, a: u64, b: u64) -> Answer {
    let (x, y) = (to_f64(dtype, a), to_f64(dtype, b));
    let exactly = |v: f64| Answer::Exactly(from_f64(dtype, v));
    // The bits of an operand, so that nothing is rounded; of two zeros either will do.
    // The result of an operation on 8-bit floats is never an infinity.
    let saturated = |bits: u64| if dtype.is_fp8() { from_f64(dtype, to_f64(dtype, bits)) } else { bits };
    let pick = |first: bool| Answer::UnsignedZero(saturated(if first { a } else { b }));
    let any_nan = x.is_nan() || y.is_nan();
    match op {
        BinaryOp::Add => exactly(x + y),
        BinaryOp::Sub => exactly(x - y),
        BinaryOp::Mul => exactly(x * y),
        BinaryOp::DivRn => exactly(x / y),
        BinaryOp::Div if dtype == DType::F64 => exactly(x / y),
        BinaryOp::Div => Answer::Near(x / y, divide_ulp_bound(float_ty(dtype))),
        BinaryOp::Rem => exactly(libm::fmod(x, y)),
        BinaryOp::Min => pick(y.is_nan() || x < y),
        BinaryOp::Max => pick(y.is_nan() || x > y),
        BinaryOp::MinNan | BinaryOp::MaxNan if any_nan => exactly(f64::NAN),
        BinaryOp::MinNan => pick(x < y),
        BinaryOp::MaxNan => pick(x > y),
        BinaryOp::CopySign => {
            let sign = 1u64 << (dtype.bits() - 1);
            Answer::Exactly(a & !sign | b & sign)
        }
        BinaryOp::NextAfter => Answer::Exactly(next_after(dtype, a, b)),
        BinaryOp::Math(function) => {
            Answer::Near(binary_function(function, x, y), binary_ulp_bound(function, float_ty(dtype)))
        }
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
        | BinaryOp::SaturatingMul => {
            panic!("{} is not defined for floats", op.name())
        }
    }
}

/// A function of two arguments; the platform's are within an ulp.
fn binary_function(function: BinaryMathFn, x: f64, y: f64) -> f64 {
    match function {
        BinaryMathFn::Pow => x.powf(y),
        BinaryMathFn::Atan2 => x.atan2(y),
        BinaryMathFn::Hypot => x.hypot(y),
    }
}

/// The neighbour among all bit patterns, which are in the order of the magnitudes.
fn next_after(dtype: DType, a: u64, b: u64) -> u64 {
    let (x, y) = (to_f64(dtype, a), to_f64(dtype, b));
    let sign = 1u64 << (dtype.bits() - 1);
    if x.is_nan() || y.is_nan() {
        return from_f64(dtype, f64::NAN);
    }
    let upwards = y > x;
    match () {
        () if x == y => b,
        () if x == 0.0 && upwards => 1,
        () if x == 0.0 => sign | 1,
        () if upwards == (a & sign == 0) => a + 1,
        () => a - 1,
    }
}

/// The result of an operation with a float and an i32.
pub fn float_int(op: FloatIntFn, dtype: DType, a: u64, n: i32) -> Answer {
    let x = to_f64(dtype, a);
    let value = match op {
        FloatIntFn::Powi => x.powf(f64::from(n)),
        FloatIntFn::Ldexp => libm::ldexp(x, n),
    };
    Answer::Near(value, float_int_ulp_bound(op, float_ty(dtype)))
}

fn int_binary(op: BinaryOp, dtype: DType, a: u64, b: u64) -> u64 {
    let (x, y) = (to_int(dtype, a), to_int(dtype, b));
    let wrap = |v: i128| from_int(dtype, v);
    let count = y.rem_euclid(i128::from(dtype.bits())) as u32;
    match op {
        BinaryOp::Add => wrap(x + y),
        BinaryOp::Sub => wrap(x - y),
        BinaryOp::Mul => wrap(x.wrapping_mul(y)),
        BinaryOp::Div => wrap(if y == 0 { 0 } else { x / y }),
        BinaryOp::Rem => wrap(if y == 0 { x } else { x % y }),
        BinaryOp::Min | BinaryOp::MinNan => wrap(x.min(y)),
        BinaryOp::Max | BinaryOp::MaxNan => wrap(x.max(y)),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => wrap(x << count),
        BinaryOp::Shr => wrap(x >> count),
        BinaryOp::Umulhi => ((u128::from(a) * u128::from(b)) >> dtype.bits()) as u64,
        BinaryOp::Mulhi if dtype.is_signed_int() => wrap((x * y) >> dtype.bits()),
        BinaryOp::Mulhi => int_binary(BinaryOp::Umulhi, dtype, a, b),
        BinaryOp::RotateRight => int_binary(BinaryOp::RotateLeft, dtype, a, from_int(dtype, -y)),
        BinaryOp::RotateLeft => {
            let high = a << count & mask(dtype);
            high | (u128::from(a) >> (dtype.bits() - count)) as u64
        }
        BinaryOp::SaturatingAdd => wrap((x + y).clamp(dtype.int_min(), dtype.int_max())),
        BinaryOp::SaturatingMul => wrap(x.saturating_mul(y).clamp(dtype.int_min(), dtype.int_max())),
        BinaryOp::SaturatingSub => wrap((x - y).clamp(dtype.int_min(), dtype.int_max())),
        BinaryOp::DivRn | BinaryOp::CopySign | BinaryOp::NextAfter | BinaryOp::Math(_) => {
            panic!("{} is not defined for integers", op.name())
        }
    }
}

/// The result of a comparison, 0 or 1.
pub fn compare(op: CmpOp, dtype: DType, a: u64, b: u64) -> u64 {
    let order = if dtype.is_float() {
        to_f64(dtype, a).partial_cmp(&to_f64(dtype, b))
    } else {
        Some(to_int(dtype, a).cmp(&to_int(dtype, b)))
    };
    u64::from(match op {
        CmpOp::Eq => order.is_some_and(|o| o.is_eq()),
        CmpOp::Ne => !order.is_some_and(|o| o.is_eq()),
        CmpOp::Lt => order.is_some_and(|o| o.is_lt()),
        CmpOp::Le => order.is_some_and(|o| o.is_le()),
        CmpOp::Gt => order.is_some_and(|o| o.is_gt()),
        CmpOp::Ge => order.is_some_and(|o| o.is_ge()),
    })
}

/// `a * b + c` rounded once; f16 and bf16 take the f32 result and round that.
pub fn fma(dtype: DType, a: u64, b: u64, c: u64) -> Answer {
    let (x, y, z) = (to_f64(dtype, a), to_f64(dtype, b), to_f64(dtype, c));
    if dtype == DType::F64 || !(x.is_finite() && y.is_finite() && z.is_finite()) {
        return Answer::Exactly(from_f64(dtype, x.mul_add(y, z)));
    }
    let single = fused(Format::of(DType::F32), x, y, z);
    Answer::Exactly(from_f64(dtype, to_f64(DType::F32, single)))
}

/// The conversion of an element, as Rust's `as`.
pub fn cast(from: DType, to: DType, x: u64) -> Answer {
    if from == to {
        return Answer::Exactly(x);
    }
    if is_nan(from, x) {
        return Answer::Exactly(match to {
            DType::Bool => 1,
            _ if to.is_float() => from_f64(to, f64::NAN),
            _ => 0,
        });
    }
    if !from.is_float() {
        let value = to_int(from, x);
        return Answer::Exactly(if to.is_float() {
            round(Format::of(to), value < 0, value.unsigned_abs(), 0)
        } else if to == DType::Bool {
            u64::from(value != 0)
        } else {
            from_int(to, value)
        });
    }
    let value = to_f64(from, x);
    Answer::Exactly(match to {
        DType::Bool => u64::from(value != 0.0),
        _ if to.is_float() && value.is_infinite() => from_f64(to, value),
        _ if to.is_float() => {
            let (negative, mantissa, exponent) = split(value);
            round(Format::of(to), negative, mantissa, exponent)
        }
        // i128 saturates far outside of every dtype.
        _ => from_int(to, (value as i128).clamp(to.int_min(), to.int_max())),
    })
}
