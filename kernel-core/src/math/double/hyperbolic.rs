//! Hyperbolic sine and cosine.

use super::{Machine, Power, exp_split, or_nan, power_of_two, scale};

/// e^|x|, up to where half of it is infinite; what it is for NaN is left open.
#[inline]
fn split<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> Power<M> {
    exp_split(m, m.min(m.abs(x), m.float(712.0)))
}

/// Half of a power: e^|x| itself may be too large.
#[inline]
fn half<M: Machine<Scalar = f64>>(m: &M, power: M::Int, fraction: M::Float) -> M::Float {
    scale(m, Power { power: m.isub(power, m.int(1)), fraction })
}

/// sinh(x) within 2.5 ulp.
#[inline]
pub fn sinh<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    let Power { power, fraction } = split(m, x);
    let half = half(m, power, fraction);
    let large = m.sub(half, m.div(m.float(0.25), half));
    // (t + t/(t + 1)) / 2 with t = e^|x| - 1, which keeps its accuracy near zero.
    let (one, scale) = (m.float(1.0), power_of_two(m, power));
    let t = m.fma(scale, fraction, m.sub(scale, one));
    let small = m.mul(m.add(t, m.div(t, m.add(t, one))), m.float(0.5));
    let result = m.select(m.lt(one, m.abs(x)), large, small);
    or_nan(m, x, m.copysign(result, x))
}

/// cosh(x) within 2 ulp.
#[inline]
pub fn cosh<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    let Power { power, fraction } = split(m, x);
    let half = half(m, power, fraction);
    or_nan(m, x, m.add(half, m.div(m.float(0.25), half)))
}
