//! Models of sequences, into tensors and in workspaces that are given.

use super::nans;
use crate::common::{Random, Real, check_workspace, message, on_every_device, read};
use tilewright::prelude::*;
use tilewright_kernels::sequence::{
    self, GatedLinearAttentionGradients, SelectiveScan, SelectiveScanGradients, SsdGradients,
};
use tilewright_kernels::{Context, Tensor};

/// Checks that a capture takes `run`, which writes the results `want`.
fn check_results<T: Real, const R: usize>(
    cx: &Context,
    want: (Tensor<T, R>, Tensor<f32, R>),
    last: Tensor<f32, R>,
    run: impl Fn(&Context, &mut Tensor<T, R>, &mut Tensor<f32, R>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut y, mut last) = (Tensor::zeros(cx.device(), want.0.shape())?, last);
    let stream = cx.device().new_stream()?;
    let graph = stream.capture(|stream| run(&cx.clone().with_stream(stream), &mut y, &mut last))?;
    graph.replay()?;
    assert_eq!((read(&y)?, read(&last)?), (read(&want.0)?, read(&want.1)?));
    Ok(())
}

#[test]
fn sequences_into_tensors() {
    on_every_device(|cx| {
        let mut random = Random::new(74);
        // Without steps the last state is the first one, or zero.
        for len in [70, 0] {
            let [q, k, v] = &[16, 16, 20].map(|size| random.tensor::<bf16, 4>(cx, [2, len, 3, size]).0);
            let filled = |shape: [usize; 4]| {
                Tensor::upload(cx.device(), &vec![f32::NAN; shape.iter().product::<usize>()], shape)
            };
            let negative = |len: usize| (0..len).map(|at| -0.1 * (at % 7) as f32).collect::<Vec<_>>();
            let gate = &Tensor::upload(cx.device(), &negative(2 * len * 48), [2, len, 3, 16])?;
            let rate = &Tensor::upload(cx.device(), &negative(2 * len * 3), [2, len, 3])?;
            let beta = &Tensor::upload(cx.device(), &vec![0.05f32; 2 * len * 3], [2, len, 3])?;
            let want = sequence::gated_linear_attention(cx, q, k, v, gate, 0.25, None)?;
            check_results(cx, want, filled([2, 3, 16, 20])?, |cx, y, last| {
                sequence::gated_linear_attention_into(cx, q, k, v, gate, 0.25, None, y, last)
            })?;
            let want = sequence::gated_delta_rule(cx, q, k, v, rate, beta, 0.25, None)?;
            check_results(cx, want, filled([2, 3, 16, 20])?, |cx, y, last| {
                sequence::gated_delta_rule_into(cx, q, k, v, rate, beta, 0.25, None, y, last)
            })?;
            let [u, delta, b, c] = &[5, 5, 8, 8].map(|size| random.tensor::<bf16, 3>(cx, [2, size, len]).0);
            let a = &Tensor::upload(cx.device(), &negative(40), [5, 8])?;
            let options = SelectiveScan::default().softplus();
            let want = sequence::selective_scan(cx, u, delta, a, b, c, options)?;
            let last = Tensor::upload(cx.device(), &[f32::NAN; 80], [2, 5, 8])?;
            check_results(cx, want, last, |cx, y, last| {
                sequence::selective_scan_into(cx, u, delta, a, b, c, options, y, last)
            })?;
        }
        Ok(())
    });
}

#[test]
fn state_space_duality_within_a_workspace() {
    assert_eq!(sequence::ssd_workspace([1 << 62, 3, 3, 1], 5), usize::MAX);
    on_every_device(|cx| {
        let mut random = Random::new(75);
        for (len, room) in [(150, 2 * 3 * 4 * 41), (0, 0)] {
            let (x, _) = &random.tensor::<bf16, 4>(cx, [2, len, 4, 8]);
            let [b, c] = &[(); 2].map(|()| random.tensor::<bf16, 4>(cx, [2, len, 2, 5]).0);
            let dt = &Tensor::upload(cx.device(), &vec![0.1f32; 8 * len], [2, len, 4])?;
            let a = &Tensor::upload(cx.device(), &[-0.5f32, -1.0, -0.1, 0.0], [4])?;
            assert_eq!(sequence::ssd_workspace(x.shape(), 5), room);
            let want = sequence::ssd(cx, x, dt, a, b, c, None, None)?;
            let nothing = || Ok((Tensor::zeros(cx.device(), x.shape())?, Tensor::zeros(cx.device(), [2, 4, 5, 8])?));
            let both = |x: &(Tensor<bf16, 4>, Tensor<f32, 4>)| Ok(read(&x.0)? + &read(&x.1)?);
            let (mut y, mut last) = nothing()?;
            sequence::ssd_into(cx, x, dt, a, b, c, None, None, &mut y, &mut last)?;
            assert_eq!(both(&(y, last))?, both(&want)?);
            check_workspace(cx, ("workspace", room, f32::NAN), (want, both), nothing, |cx, workspace, (y, last)| {
                sequence::ssd_into_with(cx, x, dt, a, b, c, None, None, y, last, workspace)
            })?;
        }
        Ok(())
    });
}

