//! Attention against candle's products and softmax: results in all dtypes, gradients in f64; caches and pages.

use crate::common::{
    Random, Sum, assert_close, check_forward, check_gradients, message, on_every_device, reals, rounding,
};
use candle_core::{D, DType, Device, IndexOp, Result, Tensor};
use tilewright_candle::attention::{self, Attention, PagedCache};
use tilewright_candle::rows::{Pairs, rotary_at, rotary_tables};

/// What a query at the end of its sequence sees.
#[derive(Clone, Copy)]
enum Sees {
    All,
    /// No key behind its own.
    Past,
}

/// `softmax(q k^T / sqrt(d)) v` by candle's own ops, heads of keys repeated.
fn own(q: &Tensor, k: &Tensor, v: &Tensor, sees: Sees) -> Result<Tensor> {
    let ((batch, heads, queries, d), (_, kv_heads, keys, _)) = (q.dims4()?, k.dims4()?);
    let repeat = |x: &Tensor| {
        let last = x.dim(3)?;
        x.unsqueeze(2)?.expand((batch, kv_heads, heads / kv_heads, keys, last))?.reshape((batch, heads, keys, last))
    };
    let (k, v) = (repeat(k)?, repeat(v)?);
    let scores = (q.contiguous()?.matmul(&k.t()?.contiguous()?)? / (d as f64).sqrt())?;
    let scores = match sees {
        Sees::All => scores,
        Sees::Past => {
            let hidden = |at: usize| if at % keys + queries > at / keys + keys { f64::NEG_INFINITY } else { 0.0 };
            let mask = Tensor::from_vec((0..queries * keys).map(hidden).collect(), (queries, keys), q.device())?;
            scores.broadcast_add(&mask.to_dtype(q.dtype())?)?
        }
    };
    candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v.contiguous()?)
}

/// What the terms of attention are below, of numbers up to 2: scores are sums of `d` products up to 4, weights up to 1 times
/// values; an error of a score is a relative one of its weight, and so is that of weights that are rounded to the dtype.
fn of_attention(d: usize, keys: usize, dtype: DType) -> Sum {
    let weights = rounding(dtype) / rounding(if dtype == DType::F64 { DType::F64 } else { DType::F32 });
    Sum::of(keys + 4 * d, 2.0 * (1.0 + weights / 64.0))
}

#[test]
fn attention_is_candles_in_all_dtypes() {
    on_every_device(|device| {
        let mut random = Random::new(41);
        let (q, k) = (random.tensor(&[2, 4, 7, 16], device)?, random.tensor(&[2, 2, 9, 16], device)?);
        let v = random.tensor(&[2, 2, 9, 16], device)?;
        for (sees, options) in [(Sees::All, Attention::default()), (Sees::Past, Attention::default().causal())] {
            let want = own(&q, &k, &v, sees)?;
            for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
                let [q, k, v] = [&q, &k, &v].map(|x| x.to_dtype(dtype));
                let got = attention::attention(&q?, &k?, &v?, options)?;
                assert_close("attention", &got, &want, of_attention(16, 9, dtype));
            }
        }
        Ok(())
    });
}

#[test]
fn gradients_of_attention_are_candles() {
    on_every_device(|device| {
        let mut random = Random::new(42);
        let (q, k) = (random.variable(&[1, 4, 6, 8], device)?, random.variable(&[1, 2, 6, 8], device)?);
        let v = random.variable(&[1, 2, 6, 8], device)?;
        // Two heads share keys; sums over d, keys, queries of products of three numbers up to 2 and a weight.
        // Weights are computed again from their logarithms, which are f32.
        let sum = Sum::of(2 * 6 * 6 * 8, 8.0 * 8.0).in_f32();
        for (sees, options) in [(Sees::All, Attention::default()), (Sees::Past, Attention::default().causal())] {
            check_gradients(
                "attention",
                &[&q, &k, &v],
                sum,
                |x| attention::attention(&x[0], &x[1], &x[2], options),
                |x| own(&x[0], &x[1], &x[2], sees),
            )?;
        }
        Ok(())
    });
}

