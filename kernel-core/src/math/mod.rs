//! The elementary functions, each defined once for the CPU interpreter and for generated code.
//!
//! An algorithm is a function generic over a [`Machine`], whose methods are single hardware
//! instructions. The interpreter runs it on [`Host`], which computes; the code generator runs
//! the same function on a machine that emits an instruction per call. So both have the same
//! operations in the same order, and differ only where the GPU has approximation instructions
//! ([`FastMachine`]).
//!
//! - [`MathFn`] is the table of those of one argument, with what is to be known of each, [`BinaryMathFn`] that of two, and
//!   [`FloatIntFn`] that of a float and an integer;
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
mod angle;
mod area;
pub mod double;
mod flush;
mod gamma;
mod host;
mod hypotenuse;
mod inverse;
mod machine;
mod power;
mod reduction;
mod scaling;
pub mod single;
mod table;
#[cfg(test)]
mod tests;
mod ulps;

pub use accuracy::{FloatTy, binary_ulp_bound, divide_ulp_bound, float_int_ulp_bound, ulp_bound, ulp_bound_at};
pub use flush::{Flushing, evaluate_binary_flushing, evaluate_float_int_flushing, evaluate_flushing, flush};
pub use host::{ApproximationError, Host};
pub use machine::{Angle, FastMachine, Machine, Reduced};
pub use table::{BinaryMathFn, FloatIntFn, FunctionRow, MathFn};
#[cfg(feature = "interp")]
pub(crate) use table::{specialise, specialise_binary, specialise_float_int};
pub use ulps::Ulps;

/// `function` of an f32, on the CPU.
pub fn evaluate_f32(function: MathFn, x: f32) -> f32 {
    single::apply(&Host::<f32>::new(), function, x)
}

/// `function` of an f64, on the CPU.
pub fn evaluate_f64(function: MathFn, x: f64) -> f64 {
    double::apply(&Host::<f64>::new(), function, x)
}

/// `function` of two f32, on the CPU.
pub fn evaluate_binary_f32(function: BinaryMathFn, x: f32, y: f32) -> f32 {
    single::apply_binary(&Host::<f32>::new(), function, x, y)
}

/// `function` of two f64, on the CPU.
pub fn evaluate_binary_f64(function: BinaryMathFn, x: f64, y: f64) -> f64 {
    double::apply_binary(&Host::<f64>::new(), function, x, y)
}

/// `function` of an f32 and an integer, on the CPU.
pub fn evaluate_float_int_f32(function: FloatIntFn, x: f32, n: i32) -> f32 {
    single::apply_float_int(&Host::<f32>::new(), function, x, n)
}

/// `function` of an f64 and an integer, on the CPU.
pub fn evaluate_float_int_f64(function: FloatIntFn, x: f64, n: i32) -> f64 {
    double::apply_float_int(&Host::<f64>::new(), function, x, i64::from(n))
}
