//! Numbers as 8-bit floats and scales.
//!
//! The scale of a group of numbers is the largest magnitude among them divided by the largest 8-bit float, so that it comes
//! out as that; each number is divided by it and rounded. What a product multiplies by later is the scale.

use crate::arguments::packed;
use crate::general::write_zeros;
use crate::workspace::Memory;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// The largest number of f8e4m3.
pub const LARGEST: f32 = 448.0;

/// Neighbours along the sums of a product that share a scale.
pub const BLOCK: usize = 128;

/// The scale of numbers of which this is the largest magnitude. No smaller than the smallest normal f32, which keeps
/// quotients finite.
#[device]
fn scale_of<const N: usize>(largest: Tile<f32, { [N] }>) -> Tile<f32, { [N] }> {
    maximum(div_rn(largest, 448.0), 1.175_494_4e-38)
}

/// A scale for each row of each block of columns, or one for the whole tile if `SQUARE`.
#[kernel]
pub(super) fn quantise_tiles<T: Float, const ROWS: usize, const COLUMNS: usize, const SQUARE: bool>(
    x: Ptr<T>,
    out: PtrMut<f8e4m3>,
    scales: PtrMut<f32>,
    rows: i32,
    columns: i32,
    x_stride: i64,
) {
    let (blocks, row) = (cdiv(columns, COLUMNS), program_id(0) / cdiv(columns, COLUMNS) * ROWS);
    let block = program_id(0) % blocks;
    let (i, j) = (row + arange(0, ROWS), block * COLUMNS + arange(0, COLUMNS));
    let mask = (i < rows)[(.., None)] & (j < columns);
    let (down, across) = (i as i64, j as i64);
    let values = load(x + (down[(.., None)] * x_stride + across), mask = mask) as f32;
    let mut largest = max(abs(values), axis = 1);
    if SQUARE {
        largest = broadcast_to(max(largest, axis = 0, keep_dims = true), [ROWS]);
    }
    let scale = scale_of(largest);
    let quantised = div_rn(values, scale[(.., None)]) as f8e4m3;
    store(out + (down[(.., None)] * columns as i64 + across), quantised, mask = mask);
    if SQUARE {
        store(scales + program_id(0), max(scale, axis = 0));
    } else {
        store(scales + (down * blocks as i64 + block as i64), scale, mask = i < rows);
    }
}

/// A scale for each row, which is read twice.
#[kernel]
fn quantise_whole_rows<T: Float, const COLUMNS: usize>(
    x: Ptr<T>,
    out: PtrMut<f8e4m3>,
    scales: PtrMut<f32>,
    columns: i32,
    x_stride: i64,
) {
    let row = program_id(0) as i64;
    let (x, out) = (x + row * x_stride, out + row * columns as i64);
    let mut largest = zeros::<f32>([COLUMNS]);
    for first in (0..columns).step_by(COLUMNS) {
        let j = first + arange(0, COLUMNS);
        largest = maximum(largest, abs(load(x + j, mask = j < columns) as f32));
    }
    let scale = max(scale_of(max(largest, axis = 0, keep_dims = true)), axis = 0);
    for first in (0..columns).step_by(COLUMNS) {
        let j = first + arange(0, COLUMNS);
        let values = load(x + j, mask = j < columns) as f32;
        store(out + j, div_rn(values, scale) as f8e4m3, mask = j < columns);
    }
    store(scales + program_id(0), scale);
}

/// The largest magnitude of all, which is what `largest` was if that is more.
#[kernel]
fn largest_magnitude<T: Float, const ROWS: usize, const COLUMNS: usize>(
    x: Ptr<T>,
    largest: PtrMut<f32>,
    rows: i32,
    columns: i32,
    x_stride: i64,
) {
    let blocks = cdiv(columns, COLUMNS);
    let i = program_id(0) / blocks * ROWS + arange(0, ROWS)[(.., None)];
    let j = program_id(0) % blocks * COLUMNS + arange(0, COLUMNS);
    let values = load(x + (i as i64 * x_stride + j as i64), mask = (i < rows) & (j < columns)) as f32;
    atomic_max(largest, max(abs(values)), order = relaxed);
}

/// With one scale for all, made of the largest magnitude.
#[kernel]
fn quantise_by_one<T: Float, const ROWS: usize, const COLUMNS: usize>(
    x: Ptr<T>,
    largest: Ptr<f32>,
    out: PtrMut<f8e4m3>,
    scale: PtrMut<f32>,
    rows: i32,
    columns: i32,
    x_stride: i64,
) {
    let blocks = cdiv(columns, COLUMNS);
    let i = program_id(0) / blocks * ROWS + arange(0, ROWS)[(.., None)];
    let j = program_id(0) % blocks * COLUMNS + arange(0, COLUMNS);
    let mask = (i < rows) & (j < columns);
    let values = load(x + (i as i64 * x_stride + j as i64), mask = mask) as f32;
    let one = scale_of(load(largest + arange(0, 1)));
    store(out + (i as i64 * columns as i64 + j as i64), div_rn(values, one) as f8e4m3, mask = mask);
    if program_id(0) == 0 {
        store(scale + arange(0, 1), one);
    }
}

