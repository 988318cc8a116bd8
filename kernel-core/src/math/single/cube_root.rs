//! The cube root.

use super::{FastMachine, polynomial};

/// Of ∛(t³/r) / t in r, near 1: from a t within 5% to one within 2^-23.
const CORRECTION: [f32; 5] = [1.8759518, -1.8849798, 1.6214297, -0.75839794, 0.1459962];

/// ∛x within 1 ulp: 28 instructions, one of them `rcp`.
#[inline]
pub fn cbrt<M: FastMachine>(m: &M, x: M::Float) -> M::Float {
    let magnitude = m.abs(x);
    let grown = m.keeps_subnormals().then(|| {
        let tiny = m.lt(magnitude, m.float(f32::MIN_POSITIVE));
        (tiny, m.select(tiny, m.mul(magnitude, m.float(16777216.0)), magnitude))
    });
    let number = grown.map_or(magnitude, |(_, number)| number);
    // A third of the bit pattern has a third of the exponent; the rest of that is in the sum.
    let third = m.umulhi(m.to_bits(number), m.int(0x5555_5556));
    let root = m.from_bits(m.iadd(third, m.int(709_958_130)));
    let cube = m.mul(m.mul(root, root), m.div(root, number));
    let root = m.mul(root, polynomial(m, cube, &CORRECTION));
    // A Newton step whose remainder has all digits of the square.
    let square = m.mul(root, root);
    let square_low = m.fma(root, root, m.neg(square));
    let remainder = m.fma(m.neg(square), root, number);
    let remainder = m.fma(m.neg(square_low), root, remainder);
    let step = m.mul(m.rcp_approx_ftz(square), m.float(1.0 / 3.0));
    let root = m.fma(remainder, step, root);
    let root = grown.map_or(root, |(tiny, _)| m.select(tiny, m.mul(root, m.float(1.0 / 256.0)), root));
    // Zero, infinity and NaN are their own roots.
    let other = m.eq(m.add(x, x), x);
    let result = m.select(other, x, m.copysign(root, x));
    m.select(m.eq(x, x), result, x)
}
