//! Powers.

use super::super::power::{SINGLE, of_magnitude, of_magnitude_to_integer, with_infinities};
use super::{FIELD, LN_2, Machine, SINGLE_ROUNDER, normal, polynomial};

/// 2·log2(e) rounded to f32.
const TWICE_LOG2_E: f32 = 2.88539;
/// What rounding [`TWICE_LOG2_E`] lost.
const TWICE_LOG2_E_LOW: f32 = 3.851926e-8;
/// A third of 2·log2(e) rounded to f32.
const CUBIC: f32 = 0.9617967;
/// (atanh q - q) / q³ · 2·log2(e) - [`CUBIC`] in q², for |q| ≤ 0.1717, to 2^-36 of atanh q.
const LOG2: [f32; 4] = [CUBIC_LOW, 0.57708025, 0.41184703, 0.33788523];
/// What rounding [`CUBIC`] lost.
const CUBIC_LOW: f32 = -7.028462e-9;
/// (2^f - 1) / f, for |f| ≤ 1/2, to 2^-29 of 2^f.
const EXP2: [f32; 6] = [LN_2, 0.2402265, 0.055503264, 0.009618002, 0.0013400805, 0.00015476886];
/// Beyond this exponent a power of two is infinite or zero.
const LARGEST_EXPONENT: f32 = 200.0;

/// The logarithm of a positive, finite number to base 2, as high + low, to 2^-33 of it.
#[inline]
pub(super) fn log2<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> (M::Float, M::Float) {
    let (x, correction) = normal(m, x);
    // The distance from √½ in bit patterns has the exponent in its upper bits.
    let root = i64::from(std::f32::consts::FRAC_1_SQRT_2.to_bits());
    let field = m.and(m.isub(m.to_bits(x), m.int(root)), m.int(!((1 << FIELD) - 1)));
    let exponent = m.fma(m.from_int(field), m.float(1.0 / 8388608.0), correction);
    let excess = m.sub(m.from_bits(m.isub(m.to_bits(x), field)), m.float(1.0));
    // log2(1 + f) = 2·log2 e · atanh q, with q = f/(f + 2) as q + q_low. The difference f - 2q is exact.
    let reciprocal = m.div(m.float(1.0), m.add(excess, m.float(2.0)));
    let q = m.mul(excess, reciprocal);
    let rest = m.fma(q, m.float(-2.0), excess);
    let q_low = m.mul(reciprocal, m.fma(m.neg(q), excess, rest));
    let square = m.mul(q, q);
    let high = m.mul(q, m.float(TWICE_LOG2_E));
    let low = m.fma(q, m.float(TWICE_LOG2_E), m.neg(high));
    let low = m.fma(q, m.float(TWICE_LOG2_E_LOW), low);
    let low = m.fma(q_low, m.float(TWICE_LOG2_E), low);
    // The cube with twice the digits, of which the first term takes all.
    let cube = m.mul(q, square);
    let square_low = m.fma(m.add(q, q), q_low, m.fma(q, q, m.neg(square)));
    let cube_low = m.fma(q, square_low, m.fma(q_low, square, m.fma(q, square, m.neg(cube))));
    let low = m.fma(cube, polynomial(m, square, &LOG2), m.fma(cube_low, m.float(CUBIC), low));
    let term = m.mul(cube, m.float(CUBIC));
    let low = m.add(low, m.fma(cube, m.float(CUBIC), m.neg(term)));
    let start = m.add(high, term);
    let rest = m.add(m.add(m.sub(high, start), term), low);
    let mantissa = m.add(start, rest);
    let low = m.add(m.sub(start, mantissa), rest);
    // The exponent is zero or the larger.
    let sum = m.add(exponent, mantissa);
    (sum, m.add(m.add(m.sub(exponent, sum), mantissa), low))
}

/// 2^power for a power of a normal number.
#[inline]
fn power_of_two<M: Machine<Scalar = f32>>(m: &M, power: M::Int) -> M::Float {
    m.from_bits(m.shl_by(m.iadd(power, m.int(127)), FIELD))
}

/// 2^(product + product_low) as a number near 1 and a power of two; of what is beyond the range, only the first counts.
#[inline]
pub(super) fn exp2_of_sum<M: Machine<Scalar = f32>>(
    m: &M,
    product: M::Float,
    product_low: M::Float,
) -> (M::Float, M::Int) {
    let limit = m.float(LARGEST_EXPONENT);
    let low = m.select(m.lt(m.abs(product), limit), product_low, m.float(0.0));
    let exponent = m.max(m.min(product, limit), m.float(-LARGEST_EXPONENT));
    let rounder = m.float(SINGLE_ROUNDER);
    let rounded = m.add(exponent, rounder);
    let fraction = m.sub(exponent, m.sub(rounded, rounder));
    // Adding the low part to the fraction would lose digits.
    let value = m.fma(polynomial(m, fraction, &EXP2), fraction, m.float(1.0));
    let value = m.fma(m.mul(value, m.float(LN_2)), low, value);
    (value, m.isub(m.to_bits(rounded), m.int(i64::from(SINGLE_ROUNDER.to_bits()))))
}

/// value · 2^power, rounding once where that is subnormal.
#[inline]
pub(super) fn scale<M: Machine<Scalar = f32>>(m: &M, value: M::Float, power: M::Int) -> M::Float {
    // 2^power itself may be out of range, so it comes in two halves.
    let half = m.ashr_by(power, 1);
    let value = m.mul(value, power_of_two(m, half));
    m.mul(value, power_of_two(m, m.isub(power, half)))
}

/// |x|^y, where neither is NaN, within 1.5 ulp. The logarithm has more digits than f32. `more` adds to the exponent's
/// low part, given the logarithm, what y lacks.
#[inline]
fn of_absolute<M: Machine<Scalar = f32>>(
    m: &M,
    x: M::Float,
    y: M::Float,
    more: impl FnOnce(M::Float, M::Float) -> M::Float,
) -> M::Float {
    let magnitude = m.abs(x);
    let (log, log_low) = log2(m, magnitude);
    let log = with_infinities(m, &SINGLE, magnitude, log);
    let product = m.mul(y, log);
    let product_low = more(log, m.fma(y, log_low, m.fma(y, log, m.neg(product))));
    let (value, power) = exp2_of_sum(m, product, product_low);
    scale(m, value, power)
}

/// x^y within 1.5 ulp.
#[inline]
pub fn pow<M: Machine<Scalar = f32>>(m: &M, x: M::Float, y: M::Float) -> M::Float {
    of_magnitude(m, &SINGLE, x, y, of_absolute(m, x, y, |_, low| low))
}

/// x^n within 1.5 ulp.
#[inline]
pub fn powi<M: Machine<Scalar = f32>>(m: &M, x: M::Float, n: M::Int) -> M::Float {
    // An i32 as the sum of two f32.
    let below = m.and(n, m.int(0xff));
    let (high, low) = (m.from_int(m.isub(n, below)), m.from_int(below));
    let y = m.add(high, low);
    let rest = m.add(m.sub(high, y), low);
    let power = of_absolute(m, x, y, |log, product_low| m.fma(rest, log, product_low));
    of_magnitude_to_integer(m, &SINGLE, x, n, power)
}
