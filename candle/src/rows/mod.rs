//! Functions of rows, the last dimension of a tensor: softmax, norms, rotary embedding, gated activations, cross entropy.
//!
//! | function | instead of | gradients |
//! |---|---|---|
//! | [`softmax`], [`log_softmax`] | `candle_nn::ops::softmax_last_dim`, `log_softmax` | `x` |
//! | [`rms_norm`], [`layer_norm`] | `candle_nn::ops::rms_norm`, `layer_norm` | all |
//! | [`add_rms_norm_in_place`] | an addition and `rms_norm` | none |
//! | [`rotary`], [`rotary_at`], [`rotary_in_place`] | `candle_nn::rotary_emb::rope`, `rope_i` | `x`, of the first |
//! | [`swiglu`], [`geglu`] | `silu` or `gelu`, and a product | both |
//! | [`cross_entropy`] | `candle_nn::loss::cross_entropy` | `logits` |
//!
//! Tensors are of f16, bf16, f32 or f64, and have any strides that leave rows whole: the last dimension contiguous, rows at one
//! distance. So halves of a product's columns need no copy. Results are contiguous. Computed is in f32, f64 for f64.

mod gated;
mod loss;
mod norm;
mod rotary;
mod softmax;

pub use gated::{geglu, swiglu};
pub use loss::cross_entropy;
pub use norm::{add_rms_norm_in_place, layer_norm, rms_norm};
pub use rotary::{rotary, rotary_at, rotary_in_place, rotary_tables};
pub use softmax::{log_softmax, softmax};
pub use tilewright_kernels::rows::{CrossEntropy, Gelu, Pairs, Reduction};
