use crate::common::{Random, Real, additions, assert_close, message, on_every_device, reals};
use tilewright::prelude::*;
use tilewright_kernels::training::{self, AdamW, AdamWState, Pack, Sgd, Step};
use tilewright_kernels::{Context, Tensor};

/// One element's step in f64: the parameter, the mean, the mean square.
fn adamw(options: &AdamW, step: i32, g: f64, (x, mean, square): (f64, f64, f64)) -> (f64, f64, f64) {
    let [rate, beta1, beta2, eps, decay] =
        [options.rate, options.beta1, options.beta2, options.eps, options.decay].map(f64::from);
    let mean = beta1 * mean + (1.0 - beta1) * g;
    let square = beta2 * square + (1.0 - beta2) * g * g;
    let root = (square / (1.0 - beta2.powi(step))).sqrt() + eps;
    (x - rate * (decay * x + mean / (1.0 - beta1.powi(step)) / root), mean, square)
}

/// A state of 16 bits is that of f32, rounded after each step: what a step does is not.
fn check_rounded_state<T: Real, S: Real>(cx: &Context, len: usize) -> Result<(), Error> {
    let options = AdamW { rate: 0.01, decay: 0.1, ..AdamW::default() };
    let mut random = Random::new(len as u64);
    let (mut x, _) = random.tensor::<T, 1>(cx, [len]);
    let [(mut mean, _), (square, _)] = [(); 2].map(|()| random.tensor::<S, 1>(cx, [len]));
    let positive: Vec<S> = square.to_vec()?.iter().map(|x| S::of(x.real().abs())).collect();
    let mut square = Tensor::upload(cx.device(), &positive, [len])?;
    for step in 1..=3 {
        let (g, _) = random.tensor::<T, 1>(cx, [len]);
        let widened = |x: &Tensor<S, 1>| {
            let wide: Vec<f32> = x.to_vec()?.iter().map(|x| x.real() as f32).collect();
            Tensor::upload(cx.device(), &wide, [len])
        };
        let (mut wide_mean, mut wide_square) = (widened(&mean)?, widened(&square)?);
        let mut wide_x = Tensor::upload(cx.device(), &x.to_vec()?, [len])?;
        let state = AdamWState { mean: wide_mean.view_mut(), square: wide_square.view_mut(), master: None };
        training::adamw(cx, &mut wide_x, &g, state, &options, Step::new(step))?;
        let state = AdamWState { mean: mean.view_mut(), square: square.view_mut(), master: None };
        training::adamw(cx, &mut x, &g, state, &options, Step::new(step))?;
        assert_eq!(reals(&x.to_vec()?), reals(&wide_x.to_vec()?), "step {step}");
        assert_close("mean", &mean.to_vec()?, &reals(&wide_mean.to_vec()?), |_, _| 0.0);
        assert_close("square", &square.to_vec()?, &reals(&wide_square.to_vec()?), |_, _| 0.0);
    }
    Ok(())
}

#[test]
fn adamw_with_a_state_of_16_bits() {
    on_every_device(|cx| {
        for len in [1, 1500, 2048] {
            check_rounded_state::<bf16, bf16>(cx, len)?;
            check_rounded_state::<f16, f16>(cx, len)?;
            check_rounded_state::<f32, bf16>(cx, len)?;
        }
        Ok(())
    });
}

