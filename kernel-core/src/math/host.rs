//! The machine that computes: Rust's own f32 and f64.

use std::marker::PhantomData;

use super::double;
use super::flush::flush;
use super::machine::{FastMachine, Machine};

/// A [`Machine`] over real numbers, for the interpreter, constant folding and tests.
///
/// Results are the same on every platform: nothing here calls the platform's `libm` except for
/// `mul_add` and `sqrt`, which are exact by definition.
///
/// ```
/// use kernel_core::math::{Host, single};
/// assert_eq!(single::exp(&Host::<f32>::new(), 0.0), 1.0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Host<F> {
    error: ApproximationError,
    float: PhantomData<F>,
}

/// How far each approximation instruction is off, in ulps of its result, before it rounds.
///
/// Zero by default. Tests turn it to show that the stated bounds hold on hardware that uses up
/// its allowance; a negative number errs downwards.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ApproximationError {
    /// Of `ex2.approx`.
    pub ex2: f64,
    /// Of `rcp.approx`.
    pub rcp: f64,
    /// Of `sqrt.approx` and `rsqrt.approx`.
    pub root: f64,
    /// Of `div.full`.
    pub division: f64,
}

impl<F> Host<F> {
    /// Approximations are computed in f64 and rounded once.
    pub const fn new() -> Self {
        Self::with_error(ApproximationError { ex2: 0.0, rcp: 0.0, root: 0.0, division: 0.0 })
    }

    /// Approximations are off by the given errors.
    pub const fn with_error(error: ApproximationError) -> Self {
        Self { error, float: PhantomData }
    }
}

impl<F> Default for Host<F> {
    fn default() -> Self {
        Self::new()
    }
}

/// Rounds to f32 what an approximation instruction gives that is `ulps` off.
#[inline]
fn approximate(exact: f64, ulps: f64) -> f32 {
    if ulps == 0.0 || !exact.is_finite() || exact == 0.0 {
        return exact as f32;
    }
    // Underflow does not change the sign.
    let wrong = exact + ulps * ulp_f32(exact);
    if wrong * exact > 0.0 { wrong as f32 } else { 0.0_f32.copysign(exact as f32) }
}

/// The spacing of f32 numbers in the binade of `x`.
pub(super) fn ulp_f32(x: f64) -> f64 {
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i64 - 1023;
    f64::from_bits(((exponent.max(-126) - 23 + 1023) as u64) << 52)
}

