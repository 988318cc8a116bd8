//! Gradients of queries and keys that were rotated before attention.

use super::backward::Given;
use super::fused::{BLOCKS, saying};
use super::reference::{Case, PLAIN, expected_gradients};
use crate::common::{Real, assert_close, message, on_every_device, reals};
use tilewright::prelude::*;
use tilewright_kernels::attention::{self, Attention, BackwardConfig, Rotation};
use tilewright_kernels::rows::{self, Rotary};
use tilewright_kernels::{Context, Tensor};

const TWO_KERNELS: BackwardConfig = BackwardConfig { fused: 0, ..BLOCKS };

/// Cosines and sines in a dtype, with a few more rows than there are keys.
fn tables<C: Real>(cx: &Context, case: &Case) -> Result<[Tensor<C, 2>; 2], Error> {
    let (cos, sin) = rows::rotary_tables(cx, case.keys + 3, case.d, 100.0)?;
    let convert = |table: Tensor<f32, 2>| {
        let numbers: Vec<C> = table.to_vec()?.iter().map(|x| C::of(f64::from(*x))).collect();
        Tensor::upload(cx.device(), &numbers, table.shape())
    };
    Ok([convert(cos)?, convert(sin)?])
}

/// Gradients of tokens from position `first` on rotated back, `[batch, heads, tokens, d]`, and their bounds: two elements that may
/// be off by theirs, two products and a sum.
fn rotated_back<T: Real>(
    (gradients, bounds): (&[f64], &[f64]),
    [tokens, d, first]: [usize; 3],
    [cos, sin]: [&[f64]; 2],
) -> (Vec<f64>, Vec<f64>) {
    let (mut turned, mut turned_bounds) = (gradients.to_vec(), bounds.to_vec());
    let half = d / 2;
    for row in 0..gradients.len() / d {
        for angle in 0..half {
            let at = (row % tokens + first) * half + angle;
            let (cos, sin) = (cos[at], sin[at]);
            let (a, b) = (row * d + angle, row * d + half + angle);
            let (x, y) = (gradients[a], gradients[b]);
            let [x_bound, y_bound] = [a, b].map(|at| bounds[at] + 2.0 * T::STEP * (gradients[at].abs() + bounds[at]));
            (turned[a], turned[b]) = (x * cos + y * sin, y * cos - x * sin);
            turned_bounds[a] = x_bound * cos.abs() + y_bound * sin.abs();
            turned_bounds[b] = y_bound * cos.abs() + x_bound * sin.abs();
        }
    }
    (turned, turned_bounds)
}

/// What the library's rotation makes of gradients of tokens from position `first` on.
fn composed<T: Real, C: Real>(
    cx: &Context,
    gradients: &Tensor<T, 4>,
    [cos, sin]: &[Tensor<C, 2>; 2],
    first: usize,
) -> Result<Vec<f64>, Error> {
    let mut turned = Tensor::upload(cx.device(), &gradients.to_vec()?, gradients.shape())?;
    let rows = first..cos.shape()[0];
    let (cos, sin) = (cos.view().narrow(0, rows.clone())?, sin.view().narrow(0, rows)?);
    rows::rotary_in_place(cx, turned.view_mut().permute([0, 2, 1, 3])?, cos, sin, &Rotary::default().backward())?;
    Ok(reals(&turned.to_vec()?))
}

