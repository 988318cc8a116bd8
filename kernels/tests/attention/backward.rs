use super::reference::{Case, Inputs, PLAIN, Upstream, expected, expected_gradients};
use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::attention::{self, Attention, BackwardConfig, Rotation, Saved, SavedPacked};
use tilewright_kernels::{Context, Table, Tensor, TensorView, rows};

/// What a backward pass is given, and the same as f64.
pub(super) struct Given<T: Real> {
    pub(super) inputs: Inputs<T>,
    pub(super) out: Tensor<T, 4>,
    pub(super) lse: Tensor<f32, 3>,
    pub(super) dout: Tensor<T, 4>,
    pub(super) dlse: Option<Tensor<f32, 3>>,
    pub(super) up: Upstream,
}

impl<T: Real> Given<T> {
    pub(super) fn new(cx: &Context, case: &Case, dlse: bool) -> Result<Self, Error> {
        let inputs = Inputs::<T>::new(cx, case, case.keys as u64);
        let want = expected::<T>(case, &inputs.reals);
        let mut random = Random::new(77);
        let shape = [case.batch, case.heads, case.queries, case.dv];
        let out: Vec<T> = want.out.iter().map(|x| T::of(*x)).collect();
        let lse: Vec<f32> = want.lse.iter().map(|x| *x as f32).collect();
        let (dout, dout_reals) = random.tensor::<T, 4>(cx, shape);
        let rows = [case.batch, case.heads, case.queries];
        let (dlse, dlse_reals) = dlse.then(|| random.tensor::<f32, 3>(cx, rows)).unzip();
        let up = Upstream {
            out: out.iter().map(|x| x.real()).collect(),
            lse: lse.iter().map(|x| f64::from(*x)).collect(),
            dout: dout_reals,
            dlse: dlse_reals,
        };
        let (out, lse) = (Tensor::upload(cx.device(), &out, shape)?, Tensor::upload(cx.device(), &lse, rows)?);
        Ok(Given { inputs, out, lse, dout, dlse, up })
    }

    pub(super) fn saved(&self) -> Saved<'_, T> {
        Saved {
            q: self.inputs.q.view(),
            k: self.inputs.k.view(),
            v: self.inputs.v.view(),
            bias: self.inputs.bias.as_ref().map(Tensor::view),
            out: self.out.view(),
            lse: self.lse.view(),
            dout: self.dout.view(),
            dlse: self.dlse.as_ref().map(Tensor::view),
        }
    }
}

pub(super) fn check<T: Real>(cx: &Context, case: Case, dlse: bool) -> Result<(), Error> {
    let given = Given::<T>::new(cx, &case, dlse)?;
    let want = expected_gradients::<T>(&case, &given.inputs.reals, &given.up);
    let got = attention::backward(cx, given.saved(), &case.options())?;
    assert_close(&format!("dv, {case:?}"), &got.dv.to_vec()?, &want.dv, |at, _| want.dv_bounds[at]);
    assert_close(&format!("dk, {case:?}"), &got.dk.to_vec()?, &want.dk, |at, _| want.dk_bounds[at]);
    assert_close(&format!("dq, {case:?}"), &got.dq.to_vec()?, &want.dq, |at, _| want.dq_bounds[at]);
    Ok(())
}

#[test]
fn gradients_in_every_dtype() {
    on_every_device(|cx| {
        let small = Case { batch: 1, ..PLAIN };
        check::<f16>(cx, small, false)?;
        check::<bf16>(cx, Case { causal: true, ..small }, false)?;
        check::<f32>(cx, small, true)?;
        check::<f64>(cx, Case { causal: true, ..small }, false)
    });
}

#[test]
fn gradients_under_masks() {
    on_every_device(|cx| {
        let small = Case { batch: 1, ..PLAIN };
        for (queries, keys) in [(1, 1), (1, 70), (40, 3), (33, 64), (65, 40)] {
            check::<f16>(cx, Case { queries, keys, causal: true, ..small }, false)?;
            check::<f32>(cx, Case { queries, keys, window: Some((5, 3)), ..small }, false)?;
        }
        check::<f32>(cx, Case { window: Some((30, 40)), causal: true, keys: 90, ..small }, false)
    });
}