#[test]
fn heads_behind_tokens_need_no_copy() {
    on_every_device(|device| {
        // As a product for queries, keys and values gives them: [batch, tokens, 3 * heads * d].
        let qkv = Random::new(43).variable(&[2, 5, 3 * 2 * 8], device)?;
        let heads = |x: &Tensor, at: usize| x.narrow(2, at * 16, 16)?.reshape((2, 5, 2, 8))?.transpose(1, 2);
        let op = |x: &[Tensor]| {
            let part = |at: usize| x[0].narrow(2, at * 16, 16);
            let [q, k, v] = [part(0)?, part(1)?, part(2)?].map(|x| x.reshape((2, 5, 2, 8))?.transpose(1, 2));
            let y = attention::attention(&q?, &k?, &v?, Attention::default())?.transpose(1, 2)?;
            assert!(y.is_contiguous(), "what follows copies nothing");
            y.reshape((2, 5, 16))
        };
        let own = |x: &[Tensor]| {
            let y = own(&heads(&x[0], 0)?, &heads(&x[0], 1)?, &heads(&x[0], 2)?, Sees::All)?;
            y.transpose(1, 2)?.reshape((2, 5, 16))
        };
        check_forward("attention", &[&qkv.detach()], of_attention(8, 5, DType::BF16), op, own)?;
        check_gradients("attention", &[&qkv], Sum::of(5 * 5 * 8, 64.0).in_f32(), op, own)
    });
}

#[test]
fn packed_sequences_do_not_see_each_other() {
    on_every_device(|device| {
        let mut random = Random::new(44);
        let (q, k, v) = (
            random.tensor(&[9, 2, 8], device)?,
            random.tensor(&[9, 2, 8], device)?,
            random.tensor(&[9, 2, 8], device)?,
        );
        let starts = Tensor::new(&[0u32, 4, 9], device)?;
        let y = attention::attention_packed(&q, &k, &v, &starts, &starts, 5, Attention::default().causal())?;
        for (first, len) in [(0, 4), (4, 5)] {
            let part = |x: &Tensor| x.narrow(0, first, len)?.transpose(0, 1)?.unsqueeze(0);
            let want = own(&part(&q)?, &part(&k)?, &part(&v)?, Sees::Past)?;
            assert_close("attention_packed", &part(&y)?, &want, of_attention(8, 5, DType::F64));
        }
        Ok(())
    });
}

#[test]
fn decoding_sees_the_first_keys_of_each_sequence() {
    on_every_device(|device| {
        let mut random = Random::new(45);
        let (q, k) = (random.tensor(&[2, 4, 2, 16], device)?, random.tensor(&[2, 2, 40, 16], device)?);
        let v = random.tensor(&[2, 2, 40, 16], device)?;
        let lengths = Tensor::new(&[40u32, 17], device)?;
        let options = Attention::default().causal();
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let [a, b, c] = [&q, &k, &v].map(|x| x.to_dtype(dtype));
            let y = attention::decode(&a?, &b?, &c?, Some(&lengths), options)?;
            for (sequence, length) in [(0, 40), (1, 17)] {
                let part = |x: &Tensor| x.narrow(0, sequence, 1);
                let first = |x: &Tensor| part(x)?.narrow(2, 0, length);
                let want = own(&part(&q)?, &first(&k)?, &first(&v)?, Sees::Past)?;
                // Results of parts are f32.
                assert_close("decode", &part(&y)?, &want, of_attention(16, length, dtype).in_f32());
            }
        }
        let whole = attention::decode(&q, &k, &v, None, options)?;
        assert_close("decode", &whole, &own(&q, &k, &v, Sees::Past)?, of_attention(16, 40, DType::F64).in_f32());
        Ok(())
    });
}

/// Pages of 16 keys for two sequences of up to 32, dealt out crosswise.
fn table(device: &Device) -> Result<Tensor> {
    Tensor::new(&[[3u32, 1], [0, 2]], device)
}

