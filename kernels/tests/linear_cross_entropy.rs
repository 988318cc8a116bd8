//! Cross entropy of the logits of a linear layer, with its gradients.

use crate::common::{Random, Real, additions, assert_close, message, on_every_device, reals};
use crate::losses::{IGNORED, Options, bound, targets};
use tilewright::prelude::*;
use tilewright_kernels::rows::{self, CrossEntropy, LinearCrossEntropyMut, Reduction};
use tilewright_kernels::{Context, Tensor};

/// Products of rows of `a` and rows of `b`.
fn product(
    a: &[f64],
    b: &[f64],
    [m, n, k]: [usize; 3],
    at: impl Fn(usize, usize, usize) -> (usize, usize),
) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        out[i * n + j] = (0..k).map(|l| at(i, j, l)).map(|(x, y)| a[x] * b[y]).sum();
    }
    out
}

/// The loss and the gradients of `x` and of the weight.
type Results<T> = (Vec<f32>, Vec<T>, Vec<f32>);

/// The function with a workspace for so many rows of logits.
fn in_chunks<T: Real>(
    cx: &Context,
    [x, weight]: [&Tensor<T, 2>; 2],
    targets: &Tensor<i64, 1>,
    options: CrossEntropy,
    [losses, chunk]: [usize; 2],
) -> Result<Results<T>, Error> {
    let mut loss = Tensor::zeros(cx.device(), [losses])?;
    let mut dx = Tensor::zeros(cx.device(), x.shape())?;
    let mut dweight = Tensor::<f32, 2>::zeros(cx.device(), weight.shape())?;
    let mut logits = Tensor::zeros(cx.device(), [chunk, weight.shape()[0]])?;
    let out = LinearCrossEntropyMut {
        loss: loss.view_mut(),
        gradients: Some((dx.view_mut(), dweight.view_mut())),
        logits: logits.view_mut(),
    };
    rows::linear_cross_entropy_into(cx, x, weight, targets, options, out)?;
    Ok((loss.to_vec()?, dx.to_vec()?, dweight.to_vec()?))
}

fn check_linear<T: Real>(
    cx: &Context,
    [hidden, classes]: [usize; 2],
    chunk: usize,
    reduction: Reduction,
) -> Result<(), Error> {
    let rows = 11;
    let mut random = Random::new(chunk as u64);
    let (x, x_reals) = random.tensor::<T, 2>(cx, [rows, hidden]);
    let (weight, weights) = random.tensor::<T, 2>(cx, [classes, hidden]);
    let targets = targets(&mut random, rows, classes);
    let given = Tensor::upload(cx.device(), &targets, [rows])?;
    let options = Options { reduction, smoothing: 0.1, z: 0.0 };
    let logits = product(&x_reals, &weights, [rows, classes, hidden], |i, j, l| (i * hidden + l, j * hidden + l));
    let (losses, mut gradients) = options.rows(&logits, classes, &targets);
    let count = targets.iter().filter(|target| **target != IGNORED).count() as f64;
    let scale = if reduction == Reduction::Mean { 1.0 / count } else { 1.0 };
    gradients.iter_mut().for_each(|gradient| *gradient *= scale);
    let want = if reduction == Reduction::None { losses } else { vec![losses.iter().sum::<f64>() * scale] };
    let dx_want = product(&gradients, &weights, [rows, hidden, classes], |i, j, l| (i * classes + l, l * hidden + j));
    let dw_want = product(&gradients, &x_reals, [classes, hidden, rows], |i, j, l| (l * classes + i, l * hidden + j));

    // Logits are below 32 and are rounded to their dtype; an error of each moves the loss by no more, and a gradient by twice
    // that, which then is rounded itself. f32 products by three tf32 ones err by 2^-20 each.
    let product_step = if T::ELEMENT == f32::ELEMENT { 2f64.powi(-20) } else { T::STEP };
    let rounding = |terms: usize| T::ROUNDING + product_step * (terms as f64 + 2.0);
    let logit = 32.0 * rounding(hidden) + bound::<T>(classes);
    let loss_bound = (logit + 256.0 * f32::STEP) * if want.len() == 1 { rows as f64 * scale } else { 1.0 };
    let gradient = scale * (2.0 * logit + rounding(classes) + 16.0 * f32::STEP);
    let sizes = |values: &[f64]| values.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    // Sums of a row's gradients are below 2, their errors add up over classes or rows.
    let dx_bound = sizes(&weights) * (gradient * classes as f64 + 2.0 * scale * rounding(classes));
    let dw_bound = sizes(&x_reals) * (gradient * rows as f64 + 2.0 * scale * rows as f64 * rounding(rows));

    let (loss, dx, dweight) = in_chunks(cx, [&x, &weight], &given, options.options(), [want.len(), chunk])?;
    assert_close("loss", &loss, &want, |_, _| loss_bound);
    assert_close("dx", &dx, &dx_want, |_, _| dx_bound);
    assert_close("dweight", &dweight, &dw_want, |_, _| dw_bound);

    let got = rows::linear_cross_entropy(cx, &x, &weight, &given, options.options())?;
    assert_close("loss", &got.loss.to_vec()?, &want, |_, _| loss_bound);
    assert_close("dx", &got.dx.to_vec()?, &dx_want, |_, _| dx_bound);
    let mut loss = Tensor::zeros(cx.device(), [want.len()])?;
    let mut logits = Tensor::zeros(cx.device(), [chunk, classes])?;
    let out = LinearCrossEntropyMut::<T, f32> { loss: loss.view_mut(), gradients: None, logits: logits.view_mut() };
    rows::linear_cross_entropy_into(cx, &x, &weight, &given, options.options(), out)?;
    assert_close("loss alone", &loss.to_vec()?, &want, |_, _| loss_bound);
    Ok(())
}

