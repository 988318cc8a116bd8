//! Powers.

use super::super::power::{DOUBLE, of_magnitude, of_magnitude_to_integer, with_infinities};
use super::{
    DOUBLE_ROUNDER, FIELD, LN_2, LN_2_LOW, Machine, Power, exp_minus_one, exponent_of, polynomial, rounded_to_int,
    scale,
};

/// 2·log2(e) rounded to f64.
const TWICE_LOG2_E: f64 = 2.8853900817779268;
/// What rounding [`TWICE_LOG2_E`] lost.
const TWICE_LOG2_E_LOW: f64 = 4.0710547481862066e-17;
/// 1/3 rounded to f64.
const THIRD: f64 = 1.0 / 3.0;
/// What rounding [`THIRD`] lost.
const THIRD_LOW: f64 = 1.850371707708594e-17;
/// (atanh q - q - q³/3) / q⁵ in q², for |q| ≤ 0.1717, to 2^-73 of atanh q.
const ATANH: [f64; 8] = [
    0.19999999999999987,
    0.14285714285722637,
    0.11111111108748274,
    0.09090909437608187,
    0.07692278268123405,
    0.06668165156143666,
    0.058372782371091635,
    0.059955990381514584,
];
/// Beyond this exponent a power of two is infinite or zero.
const LARGEST_EXPONENT: f64 = 1200.0;

/// A number as a sum, of which the second part is below the digits of the first.
#[derive(Clone, Copy)]
pub(super) struct Pair<F> {
    pub(super) high: F,
    pub(super) low: F,
}

/// The product of two pairs.
#[inline]
fn product<M: Machine<Scalar = f64>>(m: &M, a: Pair<M::Float>, b: Pair<M::Float>) -> Pair<M::Float> {
    let high = m.mul(a.high, b.high);
    let low = m.fma(a.high, b.high, m.neg(high));
    Pair { high, low: m.fma(a.low, b.high, m.fma(a.high, b.low, low)) }
}

/// The sum of two pairs, of which the first is the larger, or zero.
#[inline]
fn sum<M: Machine<Scalar = f64>>(m: &M, a: Pair<M::Float>, b: Pair<M::Float>) -> Pair<M::Float> {
    let high = m.add(a.high, b.high);
    let low = m.add(m.sub(a.high, high), b.high);
    Pair { high, low: m.add(low, m.add(a.low, b.low)) }
}

/// The logarithm of a positive, finite number to base 2, to 2^-65 of it.
#[inline]
pub(super) fn log2<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> Pair<M::Float> {
    let tiny = m.lt(x, m.float(f64::MIN_POSITIVE));
    let x = m.select(tiny, m.mul(x, m.float(18014398509481984.0)), x);
    let correction = m.iselect(tiny, m.int(-54), m.int(0));
    let power = exponent_of(m, x);
    let excess = m.sub(m.from_bits(m.isub(m.to_bits(x), m.shl_by(power, FIELD))), m.float(1.0));
    // log2(1 + f) = 2·log2 e · atanh q, with q = f/(f + 2). The difference f - 2q is exact.
    let reciprocal = m.div(m.float(1.0), m.add(excess, m.float(2.0)));
    let high = m.mul(excess, reciprocal);
    let rest = m.fma(high, m.float(-2.0), excess);
    let q = Pair { high, low: m.mul(reciprocal, m.fma(m.neg(high), excess, rest)) };
    // q + q³·(1/3 + tail).
    let square = product(m, q, q);
    let zero = m.float(0.0);
    let tail = m.mul(polynomial(m, square.high, &ATANH), square.high);
    let factor = sum(m, Pair { high: m.float(THIRD), low: m.float(THIRD_LOW) }, Pair { high: tail, low: zero });
    let atanh = sum(m, q, product(m, product(m, square, factor), q));
    let mantissa = product(m, atanh, Pair { high: m.float(TWICE_LOG2_E), low: m.float(TWICE_LOG2_E_LOW) });
    sum(m, Pair { high: m.from_int(m.iadd(power, correction)), low: zero }, mantissa)
}

/// 2^(product + product_low), to [`scale`]; of what is beyond the range, only the first counts.
#[inline]
pub(super) fn exp2_of_sum<M: Machine<Scalar = f64>>(m: &M, product: M::Float, product_low: M::Float) -> Power<M> {
    let limit = m.float(LARGEST_EXPONENT);
    let low = m.select(m.lt(m.abs(product), limit), product_low, m.float(0.0));
    let exponent = m.max(m.min(product, limit), m.float(-LARGEST_EXPONENT));
    let rounder = m.float(DOUBLE_ROUNDER);
    let rounded = m.add(exponent, rounder);
    let start = m.sub(exponent, m.sub(rounded, rounder));
    // What is left is zero or larger than the low part, with which it is rounded once more. Times ln 2.
    let rest = m.add(start, low);
    let low = m.add(m.sub(start, rest), low);
    let high = m.mul(rest, m.float(LN_2));
    let tail = m.fma(rest, m.float(LN_2), m.neg(high));
    let tail = m.fma(rest, m.float(LN_2_LOW), tail);
    let tail = m.fma(low, m.float(LN_2), tail);
    let fraction = exp_minus_one(m, high, tail);
    Power { power: rounded_to_int(m, rounded), fraction }
}

/// |x|^y, where neither is NaN, within 1 ulp.
#[inline]
fn of_absolute<M: Machine<Scalar = f64>>(m: &M, x: M::Float, y: M::Float) -> M::Float {
    let magnitude = m.abs(x);
    let log = log2(m, magnitude);
    let high = with_infinities(m, &DOUBLE, magnitude, log.high);
    let product = m.mul(y, high);
    let product_low = m.fma(y, log.low, m.fma(y, high, m.neg(product)));
    scale(m, exp2_of_sum(m, product, product_low))
}

/// x^y within 1 ulp.
#[inline]
pub fn pow<M: Machine<Scalar = f64>>(m: &M, x: M::Float, y: M::Float) -> M::Float {
    of_magnitude(m, &DOUBLE, x, y, of_absolute(m, x, y))
}

/// x^n within 1 ulp, for an n that an i32 holds, and so an f64.
#[inline]
pub fn powi<M: Machine<Scalar = f64>>(m: &M, x: M::Float, n: M::Int) -> M::Float {
    let power = of_absolute(m, x, m.from_int(n));
    of_magnitude_to_integer(m, &DOUBLE, x, n, power)
}
