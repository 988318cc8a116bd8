//! Matrix products: of floats in any order of dimensions, of 8-bit floats with scales, with quantised weights, and of
//! mixtures of experts.
//!
//! Sums are kept in f32 (f64 for f64), whatever the factors are. Which kernel runs is chosen by strides: where rows of both
//! factors can be copied by the hardware, blocks come by tensor descriptors, otherwise through pointers.

mod activation;
pub mod fp8;
mod gated;
pub mod grouped;
pub(crate) mod matmul;
pub mod quantised;
pub(crate) mod tiles;

pub use activation::Activation;
pub use gated::{GatedMatmul, GatedMatmulConfig};
pub use matmul::{Matmul, MatmulConfig, Precision, matmul, matmul_into};
