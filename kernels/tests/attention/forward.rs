use super::reference::{Case, Inputs, PLAIN, expected};
use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::launch::{GRID_LIMITS, shapes_of};
use tilewright::prelude::*;
use tilewright_kernels::attention::{self, Attention, ForwardConfig};
use tilewright_kernels::{Context, Table, Tensor};

fn check<T: Real>(cx: &Context, case: Case) -> Result<(), Error> {
    let inputs = Inputs::<T>::new(cx, &case, case.queries as u64);
    let want = expected::<T>(&case, &inputs.reals);
    let mut out = Tensor::zeros(cx.device(), [case.batch, case.heads, case.queries, case.dv])?;
    let mut lse = Tensor::zeros(cx.device(), [case.batch, case.heads, case.queries])?;
    let bias = inputs.bias.as_ref().map(Tensor::view);
    let Inputs { q, k, v, .. } = &inputs;
    attention::forward_into(cx, q, k, v, bias, &case.options(), &mut out, Some(lse.view_mut()))?;
    assert_close(&format!("{case:?}"), &out.to_vec()?, &want.out, |at, _| want.out_bounds[at]);
    assert_close(&format!("lse, {case:?}"), &lse.to_vec()?, &want.lse, |at, _| want.lse_bounds[at]);
    let mut alone = Tensor::zeros(cx.device(), out.shape())?;
    attention::forward_into(cx, q, k, v, bias, &case.options(), &mut alone, None)?;
    assert!(alone.to_vec()? == out.to_vec()?, "without lse, {case:?}");
    Ok(())
}

#[test]
fn attention_in_every_dtype() {
    on_every_device(|cx| {
        check::<f16>(cx, PLAIN)?;
        check::<bf16>(cx, Case { causal: true, ..PLAIN })?;
        check::<f32>(cx, PLAIN)?;
        check::<f64>(cx, Case { causal: true, ..PLAIN })
    });
}

/// Heads that are no powers of two, values of another size than keys, groups of heads.
#[test]
fn heads_of_any_size() {
    on_every_device(|cx| {
        let small = Case { batch: 1, queries: 20, keys: 33, ..PLAIN };
        check::<f16>(cx, Case { d: 80, dv: 80, heads: 6, kv_heads: 2, ..small })?;
        check::<f16>(cx, Case { d: 24, dv: 40, heads: 3, kv_heads: 3, ..small })?;
        check::<bf16>(cx, Case { d: 192, dv: 128, queries: 3, heads: 1, ..small })?;
        check::<f32>(cx, Case { d: 1, dv: 3, ..small })?;
        check::<f16>(cx, Case { d: 256, dv: 256, queries: 5, keys: 9, ..small })
    });
}

#[test]
fn masks_of_every_kind() {
    on_every_device(|cx| {
        let small = Case { batch: 1, ..PLAIN };
        for (queries, keys) in [(1, 1), (1, 70), (70, 1), (33, 64), (65, 40)] {
            check::<f16>(cx, Case { queries, keys, causal: true, ..small })?;
            check::<f16>(cx, Case { queries, keys, window: Some((5, 3)), ..small })?;
        }
        check::<f32>(cx, Case { window: Some((9, 0)), keys: 80, queries: 80, ..small })?;
        check::<f32>(cx, Case { window: Some((0, 0)), keys: 64, queries: 80, ..small })?;
        check::<f32>(cx, Case { window: Some((30, 40)), causal: true, keys: 90, ..small })
    });
}

