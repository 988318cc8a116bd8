//! Functions in workspaces that are given; those of `general` are tested beside it.

mod experts;
mod results;
mod sequences;

use crate::common::{Mark, Random, Real, check_workspace, message, on_every_device, read};
use tilewright::prelude::*;
use tilewright_kernels::attention::{self, Attention, Fp8Scales};
use tilewright_kernels::products::fp8;
use tilewright_kernels::rows::{
    self, CrossEntropy, GroupNormConfig, GroupNormGradientsMut, LinearCrossEntropyMut, LinearCrossEntropyWorkspace,
    Norm, NormGradients, NormGradientsMut, Reduction,
};
use tilewright_kernels::{Context, Tensor, TensorView};

/// A tensor of NaN: what is written into it shows that all of it is.
fn nans<T: Real, const R: usize>(cx: &Context, shape: [usize; R]) -> Result<Tensor<T, R>, Error> {
    Tensor::upload(cx.device(), &vec![T::of(f64::NAN); shape.iter().product()], shape)
}

fn read_gradients<T: Real>(x: &NormGradients<T, 3>) -> Result<String, Error> {
    let of = |x: &Option<Tensor<T, 1>>| x.as_ref().map(|x| x.to_vec()).transpose();
    Ok(format!("{:?} {:?} {:?}", x.dx.to_vec()?, of(&x.dweight)?, of(&x.dbias)?))
}

/// Group norm and its gradients, with sums in `P`.
fn check_groups<T: Real, P: Float + Mark>(cx: &Context, shape: [usize; 3], groups: usize, nan: P) -> Result<(), Error> {
    let mut random = Random::new(70);
    let ((x, _), (dy, _)) = (&random.tensor::<T, 3>(cx, shape), &random.tensor::<T, 3>(cx, shape));
    let (weight, _) = &random.tensor::<T, 1>(cx, [shape[1]]);
    let (room, norm) = (rows::group_norm_workspace(cx, x, groups)?, Norm::default().weight(weight));
    let want = (rows::group_norm(cx, x, groups, &norm)?, read);
    let nothing = || Tensor::zeros(cx.device(), shape);
    check_workspace(cx, ("workspace", room, nan), want, nothing, |cx, workspace, out| {
        rows::group_norm_into_with(cx, x, groups, &norm, out, workspace)
    })?;
    let room = rows::group_norm_backward_workspace(cx, x, groups)?;
    for norm in [Norm::default(), norm, norm.bias(weight), Norm::default().bias(weight)] {
        let want = rows::group_norm_backward(cx, x, dy, groups, &norm)?;
        let vector = |has: bool| has.then(|| Tensor::zeros(cx.device(), [shape[1]])).transpose();
        let given = (want.dweight.is_some(), want.dbias.is_some());
        let nothing = || {
            let dx = Tensor::zeros(cx.device(), shape)?;
            Ok(NormGradients { dx, dweight: vector(given.0)?, dbias: vector(given.1)? })
        };
        let mut out = nothing()?;
        let NormGradients { dx, dweight, dbias } = &mut out;
        let [dweight, dbias] = [dweight, dbias].map(|out| out.as_mut().map(|out| out.view_mut()));
        rows::group_norm_backward_into(cx, x, dy, groups, &norm, dx, dweight, dbias)?;
        assert_eq!(read_gradients(&out)?, read_gradients(&want)?);
        let want = (want, read_gradients::<T>);
        check_workspace(cx, ("workspace", room, nan), want, nothing, |cx, workspace, out| {
            let gradients = GroupNormGradientsMut {
                dx: out.dx.view_mut(),
                dweight: out.dweight.as_mut().map(|out| out.view_mut()),
                dbias: out.dbias.as_mut().map(|out| out.view_mut()),
                workspace,
            };
            rows::group_norm_backward_into_with(cx, x, dy, groups, &norm, gradients)
        })?;
    }
    Ok(())
}

