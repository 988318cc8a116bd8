//! Attention over factors of 8 bits.

use super::reference::{Case, Expected, Inputs, PLAIN, expected, key_row, row, rows};
use crate::common::{Random, Real, assert_close, message, on_every_device};
use tilewright::prelude::*;
use tilewright_kernels::attention::{self, Attention, ForwardConfig, Fp8Scales};
use tilewright_kernels::{Context, Table, Tensor, TensorView, general};

/// A tensor of scales, `[batch, kv_heads]`.
fn scales(cx: &Context, case: &Case, random: &mut Random) -> Result<(Tensor<f32, 2>, Vec<f64>), Error> {
    let scales: Vec<f32> = (0..case.batch * case.kv_heads).map(|_| 0.25 + random.uniform() as f32).collect();
    let reals = scales.iter().map(|scale| f64::from(*scale)).collect();
    Ok((Tensor::upload(cx.device(), &scales, [case.batch, case.kv_heads])?, reals))
}

/// A problem with scales, and what it gives.
struct Scaled {
    inputs: Inputs<F8E4M3>,
    scales: [Tensor<f32, 2>; 3],
    want: Expected,
}

impl Scaled {
    fn new(cx: &Context, case: &Case) -> Result<Scaled, Error> {
        let mut inputs = Inputs::<F8E4M3>::new(cx, case, case.keys as u64);
        let mut random = Random::new(9);
        let of = [scales(cx, case, &mut random)?, scales(cx, case, &mut random)?, scales(cx, case, &mut random)?];
        let [q, k, v] = &of;
        let group = case.heads / case.kv_heads;
        for (batch, head, query) in rows(case) {
            let at = row(case, batch, head, query) * case.d;
            let scale = q.1[batch * case.kv_heads + head / group];
            inputs.reals.q[at..at + case.d].iter_mut().for_each(|x| *x *= scale);
        }
        for (batch, head, key) in (0..case.batch)
            .flat_map(|b| (0..case.kv_heads).flat_map(move |h| (0..case.keys).map(move |key| (b, h, key))))
        {
            let (at, of) = (key_row(case, batch, head * group, key), batch * case.kv_heads + head);
            inputs.reals.k[at * case.d..(at + 1) * case.d].iter_mut().for_each(|x| *x *= k.1[of]);
            inputs.reals.v[at * case.dv..(at + 1) * case.dv].iter_mut().for_each(|x| *x *= v.1[of]);
        }
        let want = expected::<F8E4M3>(case, &inputs.reals);
        Ok(Scaled { inputs, scales: of.map(|(scales, _)| scales), want })
    }

    fn scales(&self) -> Fp8Scales<'_> {
        let [q, k, v] = &self.scales;
        Fp8Scales { q: Some(q.view()), k: Some(k.view()), v: Some(v.view()) }
    }

    fn check<O: Real>(&self, what: &str, out: &Tensor<O, 4>, lse: &Tensor<f32, 3>) -> Result<(), Error> {
        assert_close(what, &out.to_vec()?, &self.want.out, |at, _| self.want.out_bounds[at]);
        assert_close(&format!("lse, {what}"), &lse.to_vec()?, &self.want.lse, |at, _| self.want.lse_bounds[at]);
        Ok(())
    }
}

fn check<O: Real>(cx: &Context, case: Case) -> Result<(), Error> {
    let scaled = Scaled::new(cx, &case)?;
    let Inputs { q, k, v, .. } = &scaled.inputs;
    let (out, lse) = attention::forward_fp8::<O>(cx, q, k, v, scaled.scales(), &case.options())?;
    scaled.check(&format!("{case:?}"), &out, &lse)?;
    let mut alone = Tensor::<O, 4>::zeros(cx.device(), out.shape())?;
    attention::forward_fp8_into(cx, q, k, v, scaled.scales(), &case.options(), &mut alone, None)?;
    assert!(alone.to_vec()? == out.to_vec()?, "without lse, {case:?}");
    Ok(())
}