/// Queries before the first key see nothing, and so do those of problems without keys.
#[test]
fn queries_that_see_nothing_give_zero() {
    on_every_device(|cx| {
        let case = Case { batch: 1, queries: 40, keys: 8, causal: true, ..PLAIN };
        let inputs = Inputs::<f16>::new(cx, &case, 1);
        let (out, lse) = attention::forward(cx, &inputs.q, &inputs.k, &inputs.v, &case.options())?;
        let (out, lse) = (out.to_vec()?, lse.to_vec()?);
        assert!(out[..32 * 16].iter().all(|x| x.to_f64() == 0.0));
        assert!(lse[..32].iter().all(|x| *x == f32::NEG_INFINITY) && lse[32..40].iter().all(|x| x.is_finite()));

        let none = Tensor::<f16, 4>::zeros(cx.device(), [1, 1, 0, 16])?;
        let (out, lse) = attention::forward(cx, &inputs.q, &none, &none, &Attention::default())?;
        assert!(out.to_vec()?.iter().all(|x| x.to_f64() == 0.0));
        assert!(lse.to_vec()?.iter().all(|x| *x == f32::NEG_INFINITY));
        assert!(attention::forward(cx, &none, &none, &none, &Attention::default())?.0.is_empty());
        Ok(())
    });
}

#[test]
fn caps_and_biases() {
    on_every_device(|cx| {
        let small = Case { batch: 2, ..PLAIN };
        check::<f16>(cx, Case { cap: Some(2.0), ..small })?;
        check::<f32>(cx, Case { cap: Some(0.5), causal: true, ..small })?;
        check::<f16>(cx, Case { bias: true, ..small })?;
        check::<f32>(cx, Case { bias: true, cap: Some(3.0), window: Some((20, 20)), ..small })
    });
}

/// A bias for all batches and heads is not copied.
#[test]
fn a_bias_may_be_repeated() {
    on_every_device(|cx| {
        let case = Case { bias: true, queries: 9, keys: 12, ..PLAIN };
        let mut inputs = Inputs::<f32>::new(cx, &case, 3);
        let (bias, reals) = Random::new(4).tensor::<f32, 4>(cx, [1, 1, 9, 12]);
        inputs.reals.bias = Some(reals.repeat(4));
        let want = expected::<f32>(&case, &inputs.reals);
        let mut out = Tensor::zeros(cx.device(), [2, 2, 9, 16])?;
        let bias = bias.view().broadcast(0, 2)?.broadcast(1, 2)?;
        let Inputs { q, k, v, .. } = &inputs;
        attention::forward_into(cx, q, k, v, Some(bias), &case.options(), &mut out, None)?;
        assert_close("repeated", &out.to_vec()?, &want.out, |at, _| want.out_bounds[at]);
        Ok(())
    });
}

/// `[batch, rows, heads, d]`, three tensors in one, as a product of weights gives them.
#[test]
fn attention_of_strided_tensors() {
    on_every_device(|cx| {
        let case = Case { kv_heads: 2, keys: 37, ..PLAIN };
        let (all, reals) = Random::new(5).tensor::<f16, 5>(cx, [2, 37, 3, 2, 16]);
        let part = |which: usize| all.view().select::<4>(2, which)?.permute([0, 2, 1, 3]);
        let (q, k, v) = (part(0)?, part(1)?, part(2)?);
        let pick = |which: usize| {
            let at = move |b: usize, h: usize, i: usize, c: usize| (((b * 37 + i) * 3 + which) * 2 + h) * 16 + c;
            let mut picked = vec![];
            for (b, h) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                picked.extend((0..37).flat_map(|i| (0..16).map(move |c| (i, c))).map(|(i, c)| reals[at(b, h, i, c)]));
            }
            picked
        };
        let x = super::reference::Reals { q: pick(0), k: pick(1), v: pick(2), bias: None };
        let want = expected::<f16>(&case, &x);
        let mut out = Tensor::<f16, 4>::zeros(cx.device(), [2, 37, 2, 16])?;
        let heads = out.view_mut().permute([0, 2, 1, 3])?;
        attention::forward_into(cx, q, k, v, None, &case.options(), heads, None)?;
        let out = out.view().permute([0, 2, 1, 3])?.to_vec()?;
        assert_close("strided", &out, &want.out, |at, _| want.out_bounds[at]);
        Ok(())
    });
}

