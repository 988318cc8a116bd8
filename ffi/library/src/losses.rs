//! Cross entropy of rows of logits.

use crate::views::context;
use tilewright::prelude::*;
use tilewright_ffi::prelude::*;
use tilewright_kernels::rows::{
    self as library, CrossEntropy, CrossEntropyFactors, CrossEntropyWorkspace, LinearCrossEntropyMut,
    LinearCrossEntropyWorkspace,
};
use tilewright_kernels::{TensorView, TensorViewMut};

fn options(ignore_index: i64, label_smoothing: f64, z_loss: f64) -> CrossEntropy {
    let options = CrossEntropy::default().ignore_index(ignore_index);
    options.label_smoothing(label_smoothing as f32).z_loss(z_loss as f32)
}

/// A tensor of one number, whatever its dimensions.
fn number<'a>(x: &TensorRef<'a>) -> Result<TensorView<'a, f32, 1>> {
    Ok(TensorView::new(x.flat::<f32>()?, [1])?)
}

fn number_mut(x: TensorMut<'_>) -> Result<TensorViewMut<'_, f32, 1>> {
    Ok(TensorViewMut::new(x.flat_mut::<f32>()?, [1])?)
}

/// The mean over rows of the cross entropy of `logits`, `[rows, classes]`, and `targets`, `[rows]`, in f32. Rows with the target
/// `ignore_index` do not count. `z_loss` times the square of the logarithm of the sum of exponentials is added to each.
#[op(out(loss: f32[]), backward = cross_entropy_backward)]
#[allow(clippy::too_many_arguments)]
pub fn cross_entropy(
    logits: TensorRef<'_>,
    targets: TensorRef<'_>,
    loss: TensorMut<'_>,
    #[default(-100)] ignore_index: i64,
    #[default(0.0)] label_smoothing: f64,
    #[default(0.0)] z_loss: f64,
    scratch: &Scratch<'_>,
) -> Result<()> {
    let options = options(ignore_index, label_smoothing, z_loss);
    let (cx, rows, loss) = (context(&logits), targets.len(), number_mut(loss)?);
    let workspace = CrossEntropyWorkspace {
        losses: TensorViewMut::new(scratch.take::<f32>(rows)?, [rows])?,
        scale: TensorViewMut::new(scratch.take::<f32>(1)?, [1])?,
    };
    dispatch!(targets.dtype() => I in [i64, i32] {
        let targets = targets.view::<I, 1>()?;
        dispatch!(logits.dtype() => T in [f32, f16, bf16, f64] {
            Ok(library::cross_entropy_into(&cx, logits.view::<T, 2>()?, targets, options, workspace, loss)?)
        })
    })
}

/// The gradient of [`cross_entropy`].
#[op(out(d_logits: like(logits)))]
#[allow(clippy::too_many_arguments)]
pub fn cross_entropy_backward(
    d_loss: TensorRef<'_>,
    logits: TensorRef<'_>,
    targets: TensorRef<'_>,
    d_logits: TensorMut<'_>,
    ignore_index: i64,
    label_smoothing: f64,
    z_loss: f64,
    scratch: &Scratch<'_>,
) -> Result<()> {
    let options = options(ignore_index, label_smoothing, z_loss);
    let (cx, d_loss) = (context(&logits), number(&d_loss)?);
    let mut scale = TensorViewMut::new(scratch.take::<f32>(1)?, [1])?;
    dispatch!(targets.dtype() => I in [i64, i32] {
        let targets = targets.view::<I, 1>()?;
        library::cross_entropy_scale_into(&cx, targets, options, scale.reborrow())?;
        let factors = CrossEntropyFactors { scale: Some(scale.as_view()), dloss: Some(d_loss) };
        dispatch!(logits.dtype() => T in [f32, f16, bf16, f64] {
            let (logits, d_logits) = (logits.view::<T, 2>()?, d_logits.view_mut::<T, 2>()?);
            Ok(library::cross_entropy_gradient_into(&cx, logits, targets, options, factors, d_logits)?)
        })
    })
}

/// [`cross_entropy`] of each row.
#[op(out(losses: f32[logits.shape[0]]), backward = cross_entropy_rows_backward)]
pub fn cross_entropy_rows(
    logits: TensorRef<'_>,
    targets: TensorRef<'_>,
    losses: TensorMut<'_>,
    #[default(-100)] ignore_index: i64,
    #[default(0.0)] label_smoothing: f64,
    #[default(0.0)] z_loss: f64,
) -> Result<()> {
    let options = options(ignore_index, label_smoothing, z_loss);
    let (cx, losses) = (context(&logits), losses.view_mut::<f32, 1>()?);
    dispatch!(targets.dtype() => I in [i64, i32] {
        let targets = targets.view::<I, 1>()?;
        dispatch!(logits.dtype() => T in [f32, f16, bf16, f64] {
            Ok(library::cross_entropy_rows_into(&cx, logits.view::<T, 2>()?, targets, options, losses)?)
        })
    })
}

/// The gradient of [`cross_entropy_rows`].
#[op(out(d_logits: like(logits)))]
pub fn cross_entropy_rows_backward(
    d_losses: TensorRef<'_>,
    logits: TensorRef<'_>,
    targets: TensorRef<'_>,
    d_logits: TensorMut<'_>,
    ignore_index: i64,
    label_smoothing: f64,
    z_loss: f64,
) -> Result<()> {
    let options = options(ignore_index, label_smoothing, z_loss);
    let factors = CrossEntropyFactors { scale: None, dloss: Some(d_losses.view::<f32, 1>()?) };
    let cx = context(&logits);
    dispatch!(targets.dtype() => I in [i64, i32] {
        let targets = targets.view::<I, 1>()?;
        dispatch!(logits.dtype() => T in [f32, f16, bf16, f64] {
            let (logits, d_logits) = (logits.view::<T, 2>()?, d_logits.view_mut::<T, 2>()?);
            Ok(library::cross_entropy_gradient_into(&cx, logits, targets, options, factors, d_logits)?)
        })
    })
}

/// One over the number of targets that are not ignored, `[1]`: what a mean of losses multiplies their sum by.
#[op(out(scale: f32[1]))]
pub fn cross_entropy_scale(
    targets: TensorRef<'_>,
    scale: TensorMut<'_>,
    #[default(-100)] ignore_index: i64,
) -> Result<()> {
    let options = CrossEntropy::default().ignore_index(ignore_index);
    dispatch!(targets.dtype() => I in [i64, i32] {
        let cx = context(&targets);
        Ok(library::cross_entropy_scale_into(&cx, targets.view::<I, 1>()?, options, number_mut(scale)?)?)
    })
}

/// [`cross_entropy_rows`] and its gradient at once: `logits` become the gradient of the sum of all losses, times `scale` if that is
/// given. It needs no memory beside them.
#[op(out(losses: f32[logits.shape[0]]))]
#[allow(clippy::too_many_arguments)]
pub fn cross_entropy_in_place(
    logits: TensorMut<'_>,
    targets: TensorRef<'_>,
    scale: Option<TensorRef<'_>>,
    losses: TensorMut<'_>,
    #[default(-100)] ignore_index: i64,
    #[default(0.0)] label_smoothing: f64,
    #[default(0.0)] z_loss: f64,
) -> Result<()> {
    let options = options(ignore_index, label_smoothing, z_loss);
    let scale = scale.as_ref().map(number).transpose()?;
    let factors = CrossEntropyFactors { scale, dloss: None };
    let (cx, losses) = (context(&targets), losses.view_mut::<f32, 1>()?);
    dispatch!(targets.dtype() => I in [i64, i32] {
        let targets = targets.view::<I, 1>()?;
        dispatch!(logits.dtype() => T in [f32, f16, bf16, f64] {
            let logits = logits.view_mut::<T, 2>()?;
            Ok(library::cross_entropy_in_place_into(&cx, logits, targets, options, factors, losses)?)
        })
    })
}

/// [`cross_entropy`] of the logits `x @ weight^T` of `x`, `[rows, inputs]`, and `weight`, `[classes, inputs]`, and the gradients of
/// `x` and `weight` for a gradient of the loss of one. In bf16 without `label_smoothing` and `z_loss`, what is written is no logits
/// but exponentials of them, which are not rounded before.
#[op(out(loss: f32[], d_x: like(x), d_weight: like(weight)))]
#[allow(clippy::too_many_arguments)]
pub fn linear_cross_entropy_with_gradients(
    x: TensorRef<'_>,
    weight: TensorRef<'_>,
    targets: TensorRef<'_>,
    loss: TensorMut<'_>,
    d_x: TensorMut<'_>,
    d_weight: TensorMut<'_>,
    #[default(-100)] ignore_index: i64,
    #[default(0.0)] label_smoothing: f64,
    #[default(0.0)] z_loss: f64,
    scratch: &Scratch<'_>,
) -> Result<()> {
    let options = options(ignore_index, label_smoothing, z_loss);
    let (cx, rows, [classes, _]) = (context(&x), targets.len(), weight.dims()?);
    // All rows at once, and room for one where there is none.
    let chunk = rows.max(1);
    let loss = number_mut(loss)?;
    dispatch!(targets.dtype() => I in [i64, i32] {
        let targets = targets.view::<I, 1>()?;
        dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
            let sums = library::linear_cross_entropy_sums::<T>(&cx, chunk, classes);
            let workspace = LinearCrossEntropyWorkspace {
                losses: TensorViewMut::new(scratch.take::<f32>(rows)?, [rows])?,
                scale: TensorViewMut::new(scratch.take::<f32>(1)?, [1])?,
                sums: TensorViewMut::new(scratch.take::<f32>(sums)?, [sums])?,
            };
            let out = LinearCrossEntropyMut {
                loss,
                gradients: Some((d_x.view_mut::<T, 2>()?, d_weight.view_mut::<T, 2>()?)),
                logits: TensorViewMut::new(scratch.take::<T>(chunk * classes)?, [chunk, classes])?,
            };
            let (x, weight) = (x.view::<T, 2>()?, weight.view::<T, 2>()?);
            Ok(library::linear_cross_entropy_into_with(&cx, x, weight, targets, options, out, workspace)?)
        })
    })
}