/// Rows that a program quantises, where they have scales of their own.
const ROWS: usize = 32;

fn tiles<T: Float, const TALL: usize, const SQUARE: bool>(
    cx: &Context,
    x: TensorView<'_, T, 2>,
    scale_rows: usize,
    out: TensorViewMut<'_, F8E4M3, 2>,
    scales: TensorViewMut<'_, f32, 2>,
) -> Result<()> {
    let (rows, columns) = (check::size("x", x.shape()[0])?, check::size("x", x.shape()[1])?);
    let stride = x.rows("x")?.stride;
    without_gaps(&x, &out, &scales, [scale_rows, x.shape()[1].div_ceil(BLOCK)])?;
    if x.is_empty() {
        return Ok(());
    }
    let (x, grid) = (x.elements(), x.shape()[0].div_ceil(TALL) * x.shape()[1].div_ceil(BLOCK));
    quantise_tiles::<_, TALL, BLOCK, SQUARE>(x, out.elements(), scales.elements(), rows, columns, stride as i64)
        .grid(grid)
        .num_warps(if SQUARE { 8 } else { 4 })
        .stream(cx.stream())
        .launch(cx.device())
}

/// Checks what is written: 8-bit floats of the shape of `x`, and scales.
fn without_gaps<T: DType, const R: usize>(
    x: &TensorView<'_, T, 2>,
    out: &TensorViewMut<'_, F8E4M3, 2>,
    scales: &TensorViewMut<'_, f32, R>,
    scales_shape: [usize; R],
) -> Result<()> {
    check::shape("out", out.shape(), x.shape())?;
    check::shape("scales", scales.shape(), scales_shape)?;
    packed("out", out.is_contiguous())?;
    packed("scales", scales.is_contiguous())
}

/// `x` as 8-bit floats, and a scale for each row of each block of 128 columns: what a product takes as its first factor.
///
/// # Shapes
///
/// `x` is `[rows, columns]`, its scales are `[rows, ceil(columns / 128)]`.
///
/// # Numerics
///
/// `scale = max(|x|) / 448`, correctly rounded and at least 2<sup>-126</sup>, which is that of no elements, too; `x / scale` is
/// rounded to f8e4m3. NaN stays NaN.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if rows have gaps, [`Error::OutOfMemory`], those of a launch.
pub fn quantise_blocks<'a, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
) -> Result<(Tensor<F8E4M3, 2>, Tensor<f32, 2>)> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    let mut scales = Tensor::empty(cx.device(), [x.shape()[0], x.shape()[1].div_ceil(BLOCK)])?;
    quantise_blocks_into(cx, x, &mut out, &mut scales)?;
    Ok((out, scales))
}

/// [`quantise_blocks`], into tensors of the shapes of its results, without gaps.
///
/// # Errors
///
/// As [`quantise_blocks`], and [`Error::InvalidTensor`] if shapes do not fit.
pub fn quantise_blocks_into<'a, 'b, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    out: impl Into<TensorViewMut<'b, F8E4M3, 2>>,
    scales: impl Into<TensorViewMut<'b, f32, 2>>,
) -> Result<()> {
    let x = x.into();
    tiles::<T, ROWS, false>(cx, x, x.shape()[0], out.into(), scales.into())
}

/// `x` as 8-bit floats, and a scale for each block of 128 by 128: what weights have.
///
/// # Shapes
///
/// `x` is `[rows, columns]`, its scales are `[ceil(rows / 128), ceil(columns / 128)]`.
///
/// # Errors
///
/// As [`quantise_blocks`].
pub fn quantise_squares<'a, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
) -> Result<(Tensor<F8E4M3, 2>, Tensor<f32, 2>)> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    let mut scales = Tensor::empty(cx.device(), x.shape().map(|size| size.div_ceil(BLOCK)))?;
    quantise_squares_into(cx, x, &mut out, &mut scales)?;
    Ok((out, scales))
}

/// [`quantise_squares`], into tensors of the shapes of its results, without gaps.
///
/// # Errors
///
/// As [`quantise_blocks`], and [`Error::InvalidTensor`] if shapes do not fit.
pub fn quantise_squares_into<'a, 'b, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    out: impl Into<TensorViewMut<'b, F8E4M3, 2>>,
    scales: impl Into<TensorViewMut<'b, f32, 2>>,
) -> Result<()> {
    let x = x.into();
    tiles::<T, BLOCK, true>(cx, x, x.shape()[0].div_ceil(BLOCK), out.into(), scales.into())
}

