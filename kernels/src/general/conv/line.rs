//! Convolutions of one dimension: of images of one row.

use super::backward::{
    conv2d_backward_input_into, conv2d_backward_weight_into, conv2d_backward_weight_into_with,
    conv2d_backward_weight_workspace,
};
use super::forward::conv2d_into;
use super::{Convolution, check_sizes};
use crate::general::number::Real;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::{DType, Result};

/// The shape of an image of one row, or of filters of one.
fn one_row([outer, len, channels]: [usize; 3]) -> [usize; 4] {
    [outer, 1, len, channels]
}

/// What is read, as an image of one row, or as filters of one.
fn image<'a, T: DType>(argument: &str, x: TensorView<'a, T, 3>) -> Result<TensorView<'a, T, 4>> {
    check::packed(argument, &x)?;
    x.reshape(one_row(x.shape()))
}

/// The same of what is written.
fn image_mut<'a, T: DType>(argument: &str, x: TensorViewMut<'a, T, 3>) -> Result<TensorViewMut<'a, T, 4>> {
    check::packed(argument, &x.as_view())?;
    let shape = one_row(x.shape());
    x.reshape(shape)
}

/// The shape of the result.
fn result(convolution: Convolution, x: [usize; 3], filters: [usize; 3]) -> Result<[usize; 3]> {
    // With a padding there would be other rows, or another one than that of `x`.
    match convolution.result(one_row(x), one_row(filters))? {
        [n, 1, q, o] if convolution.padding[0] == 0 => Ok([n, q, o]),
        _ => Err(check::invalid("convolution", "has a padding of height", "leave it at 0")),
    }
}

/// [`conv2d`](super::conv2d) along one dimension: `x` is `[n, l, c]`, `filters` is `[o, k, c / groups]`, the result `[n, q, o]`. Of
/// the convolution's stride, padding and dilation the second counts; those of height stay as they are by default.
///
/// # Errors
///
/// Those of [`conv2d`](super::conv2d).
pub fn conv1d<'a, 'b, 'c, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    filters: impl Into<TensorView<'b, T, 3>>,
    bias: Option<TensorView<'c, T, 1>>,
    convolution: Convolution,
) -> Result<Tensor<T, 3>> {
    let (x, filters) = (x.into(), filters.into());
    let mut out = Tensor::empty(cx.device(), result(convolution, x.shape(), filters.shape())?)?;
    conv1d_into(cx, x, filters, bias, convolution, &mut out)?;
    Ok(out)
}

/// [`conv1d`], into a tensor of the result's shape, in row-major order without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`conv1d`], and if `out` has another shape or gaps.
pub fn conv1d_into<'a, 'b, 'c, 'd, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    filters: impl Into<TensorView<'b, T, 3>>,
    bias: Option<TensorView<'c, T, 1>>,
    convolution: Convolution,
    out: impl Into<TensorViewMut<'d, T, 3>>,
) -> Result<()> {
    let (x, filters, out) = (x.into(), filters.into(), out.into());
    check::shape("out", out.shape(), result(convolution, x.shape(), filters.shape())?)?;
    let (x, filters, out) = (image("x", x)?, image("filters", filters)?, image_mut("out", out)?);
    conv2d_into(cx, x, filters, bias, convolution, out)
}

/// The gradient of [`conv1d`] for `x`, of the shape `x_shape`: [`conv2d_backward_input`](super::conv2d_backward_input) along one
/// dimension.
///
/// # Errors
///
/// Those of [`conv1d`].
pub fn conv1d_backward_input<'a, 'b, T: Real>(
    cx: &Context,
    x_shape: [usize; 3],
    filters: impl Into<TensorView<'a, T, 3>>,
    dy: impl Into<TensorView<'b, T, 3>>,
    convolution: Convolution,
) -> Result<Tensor<T, 3>> {
    let filters = filters.into();
    result(convolution, x_shape, filters.shape())?;
    check_sizes("x_shape", one_row(x_shape))?;
    let mut dx = Tensor::empty(cx.device(), x_shape)?;
    conv1d_backward_input_into(cx, filters, dy, convolution, &mut dx)?;
    Ok(dx)
}

