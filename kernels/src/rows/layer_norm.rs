//! Layer norm, RMS norm, and RMS norm of a sum, with their gradients.

use super::norm::{Added, Norm, forward};
use super::norm_backward::{Inputs, NormGradients, NormGradientsMut, allocate, backward};
use crate::{Context, Tensor, TensorView, TensorViewMut};
use tilewright::Result;
use tilewright::prelude::*;

/// Layer norm of rows (Ba, Kiros and Hinton, "Layer Normalization", 2016):
/// `y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias`, where `var` is the mean square of `x - mean(x)`.
///
/// # Shapes
///
/// `x` is `[.., columns]`, the result has its shape; weight and bias of `norm` are `[columns]`. Any float.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64) and rounded once. The mean is subtracted before squares are summed.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes differ, if rows have gaps or do not follow each other; [`Error::OutOfMemory`], those
/// of a launch.
pub fn layer_norm<'a, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    norm: &Norm<'_, T>,
) -> Result<Tensor<T, R>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    forward::<T, R, true>(cx, x, None, norm, out.view_mut())?;
    Ok(out)
}

/// [`layer_norm`], into a tensor of the same shape.
///
/// # Errors
///
/// As [`layer_norm`].
pub fn layer_norm_into<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    norm: &Norm<'_, T>,
    out: impl Into<TensorViewMut<'b, T, R>>,
) -> Result<()> {
    forward::<T, R, true>(cx, x.into(), None, norm, out.into())
}

/// The gradients of [`layer_norm`], of the same `x` and `norm`. With `h = (x - mean) * rstd` and `g = dy * weight`, each row's
/// `dx = rstd * (g - mean(g) - h * mean(g * h))`; summed over rows, `dweight = dy * h` and `dbias = dy`.
///
/// Mean and deviation are computed again, from the row that has to be read anyhow: nothing is kept from the forward pass.
/// Allocates the gradients, and a workspace for the sums of its programs.
///
/// # Shapes
///
/// `x` and `dy` have one shape, `[.., columns]`. Any float.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64). Sums over rows are in the same order at every launch on one device.
///
/// # Errors
///
/// As [`layer_norm`].
pub fn layer_norm_backward<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    dy: impl Into<TensorView<'b, T, R>>,
    norm: &Norm<'_, T>,
) -> Result<NormGradients<T, R>> {
    allocate::<T, R, true>(cx, Inputs { x: x.into(), dy: dy.into(), extra: None }, norm)
}

/// [`layer_norm_backward`], into tensors that are given: those of weight and bias if they are.
///
/// # Errors
///
/// As [`layer_norm`], and [`Error::InvalidTensor`] if the workspace has another shape or dtype than it should.
pub fn layer_norm_backward_into<'a, 'b, T: Float, P: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    dy: impl Into<TensorView<'b, T, R>>,
    norm: &Norm<'_, T>,
    gradients: NormGradientsMut<'_, T, P, R>,
) -> Result<()> {
    backward::<T, P, R, true>(cx, Inputs { x: x.into(), dy: dy.into(), extra: None }, norm, gradients)
}

/// RMS norm of rows (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019):
/// `y = x / sqrt(mean(x^2) + eps) * weight + bias`.
///
/// # Shapes
///
/// `x` is `[.., columns]`, the result has its shape; weight and bias of `norm` are `[columns]`. Any float.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64) and rounded once.
///
/// # Errors
///
/// As [`layer_norm`].
pub fn rms_norm<'a, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    norm: &Norm<'_, T>,
) -> Result<Tensor<T, R>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    forward::<T, R, false>(cx, x, None, norm, out.view_mut())?;
    Ok(out)
}

/// [`rms_norm`], into a tensor of the same shape.
///
/// # Errors
///
/// As [`layer_norm`].
pub fn rms_norm_into<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    norm: &Norm<'_, T>,
    out: impl Into<TensorViewMut<'b, T, R>>,
) -> Result<()> {
    forward::<T, R, false>(cx, x.into(), None, norm, out.into())
}

/// The gradients of [`rms_norm`], of the same `x` and `norm`. With `r = 1 / sqrt(mean(x^2) + eps)` and `g = dy * weight`, each
/// row's `dx = r * (g - x * r^2 * mean(g * x))`; summed over rows, `dweight = dy * x * r` and `dbias = dy`.
///
/// Allocates the gradients, and a workspace for the sums of its programs.
///
/// # Errors
///
/// As [`layer_norm`].
pub fn rms_norm_backward<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    dy: impl Into<TensorView<'b, T, R>>,
    norm: &Norm<'_, T>,
) -> Result<NormGradients<T, R>> {
    allocate::<T, R, false>(cx, Inputs { x: x.into(), dy: dy.into(), extra: None }, norm)
}