#[test]
fn linear_cross_entropy_in_chunks() {
    on_every_device(|cx| {
        check_linear::<f32>(cx, [20, 37], 4, Reduction::Mean)?;
        check_linear::<f32>(cx, [20, 37], 16, Reduction::None)?;
        check_linear::<bf16>(cx, [20, 37], 3, Reduction::Mean)?;
        check_linear::<f16>(cx, [20, 37], 11, Reduction::Sum)?;
        // Rows of whole units of 16 bytes, which the hardware copies.
        check_linear::<bf16>(cx, [24, 40], 4, Reduction::Mean)?;
        check_linear::<f16>(cx, [40, 48], 11, Reduction::Sum)?;
        let x = Tensor::<f32, 2>::zeros(cx.device(), [4, 5])?;
        let weight = Tensor::<f32, 2>::zeros(cx.device(), [3, 6])?;
        let targets = Tensor::<i32, 1>::zeros(cx.device(), [4])?;
        assert_eq!(
            message(rows::linear_cross_entropy(cx, &x, &weight, &targets, CrossEntropy::default())),
            "`weight` has the shape [3, 6]; the other arguments ask for [3, 5]"
        );
        Ok(())
    });
}

/// In bf16, exponentials are written in place of logits, which are not rounded then. `times` makes logits so large that they are
/// too far from zero for that, and all is done again.
fn check_exponentials(
    cx: &Context,
    [rows, hidden, classes]: [usize; 3],
    chunk: usize,
    times: f64,
    shift: f64,
) -> Result<(), Error> {
    let mut random = Random::new((rows + classes) as u64);
    let x_reals: Vec<f64> = random
        .normals::<bf16>(rows * hidden)
        .iter()
        .enumerate()
        .map(|(at, x)| if at % hidden == 0 { 1.0 } else { x.real() })
        .collect();
    let weights: Vec<f64> = random
        .normals::<bf16>(classes * hidden)
        .iter()
        .enumerate()
        .map(|(at, w)| if at % hidden == 0 { shift } else { bf16::of(w.real() * times).real() })
        .collect();
    let upload = |reals: &[f64], shape| {
        let elements: Vec<bf16> = reals.iter().map(|x| bf16::of(*x)).collect();
        Tensor::upload(cx.device(), &elements, shape)
    };
    let (x, weight) = (&upload(&x_reals, [rows, hidden])?, &upload(&weights, [classes, hidden])?);
    let targets = targets(&mut random, rows, classes);
    let given = &Tensor::upload(cx.device(), &targets, [rows])?;
    let options = Options { reduction: Reduction::Mean, smoothing: 0.0, z: 0.0 };
    let logits = product(&x_reals, &weights, [rows, classes, hidden], |i, j, l| (i * hidden + l, j * hidden + l));
    let (losses, mut gradients) = options.rows(&logits, classes, &targets);
    let scale = 1.0 / targets.iter().filter(|target| **target != IGNORED).count() as f64;
    gradients.iter_mut().for_each(|gradient| *gradient *= scale);
    let want = [losses.iter().sum::<f64>() * scale];
    let of_x = |i: usize, j: usize, l: usize| (i * classes + l, l * hidden + j);
    let of_weight = |i: usize, j: usize, l: usize| (l * classes + i, l * hidden + j);
    let dx_want = product(&gradients, &weights, [rows, hidden, classes], of_x);
    let dw_want = product(&gradients, &x_reals, [classes, hidden, rows], of_weight);

    // Logits are sums in f32 of exact products, and exponentials err by as much as they do, and by 4 roundings of f32.
    let sizes = |values: &[f64]| values.iter().map(|x| x.abs()).collect::<Vec<_>>();
    let (x_sizes, w_sizes) = (sizes(&x_reals), sizes(&weights));
    let all = product(&x_sizes, &w_sizes, [rows, classes, hidden], |i, j, l| (i * hidden + l, j * hidden + l));
    let most = all.iter().fold(0.0f64, |most, x| most.max(*x));
    let logit = f32::STEP * (most * (hidden as f64 + 4.0) + 8.0);
    // Of a share: those of its exponential, of the sum, and one rounding of bf16; of factors of `x` another one.
    let share = bf16::ROUNDING + 2.0 * logit + f32::STEP * (additions(classes) + 8.0);
    // Shares that are smaller than f32 may be beside the sum's reference. And one more for what is nearly one at the target: the
    // error of its share, not of what is left.
    let mut of_target = vec![scale * 1e-16; gradients.len()];
    for (row, target) in targets.iter().enumerate().filter(|(_, target)| **target != IGNORED) {
        of_target[row * classes + *target as usize] = scale * (2.0 * logit + f32::STEP * (additions(classes) + 8.0));
    }
    let errors = |share: f64| -> Vec<f64> {
        gradients.iter().zip(&of_target).map(|(gradient, more)| gradient.abs() * share + more).collect()
    };
    let dx_bound = product(&errors(share + f32::STEP * classes as f64), &w_sizes, [rows, hidden, classes], of_x);
    let dw_errors = errors(share + bf16::ROUNDING + f32::STEP * rows as f64);
    let dw_bound = product(&dw_errors, &x_sizes, [classes, hidden, rows], of_weight);
    let loss_bound = 2.0 * logit + f32::STEP * (additions(classes) + 8.0) * (1.0 + want[0]);

    let options = options.options();
    let (got, asked) = cx.asked(|cx| in_chunks(cx, [x, weight], given, options, [1, chunk]));
    let (loss, dx, dweight) = got?;
    assert!(asked.iter().all(|asked| asked.kernel != "cross_entropy"), "logits were written: {asked:?}");
    assert_close("loss", &loss, &want, |_, _| loss_bound);
    assert_close("dx", &dx, &dx_want, |at, _| dx_bound[at]);
    assert_close("dweight", &dweight, &dw_want, |at, _| dw_bound[at]);
    Ok(())
}