/// Sequences one after the other, each as if it were alone.
#[test]
fn packed_sequences() {
    on_every_device(|cx| {
        let lengths = [(5, 5), (40, 50), (0, 3), (33, 33)];
        let (tokens, keys) = (lengths.iter().map(|l| l.0).sum(), lengths.iter().map(|l| l.1).sum());
        let mut random = Random::new(6);
        let (q, q_reals) = random.tensor::<f16, 3>(cx, [tokens, 4, 16]);
        let (k, k_reals) = random.tensor::<f16, 3>(cx, [keys, 2, 16]);
        let (v, v_reals) = random.tensor::<f16, 3>(cx, [keys, 2, 16]);
        let starts = |of: fn(&(usize, usize)) -> usize| {
            let sums = lengths.iter().scan(0, |sum, l| {
                *sum += of(l) as i32;
                Some(*sum)
            });
            let sums: Vec<i32> = [0].into_iter().chain(sums).collect();
            Tensor::upload(cx.device(), &sums, [sums.len()])
        };
        let (q_starts, k_starts) = (starts(|l| l.0)?, starts(|l| l.1)?);
        let options = Attention::default().scale(0.25).causal();
        let (out, lse) = attention::forward_packed(cx, &q, &k, &v, &q_starts, &k_starts, 40, &options)?;
        let mut alone = Tensor::zeros(cx.device(), out.shape())?;
        attention::forward_packed_into(cx, &q, &k, &v, &q_starts, &k_starts, 40, &options, &mut alone, None)?;
        assert!(alone.to_vec()? == out.to_vec()?, "without lse");
        let out = out.view().permute([1, 0, 2])?.to_vec()?;
        let lse = lse.to_vec()?;
        let (mut q_from, mut k_from) = (0, 0);
        for (queries, keys_here) in lengths {
            let case = Case { batch: 1, heads: 4, kv_heads: 2, queries, keys: keys_here, causal: true, ..PLAIN };
            let heads = |reals: &[f64], from: usize, rows: usize, heads: usize| -> Vec<f64> {
                let row = |h: usize, i: usize| reals[((from + i) * heads + h) * 16..][..16].to_vec();
                (0..heads).flat_map(|h| (0..rows).map(move |i| (h, i))).flat_map(|(h, i)| row(h, i)).collect()
            };
            let x = super::reference::Reals {
                q: heads(&q_reals, q_from, queries, 4),
                k: heads(&k_reals, k_from, keys_here, 2),
                v: heads(&v_reals, k_from, keys_here, 2),
                bias: None,
            };
            let want = expected::<f16>(&case, &x);
            for head in 0..4 {
                let (at, here) = (head * tokens + q_from, head * queries);
                let got = &out[at * 16..(at + queries) * 16];
                let wanted = &want.out[here * 16..(here + queries) * 16];
                assert_close("packed", got, wanted, |i, _| want.out_bounds[here * 16 + i]);
                let (got, wanted) = (&lse[at..at + queries], &want.lse[here..here + queries]);
                assert_close("packed lse", got, wanted, |i, _| want.lse_bounds[here + i]);
            }
            (q_from, k_from) = (q_from + queries, k_from + keys_here);
        }
        Ok(())
    });
}

/// Blocks of other sizes, and those that the GPU takes.
#[test]
fn a_table_says_how_attention_runs() {
    on_every_device(|cx| {
        let case = Case { batch: 1, queries: 130, keys: 140, causal: true, ..PLAIN };
        for (block_q, block_k, programs) in [(16, 64, 0), (128, 128, 0), (64, 16, 0), (16, 32, 1), (64, 128, 2)] {
            let mut table = Table::new();
            let config = ForwardConfig { block_q, block_k, num_warps: 8, num_stages: 2, programs };
            table.insert(cx.device().name(), f16::ELEMENT, &[16, 130, 140], config);
            let cx = cx.clone().with_table(table);
            check::<f16>(&cx, case)?;
        }
        // More blocks than programs, and sequences that do not all take turns together.
        let (batch, heads, queries, keys) = if cx.device().is_cuda() { (10, 14, 150, 700) } else { (2, 6, 30, 40) };
        for (num_warps, programs) in [(4, 2), (8, 1)] {
            let mut table = Table::new();
            let config = ForwardConfig { block_q: 16 * num_warps, block_k: 128, num_warps, num_stages: 2, programs };
            table.insert(cx.device().name(), f16::ELEMENT, &[16, queries, keys], config);
            let cx = cx.clone().with_table(table);
            for causal in [false, true] {
                check::<f16>(&cx, Case { batch, heads, kv_heads: heads / 2, queries, keys, causal, ..case })?;
            }
        }
        Ok(())
    });
}