#[test]
fn attention_of_bytes_with_every_option() {
    on_every_device(|cx| {
        let small = Case { batch: 1, ..PLAIN };
        check::<f16>(cx, Case { d: 32, dv: 32, ..PLAIN })?;
        check::<bf16>(cx, Case { d: 64, dv: 64, causal: true, queries: 70, keys: 90, ..small })?;
        check::<f32>(cx, Case { d: 128, dv: 128, heads: 4, window: Some((9, 4)), ..small })?;
        check::<f16>(cx, Case { d: 80, dv: 48, cap: Some(2.0), queries: 3, ..small })?;
        check::<f16>(cx, Case { d: 256, dv: 256, queries: 5, keys: 33, causal: true, ..small })?;
        // Columns of values beyond the first 128, not all of which there are, and one alone.
        check::<f32>(cx, Case { d: 64, dv: 200, queries: 20, ..small })?;
        check::<f64>(cx, Case { d: 16, dv: 1, queries: 3, keys: 1, ..small })?;
        // Queries that see nothing.
        check::<f16>(cx, Case { queries: 40, keys: 8, causal: true, ..small })
    });
}

/// Blocks of other sizes, and those that the GPU takes.
#[test]
fn blocks_of_bytes_of_every_size() {
    on_every_device(|cx| {
        let case = Case { batch: 1, queries: 200, keys: 300, causal: true, d: 128, dv: 128, ..PLAIN };
        let case = if cx.device().is_cuda() { case } else { Case { queries: 70, keys: 90, ..case } };
        for (block_q, block_k, num_warps, num_stages, programs) in
            [(128, 128, 8, 2, 1), (128, 64, 8, 3, 0), (64, 128, 4, 2, 0), (64, 32, 4, 1, 2), (16, 64, 2, 2, 0)]
        {
            let mut table = Table::new();
            let config = ForwardConfig { block_q, block_k, num_warps, num_stages, programs };
            table.insert(cx.device().name(), F8E4M3::ELEMENT, &[128, case.queries, case.keys], config);
            let cx = cx.clone().with_table(table);
            check::<f16>(&cx, case)?;
            check::<f16>(&cx, Case { causal: false, ..case })?;
        }
        Ok(())
    });
}

/// Values whose keys follow each other, in rows of any length, give the same bits.
#[test]
fn values_may_have_any_strides() {
    on_every_device(|cx| {
        for keys in [48, 45] {
            let case = Case { d: 32, dv: 32, keys, ..PLAIN };
            let scaled = Scaled::new(cx, &case)?;
            let Inputs { q, k, v, .. } = &scaled.inputs;
            let (out, lse) = attention::forward_fp8::<f16>(cx, q, k, v, scaled.scales(), &case.options())?;
            scaled.check("rows", &out, &lse)?;
            let turned = general::contiguous(cx, v.view().transpose(2, 3)?)?;
            let by_key = turned.view().transpose(2, 3)?;
            let (same, _) = attention::forward_fp8::<f16>(cx, q, k, by_key, scaled.scales(), &case.options())?;
            assert!(out.to_vec()? == same.to_vec()?);
        }
        Ok(())
    });
}