#[test]
fn group_norms_within_a_workspace() {
    on_every_device(|cx| {
        check_groups::<f32, _>(cx, [2, 6, 35], 3, f32::NAN)?;
        let cx = &cx.clone().with_config(GroupNormConfig { channels: 2, block: 16, num_warps: 1 });
        assert_eq!(rows::group_norm_workspace(cx, &Tensor::<f32, 3>::zeros(cx.device(), [2, 6, 35])?, 2)?, 8);
        check_groups::<bf16, _>(cx, [3, 6, 35], 2, f32::NAN)?;
        check_groups::<f64, _>(cx, [2, 5, 33], 1, f64::NAN)?;
        // Gradients of weights are sums over nothing.
        check_groups::<f32, _>(cx, [0, 6, 35], 2, f32::NAN)?;
        check_groups::<f32, _>(cx, [2, 6, 0], 2, f32::NAN)
    });
}

/// What norms say about sums of `x` of `T` in `P`.
fn check_refused_dtype<T: Real, P: Real>(cx: &Context, [of, is, wanted]: [&str; 3]) -> Result<(), Error> {
    let (x, norm) = (&Tensor::<T, 3>::zeros(cx.device(), [2, 4, 3])?, Norm::default());
    let mut out = Tensor::<T, 3>::zeros(cx.device(), [2, 4, 3])?;
    let mut room = Tensor::<P, 1>::zeros(cx.device(), [512])?;
    let refused = |argument: &str, got: Result<(), Error>| {
        let problem = format!("`{argument}` has the dtype {is}");
        let hint = format!("sums of {of} are kept in {wanted}: give a tensor of {wanted}");
        assert_eq!(message(got), format!("{problem}; {hint}"));
    };
    refused("workspace", rows::group_norm_into_with(cx, x, 2, &norm, &mut out, &mut room));
    let (dx, workspace) = (out.view_mut(), room.view_mut());
    let gradients = GroupNormGradientsMut { dx, dweight: None, dbias: None, workspace };
    refused("workspace", rows::group_norm_backward_into_with(cx, x, x, 2, &norm, gradients));
    let (dx, sums) = (out.view_mut(), room.view_mut().reshape([1, 512])?);
    let gradients = NormGradientsMut { dx, dweight: None, dbias: None, sums };
    refused("sums", rows::layer_norm_backward_into(cx, x, x, &norm, gradients));
    Ok(())
}

#[test]
fn norms_refuse_workspaces_of_another_dtype() {
    on_every_device(|cx| {
        check_refused_dtype::<f64, f32>(cx, ["f64", "f32", "f64"])?;
        check_refused_dtype::<f32, bf16>(cx, ["f32", "bf16", "f32"])?;
        check_refused_dtype::<bf16, f64>(cx, ["bf16", "f64", "f32"])
    });
}

/// The loss, the gradients of `x` and of the weight, and the room for logits.
struct Linear<T: Real> {
    loss: Tensor<f32, 1>,
    dx: Tensor<T, 2>,
    dweight: Tensor<f32, 2>,
    logits: Tensor<T, 2>,
}

impl<T: Real> Linear<T> {
    fn new(cx: &Context, [count, hidden, classes]: [usize; 3], losses: usize) -> Result<Self, Error> {
        Ok(Linear {
            loss: Tensor::zeros(cx.device(), [losses])?,
            dx: Tensor::zeros(cx.device(), [count, hidden])?,
            dweight: Tensor::zeros(cx.device(), [classes, hidden])?,
            logits: Tensor::zeros(cx.device(), [4, classes])?,
        })
    }

    fn views(&mut self) -> LinearCrossEntropyMut<'_, T, f32> {
        LinearCrossEntropyMut {
            loss: self.loss.view_mut(),
            gradients: Some((self.dx.view_mut(), self.dweight.view_mut())),
            logits: self.logits.view_mut(),
        }
    }

    fn read(&self) -> Result<[String; 3], Error> {
        Ok([read(&self.loss)?, read(&self.dx)?, read(&self.dweight)?])
    }
}

