//! Products with powers of two: one algorithm for both widths.

use super::machine::Machine;

/// The numbers of a width.
pub(super) struct Scaling<S> {
    /// The smallest number with all digits.
    pub normal: S,
    /// By how much smaller ones are multiplied.
    pub grow: S,
    /// The exponent of that.
    pub grown: i64,
    /// The bits of one.
    pub one_bits: i64,
    /// The exponent of one, as it is stored.
    pub bias: i64,
    /// Bits below the exponent.
    pub field: u32,
    /// Beyond this exponent every number is zero or infinite.
    pub limit: i64,
    /// The largest integer of this width.
    pub largest: i64,
}

/// Of f32.
pub(super) const SINGLE: Scaling<f32> = Scaling {
    normal: f32::MIN_POSITIVE,
    grow: 16777216.0,
    grown: 24,
    one_bits: 0x3f80_0000,
    bias: 127,
    field: 23,
    limit: 200,
    largest: i32::MAX as i64,
};

/// Of f64.
pub(super) const DOUBLE: Scaling<f64> = Scaling {
    normal: f64::MIN_POSITIVE,
    grow: 18014398509481984.0,
    grown: 54,
    one_bits: 0x3ff0_0000_0000_0000,
    bias: 1023,
    field: 52,
    limit: 1200,
    largest: i64::MAX,
};

/// An integer between -limit and limit.
#[inline]
fn bounded<M: Machine>(m: &M, c: &Scaling<M::Scalar>, value: M::Int, limit: i64) -> M::Int {
    let within = m.ult(m.iadd(value, m.int(limit)), m.int(2 * limit + 1));
    let negative = m.ult(m.int(c.largest), value);
    m.iselect(within, value, m.iselect(negative, m.int(-limit), m.int(limit)))
}

/// x · 2^n, rounded once.
#[inline]
pub(super) fn ldexp<M: Machine>(m: &M, c: &Scaling<M::Scalar>, x: M::Float, n: M::Int) -> M::Float {
    let tiny = m.lt(m.abs(x), m.float(c.normal));
    let number = m.select(tiny, m.mul(x, m.float(c.grow)), x);
    // x is mantissa · 2^exponent, with a mantissa from 1 on.
    let magnitude = m.to_bits(m.abs(number));
    let exponent = m.isub(m.lshr_by(magnitude, c.field), m.int(c.bias));
    let exponent = m.isub(exponent, m.iselect(tiny, m.int(c.grown), m.int(0)));
    let digits = m.and(magnitude, m.int((1 << c.field) - 1));
    let mantissa = m.copysign(m.from_bits(m.or(digits, m.int(c.one_bits))), x);
    // No exponent is beyond twice the limit, so no sum is beyond what an i32 holds.
    let total = m.iadd(exponent, bounded(m, c, n, 4 * c.limit));
    let total = bounded(m, c, total, c.limit);
    // Its power of two may be no number, so it comes in two halves; the first product is exact.
    let half = m.ashr_by(total, 1);
    let power = |exponent| m.from_bits(m.shl_by(m.iadd(exponent, m.int(c.bias)), c.field));
    let result = m.mul(m.mul(mantissa, power(half)), power(m.isub(total, half)));
    // Zero, infinity and NaN have no exponent.
    let other = m.eq(m.add(x, x), x);
    let result = m.select(other, x, result);
    m.select(m.eq(x, x), result, x)
}
