//! The f64 functions: correctly rounded arithmetic and fma polynomials, nothing else.
//!
//! There is no special function unit for f64, so these are the same bits on every machine. Each
//! states its largest error, which [`ulp_bound`](super::ulp_bound) holds as data. None has a
//! branch. The polynomials are minimax fits, by Remez's algorithm, to the weighted error named
//! beside them; the forms that keep rounding errors small follow Sun's fdlibm.

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
use super::machine::{Angle, Machine, Reduced, polynomial};
use super::reduction::{self, DOUBLE_ROUNDER};
use super::scaling;
use super::{BinaryMathFn, FloatIntFn, MathFn};

/// log2(e) rounded to f64.
const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// What rounding [`LOG2_E`] lost.
const LOG2_E_LOW: f64 = 2.0355273740931033e-17;
/// ln(2) rounded to f64.
const LN_2: f64 = std::f64::consts::LN_2;
/// What rounding [`LN_2`] lost.
const LN_2_LOW: f64 = 2.3190468138462996e-17;
/// ln(2) cut to 33 bits: its product with any exponent is exact.
const LN_2_SHORT: f64 = 0.6931471804855391;
/// ln(2) - [`LN_2_SHORT`].
const LN_2_SHORT_REST: f64 = 7.440617110012397e-11;
/// The exponent bias of f64.
const BIAS: i64 = 1023;
/// Bits below the exponent.
const FIELD: u32 = 52;

/// Applies `function` to one f64.
#[inline]
pub fn apply<M: Machine<Scalar = f64>>(m: &M, function: MathFn, x: M::Float) -> M::Float {
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
        MathFn::Asin => inverse::asin(m, &inverse::DOUBLE, x),
        MathFn::Acos => inverse::acos(m, &inverse::DOUBLE, x),
        MathFn::Atan => inverse::atan(m, &inverse::DOUBLE, x),
        MathFn::Sinh => hyperbolic::sinh(m, x),
        MathFn::Cosh => hyperbolic::cosh(m, x),
        MathFn::Tanh => tanh(m, x),
        MathFn::Asinh => area::asinh(m, &area::DOUBLE, x, |u| log1p(m, u)),
        MathFn::Acosh => area::acosh(m, &area::DOUBLE, x, |u| log1p(m, u)),
        MathFn::Atanh => area::atanh(m, &area::DOUBLE, x, |u| log1p(m, u)),
        MathFn::Erf => erf(m, x),
        MathFn::Erfc => complement::erfc(m, x),
        MathFn::Erfinv => inverse_error::erfinv(m, x),
        MathFn::Lgamma => gamma::lgamma(m, x),
        MathFn::Tgamma => gamma::tgamma(m, x),
        MathFn::Sigmoid => sigmoid(m, x),
        MathFn::Cbrt => cube_root::cbrt(m, x),
        MathFn::Sqrt => m.sqrt(x),
        MathFn::Rsqrt => m.div(m.float(1.0), m.sqrt(x)),
    }
}

/// Applies `function` to two f64.
#[inline]
pub fn apply_binary<M: Machine<Scalar = f64>>(m: &M, function: BinaryMathFn, x: M::Float, y: M::Float) -> M::Float {
    match function {
        BinaryMathFn::Pow => power::pow(m, x, y),
        BinaryMathFn::Atan2 => angle::atan2(m, &inverse::DOUBLE, x, y),
        BinaryMathFn::Hypot => hypotenuse::hypot(m, &hypotenuse::DOUBLE, x, y),
    }
}

/// Applies `function` to an f64 and an integer of its width that an i32 holds.
#[inline]
pub fn apply_float_int<M: Machine<Scalar = f64>>(m: &M, function: FloatIntFn, x: M::Float, n: M::Int) -> M::Float {
    match function {
        FloatIntFn::Powi => power::powi(m, x, n),
        FloatIntFn::Ldexp => scaling::ldexp(m, &scaling::DOUBLE, x, n),
    }
}