/// No keys give 0; a scale of 0 gives the mean of the values that a query sees.
#[test]
fn nothing_to_see_and_nothing_to_weigh() {
    on_every_device(|cx| {
        let x = |shape| Tensor::<F8E4M3, 4>::zeros(cx.device(), shape);
        let (none, scales) = (x([1, 1, 0, 16])?, Fp8Scales::default());
        let (out, lse) =
            attention::forward_fp8::<f16>(cx, &x([1, 2, 3, 16])?, &none, &none, scales, &Attention::default())?;
        assert!(out.to_vec()?.iter().all(|x| x.to_f64() == 0.0));
        assert!(lse.to_vec()?.iter().all(|x| *x == f32::NEG_INFINITY));

        let case = Case { batch: 1, kv_heads: 2, queries: 9, keys: 9, causal: true, ..PLAIN };
        let Inputs { q, k, v, reals, .. } = Inputs::<F8E4M3>::new(cx, &case, 5);
        let zero = Tensor::<f32, 2>::zeros(cx.device(), [1, 1])?;
        let scales = Fp8Scales { k: Some(zero.view().broadcast(1, 2)?), ..Fp8Scales::default() };
        let (out, _) = attention::forward_fp8::<f32>(cx, &q, &k, &v, scales, &case.options())?;
        for (at, got) in out.to_vec()?.into_iter().enumerate() {
            let (row, column) = (at / 16 % 9, at % 16);
            let seen = (0..=row).map(|key| reals.v[(at / (16 * 9) * 9 + key) * 16 + column]);
            let mean = seen.sum::<f64>() / (row + 1) as f64;
            assert!((f64::from(got) - mean).abs() < 1e-2, "{at}: {got}, not {mean}");
        }
        Ok(())
    });
}

#[test]
fn attention_of_bytes_refuses_what_does_not_fit() {
    on_every_device(|cx| {
        let x = |shape| Tensor::<F8E4M3, 4>::zeros(cx.device(), shape);
        let (q, k, one) = (x([2, 4, 8, 16])?, x([2, 2, 8, 16])?, Tensor::<f32, 2>::zeros(cx.device(), [1, 2])?);
        let refused = |scale: TensorView<'_, f32, 2>| {
            let scales = Fp8Scales { k: Some(scale), ..Fp8Scales::default() };
            message(attention::forward_fp8::<f16>(cx, &q, &k, &k, scales, &Attention::default()))
        };
        assert_eq!(refused(one.view()), "`k_scale` has the shape [1, 2]; the other arguments ask for [2, 2]");
        let (out, _) = attention::forward_fp8::<f16>(
            cx,
            &q,
            &k,
            &k,
            Fp8Scales { k: Some(one.view().broadcast(0, 2)?), ..Fp8Scales::default() },
            &Attention::default(),
        )?;
        assert_eq!(out.shape(), [2, 4, 8, 16]);
        Ok(())
    });
}

/// Hopper keeps 13 bits of fraction of sums of bytes: a sum over all keys in its tensor cores would lose 5 % of values whose mean
/// is 1, of 4096 keys. Those of blocks of 128 keys lose `(128 / 32 + 2) * 2^-12` at most, if terms are alike in size, and weights'
/// roundings average out.
#[test]
fn long_sums_keep_their_mean() {
    on_every_device(|cx| {
        let keys = if cx.device().is_cuda() { 4096 } else { 256 };
        let case = Case { batch: 1, heads: 1, queries: 16, keys, d: 128, dv: 128, scale: 0.088, ..PLAIN };
        let mut inputs = Inputs::<F8E4M3>::new(cx, &case, 3);
        let values: Vec<F8E4M3> = inputs.reals.v.iter().map(|x| F8E4M3::from_f64(x + 1.0)).collect();
        inputs.reals.v = values.iter().map(|x| x.to_f64()).collect();
        let (q, k, v) = (&inputs.q, &inputs.k, Tensor::upload(cx.device(), &values, [1, 1, keys, 128])?);
        let want = expected::<F8E4M3>(&case, &inputs.reals).out;
        let (out, _) = attention::forward_fp8::<f32>(cx, q, k, &v, Fp8Scales::default(), &case.options())?;
        let mean = |x: &mut dyn Iterator<Item = f64>| x.sum::<f64>() / want.len() as f64;
        let got = mean(&mut out.to_vec()?.into_iter().map(f64::from));
        let error = (got - mean(&mut want.iter().copied())).abs();
        assert!(error < 2e-3, "{error}");
        Ok(())
    });
}
