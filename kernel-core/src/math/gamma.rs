//! The gamma function and its logarithm: one algorithm for both widths.
//!
//! From 1 on, Stirling's formula, Γ(z) = √(2π/e) · (z/e)^(z - 1/2) · e^w(1/z), of which the power is a logarithm with
//! twice the digits (that of `pow`) times z - 1/2, and w is a minimax fit. Below 1, Γ(x) = Γ(x + 1)/x. Of negative
//! numbers, Euler's reflection: Γ(-y) = -π/(y · sin(πy) · Γ(y)). The sine has its period taken off exactly, so that
//! results are right next to the poles too. See Abramowitz and Stegun, "Handbook of Mathematical Functions", 6.1.

use super::machine::{Machine, polynomial};
use super::power::{Power, whole_part};

/// The numbers of a width; of pairs, the second is what rounding the first lost.
pub(super) struct Gamma<S: 'static> {
    /// Those of powers.
    pub power: Power<S>,
    /// Below this, Γ(x) is 1/x, and sin(πx)/π is x.
    pub tiny: S,
    /// From here on the logarithm is that of Stirling's formula: below, the zeros at 1 and 2 are factors.
    pub near: S,
    /// Less the middle of the range of [`zeros`](Self::zeros).
    pub middle: S,
    pub two: S,
    pub minus_half: S,
    pub pi: S,
    pub inverse_pi: S,
    pub log2_e: [S; 2],
    pub ln_2: [S; 2],
    /// log √(2π/e).
    pub scale: S,
    /// The same to base 2.
    pub scale_log2: [S; 2],
    /// w(u)/u for u = 1/z from 0 to 1, w being log Γ(z) less the rest of Stirling's formula.
    pub stirling: &'static [S],
    /// log Γ(1 + v) / (v · (v - 1)) in v - 3/4, for v from 0 to 3/2.
    pub zeros: &'static [S],
    /// What rounds to an integer.
    pub rounder: S,
}

/// A number as a sum, of which the second part is below the digits of the first.
pub(super) type Pair<F> = (F, F);

/// What the functions take from their width.
pub(super) trait Steps<M: Machine> {
    /// The logarithm of a positive number to base 2.
    fn log2(&self, m: &M, x: M::Float) -> Pair<M::Float>;
    /// The natural logarithm, rounded.
    fn log(&self, m: &M, x: M::Float) -> M::Float;
    /// 2^(a + b) as a number near 1 and a power of two.
    fn exp2(&self, m: &M, exponent: Pair<M::Float>) -> (M::Float, M::Int);
    /// A number times 2^power, rounded once where that is subnormal.
    fn scale(&self, m: &M, value: M::Float, power: M::Int) -> M::Float;
    /// sin(quadrant · π/2 + π·x), for |x| ≤ 1/4.
    fn sin(&self, m: &M, x: M::Float, quadrant: M::Int) -> M::Float;
}

/// The sum of two numbers with its rounding error, whichever is the larger (Knuth's two-sum).
#[inline]
fn two_sum<M: Machine>(m: &M, a: M::Float, b: M::Float) -> Pair<M::Float> {
    let sum = m.add(a, b);
    let b_in_sum = m.sub(sum, a);
    let a_in_sum = m.sub(sum, b_in_sum);
    (sum, m.add(m.sub(a, a_in_sum), m.sub(b, b_in_sum)))
}

/// A pair times a number.
#[inline]
fn times<M: Machine>(m: &M, a: Pair<M::Float>, b: M::Float) -> Pair<M::Float> {
    let high = m.mul(a.0, b);
    (high, m.fma(a.1, b, m.fma(a.0, b, m.neg(high))))
}

/// An argument without its sign, and moved to where Stirling's formula holds.
struct Moved<M: Machine> {
    /// |x|.
    magnitude: M::Float,
    /// Whether |x| < 1, to which 1 is added.
    small: M::Bool,
    /// |x|, or 1 + |x|, rounded.
    z: M::Float,
    /// z - 1/2.
    power: M::Float,
    /// 1/z.
    inverse: M::Float,
    /// w(1/z).
    rest: M::Float,
    /// log2(z/e).
    log2: Pair<M::Float>,
}

#[inline]
fn moved<M: Machine>(m: &M, c: &Gamma<M::Scalar>, steps: &impl Steps<M>, x: M::Float) -> Moved<M> {
    let (magnitude, one) = (m.abs(x), m.float(c.power.one));
    let small = m.lt(magnitude, one);
    let z = m.select(small, m.add(magnitude, one), magnitude);
    let inverse = m.div(one, z);
    let rest = m.mul(polynomial(m, inverse, c.stirling), inverse);
    let (log, log_low) = steps.log2(m, z);
    let (high, low) = two_sum(m, log, m.neg(m.float(c.log2_e[0])));
    let low = m.add(low, m.sub(log_low, m.float(c.log2_e[1])));
    let power = m.add(z, m.float(c.minus_half));
    Moved { magnitude, small, z, power, inverse, rest, log2: (high, low) }
}

