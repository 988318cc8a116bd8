//! Attention of a few queries over caches.

use super::flash::token_first;
use super::heads_first;
use crate::prelude::*;
use crate::tensor::given;
use crate::{Element, call_with};
use tilewright_kernels::attention::{self, Attention};
use tilewright_kernels::{Context, Tensor as Scratch, TensorView, TensorViewMut};

/// Keys and values in pages, of sequences that grow.
///
/// Sequence `i` has `lengths[i]` keys, the first of them in page `table[i][0]`, the next page of them in `table[i][1]`, and so
/// on. What lies behind a sequence's last key is not read.
#[derive(Debug, Clone, Copy)]
pub struct PagedCache<'a> {
    /// `[pages, page size, kv_heads, d]`, of the queries' dtype or of f8e4m3. The last dimension is contiguous.
    pub k: &'a Tensor,
    /// `[pages, page size, kv_heads, dv]`, of the same dtype.
    pub v: &'a Tensor,
    /// `[sequences, most pages of one]` of u32 or i32.
    pub table: &'a Tensor,
    /// `[sequences]` of u32 or i32.
    pub lengths: &'a Tensor,
    /// What keys are multiplied by: `[1]`, or `[kv_heads]`, of f32.
    pub k_scale: Option<&'a Tensor>,
    /// What values are multiplied by.
    pub v_scale: Option<&'a Tensor>,
}

/// [`attention`](super::attention()) for few queries and many keys: the keys of a sequence are divided among programs, whose results are
/// merged (Dao et al., "Flash-Decoding for long-context inference", 2023). Without gradients.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use tilewright_candle::attention::{Attention, decode};
///
/// # fn main() -> candle_core::Result<()> {
/// let (q, k) = (Tensor::ones((1, 4, 1, 16), DType::F32, &Device::Cpu)?, Tensor::ones((1, 2, 64, 16), DType::F32, &Device::Cpu)?);
/// let lengths = Tensor::new(&[40u32], &Device::Cpu)?; // of the room for 64 keys, 40 are taken
/// let y = decode(&q, &k, &k, Some(&lengths), Attention::default())?;
/// assert_eq!(y.dims(), [1, 4, 1, 16]);
/// # Ok(())
/// # }
/// ```
///
/// # Shapes and dtypes
///
/// As [`attention`](super::attention()). Of each sequence the first `lengths[batch]` keys count, `lengths` being `[batch]` of
/// u32 or i32, and all of them without it. Queries are the last of their sequence: with [`Attention::causal`] the last query
/// sees all keys.
///
/// # Errors
///
/// As [`attention`](super::attention()), and of tensors that require a gradient.
pub fn decode(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    lengths: Option<&Tensor>,
    options: Attention,
) -> candle_core::Result<Tensor> {
    let inputs = [Some(("q", q)), Some(("k", k)), Some(("v", v)), lengths.map(|lengths| ("lengths", lengths))];
    let outputs = |[q, _, v, _]: [Option<TensorRef<'_>>; 4]| {
        let (q, v) = (given(q)?, given(v)?);
        Ok([Spec::new(q.dtype(), token_first(q, v)?)])
    };
    let [out] = call_with("decode", inputs, outputs, |[q, k, v, lengths], [out]| {
        let (q, k, v) = (given(q)?, given(k)?, given(v)?);
        let lengths = lengths.map(|lengths| lengths.indices::<1>()).transpose()?;
        dispatch!(q => T in [f16, bf16, f32, f64] {
            let (cx, out) = (q.context(), heads_first(out.view_mut::<T, 4>()?)?);
            let (q, k, v) = (q.view::<T, 4>()?, k.view()?, v.view()?);
            let mut room = Scratch::empty(cx.device(), [attention::decode_workspace(cx, q, k, v)?])?;
            attention::decode_into(cx, q, k, v, lengths, &options, &mut room, out, None)
        })
    })?;
    out.transpose(1, 2)
}