/// Numbers from -0.6 to 0.
fn negative<const R: usize>(cx: &Context, shape: [usize; R]) -> Result<Tensor<f32, R>, Error> {
    let numbers: Vec<f32> = (0..shape.iter().product()).map(|at: usize| -0.1 * (at % 7) as f32).collect();
    Tensor::upload(cx.device(), &numbers, shape)
}

fn read_some<const R: usize>(x: &Option<Tensor<f32, R>>) -> Result<String, Error> {
    x.as_ref().map_or(Ok("none".into()), read)
}

fn read_ssd(x: &SsdGradients<bf16>) -> Result<String, Error> {
    let steps = [read(&x.x)?, read(&x.dt)?, read(&x.a)?, read(&x.b)?, read(&x.c)?];
    Ok(format!("{steps:?} {} {}", read_some(&x.skip)?, read(&x.initial)?))
}

/// No element is a sum of more than two that are added atomically, whose order does not matter.
#[test]
fn gradients_of_state_space_duality_within_a_workspace() {
    assert_eq!(sequence::ssd_backward_workspace([1 << 62, 3, 3, 1], 5), usize::MAX);
    on_every_device(|cx| {
        let mut random = Random::new(77);
        for (batch, len) in [(1, 100), (2, 0), (0, 100)] {
            let [x, dy] = &[(); 2].map(|()| random.tensor::<bf16, 4>(cx, [batch, len, 4, 8]).0);
            let [b, c] = &[(); 2].map(|()| random.tensor::<bf16, 4>(cx, [batch, len, 2, 5]).0);
            let dt = &Tensor::upload(cx.device(), &vec![0.1f32; batch * len * 4], [batch, len, 4])?;
            let (a, skip) = (&negative(cx, [4])?, &negative(cx, [4])?);
            let (initial, _) = &random.tensor::<f32, 4>(cx, [batch, 4, 5, 8]);
            for (skip, initial) in [(None, None), (Some(skip.view()), Some(initial.view()))] {
                let want = sequence::ssd_backward(cx, x, dt, a, b, c, skip, initial, dy, initial)?;
                let nothing = || {
                    Ok(SsdGradients::<bf16> {
                        x: nans(cx, x.shape())?,
                        dt: nans(cx, dt.shape())?,
                        a: nans(cx, [4])?,
                        b: nans(cx, b.shape())?,
                        c: nans(cx, c.shape())?,
                        skip: skip.map(|skip| nans(cx, skip.shape())).transpose()?,
                        initial: nans(cx, [batch, 4, 5, 8])?,
                    })
                };
                let mut out = nothing()?;
                sequence::ssd_backward_into(cx, x, dt, a, b, c, skip, initial, dy, initial, out.view_mut())?;
                assert_eq!(read_ssd(&out)?, read_ssd(&want)?, "{batch} sequences of {len}");
                let room = sequence::ssd_backward_workspace(x.shape(), 5);
                assert_eq!(room > 0, batch * len > 0);
                let what = ("workspace", room, f32::NAN);
                check_workspace(cx, what, (want, read_ssd), nothing, |cx, room, out| {
                    let gradients = out.view_mut();
                    sequence::ssd_backward_into_with(cx, x, dt, a, b, c, skip, initial, dy, initial, gradients, room)
                })?;
            }
        }
        Ok(())
    });
}

fn read_scan(x: &SelectiveScanGradients<bf16>) -> Result<String, Error> {
    let steps = [read(&x.u)?, read(&x.delta)?, read(&x.a)?, read(&x.b)?, read(&x.c)?];
    Ok(format!("{steps:?} {} {}", read_some(&x.skip)?, read_some(&x.bias)?))
}

