//! Functions that need little beside their results, or nothing, into tensors that are given.

use super::nans;
use crate::common::{Random, check_workspace, message, on_every_device, read};
use tilewright::prelude::*;
use tilewright_kernels::attention::{self, Attention, SavedPacked};
use tilewright_kernels::general::{self, Counted, Pooling, Scales};
use tilewright_kernels::products::fp8;
use tilewright_kernels::rows::{self, KlTarget, Reduction};
use tilewright_kernels::{Context, Tensor, training};

/// Runs something in a capture, which refuses allocations.
fn captured(cx: &Context, run: impl FnOnce(&Context) -> Result<(), Error>) -> Result<(), Error> {
    let stream = cx.device().new_stream()?;
    stream.capture(|stream| run(&cx.clone().with_stream(stream)))?.replay()
}

#[test]
fn divergences_within_a_workspace() {
    on_every_device(|cx| {
        let mut random = Random::new(100);
        for shape @ [count, _] in [[7, 300], [0, 20]] {
            let [x, y] = &[(); 2].map(|()| random.tensor::<bf16, 2>(cx, shape).0);
            let [x, y] = [&rows::log_softmax(cx, x)?, &rows::log_softmax(cx, y)?];
            for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
                let (len, kind) = (reduction.len(count), KlTarget::Logarithms);
                let room = if reduction == Reduction::None { 0 } else { count };
                let what = ("workspace", room, f32::NAN);
                let nothing = || Tensor::<f32, 1>::upload(cx.device(), &vec![7.0; len], [len]);
                let want = rows::kl_divergence(cx, x, y, kind, reduction)?;
                let mut out = nothing()?;
                rows::kl_divergence_into(cx, x, y, kind, reduction, &mut out)?;
                assert_eq!(read(&out)?, read(&want)?);
                check_workspace(cx, what, (want, read), nothing, |cx, workspace, out| {
                    rows::kl_divergence_into_with(cx, x, y, kind, reduction, out, workspace)
                })?;
                let want = rows::jsd(cx, x, y, 0.3, reduction)?;
                let mut out = nothing()?;
                rows::jsd_into(cx, x, y, 0.3, reduction, &mut out)?;
                assert_eq!(read(&out)?, read(&want)?);
                check_workspace(cx, what, (want, read), nothing, |cx, workspace, out| {
                    rows::jsd_into_with(cx, x, y, 0.3, reduction, out, workspace)
                })?;
                let (dloss, _) = &random.tensor::<f32, 1>(cx, [len]);
                let want = (
                    rows::kl_divergence_backward(cx, y, kind, reduction, dloss)?,
                    rows::jsd_backward(cx, x, y, 0.3, reduction, dloss)?,
                );
                let (mut first, mut second) = (nans(cx, shape)?, nans(cx, shape)?);
                captured(cx, |cx| {
                    rows::kl_divergence_backward_into(cx, y, kind, reduction, dloss, &mut first)?;
                    rows::jsd_backward_into(cx, x, y, 0.3, reduction, dloss, &mut second)
                })?;
                assert_eq!((read(&first)?, read(&second)?), (read(&want.0)?, read(&want.1)?));
            }
        }
        let x = Tensor::<f32, 2>::zeros(cx.device(), [3, 4])?;
        let mut out = Tensor::<f32, 1>::zeros(cx.device(), [3])?;
        let refused = message(rows::kl_divergence_into(cx, &x, &x, KlTarget::Logarithms, Reduction::Sum, &mut out));
        assert_eq!(refused, "`out` has the shape [3]; the other arguments ask for [1]");
        let mut dx = Tensor::<f32, 2>::zeros(cx.device(), [4, 3])?;
        let refused = message(rows::jsd_backward_into(cx, &x, &x, 0.5, Reduction::None, &out, &mut dx));
        assert_eq!(refused, "`dx` has the shape [4, 3]; the other arguments ask for [3, 4]");
        Ok(())
    });
}