/// Three steps, with and without a master copy.
#[test]
fn adamw_steps() {
    on_every_device(|cx| {
        let options = AdamW { rate: 0.01, ..AdamW::default() };
        for (len, has_master) in [(1, false), (2500, false), (2500, true), (0, true)] {
            let mut random = Random::new(len as u64);
            let (mut x, x_reals) = random.tensor::<bf16, 1>(cx, [len]);
            let zeros = || Tensor::<f32, 1>::zeros(cx.device(), [len]);
            let (mut mean, mut square) = (zeros()?, zeros()?);
            let start: Vec<f32> = x_reals.iter().map(|x| *x as f32).collect();
            let mut master = Tensor::upload(cx.device(), &start, [len])?;
            for step in 1..=3 {
                let before = if has_master { reals(&master.to_vec()?) } else { reals(&x.to_vec()?) };
                let state = reals(&mean.to_vec()?).into_iter().zip(reals(&square.to_vec()?));
                let (g, g_reals) = random.tensor::<f16, 1>(cx, [len]);
                let want: Vec<_> = before
                    .into_iter()
                    .zip(state)
                    .zip(&g_reals)
                    .map(|((x, (mean, square)), g)| adamw(&options, step, *g, (x, mean, square)))
                    .collect();
                let state = AdamWState {
                    mean: mean.view_mut(),
                    square: square.view_mut(),
                    master: has_master.then(|| master.view_mut()),
                };
                training::adamw(cx, &mut x, &g, state, &options, Step::new(step as u64))?;
                // A dozen roundings; of the mean, relative to its terms, which are below 6.
                let off = 16.0 * f32::ROUNDING;
                let (wants, means, squares): (Vec<f64>, Vec<f64>, Vec<f64>) =
                    want.iter().copied().fold(Default::default(), |(mut a, mut b, mut c), (x, mean, square)| {
                        a.push(x);
                        b.push(mean);
                        c.push(square);
                        (a, b, c)
                    });
                assert_close("mean", &mean.to_vec()?, &means, |_, _| off * 6.0);
                assert_close("square", &square.to_vec()?, &squares, |_, want| off * want);
                // A step is the mean, with a correction of 10 at most, times the rate of 0.01, over the root.
                let step_bound = |at: usize| {
                    let root = (squares[at] / (1.0 - 0.999f64.powi(step))).sqrt() + 1e-8;
                    off * (wants[at].abs() + 0.01 * 6.0 / 0.1 / root)
                };
                if has_master {
                    assert_close("master", &master.to_vec()?, &wants, |at, _| step_bound(at));
                    let rounded: Vec<f64> = master.to_vec()?.iter().map(|x| bf16::from_f32(*x).to_f64()).collect();
                    assert_eq!(reals(&x.to_vec()?), rounded);
                } else {
                    assert_close("x", &x.to_vec()?, &wants, |at, _| step_bound(at));
                }
            }
        }
        Ok(())
    });
}

/// Tensors of a pack in one launch are what they are by themselves.
#[test]
fn adamw_of_a_pack() {
    on_every_device(|cx| {
        let lens = [7, 1500, 1024, 1];
        let decays = [0.0, 0.1, 0.0, 0.5];
        let pack = Pack::new(&lens);
        assert_eq!((pack.len(), pack.tensors()), (1024 + 2048 + 1024 + 1024, 4));
        let (mut parameters, mut gradients) = (pack.zeros::<f32>(cx)?, pack.zeros::<f32>(cx)?);
        let (mut mean, mut square) = (pack.zeros::<f32>(cx)?, pack.zeros::<f32>(cx)?);
        let mut random = Random::new(1);
        let mut alone = Vec::new();
        for (index, &len) in lens.iter().enumerate() {
            let (x, g) = (random.tensor::<f32, 1>(cx, [len]).0, random.tensor::<f32, 1>(cx, [len]).0);
            tilewright_kernels::general::copy_into(cx, &x, parameters.tensor_mut(index, [len])?)?;
            tilewright_kernels::general::copy_into(cx, &g, gradients.tensor_mut(index, [len])?)?;
            alone.push((x, g));
        }
        let factor = Tensor::upload(cx.device(), &[0.5f32], [1])?;
        let options = AdamW::default();
        let state = AdamWState { mean: mean.all_mut()?, square: square.all_mut()?, master: None };
        let table = pack.per_tensor(cx, &decays)?;
        let step = Step::new(1).scale(&factor);
        training::adamw(cx, parameters.all_mut()?, gradients.all()?, state, &options, step.decays(&table))?;
        for (index, (mut x, g)) in alone.into_iter().enumerate() {
            let len = lens[index];
            let zeros = || Tensor::<f32, 1>::zeros(cx.device(), [len]);
            let (mut mean, mut square) = (zeros()?, zeros()?);
            let state = AdamWState { mean: mean.view_mut(), square: square.view_mut(), master: None };
            training::adamw(cx, &mut x, &g, state, &AdamW { decay: decays[index], ..options }, step)?;
            assert_eq!(parameters.tensor(index, [len])?.to_vec()?, x.to_vec()?, "tensor {index}");
        }
        // What lies between tensors stays zero.
        assert_eq!(parameters.all()?.to_vec()?[7..1024], [0.0; 1017]);
        assert_eq!(message(pack.per_tensor(cx, &[0.0])), "`values` has 1 numbers; give one for each of the 4 tensors");
        let state = AdamWState { mean: mean.all_mut()?, square: square.all_mut()?, master: None };
        assert_eq!(
            message(training::adamw(cx, parameters.all_mut()?, gradients.all()?, state, &options, Step::new(0))),
            "the step of adamw is set to `0`; expected 1 for the first step"
        );
        assert!(message(parameters.tensor(4, [1]).map(|_| ())).contains("the pack has 4"));
        Ok(())
    });
}

