//! Matrix products: with what often follows them, with quantised weights, of 8-bit floats.
//!
//! | function | what | gradients |
//! |---|---|---|
//! | [`linear`] | `x @ weight^T`, of any number of dimensions | both |
//! | [`matmul`] | `a @ b`, of one pair of matrices or several | both |
//! | [`fused_linear`], [`fused_swiglu`] | with a norm before, and bias, activation, residual or gate behind | none |
//! | [`QuantisedLinear`] | with weights of 8 bits, 4 bits or NF4 | `x` |
//! | [`Fp8Linear`], [`fp8`] | of f8e4m3 with scales per block of 128 | none |
//!
//! Factors of 16 bits are multiplied exactly and summed in f32; those of f32 to within 2<sup>-24</sup>, f64 in f64. The result
//! is rounded once.

pub mod fp8;
mod fused;
mod linear;
mod quantised;
mod row;

pub use fp8::Fp8Linear;
pub use fused::{Fused, fused_linear, fused_swiglu};
pub use linear::{linear, matmul};
pub use quantised::{QuantisedLinear, Weights};
pub use tilewright_kernels::products::Activation;
pub use tilewright_kernels::products::quantised::Packing;