#[test]
fn linear_cross_entropy_without_logits() {
    on_every_device(|cx| {
        // One tile and less, whole tiles and parts of them on each device, chunks that are whole and not.
        check_exponentials(cx, [11, 24, 40], 11, 1.0, 0.0)?;
        check_exponentials(cx, [130, 72, 264], 64, 0.5, 0.0)?;
        check_exponentials(cx, [9, 32, 256], 4, 0.5, 0.0)?;
        if cx.device().is_cuda() {
            // Many tiles for each program, an odd number.
            check_exponentials(cx, [1030, 16, 4096], 1030, 0.5, 0.0)?;
        }
        // Sums that are too large for f32, and too small: of all rows, and of some.
        check_exponentials(cx, [11, 24, 40], 11, 30.0, 0.0)?;
        check_exponentials(cx, [130, 72, 264], 64, 4.0, 0.0)?;
        check_exponentials(cx, [11, 24, 40], 4, 1.0, -120.0)?;
        check_exponentials(cx, [11, 24, 40], 4, 1.0, 300.0)
    });
}

/// Rows that do not count have no gradient whatever they hold, and a target that is sure has none either.
#[test]
fn linear_cross_entropy_of_rows_without_a_gradient() {
    on_every_device(|cx| {
        let (hidden, classes) = (64, 40);
        let mut x = vec![bf16::of(0.5); 3 * hidden];
        x[hidden..2 * hidden].fill(bf16::of(f64::NAN));
        let mut weights = Random::new(91).normals::<bf16>(classes * hidden);
        // The logit of the target is 80.
        weights[7 * hidden..8 * hidden].fill(bf16::of(2.5));
        let (x, weight) =
            (Tensor::upload(cx.device(), &x, [3, hidden])?, Tensor::upload(cx.device(), &weights, [classes, hidden])?);
        let targets = Tensor::upload(cx.device(), &[7, -100, 7], [3])?;
        let got = rows::linear_cross_entropy(cx, &x, &weight, &targets, CrossEntropy::default())?;
        let (loss, dx) = (got.loss.to_vec()?[0], reals(&got.dx.to_vec()?));
        assert!((0.0..1e-4).contains(&loss), "{loss}");
        assert_eq!(dx[hidden..2 * hidden], [0.0; 64]);
        assert!(dx.iter().all(|dx| dx.abs() < 1e-3), "{dx:?}");
        Ok(())
    });
}
