//! The machine that takes f32 subnormals for zeros, as `.ftz` instructions do.

use super::machine::{FastMachine, Machine, Reduced};
use super::{BinaryMathFn, FloatIntFn, Host, MathFn, single};

/// Zero of the same sign instead of a subnormal number.
///
/// ```
/// use kernel_core::math::flush;
/// assert_eq!(flush(-1e-40).to_bits(), (-0.0_f32).to_bits());
/// assert_eq!(flush(1e-37), 1e-37);
/// ```
#[inline]
pub fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

/// `function` of an f32, on the CPU, in a kernel that flushes.
pub fn evaluate_flushing(function: MathFn, x: f32) -> f32 {
    single::apply(&Flushing::new(), function, x)
}

/// `function` of two f32, on the CPU, in a kernel that flushes.
pub fn evaluate_binary_flushing(function: BinaryMathFn, x: f32, y: f32) -> f32 {
    single::apply_binary(&Flushing::new(), function, x, y)
}

/// `function` of an f32 and an integer, on the CPU, in a kernel that flushes.
pub fn evaluate_float_int_flushing(function: FloatIntFn, x: f32, n: i32) -> f32 {
    single::apply_float_int(&Flushing::new(), function, x, n)
}

/// A [`Host`] whose arithmetic flushes what goes in and what comes out. Bits, signs and choices stay as they are.
#[derive(Clone, Copy, Debug)]
pub struct Flushing {
    host: Host<f32>,
}

impl Flushing {
    /// Approximations are computed in f64 and rounded once.
    pub const fn new() -> Self {
        Flushing { host: Host::new() }
    }
}

impl Default for Flushing {
    fn default() -> Self {
        Self::new()
    }
}

/// Forwards methods to the host: those before the bar with floats flushed, those after it as they are.
macro_rules! forward {
    ($($flushed:ident($($fa:ident),*);)* | $($plain:ident($($pa:ident: $pt:ty),*) -> $pr:ty;)*) => {
        $(#[inline]
        fn $flushed(&self, $($fa: f32),*) -> f32 {
            flush(self.host.$flushed($(flush($fa)),*))
        })*
        $(#[inline]
        fn $plain(&self, $($pa: $pt),*) -> $pr {
            self.host.$plain($($pa),*)
        })*
    };
}

impl Machine for Flushing {
    type Scalar = f32;
    type Float = f32;
    type Int = i32;
    type Bool = bool;

    #[inline]
    fn keeps_subnormals(&self) -> bool {
        false
    }

    forward! {
        add(a, b); sub(a, b); mul(a, b); div(a, b); fma(a, b, c); sqrt(a); min(a, b); max(a, b); |
        float(value: f32) -> f32; neg(a: f32) -> f32; abs(a: f32) -> f32; int(value: i64) -> i32; copysign(magnitude: f32, sign: f32) -> f32;
        select(condition: bool, yes: f32, no: f32) -> f32; to_bits(a: f32) -> i32; from_bits(a: i32) -> f32;
        from_int(a: i32) -> f32; iadd(a: i32, b: i32) -> i32; isub(a: i32, b: i32) -> i32; imul(a: i32, b: i32) -> i32;
        umulhi(a: i32, b: i32) -> i32; and(a: i32, b: i32) -> i32; or(a: i32, b: i32) -> i32;
        xor(a: i32, b: i32) -> i32; shl(a: i32, count: i32) -> i32; lshr(a: i32, count: i32) -> i32;
        ashr(a: i32, count: i32) -> i32; ult(a: i32, b: i32) -> bool; ieq(a: i32, b: i32) -> bool;
        iselect(condition: bool, yes: i32, no: i32) -> i32;
    }

    #[inline]
    fn lt(&self, a: f32, b: f32) -> bool {
        flush(a) < flush(b)
    }
    #[inline]
    fn eq(&self, a: f32, b: f32) -> bool {
        flush(a) == flush(b)
    }
    #[inline]
    fn rarely(&self, condition: bool, usual: Reduced<Self>, unusual: impl FnOnce() -> Reduced<Self>) -> Reduced<Self> {
        if condition { unusual() } else { usual }
    }
}

impl FastMachine for Flushing {
    forward! {
        ex2_approx(a); ex2_approx_ftz(a); rcp_approx_ftz(a); rsqrt_approx(a); sqrt_approx(a); div_full(a, b); |
    }
}