/// [`rms_norm_backward`], into tensors that are given: those of weight and bias if they are.
///
/// # Errors
///
/// As [`layer_norm_backward_into`].
pub fn rms_norm_backward_into<'a, 'b, T: Float, P: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    dy: impl Into<TensorView<'b, T, R>>,
    norm: &Norm<'_, T>,
    gradients: NormGradientsMut<'_, T, P, R>,
) -> Result<()> {
    backward::<T, P, R, false>(cx, Inputs { x: x.into(), dy: dy.into(), extra: None }, norm, gradients)
}

/// Adds `x` to `residual`, in place, and returns the [`rms_norm`] of the sum: what stands between the layers of a
/// transformer. The sum is rounded to its dtype before it is normalised.
///
/// # Shapes
///
/// `x` and `residual` have one shape, `[.., columns]`, and so has the result. Any float.
///
/// # Errors
///
/// As [`layer_norm`].
pub fn add_rms_norm<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    residual: impl Into<TensorViewMut<'b, T, R>>,
    norm: &Norm<'_, T>,
) -> Result<Tensor<T, R>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    add_rms_norm_into(cx, x, residual, norm, &mut out)?;
    Ok(out)
}

/// [`add_rms_norm`], into a tensor of the same shape.
///
/// # Errors
///
/// As [`layer_norm`].
pub fn add_rms_norm_into<'a, 'b, 'c, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    residual: impl Into<TensorViewMut<'b, T, R>>,
    norm: &Norm<'_, T>,
    out: impl Into<TensorViewMut<'c, T, R>>,
) -> Result<()> {
    // One lifetime for all that is written: the residual's, which a reborrow shortens.
    let mut residual = residual.into();
    let added = Added { before: None, sum: residual.reborrow() };
    forward::<T, R, false>(cx, x.into(), Some(added), norm, out.into().reborrow())
}

/// [`add_rms_norm_into`], with the sum of `x` and `residual` in a tensor of its own, `sum`.
///
/// # Errors
///
/// As [`layer_norm`].
pub fn rms_norm_of_sum_into<'a, 'b, 'c, 'd, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    residual: impl Into<TensorView<'b, T, R>>,
    norm: &Norm<'_, T>,
    sum: impl Into<TensorViewMut<'c, T, R>>,
    out: impl Into<TensorViewMut<'d, T, R>>,
) -> Result<()> {
    let added = Added { before: Some(residual.into()), sum: sum.into() };
    forward::<T, R, false>(cx, x.into(), Some(added), norm, out.into())
}

/// The gradients of [`add_rms_norm`]: `sum` is what it left in `residual`, `dy` the gradient of its result and `dsum` that of
/// the sum from elsewhere. `dx` is the gradient of `x` and of `residual` alike.
///
/// Allocates the gradients, and a workspace for the sums of its programs.
///
/// # Errors
///
/// As [`layer_norm`].
pub fn add_rms_norm_backward<'a, 'b, 'c, T: Float, const R: usize>(
    cx: &Context,
    sum: impl Into<TensorView<'a, T, R>>,
    dy: impl Into<TensorView<'b, T, R>>,
    dsum: impl Into<TensorView<'c, T, R>>,
    norm: &Norm<'_, T>,
) -> Result<NormGradients<T, R>> {
    allocate::<T, R, false>(cx, Inputs { x: sum.into(), dy: dy.into(), extra: Some(dsum.into()) }, norm)
}

/// [`add_rms_norm_backward`], into tensors that are given: those of weight and bias if they are.
///
/// # Errors
///
/// As [`layer_norm_backward_into`].
pub fn add_rms_norm_backward_into<'a, 'b, 'c, T: Float, P: Float, const R: usize>(
    cx: &Context,
    sum: impl Into<TensorView<'a, T, R>>,
    dy: impl Into<TensorView<'b, T, R>>,
    dsum: impl Into<TensorView<'c, T, R>>,
    norm: &Norm<'_, T>,
    gradients: NormGradientsMut<'_, T, P, R>,
) -> Result<()> {
    let inputs = Inputs { x: sum.into(), dy: dy.into(), extra: Some(dsum.into()) };
    backward::<T, P, R, false>(cx, inputs, norm, gradients)
}