/// [`conv1d_backward_input`], into a tensor of the shape of `x`, in row-major order without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`conv1d_backward_input`], and if `dx` has gaps.
pub fn conv1d_backward_input_into<'a, 'b, 'c, T: Real>(
    cx: &Context,
    filters: impl Into<TensorView<'a, T, 3>>,
    dy: impl Into<TensorView<'b, T, 3>>,
    convolution: Convolution,
    dx: impl Into<TensorViewMut<'c, T, 3>>,
) -> Result<()> {
    let (filters, dy, dx) = (filters.into(), dy.into(), dx.into());
    check::shape("dy", dy.shape(), result(convolution, dx.shape(), filters.shape())?)?;
    let (filters, dy, dx) = (image("filters", filters)?, image("dy", dy)?, image_mut("dx", dx)?);
    conv2d_backward_input_into(cx, filters, dy, convolution, dx)
}

/// The gradient of [`conv1d`] for its filters, of the shape `filters_shape`:
/// [`conv2d_backward_weight`](super::conv2d_backward_weight) along one dimension.
///
/// # Errors
///
/// Those of [`conv1d`].
pub fn conv1d_backward_weight<'a, 'b, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    dy: impl Into<TensorView<'b, T, 3>>,
    filters_shape: [usize; 3],
    convolution: Convolution,
) -> Result<Tensor<T, 3>> {
    let x = x.into();
    result(convolution, x.shape(), filters_shape)?;
    let mut filters = Tensor::empty(cx.device(), filters_shape)?;
    conv1d_backward_weight_into(cx, x, dy, convolution, &mut filters)?;
    Ok(filters)
}

/// [`conv1d_backward_weight`], into a tensor of the shape of the filters, in row-major order without gaps. The sums of parts are
/// allocated for the call.
///
/// # Errors
///
/// As [`conv1d_backward_weight`], and if `dfilters` has gaps.
pub fn conv1d_backward_weight_into<'a, 'b, 'c, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    dy: impl Into<TensorView<'b, T, 3>>,
    convolution: Convolution,
    dfilters: impl Into<TensorViewMut<'c, T, 3>>,
) -> Result<()> {
    let (x, dy, dfilters) = weight_images(convolution, x.into(), dy.into(), dfilters.into())?;
    conv2d_backward_weight_into(cx, x, dy, convolution, dfilters)
}

/// [`conv1d_backward_weight_into`], with a workspace for the sums of parts: it has as many elements as
/// [`conv1d_backward_weight_workspace`] says, or more, of f32, or of f64 for `x` of f64; what it holds does not matter. Nothing is
/// allocated.
///
/// # Errors
///
/// As [`conv1d_backward_weight_into`], and if the workspace has gaps or is too small.
pub fn conv1d_backward_weight_into_with<'a, 'b, 'c, 'd, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    dy: impl Into<TensorView<'b, T, 3>>,
    convolution: Convolution,
    dfilters: impl Into<TensorViewMut<'c, T, 3>>,
    workspace: impl Into<TensorViewMut<'d, T::Sums, 1>>,
) -> Result<()> {
    let (x, dy, dfilters) = weight_images(convolution, x.into(), dy.into(), dfilters.into())?;
    conv2d_backward_weight_into_with(cx, x, dy, convolution, dfilters, workspace)
}

type WeightImages<'a, 'b, 'c, T> = (TensorView<'a, T, 4>, TensorView<'b, T, 4>, TensorViewMut<'c, T, 4>);

/// What the gradient of filters reads and writes, as images.
fn weight_images<'a, 'b, 'c, T: Real>(
    convolution: Convolution,
    x: TensorView<'a, T, 3>,
    dy: TensorView<'b, T, 3>,
    dfilters: TensorViewMut<'c, T, 3>,
) -> Result<WeightImages<'a, 'b, 'c, T>> {
    check::shape("dy", dy.shape(), result(convolution, x.shape(), dfilters.shape())?)?;
    Ok((image("x", x)?, image("dy", dy)?, image_mut("dfilters", dfilters)?))
}

/// How many elements [`conv1d_backward_weight_into_with`] needs as its workspace, with the same context and tensors of these shapes.
///
/// # Errors
///
/// As [`conv2d_backward_weight_workspace`](super::conv2d_backward_weight_workspace).
pub fn conv1d_backward_weight_workspace<'a, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    filters_shape: [usize; 3],
    convolution: Convolution,
) -> Result<usize> {
    let x = x.into();
    result(convolution, x.shape(), filters_shape)?;
    conv2d_backward_weight_workspace(cx, image("x", x)?, one_row(filters_shape), convolution)
}
