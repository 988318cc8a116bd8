//! Products with quantised weights: 4-bit integers as AWQ and GPTQ pack them, 8-bit integers, and NF4.
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright_kernels::products::quantised::{self, Int4, Packing};
//! use tilewright_kernels::{Context, Tensor};
//!
//! # fn main() -> Result<(), Error> {
//! let cx = Context::new(&Device::best()?);
//! let w = Tensor::upload(cx.device(), &vec![f16::from_f32(0.5); 64 * 32], [64, 32])?;
//! let packed = quantised::quantise_int4(&cx, &w, 32, Packing::Awq)?;
//! let x = Tensor::upload(cx.device(), &vec![f16::from_f32(1.0); 64], [1, 64])?;
//! let y = quantised::matmul(&cx, &x, &packed.view()?)?;
//! assert_eq!(y.to_vec()?, [f16::from_f32(32.0); 32]);
//! # Ok(())
//! # }
//! ```

#[cfg(test)]
mod code_tests;
mod int4;
mod int8;
mod kernels;
mod launch;
mod nf4;
mod unpack;

pub use int4::{Int4, PackedInt4, Packing, dequantise_int4, dequantise_int4_into, quantise_int4, quantise_int4_into};
pub use int8::{Int8, QuantisedInt8, dequantise_int8, dequantise_int8_into, quantise_int8, quantise_int8_into};
pub use launch::{QuantisedConfig, Weights, matmul, matmul_into, workspace};
pub use nf4::{Nf4, QuantisedNf4, dequantise_nf4, dequantise_nf4_into, quantise_nf4, quantise_nf4_into};
pub use unpack::NF4;