/// A grid has at most 65,535 programs along its second axis, and as many along its third. What a launch would be is looked at
/// everywhere; it is made on GPUs only, as the interpreter takes seconds for so many heads: there, programs that share blocks are
/// tested with fewer of them. Every head sees one key, so that it gives the value of this key.
#[test]
fn heads_and_batches_may_be_more_than_a_grid_has_places() {
    const MOST: usize = GRID_LIMITS[1] as usize;
    const D: usize = 8;
    on_every_device(|cx| {
        for (batch, heads, beyond) in [(1, MOST, false), (1, MOST + 1, true), (MOST + 1, 1, true)] {
            let x = Tensor::<f16, 4>::zeros(cx.device(), [batch, heads, 1, D])?;
            let values: Vec<f16> = (0..batch * heads * D).map(|at| f16::from_f32((at % 2039) as f32)).collect();
            let v = Tensor::upload(cx.device(), &values, [batch, heads, 1, D])?;
            let options = Attention::default();
            let launches = shapes_of(|| attention::forward(cx, &x, &x, &v, &options).map(drop))?;
            let grids: Vec<[u32; 3]> = launches.iter().map(|launch| launch.grid()).collect();
            assert!(matches!(grids[..], [[_, 1, 1]]) == beyond, "{batch} x {heads}: {grids:?}");
            if beyond && cx.device().is_cuda() {
                let (out, _) = attention::forward(cx, &x, &x, &v, &options)?;
                assert!(out.to_vec()? == values, "{batch} x {heads}");
            }
        }
        Ok(())
    });
}

#[test]
fn attention_refuses_what_does_not_fit() {
    on_every_device(|cx| {
        let x = |shape| Tensor::<f32, 4>::zeros(cx.device(), shape);
        let (q, k) = (x([1, 4, 8, 16])?, x([1, 2, 8, 16])?);
        let options = Attention::default();
        let refused = |q: &Tensor<f32, 4>, k: &Tensor<f32, 4>, v: &Tensor<f32, 4>, options: &Attention| {
            message(attention::forward(cx, q, k, v, options))
        };
        assert_eq!(
            refused(&q, &x([1, 2, 8, 8])?, &k, &options),
            "`k` has the shape [1, 2, 8, 8]; the other arguments ask for [1, 2, 8, 16]"
        );
        assert_eq!(
            refused(&q, &x([1, 3, 8, 16])?, &x([1, 3, 8, 16])?, &options),
            "`k` has 3 heads; the 4 heads of `q` must be a multiple of them"
        );
        let wide = x([1, 2, 1, 512])?;
        assert_eq!(refused(&wide, &wide, &wide, &options), "`q` has heads of 512 elements; heads have 1 to 256");
        assert_eq!(
            refused(&q, &k, &k, &options.scale(-1.0)),
            "the scale of attention is set to `-1`; expected a positive, finite number"
        );
        let across = k.view().transpose(2, 3)?;
        let narrow = x([1, 2, 8, 8])?;
        let error =
            message(attention::forward(cx, &narrow, across.narrow(2, 0..8)?, across.narrow(2, 0..8)?, &options));
        assert!(error.contains("`k` has") && error.contains("last dimension is not contiguous"), "{error}");
        let (mut out, mut lse) = (x([1, 4, 8, 16])?, Tensor::<f32, 3>::zeros(cx.device(), [1, 8, 4])?);
        let across = lse.view_mut().permute([0, 2, 1])?;
        let error = message(attention::forward_into(cx, &q, &k, &k, None, &options, &mut out, Some(across)));
        assert!(error.contains("`lse` has") && error.contains("last dimension is not contiguous"), "{error}");
        Ok(())
    });
}