#[test]
fn gradients_of_heads_of_any_size() {
    on_every_device(|cx| {
        let small = Case { batch: 1, queries: 20, keys: 33, ..PLAIN };
        check::<f16>(cx, Case { d: 80, dv: 80, heads: 3, kv_heads: 1, ..small }, false)?;
        check::<bf16>(cx, Case { d: 24, dv: 40, heads: 4, kv_heads: 2, batch: 2, ..small }, false)?;
        check::<f32>(cx, Case { d: 1, dv: 3, ..small }, false)
    });
}

#[test]
fn gradients_with_caps_and_biases() {
    on_every_device(|cx| {
        let small = Case { batch: 1, ..PLAIN };
        check::<f16>(cx, Case { cap: Some(2.0), ..small }, false)?;
        check::<f32>(cx, Case { bias: true, causal: true, ..small }, false)?;
        check::<f32>(cx, Case { bias: true, cap: Some(3.0), window: Some((20, 20)), ..small }, true)
    });
}

/// The sum of `out * dout` of an f64 run, as an input moves.
#[test]
fn gradients_are_those_of_finite_differences() {
    let cx = &Context::new(&Device::cpu());
    let run = || -> Result<(), Error> {
        let case =
            Case { batch: 1, queries: 7, keys: 9, d: 4, dv: 5, cap: Some(1.5), bias: true, causal: true, ..PLAIN };
        let given = Given::<f64>::new(cx, &case, false)?;
        let want = expected_gradients::<f64>(&case, &given.inputs.reals, &given.up);
        let got = attention::backward(cx, given.saved(), &case.options())?;
        let x = &given.inputs.reals;
        let loss = |q: &[f64], k: &[f64], v: &[f64]| -> Result<f64, Error> {
            let q = Tensor::upload(cx.device(), q, given.inputs.q.shape())?;
            let k = Tensor::upload(cx.device(), k, given.inputs.k.shape())?;
            let v = Tensor::upload(cx.device(), v, given.inputs.v.shape())?;
            let mut out = Tensor::zeros(cx.device(), given.out.shape())?;
            let bias = given.inputs.bias.as_ref().map(Tensor::view);
            attention::forward_into(cx, &q, &k, &v, bias, &case.options(), &mut out, None)?;
            Ok(out.to_vec()?.iter().zip(&given.up.dout).map(|(a, b)| a * b).sum())
        };
        let step = 1e-3;
        for at in (0..case.d * 9).step_by(7) {
            for (which, gradient, bound) in [
                (0, &got.dq, want.dq_bounds.get(at)),
                (1, &got.dk, want.dk_bounds.get(at)),
                (2, &got.dv, want.dv_bounds.get(at)),
            ] {
                let (Some(bound), Some(gradient)) = (bound, gradient.to_vec()?.get(at).copied()) else { continue };
                let moved = |by: f64| {
                    let mut x = [x.q.clone(), x.k.clone(), x.v.clone()];
                    x[which][at] += by;
                    loss(&x[0], &x[1], &x[2])
                };
                // Five points: the error of the formula is step^4 / 30 of the fifth derivative, that of rounding 1e-15 / step.
                let near = moved(step)? - moved(-step)?;
                let far = moved(2.0 * step)? - moved(-2.0 * step)?;
                let difference = (8.0 * near - far) / (12.0 * step);
                let error = (difference - gradient).abs();
                assert!(error <= bound + 1e-9, "input {which}, element {at}: {gradient}, not {difference}, {bound:e}");
            }
        }
        Ok(())
    };
    run().unwrap();
}

#[test]
fn gradients_of_packed_sequences() {
    on_every_device(|cx| [20, 21].into_iter().try_for_each(|first| check_packed::<f32>(cx, first)));
}