#[test]
fn pages_hold_what_was_appended() {
    on_every_device(|device| {
        let mut random = Random::new(46);
        let (k, v) = (random.tensor(&[2, 2, 20, 16], device)?, random.tensor(&[2, 2, 20, 16], device)?);
        let (q, table) = (random.tensor(&[2, 4, 3, 16], device)?, table(device)?);
        let positions = Tensor::arange(0u32, 20, device)?.unsqueeze(0)?.repeat((2, 1))?;
        let lengths = Tensor::new(&[20u32, 20], device)?;
        let (options, want) = (Attention::default().causal(), own(&q, &k, &v, Sees::Past)?);
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let pages = || Tensor::zeros((4, 16, 2, 16), dtype, device);
            let (k_pages, v_pages) = (pages()?, pages()?);
            for (pages, new) in [(&k_pages, &k), (&v_pages, &v)] {
                // First the prompt, then token by token.
                let new = new.to_dtype(dtype)?;
                let at = |first, len| {
                    Ok::<_, candle_core::Error>((
                        new.narrow(2, first, len)?,
                        positions.narrow(1, first, len)?.contiguous()?,
                    ))
                };
                for (first, len) in [(0, 17), (17, 1), (18, 1), (19, 1)] {
                    let (new, positions) = at(first, len)?;
                    attention::paged_append(pages, &new, &table, &positions, None)?;
                }
            }
            let cache =
                PagedCache { k: &k_pages, v: &v_pages, table: &table, lengths: &lengths, k_scale: None, v_scale: None };
            let q = q.to_dtype(dtype)?;
            assert_close(
                "paged_decode",
                &attention::paged_decode(&q, &cache, options)?,
                &want,
                of_attention(16, 20, dtype).in_f32(),
            );

            let starts = Tensor::new(&[0u32, 3, 6], device)?;
            let packed = q.transpose(1, 2)?.reshape((6, 4, 16))?;
            let y = attention::paged_prefill(&packed, &starts, 3, &cache, options)?;
            let want = want.transpose(1, 2)?.reshape((6, 4, 16))?;
            assert_close("paged_prefill", &y, &want, of_attention(16, 20, dtype).in_f32());
        }
        Ok(())
    });
}

#[test]
fn pages_of_8_bits_have_scales() {
    on_every_device(|device| {
        let mut random = Random::new(47);
        let (k, v) = (random.tensor(&[2, 2, 20, 16], device)?, random.tensor(&[2, 2, 20, 16], device)?);
        let (q, table) = (random.tensor(&[2, 4, 1, 16], device)?.to_dtype(DType::F16)?, table(device)?);
        let positions = Tensor::arange(0u32, 20, device)?.unsqueeze(0)?.repeat((2, 1))?;
        let lengths = Tensor::new(&[20u32, 20], device)?;
        let scales = [Tensor::new(&[0.5f32, 0.25], device)?, Tensor::new(&[0.125f32], device)?];
        let pages = || Tensor::zeros((4, 16, 2, 16), DType::F8E4M3, device);
        let (k_pages, v_pages) = (pages()?, pages()?);
        let mut stored = Vec::new();
        for ((pages, new), scale) in [(&k_pages, &k), (&v_pages, &v)].into_iter().zip(&scales) {
            attention::paged_append(pages, &new.to_dtype(DType::F16)?, &table, &positions, Some(scale))?;
            // What is stored, as it should be read: the quotient, rounded to f8e4m3, times the scale. Scales are powers of two.
            let each = scale.broadcast_as(2)?.reshape((1, 2, 1, 1))?.to_dtype(DType::F64)?;
            let rounded = new.broadcast_div(&each)?.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
            let rounded =
                rounded.to_dtype(DType::F8E4M3)?.to_dtype(DType::F32)?.to_dtype(DType::F64)?.to_device(device)?;
            stored.push(rounded.broadcast_mul(&each)?);
        }
        let cache = PagedCache {
            k: &k_pages,
            v: &v_pages,
            table: &table,
            lengths: &lengths,
            k_scale: Some(&scales[0]),
            v_scale: Some(&scales[1]),
        };
        let want = own(&q.to_dtype(DType::F64)?, &stored[0], &stored[1], Sees::All)?;
        let got = attention::paged_decode(&q, &cache, Attention::default())?;
        assert_close("paged_decode of 8 bits", &got, &want, of_attention(16, 20, DType::F16));
        Ok(())
    });
}

