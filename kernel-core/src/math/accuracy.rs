//! How accurate the functions are, as data.

use super::table::FunctionRow;
use super::{BinaryMathFn, FloatIntFn, MathFn, evaluate_f64};

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

/// The exponents of the smallest normal numbers.
const SMALLEST_F16: i32 = -14;
const SMALLEST_F32: i32 = -126;
const SMALLEST_F64: i32 = -1022;

impl FloatTy {
    /// Every type, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::F16, Self::Bf16, Self::F32, Self::F64];
}

/// The largest error of `function` at any argument, in units in the last place of the exact
/// result: the largest [`ulp_bound_at`]. Of [`MathFn::Lgamma`] it is the largest outside of the range of its zeros.
///
/// ```
/// use kernel_core::math::{FloatTy, MathFn, ulp_bound};
/// assert_eq!(ulp_bound(MathFn::Log, FloatTy::F32), 2.0);
/// assert!(ulp_bound(MathFn::Exp, FloatTy::F16) < 0.52);
/// ```
pub const fn ulp_bound(function: MathFn, ty: FloatTy) -> f64 {
    bound_at(function.row(), ty, f64::INFINITY)
}

/// The largest error of `function` at `x`, in units in the last place of the exact result, on
/// any machine that keeps the promises of [`FastMachine`](super::FastMachine).
///
/// An ulp is the spacing of numbers of the type in the binade of the exact result (the spacing
/// of subnormals below the smallest normal number). Two machines may therefore differ by twice
/// the bound, plus one half for counting from a rounded result. f16 and bf16 arguments go
/// through f32 and round once. Only the bounds of f32's [`exp`](super::single::exp) and of [`MathFn::Lgamma`] below -2 depend
/// on the argument: the latter has zeros there that are no numbers of the type, and its error is bounded in ulps of the largest
/// of the result, log Γ(-x) and 1.
///
/// ```
/// use kernel_core::math::{FloatTy, MathFn, ulp_bound_at};
/// assert_eq!(ulp_bound_at(MathFn::Exp, FloatTy::F32, 0.0), 2.0);
/// assert_eq!(ulp_bound_at(MathFn::Exp, FloatTy::F32, -8.0), 12.0);
/// ```
pub fn ulp_bound_at(function: MathFn, ty: FloatTy, x: f64) -> f64 {
    let row = function.row();
    let bound = match ty {
        FloatTy::F16 | FloatTy::Bf16 | FloatTy::F32 => row.single,
        FloatTy::F64 => row.double,
    };
    if !bound.counts_terms(x) {
        return bound_at(row, ty, x);
    }
    let (result, term) = (evaluate_f64(function, x), evaluate_f64(function, -x));
    let (smallest, fewer_bits) = match ty {
        FloatTy::F16 => (SMALLEST_F16, 24 - 11),
        FloatTy::Bf16 => (SMALLEST_F32, 24 - 8),
        FloatTy::F32 => (SMALLEST_F32, 0),
        FloatTy::F64 => (SMALLEST_F64, 0),
    };
    let exponent = |x: f64| (x.abs().log2().floor() as i32).max(smallest);
    // How many ulps of the result one of the largest term is.
    let units = 2.0_f64.powi(exponent(result.abs().max(term.abs()).max(1.0)) - exponent(result));
    let ulps = bound.at(x) * units;
    if fewer_bits > 0 { rounded_from_f32(ulps, fewer_bits) } else { ulps }
}

/// The largest error of a function of two arguments, counted as that of [`ulp_bound_at`].
///
/// ```
/// use kernel_core::math::{BinaryMathFn, FloatTy, binary_ulp_bound};
/// assert_eq!(binary_ulp_bound(BinaryMathFn::Pow, FloatTy::F64), 1.0);
/// ```
pub const fn binary_ulp_bound(function: BinaryMathFn, ty: FloatTy) -> f64 {
    bound_at(function.row(), ty, f64::INFINITY)
}

/// The largest error of a function of a float and an integer, counted as that of [`ulp_bound_at`].
pub const fn float_int_ulp_bound(function: FloatIntFn, ty: FloatTy) -> f64 {
    bound_at(function.row(), ty, f64::INFINITY)
}

const fn bound_at(row: &FunctionRow, ty: FloatTy, x: f64) -> f64 {
    match ty {
        FloatTy::F16 => rounded_from_f32(row.single.at(x), 24 - 11),
        FloatTy::Bf16 => rounded_from_f32(row.single.at(x), 24 - 8),
        FloatTy::F32 => row.single.at(x),
        FloatTy::F64 => row.double.at(x),
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
