//! The cube root.

use super::{Machine, polynomial};

/// Of ∛(t³/r) / t in r, near 1: from a t within 5% to one within 2^-23 (FreeBSD's `cbrt`).
const CORRECTION: [f64; 5] =
    [1.87595182427177, -1.8849797954337717, 1.6214297201053545, -0.758397934778766, 0.14599619288661245];

/// ∛x within 1 ulp.
#[inline]
pub fn cbrt<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    let magnitude = m.abs(x);
    let tiny = m.lt(magnitude, m.float(f64::MIN_POSITIVE));
    let number = m.select(tiny, m.mul(magnitude, m.float(18014398509481984.0)), magnitude);
    // A third of the upper half of the bit pattern has a third of the exponent; the rest of that is in the sum.
    let third = m.lshr_by(m.imul(m.lshr_by(m.to_bits(number), 32), m.int(0x5555_5556)), 32);
    let root = m.from_bits(m.shl_by(m.iadd(third, m.int(715_094_163)), 32));
    let cube = m.mul(m.mul(root, root), m.div(root, number));
    let root = m.mul(root, polynomial(m, cube, &CORRECTION));
    // Rounded to 23 bits, whose square is exact.
    let rounded = m.iadd(m.to_bits(root), m.int(0x8000_0000));
    let root = m.from_bits(m.and(rounded, m.int(!0x3fff_ffff)));
    let quotient = m.div(number, m.mul(root, root));
    let step = m.div(m.sub(quotient, root), m.add(m.add(root, root), quotient));
    let root = m.fma(root, step, root);
    let root = m.select(tiny, m.mul(root, m.float(1.0 / 262144.0)), root);
    // Zero, infinity and NaN are their own roots.
    let other = m.eq(m.add(x, x), x);
    let result = m.select(other, x, m.copysign(root, x));
    m.select(m.eq(x, x), result, x)
}
