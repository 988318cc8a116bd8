//! Arcsine, arccosine and arctangent: one algorithm for both widths, whose polynomials are as long as the width needs.

use super::machine::{Machine, polynomial};

/// The numbers of a width.
pub(super) struct Inverse<S: 'static> {
    /// (atan z - z) / z³ in z², for z ≤ 1/2.
    pub atan: &'static [S],
    /// (asin s - s) / s³ in s², for s ≤ 1/2.
    pub asin: &'static [S],
    /// π/2, rounded.
    pub half_pi: S,
    /// What rounding lost.
    pub half_pi_low: S,
    /// π/4, rounded.
    pub quarter_pi: S,
    /// What rounding lost.
    pub quarter_pi_low: S,
    /// 3π/4, rounded.
    pub three_quarters_pi: S,
    /// What rounding lost.
    pub three_quarters_pi_low: S,
    /// π, rounded.
    pub pi: S,
    /// What rounding lost.
    pub pi_low: S,
    /// tan(3π/8).
    pub tan_3_eighths_pi: S,
    pub zero: S,
    pub half: S,
    pub minus_half: S,
    pub one: S,
    pub minus_one: S,
}

/// Of f32; the polynomials are to 2^-31.8 and 2^-27.6 of the result.
pub(super) const SINGLE: Inverse<f32> = Inverse {
    atan: &[-0.33333328, 0.19999489, -0.14272077, 0.10940979, -0.07984053, 0.038723145],
    asin: &[0.16666752, 0.074952975, 0.045470424, 0.024179257, 0.042166762],
    half_pi: std::f32::consts::FRAC_PI_2,
    half_pi_low: -4.371139e-8,
    quarter_pi: std::f32::consts::FRAC_PI_4,
    quarter_pi_low: -2.1855694e-8,
    three_quarters_pi: 2.3561945,
    three_quarters_pi_low: -5.9624403e-9,
    pi: std::f32::consts::PI,
    pi_low: -8.742278e-8,
    tan_3_eighths_pi: 2.4142135,
    zero: 0.0,
    half: 0.5,
    minus_half: -0.5,
    one: 1.0,
    minus_one: -1.0,
};

/// Of f64; the polynomials are to 2^-62 and 2^-59.8 of the result.
pub(super) const DOUBLE: Inverse<f64> = Inverse {
    atan: &[
        -0.33333333333333315,
        0.1999999999999327,
        -0.14285714284961004,
        0.11111111068564904,
        -0.09090907669764708,
        0.0769227708009529,
        -0.06666219005909965,
        0.05877771399091593,
        -0.052298202068897015,
        0.04588750373639662,
        -0.03710248831461875,
        0.02363302347576415,
        -0.008352527706303653,
    ],
    asin: &[
        0.1666666666666676,
        0.07499999999970791,
        0.04464285717461948,
        0.03038194270743561,
        0.022372214996964693,
        0.0173516118545475,
        0.013980822365704254,
        0.011398897967093397,
        0.01078032983279376,
        0.0037061267860435424,
        0.0217081140397965,
        -0.020999982413493098,
        0.032629185537928075,
    ],
    half_pi: std::f64::consts::FRAC_PI_2,
    half_pi_low: 6.123233995736766e-17,
    quarter_pi: std::f64::consts::FRAC_PI_4,
    quarter_pi_low: 3.061616997868383e-17,
    three_quarters_pi: 2.356194490192345,
    three_quarters_pi_low: 9.184850993605148e-17,
    pi: std::f64::consts::PI,
    pi_low: 1.2246467991473532e-16,
    tan_3_eighths_pi: 2.414213562373095,
    zero: 0.0,
    half: 0.5,
    minus_half: -0.5,
    one: 1.0,
    minus_one: -1.0,
};