/// Gradients of one batch of two sequences, and of the same packed, of 60 queries: so many in the first. Where that is no multiple
/// of 4, vectors of the second begin within 16 bytes.
pub(super) fn check_packed<T: Real>(cx: &Context, queries: usize) -> Result<(), Error> {
    let case = Case { batch: 1, heads: 2, kv_heads: 1, queries, keys: 35, causal: true, ..PLAIN };
    let other = Case { queries: 60 - queries, keys: 33, ..case };
    let (first, second) = (Given::<T>::new(cx, &case, false)?, Given::<T>::new(cx, &other, false)?);
    let join = |a: &Tensor<T, 4>, b: &Tensor<T, 4>| -> Result<Tensor<T, 3>, Error> {
        let [_, heads, rows, d] = a.shape();
        let mut all = a.view().permute([0, 2, 1, 3])?.to_vec()?;
        all.extend(b.view().permute([0, 2, 1, 3])?.to_vec()?);
        Tensor::upload(cx.device(), &all, [rows + b.shape()[2], heads, d])
    };
    let (q, k) = (join(&first.inputs.q, &second.inputs.q)?, join(&first.inputs.k, &second.inputs.k)?);
    let (v, out) = (join(&first.inputs.v, &second.inputs.v)?, join(&first.out, &second.out)?);
    let dout = join(&first.dout, &second.dout)?;
    let (a, b) = (first.lse.to_vec()?, second.lse.to_vec()?);
    let lse = [&a[..queries], &b[..60 - queries], &a[queries..], &b[60 - queries..]].concat();
    let lse = Tensor::upload(cx.device(), &lse, [2, 60])?;
    let q_starts = Tensor::upload(cx.device(), &[0, queries as i32, 60], [3])?;
    let k_starts = Tensor::upload(cx.device(), &[0, 35, 68], [3])?;
    let saved = SavedPacked {
        q: q.view(),
        k: k.view(),
        v: v.view(),
        out: out.view(),
        lse: lse.view(),
        dout: dout.view(),
        q_starts: q_starts.view(),
        k_starts: k_starts.view(),
        longest: 60 - queries,
        longest_keys: 35,
    };
    let got = attention::backward_packed(cx, saved, &case.options())?;
    for (given, case, q_rows, k_rows) in [(&first, case, 0..queries, 0..35), (&second, other, queries..60, 35..68)] {
        let want = expected_gradients::<T>(&case, &given.inputs.reals, &given.up);
        let part =
            |x: &Tensor<T, 3>, rows: std::ops::Range<usize>| x.view().narrow(0, rows)?.permute([1, 0, 2])?.to_vec();
        assert_close("dq", &part(&got.dq, q_rows)?, &want.dq, |at, _| want.dq_bounds[at]);
        assert_close("dk", &part(&got.dk, k_rows.clone())?, &want.dk, |at, _| want.dk_bounds[at]);
        assert_close("dv", &part(&got.dv, k_rows)?, &want.dv, |at, _| want.dv_bounds[at]);
    }
    Ok(())
}

#[test]
fn gradients_of_many_packed_sequences() {
    on_every_device(|cx| check_many_packed::<f32>(cx, &Attention::default().causal().deterministic()));
}

