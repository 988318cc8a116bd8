//! Softmax attention.

use crate::views::{context, last, last_mut, same_outer, same_outer_of};
use tilewright::prelude::*;
use tilewright_ffi::Error;
use tilewright_ffi::prelude::*;
use tilewright_kernels::attention::{self as library, Attention, Rotation, Saved};
use tilewright_kernels::{TensorView, TensorViewMut};

/// `[.., tokens, heads, dim]` as the library has it, `[batch, heads, tokens, dim]`.
fn heads<'a, T: DType>(x: &TensorRef<'a>) -> Result<TensorView<'a, T, 4>> {
    Ok(last::<T, 4>(x)?.permute([0, 2, 1, 3])?)
}

fn heads_mut<'a, T: DType>(x: TensorMut<'a>) -> Result<TensorViewMut<'a, T, 4>> {
    Ok(last_mut::<T, 4>(x)?.permute([0, 2, 1, 3])?)
}

/// One of queries, keys and values, which lie beside each other as `[batch, tokens, 3, heads, dim]`.
fn part<'a, T: DType>(qkv: &TensorView<'a, T, 5>, at: usize) -> Result<TensorView<'a, T, 4>> {
    Ok(qkv.select(2, at)?.permute([0, 2, 1, 3])?)
}

/// `[.., tokens, 3, heads, dim]` as the library has gradients beside each other, `[batch, 3 * heads, tokens, dim]`.
fn beside_mut<'a, T: DType>(qkv: TensorMut<'a>) -> Result<TensorViewMut<'a, T, 4>> {
    let (name, given) = (qkv.name(), qkv.shape());
    let view = last_mut::<T, 5>(qkv)?;
    let [batch, tokens, parts, heads, dim] = view.shape();
    let view = view.reshape([batch, tokens, parts * heads, dim]).map_err(|_| {
        let given = format!("has shape {given:?}, and heads of its three parts that do not follow each other");
        Error::argument(name, given, "heads at one distance (copy it with `.contiguous()`)")
    })?;
    Ok(view.permute([0, 2, 1, 3])?)
}

fn options(causal: bool, scale: Option<f64>, window: Option<i64>, soft_cap: Option<f64>) -> Result<Attention> {
    let mut options = Attention::default();
    if causal {
        options = options.causal();
    }
    if let Some(scale) = scale {
        options = options.scale(scale);
    }
    if let Some(window) = window {
        let keys = usize::try_from(window)
            .map_err(|_| Error::argument("window", format_args!("is {window}"), "0 keys or more"))?;
        options = options.window(keys, keys);
    }
    if let Some(cap) = soft_cap {
        options = options.soft_cap(cap);
    }
    Ok(options)
}

/// `y = softmax(scale * q k^T) v` for each head, with the logarithms of the sums of exponentials, `lse`, in f32.
///
/// `q` and `y` are `[.., tokens, heads, dim]`, `k` and `v` are `[.., keys, kv_heads, dim]`, of any strides but for the last
/// dimension: parts of one product of queries, keys and values are read where they are. `heads` is a multiple of `kv_heads`. The
/// scale is `1 / sqrt(dim)` unless one is given. Where attention is causal, queries and keys end together. With `window` a query
/// sees as many keys on each side of its own; `soft_cap` limits scores to `cap * tanh(score / cap)`.
#[op(
    out(y: q.dtype[..q.shape[..-1], v.shape[-1]], lse: f32[..q.shape[..-3], q.shape[-2], q.shape[-3]]),
    backward = flash_attention_backward,
    vmap = broadcast_all
)]
#[allow(clippy::too_many_arguments)]
pub fn flash_attention(
    q: TensorRef<'_>,
    k: TensorRef<'_>,
    v: TensorRef<'_>,
    y: TensorMut<'_>,
    lse: TensorMut<'_>,
    #[default(false)] causal: bool,
    scale: Option<f64>,
    window: Option<i64>,
    soft_cap: Option<f64>,
) -> Result<()> {
    let options = options(causal, scale, window, soft_cap)?;
    same_outer(&k, &q, 3)?;
    same_outer(&v, &q, 3)?;
    dispatch!(q.dtype() => T in [f16, bf16, f32, f64] {
        let (cx, lse) = (context(&q), last_mut::<f32, 3>(lse)?);
        let (q, k, v, y) = (heads::<T>(&q)?, heads::<T>(&k)?, heads::<T>(&v)?, heads_mut::<T>(y)?);
        Ok(library::forward_into(&cx, q, k, v, None, &options, y, Some(lse))?)
    })
}

