//! The elementary functions, each defined once for the CPU interpreter and for generated code.
//!
//! An algorithm is a function generic over a [`Machine`], whose methods are single hardware
//! instructions. The interpreter runs it on [`Host`], which computes; the code generator runs
//! the same function on a machine that emits an instruction per call. So both have the same
//! operations in the same order, and differ only where the GPU has approximation instructions
//! ([`FastMachine`]).
//!
//! - [`MathFn`] is the table of them, with what is to be known of each;
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
mod area;
pub mod double;
mod host;
mod inverse;
mod machine;
mod reduction;
pub mod single;
mod table;
#[cfg(test)]
mod tests;
mod ulps;

pub use accuracy::{FloatTy, divide_ulp_bound, ulp_bound, ulp_bound_at};
pub use host::{ApproximationError, Host};
pub use machine::{Angle, FastMachine, Machine, Reduced};
#[cfg(feature = "interp")]
pub(crate) use table::specialise;
pub use table::{FunctionRow, MathFn};
pub use ulps::Ulps;

/// `function` of an f32, on the CPU.
pub fn evaluate_f32(function: MathFn, x: f32) -> f32 {
    single::apply(&Host::<f32>::new(), function, x)
}

/// `function` of an f64, on the CPU.
pub fn evaluate_f64(function: MathFn, x: f64) -> f64 {
    double::apply(&Host::<f64>::new(), function, x)
}
