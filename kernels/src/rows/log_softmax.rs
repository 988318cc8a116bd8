//! Logarithms of softmax, and their gradient.

use super::warps_of;
use crate::config::{Key, config};
use crate::device::{exponentials, padded};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

config! {
    /// How [`log_softmax`] and [`log_softmax_backward`] run; sizes are rows and columns.
    "log_softmax": pub struct LogSoftmaxConfig {
        /// Elements of a row that a program takes at a time. A whole row if it is that long: the row is then read once.
        pub block,
        /// Warps of a program.
        pub num_warps,
    }
}

impl LogSoftmaxConfig {
    /// The longest row that is kept in registers.
    const WHOLE: usize = 16_384;

    /// `bytes` are read of a column: one element, or two by the gradient.
    pub(super) fn choose(columns: usize, bytes: usize) -> Self {
        let block = columns.next_power_of_two().clamp(32, Self::WHOLE);
        LogSoftmaxConfig { block, num_warps: warps_of(block, bytes) }
    }
}

/// A row, in registers if `WHOLE`, else in pieces that are read twice.
#[kernel]
pub(super) fn log_softmax_rows<T: Float, const BLOCK: usize, const GROUP: usize, const WHOLE: bool>(
    x: Ptr<T>,
    out: PtrMut<T>,
    x_stride: i64,
    out_stride: i64,
    columns: i32,
) {
    let (x, out) = (x + program_id(0) as i64 * x_stride, out + program_id(0) as i64 * out_stride);
    let lane = arange(0, BLOCK);
    if WHOLE {
        let values = padded(load(x + lane, mask = lane < columns, other = T::NEG_INFINITY), lane < columns);
        let shifted = values - max(values, axis = 0);
        store(out + lane, (shifted - log(sum(exp(shifted), axis = 0))) as T, mask = lane < columns);
    } else {
        let (peak, mass, _) = exponentials::<T, { BLOCK / GROUP }, GROUP>(x, columns);
        let total = log(mass);
        for first in (0..columns).step_by(BLOCK) {
            let column = first + lane;
            let values = load(x + column, mask = column < columns) as T::Acc;
            store(out + column, (values - peak - total) as T, mask = column < columns);
        }
    }
}

/// `dx = dy - exp(y) * sum(dy)`, a row in registers if `WHOLE`, else in pieces.
#[kernel]
pub(super) fn log_softmax_gradient<T: Float, const BLOCK: usize, const WHOLE: bool>(
    y: Ptr<T>,
    dy: Ptr<T>,
    dx: PtrMut<T>,
    y_stride: i64,
    dy_stride: i64,
    dx_stride: i64,
    columns: i32,
) {
    let row = program_id(0) as i64;
    let (y, dy, dx) = (y + row * y_stride, dy + row * dy_stride, dx + row * dx_stride);
    let lane = arange(0, BLOCK);
    if WHOLE {
        let mask = lane < columns;
        let (y, dy) = (load(y + lane, mask = mask) as T::Acc, load(dy + lane, mask = mask) as T::Acc);
        store(dx + lane, (dy - exp(y) * sum(dy, axis = 0)) as T, mask = mask);
    } else {
        let mut sums = zeros::<T::Acc>([BLOCK]);
        for first in (0..columns).step_by(BLOCK) {
            let column = first + lane;
            sums += load(dy + column, mask = column < columns) as T::Acc;
        }
        let total = sum(sums, axis = 0);
        for first in (0..columns).step_by(BLOCK) {
            let column = first + lane;
            let mask = column < columns;
            let (y, dy) = (load(y + column, mask = mask) as T::Acc, load(dy + column, mask = mask) as T::Acc);
            store(dx + column, (dy - exp(y) * total) as T, mask = mask);
        }
    }
}

/// `log_softmax(x)[.., j] = x[.., j] - log(sum over k of exp(x[.., k]))`.
///
/// # Shapes
///
/// `x` is `[.., columns]`, the result has its shape. Any float.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64) relative to the row's maximum, and rounded once.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if rows have gaps or do not follow each other, [`Error::OutOfMemory`], those of a launch.
pub fn log_softmax<'a, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
) -> Result<Tensor<T, R>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    log_softmax_into(cx, x, &mut out)?;
    Ok(out)
}

/// [`log_softmax`], into a tensor of the same shape.
///
/// # Errors
///
/// As [`log_softmax`], and [`Error::InvalidTensor`] if the shapes differ.
pub fn log_softmax_into<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    out: impl Into<TensorViewMut<'b, T, R>>,
) -> Result<()> {
    let (x, out) = (x.into(), out.into());
    check::shape("out", out.shape(), x.shape())?;
    let (from, to) = (x.rows("x")?, out.rows("out")?);
    if x.is_empty() {
        return Ok(());
    }
    let columns = check::size("x", from.columns)?;
    let config =
        cx.config(T::ELEMENT, &[from.rows, from.columns], || LogSoftmaxConfig::choose(from.columns, size_of::<T>()))?;
    LogSoftmaxRowsConsts { BLOCK: config.block, GROUP: 16 / size_of::<T>(), WHOLE: from.columns <= config.block }
        .call(x.elements(), out.elements(), from.stride as i64, to.stride as i64, columns)
        .grid(from.rows)
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// The gradient of [`log_softmax`]: `dx = dy - exp(y) * sum(dy)` for each row, where `y` is the result of [`log_softmax`].
///
/// # Shapes
///
/// `y` and `dy` have one shape, `[.., columns]`, and so has the result. Any float.
///
/// # Errors
///
/// As [`log_softmax`], and [`Error::InvalidTensor`] if the shapes differ.
pub fn log_softmax_backward<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    y: impl Into<TensorView<'a, T, R>>,
    dy: impl Into<TensorView<'b, T, R>>,
) -> Result<Tensor<T, R>> {
    let (y, dy) = (y.into(), dy.into());
    let mut dx = Tensor::empty(cx.device(), y.shape())?;
    log_softmax_backward_into(cx, y, dy, &mut dx)?;
    Ok(dx)
}

/// [`log_softmax_backward`], into a tensor of the same shape.
///
/// # Errors
///
/// As [`log_softmax_backward`].
pub fn log_softmax_backward_into<'a, 'b, 'c, T: Float, const R: usize>(
    cx: &Context,
    y: impl Into<TensorView<'a, T, R>>,
    dy: impl Into<TensorView<'b, T, R>>,
    dx: impl Into<TensorViewMut<'c, T, R>>,
) -> Result<()> {
    let (y, dy, dx) = (y.into(), dy.into(), dx.into());
    check::shape("dy", dy.shape(), y.shape())?;
    check::shape("dx", dx.shape(), y.shape())?;
    let (from, grads, to) = (y.rows("y")?, dy.rows("dy")?, dx.rows("dx")?);
    if y.is_empty() {
        return Ok(());
    }
    let columns = check::size("y", from.columns)?;
    let config = cx.config(Key::of(T::ELEMENT, "gradient"), &[from.rows, from.columns], || {
        LogSoftmaxConfig::choose(from.columns, 2 * size_of::<T>())
    })?;
    let strides = [from.stride, grads.stride, to.stride].map(|stride| stride as i64);
    LogSoftmaxGradientConsts { BLOCK: config.block, WHOLE: from.columns <= config.block }
        .call(y.elements(), dy.elements(), dx.elements(), strides[0], strides[1], strides[2], columns)
        .grid(from.rows)
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
}
