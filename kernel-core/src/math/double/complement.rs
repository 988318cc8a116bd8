//! The complement of the error function.

use super::{ERF_SMALL, Machine, exp_split, polynomial, scale};

/// (1 + 2x) · e^(x²) · erfc x in (x - 4)/(x + 4), for 1/2 ≤ x ≤ 28, to 2^-60 of it. The factor keeps it near 1, so that no
/// digits cancel.
const TAIL: [f64; 23] = [
    1.2329951186255526,
    -0.1396211168405625,
    0.015379652102619875,
    0.06809705425468865,
    -0.10103906603631253,
    0.09373283499852658,
    -0.06633036581201701,
    0.0371675155339329,
    -0.01619773406036465,
    0.0050319700172116195,
    -0.0007577732692255628,
    -0.0001992569575831675,
    0.00015062158533149183,
    -2.439808664945358e-05,
    -1.1221765989097299e-05,
    5.706562882462027e-06,
    2.933373637123856e-07,
    -8.196056126343466e-07,
    7.513451715504158e-08,
    1.0333403888824924e-07,
    -1.820597249762788e-08,
    -9.678615553923027e-09,
    1.9073753032666903e-09,
];

/// erfc(x) within 5 ulp.
#[inline]
pub fn erfc<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    // Near zero it is 1 less the error function.
    let (one, magnitude) = (m.float(1.0), m.abs(x));
    let square = m.mul(x, x);
    let small = m.sub(one, m.fma(polynomial(m, square, &ERF_SMALL), x, x));
    let bounded = m.min(magnitude, m.float(28.0));
    let variable = m.div(m.sub(bounded, m.float(4.0)), m.add(bounded, m.float(4.0)));
    let scaled = m.div(polynomial(m, variable, &TAIL), m.fma(bounded, m.float(2.0), one));
    // e^-(square + low), of which the second factor is 1 - low.
    let square = m.mul(bounded, bounded);
    let low = m.fma(bounded, bounded, m.neg(square));
    let scaled = m.fma(scaled, m.neg(low), scaled);
    let tail = m.mul(scale(m, exp_split(m, m.neg(square))), scaled);
    let large = m.select(m.lt(x, m.float(0.0)), m.sub(m.float(2.0), tail), tail);
    // NaN compares false and stays NaN in the polynomial.
    m.select(m.lt(m.float(0.5), magnitude), large, small)
}
