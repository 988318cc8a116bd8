//! The inverse of the error function.

use super::{Machine, log, polynomial};

/// erfinv(x) / x in w - 5/2, w being -log(1 - x²), for w ≤ 5, to 2^-27 of it.
const NEAR: [f32; 10] = [
    1.5014094,
    0.24664028,
    -0.004177387,
    -0.001252742,
    0.0002183446,
    -4.963222e-06,
    -3.462752e-06,
    4.6613852e-07,
    2.3236892e-08,
    -8.7884e-09,
];
/// The same in √w - 3, for 5 ≤ w ≤ 16.7, to 2^-26 of it: where x is not 1.
const FAR: [f32; 10] = [
    2.8329768,
    1.001675,
    0.009445287,
    -0.0076372866,
    0.005686964,
    -0.003597412,
    0.0014851262,
    -5.6781908e-05,
    -0.0003096089,
    0.00011572429,
];
/// Where one gives way to the other.
const CHANGE: f32 = 5.0;

/// erfinv(x) within 3 ulp: 55 instructions.
#[inline]
pub fn erfinv<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Float {
    let one = m.float(1.0);
    // What rounding 1 - x² changes in its logarithm is nothing beside the variables of the polynomials.
    let w = m.neg(log(m, m.fma(m.neg(x), x, one)));
    let near = polynomial(m, m.sub(w, m.float(2.5)), &NEAR);
    let far = polynomial(m, m.sub(m.sqrt(w), m.float(3.0)), &FAR);
    let result = m.mul(m.select(m.lt(w, m.float(CHANGE)), near, far), x);
    let infinity = m.copysign(m.float(f32::INFINITY), x);
    m.select(m.eq(m.abs(x), one), infinity, result)
}