/// Gradients beside those in f64, rotated back; and where they are rotated in memory, to the bit those of `backward` and the library's
/// rotation.
fn check<T: Real, C: Real>(cx: &Context, case: Case) -> Result<(), Error> {
    let given = Given::<T>::new(cx, &case, false)?;
    let (tables, saved, options) = (tables::<C>(cx, &case)?, given.saved(), case.options());
    let rotation = Rotation { cos: tables[0].view(), sin: tables[1].view() };
    let fused = attention::backward_workspace(cx, &saved, &options)?[0] > 2;
    let before = attention::backward(cx, saved, &options)?;
    let got = attention::backward_rotated(cx, saved, rotation, &options)?;
    assert_eq!(reals(&got.dv.to_vec()?), reals(&before.dv.to_vec()?), "gradients of values are as they were, {case:?}");

    let want = expected_gradients::<T>(&case, &given.inputs.reals, &given.up);
    let [cos, sin] = [reals(&tables[0].to_vec()?), reals(&tables[1].to_vec()?)];
    let first = case.keys - case.queries;
    for (name, got, before, (want, bounds), tokens, first) in [
        ("dq", &got.dq, &before.dq, (&want.dq, &want.dq_bounds), case.queries, first),
        ("dk", &got.dk, &before.dk, (&want.dk, &want.dk_bounds), case.keys, 0),
    ] {
        let name = format!("{name}, {case:?}, one kernel: {fused}");
        let in_memory = !fused || name.starts_with("dk") && (case.d < 16 || !case.d.is_power_of_two());
        // Rounded before it is rotated, too.
        let rounding = |(want, bound): (&f64, &f64)| bound + T::ROUNDING * (want.abs() + bound) + T::TINY;
        let bounds: Vec<f64> = match in_memory {
            true => want.iter().zip(bounds).map(rounding).collect(),
            false => bounds.clone(),
        };
        let (turned, bounds) = rotated_back::<T>((want, &bounds), [tokens, case.d, first], [&cos, &sin]);
        assert_close(&name, &got.to_vec()?, &turned, |at, _| bounds[at]);
        if !fused {
            assert_eq!(reals(&got.to_vec()?), composed(cx, before, &tables, first)?, "{name}");
        }
    }
    check_into(cx, &given, rotation, &options)?;
    if case.queries == case.keys && case.d == case.dv { check_qkv(cx, &given, rotation, &options) } else { Ok(()) }
}

/// Into one tensor `[batch, tokens, heads, d]`, which has more heads than that of queries, keys and values, it is the same to the bit
/// where additions have one order, as on the CPU.
fn check_qkv<T: Real, C: Real>(
    cx: &Context,
    given: &Given<T>,
    rotation: Rotation<'_, C>,
    options: &Attention,
) -> Result<(), Error> {
    let saved = given.saved();
    let ([batch, heads, tokens, d], kv_heads) = (saved.q.shape(), saved.k.shape()[1]);
    let options = if cx.device().is_cuda() { &options.deterministic() } else { options };
    let want = attention::backward_rotated(cx, saved, rotation, options)?;
    let all = heads + 2 * kv_heads;
    let wide = [batch, tokens, all + 1, d];
    let mut dqkv = Tensor::upload(cx.device(), &vec![T::of(7.0); wide.iter().product()], wide)?;
    let mut workspace = Tensor::zeros(cx.device(), attention::backward_workspace(cx, &saved, options)?)?;
    let into = dqkv.view_mut().narrow(2, 0..all)?.permute([0, 2, 1, 3])?;
    attention::backward_rotated_qkv_into(cx, saved, rotation, options, &mut workspace, into)?;
    let mut first = 0;
    for (name, want) in [("dq", &want.dq), ("dk", &want.dk), ("dv", &want.dv)] {
        let part = first..first + want.shape()[1];
        first = part.end;
        let got = dqkv.view().narrow(2, part)?.permute([0, 2, 1, 3])?.to_vec()?;
        assert_eq!(reals(&got), reals(&want.to_vec()?), "{name} beside the others");
    }
    let rest = dqkv.view().narrow(2, all..all + 1)?.to_vec()?;
    assert!(rest.iter().all(|x| x.real() == 7.0), "what lies between is not written");
    Ok(())
}

