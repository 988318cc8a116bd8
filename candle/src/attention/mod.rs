//! Attention: of whole sequences with gradients, of few queries over caches and pages, and what fills these.
//!
//! | function | keys and values | for |
//! |---|---|---|
//! | [`attention`] | `[batch, kv_heads, keys, d]` | training, prompts |
//! | [`attention_packed`] | `[tokens, kv_heads, d]`, sequences one after the other | batches of different lengths |
//! | [`decode`] | `[batch, kv_heads, keys, d]` | few queries over many keys |
//! | [`paged_decode`], [`paged_prefill`] | [`PagedCache`], of f8e4m3 too | serving |
//! | [`append`], [`paged_append`], [`rotary_append`] | | filling caches |
//!
//! What a query sees and how scores are scaled is said by [`Attention`]: `Attention::default().causal()`. Tensors of queries are
//! `[batch, heads, queries, d]`, as candle's models have them, and so are results. In memory results are
//! `[batch, queries, heads, d]`, so that `transpose(1, 2)?.reshape(..)`, which follows, copies nothing.

mod append;
mod flash;
mod serving;

pub use append::{append, paged_append, rotary_append};
pub use flash::{attention, attention_packed};
pub use serving::{PagedCache, decode, paged_decode, paged_prefill};
pub use tilewright_kernels::attention::Attention;

use crate::prelude::*;
use tilewright_kernels::TensorViewMut;

/// A result `[batch, queries, heads, d]` as the library writes it, `[batch, heads, queries, d]`.
fn heads_first<T: DType>(out: TensorViewMut<'_, T, 4>) -> Result<TensorViewMut<'_, T, 4>> {
    out.transpose(1, 2)
}