#[test]
fn pools_and_counts_into_tensors() {
    on_every_device(|cx| {
        let (device, mut random) = (cx.device(), Random::new(101));
        let how = Pooling::new([3, 2]).stride([2, 1]).padding([1, 0]);
        for n in [2, 0] {
            let (x, _) = &random.tensor::<f16, 4>(cx, [n, 6, 7, 5]);
            let (largest, places) = &general::max_pool2d(cx, x, how)?;
            let (dy, _) = &random.tensor::<f16, 4>(cx, largest.shape());
            let want = [
                read(largest)?,
                read(places)?,
                read(&general::avg_pool2d(cx, x, how, Counted::Inside)?)?,
                read(&general::max_pool2d_backward(cx, x.shape(), places, dy, how)?)?,
                read(&general::avg_pool2d_backward(cx, x.shape(), dy, how, Counted::Inside)?)?,
            ];
            let (mut values, mut mean) = (nans::<f16, 4>(cx, dy.shape())?, nans::<f16, 4>(cx, dy.shape())?);
            let mut to_places = Tensor::zeros(device, dy.shape())?;
            let (mut back, mut mean_back) = (nans::<f16, 4>(cx, x.shape())?, nans::<f16, 4>(cx, x.shape())?);
            captured(cx, |cx| {
                general::max_pool2d_into(cx, x, how, &mut values, &mut to_places)?;
                general::avg_pool2d_into(cx, x, how, Counted::Inside, &mut mean)?;
                general::max_pool2d_backward_into(cx, &to_places, dy, how, &mut back)?;
                general::avg_pool2d_backward_into(cx, dy, how, Counted::Inside, &mut mean_back)
            })?;
            assert_eq!([read(&values)?, read(&to_places)?, read(&mean)?, read(&back)?, read(&mean_back)?], want);
            let refused = message(general::avg_pool2d_into(cx, x, how, Counted::Inside, &mut back));
            let problem = format!("`out` has the shape [{n}, 6, 7, 5]");
            assert_eq!(refused, format!("{problem}; the other arguments ask for [{n}, 3, 6, 5]"));

            // Counts are added to zeros, whatever was there.
            let whole: Vec<i32> = (0..n as i32 * 50).map(|at| at * 7 % 13).collect();
            let whole = &Tensor::upload(device, &whole, [n, 50])?;
            let want = (general::bincount(cx, whole, 9)?, general::histogram(cx, x, 9, -1.0, 1.0)?);
            let filled = || Tensor::upload(device, &[7i32; 9], [9]);
            let (mut counts, mut bins) = (filled()?, filled()?);
            captured(cx, |cx| {
                general::bincount_into(cx, whole, &mut counts)?;
                general::histogram_into(cx, x, -1.0, 1.0, &mut bins)
            })?;
            assert_eq!((read(&counts)?, read(&bins)?), (read(&want.0)?, read(&want.1)?));
        }
        Ok(())
    });
}

#[test]
fn numbers_of_8_bits_into_tensors() {
    on_every_device(|cx| {
        let mut random = Random::new(102);
        let (x, _) = &random.tensor::<f32, 2>(cx, [5, 48]);
        for scales in [Scales::Tensor, Scales::Row, Scales::Group(16)] {
            let (q, factors) = &general::quantise::<i8, f32>(cx, x, scales)?;
            let want: Tensor<bf16, 2> = general::dequantise(cx, q, factors, scales)?;
            let mut out = nans::<bf16, 2>(cx, [5, 48])?;
            captured(cx, |cx| general::dequantise_into(cx, q, factors, scales, &mut out))?;
            assert_eq!(read(&out)?, read(&want)?);
            let mut wide = nans::<bf16, 2>(cx, [5, 50])?;
            general::dequantise_into(cx, q, factors, scales, wide.view_mut().narrow(1, 1..49)?)?;
            assert_eq!(wide.view().narrow(1, 1..49)?.to_vec()?, want.to_vec()?);
            let refused = message(general::dequantise_into(cx, q, factors, scales, &mut wide));
            assert_eq!(refused, "`out` has the shape [5, 50]; the other arguments ask for [5, 48]");
        }
        let (a, b) = (&random.tensor::<F8E4M3, 2>(cx, [20, 32]).0, &random.tensor::<F8E4M3, 2>(cx, [32, 24]).0);
        let (rows, one) = (&random.tensor::<f32, 1>(cx, [20]).0, &random.tensor::<f32, 1>(cx, [1]).0);
        let want: Tensor<f32, 2> = fp8::matmul(cx, a, rows, b, one)?;
        let mut out = nans::<f32, 2>(cx, [20, 24])?;
        captured(cx, |cx| fp8::matmul_into(cx, a, rows, b, one, &mut out))?;
        assert_eq!(read(&out)?, read(&want)?);
        Ok(())
    });
}