/// As above: two blocks of two channels, of two sequences.
#[test]
fn gradients_of_selective_scans_within_a_workspace() {
    assert_eq!(sequence::selective_scan_backward_workspace([1 << 62, 3, 3], 5), usize::MAX);
    on_every_device(|cx| {
        let mut random = Random::new(78);
        for (batch, len, room) in [(2, 70, 2 * 4 * 8 * 3), (2, 0, 2 * 4 * 8), (0, 70, 0)] {
            let [u, delta, dy] = &[(); 3].map(|()| random.tensor::<bf16, 3>(cx, [batch, 4, len]).0);
            let [b, c] = &[(); 2].map(|()| random.tensor::<bf16, 3>(cx, [batch, 8, len]).0);
            let (a, vector) = (&negative(cx, [4, 8])?, &negative(cx, [4])?);
            let plain = SelectiveScan::default();
            for options in [plain, plain.skip(vector).bias(vector).softplus()] {
                let want = sequence::selective_scan_backward(cx, u, delta, a, b, c, options, dy)?;
                let vectors = want.skip.is_some();
                assert_eq!(vectors, want.bias.is_some());
                let nothing = || {
                    Ok(SelectiveScanGradients::<bf16> {
                        u: nans(cx, u.shape())?,
                        delta: nans(cx, u.shape())?,
                        a: nans(cx, [4, 8])?,
                        b: nans(cx, b.shape())?,
                        c: nans(cx, c.shape())?,
                        skip: vectors.then(|| nans(cx, [4])).transpose()?,
                        bias: vectors.then(|| nans(cx, [4])).transpose()?,
                    })
                };
                let mut out = nothing()?;
                sequence::selective_scan_backward_into(cx, u, delta, a, b, c, options, dy, out.view_mut())?;
                assert_eq!(read_scan(&out)?, read_scan(&want)?, "{batch} sequences of {len}");
                assert_eq!(sequence::selective_scan_backward_workspace(u.shape(), 8), room);
                let what = ("workspace", room, f32::NAN);
                check_workspace(cx, what, (want, read_scan), nothing, |cx, room, out| {
                    let gradients = out.view_mut();
                    sequence::selective_scan_backward_into_with(cx, u, delta, a, b, c, options, dy, gradients, room)
                })?;
            }
        }
        Ok(())
    });
}

fn read_attention(x: &GatedLinearAttentionGradients<bf16>) -> Result<String, Error> {
    Ok([read(&x.q)?, read(&x.k)?, read(&x.v)?, read(&x.gate)?, read(&x.initial)?].concat())
}

/// As above: two blocks of values.
#[test]
fn gradients_of_gated_linear_attention_within_a_workspace() {
    let room = sequence::gated_linear_attention_backward_workspace;
    assert_eq!(room([1 << 62, 3, 3, 5]), usize::MAX);
    on_every_device(|cx| {
        let mut random = Random::new(79);
        for (batch, len) in [(2, 37), (2, 0), (0, 37)] {
            let [q, k, v, dy] = &[16, 16, 40, 40].map(|size| random.tensor::<bf16, 4>(cx, [batch, len, 3, size]).0);
            let gate = &negative(cx, q.shape())?;
            let (state, _) = &random.tensor::<f32, 4>(cx, [batch, 3, 16, 40]);
            for state in [None, Some(state.view())] {
                let want = sequence::gated_linear_attention_backward(cx, q, k, v, gate, 0.25, state, dy, state)?;
                let nothing = || {
                    Ok(GatedLinearAttentionGradients::<bf16> {
                        q: nans(cx, q.shape())?,
                        k: nans(cx, q.shape())?,
                        v: nans(cx, v.shape())?,
                        gate: nans(cx, q.shape())?,
                        initial: nans(cx, [batch, 3, 16, 40])?,
                    })
                };
                let mut out = nothing()?;
                let gradients = out.view_mut();
                sequence::gated_linear_attention_backward_into(cx, q, k, v, gate, 0.25, state, dy, state, gradients)?;
                assert_eq!(read_attention(&out)?, read_attention(&want)?, "{batch} sequences of {len}");
                assert_eq!(room(q.shape()), batch * 48);
                let what = ("workspace", room(q.shape()), f32::NAN);
                check_workspace(cx, what, (want, read_attention), nothing, |cx, room, out| {
                    let to = out.view_mut();
                    sequence::gated_linear_attention_backward_into_with(
                        cx, q, k, v, gate, 0.25, state, dy, state, to, room,
                    )
                })?;
            }
        }
        Ok(())
    });
}

#[test]
fn gradients_of_another_shape_are_named() {
    on_every_device(|cx| {
        let zeros = |shape| Tensor::<f32, 4>::zeros(cx.device(), shape);
        let (q, v) = (&zeros([1, 3, 2, 4])?, &zeros([1, 3, 2, 5])?);
        let mut out = GatedLinearAttentionGradients::<f32> {
            q: zeros(q.shape())?,
            k: zeros([1, 3, 2, 5])?,
            v: zeros(v.shape())?,
            gate: zeros(q.shape())?,
            initial: zeros([1, 2, 4, 5])?,
        };
        let to = out.view_mut();
        let refused = sequence::gated_linear_attention_backward_into(cx, q, q, v, q, 1.0, None, v, None, to);
        let wanted = "`gradients.k` has the shape [1, 3, 2, 5]; the other arguments ask for [1, 3, 2, 4]";
        assert_eq!(message(refused), wanted);
        Ok(())
    });
}