/// Into parts of one tensor `[batch, tokens, heads, d]`, of two kernels, it is the same to the bit.
fn check_into<T: Real, C: Real>(
    cx: &Context,
    given: &Given<T>,
    rotation: Rotation<'_, C>,
    options: &Attention,
) -> Result<(), Error> {
    let (saved, options) = (given.saved(), &options.deterministic());
    let want = attention::backward_rotated(cx, saved, rotation, options)?;
    let apart = |x: &Tensor<T, 4>| {
        let [batch, heads, tokens, d] = x.shape();
        Tensor::<T, 4>::zeros(cx.device(), [batch, tokens, 2 * heads, d])
    };
    let [mut dq, mut dk, mut dv] = [apart(&want.dq)?, apart(&want.dk)?, apart(&want.dv)?];
    let mut workspace = Tensor::zeros(cx.device(), attention::backward_workspace(cx, &saved, options)?)?;
    let [mut into_q, mut into_k, mut into_v] = [(&mut dq, &want.dq), (&mut dk, &want.dk), (&mut dv, &want.dv)]
        .map(|(x, want)| x.view_mut().narrow(2, 0..want.shape()[1]).and_then(|x| x.permute([0, 2, 1, 3])).unwrap());
    attention::backward_rotated_into(
        cx,
        saved,
        rotation,
        options,
        &mut workspace,
        &mut into_q,
        &mut into_k,
        &mut into_v,
    )?;
    for (got, want) in [(&into_q, &want.dq), (&into_k, &want.dk), (&into_v, &want.dv)] {
        assert_eq!(reals(&got.as_view().to_vec()?), reals(&want.to_vec()?));
    }
    for (x, want) in [(&dq, &want.dq), (&dk, &want.dk), (&dv, &want.dv)] {
        let heads = want.shape()[1];
        let rest = x.view().narrow(2, heads..2 * heads)?.to_vec()?;
        assert!(rest.iter().all(|x| x.real() == 0.0), "what lies between is not written");
    }
    Ok(())
}

/// By one kernel and by two.
fn check_both<T: Real, C: Real>(cx: &Context, case: Case) -> Result<(), Error> {
    for config in [BLOCKS, TWO_KERNELS] {
        check::<T, C>(&saying::<T>(cx, case.d, [case.queries, case.keys], config), case)?;
    }
    Ok(())
}

#[test]
fn rotated_gradients_in_every_dtype() {
    on_every_device(|cx| {
        let small = Case { batch: 1, ..PLAIN };
        check_both::<f16, f32>(cx, small)?;
        check_both::<f16, f16>(cx, Case { causal: true, ..small })?;
        check_both::<bf16, f32>(cx, Case { causal: true, ..small })?;
        check::<f32, f32>(cx, Case { causal: true, ..small })?;
        check::<f64, f32>(cx, small)?;
        check::<f64, f64>(cx, Case { causal: true, ..small })
    });
}

#[test]
fn rotated_gradients_of_heads_of_any_even_size() {
    on_every_device(|cx| {
        let small = Case { batch: 1, queries: 20, keys: 33, causal: true, ..PLAIN };
        check_both::<f16, f32>(cx, Case { d: 80, dv: 80, heads: 3, kv_heads: 1, ..small })?;
        check_both::<bf16, bf16>(cx, Case { d: 24, dv: 40, heads: 4, kv_heads: 2, batch: 2, ..small })?;
        check_both::<f16, f32>(cx, Case { d: 2, dv: 3, ..small })?;
        check_both::<f16, f32>(cx, Case { d: 64, dv: 32, heads: 4, kv_heads: 2, batch: 2, ..small })?;
        check_both::<f16, f32>(cx, Case { d: 128, dv: 128, heads: 1, ..small })?;
        check::<f32, f32>(cx, Case { d: 6, dv: 16, ..small })
    });
}

#[test]
fn rotated_gradients_of_other_masks_and_scores() {
    on_every_device(|cx| {
        let small = Case { batch: 1, ..PLAIN };
        for (queries, keys) in [(1, 1), (1, 70), (33, 64), (65, 65)] {
            check_both::<f16, f32>(cx, Case { queries, keys, causal: true, ..small })?;
        }
        let [even, odd] =
            [small.keys, 40].map(|queries| Case { batch: 2, heads: 6, kv_heads: 2, queries, keys: queries, ..small });
        check_both::<f16, f32>(cx, even)?;
        check_both::<bf16, bf16>(cx, Case { d: 24, dv: 24, causal: true, ..odd })?;
        check::<f32, f32>(cx, Case { causal: true, ..odd })?;
        check::<f64, f64>(cx, Case { window: Some((9, 0)), ..odd })?;
        check_both::<f16, f32>(cx, Case { window: Some((5, 3)), cap: Some(2.0), ..small })?;
        check_both::<bf16, f32>(cx, Case { bias: true, ..small })
    });
}

/// Without queries gradients of keys are 0.
#[test]
fn rotated_gradients_of_empty_problems() {
    on_every_device(|cx| {
        check_both::<f16, f32>(cx, Case { batch: 1, queries: 0, keys: 5, ..PLAIN })?;
        check_both::<f16, f32>(cx, Case { batch: 0, ..PLAIN })
    });
}

