//! The gamma function and its logarithm.

use super::super::gamma::{self, Gamma, Pair, Steps};
use super::super::power::SINGLE;
use super::power;
use super::{LN_2, LN_2_LOW, LOG2_E, LOG2_E_LOW, Machine, SINGLE_ROUNDER, log, sin_of_quadrant};

/// w(u)/u in u, for u ≤ 1, to 2^-33 of Γ.
const STIRLING: [f32; 9] = [
    0.08333335,
    -6.513657e-07,
    -0.0027682905,
    -6.716634e-05,
    0.0010563821,
    -0.00057894655,
    1.28626825e-05,
    0.00010648661,
    -3.2558703e-05,
];
/// log Γ(1 + v) / (v · (v - 1)) in v - 3/4, for v ≤ 3/2, to 2^-28 of it.
const ZEROS: [f32; 12] = [
    0.4501393,
    -0.119481586,
    0.04452059,
    -0.019054161,
    0.008773467,
    -0.0042233737,
    0.0021168757,
    -0.0010771406,
    0.0004754471,
    -0.00023684131,
    0.00024740427,
    -0.00013733261,
];

const GAMMA: Gamma<f32> = Gamma {
    power: SINGLE,
    tiny: 1.0 / 1073741824.0,
    near: 2.5,
    middle: -0.75,
    two: 2.0,
    minus_half: -0.5,
    pi: std::f32::consts::PI,
    inverse_pi: std::f32::consts::FRAC_1_PI,
    log2_e: [LOG2_E, LOG2_E_LOW],
    ln_2: [LN_2, LN_2_LOW],
    scale: 0.41893855,
    scale_log2: [0.6044005, 2.8735343e-8],
    stirling: &STIRLING,
    zeros: &ZEROS,
    rounder: SINGLE_ROUNDER,
};

/// The steps of this width.
struct Single;

impl<M: Machine<Scalar = f32>> Steps<M> for Single {
    #[inline]
    fn log2(&self, m: &M, x: M::Float) -> Pair<M::Float> {
        power::log2(m, x)
    }

    #[inline]
    fn log(&self, m: &M, x: M::Float) -> M::Float {
        log(m, x)
    }

    #[inline]
    fn exp2(&self, m: &M, exponent: Pair<M::Float>) -> (M::Float, M::Int) {
        power::exp2_of_sum(m, exponent.0, exponent.1)
    }

    #[inline]
    fn scale(&self, m: &M, value: M::Float, power: M::Int) -> M::Float {
        power::scale(m, value, power)
    }

    #[inline]
    fn sin(&self, m: &M, x: M::Float, quadrant: M::Int) -> M::Float {
        sin_of_quadrant(m, m.mul(x, m.float(std::f32::consts::PI)), quadrant)
    }
}

/// Γ(x) within 4.5 ulp.
#[inline]
pub fn tgamma<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Float {
    gamma::gamma(m, &GAMMA, &Single, x)
}

/// log |Γ(x)| within 3.5 ulp; below -2, where it has zeros that are no numbers, of the largest of it, log Γ(-x) and 1.
#[inline]
pub fn lgamma<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> M::Float {
    gamma::log_gamma(m, &GAMMA, &Single, x)
}
