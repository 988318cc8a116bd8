//! The elementary functions, each defined once for the CPU interpreter and for generated code.
//!
//! An algorithm is a function generic over a [`Machine`], whose methods are single hardware
//! instructions. The interpreter runs it on [`Host`], which computes; the code generator runs
//! the same function on a machine that emits an instruction per call. So both have the same
//! operations in the same order, and differ only where the GPU has approximation instructions
//! ([`FastMachine`]).
//!
//! - [`single`] has those of f32; f16 and bf16 arguments are converted to f32, and the result rounded once;
//! - [`double`] has those of f64;
//! - [`ulp_bound_at`] and [`ulp_bound`] say how accurate each is.
//!
//! All are total and without branches; subnormal numbers are kept, NaN stays NaN, and infinities
//! and signed zeros give what IEEE 754 and C's Annex F say.
//!
//! ```
//! use kernel_core::math::{MathFn, evaluate_f32, evaluate_f64};
//! assert_eq!(evaluate_f32(MathFn::Sigmoid, 0.0), 0.5);
//! assert_eq!(evaluate_f64(MathFn::Log2, 8.0), 3.0);
//! assert_eq!(evaluate_f32(MathFn::Exp, f32::NEG_INFINITY), 0.0);
//! ```

mod accuracy;
pub mod double;
mod host;
mod machine;
mod reduction;
pub mod single;
#[cfg(test)]
mod tests;

pub use accuracy::{FloatTy, divide_ulp_bound, ulp_bound, ulp_bound_at};
pub use host::{ApproximationError, Host};
pub use machine::{Angle, FastMachine, Machine, Reduced};

/// An elementary function of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MathFn {
    /// e^x.
    Exp,
    /// 2^x.
    Exp2,
    /// The natural logarithm.
    Log,
    /// The logarithm to base 2.
    Log2,
    /// The sine of an angle in radians.
    Sin,
    /// The cosine of an angle in radians.
    Cos,
    /// The hyperbolic tangent.
    Tanh,
    /// The error function, 2/√π · ∫₀ˣ e^(-t²) dt.
    Erf,
    /// The logistic function, 1 / (1 + e^-x).
    Sigmoid,
    /// The square root; for f32 the approximate one.
    Sqrt,
    /// The reciprocal square root; for f32 the approximate one.
    Rsqrt,
}

impl MathFn {
    /// Every function, in the order of declaration.
    pub const ALL: [Self; 11] = [
        Self::Exp,
        Self::Exp2,
        Self::Log,
        Self::Log2,
        Self::Sin,
        Self::Cos,
        Self::Tanh,
        Self::Erf,
        Self::Sigmoid,
        Self::Sqrt,
        Self::Rsqrt,
    ];
}

/// `function` of an f32, on the CPU.
pub fn evaluate_f32(function: MathFn, x: f32) -> f32 {
    single::apply(&Host::<f32>::new(), function, x)
}

/// `function` of an f64, on the CPU.
pub fn evaluate_f64(function: MathFn, x: f64) -> f64 {
    double::apply(&Host::<f64>::new(), function, x)
}