/// a / b, correctly rounded.
#[inline]
pub fn divide<M: Machine<Scalar = f64>>(m: &M, a: M::Float, b: M::Float) -> M::Float {
    m.div(a, b)
}

/// (e^r - 1 - r) / r² for |r| ≤ ln(2)/2, to 2^-60 of e^r - 1.
const EXP: [f64; 11] = [
    0.5,
    0.16666666666666677,
    0.04166666666666652,
    0.00833333333332166,
    0.001388888888895915,
    0.00019841269886038416,
    2.480158717851961e-5,
    2.7557244304850526e-6,
    2.755739777949149e-7,
    2.5109002272471584e-8,
    2.0876766071868716e-9,
];

/// e^x as 2^power · (1 + fraction).
struct Power<M: Machine> {
    power: M::Int,
    fraction: M::Float,
}

/// e^(high + low) - 1 for |high| ≤ ln(2)/2.
#[inline]
fn exp_minus_one<M: Machine<Scalar = f64>>(m: &M, high: M::Float, low: M::Float) -> M::Float {
    let square = m.mul(high, high);
    m.add(high, m.fma(polynomial(m, high, &EXP), square, low))
}

/// Splits e^x, for |x| < 2^31.
#[inline]
fn exp_split<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> Power<M> {
    let rounder = m.float(DOUBLE_ROUNDER);
    let rounded = m.fma(x, m.float(LOG2_E), rounder);
    let power = m.sub(rounded, rounder);
    // x - power · ln 2 as high + low; power · LN_2_SHORT is exact.
    let start = m.fma(power, m.float(-LN_2_SHORT), x);
    let high = m.fma(power, m.float(-LN_2_SHORT_REST), start);
    let low = m.fma(power, m.float(-LN_2_SHORT_REST), m.sub(start, high));
    Power { power: rounded_to_int(m, rounded), fraction: exp_minus_one(m, high, low) }
}

/// The integer in the low bits of a number to which [`DOUBLE_ROUNDER`] was added.
#[inline]
fn rounded_to_int<M: Machine<Scalar = f64>>(m: &M, rounded: M::Float) -> M::Int {
    m.isub(m.to_bits(rounded), m.int(DOUBLE_ROUNDER.to_bits() as i64))
}

/// 2^power · (1 + fraction), rounding once where that is subnormal, for |power| ≤ 2000.
#[inline]
fn scale<M: Machine<Scalar = f64>>(m: &M, Power { power, fraction }: Power<M>) -> M::Float {
    scale_number(m, m.add(m.float(1.0), fraction), power)
}

/// value · 2^power, as [`scale`].
#[inline]
fn scale_number<M: Machine<Scalar = f64>>(m: &M, value: M::Float, power: M::Int) -> M::Float {
    // 2^power itself may be out of range, so it comes in two halves.
    let half = m.ashr_by(power, 1);
    let rest = m.isub(power, half);
    let value = m.mul(value, power_of_two(m, half));
    m.mul(value, power_of_two(m, rest))
}

/// 2^power for a power of a normal number.
#[inline]
fn power_of_two<M: Machine<Scalar = f64>>(m: &M, power: M::Int) -> M::Float {
    m.from_bits(m.shl_by(m.iadd(power, m.int(BIAS)), FIELD))
}

/// `result`, or the argument itself if that is a NaN, which a clamp would have swallowed.
#[inline]
fn or_nan<M: Machine<Scalar = f64>>(m: &M, x: M::Float, result: M::Float) -> M::Float {
    m.select(m.eq(x, x), result, x)
}

/// e^x within 1 ulp.
#[inline]
pub fn exp<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    // Beyond these the result is infinite or zero anyway.
    let clamped = m.max(m.min(x, m.float(710.0)), m.float(-746.0));
    or_nan(m, x, scale(m, exp_split(m, clamped)))
}