/// [`decode`] over a [`PagedCache`] that has the keys of these queries already.
///
/// # Shapes and dtypes
///
/// `q` is `[sequences, heads, queries, d]` of f16, bf16, f32 or f64, and so is the result.
///
/// # Errors
///
/// Of other dtypes and shapes, of a last dimension that is not contiguous, of tensors that require a gradient; those of launches.
pub fn paged_decode(q: &Tensor, cache: &PagedCache<'_>, options: Attention) -> candle_core::Result<Tensor> {
    let outputs = |refs: [Option<TensorRef<'_>>; 7]| {
        let (q, v) = (given(refs[0])?, given(refs[2])?);
        Ok([Spec::new(q.dtype(), token_first(q, v)?)])
    };
    let [out] = call_with("paged_decode", cache.inputs(q, None), outputs, |refs, [out]| {
        let (q, k) = (given(refs[0])?, given(refs[1])?);
        dispatch!(q => T in [f16, bf16, f32, f64] {
            let (cx, out) = (q.context(), heads_first(out.view_mut::<T, 4>()?)?);
            let q = q.view::<T, 4>()?;
            if k.dtype() == F8E4M3::DTYPE {
                decode_pages(cx, q, &pages::<F8E4M3, _>(refs)?, &options, out)
            } else {
                decode_pages(cx, q, &pages::<T, _>(refs)?, &options, out)
            }
        })
    })?;
    out.transpose(1, 2)
}

/// Decoding over pages, with room for the results of parts.
fn decode_pages<T: Float, K: Float>(
    cx: &Context,
    q: TensorView<'_, T, 4>,
    cache: &attention::PagedCache<'_, K>,
    options: &Attention,
    out: TensorViewMut<'_, T, 4>,
) -> Result<()> {
    let mut room = Scratch::empty(cx.device(), [attention::paged_decode_workspace(cx, q, cache)?])?;
    attention::paged_decode_into(cx, q, cache, options, &mut room, out, None)
}

/// Attention of new tokens over a [`PagedCache`] that has their keys already.
///
/// # Shapes and dtypes
///
/// `q` is `[tokens, heads, d]` of f16, bf16, f32 or f64: the queries of sequence `i` are `q_starts[i]..q_starts[i + 1]`, at most
/// `longest` of them, and they are the last of its tokens; every token belongs to a sequence. `q_starts` is
/// `[sequences + 1]` of u32 or i32. The result is `[tokens, heads, dv]`.
///
/// # Errors
///
/// As [`paged_decode`].
pub fn paged_prefill(
    q: &Tensor,
    q_starts: &Tensor,
    longest: usize,
    cache: &PagedCache<'_>,
    options: Attention,
) -> candle_core::Result<Tensor> {
    let outputs = |refs: [Option<TensorRef<'_>>; 8]| {
        let (q, v) = (given(refs[0])?, given(refs[2])?);
        let ([tokens, heads, _], [.., dv]) = (q.shape::<3>()?, v.shape::<4>()?);
        Ok([Spec::new(q.dtype(), (tokens, heads, dv))])
    };
    let [out] = call_with("paged_prefill", cache.inputs(q, Some(("q_starts", q_starts))), outputs, |refs, [out]| {
        let (q, k, starts) = (given(refs[0])?, given(refs[1])?, given(refs[7])?.indices::<1>()?);
        let cx = q.context();
        dispatch!(q => T in [f16, bf16, f32, f64] {
            let (q, out) = (q.view::<T, 3>()?, out.view_mut::<T, 3>()?);
            if k.dtype() == F8E4M3::DTYPE {
                attention::paged_prefill_into(cx, q, starts, longest, &pages::<F8E4M3, _>(refs)?, &options, out, None)
            } else {
                attention::paged_prefill_into(cx, q, starts, longest, &pages::<T, _>(refs)?, &options, out, None)
            }
        })
    })?;
    Ok(out)
}

impl<'a> PagedCache<'a> {
    /// What an op is given: queries, the seven tensors of the cache, and one more.
    fn inputs<const N: usize>(
        &self,
        q: &'a Tensor,
        last: Option<(&'static str, &'a Tensor)>,
    ) -> [Option<(&'static str, &'a Tensor)>; N] {
        let PagedCache { k, v, table, lengths, k_scale, v_scale } = *self;
        let (k_scale, v_scale) = (k_scale.map(|scale| ("k_scale", scale)), v_scale.map(|scale| ("v_scale", scale)));
        let own = [Some(("q", q)), Some(("k", k)), Some(("v", v)), Some(("table", table)), Some(("lengths", lengths))];
        let mut all = own.into_iter().chain([k_scale, v_scale, last]);
        std::array::from_fn(|_| all.next().flatten())
    }
}

/// The cache as the library has it.
fn pages<'a, K: Element, const N: usize>(refs: [Option<TensorRef<'a>>; N]) -> Result<attention::PagedCache<'a, K>> {
    let scale = |at: usize| refs[at].map(|scale: TensorRef<'a>| scale.view::<f32, 1>()).transpose();
    Ok(attention::PagedCache {
        k: given(refs[1])?.view()?,
        v: given(refs[2])?.view()?,
        table: given(refs[3])?.indices()?,
        lengths: given(refs[4])?.indices()?,
        k_scale: scale(5)?,
        v_scale: scale(6)?,
    })
}