#[test]
fn states_of_attention_and_factors_into_tensors() {
    on_every_device(|cx| {
        let mut random = Random::new(103);
        for d in [20, 0] {
            let [a, b] = &[(); 2].map(|()| random.tensor::<f16, 4>(cx, [2, 3, 5, d]).0);
            let [log_a, log_b] = &[(); 2].map(|()| random.tensor::<f32, 3>(cx, [2, 3, 5]).0);
            let want = attention::merge_states(cx, (a, log_a), (b, log_b))?;
            let (mut out, mut lse) = (nans::<f16, 4>(cx, a.shape())?, nans::<f32, 3>(cx, [2, 3, 5])?);
            captured(cx, |cx| attention::merge_states_into(cx, (a, log_a), (b, log_b), &mut out, &mut lse))?;
            assert_eq!((read(&out)?, read(&lse)?), (read(&want.0)?, read(&want.1)?));
        }
        let (norm, mut out) = (&Tensor::upload(cx.device(), &[8.0f32], [1])?, nans::<f32, 1>(cx, [1])?);
        captured(cx, |cx| training::clip_factor_into(cx, norm, 2.0, &mut out))?;
        assert_eq!(out.to_vec()?, training::clip_factor(cx, norm, 2.0)?.to_vec()?);
        let mut two = nans::<f32, 1>(cx, [2])?;
        let refused = message(training::clip_factor_into(cx, norm, 2.0, &mut two));
        assert_eq!(refused, "`out` has the shape [2]; the other arguments ask for [1]");
        Ok(())
    });
}

/// Two sequences, and a token of neither at the end, whose gradients are 0.
#[test]
fn gradients_of_packed_sequences_within_a_workspace() {
    on_every_device(|cx| {
        let mut random = Random::new(104);
        let options = &Attention::default().causal().deterministic();
        let (q, _) = &random.tensor::<f16, 3>(cx, [41, 2, 16]);
        let [k, v] = &[(); 2].map(|()| random.tensor::<f16, 3>(cx, [41, 1, 16]).0);
        let (dout, _) = &random.tensor::<f16, 3>(cx, [41, 2, 16]);
        let starts = &Tensor::upload(cx.device(), &[0, 19, 40], [3])?;
        let (out, lse) = &attention::forward_packed(cx, q, k, v, starts, starts, 21, options)?;
        let saved = SavedPacked {
            q: q.view(),
            k: k.view(),
            v: v.view(),
            out: out.view(),
            lse: lse.view(),
            dout: dout.view(),
            q_starts: starts.view(),
            k_starts: starts.view(),
            longest: 21,
            longest_keys: 21,
        };
        type Three = [Tensor<f16, 3>; 3];
        let read_all = |x: &Three| Ok::<_, Error>([read(&x[0])?, read(&x[1])?, read(&x[2])?].concat());
        let attention::Gradients { dq, dk, dv } = attention::backward_packed(cx, saved, options)?;
        assert_eq!(dv.view().narrow(0, 40..41)?.to_vec()?, [f16::ZERO; 16]);
        let want = [dq, dk, dv];
        let nothing = || Ok::<Three, Error>([nans(cx, q.shape())?, nans(cx, k.shape())?, nans(cx, v.shape())?]);
        let mut into = nothing()?;
        let [dq, dk, dv] = &mut into;
        attention::backward_packed_into(cx, saved, options, dq, dk, dv)?;
        assert_eq!(read_all(&into)?, read_all(&want)?);
        let [dq, dk, dv] = &mut into;
        let refused = message(attention::backward_packed_into(cx, saved, options, dk, dq, dv));
        assert!(refused.starts_with("`dq` has the shape"), "{refused}");
        let room = attention::backward_packed_workspace(cx, &saved, options)?;
        // Three numbers more for each of two sequences, in rows of whole 16 bytes.
        assert_eq!(room, 2 * 2 * 48);
        check_workspace(cx, ("workspace", room, f32::NAN), (want, read_all), nothing, |cx, workspace, [dq, dk, dv]| {
            attention::backward_packed_into_with(cx, saved, options, dq, dk, dv, workspace)
        })
    });
}