/// What does not fit is refused before anything is written.
#[test]
fn rotations_that_do_not_fit_are_refused() {
    on_every_device(|cx| {
        let refused = |case: Case, [cos, sin]: [[usize; 2]; 2], narrow: bool| -> Result<String, Error> {
            let given = Given::<f32>::new(cx, &case, false)?;
            let [cos, sin] = [cos, sin].map(|shape| Tensor::<f32, 2>::zeros(cx.device(), shape));
            let (cos, sin) = (cos?, sin?);
            let [cos, sin] = [&cos, &sin].map(|table| {
                let columns = table.shape()[1];
                table.view().narrow(1, 0..if narrow { columns / 2 } else { columns })
            });
            let rotation = Rotation { cos: cos?, sin: sin? };
            let ones = |shape: [usize; 4]| Tensor::upload(cx.device(), &vec![1f32; shape.iter().product()], shape);
            let saved = given.saved();
            let [mut dq, mut dk, mut dv] = [ones(saved.q.shape())?, ones(saved.k.shape())?, ones(saved.v.shape())?];
            let options = &case.options();
            let mut workspace = Tensor::zeros(cx.device(), attention::backward_workspace(cx, &saved, options)?)?;
            let into = [&mut dq, &mut dk, &mut dv];
            let [to_q, to_k, to_v] = into;
            let result =
                attention::backward_rotated_into(cx, saved, rotation, options, &mut workspace, to_q, to_k, to_v);
            for gradient in [dq, dk, dv] {
                assert!(gradient.to_vec()?.iter().all(|x| *x == 1.0));
            }
            Ok(message(result))
        };
        let right = [[45, 8]; 2];
        assert_eq!(
            refused(Case { queries: 46, ..PLAIN }, right, false)?,
            "`q` has 46 rows; queries end with the keys, of which there are 45, so that each has a position"
        );
        assert_eq!(
            refused(Case { d: 15, ..PLAIN }, right, false)?,
            "`q` has heads of 15 elements; their number is even: elements are rotated in pairs"
        );
        assert_eq!(
            refused(PLAIN, [[44, 8]; 2], false)?,
            "`cos` has the shape [44, 8]; give a row of 8 cosines for each position, 45 rows at least"
        );
        assert_eq!(
            refused(PLAIN, [[45, 16]; 2], false)?,
            "`cos` has the shape [45, 16]; give a row of 8 cosines for each position, 45 rows at least"
        );
        assert_eq!(
            refused(PLAIN, [[45, 8], [46, 8]], false)?,
            "`sin` has the shape [46, 8]; the other arguments ask for [45, 8]"
        );
        // Into one tensor, of as many queries as keys.
        let (given, tables) = (Given::<f32>::new(cx, &PLAIN, false)?, tables::<f32>(cx, &PLAIN)?);
        let rotation = Rotation { cos: tables[0].view(), sin: tables[1].view() };
        let mut workspace = Tensor::zeros(cx.device(), [2, 2, 2, 37])?;
        let mut dqkv = Tensor::<f32, 4>::zeros(cx.device(), [2, 4, 37, 16])?;
        let options = &PLAIN.options();
        let uneven =
            attention::backward_rotated_qkv_into(cx, given.saved(), rotation, options, &mut workspace, &mut dqkv);
        assert_eq!(message(uneven), "`k` has the shape [2, 1, 45, 16]; the other arguments ask for [2, 1, 37, 16]");
        let given = Given::<f32>::new(cx, &Case { keys: 37, ..PLAIN }, false)?;
        let mut less = Tensor::<f32, 4>::zeros(cx.device(), [2, 3, 37, 16])?;
        let short =
            attention::backward_rotated_qkv_into(cx, given.saved(), rotation, options, &mut workspace, &mut less);
        assert_eq!(message(short), "`dqkv` has the shape [2, 3, 37, 16]; the other arguments ask for [2, 4, 37, 16]");
        let gaps = refused(PLAIN, [[45, 16]; 2], true)?;
        assert!(
            gaps.starts_with("`cos` has the shape [45, 8] and strides [16, 1]: it is not in row-major order"),
            "{gaps}"
        );
        Ok(())
    });
}
