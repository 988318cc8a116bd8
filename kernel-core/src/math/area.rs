//! The inverse hyperbolic functions: one algorithm for both widths, upon the logarithm of 1 + x.

use super::machine::Machine;

/// The numbers of a width.
pub(super) struct Area<S> {
    /// From here on a square may overflow, and 1 is nothing beside it.
    pub huge: S,
    /// ln 2.
    pub ln_2: S,
    pub zero: S,
    pub half: S,
    pub one: S,
    pub nan: S,
}

/// Of f32. Beyond 2^30, log(2x) is asinh(x) and acosh(x) to 2^-60.
pub(super) const SINGLE: Area<f32> =
    Area { huge: 1073741824.0, ln_2: std::f32::consts::LN_2, zero: 0.0, half: 0.5, one: 1.0, nan: f32::NAN };

/// Of f64. Beyond 2^100, log(2x) is asinh(x) and acosh(x) to 2^-200.
pub(super) const DOUBLE: Area<f64> = Area {
    huge: 1267650600228229401496703205376.0,
    ln_2: std::f64::consts::LN_2,
    zero: 0.0,
    half: 0.5,
    one: 1.0,
    nan: f64::NAN,
};

/// log(1 + argument), or log(2·magnitude) where that is huge.
#[inline]
fn log_of<M: Machine>(
    m: &M,
    c: &Area<M::Scalar>,
    magnitude: M::Float,
    argument: M::Float,
    log1p: impl Fn(M::Float) -> M::Float,
) -> M::Float {
    let huge = m.lt(m.float(c.huge), magnitude);
    let log = log1p(m.select(huge, magnitude, argument));
    m.add(log, m.select(huge, m.float(c.ln_2), m.float(c.zero)))
}

/// asinh(x) = log(1 + |x| + x²/(1 + √(x² + 1))), with the sign of x.
#[inline]
pub(super) fn asinh<M: Machine>(
    m: &M,
    c: &Area<M::Scalar>,
    x: M::Float,
    log1p: impl Fn(M::Float) -> M::Float,
) -> M::Float {
    let (magnitude, one) = (m.abs(x), m.float(c.one));
    let square = m.mul(magnitude, magnitude);
    let root = m.sqrt(m.fma(magnitude, magnitude, one));
    let argument = m.add(magnitude, m.div(square, m.add(root, one)));
    m.copysign(log_of(m, c, magnitude, argument, log1p), x)
}

/// acosh(x) = log(1 + t + √(t² + 2t)), t being x - 1.
#[inline]
pub(super) fn acosh<M: Machine>(
    m: &M,
    c: &Area<M::Scalar>,
    x: M::Float,
    log1p: impl Fn(M::Float) -> M::Float,
) -> M::Float {
    let one = m.float(c.one);
    let t = m.sub(x, one);
    let argument = m.add(t, m.sqrt(m.fma(t, t, m.add(t, t))));
    let result = log_of(m, c, x, argument, log1p);
    m.select(m.lt(x, one), m.float(c.nan), result)
}

/// atanh(x) = ½·log(1 + 2|x|/(1 - |x|)), with the sign of x.
#[inline]
pub(super) fn atanh<M: Machine>(
    m: &M,
    c: &Area<M::Scalar>,
    x: M::Float,
    log1p: impl Fn(M::Float) -> M::Float,
) -> M::Float {
    let magnitude = m.abs(x);
    let twice = m.add(magnitude, magnitude);
    // Below one half the quotient is 2|x| and a smaller one, whose rounding counts less.
    let small = m.lt(magnitude, m.float(c.half));
    let numerator = m.select(small, m.mul(twice, magnitude), twice);
    let quotient = m.div(numerator, m.sub(m.float(c.one), magnitude));
    let argument = m.select(small, m.add(twice, quotient), quotient);
    m.copysign(m.mul(log1p(argument), m.float(c.half)), x)
}
