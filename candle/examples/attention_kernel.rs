//! Attention as an op of candle's, from a kernel of one's own. The library's, with gradients and all options, is in the example
//! `attention`.

use candle_core::{D, Device};
use tilewright_candle::prelude::*;

/// Causal attention of `BM` queries of a head: keys and values come in blocks of `BN`, weights are relative to the largest score
/// so far.
#[kernel]
fn attention_kernel<T: Float, const BM: usize, const BN: usize, const D: usize>(
    q: Ptr<T>,
    k: Ptr<T>,
    v: Ptr<T>,
    out: PtrMut<T>,
    tokens: i32,
    scale: f32,
) {
    let (row, column) = (program_id(0) * BM + arange(0, BM), arange(0, D));
    let head = program_id(1) * tokens * D;
    let mine = head + row[(.., None)] * D + column[(None, ..)];
    let queries = load(q + mine, mask = (row < tokens)[(.., None)]);
    let (mut peak, mut total) = (full([BM], f32::NEG_INFINITY), zeros::<f32>([BM]));
    let mut mixed = zeros::<f32>([BM, D]);
    for first in (0..minimum(tokens, (program_id(0) + 1) * BM)).step_by(BN) {
        let key = first + arange(0, BN);
        let block = head + key[(.., None)] * D + column[(None, ..)];
        let mask = (key < tokens)[(.., None)];
        let scores = dot(queries, trans(load(k + block, mask = mask)), precision = tf32x3) * scale;
        let scores = select(key[(None, ..)] <= row[(.., None)], scores, f32::NEG_INFINITY);
        let higher = maximum(peak, max(scores, axis = 1));
        let (weights, shrink) = (exp(scores - higher[(.., None)]), exp(peak - higher));
        let values = load(v + block, mask = mask);
        mixed = dot(weights as T, values, acc = mixed * shrink[(.., None)], precision = tf32x3);
        total = total * shrink + sum(weights, axis = 1);
        peak = higher;
    }
    store(out + mine, (mixed / total[(.., None)]) as T, mask = (row < tokens)[(.., None)]);
}

candle_op! {
    /// `softmax(q k^T / sqrt(d)) v` over earlier tokens. All are `[batch, heads, tokens, d]`, contiguous; `d` is a power of two.
    fn attention(q, k, v) -> (out: like(q)) {
        dispatch!(q => T in [f16, bf16, f32] {
            let [batch, heads, tokens, d] = q.shape()?;
            AttentionKernelConsts { BM: 64, BN: 64, D: d }
                .call(q.flat::<T>()?, k.flat()?, v.flat()?, out.flat_mut()?, tokens as i32, 1.0 / (d as f32).sqrt())
                .grid((tokens.div_ceil(64), batch * heads))
                .launch(q.device())
        })
    }
}

fn main() -> candle_core::Result<()> {
    let device = Device::cuda_if_available(0)?;
    let (tokens, d) = (100, 32);
    let random = || Tensor::randn(0f32, 1.0, (1, 2, tokens, d), &device);
    let (q, k, v) = (random()?, random()?, random()?);

    let later = Tensor::from_vec(
        (0..tokens * tokens).map(|at| u8::from(at % tokens > at / tokens)).collect(),
        (tokens, tokens),
        &device,
    )?;
    let hidden = Tensor::full(f32::NEG_INFINITY, (1, 2, tokens, tokens), &device)?;
    let scores = (q.matmul(&k.t()?)? / (d as f64).sqrt())?;
    let scores = later.broadcast_as(scores.shape())?.where_cond(&hidden, &scores)?;
    let candles = candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v)?;

    let difference = (attention(&q, &k, &v)? - candles)?.abs()?.max_all()?.to_scalar::<f32>()?;
    println!("results differ by {difference:.1e} at most");
    // Products are within 2^-20. So a score, of 32 products of numbers up to 3 over the root of 32, is within 5e-5, a weight within
    // twice that share of itself, and a result, of numbers up to 4, within 4e-4.
    assert!(difference < 4e-4);
    Ok(())
}

#[test]
fn the_result_is_candles() {
    main().unwrap();
}