/// Gradients of each of many sequences, some of them empty, are those of the sequence alone, to the bit; those of tokens ahead of
/// the first and behind the last are zero. No sequence is longer than a block, so that each gradient is added up in one order.
pub(super) fn check_many_packed<T: Real>(cx: &Context, options: &Attention) -> Result<(), Error> {
    let lengths: Vec<usize> = (0..75).map(|i| [3, 0, 1, 17, 4, 0, 0, 30, 2][i * 5 % 9]).collect();
    let starts: Vec<usize> = std::iter::once(0)
        .chain(lengths.iter().scan(0, |sum, length| {
            *sum += length;
            Some(*sum)
        }))
        .map(|start| start + 2)
        .collect();
    let (tokens, heads, d) = (starts[75] + 5, 2, 16);
    let mut random = Random::new(91);
    let [q, k, v, out, dout] = [(); 5].map(|()| random.tensor::<T, 3>(cx, [tokens, heads, d]).0);
    let lse = random.tensor::<f32, 2>(cx, [heads, tokens]).0;
    let numbers: Vec<i32> = starts.iter().map(|&start| start as i32).collect();
    let at = Tensor::upload(cx.device(), &numbers, [76])?;
    let saved = SavedPacked {
        q: q.view(),
        k: k.view(),
        v: v.view(),
        out: out.view(),
        lse: lse.view(),
        dout: dout.view(),
        q_starts: at.view(),
        k_starts: at.view(),
        longest: 30,
        longest_keys: 30,
    };
    let got = attention::backward_packed(cx, saved, options)?;
    let got = [got.dq.to_vec()?, got.dk.to_vec()?, got.dv.to_vec()?];
    let row = heads * d;
    fn turn<T: DType>(x: &Tensor<T, 4>) -> Result<TensorView<'_, T, 4>, Error> {
        x.view().permute([0, 2, 1, 3])
    }
    for (sequence, &length) in lengths.iter().enumerate().filter(|(_, length)| **length > 0) {
        let rows = starts[sequence]..starts[sequence] + length;
        let part = |x: &Tensor<T, 3>| -> Result<Tensor<T, 4>, Error> {
            Tensor::upload(cx.device(), &x.view().narrow(0, rows.clone())?.to_vec()?, [1, length, heads, d])
        };
        let [q, k, v, out, dout] = [part(&q)?, part(&k)?, part(&v)?, part(&out)?, part(&dout)?];
        let lse = Tensor::upload(cx.device(), &lse.view().narrow(1, rows.clone())?.to_vec()?, [1, heads, length])?;
        let saved = Saved {
            q: turn(&q)?,
            k: turn(&k)?,
            v: turn(&v)?,
            bias: None,
            out: turn(&out)?,
            lse: lse.view(),
            dout: turn(&dout)?,
            dlse: None,
        };
        let want = attention::backward(cx, saved, options)?;
        for (name, got, want) in [("dq", &got[0], &want.dq), ("dk", &got[1], &want.dk), ("dv", &got[2], &want.dv)] {
            let want = turn(want)?.to_vec()?;
            assert_eq!(got[rows.start * row..rows.end * row], want, "{name} of sequence {sequence}, {length} tokens");
        }
    }
    for gradient in &got {
        let outside = gradient[..2 * row].iter().chain(&gradient[starts[75] * row..]);
        assert!(outside.clone().count() == 7 * row && outside.into_iter().all(|x| x.real() == 0.0));
    }
    Ok(())
}

/// The blocks that the GPU takes, and two runs that give the same bits.
#[test]
fn gradients_in_blocks_of_other_sizes() {
    on_every_device(|cx| {
        let case = Case { batch: 1, queries: 130, keys: 140, causal: true, ..PLAIN };
        let mut table = Table::new();
        let config = BackwardConfig {
            keys_block_q: 64,
            keys_block_k: 128,
            queries_block_q: 128,
            queries_block_k: 16,
            num_warps: 8,
            num_stages: 2,
            fused: 0,
        };
        table.insert(cx.device().name(), f16::ELEMENT, &[16, 130, 140], config);
        let cx = &cx.clone().with_table(table);
        check::<f16>(cx, case, false)?;
        let given = Given::<f16>::new(cx, &case, false)?;
        let twice = [(); 2].map(|()| attention::backward(cx, given.saved(), &case.options()));
        let [a, b] = twice;
        let (a, b) = (a?, b?);
        assert_eq!(a.dk.to_vec()?, b.dk.to_vec()?);
        assert_eq!(a.dq.to_vec()?, b.dq.to_vec()?);
        Ok(())
    });
}

#[test]
fn backward_refuses_what_does_not_fit() {
    on_every_device(|cx| {
        let given = Given::<f32>::new(cx, &PLAIN, false)?;
        let short = given.dout.view().narrow(2, 0..5)?;
        assert_eq!(
            message(attention::backward(cx, Saved { dout: short, ..given.saved() }, &PLAIN.options())),
            "`dout` has the shape [2, 2, 5, 16]; the other arguments ask for [2, 2, 37, 16]"
        );
        Ok(())
    });
}

/// Gradients have programs for each head, of which a grid has no more than 65,535.
#[test]
fn gradients_of_more_heads_or_batches_than_a_grid_has_places_are_refused() {
    on_every_device(|cx| {
        for (batch, heads, axis) in [(1, 65_536, 1), (65_536, 1, 2)] {
            let x = Tensor::<f16, 4>::zeros(cx.device(), [batch, heads, 1, 8])?;
            let lse = Tensor::<f32, 3>::zeros(cx.device(), [batch, heads, 1])?;
            let (tensor, bias, dlse) = (x.view(), None, None);
            let saved =
                Saved { q: tensor, k: tensor, v: tensor, bias, out: tensor, lse: lse.view(), dout: tensor, dlse };
            let refused = attention::backward(cx, saved, &Attention::default()).map(drop);
            assert!(
                matches!(refused, Err(Error::InvalidGrid { axis: at, value: 65_536, .. }) if at == axis),
                "{batch} x {heads}: {refused:?}"
            );
        }
        Ok(())
    });
}