/// `x` as 8-bit floats, and a scale for each row: `[rows, columns]` and `[rows]`.
///
/// # Errors
///
/// As [`quantise_blocks`].
pub fn quantise_rows<'a, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
) -> Result<(Tensor<F8E4M3, 2>, Tensor<f32, 1>)> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    let mut scales = Tensor::empty(cx.device(), [x.shape()[0]])?;
    quantise_rows_into(cx, x, &mut out, &mut scales)?;
    Ok((out, scales))
}

/// [`quantise_rows`], into tensors of the shapes of its results, without gaps.
///
/// # Errors
///
/// As [`quantise_blocks`], and [`Error::InvalidTensor`] if shapes do not fit.
pub fn quantise_rows_into<'a, 'b, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    out: impl Into<TensorViewMut<'b, F8E4M3, 2>>,
    scales: impl Into<TensorViewMut<'b, f32, 1>>,
) -> Result<()> {
    let (x, out, scales) = (x.into(), out.into(), scales.into());
    let ([rows, columns], stride) = (x.shape(), x.rows("x")?.stride);
    without_gaps(&x, &out, &scales, [rows])?;
    if rows == 0 {
        return Ok(());
    }
    let block = columns.next_power_of_two().clamp(128, 4096);
    QuantiseWholeRowsConsts { COLUMNS: block }
        .call(x.elements(), out.elements(), scales.elements(), check::size("x", columns)?, stride as i64)
        .grid(rows)
        .num_warps((block / 512).max(1) as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// `x` as 8-bit floats, and one scale: `[rows, columns]` and `[1]`. Read twice.
///
/// # Errors
///
/// As [`quantise_blocks`].
pub fn quantise_tensor<'a, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
) -> Result<(Tensor<F8E4M3, 2>, Tensor<f32, 1>)> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    let mut scale = Tensor::empty(cx.device(), [1])?;
    quantise_tensor_into(cx, x, &mut out, &mut scale)?;
    Ok((out, scale))
}

/// [`quantise_tensor`], into tensors of the shapes of its results, without gaps. Allocates one f32, for the largest magnitude.
///
/// # Errors
///
/// As [`quantise_blocks`], and [`Error::InvalidTensor`] if shapes do not fit.
pub fn quantise_tensor_into<'a, 'b, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    out: impl Into<TensorViewMut<'b, F8E4M3, 2>>,
    scale: impl Into<TensorViewMut<'b, f32, 1>>,
) -> Result<()> {
    by_one(cx, x.into(), out.into(), scale.into(), None)
}

/// [`quantise_tensor_into`], with a workspace of one f32 or more, without gaps, for the largest magnitude; what it holds does
/// not matter. Nothing is allocated: one more launch sets it to zero.
///
/// # Errors
///
/// As [`quantise_tensor_into`], and [`Error::InvalidTensor`] if the workspace has gaps or no elements.
pub fn quantise_tensor_into_with<'a, 'b, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    out: impl Into<TensorViewMut<'b, F8E4M3, 2>>,
    scale: impl Into<TensorViewMut<'b, f32, 1>>,
    workspace: impl Into<TensorViewMut<'b, f32, 1>>,
) -> Result<()> {
    by_one(cx, x.into(), out.into(), scale.into(), Some(workspace.into()))
}

/// A zero, for the largest magnitude.
fn zero<'a>(cx: &Context, workspace: Option<TensorViewMut<'a, f32, 1>>) -> Result<Memory<'a, f32>> {
    let Some(workspace) = workspace else { return Ok(Memory::Own(cx.device().zeros(1)?)) };
    let mut zero = Memory::of(cx, "workspace", Some(workspace), 1)?;
    write_zeros(cx, zero.view_mut())?;
    Ok(zero)
}

fn by_one<T: Float>(
    cx: &Context,
    x: TensorView<'_, T, 2>,
    out: TensorViewMut<'_, F8E4M3, 2>,
    scale: TensorViewMut<'_, f32, 1>,
    workspace: Option<TensorViewMut<'_, f32, 1>>,
) -> Result<()> {
    let [mut rows, mut columns] = [check::size("x", x.shape()[0])?, check::size("x", x.shape()[1])?];
    let stride = x.rows("x")?.stride as i64;
    without_gaps(&x, &out, &scale, [1])?;
    let mut largest = zero(cx, workspace)?;
    let mut grid = x.shape()[0].div_ceil(ROWS) * x.shape()[1].div_ceil(BLOCK);
    if x.is_empty() {
        // One program writes the scale, and finds no rows.
        (rows, columns, grid) = (0, 1, 1);
    }
    largest_magnitude::<_, ROWS, BLOCK>(x.elements(), largest.view_mut(), rows, columns, stride)
        .grid(grid)
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())?;
    let (x, out, scale) = (x.elements(), out.elements(), scale.elements());
    quantise_by_one::<_, ROWS, BLOCK>(x, largest.view(), out, scale, rows, columns, stride)
        .grid(grid)
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}
