//! Hyperbolic sine and cosine.

use super::{BIAS, FIELD, FastMachine, LOG2_E, LOG2_E_LOW, SINGLE_ROUNDER, polynomial};

/// e^a / 2 for a ≥ 0 within 2.1 ulp; infinite for NaN. As `exp_nonpositive`, and doubled, because 2^128 is no number.
#[inline]
fn half_exp<M: FastMachine>(m: &M, a: M::Float) -> M::Float {
    let bounded = m.min(a, m.float(90.0));
    // The sum's low bits are the biased exponent of 2^(integer - 2).
    let rounder = m.float(SINGLE_ROUNDER + BIAS - 2.0);
    let rounded = m.fma(bounded, m.float(LOG2_E), rounder);
    let integer = m.sub(rounded, rounder);
    let fraction = m.fma(bounded, m.float(LOG2_E), m.neg(integer));
    let fraction = m.fma(bounded, m.float(LOG2_E_LOW), fraction);
    let quarter = m.mul(m.ex2_approx_ftz(fraction), m.from_bits(m.shl_by(m.to_bits(rounded), FIELD)));
    m.add(quarter, quarter)
}

/// (sinh x - x) / x³ in x², for |x| ≤ 1, to 2^-34 of sinh x.
const SINH: [f32; 4] = [0.16666667, 0.00833335, 0.0001983616, 2.8169538e-6];

/// sinh(x) within 5 ulp: 20 instructions, two of them `ex2` and `rcp`. Where e^x / 2 has just reached a power of two
/// that the result has not, the error of `ex2` counts twice.
#[inline]
pub fn sinh<M: FastMachine>(m: &M, x: M::Float) -> M::Float {
    let magnitude = m.abs(x);
    let half = half_exp(m, magnitude);
    let large = m.fma(m.rcp_approx_ftz(half), m.float(-0.25), half);
    // Near zero that cancels.
    let square = m.mul(x, x);
    let small = m.fma(m.mul(polynomial(m, square, &SINH), square), magnitude, magnitude);
    // NaN compares false and stays NaN in the polynomial.
    m.copysign(m.select(m.lt(m.float(1.0), magnitude), large, small), x)
}

/// cosh(x) within 3 ulp: 13 instructions, two of them `ex2` and `rcp`.
#[inline]
pub fn cosh<M: FastMachine>(m: &M, x: M::Float) -> M::Float {
    let half = half_exp(m, m.abs(x));
    let result = m.fma(m.rcp_approx_ftz(half), m.float(0.25), half);
    m.select(m.eq(x, x), result, x)
}