/// atan(x), as π/2 - atan(1/|x|), π/4 + atan((|x| - 1)/(|x| + 1)) or atan |x|.
#[inline]
pub(super) fn atan<M: Machine>(m: &M, c: &Inverse<M::Scalar>, x: M::Float) -> M::Float {
    let (zero, one) = (m.float(c.zero), m.float(c.one));
    let magnitude = m.abs(x);
    let above_half = m.lt(m.float(c.half), magnitude);
    let large = m.lt(m.float(c.tan_3_eighths_pi), magnitude);
    let either = |large_one, middle, small| m.select(large, large_one, m.select(above_half, middle, small));
    let numerator = either(m.float(c.minus_one), m.sub(magnitude, one), magnitude);
    let denominator = either(magnitude, m.add(magnitude, one), one);
    let start = either(m.float(c.half_pi), m.float(c.quarter_pi), zero);
    let start_low = either(m.float(c.half_pi_low), m.float(c.quarter_pi_low), zero);
    let z = m.div(numerator, denominator);
    let square = m.mul(z, z);
    let tail = m.fma(m.mul(polynomial(m, square, c.atan), square), z, start_low);
    m.copysign(m.add(start, m.add(z, tail)), x)
}

/// An argument of arcsine or arccosine.
struct Arc<M: Machine> {
    magnitude: M::Float,
    /// Whether the magnitude is above 1/2.
    large: M::Bool,
    /// √((1 - |x|)/2), whose arcsine is half the arccosine of |x|.
    root: M::Float,
    /// What rounding the root lost.
    root_low: M::Float,
    /// (asin s - s) / s of the root, or of |x| unless that is large.
    tail: M::Float,
}

#[inline]
fn arc<M: Machine>(m: &M, c: &Inverse<M::Scalar>, x: M::Float) -> Arc<M> {
    let magnitude = m.abs(x);
    let large = m.lt(m.float(c.half), magnitude);
    let rest = m.fma(magnitude, m.float(c.minus_half), m.float(c.half));
    let root = m.sqrt(rest);
    let root_low = m.div(m.fma(m.neg(root), root, rest), m.add(root, root));
    // Of 1 the root is zero. NaN, for numbers beyond 1, compares false and is one in the tail.
    let zero = m.float(c.zero);
    let root_low = m.select(m.lt(zero, root), root_low, zero);
    let square = m.select(large, rest, m.mul(magnitude, magnitude));
    Arc { magnitude, large, root, root_low, tail: m.mul(polynomial(m, square, c.asin), square) }
}

/// asin(x), as π/2 - 2·asin √((1 - |x|)/2) where |x| > 1/2.
#[inline]
pub(super) fn asin<M: Machine>(m: &M, c: &Inverse<M::Scalar>, x: M::Float) -> M::Float {
    let Arc { magnitude, large, root, root_low, tail } = arc(m, c, x);
    let small = m.fma(tail, magnitude, magnitude);
    // Where the result is below π/4 the first difference is exact.
    let twice = m.add(root, root);
    let start = m.sub(m.float(c.half_pi), twice);
    let rest = m.fma(twice, tail, m.sub(m.add(root_low, root_low), m.float(c.half_pi_low)));
    m.copysign(m.select(large, m.sub(start, rest), small), x)
}

/// acos(x), as 2·asin √((1 - x)/2) for x > 1/2, π less that of -x for x < -1/2, and π/2 - asin(x) between.
#[inline]
pub(super) fn acos<M: Machine>(m: &M, c: &Inverse<M::Scalar>, x: M::Float) -> M::Float {
    let Arc { large, root, root_low, tail, .. } = arc(m, c, x);
    let half_pi_low = m.float(c.half_pi_low);
    let right = m.add(root, m.fma(root, tail, root_low));
    let left = m.add(root, m.fma(root, tail, m.sub(root_low, half_pi_low)));
    let left = m.sub(m.float(c.pi), m.add(left, left));
    let middle = m.sub(m.float(c.half_pi), m.sub(x, m.fma(m.neg(x), tail, half_pi_low)));
    let outer = m.select(m.lt(x, m.float(c.zero)), left, m.add(right, right));
    m.select(large, outer, middle)
}