fn check_linear_workspace<T: Real>(sizes @ [count, hidden, classes]: [usize; 3]) {
    on_every_device(|cx| {
        let mut random = Random::new(71);
        let (x, _) = &random.tensor::<T, 2>(cx, [count, hidden]);
        let (weight, _) = &random.tensor::<T, 2>(cx, [classes, hidden]);
        let targets = &Tensor::upload(cx.device(), &[3, 1, -100, 36, 0, 9, -100, 2, 2, 8, 7], [count])?;
        for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
            let options = CrossEntropy::default().reduction(reduction);
            let mut want = Linear::<T>::new(cx, sizes, reduction.len(count))?;
            rows::linear_cross_entropy_into(cx, x, weight, targets, options, want.views())?;
            let mut losses = Tensor::upload(cx.device(), &[f32::NAN; 11], [count])?;
            let mut scale = Tensor::upload(cx.device(), &[f32::NAN], [1])?;
            let mut sums = Tensor::empty(cx.device(), [rows::linear_cross_entropy_sums::<T>(cx, 4, classes)])?;
            let mut out = Linear::<T>::new(cx, sizes, reduction.len(count))?;

            let short = losses.view_mut().narrow(0, 0..10)?;
            let workspace =
                LinearCrossEntropyWorkspace { losses: short, scale: scale.view_mut(), sums: sums.view_mut() };
            let refused = rows::linear_cross_entropy_into_with(cx, x, weight, targets, options, out.views(), workspace);
            assert_eq!(message(refused), "`losses` has the shape [10]; the other arguments ask for [11]");

            let stream = cx.device().new_stream()?;
            let graph = stream.capture(|stream| {
                let cx = cx.clone().with_stream(stream);
                let workspace = LinearCrossEntropyWorkspace {
                    losses: losses.view_mut(),
                    scale: scale.view_mut(),
                    sums: sums.view_mut(),
                };
                rows::linear_cross_entropy_into_with(&cx, x, weight, targets, options, out.views(), workspace)
            })?;
            graph.replay()?;
            assert_eq!(out.read()?, want.read()?, "{reduction:?}");
            assert_eq!(scale.to_vec()?[0].is_nan(), reduction != Reduction::Mean);
        }
        Ok(())
    });
}

/// Those of logits, and in bf16 of exponentials.
#[test]
fn linear_cross_entropy_within_a_workspace() {
    check_linear_workspace::<f16>([11, 20, 37]);
    check_linear_workspace::<bf16>([11, 24, 40]);
}

/// Losses are written where there are no classes, too: all are of rows that do not count.
#[test]
fn linear_cross_entropy_without_classes() {
    on_every_device(|cx| {
        let x = Tensor::<f32, 2>::zeros(cx.device(), [2, 3])?;
        let weight = Tensor::<f32, 2>::zeros(cx.device(), [0, 3])?;
        let targets = Tensor::upload(cx.device(), &[-100, -100], [2])?;
        let options = CrossEntropy::default().reduction(Reduction::Sum);
        let got = rows::linear_cross_entropy(cx, &x, &weight, &targets, options)?;
        assert_eq!((got.loss.to_vec()?, got.dx.to_vec()?), (vec![0.0], vec![0.0; 6]));
        Ok(())
    });
}

/// The weight's gradient is a sum over rows: of none it is zero, whatever was there.
#[test]
fn linear_cross_entropy_without_rows() {
    on_every_device(|cx| {
        let (device, [hidden, classes]) = (cx.device(), [5, 7]);
        let x = &Tensor::<f16, 2>::zeros(device, [0, hidden])?;
        let weight = &Random::new(76).tensor::<f16, 2>(cx, [classes, hidden]).0;
        let targets = &Tensor::<i32, 1>::zeros(device, [0])?;
        for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
            let options = CrossEntropy::default().reduction(reduction);
            let want = rows::linear_cross_entropy(cx, x, weight, targets, options)?;
            assert_eq!(want.dweight.to_vec()?, [0.0; 35]);
            let new = || {
                let mut out = Linear::<f16>::new(cx, [0, hidden, classes], reduction.len(0))?;
                out.dweight = Tensor::upload(device, &[f32::NAN; 35], [classes, hidden])?;
                out.loss = Tensor::upload(device, &vec![7.0; out.loss.len()], [out.loss.len()])?;
                Ok::<_, Error>(out)
            };
            let check = |out: Linear<f16>| {
                assert_eq!(out.read()?, [read(&want.loss)?, read(&want.dx)?, read(&want.dweight)?], "{reduction:?}");
                Ok::<_, Error>(())
            };
            let mut out = new()?;
            rows::linear_cross_entropy_into(cx, x, weight, targets, options, out.views())?;
            check(out)?;
            let (mut losses, mut scale) = (Tensor::zeros(device, [0])?, Tensor::zeros(device, [1])?);
            let mut sums = Tensor::zeros(device, [0])?;
            let (mut out, stream) = (new()?, device.new_stream()?);
            let graph = stream.capture(|stream| {
                let cx = cx.clone().with_stream(stream);
                let workspace = LinearCrossEntropyWorkspace {
                    losses: losses.view_mut(),
                    scale: scale.view_mut(),
                    sums: sums.view_mut(),
                };
                rows::linear_cross_entropy_into_with(&cx, x, weight, targets, options, out.views(), workspace)
            })?;
            graph.replay()?;
            check(out)?;
        }
        Ok(())
    });
}