/// 2^x within 1 ulp.
#[inline]
pub fn exp2<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    let clamped = m.max(m.min(x, m.float(1025.0)), m.float(-1080.0));
    let rounder = m.float(DOUBLE_ROUNDER);
    let rounded = m.add(clamped, rounder);
    let rest = m.sub(clamped, m.sub(rounded, rounder));
    // rest · ln 2 as high + low.
    let high = m.mul(rest, m.float(LN_2));
    let low = m.fma(rest, m.float(LN_2), m.neg(high));
    let low = m.fma(rest, m.float(LN_2_LOW), low);
    let fraction = exp_minus_one(m, high, low);
    or_nan(m, x, scale(m, Power { power: rounded_to_int(m, rounded), fraction }))
}

/// e^x - 1 within 2 ulp, also of tiny x.
#[inline]
pub fn expm1<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    // Below -38 the result rounds to -1, above 710 it is infinite.
    let clamped = m.max(m.min(x, m.float(710.0)), m.float(-38.0));
    let Power { power, fraction } = exp_split(m, clamped);
    // Half of 2^power · (1 + fraction) - 1, because 2^1024 is no number.
    let half = power_of_two(m, m.isub(power, m.int(1)));
    let result = m.fma(half, fraction, m.sub(half, m.float(0.5)));
    let result = m.add(result, result);
    // Halves of subnormal numbers lose a bit, and the sum the sign of -0. NaN compares false and stays NaN.
    m.select(m.lt(m.float(EXPM1_IS_X), m.abs(x)), result, x)
}

/// 2^-54: up to here e^x - 1 rounds to x.
const EXPM1_IS_X: f64 = 1.0 / 18014398509481984.0;

/// 1 / (1 + e^-x) within 3 ulp, also where it is tiny.
#[inline]
pub fn sigmoid<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    // With e = e^-|x|, which cannot overflow: 1/(1+e) for x ≥ 0, e/(1+e) below.
    let one = m.float(1.0);
    let clamped = m.max(m.neg(m.abs(x)), m.float(-746.0));
    let e = scale(m, exp_split(m, clamped));
    let numerator = m.select(m.lt(x, m.float(0.0)), e, one);
    or_nan(m, x, m.div(numerator, m.add(one, e)))
}

/// tanh(x) within 3 ulp.
#[inline]
pub fn tanh<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    // t/(t + 2) with t = e^2|x| - 1, which keeps its accuracy near zero. tanh(22) rounds to 1.
    let one = m.float(1.0);
    let bounded = m.min(m.abs(x), m.float(22.0));
    let Power { power, fraction } = exp_split(m, m.add(bounded, bounded));
    let scale = power_of_two(m, power);
    let t = m.fma(scale, fraction, m.sub(scale, one));
    let result = m.div(t, m.add(t, m.float(2.0)));
    or_nan(m, x, m.copysign(result, x))
}

/// (2·atanh s - 2s) / s³ in s², for |s| ≤ 0.1717, to 2^-59 of s²/2.
const LOG: [f64; 7] = [
    0.6666666666666735,
    0.3999999999940746,
    0.28571428744146804,
    0.22222198377993072,
    0.18183575188635484,
    0.1531375519331945,
    0.14799071671830266,
];

/// The logarithm of 1 + f, for √½ ≤ 1 + f < √2, in fdlibm's form
/// f - (half_square - s·(half_square + R)), with s = f/(2 + f).
struct LogParts<M: Machine> {
    exponent: M::Float,
    f: M::Float,
    s: M::Float,
    half_square: M::Float,
    correction: M::Float,
}

/// Splits a positive, finite number; anything else gives anything.
#[inline]
fn log_parts<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> LogParts<M> {
    let tiny = m.lt(x, m.float(f64::MIN_POSITIVE));
    let x = m.select(tiny, m.mul(x, m.float(18014398509481984.0)), x);
    let correction = m.iselect(tiny, m.int(-54), m.int(0));
    let power = exponent_of(m, x);
    let mantissa = m.from_bits(m.isub(m.to_bits(x), m.shl_by(power, FIELD)));
    let exponent = m.from_int(m.iadd(power, correction));
    let f = m.sub(mantissa, m.float(1.0));
    log_parts_of(m, exponent, f)
}

