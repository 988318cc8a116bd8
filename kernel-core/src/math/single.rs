//! The f32 functions: the special function unit where it is accurate enough, fma polynomials
//! elsewhere.
//!
//! Each function states its cost in instructions of a GPU (PTX instructions, constants not
//! counted) and its largest error, which [`ulp_bound_at`](super::ulp_bound_at) holds as data. None has
//! a branch. The polynomials are minimax fits, by Remez's algorithm, to the weighted error named
//! beside them.

mod complement;
mod cube_root;
mod decimal;
mod gamma;
mod hyperbolic;
mod inverse_error;
mod power;

use super::angle;
use super::area;
use super::hypotenuse;
use super::inverse;
use super::machine::{Angle, FastMachine, Machine, Reduced, polynomial};
use super::reduction::{self, SINGLE_ROUNDER};
use super::scaling;
use super::{BinaryMathFn, FloatIntFn, MathFn};

/// log2(e) rounded to f32.
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// What rounding [`LOG2_E`] lost.
const LOG2_E_LOW: f32 = 1.925963e-8;
/// ln(2) rounded to f32.
const LN_2: f32 = std::f32::consts::LN_2;
/// What rounding [`LN_2`] lost.
const LN_2_LOW: f32 = -1.9046543e-9;
/// The exponent bias of f32.
const BIAS: f32 = 127.0;
/// Bits below the exponent.
const FIELD: u32 = 23;

/// Applies `function` to one f32.
#[inline]
pub fn apply<M: FastMachine>(m: &M, function: MathFn, x: M::Float) -> M::Float {
    match function {
        MathFn::Exp => exp(m, x),
        MathFn::Exp2 => exp2(m, x),
        MathFn::Exp10 => decimal::exp10(m, x),
        MathFn::Expm1 => expm1(m, x),
        MathFn::Log => log(m, x),
        MathFn::Log2 => log2(m, x),
        MathFn::Log10 => decimal::log10(m, x),
        MathFn::Log1p => log1p(m, x),
        MathFn::Sin => sin(m, x),
        MathFn::Cos => cos(m, x),
        MathFn::Tan => tan(m, x),
        MathFn::Asin => inverse::asin(m, &inverse::SINGLE, x),
        MathFn::Acos => inverse::acos(m, &inverse::SINGLE, x),
        MathFn::Atan => inverse::atan(m, &inverse::SINGLE, x),
        MathFn::Sinh => hyperbolic::sinh(m, x),
        MathFn::Cosh => hyperbolic::cosh(m, x),
        MathFn::Tanh => tanh(m, x),
        MathFn::Asinh => area::asinh(m, &area::SINGLE, x, |u| log1p(m, u)),
        MathFn::Acosh => area::acosh(m, &area::SINGLE, x, |u| log1p(m, u)),
        MathFn::Atanh => area::atanh(m, &area::SINGLE, x, |u| log1p(m, u)),
        MathFn::Erf => erf(m, x),
        MathFn::Erfc => complement::erfc(m, x),
        MathFn::Erfinv => inverse_error::erfinv(m, x),
        MathFn::Lgamma => gamma::lgamma(m, x),
        MathFn::Tgamma => gamma::tgamma(m, x),
        MathFn::Sigmoid => sigmoid(m, x),
        MathFn::Cbrt => cube_root::cbrt(m, x),
        MathFn::Sqrt => m.sqrt_approx(x),
        MathFn::Rsqrt => m.rsqrt_approx(x),
    }
}

/// Applies `function` to two f32.
#[inline]
pub fn apply_binary<M: Machine<Scalar = f32>>(m: &M, function: BinaryMathFn, x: M::Float, y: M::Float) -> M::Float {
    match function {
        BinaryMathFn::Pow => power::pow(m, x, y),
        BinaryMathFn::Atan2 => angle::atan2(m, &inverse::SINGLE, x, y),
        BinaryMathFn::Hypot => hypotenuse::hypot(m, &hypotenuse::SINGLE, x, y),
    }
}

/// Applies `function` to an f32 and an integer of its width that an i32 holds.
#[inline]
pub fn apply_float_int<M: Machine<Scalar = f32>>(m: &M, function: FloatIntFn, x: M::Float, n: M::Int) -> M::Float {
    match function {
        FloatIntFn::Powi => power::powi(m, x, n),
        FloatIntFn::Ldexp => scaling::ldexp(m, &scaling::SINGLE, x, n),
    }
}

