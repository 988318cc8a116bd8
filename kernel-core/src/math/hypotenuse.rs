//! The length of a vector: one algorithm for both widths.

use super::machine::Machine;

/// The numbers of a width.
pub(super) struct Hypotenuse<S> {
    /// Above this a square may be infinite.
    pub large: S,
    /// By how much large numbers are multiplied.
    pub shrink: S,
    /// Below this a square may have lost digits.
    pub small: S,
    /// By how much small numbers are multiplied.
    pub grow: S,
    pub one: S,
    pub infinity: S,
}

/// Of f32: 2^60, 2^-80, 2^-40 and 2^90, powers of two whose inverses are numbers too.
pub(super) const SINGLE: Hypotenuse<f32> = Hypotenuse {
    large: 1152921504606846976.0,
    shrink: 1.0 / 1208925819614629174706176.0,
    small: 1.0 / 1099511627776.0,
    grow: 1237940039285380274899124224.0,
    one: 1.0,
    infinity: f32::INFINITY,
};

/// Of f64: 2^500, 2^-600, 2^-400 and 2^600.
pub(super) const DOUBLE: Hypotenuse<f64> = Hypotenuse {
    large: f64::from_bits((1023 + 500) << 52),
    shrink: f64::from_bits((1023 - 600) << 52),
    small: f64::from_bits((1023 - 400) << 52),
    grow: f64::from_bits((1023 + 600) << 52),
    one: 1.0,
    infinity: f64::INFINITY,
};

/// √(x² + y²) within 1.25 ulp.
#[inline]
pub(super) fn hypot<M: Machine>(m: &M, c: &Hypotenuse<M::Scalar>, x: M::Float, y: M::Float) -> M::Float {
    let one = m.float(c.one);
    let larger = m.max(m.abs(x), m.abs(y));
    let (large, small) = (m.lt(m.float(c.large), larger), m.lt(larger, m.float(c.small)));
    let either = |shrink, grow| m.select(large, shrink, m.select(small, grow, one));
    let factor = either(m.float(c.shrink), m.float(c.grow));
    let inverse = m.div(one, factor);
    let a = m.mul(larger, factor);
    let b = m.mul(m.min(m.abs(x), m.abs(y)), factor);
    let length = m.mul(m.sqrt(m.fma(a, a, m.mul(b, b))), inverse);
    let length = m.select(m.eq(x, x), length, x);
    let length = m.select(m.eq(y, y), length, y);
    // An infinite side is longer than any number, known or not.
    let infinity = m.float(c.infinity);
    m.select(m.eq(larger, infinity), infinity, length)
}
