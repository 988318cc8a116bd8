//! Softmax of rows, and its gradient.

use super::warps_of;
use crate::config::{Key, config};
use crate::device::{exponentials, padded};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

config! {
    /// How [`softmax`] and [`softmax_backward`] run; sizes are rows and columns.
    "softmax": pub struct SoftmaxConfig {
        /// Elements of a row that a program takes at a time. A whole row if it is that long: the row is then read once.
        pub block,
        /// Warps of a program.
        pub num_warps,
    }
}

impl SoftmaxConfig {
    /// The longest row that is kept in registers.
    const WHOLE: usize = 16_384;

    /// `bytes` are read of a column: one element, or two by the gradient.
    fn choose(columns: usize, bytes: usize) -> Self {
        let block = columns.next_power_of_two().clamp(32, Self::WHOLE);
        SoftmaxConfig { block, num_warps: warps_of(block, bytes) }
    }
}

/// A row in registers.
#[kernel]
pub(super) fn softmax_whole<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    out: PtrMut<T>,
    x_stride: i64,
    out_stride: i64,
    columns: i32,
) {
    let row = program_id(0) as i64;
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let values = padded(load(x + row * x_stride + column, mask = mask, other = T::NEG_INFINITY), mask);
    let numerator = exp(values - max(values, axis = 0));
    store(out + row * out_stride + column, (numerator / sum(numerator, axis = 0)) as T, mask = mask);
}

/// A row in pieces, read twice.
#[kernel]
pub(super) fn softmax_pieces<T: Float, const BLOCK: usize, const GROUP: usize>(
    x: Ptr<T>,
    out: PtrMut<T>,
    x_stride: i64,
    out_stride: i64,
    columns: i32,
) {
    let (x, out) = (x + program_id(0) as i64 * x_stride, out + program_id(0) as i64 * out_stride);
    let (peak, total, _) = exponentials::<T, { BLOCK / GROUP }, GROUP>(x, columns);
    for first in (0..columns).step_by(BLOCK) {
        let column = first + arange(0, BLOCK);
        let values = load(x + column, mask = column < columns) as T::Acc;
        store(out + column, (exp(values - peak) / total) as T, mask = column < columns);
    }
}

/// `dx = y * (dy - sum(y * dy))`, a row in registers if `WHOLE`, else in pieces.
#[kernel]
pub(super) fn softmax_gradient<T: Float, const BLOCK: usize, const WHOLE: bool>(
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
        store(dx + lane, (y * (dy - sum(y * dy, axis = 0))) as T, mask = mask);
    } else {
        let mut products = zeros::<T::Acc>([BLOCK]);
        for first in (0..columns).step_by(BLOCK) {
            let column = first + lane;
            let mask = column < columns;
            products += load(y + column, mask = mask) as T::Acc * load(dy + column, mask = mask) as T::Acc;
        }
        let total = sum(products, axis = 0);
        for first in (0..columns).step_by(BLOCK) {
            let column = first + lane;
            let mask = column < columns;
            let (y, dy) = (load(y + column, mask = mask) as T::Acc, load(dy + column, mask = mask) as T::Acc);
            store(dx + column, (y * (dy - total)) as T, mask = mask);
        }
    }
}

/// `softmax(x)[.., j] = exp(x[.., j]) / sum over k of exp(x[.., k])`.
///
/// # Shapes
///
/// `x` is `[.., columns]`, the result has its shape. Any float.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64) relative to the row's maximum, and rounded once. A row of `-inf` is NaN, as its formula is.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if rows have gaps or do not follow each other, [`Error::OutOfMemory`], those of a launch.
pub fn softmax<'a, T: Float, const R: usize>(cx: &Context, x: impl Into<TensorView<'a, T, R>>) -> Result<Tensor<T, R>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    softmax_into(cx, x, &mut out)?;
    Ok(out)
}

/// [`softmax`], into a tensor of the same shape.
///
/// # Errors
///
/// As [`softmax`], and [`Error::InvalidTensor`] if the shapes differ.
pub fn softmax_into<'a, 'b, T: Float, const R: usize>(
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
        cx.config(T::ELEMENT, &[from.rows, from.columns], || SoftmaxConfig::choose(from.columns, size_of::<T>()))?;
    let (x, out, strides) = (x.elements(), out.elements(), (from.stride as i64, to.stride as i64));
    let warps = config.num_warps as u32;
    if from.columns <= config.block {
        let call = SoftmaxWholeConsts { BLOCK: config.block }.call(x, out, strides.0, strides.1, columns);
        call.grid(from.rows).num_warps(warps).stream(cx.stream()).launch(cx.device())
    } else {
        let call = SoftmaxPiecesConsts { BLOCK: config.block, GROUP: 16 / size_of::<T>() }
            .call(x, out, strides.0, strides.1, columns);
        call.grid(from.rows).num_warps(warps).stream(cx.stream()).launch(cx.device())
    }
}

/// The gradient of [`softmax`]: `dx = y * (dy - sum(y * dy))` for each row, where `y` is the result of [`softmax`].
///
/// # Shapes
///
/// `y` and `dy` have one shape, `[.., columns]`, and so has the result. Any float.
///
/// # Errors
///
/// As [`softmax`], and [`Error::InvalidTensor`] if the shapes differ.
pub fn softmax_backward<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    y: impl Into<TensorView<'a, T, R>>,
    dy: impl Into<TensorView<'b, T, R>>,
) -> Result<Tensor<T, R>> {
    let (y, dy) = (y.into(), dy.into());
    let mut dx = Tensor::empty(cx.device(), y.shape())?;
    softmax_backward_into(cx, y, dy, &mut dx)?;
    Ok(dx)
}

/// [`softmax_backward`], into a tensor of the same shape.
///
/// # Errors
///
/// As [`softmax_backward`].
pub fn softmax_backward_into<'a, 'b, 'c, T: Float, const R: usize>(
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
        SoftmaxConfig::choose(from.columns, 2 * size_of::<T>())
    })?;
    SoftmaxGradientConsts { BLOCK: config.block, WHOLE: from.columns <= config.block }
        .call(
            y.elements(),
            dy.elements(),
            dx.elements(),
            from.stride as i64,
            grads.stride as i64,
            to.stride as i64,
            columns,
        )
        .grid(from.rows)
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
}