/// a / b within 2 ulp: one `div.full`.
#[inline]
pub fn divide<M: FastMachine>(m: &M, a: M::Float, b: M::Float) -> M::Float {
    m.div_full(a, b)
}

/// 2^x within 2 ulp: one `ex2.approx`.
#[inline]
pub fn exp2<M: FastMachine>(m: &M, x: M::Float) -> M::Float {
    m.ex2_approx(x)
}

/// e^x within 2 + 1.25·|x| ulp: 2 instructions, one of them `ex2`.
///
/// The instruction computes powers of two, so e^x is 2^(x · log2 e), and what the product loses
/// is multiplied by ln 2 into the result's *relative* error:
///
/// - rounding the product moves the exponent by at most 2^-24 · |x| · log2 e, which is
///   2^-24 · |x| of the result;
/// - log2 e rounded to f32 is off by 1.93e-8, which is 0.224 · 2^-24 · |x| of the result.
///
/// Just below a power of two an ulp is 2^-24 of a number, so together they are 1.224 · |x| ulp
/// at most, beside the 2 of `ex2` (CUDA states the same of its `__expf`). That is nothing near
/// zero, where exponentials are large parts of sums, and 112 ulp, a relative error of 7e-6, at
/// the ends of the range. Doing better takes nine instructions (`exp_nonpositive`), which is
/// what a softmax over memory would then spend its time on.
///
/// Nothing else needs care: the product of ±∞ is ±∞, `ex2` of which is ∞ or 0, it overflows and
/// underflows where e^x does, and `ex2` keeps subnormal results.
#[inline]
pub fn exp<M: FastMachine>(m: &M, x: M::Float) -> M::Float {
    m.ex2_approx(m.mul(x, m.float(LOG2_E)))
}

/// e^x for x ≤ 0 within 2.1 ulp: 8 instructions, for [`sigmoid`], whose tail it is.
///
/// The integer part of x · log2 e goes into the exponent, and the fraction, formed with a log2 e
/// of 48 bits, into `ex2`. The last multiplication makes subnormal results, rounding once, so the
/// cheaper flushing `ex2` serves.
#[inline]
fn exp_nonpositive<M: FastMachine>(m: &M, x: M::Float) -> M::Float {
    // Only the integer part needs the clamp; the fraction may grow, even to infinity.
    let clamped = m.max(x, m.float(-87.0));
    // The sum's low bits are the biased exponent of 2^integer.
    let rounder = m.float(SINGLE_ROUNDER + BIAS);
    let rounded = m.fma(clamped, m.float(LOG2_E), rounder);
    let integer = m.sub(rounded, rounder);
    let fraction = m.fma(x, m.float(LOG2_E), m.neg(integer));
    let fraction = m.fma(x, m.float(LOG2_E_LOW), fraction);
    let scale = m.from_bits(m.shl_by(m.to_bits(rounded), FIELD));
    m.mul(m.ex2_approx_ftz(fraction), scale)
}

/// (e^r - 1 - r) / r² for |r| ≤ ln(2)/2, to 2^-28.8 of e^r - 1.
const EXPM1: [f32; 6] = [0.5, 0.16666666, 0.041666362, 0.00833339, 0.0013940628, 0.00019845879];

/// e^x - 1 within 2 ulp, also of tiny x: 19 instructions.
///
/// `ex2` loses the digits that the subtraction leaves, so this is a polynomial over the whole range.
#[inline]
pub fn expm1<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Float {
    // Below -18 the result rounds to -1, above 89 it is infinite.
    let clamped = m.max(m.min(x, m.float(89.0)), m.float(-18.0));
    // The sum's low bits are the biased exponent of 2^(integer - 1): 2^128 is no number.
    let rounder = m.float(SINGLE_ROUNDER + BIAS - 1.0);
    let rounded = m.fma(clamped, m.float(LOG2_E), rounder);
    let integer = m.sub(rounded, rounder);
    let half = m.from_bits(m.shl_by(m.to_bits(rounded), FIELD));
    let rest = m.fma(integer, m.float(-LN_2), clamped);
    let rest = m.fma(integer, m.float(-LN_2_LOW), rest);
    let square = m.mul(rest, rest);
    let fraction = m.fma(polynomial(m, rest, &EXPM1), square, rest);
    // Half of 2^integer · (1 + fraction) - 1.
    let result = m.fma(half, fraction, m.sub(half, m.float(0.5)));
    let result = m.add(result, result);
    // Halves of subnormal numbers lose a bit, and the sum the sign of -0. NaN compares false and stays NaN.
    m.select(m.lt(m.float(EXPM1_IS_X), m.abs(x)), result, x)
}