/// sin(πy) for 0 ≤ y, and whether y is an integer.
#[inline]
fn sine<M: Machine>(m: &M, c: &Gamma<M::Scalar>, steps: &impl Steps<M>, y: M::Float) -> (M::Float, M::Bool) {
    let (turns, rounded) = whole_part(m, &c.power, y);
    let fraction = m.sub(y, turns);
    let rounder = m.float(c.rounder);
    let doubled = m.fma(fraction, m.float(c.two), rounder);
    let quarters = m.sub(doubled, rounder);
    let angle = m.fma(quarters, m.float(c.minus_half), fraction);
    let quadrant = m.iadd(m.shl_by(m.to_bits(rounded), 1), m.to_bits(doubled));
    (steps.sin(m, angle, quadrant), m.eq(turns, y))
}

/// Γ(x).
#[inline]
pub(super) fn gamma<M: Machine>(m: &M, c: &Gamma<M::Scalar>, steps: &impl Steps<M>, x: M::Float) -> M::Float {
    let (zero, one) = (m.float(c.power.zero), m.float(c.power.one));
    let Moved { magnitude, small, z, power, inverse, rest, log2 } = moved(m, c, steps, x);
    let (high, low) = times(m, log2, power);
    // The scale and what is left of Stirling's formula, of which the first is the larger.
    let scale = m.float(c.scale_log2[0]);
    let rest = m.mul(rest, m.float(c.log2_e[0]));
    let more = m.add(scale, rest);
    let more_low = m.add(m.add(m.sub(scale, more), rest), m.float(c.scale_log2[1]));
    // What rounding |x| + 1 lost, times the logarithm's derivative, about log z - 1/(2z): log(z/e) is one less than log z.
    let lost = m.select(small, m.sub(magnitude, m.sub(z, one)), zero);
    let slope = m.fma(inverse, m.float(c.minus_half), one);
    let slope = m.fma(slope, m.float(c.log2_e[0]), log2.0);
    let low = m.fma(lost, slope, low);
    let (high, error) = two_sum(m, high, more);
    let (value, exponent) = steps.exp2(m, (high, m.add(m.add(low, more_low), error)));
    // Γ(z), Γ(1 + y)/y, or the reflection of either, as one quotient of numbers that are neither large nor small.
    let negative = m.lt(x, zero);
    let (sine, whole) = sine(m, c, steps, magnitude);
    let reflected = m.mul(m.mul(sine, value), m.select(small, one, magnitude));
    let numerator = m.select(negative, m.neg(m.float(c.pi)), value);
    let denominator = m.select(negative, reflected, m.select(small, x, one));
    let exponent = m.iselect(negative, m.isub(m.int(0), exponent), exponent);
    let tiny = m.lt(magnitude, m.float(c.tiny));
    let quotient = m.div(m.select(tiny, one, numerator), m.select(tiny, x, denominator));
    let result = steps.scale(m, quotient, m.iselect(tiny, m.int(0), exponent));
    let pole = m.select(whole, m.float(c.power.nan), result);
    let result = m.select(negative, pole, result);
    m.select(m.eq(x, x), result, x)
}

/// log |Γ(x)|.
#[inline]
pub(super) fn log_gamma<M: Machine>(m: &M, c: &Gamma<M::Scalar>, steps: &impl Steps<M>, x: M::Float) -> M::Float {
    let (zero, one, infinity) = (m.float(c.power.zero), m.float(c.power.one), m.float(c.power.infinity));
    let Moved { magnitude, small, z, power, rest, log2, .. } = moved(m, c, steps, x);
    // Stirling's formula. Its first term is a product of pairs: log2 · ln 2 · (z - 1/2).
    let (high, low) = times(m, log2, m.float(c.ln_2[0]));
    let log = (high, m.fma(log2.0, m.float(c.ln_2[1]), low));
    let (high, low) = times(m, log, power);
    let (sum, error) = two_sum(m, high, m.add(rest, m.float(c.scale)));
    let far = m.add(sum, m.add(error, low));
    // The sum's error is no number where the sum is none.
    let far = m.select(m.lt(high, infinity), far, high);
    // 1 and 2 are zeros.
    let v = m.select(small, magnitude, m.sub(magnitude, one));
    let near = m.mul(m.mul(v, m.sub(v, one)), polynomial(m, m.add(v, m.float(c.middle)), c.zeros));
    let positive = m.select(m.lt(z, m.float(c.near)), near, far);
    // Γ(z), Γ(1 + y)/y, or the reflection of either.
    let negative = m.lt(x, zero);
    let (sine, whole) = sine(m, c, steps, magnitude);
    let reflected = m.mul(m.mul(m.abs(sine), m.float(c.inverse_pi)), m.select(small, one, magnitude));
    let divisor = m.select(negative, reflected, m.select(small, magnitude, one));
    let tiny = m.lt(magnitude, m.float(c.tiny));
    let divisor = m.select(tiny, magnitude, divisor);
    let result = m.sub(m.select(negative, m.neg(positive), positive), steps.log(m, divisor));
    // A product with zero may be -0.
    let result = m.add(result, zero);
    let pole = m.select(whole, infinity, result);
    let result = m.select(negative, pole, result);
    // So they are of both infinities.
    m.select(m.eq(magnitude, infinity), infinity, result)
}
