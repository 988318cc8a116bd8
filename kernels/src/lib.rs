//! Ready kernels, written in [Tilewright](tilewright) as its users write them: read them to learn, call them to compute.
//!
//! Each is a typed function over [tensors](Tensor), on a GPU or on the CPU. Shapes are checked before anything is launched.
//! `f(&cx, &x)` allocates its result; `f_into(&cx, &x, &mut out)` writes one that is given. What a function allocates beside
//! its results, it says; `f_into_with` takes that as a [workspace](#workspaces), too.
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright_kernels::{Context, Tensor, rows};
//!
//! # fn main() -> Result<(), Error> {
//! let cx = Context::new(&Device::best()?);
//! let x = Tensor::upload(cx.device(), &[0.0f32, 0.0, 0.0, 3.0, 3.0, 3.0], [2, 3])?;
//! let y = rows::softmax(&cx, &x)?;
//! assert_eq!(y.shape(), [2, 3]);
//! assert!(y.to_vec()?.iter().all(|p| (p - 1.0 / 3.0).abs() < 1e-6));
//! # Ok(())
//! # }
//! ```
//!
//! | module | functions |
//! |---|---|
//! | [`rows`] | softmax and its logarithm; layer, RMS and group norm; cross entropy, also with the last linear layer; divergences; rotary embedding; gated activations; dropout; embeddings; each with its gradient |
//! | [`attention`] | flash attention, its gradients, 8-bit factors, packed sequences, decoding, pages, latent attention, merging |
//! | [`training`] | AdamW and gradient descent, of one tensor or of many in one launch; norms of gradients, clipping |
//! | [`products`] | matrix products with bias, activation and residual; of 8-bit floats with scales ([`fp8`](products::fp8)); with 4-bit, 8-bit and NF4 weights ([`quantised`](products::quantised)); mixtures of experts ([`grouped`](products::grouped)) |
//! | [`general`] | copies and transposition; elementwise functions from expressions ([`elementwise!`]); reductions, extremes with their places and scans along any dimension; sorts, top-k, sampling; elements at indices, histograms; quantisation to 8 bits; convolutions and pooling |
//! | [`tuning`] | finding configurations that are faster on a device than those that the library has |
//! | [`sequence`] | selective scan (Mamba), state-space duality (Mamba-2), gated linear attention, with gradients; gated delta rule |
//!
//! # Workspaces
//!
//! `f_into_with` takes its workspace as the last argument, or in the struct of results, and allocates nothing, so that graphs
//! capture it. What a workspace holds does not matter. `f_workspace` says how large it is at least, for a kind of functions
//! [`reduction_workspace`](general::reduction_workspace) or [`scan_workspace`](general::scan_workspace); where there is no such
//! function, the documentation of `f_into_with` says it. Workspaces begin best at multiples of 16 bytes: otherwise accesses are
//! narrower, and sums of f32 may be added up in another order.
//!
//! A workspace of several dtypes is a struct, such as [`PairWorkspace`](general::PairWorkspace) and
//! [`MoeWorkspace`](products::grouped::MoeWorkspace), and so are many results: [`SsdGradientsMut`](sequence::SsdGradientsMut) says
//! where those of [`SsdGradients`](sequence::SsdGradients) are written. Where there is no `f_into_with`, `f_into` allocates
//! nothing, or says what.
//!
//! Older functions take a workspace under the name `f_into`, many of them before the results: decoding
//! ([`attention::decode_into`] and its kind), [`attention::backward_into`], the gradients of norms of rows and of embeddings,
//! cross entropy (the logits of [`rows::linear_cross_entropy_into`]), [`training::global_norm_into`] and
//! [`products::quantised::matmul_into`]. Their documentation says how large it is, or which function does.

pub mod attention;
pub mod config;
pub mod general;
pub mod products;
pub mod rows;
pub mod sequence;
pub mod tensor;
pub mod training;
pub mod tuning;

mod arguments;
mod check;
#[cfg(test)]
mod code;
mod context;
mod device;
mod workspace;

pub use config::Table;
pub use context::Context;
pub use tensor::{Tensor, TensorView, TensorViewMut};

/// The programs of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