/// 2^-25: up to here e^x - 1 rounds to x.
const EXPM1_IS_X: f32 = 1.0 / 33554432.0;

/// 1 / (1 + e^-x) within 4.5 ulp, also where it is tiny: 15 instructions, two of them `ex2` and
/// `rcp`. Within 2.5 ulp if those two are correctly rounded: where the result has just left the
/// binade of e^x, an error of `ex2` counts twice.
#[inline]
pub fn sigmoid<M: FastMachine>(m: &M, x: M::Float) -> M::Float {
    // With e = e^-|x|, which cannot overflow: 1/(1+e) for x ≥ 0, e/(1+e) below.
    let e = exp_nonpositive(m, m.neg(m.abs(x)));
    let one = m.float(1.0);
    let denominator = m.add(one, e);
    let numerator = m.select(m.lt(x, m.float(0.0)), e, one);
    // One Newton step on the quotient: the two units are busy for longer than it takes.
    let reciprocal = m.rcp_approx_ftz(denominator);
    let quotient = m.mul(numerator, reciprocal);
    let remainder = m.fma(m.neg(quotient), denominator, numerator);
    m.fma(remainder, reciprocal, quotient)
}

/// (tanh x - x) / x³ in x², for |x| ≤ 0.6, to 2^-27.7 of tanh x.
const TANH: [f32; 5] = [-0.333333, 0.13331924, -0.053783827, 0.020795954, -0.00589514];

/// tanh(x) within 2.5 ulp: 15 instructions, two of them `ex2` and `rcp`.
#[inline]
pub fn tanh<M: FastMachine>(m: &M, x: M::Float) -> M::Float {
    let magnitude = m.abs(x);
    // 1 - 2/(e^2|x| + 1): both ends of the range come out right, through ex2 = ∞ and rcp = 0.
    let e = m.ex2_approx_ftz(m.mul(magnitude, m.float(2.0 * LOG2_E)));
    let reciprocal = m.rcp_approx_ftz(m.add(e, m.float(1.0)));
    let large = m.fma(reciprocal, m.float(-2.0), m.float(1.0));
    // Near zero that cancels.
    let square = m.mul(x, x);
    let cubic = m.mul(polynomial(m, square, &TANH), square);
    let small = m.fma(cubic, magnitude, magnitude);
    // NaN compares false and stays NaN in the polynomial.
    let result = m.select(m.lt(m.float(0.6), magnitude), large, small);
    m.copysign(result, x)
}

/// (erf x - x) / x in x², for |x| ≤ 1, to 2^-29.4 of erf x.
const ERF_SMALL: [f32; 7] =
    [0.12837917, -0.37612626, 0.11283579, -0.026853347, 0.005187162, -0.0007997853, 7.806903e-5];
/// log2(erfc x) / x, for 1 ≤ x ≤ 4, to 2^-26.6 of erf x.
const ERFC_EXPONENT: [f32; 6] = [-1.6280525, -0.917311, -0.15165041, 0.032891154, -0.0045977673, 0.0003038908];

/// erf(x) within 2 ulp: 20 instructions, one of them `ex2`.
#[inline]
pub fn erf<M: FastMachine>(m: &M, x: M::Float) -> M::Float {
    let square = m.mul(x, x);
    let small = m.fma(polynomial(m, square, &ERF_SMALL), x, x);
    // erfc(4) is below half an ulp of 1.
    let magnitude = m.abs(x);
    let bounded = m.min(magnitude, m.float(4.0));
    let exponent = m.mul(polynomial(m, bounded, &ERFC_EXPONENT), bounded);
    let large = m.sub(m.float(1.0), m.ex2_approx_ftz(exponent));
    let large = m.copysign(large, x);
    m.select(m.lt(m.float(1.0), magnitude), large, small)
}

/// (log(1 + f) - f + f²/2) / f³, for |f| ≤ 1/3, to 2^-27.5 of log(1 + f).
const LOG: [f32; 8] =
    [0.33333215, -0.24999797, 0.20010427, -0.16680516, 0.14005499, -0.12183805, 0.13986446, -0.12893875];
/// (log2(1 + f) - f · LOG2_E) / f², for |f| ≤ 1/3, to 2^-25.9 of log2(1 + f).
const LOG2: [f32; 9] =
    [-0.7213475, 0.48090193, -0.36067525, 0.28846535, -0.24047782, 0.20516089, -0.17800704, 0.18820032, -0.17665917];

