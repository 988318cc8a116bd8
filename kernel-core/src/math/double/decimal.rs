//! Powers and logarithms of ten.

use super::{
    DOUBLE_ROUNDER, LogParts, Machine, Power, exp_minus_one, log_of_specials, log_parts, or_nan, rounded_to_int, scale,
};

/// log2(10) rounded to f64.
const LOG2_10: f64 = std::f64::consts::LOG2_10;
/// ln(10) rounded to f64.
const LN_10: f64 = std::f64::consts::LN_10;
/// What rounding [`LN_10`] lost.
const LN_10_LOW: f64 = -2.1707562233822494e-16;
/// log10(2) cut to 33 bits: its product with any exponent is exact.
const LOG10_2_SHORT: f64 = 0.30102999560767785;
/// log10(2) - [`LOG10_2_SHORT`].
const LOG10_2_SHORT_REST: f64 = 5.630334806675098e-11;
/// log10(e) rounded to f64.
const LOG10_E: f64 = std::f64::consts::LOG10_E;
/// What rounding [`LOG10_E`] lost.
const LOG10_E_LOW: f64 = 1.098319650216765e-17;

/// 10^x within 1 ulp.
#[inline]
pub fn exp10<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    // Beyond these the result is infinite or zero anyway.
    let clamped = m.max(m.min(x, m.float(310.0)), m.float(-326.0));
    let rounder = m.float(DOUBLE_ROUNDER);
    let rounded = m.fma(clamped, m.float(LOG2_10), rounder);
    let power = m.sub(rounded, rounder);
    // clamped - power · log10 2 as rest + rest_low, then times ln 10 as high + low.
    let start = m.fma(power, m.float(-LOG10_2_SHORT), clamped);
    let rest = m.fma(power, m.float(-LOG10_2_SHORT_REST), start);
    let rest_low = m.fma(power, m.float(-LOG10_2_SHORT_REST), m.sub(start, rest));
    let high = m.mul(rest, m.float(LN_10));
    let low = m.fma(rest, m.float(LN_10), m.neg(high));
    let low = m.fma(rest, m.float(LN_10_LOW), low);
    let low = m.fma(rest_low, m.float(LN_10), low);
    let fraction = exp_minus_one(m, high, low);
    or_nan(m, x, scale(m, Power { power: rounded_to_int(m, rounded), fraction }))
}

/// The logarithm to base 10 within 1 ulp.
#[inline]
pub fn log10<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    let LogParts { exponent, f, half_square, correction, .. } = log_parts(m, x);
    // The natural logarithm of 1 + f as high + low, times log10 e as high + low.
    let high = m.sub(f, half_square);
    let low = m.add(m.sub(m.sub(f, high), half_square), correction);
    let log10_e = m.float(LOG10_E);
    let product = m.mul(high, log10_e);
    let rest = m.fma(high, log10_e, m.neg(product));
    let rest = m.fma(high, m.float(LOG10_E_LOW), rest);
    let rest = m.fma(low, log10_e, rest);
    // exponent · log10 2: the first product is exact, and zero or the larger, so this sum's error is exact.
    let large = m.mul(exponent, m.float(LOG10_2_SHORT));
    let rest = m.fma(exponent, m.float(LOG10_2_SHORT_REST), rest);
    let sum = m.add(large, product);
    let sum_error = m.add(m.sub(large, sum), product);
    log_of_specials(m, x, m.add(sum, m.add(rest, sum_error)))
}