#[test]
fn one_launch_turns_and_appends_as_several_do() {
    on_every_device(|device| {
        let (heads, kv_heads, d, room) = (6, 2, 8, 12);
        let mut random = Random::new(48);
        let qkv = random.tensor(&[2, 3, (heads + 2 * kv_heads) * d], device)?;
        let (cos, sin) = rotary_tables(room, d, 100.0, device)?;
        // Of any strides.
        let positions = Tensor::new(&[[4u32, 0], [5, 1], [6, 2]], device)?.t()?;
        for (pairs, dtype) in
            [(Pairs::Halves, DType::F32), (Pairs::Interleaved, DType::BF16), (Pairs::Halves, DType::F64)]
        {
            let qkv = qkv.to_dtype(dtype)?;
            let cache = Tensor::ones((2, 2, kv_heads, room, d), dtype, device)?;
            let q = attention::rotary_append(&cache, &qkv, &cos, &sin, &positions, heads, pairs)?;

            let part = |first: usize, count: usize| {
                qkv.narrow(2, first * d, count * d)?.reshape((2, 3, count, d))?.transpose(1, 2)
            };
            let want = rotary_at(&part(0, heads)?, &cos, &sin, &positions.contiguous()?, pairs)?;
            // Which of two products is rounded before both are added is the compiler's choice: numbers of up to 2 times cosines,
            // so up to 4 with a rounding of each product and of the sum on both sides. In bf16 that may tip the last rounding.
            let most = match dtype {
                DType::BF16 => 2f64.powi(-6),
                DType::F32 => 12.0 * 2f64.powi(-24),
                _ => 12.0 * 2f64.powi(-53),
            };
            let assert_turned = |got: &Tensor, want: &Tensor| {
                for (got, want) in reals(got).iter().zip(reals(want)) {
                    assert!((got - want).abs() <= most, "{dtype:?}: {got} instead of {want}");
                }
            };
            assert_turned(&q, &want);
            let [keys, values] = [&cache, &cache].map(|cache| Tensor::ones(&cache.dims()[1..], dtype, device));
            let (keys, values) = (keys?, values?);
            attention::append(
                &keys,
                &rotary_at(&part(heads, kv_heads)?, &cos, &sin, &positions.contiguous()?, pairs)?,
                &positions,
            )?;
            attention::append(&values, &part(heads + kv_heads, kv_heads)?, &positions)?;
            assert_turned(&cache.i(0)?, &keys);
            assert_eq!(reals(&cache.i(1)?), reals(&values), "{dtype:?}");
            // What is not written stays.
            assert_eq!(reals(&cache.i((0, 0, 0, 7))?), [1.0; 8]);
        }
        Ok(())
    });
}

#[test]
fn keys_and_values_are_appended_without_heads_of_queries() {
    on_every_device(|device| {
        let (kv_heads, d, room) = (2, 8, 4);
        let cache = Tensor::zeros((2, 1, kv_heads, room, d), DType::F32, device)?;
        let (cos, sin) = rotary_tables(room, d, 100.0, device)?;
        let qkv = Tensor::ones((1, 1, 2 * kv_heads * d), DType::F32, device)?;
        let q = attention::rotary_append(&cache, &qkv, &cos, &sin, &Tensor::new(&[[0u32]], device)?, 0, Pairs::Halves)?;
        assert_eq!(q.dims(), [1, 0, 1, d]);
        // At position 0 nothing turns.
        assert_eq!(reals(&cache.narrow(3, 0, 1)?), vec![1.0; 2 * kv_heads * d]);
        assert_eq!(reals(&cache.narrow(3, 1, 3)?), vec![0.0; 2 * kv_heads * d * 3]);
        Ok(())
    });
}

#[test]
fn a_position_outside_of_the_cache_is_an_error_of_the_launch() {
    on_every_device(|device| {
        let cache = Tensor::zeros((1, 1, 4, 8), DType::F32, device)?;
        let new = Tensor::ones((1, 1, 1, 8), DType::F32, device)?;
        let at = |position: u32| Tensor::new(&[[position]], device);
        // On the CPU it comes at once, on a GPU with what waits for it, if no op comes before.
        let outcome = attention::append(&cache, &new, &at(4)?).and_then(|()| tilewright_candle::synchronize(device));
        let text = message(outcome);
        assert!(text.contains("the position is outside of the cache") && text.contains("append.rs"), "{text}");
        // The next call is none the worse.
        attention::append(&cache, &new, &at(3)?)?;
        assert_eq!(cache.sum_all()?.to_scalar::<f32>()?, 8.0);
        Ok(())
    });
}

#[cfg(feature = "cuda")]
#[test]
fn the_next_op_tells_of_an_earlier_error() {
    if !candle_core::utils::cuda_is_available() {
        return;
    }
    let device = Device::new_cuda(0).unwrap();
    let cache = Tensor::zeros((1, 1, 4, 8), DType::F32, &device).unwrap();
    let new = Tensor::ones((1, 1, 1, 8), DType::F32, &device).unwrap();
    attention::append(&cache, &new, &Tensor::new(&[[9u32]], &device).unwrap()).unwrap();
    device.synchronize().unwrap();
    let text = message(attention::append(&cache, &new, &Tensor::new(&[[0u32]], &device).unwrap()));
    assert!(text.starts_with("append: an earlier launch on this stream has failed"), "{text}");
    assert!(text.contains("the position is outside of the cache"), "{text}");
    attention::append(&cache, &new, &Tensor::new(&[[0u32]], &device).unwrap()).unwrap();
}