#[test]
fn sgd_steps() {
    on_every_device(|cx| {
        let options = Sgd { rate: 0.1, momentum: 0.9, decay: 0.01 };
        let mut random = Random::new(2);
        let (mut x, x_reals) = random.tensor::<f32, 1>(cx, [1030]);
        let (g, g_reals) = random.tensor::<f32, 1>(cx, [1030]);
        let mut velocity = Tensor::<f32, 1>::zeros(cx.device(), [1030])?;
        let (mut want, mut moving) = (x_reals, vec![0.0; 1030]);
        for _ in 0..2 {
            training::sgd(cx, &mut x, &g, Some(velocity.view_mut()), &options, None)?;
            for ((x, v), g) in want.iter_mut().zip(&mut moving).zip(&g_reals) {
                *v = f64::from(0.9f32) * *v + g + f64::from(0.01f32) * *x;
                *x -= f64::from(0.1f32) * *v;
            }
        }
        // Two steps of six operations on numbers below 12.
        assert_close("x", &x.to_vec()?, &want, |_, _| 12.0 * 12.0 * f32::ROUNDING);
        assert_close("velocity", &velocity.to_vec()?, &moving, |_, _| 12.0 * 12.0 * f32::ROUNDING);
        training::sgd(cx, &mut x, &g, None, &Sgd { rate: 0.5, ..Sgd::default() }, None)?;
        let want: Vec<f64> = want.iter().zip(&g_reals).map(|(x, g)| x - 0.5 * g).collect();
        assert_close("plain", &x.to_vec()?, &want, |_, _| 13.0 * 12.0 * f32::ROUNDING);
        Ok(())
    });
}

#[test]
fn norms_of_all_gradients_and_clipping() {
    on_every_device(|cx| {
        let mut random = Random::new(3);
        let (a, a_reals) = random.tensor::<bf16, 1>(cx, [9000]);
        let (mut b, b_reals) = random.tensor::<bf16, 1>(cx, [1]);
        let empty = Tensor::<bf16, 1>::zeros(cx.device(), [0])?;
        let norm = training::global_norm(cx, &[a.view(), b.view(), empty.view()])?;
        let want = a_reals.iter().chain(&b_reals).map(|x| x * x).sum::<f64>().sqrt();
        let relative = f32::ROUNDING * (additions(9000) + 8.0);
        assert_close("norm", &norm.to_vec()?, &[want], |_, want| relative * want);
        let factor = training::clip_factor(cx, &norm, 1.0)?;
        assert_close("factor", &factor.to_vec()?, &[1.0 / want], |_, want| 2.0 * relative * want);
        training::scale_in_place(cx, &mut b, &factor)?;
        assert_close("scaled", &b.to_vec()?, &[b_reals[0] / want], |_, want| 4.0 * relative * want.abs());
        assert_eq!(training::clip_factor(cx, &norm, 1e6)?.to_vec()?, [1.0]);
        let nan = Tensor::upload(cx.device(), &[f32::NAN], [1])?;
        assert!(training::clip_factor(cx, &nan, 1.0)?.to_vec()?[0].is_nan());
        assert_eq!(
            message(training::global_norm_into(
                cx,
                &[a.view()],
                &mut Tensor::zeros(cx.device(), [2])?,
                &mut Tensor::zeros(cx.device(), [1])?
            )),
            "`sums` has the shape [2]; the other arguments ask for [3]"
        );
        Ok(())
    });
}