/// The exponent of a positive, normal number, with its mantissa between √½ and √2.
#[inline]
fn exponent_of<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Int {
    // The distance from √½ in bit patterns has the exponent in its upper bits.
    let root = std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64;
    m.ashr_by(m.isub(m.to_bits(x), m.int(root)), FIELD)
}

/// The parts of log(2^exponent · (1 + f)).
#[inline]
fn log_parts_of<M: Machine<Scalar = f64>>(m: &M, exponent: M::Float, f: M::Float) -> LogParts<M> {
    // log(1 + f) = 2·atanh(s).
    let s = m.div(f, m.add(f, m.float(2.0)));
    let square = m.mul(s, s);
    let tail = m.mul(polynomial(m, square, &LOG), square);
    let half_square = m.mul(m.mul(f, f), m.float(0.5));
    let correction = m.mul(s, m.add(half_square, tail));
    LogParts { exponent, f, s, half_square, correction }
}

/// The sum of the parts, for the natural logarithm.
#[inline]
fn log_of_parts<M: Machine<Scalar = f64>>(m: &M, parts: LogParts<M>) -> M::Float {
    let LogParts { exponent, f, half_square, correction, .. } = parts;
    let small = m.fma(exponent, m.float(LN_2_SHORT_REST), correction);
    let small = m.sub(m.sub(half_square, small), f);
    m.fma(exponent, m.float(LN_2_SHORT), m.neg(small))
}

/// The natural logarithm within 1 ulp.
#[inline]
pub fn log<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    let parts = log_parts(m, x);
    log_of_specials(m, x, log_of_parts(m, parts))
}

/// The natural logarithm of 1 + x within 1 ulp, also of tiny x.
#[inline]
pub fn log1p<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    // 1 + x is rounded, which gives its exponent and says where the logarithm is no number, but has lost digits of x.
    let sum = m.add(x, m.float(1.0));
    let power = exponent_of(m, sum);
    let field = m.shl_by(power, FIELD);
    // 2^-power · (1 + x) - 1 as f + low: the first term moves the exponent of x, the other is exact up to where it
    // rounds to -1. A quarter goes round 2^-1024, which is subnormal.
    let scaled = m.from_bits(m.isub(m.to_bits(x), field));
    let four = m.from_bits(m.isub(m.int(4.0_f64.to_bits() as i64), field));
    let rest = m.fma(four, m.float(0.25), m.float(-1.0));
    // The rest is no smaller than the first term, or the sum is exact: either way so is its error.
    let f = m.add(scaled, rest);
    let low = m.sub(scaled, m.sub(f, rest));
    let parts = log_parts_of(m, m.from_int(power), f);
    // log(1 + f + low) - log(1 + f) = low/(1 + f), and 1/(1 + f) = (1 - s)/(1 + s), of which 1 - 2s is enough.
    let twice = m.add(parts.s, parts.s);
    let low = m.fma(m.neg(low), twice, low);
    let parts = LogParts { correction: m.add(parts.correction, low), ..parts };
    let result = log_of_specials(m, sum, log_of_parts(m, parts));
    // The sum loses the sign of -0.
    m.copysign(result, x)
}

/// The logarithm to base 2 within 1 ulp, exact on powers of two.
#[inline]
pub fn log2<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    let LogParts { exponent, f, half_square, correction, .. } = log_parts(m, x);
    // The natural logarithm as high + low, times log2 e as high + low.
    let high = m.sub(f, half_square);
    let low = m.add(m.sub(m.sub(f, high), half_square), correction);
    let log2_e = m.float(LOG2_E);
    let product = m.mul(high, log2_e);
    let rest = m.fma(high, log2_e, m.neg(product));
    let rest = m.fma(high, m.float(LOG2_E_LOW), rest);
    let rest = m.fma(low, log2_e, rest);
    // The exponent is zero or the larger, so this sum's error is exact.
    let sum = m.add(exponent, product);
    let sum_error = m.add(m.sub(exponent, sum), product);
    log_of_specials(m, x, m.add(sum, m.add(rest, sum_error)))
}

