//! Powers and logarithms of ten.

use super::{FastMachine, LN_2, Machine, Split, log_of_specials, polynomial, split};

/// log2(10) rounded to f32.
const LOG2_10: f32 = std::f32::consts::LOG2_10;
/// What rounding [`LOG2_10`] lost.
const LOG2_10_LOW: f32 = 7.059537e-8;
/// log10(e) rounded to f32.
const LOG10_E: f32 = std::f32::consts::LOG10_E;
/// log10(2) rounded to f32.
const LOG10_2: f32 = std::f32::consts::LOG10_2;
/// What rounding [`LOG10_2`] lost.
const LOG10_2_LOW: f32 = -1.4320989e-8;

/// 10^x within 3 ulp: 11 instructions, one of them `ex2`.
#[inline]
pub fn exp10<M: FastMachine>(m: &M, x: M::Float) -> M::Float {
    // The result is zero from -46 on anyway, and -∞ has no fraction.
    let bounded = m.max(x, m.float(-400.0));
    let exponent = m.mul(bounded, m.float(LOG2_10));
    let power = m.ex2_approx(exponent);
    // The exponent is short of x · log2 10 by this, and so the result by its product with ln 2.
    let lost = m.fma(bounded, m.float(LOG2_10), m.neg(exponent));
    let lost = m.fma(bounded, m.float(LOG2_10_LOW), lost);
    let corrected = m.fma(power, m.mul(lost, m.float(LN_2)), power);
    let result = m.select(m.lt(power, m.float(f32::INFINITY)), corrected, power);
    // A NaN, which the bound has swallowed.
    m.select(m.eq(x, x), result, x)
}

/// (log10(1 + f) - f · log10(e)) / f², for |f| ≤ 1/3, to 2^-27.7 of log10(1 + f).
const LOG10: [f32; 9] = [
    -0.21714725,
    0.14476429,
    -0.10857239,
    0.08690558,
    -0.07245031,
    0.060806245,
    -0.052841485,
    0.060822017,
    -0.056235954,
];

/// The logarithm to base 10 within 2 ulp: 29 instructions.
#[inline]
pub fn log10<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Float {
    let Split { exponent, excess } = split(m, x);
    let square = m.mul(excess, excess);
    let tail = m.mul(polynomial(m, excess, &LOG10), square);
    let mantissa = m.fma(excess, m.float(LOG10_E), tail);
    let low = m.fma(exponent, m.float(LOG10_2_LOW), mantissa);
    log_of_specials(m, x, m.fma(exponent, m.float(LOG10_2), low))
}
