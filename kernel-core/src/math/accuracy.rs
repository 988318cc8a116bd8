//! How accurate the functions are, as data.

use super::MathFn;

/// The floating types that kernels do mathematics on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FloatTy {
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

impl FloatTy {
    /// Every type, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::F16, Self::Bf16, Self::F32, Self::F64];
}

/// The largest error of `function` at any argument, in units in the last place of the exact
/// result: the largest [`ulp_bound_at`].
///
/// ```
/// use kernel_core::math::{FloatTy, MathFn, ulp_bound};
/// assert_eq!(ulp_bound(MathFn::Log, FloatTy::F32), 2.0);
/// assert!(ulp_bound(MathFn::Exp, FloatTy::F16) < 0.52);
/// ```
pub const fn ulp_bound(function: MathFn, ty: FloatTy) -> f64 {
    ulp_bound_at(function, ty, f64::INFINITY)
}

/// The largest error of `function` at `x`, in units in the last place of the exact result, on
/// any machine that keeps the promises of [`FastMachine`](super::FastMachine).
///
/// An ulp is the spacing of numbers of the type in the binade of the exact result (the spacing
/// of subnormals below the smallest normal number). Two machines may therefore differ by twice
/// the bound, plus one half for counting from a rounded result. f16 and bf16 arguments go
/// through f32 and round once. Only the bound of f32's [`exp`](super::single::exp) depends on
/// the argument.
///
/// ```
/// use kernel_core::math::{FloatTy, MathFn, ulp_bound_at};
/// assert_eq!(ulp_bound_at(MathFn::Exp, FloatTy::F32, 0.0), 2.0);
/// assert_eq!(ulp_bound_at(MathFn::Exp, FloatTy::F32, -8.0), 12.0);
/// ```
pub const fn ulp_bound_at(function: MathFn, ty: FloatTy, x: f64) -> f64 {
    match ty {
        FloatTy::F16 => rounded_from_f32(single_bound(function, x), 24 - 11),
        FloatTy::Bf16 => rounded_from_f32(single_bound(function, x), 24 - 8),
        FloatTy::F32 => single_bound(function, x),
        FloatTy::F64 => double_bound(function),
    }
}

/// The largest error of the operator `/` in ulps: `div.full` for f32, correctly rounded for
/// f64, through f32 for the others.
pub const fn divide_ulp_bound(ty: FloatTy) -> f64 {
    match ty {
        FloatTy::F16 => rounded_from_f32(2.0, 24 - 11),
        FloatTy::Bf16 => rounded_from_f32(2.0, 24 - 8),
        FloatTy::F32 => 2.0,
        FloatTy::F64 => 0.5,
    }
}

/// The error in ulps of a type with `fewer_bits` bits less than f32, after one more rounding.
const fn rounded_from_f32(ulps: f64, fewer_bits: u32) -> f64 {
    0.5 + ulps / (1_u32 << fewer_bits) as f64
}

/// Below -104 and above 88.8 the f32 results are 0 and ∞.
const LARGEST_EXPONENT: f64 = 104.0;

/// The bounds of f32.
const fn single_bound(function: MathFn, x: f64) -> f64 {
    match function {
        // 2 of `ex2`, and the rounding of its argument, x · log2 e.
        MathFn::Exp => 2.0 + 1.25 * x.abs().min(LARGEST_EXPONENT),
        MathFn::Exp2 => 2.0,
        MathFn::Log | MathFn::Log2 => 2.0,
        MathFn::Sin | MathFn::Cos => 2.0,
        MathFn::Tanh => 2.5,
        // 3 of `ex2`, whose errors double in the worst binade, 1 of the rounded denominator.
        MathFn::Sigmoid => 4.5,
        MathFn::Erf => 2.0,
        // The hardware's, 2^-22.9 and 2^-23 of the result.
        MathFn::Sqrt | MathFn::Rsqrt => 2.5,
    }
}

/// The bounds of f64.
const fn double_bound(function: MathFn) -> f64 {
    match function {
        MathFn::Exp | MathFn::Exp2 => 1.0,
        MathFn::Log | MathFn::Log2 => 1.0,
        MathFn::Sin | MathFn::Cos => 1.0,
        MathFn::Tanh => 3.0,
        MathFn::Sigmoid => 3.0,
        MathFn::Erf => 1.5,
        MathFn::Sqrt => 0.5,
        // One division of a rounded root.
        MathFn::Rsqrt => 1.5,
    }
}
