//! Rows of pairs: from tokens, and back to them.

use super::groups::{Groups, Lists};
use crate::arguments::packed;
use crate::general::write_zeros;
use crate::products::Activation;
use crate::products::activation::activate;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// Copies rows of tokens to the rows of their pairs; padding becomes zero.
#[kernel]
fn gather_rows<T: DType, const ROWS: usize, const BLOCK: usize>(
    x: Ptr<T>,
    pairs: Ptr<i32>,
    out: PtrMut<T>,
    tokens: i32,
    height: i32,
    columns: i32,
    chosen: i32,
    stride: i64,
) {
    let blocks = cdiv(columns, BLOCK);
    let row = program_id(0) / blocks * ROWS + arange(0, ROWS);
    let column = program_id(0) % blocks * BLOCK + arange(0, BLOCK);
    let pair = load(pairs + row, mask = row < height, other = -1);
    let token = pair / chosen;
    let is_there = (pair >= 0) & (token < tokens);
    let from = token[(.., None)] as i64 * stride + column as i64;
    let value = load(x + from, mask = is_there[(.., None)] & (column < columns));
    let to = row[(.., None)] as i64 * columns as i64 + column as i64;
    store(out + to, value, mask = (row < height)[(.., None)] & (column < columns));
}

/// The row of each pair's token, `[groups.height(), columns]`; padding is zero.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if `x` has another number of tokens or gaps in its rows, [`Error::OutOfMemory`], those of a launch.
pub fn gather<'a, T: DType>(cx: &Context, x: impl Into<TensorView<'a, T, 2>>, groups: &Groups) -> Result<Tensor<T, 2>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), [groups.height(), x.shape()[1]])?;
    gather_into(cx, x, groups, &mut out)?;
    Ok(out)
}

/// [`gather`], into a tensor of the result's shape, without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`gather`], and [`Error::InvalidTensor`] if `out` has another shape or gaps.
pub fn gather_into<'a, 'b, T: DType>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    groups: &Groups,
    out: impl Into<TensorViewMut<'b, T, 2>>,
) -> Result<()> {
    gathered(cx, x.into(), &groups.lists(), out.into())
}

pub(super) fn gathered<T: DType>(
    cx: &Context,
    x: TensorView<'_, T, 2>,
    groups: &Lists<'_>,
    out: TensorViewMut<'_, T, 2>,
) -> Result<()> {
    let (sizes, [_, columns]) = (groups.sizes, x.shape());
    check::shape("x", x.shape(), [sizes.tokens, columns])?;
    let stride = x.rows("x")?.stride;
    check::shape("out", out.shape(), [sizes.height(), columns])?;
    packed("out", out.is_contiguous())?;
    if out.is_empty() {
        return Ok(());
    }
    let block = columns.next_power_of_two().min(1024);
    let rows = 1024 / block.max(128);
    GatherRowsConsts { ROWS: rows, BLOCK: block }
        .call(
            x.elements(),
            groups.pairs,
            out.elements(),
            sizes.tokens as i32,
            sizes.height() as i32,
            check::size("x", columns)?,
            sizes.chosen as i32,
            stride as i64,
        )
        .grid(sizes.height().div_ceil(rows) * columns.div_ceil(block))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}

/// `out[t] = sum over c of weights[t, c] * y[row of pair (t, c)]`, in f32.
#[kernel]
fn combine_rows<T: Float, const BLOCK: usize>(
    y: Ptr<T>,
    weights: Ptr<f32>,
    rows: Ptr<i32>,
    out: PtrMut<T>,
    columns: i32,
    chosen: i32,
    height: i32,
    stride: i64,
) {
    let (token, column) = (program_id(0), program_id(1) * BLOCK + arange(0, BLOCK));
    let mut total = zeros::<f32>([BLOCK]);
    for choice in 0..chosen {
        let pair = token * chosen + choice;
        let row = load(rows + pair);
        let mask = (column < columns) & (row >= 0) & (row < height);
        total += load(weights + pair) * load(y + (row as i64 * stride + column as i64), mask = mask) as f32;
    }
    store(out + (token as i64 * columns as i64 + column as i64), total as T, mask = column < columns);
}

