//! The complement of the error function.

use super::{ERF_SMALL, FastMachine, exp_nonpositive, polynomial};

/// e^(x²) · erfc x in (x - 2)/(x + 2), for 1/2 ≤ x ≤ 10.5, to 2^-28 of it.
const TAIL: [f32; 10] = [
    0.25539568,
    -0.42718586,
    0.24165817,
    -0.07897848,
    0.0037334645,
    0.0069959685,
    -0.0008520601,
    -0.0009726492,
    6.155067e-5,
    0.00014827562,
];

/// erfc(x) within 6 ulp: 39 instructions, one of them `ex2`.
#[inline]
pub fn erfc<M: FastMachine>(m: &M, x: M::Float) -> M::Float {
    // Near zero it is 1 less the error function.
    let (one, magnitude) = (m.float(1.0), m.abs(x));
    let square = m.mul(x, x);
    let small = m.sub(one, m.fma(polynomial(m, square, &ERF_SMALL), x, x));
    let bounded = m.min(magnitude, m.float(10.5));
    let variable = m.div(m.sub(bounded, m.float(2.0)), m.add(bounded, m.float(2.0)));
    let scaled = polynomial(m, variable, &TAIL);
    // e^-(square + low), of which the second factor is 1 - low.
    let square = m.mul(bounded, bounded);
    let low = m.fma(bounded, bounded, m.neg(square));
    let scaled = m.fma(scaled, m.neg(low), scaled);
    let tail = m.mul(exp_nonpositive(m, m.neg(square)), scaled);
    let large = m.select(m.lt(x, m.float(0.0)), m.sub(m.float(2.0), tail), tail);
    // NaN compares false and stays NaN in the polynomial.
    m.select(m.lt(m.float(0.5), magnitude), large, small)
}
