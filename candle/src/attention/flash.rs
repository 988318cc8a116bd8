//! Attention of whole sequences.

use super::heads_first;
use crate::op::requires_gradient;
use crate::prelude::*;
use candle_core::DType as CandleDType;
use tilewright_kernels::Tensor as Scratch;
use tilewright_kernels::attention::{self, Attention, Saved};

/// Softmax attention: for each batch and head `softmax(scale * q k^T) v`, without the matrix of scores (Dao,
/// "FlashAttention-2", 2023). Differentiable.
///
/// ```
/// use candle_core::{DType, Device, Tensor, Var};
/// use tilewright_candle::attention::{Attention, attention};
///
/// # fn main() -> candle_core::Result<()> {
/// // Batch, heads, tokens, elements of a head; four heads of queries share one of keys.
/// let q = Var::ones((1, 4, 6, 16), DType::F32, &Device::Cpu)?;
/// let k = Tensor::ones((1, 1, 6, 16), DType::F32, &Device::Cpu)?;
/// let y = attention(&q, &k, &k, Attention::default().causal())?;
/// assert_eq!(y.dims(), [1, 4, 6, 16]);
/// assert!(y.sum_all()?.backward()?.get(&q).is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Shapes and dtypes
///
/// `q` is `[batch, heads, queries, d]`, `k` `[batch, kv_heads, keys, d]` and `v` `[batch, kv_heads, keys, dv]`, of f16, bf16,
/// f32 or f64; the result is `[batch, heads, queries, dv]`. `heads` is a multiple of `kv_heads`: keys are not repeated. The last
/// dimension is contiguous, others have any strides, so that `transpose(1, 2)` needs no copy. `d` and `dv` are from 1 to 256.
///
/// # Numerics
///
/// Products are summed in f32 (f64 for f64); weights are rounded to the dtype before they multiply values. The gradient adds
/// up in an order that may change with each run, unless [`Attention::deterministic`] is asked for.
///
/// # Errors
///
/// Of other dtypes and shapes, of a last dimension that is not contiguous, of a scale that is not positive; those of launches.
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, options: Attention) -> candle_core::Result<Tensor> {
    let attention = if [q, k, v].into_iter().any(requires_gradient) {
        tokens_first::attention
    } else {
        without_gradient::attention
    };
    attention(q, k, v, options)?.transpose(1, 2)
}

/// Results as they are in memory: `[batch, queries, heads, dv]`.
mod tokens_first {
    use super::*;
    use tilewright_kernels::attention as library;

    candle_op! {
        /// [`attention`](super::attention()), and the logarithms of sums, which the gradient needs.
        pub fn attention(q, k, v; options: Attention) -> (
            out: Spec::new(q.dtype(), token_first(q, v)?),
            lse: Spec::new(CandleDType::F32, q.shape::<4>().map(|[batch, heads, queries, _]| (batch, heads, queries))?),
        ) {
            dispatch!(q => T in [f16, bf16, f32, f64] {
                let (cx, out, lse) = (q.context(), heads_first(out.view_mut::<T, 4>()?)?, lse.view_mut::<f32, 3>()?);
                library::forward_into(cx, q.view::<T, 4>()?, k.view()?, v.view()?, None, &options, out, Some(lse))
            })
        }
        backward(dout) -> (q: dq, k: dk, v: dv) {
            dispatch!(q => T in [f16, bf16, f32, f64] {
                let (out, dout) = (out.view::<T, 4>()?.transpose(1, 2)?, dout.view()?.transpose(1, 2)?);
                let (q, k, v, lse, cx) = (q.view()?, k.view()?, v.view()?, lse.view()?, q.context());
                let saved = Saved { q, k, v, bias: None, out, lse, dout, dlse: None };
                let room = library::backward_workspace(cx, &saved, &options)?;
                let mut workspace = Scratch::empty(cx.device(), room)?;
                let (dq, dk, dv) = (dq.view_mut::<T, 4>()?, dk.view_mut::<T, 4>()?, dv.view_mut::<T, 4>()?);
                library::backward_into(cx, saved, &options, &mut workspace, dq, dk, dv)
            })
        }
    }
}

/// The same without what only a gradient needs.
mod without_gradient {
    use super::*;
    use tilewright_kernels::attention as library;

    candle_op! {
        /// [`attention`](super::attention()) alone.
        pub fn attention(q, k, v; options: Attention) -> (out: Spec::new(q.dtype(), token_first(q, v)?)) {
            dispatch!(q => T in [f16, bf16, f32, f64] {
                let (cx, out) = (q.context(), heads_first(out.view_mut::<T, 4>()?)?);
                library::forward_into(cx, q.view::<T, 4>()?, k.view()?, v.view()?, None, &options, out, None)
            })
        }
    }
}

/// The shape of a result in memory.
pub(super) fn token_first(q: TensorRef<'_>, v: TensorRef<'_>) -> Result<(usize, usize, usize, usize)> {
    let ([batch, heads, queries, _], [.., dv]) = (q.shape::<4>()?, v.shape::<4>()?);
    Ok((batch, queries, heads, dv))
}

candle_op! {
    /// [`attention`](super::attention()) of sequences of different lengths, which follow each other in packed tensors.
    ///
    /// # Shapes and dtypes
    ///
    /// `q` is `[tokens, heads, d]`, `k` `[key_tokens, kv_heads, d]`, `v` `[key_tokens, kv_heads, dv]`, and the result
    /// `[tokens, heads, dv]`. Sequence `i` has queries `q_starts[i]..q_starts[i + 1]` and keys `k_starts[i]..k_starts[i + 1]`:
    /// both tensors, of u32 or i32 and on the device, have one number more than there are sequences. No sequence has more than
    /// `longest` queries. Starts are not checked; every token belongs to a sequence: results of others hold anything.
    ///
    /// # Errors
    ///
    /// As [`attention`](super::attention()), and of tensors that require a gradient.
    pub fn attention_packed(q, k, v, q_starts, k_starts; longest: usize, options: Attention) -> (
        out: packed(q, v)?,
    ) {
        dispatch!(q => T in [f16, bf16, f32, f64] {
            let cx = q.context();
            let (starts, out) = ((q_starts.indices::<1>()?, k_starts.indices::<1>()?), out.view_mut::<T, 3>()?);
            let (q, k, v) = (q.view::<T, 3>()?, k.view::<T, 3>()?, v.view::<T, 3>()?);
            attention::forward_packed_into(cx, q, k, v, starts.0, starts.1, longest, &options, out, None)
        })
    }
}

fn packed(q: TensorRef<'_>, v: TensorRef<'_>) -> Result<Spec> {
    let ([tokens, heads, _], [.., dv]) = (q.shape::<3>()?, v.shape::<3>()?);
    Ok(Spec::new(q.dtype(), (tokens, heads, dv)))
}