/// The natural logarithm within 2 ulp: 27 instructions.
///
/// `lg2.approx` is off by 2^-22 of its result, or by 2^-22.6 near one, where the result goes to
/// zero: too much for both.
#[inline]
pub fn log<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Float {
    let parts = split(m, x);
    log_of_specials(m, x, log_of_split(m, parts))
}

/// The natural logarithm of 1 + x within 2 ulp, also of tiny x: 27 instructions.
#[inline]
pub fn log1p<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Float {
    // 1 + x is rounded, which gives its exponent and says where the logarithm is no number, but has lost digits of x.
    let sum = m.add(x, m.float(1.0));
    let scale = exponent_field(m, sum);
    // 2^-exponent · (1 + x) - 1, rounding once: the first term moves the exponent of x, the other is exact up to where
    // it rounds to -1. A quarter goes round 2^-128, which is subnormal.
    let scaled = m.from_bits(m.isub(m.to_bits(x), scale));
    let four = m.from_bits(m.isub(m.int(i64::from(4.0_f32.to_bits())), scale));
    let excess = m.add(scaled, m.fma(four, m.float(0.25), m.float(-1.0)));
    let exponent = m.mul(m.from_int(scale), m.float(1.0 / 8388608.0));
    let result = log_of_specials(m, sum, log_of_split(m, Split { exponent, excess }));
    // The sum loses the sign of -0.
    m.copysign(result, x)
}

/// log(2^exponent · (1 + excess)).
#[inline]
fn log_of_split<M: Machine<Scalar = f32>>(m: &M, Split { exponent, excess }: Split<M>) -> M::Float {
    let square = m.mul(excess, excess);
    let tail = polynomial(m, excess, &LOG);
    let tail = m.fma(tail, excess, m.float(-0.5));
    let mantissa = m.fma(tail, square, excess);
    m.fma(exponent, m.float(LN_2), mantissa)
}

/// The logarithm to base 2 within 2 ulp, exact on powers of two: 28 instructions.
#[inline]
pub fn log2<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Float {
    let Split { exponent, excess } = split(m, x);
    let square = m.mul(excess, excess);
    let tail = m.mul(polynomial(m, excess, &LOG2), square);
    let mantissa = m.fma(excess, m.float(LOG2_E), tail);
    log_of_specials(m, x, m.add(exponent, mantissa))
}

/// A positive number as 2^exponent · (1 + excess), with |excess| ≤ 1/3.
struct Split<M: Machine> {
    exponent: M::Float,
    excess: M::Float,
}

/// A positive number whose bits have an exponent, and what that lacks.
#[inline]
fn normal<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> (M::Float, M::Float) {
    if !m.keeps_subnormals() {
        return (x, m.float(0.0));
    }
    let tiny = m.lt(x, m.float(f32::MIN_POSITIVE));
    let number = m.select(tiny, m.mul(x, m.float(8388608.0)), x);
    (number, m.select(tiny, m.float(-23.0), m.float(0.0)))
}

/// Splits a positive, finite number; anything else gives anything.
#[inline]
fn split<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> Split<M> {
    let (x, correction) = normal(m, x);
    let scale = exponent_field(m, x);
    let mantissa = m.from_bits(m.isub(m.to_bits(x), scale));
    let exponent = m.fma(m.from_int(scale), m.float(1.0 / 8388608.0), correction);
    Split { exponent, excess: m.sub(mantissa, m.float(1.0)) }
}

/// The exponent of a positive, normal number, above the bits of the fraction.
#[inline]
fn exponent_field<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Int {
    // The distance from 2/3 in bit patterns has the exponent in its upper bits.
    let distance = m.isub(m.to_bits(x), m.int(i64::from((2.0_f32 / 3.0).to_bits())));
    m.and(distance, m.int(!((1 << FIELD) - 1)))
}

/// Corrects the logarithm of zero (-∞), negative numbers (NaN), ∞ (∞) and NaN (NaN).
#[inline]
fn log_of_specials<M: Machine<Scalar = f32>>(m: &M, x: M::Float, result: M::Float) -> M::Float {
    let zero = m.float(0.0);
    let infinity = m.float(f32::INFINITY);
    let nonpositive = m.select(m.eq(x, zero), m.float(f32::NEG_INFINITY), m.float(f32::NAN));
    let result = m.select(m.lt(zero, x), result, nonpositive);
    m.select(m.eq(x, infinity), infinity, result)
}

