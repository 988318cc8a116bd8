//! Cross entropy into memory that is given, all of it: nothing is allocated.

use super::cross_entropy::{CrossEntropy, Gradient, check, count, gradient, losses as launch_losses};
use super::reduction::{Reduction, reduce};
use crate::arguments::packed;
use crate::{Context, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// What [`cross_entropy_into`] needs beside its result.
#[derive(Debug)]
pub struct CrossEntropyWorkspace<'a> {
    /// Room for the loss of each row, `[rows]`.
    pub losses: TensorViewMut<'a, f32, 1>,
    /// Room for one over the number of rows that count, `[1]`.
    pub scale: TensorViewMut<'a, f32, 1>,
}

/// [`cross_entropy`](super::cross_entropy()), into a tensor of the shape of its result: `[1]`, or `[rows]` for
/// [`Reduction::None`], which leaves the workspace as it is.
///
/// # Errors
///
/// As [`cross_entropy`](super::cross_entropy()).
pub fn cross_entropy_into<'a, 'b, 'c, T: Float, I: Int>(
    cx: &Context,
    logits: impl Into<TensorView<'a, T, 2>>,
    targets: impl Into<TensorView<'b, I, 1>>,
    options: CrossEntropy,
    workspace: CrossEntropyWorkspace<'_>,
    loss: impl Into<TensorViewMut<'c, f32, 1>>,
) -> Result<()> {
    let (logits, targets, loss) = (logits.into(), targets.into(), loss.into());
    check(&logits, &targets)?;
    check::shape("loss", loss.shape(), [options.reduction.len(targets.len())])?;
    packed("loss", loss.is_contiguous())?;
    if options.reduction == Reduction::None {
        return cross_entropy_rows_into(cx, logits, targets, options, loss);
    }
    let CrossEntropyWorkspace { losses: mut rows, mut scale } = workspace;
    cross_entropy_rows_into(cx, logits, targets, options, rows.reborrow())?;
    let mut divisor = None;
    if options.reduction == Reduction::Mean {
        cross_entropy_scale_into(cx, targets, options, scale.reborrow())?;
        divisor = Some(scale.as_view().elements());
    }
    reduce(cx, rows.as_view(), divisor, 1.0, loss)
}

/// The loss of each row, into a tensor `[rows]`, whatever the reduction among the options. It needs nothing beside it.
///
/// # Errors
///
/// As [`cross_entropy`](super::cross_entropy()).
pub fn cross_entropy_rows_into<'a, 'b, 'c, T: Float, I: Int>(
    cx: &Context,
    logits: impl Into<TensorView<'a, T, 2>>,
    targets: impl Into<TensorView<'b, I, 1>>,
    options: CrossEntropy,
    losses: impl Into<TensorViewMut<'c, f32, 1>>,
) -> Result<()> {
    let (logits, targets, losses) = (logits.into(), targets.into(), losses.into());
    check(&logits, &targets)?;
    check::shape("losses", losses.shape(), targets.shape())?;
    packed("losses", losses.is_contiguous())?;
    launch_losses(cx, logits, targets.elements(), losses.elements(), &options)
}

/// One over the number of targets that are not ignored, into `scale`, `[1]`: what a mean of losses multiplies their sum by.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit; those of a launch.
pub fn cross_entropy_scale_into<'a, 'b, I: Int>(
    cx: &Context,
    targets: impl Into<TensorView<'a, I, 1>>,
    options: CrossEntropy,
    scale: impl Into<TensorViewMut<'b, f32, 1>>,
) -> Result<()> {
    let (targets, scale) = (targets.into(), scale.into());
    packed("targets", targets.is_contiguous())?;
    check::shape("scale", scale.shape(), [1])?;
    count(cx, targets.elements(), &options, scale.elements())
}

/// What [`cross_entropy_gradient_into`] multiplies gradients of rows by, where it is given.
#[derive(Debug, Clone, Copy, Default)]
pub struct CrossEntropyFactors<'a> {
    /// One number, `[1]`, such as that of [`cross_entropy_scale_into`].
    pub scale: Option<TensorView<'a, f32, 1>>,
    /// The gradient of the loss: `[1]`, or `[rows]` of that of each row.
    pub dloss: Option<TensorView<'a, f32, 1>>,
}

impl CrossEntropyFactors<'_> {
    fn check(&self, rows: usize) -> Result<()> {
        if let Some(scale) = &self.scale {
            check::shape("scale", scale.shape(), [1])?;
        }
        let Some(dloss) = &self.dloss else { return Ok(()) };
        if dloss.len() != 1 {
            check::shape("dloss", dloss.shape(), [rows])?;
        }
        packed("dloss", dloss.is_contiguous())
    }
}

/// The gradient of each row's loss times the factors, into `dlogits`, which has the shape of `logits`. The reduction among the
/// options does not matter.
///
/// # Errors
///
/// As [`cross_entropy`](super::cross_entropy()).
pub fn cross_entropy_gradient_into<'a, 'b, 'c, T: Float, I: Int>(
    cx: &Context,
    logits: impl Into<TensorView<'a, T, 2>>,
    targets: impl Into<TensorView<'b, I, 1>>,
    options: CrossEntropy,
    factors: CrossEntropyFactors<'_>,
    dlogits: impl Into<TensorViewMut<'c, T, 2>>,
) -> Result<()> {
    let (logits, targets, dlogits) = (logits.into(), targets.into(), dlogits.into());
    check(&logits, &targets)?;
    check::shape("dlogits", dlogits.shape(), logits.shape())?;
    factors.check(targets.len())?;
    let work = Gradient {
        logits: Some(logits),
        targets: targets.elements(),
        scale: factors.scale.map(|scale| scale.elements()),
        dloss: factors.dloss.map(|dloss| dloss.elements()),
        losses: None,
        dlogits,
    };
    gradient(cx, work, &options)
}

/// [`cross_entropy_gradient_into`] and the loss of each row at once: `logits` become their gradient, `losses`, `[rows]`, the
/// losses, without the factors.
///
/// # Errors
///
/// As [`cross_entropy`](super::cross_entropy()).
pub fn cross_entropy_in_place_into<'a, 'b, 'c, T: Float, I: Int>(
    cx: &Context,
    logits: impl Into<TensorViewMut<'a, T, 2>>,
    targets: impl Into<TensorView<'b, I, 1>>,
    options: CrossEntropy,
    factors: CrossEntropyFactors<'_>,
    losses: impl Into<TensorViewMut<'c, f32, 1>>,
) -> Result<()> {
    let (logits, targets, losses) = (logits.into(), targets.into(), losses.into());
    check(&logits.as_view(), &targets)?;
    check::shape("losses", losses.shape(), targets.shape())?;
    packed("losses", losses.is_contiguous())?;
    factors.check(targets.len())?;
    let work = Gradient {
        logits: None,
        targets: targets.elements(),
        scale: factors.scale.map(|scale| scale.elements()),
        dloss: factors.dloss.map(|dloss| dloss.elements()),
        losses: Some(losses.elements()),
        dlogits: logits,
    };
    gradient(cx, work, &options)
}
