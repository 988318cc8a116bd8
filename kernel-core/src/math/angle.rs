//! The angle of a point: one algorithm for both widths.

use super::inverse::Inverse;
use super::machine::{Machine, polynomial};

/// atan2(y, x): the arctangent of the smaller coordinate over the larger, counted from the nearest of 0, π/4, π/2, 3π/4
/// and π.
#[inline]
pub(super) fn atan2<M: Machine>(m: &M, c: &Inverse<M::Scalar>, y: M::Float, x: M::Float) -> M::Float {
    let (zero, one) = (m.float(c.zero), m.float(c.one));
    let (across, up) = (m.abs(x), m.abs(y));
    let (larger, smaller) = (m.max(across, up), m.min(across, up));
    let ratio = m.div(smaller, larger);
    // Of two zeros as of 0/1, of two infinities as of 1/1.
    let ratio = m.select(m.eq(smaller, m.add(larger, larger)), m.min(larger, one), ratio);
    let diagonal = m.lt(m.float(c.half), ratio);
    let numerator = m.select(diagonal, m.sub(ratio, one), ratio);
    let z = m.select(diagonal, m.div(numerator, m.add(ratio, one)), ratio);
    let square = m.mul(z, z);
    let tail = m.mul(m.mul(polynomial(m, square, c.atan), square), z);
    // The angle is start + z + tail, or from the other side of the start.
    let steep = m.lt(across, up);
    let left = m.lt(m.copysign(one, x), zero);
    let start = |zeroth, eighth, quarter, three_eighths, whole| {
        let right = m.select(diagonal, m.float(eighth), m.select(steep, m.float(quarter), m.float(zeroth)));
        let beyond = m.select(diagonal, m.float(three_eighths), m.select(steep, m.float(quarter), m.float(whole)));
        m.select(left, beyond, right)
    };
    let high = start(c.zero, c.quarter_pi, c.half_pi, c.three_quarters_pi, c.pi);
    let low = start(c.zero, c.quarter_pi_low, c.half_pi_low, c.three_quarters_pi_low, c.pi_low);
    let turn = |part| {
        let steeply = m.select(steep, m.neg(part), part);
        m.select(left, m.neg(steeply), steeply)
    };
    let angle = m.add(high, m.add(turn(z), m.add(turn(tail), low)));
    let angle = m.select(m.eq(x, x), m.copysign(angle, y), x);
    m.select(m.eq(y, y), angle, y)
}
