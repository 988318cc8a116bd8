//! What powers have in common in both widths: the sign, and the values that IEEE 754 names.

use super::machine::Machine;

/// The numbers of a width.
pub(super) struct Power<S> {
    /// From here on every number is an integer.
    pub whole: S,
    pub zero: S,
    pub half: S,
    pub one: S,
    pub infinity: S,
    pub nan: S,
}

/// Of f32.
pub(super) const SINGLE: Power<f32> =
    Power { whole: 8388608.0, zero: 0.0, half: 0.5, one: 1.0, infinity: f32::INFINITY, nan: f32::NAN };

/// Of f64.
pub(super) const DOUBLE: Power<f64> =
    Power { whole: 4503599627370496.0, zero: 0.0, half: 0.5, one: 1.0, infinity: f64::INFINITY, nan: f64::NAN };

/// The integer nearest to a number without a sign, and a number whose lowest bit is that of the integer if the number
/// is none itself.
#[inline]
pub(super) fn whole_part<M: Machine>(m: &M, c: &Power<M::Scalar>, magnitude: M::Float) -> (M::Float, M::Float) {
    let whole = m.float(c.whole);
    let sum = m.add(magnitude, whole);
    let rounded = m.sub(sum, whole);
    (m.select(m.lt(magnitude, whole), rounded, magnitude), sum)
}

/// Whether a number without a sign is an integer.
#[inline]
fn is_integer<M: Machine>(m: &M, c: &Power<M::Scalar>, magnitude: M::Float) -> M::Bool {
    m.eq(whole_part(m, c, magnitude).0, magnitude)
}

/// The logarithm of |x|, infinite for zero and infinity.
#[inline]
pub(super) fn with_infinities<M: Machine>(m: &M, c: &Power<M::Scalar>, magnitude: M::Float, log: M::Float) -> M::Float {
    let infinity = m.float(c.infinity);
    let log = m.select(m.eq(magnitude, m.float(c.zero)), m.neg(infinity), log);
    m.select(m.eq(magnitude, infinity), infinity, log)
}

/// x to the power of y, given that of |x|, whatever it is for NaNs.
#[inline]
pub(super) fn of_magnitude<M: Machine>(
    m: &M,
    c: &Power<M::Scalar>,
    x: M::Float,
    y: M::Float,
    power: M::Float,
) -> M::Float {
    let (zero, one) = (m.float(c.zero), m.float(c.one));
    let exponent = m.abs(y);
    // The sign of x stays where y is odd: an integer whose half is none.
    let even = is_integer(m, c, m.mul(exponent, m.float(c.half)));
    let signed = m.select(even, power, m.copysign(power, x));
    // Of a negative number there is no root, but one of -∞ and -0 is said to be that of ∞ and 0.
    let finite = m.lt(m.abs(x), m.float(c.infinity));
    let root = m.select(m.lt(x, zero), m.select(finite, m.float(c.nan), power), power);
    let result = m.select(is_integer(m, c, exponent), signed, root);
    let result = m.select(m.eq(x, x), result, x);
    let result = m.select(m.eq(y, y), result, y);
    // |x| = 1 has no logarithm that an infinite y could be multiplied by.
    let unit = m.select(m.eq(exponent, m.float(c.infinity)), m.abs(x), x);
    let result = m.select(m.eq(unit, one), one, result);
    m.select(m.eq(y, zero), one, result)
}

/// x to the power of the integer n, given that of |x|, whatever it is for a NaN.
#[inline]
pub(super) fn of_magnitude_to_integer<M: Machine>(
    m: &M,
    c: &Power<M::Scalar>,
    x: M::Float,
    n: M::Int,
    power: M::Float,
) -> M::Float {
    let even = m.ieq(m.and(n, m.int(1)), m.int(0));
    let signed = m.select(even, power, m.copysign(power, x));
    let result = m.select(m.eq(x, x), signed, x);
    m.select(m.ieq(n, m.int(0)), m.float(c.one), result)
}
