//! Functions of rows, attention and products in workspaces that are given; those of `general` are tested beside it.

use crate::common::{Random, Real, check_workspace, message, on_every_device};
use std::fmt::Debug;
use tilewright::prelude::*;
use tilewright_kernels::attention::{self, Attention, Fp8Scales};
use tilewright_kernels::products::fp8;
use tilewright_kernels::rows::{
    self, CrossEntropy, CrossEntropyWorkspace, GroupNormConfig, GroupNormGradientsMut, LinearCrossEntropyMut, Norm,
    NormGradients, Reduction,
};
use tilewright_kernels::{Context, Tensor};

/// All elements, with every digit that tells them apart.
fn read<T: DType + Debug, const R: usize>(x: &Tensor<T, R>) -> Result<String, Error> {
    Ok(format!("{:?}", x.to_vec()?))
}

fn read_gradients<T: Real>(x: &NormGradients<T, 3>) -> Result<String, Error> {
    let of = |x: &Option<Tensor<T, 1>>| x.as_ref().map(|x| x.to_vec()).transpose();
    Ok(format!("{:?} {:?} {:?}", x.dx.to_vec()?, of(&x.dweight)?, of(&x.dbias)?))
}

/// Group norm and its gradients, with sums in `P`.
fn check_groups<T: Real, P: Float>(cx: &Context, shape: [usize; 3], groups: usize, nan: P) -> Result<(), Error> {
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
        let want = (want, read_gradients::<T>);
        check_workspace(cx, ("workspace", room, nan), want, nothing, |cx, workspace, out| {
            let gradients = GroupNormGradientsMut {
                dx: out.dx.view_mut(),
                dweight: out.dweight.as_mut().map(|out| out.view_mut()),
                dbias: out.dbias.as_mut().map(|out| out.view_mut()),
                workspace,
            };
            rows::group_norm_backward_into(cx, x, dy, groups, &norm, gradients)
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

/// The loss, the gradients of `x` and of the weight, and the room for logits.
struct Linear {
    loss: Tensor<f32, 1>,
    dx: Tensor<f16, 2>,
    dweight: Tensor<f32, 2>,
    logits: Tensor<f16, 2>,
}

impl Linear {
    fn new(cx: &Context, [count, hidden, classes]: [usize; 3], losses: usize) -> Result<Linear, Error> {
        Ok(Linear {
            loss: Tensor::zeros(cx.device(), [losses])?,
            dx: Tensor::zeros(cx.device(), [count, hidden])?,
            dweight: Tensor::zeros(cx.device(), [classes, hidden])?,
            logits: Tensor::zeros(cx.device(), [4, classes])?,
        })
    }

    fn views(&mut self) -> LinearCrossEntropyMut<'_, f16, f32> {
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

#[test]
fn linear_cross_entropy_within_a_workspace() {
    on_every_device(|cx| {
        let (sizes @ [count, hidden, classes], mut random) = ([11, 20, 37], Random::new(71));
        let (x, _) = &random.tensor::<f16, 2>(cx, [count, hidden]);
        let (weight, _) = &random.tensor::<f16, 2>(cx, [classes, hidden]);
        let targets = &Tensor::upload(cx.device(), &[3, 1, -100, 36, 0, 9, -100, 2, 2, 8, 7], [count])?;
        for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
            let options = CrossEntropy::default().reduction(reduction);
            let mut want = Linear::new(cx, sizes, reduction.len(count))?;
            rows::linear_cross_entropy_into(cx, x, weight, targets, options, want.views())?;
            let mut losses = Tensor::upload(cx.device(), &[f32::NAN; 11], [count])?;
            let mut scale = Tensor::upload(cx.device(), &[f32::NAN], [1])?;
            let mut out = Linear::new(cx, sizes, reduction.len(count))?;

            let short = losses.view_mut().narrow(0, 0..10)?;
            let workspace = CrossEntropyWorkspace { losses: short, scale: scale.view_mut() };
            let refused = rows::linear_cross_entropy_into_with(cx, x, weight, targets, options, out.views(), workspace);
            assert_eq!(message(refused), "`losses` has the shape [10]; the other arguments ask for [11]");

            let stream = cx.device().new_stream()?;
            let graph = stream.capture(|stream| {
                let cx = cx.clone().with_stream(stream);
                let workspace = CrossEntropyWorkspace { losses: losses.view_mut(), scale: scale.view_mut() };
                rows::linear_cross_entropy_into_with(&cx, x, weight, targets, options, out.views(), workspace)
            })?;
            graph.replay()?;
            assert_eq!(out.read()?, want.read()?, "{reduction:?}");
            assert_eq!(scale.to_vec()?[0].is_nan(), reduction != Reduction::Mean);
        }
        Ok(())
    });
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

#[test]
fn attention_of_bytes_within_a_workspace() {
    on_every_device(|cx| {
        let mut random = Random::new(72);
        let [q, k, v] =
            &[[1, 4, 20, 32], [1, 2, 45, 32], [1, 2, 45, 16]].map(|shape| random.tensor::<F8E4M3, 4>(cx, shape).0);
        let (scales, options) = (Fp8Scales::default(), &Attention::default().causal());
        let room = attention::forward_fp8_workspace(v);
        assert_eq!(room, 2 * 16 * 48);
        let want = attention::forward_fp8::<f16>(cx, q, k, v, scales, options)?;
        let nothing = || Ok((Tensor::zeros(cx.device(), [1, 4, 20, 16])?, Tensor::zeros(cx.device(), [1, 4, 20])?));
        let both = |x: &(Tensor<f16, 4>, Tensor<f32, 3>)| Ok(read(&x.0)? + &read(&x.1)?);
        let nan = F8E4M3::from_f32(f32::NAN);
        check_workspace(cx, ("workspace", room, nan), (want, both), nothing, |cx, workspace, (out, lse)| {
            attention::forward_fp8_into_with(cx, q, k, v, scales, options, out, lse, workspace)
        })
    });
}

#[test]
fn one_scale_of_bytes_within_a_workspace() {
    on_every_device(|cx| {
        let (x, _) = &Random::new(73).tensor::<bf16, 2>(cx, [50, 140]);
        let nothing = || Ok((Tensor::zeros(cx.device(), x.shape())?, Tensor::zeros(cx.device(), [1])?));
        let both = |x: &(Tensor<F8E4M3, 2>, Tensor<f32, 1>)| Ok(read(&x.0)? + &read(&x.1)?);
        for garbage in [f32::NAN, f32::INFINITY] {
            let want = (fp8::quantise_tensor(cx, x)?, both);
            check_workspace(cx, ("workspace", 1, garbage), want, nothing, |cx, workspace, (out, scale)| {
                fp8::quantise_tensor_into_with(cx, x, out, scale, workspace)
            })?;
        }
        Ok(())
    });
}