/// Corrects the logarithm of zero (-∞), negative numbers (NaN), ∞ (∞) and NaN (NaN).
#[inline]
fn log_of_specials<M: Machine<Scalar = f64>>(m: &M, x: M::Float, result: M::Float) -> M::Float {
    let zero = m.float(0.0);
    let infinity = m.float(f64::INFINITY);
    let nonpositive = m.select(m.eq(x, zero), m.float(f64::NEG_INFINITY), m.float(f64::NAN));
    let result = m.select(m.lt(zero, x), result, nonpositive);
    m.select(m.eq(x, infinity), infinity, result)
}

/// (erf x - x) / x in x², for |x| ≤ 1, to 2^-55.4 of erf x.
const ERF_SMALL: [f64; 12] = [
    0.12837916709551256,
    -0.3761263890318352,
    0.11283791670944185,
    -0.026866170643111375,
    0.005223977606117622,
    -0.0008548325929271266,
    0.00012055293575565593,
    -1.4924712275839424e-5,
    1.6447131244259964e-6,
    -1.6206311236325717e-7,
    1.3710969460200471e-8,
    -7.779448093089368e-10,
];
/// e^(x²) · erfc x in (x - 2)/(x + 2), for 1 ≤ x ≤ 6, to 2^-58 of e^(x²).
const ERFC_SCALED: [f64; 14] = [
    0.25539567631050575,
    -0.42718584741395826,
    0.2416581942424582,
    -0.07897858101587535,
    0.0037328924051636602,
    0.006997461763515393,
    -0.0008471431958241443,
    -0.0009819781249306853,
    4.354936590974581e-5,
    0.00017436940458441026,
    2.7666193401911692e-5,
    -2.7312799985548314e-5,
    -1.4599499720946505e-5,
    -1.6213741914355942e-6,
];

/// erf(x) within 1.5 ulp.
#[inline]
pub fn erf<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    let square = m.mul(x, x);
    let small = m.fma(polynomial(m, square, &ERF_SMALL), x, x);
    // erfc(6) is below half an ulp of 1.
    let one = m.float(1.0);
    let two = m.float(2.0);
    let magnitude = m.abs(x);
    let bounded = m.min(magnitude, m.float(6.0));
    let variable = m.div(m.sub(bounded, two), m.add(bounded, two));
    let scaled = polynomial(m, variable, &ERFC_SCALED);
    let gauss = scale(m, exp_split(m, m.neg(m.mul(bounded, bounded))));
    let large = m.fma(m.neg(gauss), scaled, one);
    let large = m.copysign(large, x);
    // NaN compares false and stays NaN in the polynomial.
    m.select(m.lt(one, magnitude), large, small)
}

/// (sin r - r) / r³ in r², for |r| ≤ π/4, to 2^-56.4 of sin r.
const SIN: [f64; 6] = [
    -0.1666666666666663,
    0.008333333333322118,
    -0.00019841269829589214,
    2.7557313621252162e-6,
    -2.5050747740502437e-8,
    1.589622882450469e-10,
];
/// (cos r - 1 + r²/2) / r⁴ in r², for |r| ≤ π/4, to 2^-59.7 of cos r.
const COS: [f64; 6] = [
    0.041666666666666595,
    -0.0013888888888873056,
    2.4801587288851524e-5,
    -2.755731417923732e-7,
    2.0875700833094806e-9,
    -1.1358536031323607e-11,
];

/// The short reduction of an angle, with which [`sin`] and [`cos`] begin.
#[inline]
pub fn angle<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> Angle<M> {
    reduction::double(m, x)
}