/// The gradients of [`flash_attention`]. That of `lse` is that of nothing if it is not given.
#[op(
    out(
        d_q: q.dtype[..q.shape[..-3], q.shape[-3], q.shape[-2], q.shape[-1]],
        d_k: k.dtype[..k.shape[..-3], k.shape[-3], k.shape[-2], k.shape[-1]],
        d_v: v.dtype[..v.shape[..-3], v.shape[-3], v.shape[-2], v.shape[-1]]
    ),
    vmap = broadcast_all
)]
#[allow(clippy::too_many_arguments)]
pub fn flash_attention_backward(
    d_y: TensorRef<'_>,
    q: TensorRef<'_>,
    k: TensorRef<'_>,
    v: TensorRef<'_>,
    y: TensorRef<'_>,
    lse: TensorRef<'_>,
    d_lse: Option<TensorRef<'_>>,
    d_q: TensorMut<'_>,
    d_k: TensorMut<'_>,
    d_v: TensorMut<'_>,
    causal: bool,
    scale: Option<f64>,
    window: Option<i64>,
    soft_cap: Option<f64>,
    scratch: &Scratch<'_>,
) -> Result<()> {
    let options = options(causal, scale, window, soft_cap)?;
    for tensor in [&k, &v, &y, &d_y] {
        same_outer(tensor, &q, 3)?;
    }
    for logarithms in [Some(&lse), d_lse.as_ref()].into_iter().flatten() {
        same_outer_of(logarithms, 2, &q, 3)?;
    }
    dispatch!(q.dtype() => T in [f16, bf16, f32, f64] {
        let cx = context(&q);
        let saved = Saved {
            q: heads::<T>(&q)?,
            k: heads(&k)?,
            v: heads(&v)?,
            bias: None,
            out: heads(&y)?,
            lse: last::<f32, 3>(&lse)?,
            dout: heads(&d_y)?,
            dlse: d_lse.as_ref().map(last::<f32, 3>).transpose()?,
        };
        let shape = library::backward_workspace(&cx, &saved, &options)?;
        let workspace = TensorViewMut::new(scratch.take::<f32>(shape.iter().product())?, shape)?;
        let (d_q, d_k, d_v) = (heads_mut::<T>(d_q)?, heads_mut::<T>(d_k)?, heads_mut::<T>(d_v)?);
        Ok(library::backward_into(&cx, saved, &options, workspace, d_q, d_k, d_v)?)
    })
}

/// The gradient of a product of queries, keys and values of which queries and keys were rotated in place, by
/// [`rotary_in_place`](crate::rotary_in_place), before [`flash_attention`]: as that of attention, rotated back, all in one tensor.
///
/// `qkv` and `d_qkv` are `[.., tokens, 3, heads, dim]`: three parts with the heads of each token, as
/// `qkv.unbind(-3)` gives them. `cos` and `sin` are `[positions, dim / 2]`, in f32 or the dtype of `qkv`, without gaps; halves of
/// heads were rotated, and a token's position is its index.
#[op(out(d_qkv: like(qkv)))]
#[allow(clippy::too_many_arguments)]
pub fn rotary_attention_backward(
    d_y: TensorRef<'_>,
    qkv: TensorRef<'_>,
    y: TensorRef<'_>,
    lse: TensorRef<'_>,
    cos: TensorRef<'_>,
    sin: TensorRef<'_>,
    d_qkv: TensorMut<'_>,
    #[default(false)] causal: bool,
    scale: Option<f64>,
    window: Option<i64>,
    soft_cap: Option<f64>,
    scratch: &Scratch<'_>,
) -> Result<()> {
    let options = options(causal, scale, window, soft_cap)?;
    let shape = qkv.shape();
    if shape.len() < 4 || shape[shape.len() - 3] != 3 {
        let given = format!("has shape {shape:?}");
        return Err(Error::argument("qkv", given, "[.., tokens, 3, heads, dim]: queries, keys and values"));
    }
    same_outer_of(&y, 3, &qkv, 4)?;
    same_outer_of(&d_y, 3, &qkv, 4)?;
    same_outer_of(&lse, 2, &qkv, 4)?;
    dispatch!(qkv.dtype() => T in [f16, bf16, f32, f64] {
        let (cx, all) = (context(&qkv), last::<T, 5>(&qkv)?);
        let saved = Saved {
            q: part(&all, 0)?,
            k: part(&all, 1)?,
            v: part(&all, 2)?,
            bias: None,
            out: heads(&y)?,
            lse: last::<f32, 3>(&lse)?,
            dout: heads(&d_y)?,
            dlse: None,
        };
        let shape = library::backward_workspace(&cx, &saved, &options)?;
        let workspace = TensorViewMut::new(scratch.take::<f32>(shape.iter().product())?, shape)?;
        let into = beside_mut::<T>(d_qkv)?;
        if cos.dtype() == T::ELEMENT {
            let rotation = Rotation { cos: cos.view::<T, 2>()?, sin: sin.view()? };
            library::backward_rotated_qkv_into(&cx, saved, rotation, &options, workspace, into)?;
        } else {
            let rotation = Rotation { cos: cos.view::<f32, 2>()?, sin: sin.view()? };
            library::backward_rotated_qkv_into(&cx, saved, rotation, &options, workspace, into)?;
        }
        Ok(())
    })
}
