//! Attention: forward and backward, over packed sequences, over caches and pages, and the merging of partial results.
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright_kernels::attention::{self, Attention, Saved};
//! use tilewright_kernels::{Context, Tensor};
//!
//! # fn main() -> Result<(), Error> {
//! let cx = Context::new(&Device::best()?);
//! // Batch, heads, rows, elements of a head; four heads of queries share one of keys.
//! let q = Tensor::<f32, 4>::zeros(cx.device(), [1, 4, 6, 16])?;
//! let k = Tensor::zeros(cx.device(), [1, 1, 6, 16])?;
//! let v = Tensor::upload(cx.device(), &[1.0; 6 * 16], [1, 1, 6, 16])?;
//! let options = Attention::default().causal();
//! let (out, lse) = attention::forward(&cx, &q, &k, &v, &options)?;
//! assert_eq!(out.to_vec()?, [1.0; 4 * 6 * 16]);
//! // The first query sees one key with score 0, the second two.
//! assert_eq!(lse.to_vec()?[0], 0.0);
//! assert!((lse.to_vec()?[1] - 2f32.ln()).abs() < 1e-6);
//!
//! let (q, k, v, out) = (q.view(), k.view(), v.view(), out.view());
//! let saved = Saved { q, k, v, bias: None, out, lse: lse.view(), dout: out, dlse: None };
//! let gradients = attention::backward(&cx, saved, &options)?;
//! assert_eq!(gradients.dk.shape(), [1, 1, 6, 16]);
//! # Ok(())
//! # }
//! ```
//!
//! | function | keys and values | for |
//! |---|---|---|
//! | [`forward`], [`backward`] | `[batch, kv_heads, keys, d]` | training, prompts |
//! | [`backward_rotated`], [`backward_rotated_qkv_into`] | the same, rotated before | training with rotary embedding |
//! | [`forward_fp8`] | the same, of 8 bits with scales | prompts |
//! | [`forward_packed`], [`backward_packed`] | `[tokens, kv_heads, d]`, sequences one after the other | batches of different lengths |
//! | [`decode`] | `[batch, kv_heads, keys, d]` | few queries over many keys |
//! | [`paged_decode`], [`paged_prefill`] | [`PagedCache`], of 8 bits too | serving |
//! | [`mla_decode`] | [`LatentCache`] | serving models with latent attention |
//! | [`merge`], [`merge_states`] | results over parts of the keys | keys that are shared, or far away |

mod backward;
#[cfg(test)]
mod code;
mod device;
mod forward;
mod fp8;
mod merge;
mod mla;
mod options;
mod parts;
mod serving;
mod shape;
#[cfg(test)]
mod variants;

pub use backward::{
    BackwardConfig, Gradients, Rotation, Saved, SavedPacked, backward, backward_into, backward_packed,
    backward_packed_into, backward_packed_into_with, backward_packed_workspace, backward_rotated,
    backward_rotated_into, backward_rotated_qkv_into, backward_workspace,
};
pub use forward::{ForwardConfig, forward, forward_into, forward_packed, forward_packed_into};
pub use fp8::{Fp8Scales, forward_fp8, forward_fp8_into, forward_fp8_into_with, forward_fp8_workspace};
pub use merge::{merge, merge_into, merge_states, merge_states_into};
pub use mla::{LatentCache, MlaConfig, mla_decode, mla_decode_into, mla_decode_workspace};
pub use options::Attention;
pub use serving::{
    DecodeConfig, PagedCache, PrefillConfig, decode, decode_into, decode_workspace, paged_decode, paged_decode_into,
    paged_decode_workspace, paged_prefill, paged_prefill_into,
};