/// The reduction of an angle that is [`huge`](Angle::huge).
#[inline]
pub fn huge_angle<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> Reduced<M> {
    reduction::double_huge(m, x)
}

/// x, reduced one way or the other.
#[inline]
fn reduced<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> Reduced<M> {
    let Angle { usual, huge } = angle(m, x);
    m.rarely(huge, usual, || huge_angle(m, x))
}

/// sin(x) within 1 ulp for every finite x.
#[inline]
pub fn sin<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    sin_of_reduced(m, x, reduced(m, x))
}

/// cos(x) within 1 ulp for every finite x.
#[inline]
pub fn cos<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    cos_of_reduced(m, reduced(m, x))
}

/// sin(x), given x reduced.
#[inline]
pub fn sin_of_reduced<M: Machine<Scalar = f64>>(m: &M, x: M::Float, reduced: Reduced<M>) -> M::Float {
    let result = sin_of_quadrant(m, reduced);
    // The reduction loses the sign of -0.
    m.select(m.eq(x, m.float(0.0)), x, result)
}

/// cos(x), given x reduced.
#[inline]
pub fn cos_of_reduced<M: Machine<Scalar = f64>>(m: &M, reduced: Reduced<M>) -> M::Float {
    let quadrant = m.iadd(reduced.quadrant, m.int(1));
    sin_of_quadrant(m, Reduced { quadrant, ..reduced })
}

/// Sine and cosine of what remains of a reduced angle.
#[inline]
fn waves<M: Machine<Scalar = f64>>(m: &M, angle: Reduced<M>) -> (M::Float, M::Float) {
    let Reduced { high: r, low, .. } = angle;
    let square = m.mul(r, r);
    let half_square = m.mul(square, m.float(0.5));
    // sin(r + low) = r + (r³·S + low·(1 - r²/2)).
    let sin_tail = m.mul(m.mul(square, r), polynomial(m, square, &SIN));
    let low_cos = m.fma(m.neg(half_square), low, low);
    let sin = m.add(r, m.add(sin_tail, low_cos));
    // cos(r + low) = w + ((1 - w - r²/2) + r⁴·C - r·low), w being 1 - r²/2 rounded.
    let one = m.float(1.0);
    let w = m.sub(one, half_square);
    let w_error = m.sub(m.sub(one, w), half_square);
    let cos_tail = m.mul(m.mul(square, square), polynomial(m, square, &COS));
    let cos_tail = m.fma(m.neg(r), low, cos_tail);
    let cos = m.add(w, m.add(w_error, cos_tail));
    (sin, cos)
}

/// The sine of a reduced angle.
#[inline]
fn sin_of_quadrant<M: Machine<Scalar = f64>>(m: &M, angle: Reduced<M>) -> M::Float {
    let quadrant = angle.quadrant;
    let (sin, cos) = waves(m, angle);
    let even = m.ieq(m.and(quadrant, m.int(1)), m.int(0));
    let result = m.select(even, sin, cos);
    let sign = m.shl_by(m.and(quadrant, m.int(2)), 62);
    m.from_bits(m.xor(m.to_bits(result), sign))
}

/// tan(x) within 3 ulp for every finite x.
#[inline]
pub fn tan<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    tan_of_reduced(m, x, reduced(m, x))
}

/// tan(x), given x reduced.
#[inline]
pub fn tan_of_reduced<M: Machine<Scalar = f64>>(m: &M, x: M::Float, reduced: Reduced<M>) -> M::Float {
    let quadrant = reduced.quadrant;
    let (sin, cos) = waves(m, reduced);
    let even = m.ieq(m.and(quadrant, m.int(1)), m.int(0));
    let result = m.div(m.select(even, sin, m.neg(cos)), m.select(even, cos, sin));
    // The reduction loses the sign of -0.
    m.select(m.eq(x, m.float(0.0)), x, result)
}
