//! The gamma function and its logarithm.

use super::super::gamma::{self, Gamma, Pair, Steps};
use super::super::power::DOUBLE;
use super::power;
use super::{
    DOUBLE_ROUNDER, LN_2, LN_2_LOW, LOG2_E, LOG2_E_LOW, Machine, Power, Reduced, log, scale_number, sin_of_quadrant,
};

/// What rounding π to f64 lost.
const PI_LOW: f64 = 1.2246467991473532e-16;
/// w(u)/u in u, for u ≤ 1, to 2^-59 of Γ.
const STIRLING: [f64; 23] = [
    0.08333333333333247,
    2.0073597707895273e-13,
    -0.002777777794256973,
    6.896718321344732e-10,
    0.0007936334810073979,
    2.8521378277030844e-07,
    -0.0005984902565759477,
    2.640948694263849e-05,
    0.0006883349410514809,
    0.0006152832475053846,
    -0.0033605594671406273,
    -0.00014359151508117315,
    0.02299186683066849,
    -0.07182536169391299,
    0.1331965113084314,
    -0.17590613285522474,
    0.17438686135567008,
    -0.1314516209539253,
    0.07468232167677853,
    -0.03108718264566221,
    0.008966905055984938,
    -0.0016036055660749863,
    0.00013404292215401403,
];
/// log Γ(1 + v) / (v · (v - 1)) in v - 3/4, for v ≤ 3/2, to 2^-57 of it.
const ZEROS: [f64; 25] = [
    0.4501393121092563,
    -0.11948158662524266,
    0.04452044719850938,
    -0.019053957830261398,
    0.008776370425280037,
    -0.004226194125163181,
    0.002095533879164683,
    -0.0010605660943616732,
    0.0005448970037868668,
    -0.00028319035366688804,
    0.0001485166285697476,
    -7.846409921338036e-05,
    4.170632835610766e-05,
    -2.2267986590471922e-05,
    1.1945635732894121e-05,
    -6.48855681271601e-06,
    3.5174036166055485e-06,
    -1.7662545740512856e-06,
    9.406891179287386e-07,
    -7.5799905772508e-07,
    4.367559769069507e-07,
    3.5282017983004076e-08,
    -3.481939954661796e-08,
    -1.5815617237221012e-07,
    9.155850956998178e-08,
];

const GAMMA: Gamma<f64> = Gamma {
    power: DOUBLE,
    tiny: 1.0 / 1152921504606846976.0,
    near: 2.5,
    middle: -0.75,
    two: 2.0,
    minus_half: -0.5,
    pi: std::f64::consts::PI,
    inverse_pi: std::f64::consts::FRAC_1_PI,
    log2_e: [LOG2_E, LOG2_E_LOW],
    ln_2: [LN_2, LN_2_LOW],
    scale: 0.4189385332046727,
    scale_log2: [0.6044005442916777, 2.931052888777415e-17],
    stirling: &STIRLING,
    zeros: &ZEROS,
    rounder: DOUBLE_ROUNDER,
};

/// The steps of this width.
struct Double;

impl<M: Machine<Scalar = f64>> Steps<M> for Double {
    #[inline]
    fn log2(&self, m: &M, x: M::Float) -> Pair<M::Float> {
        let power::Pair { high, low } = power::log2(m, x);
        (high, low)
    }

    #[inline]
    fn log(&self, m: &M, x: M::Float) -> M::Float {
        log(m, x)
    }

    #[inline]
    fn exp2(&self, m: &M, exponent: Pair<M::Float>) -> (M::Float, M::Int) {
        let Power { power, fraction } = power::exp2_of_sum(m, exponent.0, exponent.1);
        (m.add(m.float(1.0), fraction), power)
    }

    #[inline]
    fn scale(&self, m: &M, value: M::Float, power: M::Int) -> M::Float {
        scale_number(m, value, power)
    }

    #[inline]
    fn sin(&self, m: &M, x: M::Float, quadrant: M::Int) -> M::Float {
        let pi = m.float(std::f64::consts::PI);
        let high = m.mul(x, pi);
        let low = m.fma(x, m.float(PI_LOW), m.fma(x, pi, m.neg(high)));
        sin_of_quadrant(m, Reduced { high, low, quadrant })
    }
}

/// Γ(x) within 3.5 ulp.
#[inline]
pub fn tgamma<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    gamma::gamma(m, &GAMMA, &Double, x)
}

/// log |Γ(x)| within 4 ulp; below -2, where it has zeros that are no numbers, of the largest of it, log Γ(-x) and 1.
#[inline]
pub fn lgamma<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> M::Float {
    gamma::log_gamma(m, &GAMMA, &Double, x)
}