macro_rules! host_machine {
    ($float:ty, $signed:ty, $unsigned:ty, $wide:ty) => {
        impl Machine for Host<$float> {
            type Scalar = $float;
            type Float = $float;
            type Int = $signed;
            type Bool = bool;

            #[inline]
            fn float(&self, value: $float) -> $float {
                value
            }
            #[inline]
            fn int(&self, value: i64) -> $signed {
                value as $signed
            }
            #[inline]
            fn add(&self, a: $float, b: $float) -> $float {
                a + b
            }
            #[inline]
            fn sub(&self, a: $float, b: $float) -> $float {
                a - b
            }
            #[inline]
            fn mul(&self, a: $float, b: $float) -> $float {
                a * b
            }
            #[inline]
            fn div(&self, a: $float, b: $float) -> $float {
                a / b
            }
            #[inline]
            fn fma(&self, a: $float, b: $float, c: $float) -> $float {
                a.mul_add(b, c)
            }
            #[inline]
            fn sqrt(&self, a: $float) -> $float {
                a.sqrt()
            }
            #[inline]
            fn neg(&self, a: $float) -> $float {
                -a
            }
            #[inline]
            fn abs(&self, a: $float) -> $float {
                a.abs()
            }
            #[inline]
            fn copysign(&self, magnitude: $float, sign: $float) -> $float {
                magnitude.copysign(sign)
            }
            #[inline]
            fn min(&self, a: $float, b: $float) -> $float {
                a.min(b)
            }
            #[inline]
            fn max(&self, a: $float, b: $float) -> $float {
                a.max(b)
            }
            #[inline]
            fn lt(&self, a: $float, b: $float) -> bool {
                a < b
            }
            #[inline]
            fn eq(&self, a: $float, b: $float) -> bool {
                a == b
            }
            #[inline]
            fn select(&self, condition: bool, yes: $float, no: $float) -> $float {
                if condition { yes } else { no }
            }
            #[inline]
            fn to_bits(&self, a: $float) -> $signed {
                a.to_bits() as $signed
            }
            #[inline]
            fn from_bits(&self, a: $signed) -> $float {
                <$float>::from_bits(a as $unsigned)
            }
            #[inline]
            fn from_int(&self, a: $signed) -> $float {
                a as $float
            }
            #[inline]
            fn iadd(&self, a: $signed, b: $signed) -> $signed {
                a.wrapping_add(b)
            }
            #[inline]
            fn isub(&self, a: $signed, b: $signed) -> $signed {
                a.wrapping_sub(b)
            }
            #[inline]
            fn imul(&self, a: $signed, b: $signed) -> $signed {
                a.wrapping_mul(b)
            }
            #[inline]
            fn umulhi(&self, a: $signed, b: $signed) -> $signed {
                let product = (a as $unsigned as $wide) * (b as $unsigned as $wide);
                (product >> <$unsigned>::BITS) as $signed
            }
            #[inline]
            fn and(&self, a: $signed, b: $signed) -> $signed {
                a & b
            }
            #[inline]
            fn or(&self, a: $signed, b: $signed) -> $signed {
                a | b
            }
            #[inline]
            fn xor(&self, a: $signed, b: $signed) -> $signed {
                a ^ b
            }
            #[inline]
            fn shl(&self, a: $signed, count: $signed) -> $signed {
                debug_assert!((0..<$signed>::BITS as $signed).contains(&count));
                a.wrapping_shl(count as u32)
            }
            #[inline]
            fn lshr(&self, a: $signed, count: $signed) -> $signed {
                debug_assert!((0..<$signed>::BITS as $signed).contains(&count));
                (a as $unsigned).wrapping_shr(count as u32) as $signed
            }
            #[inline]
            fn ashr(&self, a: $signed, count: $signed) -> $signed {
                debug_assert!((0..<$signed>::BITS as $signed).contains(&count));
                a.wrapping_shr(count as u32)
            }
            #[inline]
            fn ult(&self, a: $signed, b: $signed) -> bool {
                (a as $unsigned) < (b as $unsigned)
            }
            #[inline]
            fn ieq(&self, a: $signed, b: $signed) -> bool {
                a == b
            }
            #[inline]
            fn iselect(&self, condition: bool, yes: $signed, no: $signed) -> $signed {
                if condition { yes } else { no }
            }
            #[inline]
            fn rarely(
                &self,
                condition: bool,
                usual: super::Reduced<Self>,
                unusual: impl FnOnce() -> super::Reduced<Self>,
            ) -> super::Reduced<Self> {
                if condition { unusual() } else { usual }
            }
        }
    };
}

host_machine!(f32, i32, u32, u64);
host_machine!(f64, i64, u64, u128);

impl FastMachine for Host<f32> {
    #[inline]
    fn ex2_approx(&self, a: f32) -> f32 {
        approximate(double::exp2(&Host::<f64>::new(), f64::from(a)), self.error.ex2)
    }
    #[inline]
    fn ex2_approx_ftz(&self, a: f32) -> f32 {
        flush(self.ex2_approx(flush(a)))
    }
    #[inline]
    fn rcp_approx_ftz(&self, a: f32) -> f32 {
        flush(approximate(1.0 / f64::from(flush(a)), self.error.rcp))
    }
    #[inline]
    fn rsqrt_approx(&self, a: f32) -> f32 {
        approximate(1.0 / f64::from(a).sqrt(), self.error.root)
    }
    #[inline]
    fn sqrt_approx(&self, a: f32) -> f32 {
        approximate(f64::from(a).sqrt(), self.error.root)
    }
    #[inline]
    fn div_full(&self, a: f32, b: f32) -> f32 {
        approximate(f64::from(a) / f64::from(b), self.error.division)
    }
}