/// What the experts of each token say, weighted: `out[t] = sum over c of weights[t, c] * y[row of pair (t, c)]`.
///
/// # Shapes
///
/// `y` is `[groups.height(), n]`, `weights` is `[tokens, k]`, the result is `[tokens, n]`. Sums are in f32.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit or tensors have gaps, [`Error::OutOfMemory`], those of a launch.
pub fn combine<'a, 'b, T: Float>(
    cx: &Context,
    y: impl Into<TensorView<'a, T, 2>>,
    weights: impl Into<TensorView<'b, f32, 2>>,
    groups: &Groups,
) -> Result<Tensor<T, 2>> {
    let y = y.into();
    let mut out = Tensor::empty(cx.device(), [groups.lists().sizes.tokens, y.shape()[1]])?;
    combine_into(cx, y, weights, groups, &mut out)?;
    Ok(out)
}

/// [`combine`], into a tensor of the result's shape, without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`combine`], and [`Error::InvalidTensor`] if `out` has another shape or gaps.
pub fn combine_into<'a, 'b, 'c, T: Float>(
    cx: &Context,
    y: impl Into<TensorView<'a, T, 2>>,
    weights: impl Into<TensorView<'b, f32, 2>>,
    groups: &Groups,
    out: impl Into<TensorViewMut<'c, T, 2>>,
) -> Result<()> {
    combined(cx, y.into(), weights.into(), &groups.lists(), out.into())
}

pub(super) fn combined<T: Float>(
    cx: &Context,
    y: TensorView<'_, T, 2>,
    weights: TensorView<'_, f32, 2>,
    groups: &Lists<'_>,
    out: TensorViewMut<'_, T, 2>,
) -> Result<()> {
    let (sizes, [_, columns]) = (groups.sizes, y.shape());
    check::shape("y", y.shape(), [sizes.height(), columns])?;
    check::shape("weights", weights.shape(), [sizes.tokens, sizes.chosen])?;
    packed("weights", weights.is_contiguous())?;
    let stride = y.rows("y")?.stride;
    check::shape("out", out.shape(), [sizes.tokens, columns])?;
    packed("out", out.is_contiguous())?;
    if sizes.chosen == 0 {
        return write_zeros(cx, out.elements());
    }
    if out.is_empty() {
        return Ok(());
    }
    let block = columns.next_power_of_two().min(1024);
    CombineRowsConsts { BLOCK: block }
        .call(
            y.elements(),
            weights.elements(),
            groups.rows,
            out.elements(),
            check::size("y", columns)?,
            sizes.chosen as i32,
            sizes.height() as i32,
            stride as i64,
        )
        .grid((sizes.tokens, columns.div_ceil(block)))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}

/// `activation(left half of a row) * right half`, of used blocks.
#[kernel]
fn gate_rows<T: Float, const ROWS: usize, const BLOCK: usize, const ACTIVATION: usize>(
    both: Ptr<T>,
    used: Ptr<i32>,
    out: PtrMut<T>,
    block: i32,
    inner: i32,
) {
    let blocks = cdiv(inner, BLOCK);
    let row = program_id(0) / blocks * ROWS + arange(0, ROWS)[(.., None)];
    let column = program_id(0) % blocks * BLOCK + arange(0, BLOCK);
    let mask = (row < load(used) * block) & (column < inner);
    let from = both + (row as i64 * (2 * inner) as i64 + column as i64);
    let left = load(from, mask = mask) as f32;
    let right = load(from + inner, mask = mask) as f32;
    let value = activate::<_, _, _, ACTIVATION>(left) * right;
    store(out + (row as i64 * inner as i64 + column as i64), value as T, mask = mask);
}

/// `activation(left half of a row) * right half`, of the rows of all blocks that are used, into rows without gaps; others stay as
/// they are.
pub(super) fn gated<F: Float>(
    cx: &Context,
    both: TensorView<'_, F, 2>,
    groups: &Lists<'_>,
    activation: Activation,
    out: TensorViewMut<'_, F, 2>,
) -> Result<()> {
    let [height, inner] = out.shape();
    if out.is_empty() {
        return Ok(());
    }
    let block = inner.next_power_of_two().min(1024);
    let rows = 1024 / block.max(128);
    let (both, out, block_rows) = (both.elements(), out.elements(), groups.sizes.block as i32);
    GateRowsConsts { ROWS: rows, BLOCK: block, ACTIVATION: activation.code() }
        .call(both, groups.used, out, block_rows, check::size("x", inner)?)
        .grid(height.div_ceil(rows) * inner.div_ceil(block))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}