/// (sin r - r) / r³ in r², for |r| ≤ π/4, to 2^-27.9 of sin r.
const SIN: [f32; 3] = [-0.16666655, 0.008332187, -0.00019517895];
/// (cos r - 1 + r²/2) / r⁴ in r², for |r| ≤ π/4, to 2^-33 of cos r.
const COS: [f32; 3] = [0.041666646, -0.001388731, 2.4432327e-5];

/// The short reduction of an angle, with which [`sin`] and [`cos`] begin.
#[inline]
pub fn angle<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> Angle<M> {
    reduction::single(m, x)
}

/// The reduction of an angle that is [`huge`](Angle::huge).
#[inline]
pub fn huge_angle<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> Reduced<M> {
    reduction::single_huge(m, x)
}

/// x, reduced one way or the other.
#[inline]
fn reduced<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> Reduced<M> {
    let Angle { usual, huge } = angle(m, x);
    m.rarely(huge, usual, || huge_angle(m, x))
}

/// sin(x) within 2 ulp for every finite x: 109 instructions, of which a machine that branches in
/// [`Machine::rarely`] skips 82 unless |x| > 65536.
#[inline]
pub fn sin<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Float {
    sin_of_reduced(m, x, reduced(m, x))
}

/// cos(x) within 2 ulp for every finite x: 108 instructions, 82 of them rare as for [`sin`].
#[inline]
pub fn cos<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Float {
    cos_of_reduced(m, reduced(m, x))
}

/// sin(x), given x reduced.
#[inline]
pub fn sin_of_reduced<M: Machine<Scalar = f32>>(m: &M, x: M::Float, reduced: Reduced<M>) -> M::Float {
    let result = sin_of_quadrant(m, reduced.high, reduced.quadrant);
    // The polynomial loses the sign of -0.
    m.select(m.eq(x, m.float(0.0)), x, result)
}

/// cos(x), given x reduced.
#[inline]
pub fn cos_of_reduced<M: Machine<Scalar = f32>>(m: &M, reduced: Reduced<M>) -> M::Float {
    let quadrant = m.iadd(reduced.quadrant, m.int(1));
    sin_of_quadrant(m, reduced.high, quadrant)
}

/// sin(quadrant · π/2 + r): one polynomial whose coefficients depend on the quadrant.
#[inline]
fn sin_of_quadrant<M: Machine<Scalar = f32>>(m: &M, r: M::Float, quadrant: M::Int) -> M::Float {
    let even = m.ieq(m.and(quadrant, m.int(1)), m.int(0));
    let either = |sin: f32, cos: f32| m.select(even, m.float(sin), m.float(cos));
    let square = m.mul(r, r);
    // r + r·r²·(S0 + S1 r² + S2 r⁴), or 1 + r²·(-1/2 + C0 r² + C1 r⁴ + C2 r⁶).
    let sum = either(0.0, COS[2]);
    let sum = m.fma(sum, square, either(SIN[2], COS[1]));
    let sum = m.fma(sum, square, either(SIN[1], COS[0]));
    let sum = m.fma(sum, square, either(SIN[0], -0.5));
    let base = m.select(even, r, m.float(1.0));
    let result = m.fma(sum, m.mul(base, square), base);
    let sign = m.shl_by(m.and(quadrant, m.int(2)), 30);
    m.from_bits(m.xor(m.to_bits(result), sign))
}

/// tan(x) within 3 ulp for every finite x: 107 instructions, 82 of them rare as for [`sin`].
#[inline]
pub fn tan<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Float {
    tan_of_reduced(m, x, reduced(m, x))
}

/// tan(x), given x reduced.
#[inline]
pub fn tan_of_reduced<M: Machine<Scalar = f32>>(m: &M, x: M::Float, reduced: Reduced<M>) -> M::Float {
    let Reduced { high: r, quadrant, .. } = reduced;
    let square = m.mul(r, r);
    let tan = m.fma(m.mul(polynomial(m, square, &TAN), square), r, r);
    // The tangent, or a quarter turn on -1/tan.
    let one = m.float(1.0);
    let even = m.ieq(m.and(quadrant, m.int(1)), m.int(0));
    let result = m.div(m.select(even, tan, m.float(-1.0)), m.select(even, one, tan));
    // The reduction loses the sign of -0.
    m.select(m.eq(x, m.float(0.0)), x, result)
}

/// (tan r - r) / r³ in r², for |r| ≤ π/4, to 2^-29.5 of tan r.
const TAN: [f32; 7] = [0.3333335, 0.13332663, 0.05405993, 0.021282135, 0.010835937, 8.939133e-5, 0.004376341];