#[test]
fn attention_of_bytes_within_a_workspace() {
    on_every_device(|cx| {
        let mut random = Random::new(72);
        let [q, k, v] =
            &[[1, 4, 20, 32], [1, 2, 45, 32], [1, 2, 45, 16]].map(|shape| random.tensor::<F8E4M3, 4>(cx, shape).0);
        let (scales, options) = (Fp8Scales::default(), &Attention::default().causal());
        let room = attention::forward_fp8_workspace(v);
        assert_eq!(room, 2 * 16 * 48);
        let many = TensorView::with_strides(v.buffer(), [1, 2, usize::MAX / 2, 1], [0; 4])?;
        assert_eq!(attention::forward_fp8_workspace(many), usize::MAX);
        let want = attention::forward_fp8::<f16>(cx, q, k, v, scales, options)?;
        let nothing = || Ok((Tensor::zeros(cx.device(), [1, 4, 20, 16])?, Tensor::zeros(cx.device(), [1, 4, 20])?));
        let both = |x: &(Tensor<f16, 4>, Tensor<f32, 3>)| Ok(read(&x.0)? + &read(&x.1)?);
        let nan = F8E4M3::from_f32(f32::NAN);
        check_workspace(cx, ("workspace", room, nan), (want, both), nothing, |cx, workspace, (out, lse)| {
            attention::forward_fp8_into_with(cx, q, k, v, scales, options, out, Some(lse.view_mut()), workspace)
        })
    });
}

#[test]
fn one_scale_of_bytes_within_a_workspace() {
    on_every_device(|cx| {
        let both = |x: &(Tensor<F8E4M3, 2>, Tensor<f32, 1>)| Ok(read(&x.0)? + &read(&x.1)?);
        for (shape, garbage) in
            [([50, 140], f32::NAN), ([50, 140], f32::INFINITY), ([0, 140], f32::NAN), ([3, 0], f32::NAN)]
        {
            let (x, _) = &Random::new(73).tensor::<bf16, 2>(cx, shape);
            let nothing = || Ok((Tensor::zeros(cx.device(), shape)?, Tensor::zeros(cx.device(), [1])?));
            let want = fp8::quantise_tensor(cx, x)?;
            assert_eq!(want.1.to_vec()?[0] == f32::MIN_POSITIVE, want.0.is_empty());
            let want = (want, both);
            check_workspace(cx, ("workspace", 1, garbage), want, nothing, |cx, workspace, (out, scale)| {
                fp8::quantise_tensor_into_with(cx, x, out, scale, workspace)
            })?;
        }
        let (x, mut out) = (Tensor::<f32, 2>::zeros(cx.device(), [3, 0])?, Tensor::zeros(cx.device(), [3, 0])?);
        let mut scales = Tensor::upload(cx.device(), &[f32::NAN; 3], [3])?;
        fp8::quantise_rows_into(cx, &x, &mut out, &mut scales)?;
        assert_eq!(scales.to_vec()?, [f32::MIN_POSITIVE; 3]);
        Ok(())
    });
}