/// Without queries gradients of keys are 0, and without keys those of queries.
#[test]
fn gradients_of_empty_problems() {
    on_every_device(|cx| {
        for (queries, keys) in [(0, 5), (5, 0)] {
            let tensor =
                |heads, rows, value| Tensor::upload(cx.device(), &vec![value; heads * rows * 16], [1, heads, rows, 16]);
            let (q, k) = (tensor(2, queries, 1.0f32)?, tensor(1, keys, 1.0f32)?);
            let lse = Tensor::upload(cx.device(), &vec![f32::NEG_INFINITY; 2 * queries], [1, 2, queries])?;
            let (out, dout) = (tensor(2, queries, 0.0)?, tensor(2, queries, 1.0)?);
            let saved = Saved {
                q: q.view(),
                k: k.view(),
                v: k.view(),
                bias: None,
                out: out.view(),
                lse: lse.view(),
                dout: dout.view(),
                dlse: None,
            };
            // What is there before does not count.
            let [mut dq, mut dk, mut dv] = [tensor(2, queries, 7.0)?, tensor(1, keys, 7.0)?, tensor(1, keys, 7.0)?];
            let mut workspace = Tensor::zeros(cx.device(), [2, 1, 2, queries])?;
            let options = PLAIN.options();
            attention::backward_into(cx, saved, &options, &mut workspace, &mut dq, &mut dk, &mut dv)?;
            for gradient in [dq, dk, dv] {
                assert!(gradient.to_vec()?.iter().all(|x| *x == 0.0), "{queries} queries, {keys} keys");
            }
        }
        Ok(())
    });
}

/// No heads of queries see keys: gradients of these are 0, and what lies between their elements stays.
#[test]
fn gradients_of_keys_without_heads_of_queries() {
    on_every_device(|cx| {
        let q = Tensor::<f32, 4>::zeros(cx.device(), [2, 0, 5, 16])?;
        let k = Tensor::upload(cx.device(), &[1.0f32; 2 * 3 * 5 * 16], [2, 3, 5, 16])?;
        let lse = Tensor::zeros(cx.device(), [2, 0, 5])?;
        let saved = Saved {
            q: q.view(),
            k: k.view(),
            v: k.view(),
            bias: None,
            out: q.view(),
            lse: lse.view(),
            dout: q.view(),
            dlse: None,
        };
        let options = PLAIN.options();
        let mut workspace = Tensor::zeros(cx.device(), attention::backward_workspace(cx, &saved, &options)?)?;
        let mut dq = Tensor::zeros(cx.device(), q.shape())?;
        let mut both = Tensor::upload(cx.device(), &vec![7.0; 2 * 3 * 5 * 40], [2, 3, 5, 40])?;
        let mut dv = Tensor::upload(cx.device(), &vec![7.0; k.len()], k.shape())?;
        let dk = both.view_mut().narrow(3, 8..24)?;
        attention::backward_into(cx, saved, &options, &mut workspace, &mut dq, dk, dv.view_mut())?;
        assert!(dv.to_vec()?.iter().all(|x| *x == 0.0));
        for (at, x) in both.to_vec()?.into_iter().enumerate() {
            assert_eq!(x, if (8..24).contains(&(at % 40)) { 0.0 } else { 7.0 }, "element {at}");
        }

        let (cos, sin) = rows::rotary_tables(cx, 5, 16, 10_000.0)?;
        let rotation = Rotation { cos: cos.view(), sin: sin.view() };
        let mut all = Tensor::upload(cx.device(), &vec![7.0; 2 * 6 * 5 * 16], [2, 5, 6, 16])?;
        let into = all.view_mut().permute([0, 2, 1, 3])?;
        attention::backward_rotated_qkv_into(cx, saved, rotation, &options, &mut workspace, into)?;
        assert!(all.to_vec()?.iter().all(|x| *x == 0.0));
        Ok(())
    });
}
