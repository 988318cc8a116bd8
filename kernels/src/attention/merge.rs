//! Merging of attention over parts of the keys.

use super::device::{LN_2, LOG2_E};
use super::shape::{contiguous_last, logarithms};
use crate::arguments::packed;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Result, View};

/// A row per program; the grid is `[rows, heads, batches]`.
#[kernel]
pub(super) fn attention_merge<P: Float, T: Float, const D: usize>(
    parts: Ptr<P>,
    logs: Ptr<f32>,
    out: PtrMut<T>,
    lse: Option<PtrMut<f32>>,
    count: i32,
    columns: i32,
    part: i64,
    part_batch: i64,
    part_head: i64,
    part_row: i64,
    log_part: i64,
    log_batch: i64,
    log_head: i64,
    out_batch: i64,
    out_head: i64,
    out_row: i64,
    lse_batch: i64,
    lse_head: i64,
) {
    let (row, head, batch) = (program_id(0) as i64, program_id(1) as i64, program_id(2) as i64);
    let column = arange(0, D);
    let mask = column < columns;
    let parts = parts + (batch * part_batch + head * part_head + row * part_row);
    let logs = logs + (batch * log_batch + head * log_head + row);
    let mut sums = zeros::<f32>([D]);
    // Finite, so that no infinity is subtracted from another.
    let mut peak = f32::MIN;
    let mut total = 0.0;
    for i in 0..count {
        let log = load(logs + i as i64 * log_part) * (LOG2_E as f64 as f32);
        let higher = maximum(peak, log);
        let (old, new) = (exp2(peak - higher), exp2(log - higher));
        let values = load(parts + i as i64 * part + column, mask = mask) as f32;
        // A part that sees nothing may hold anything, which a weight of 0 would not hide.
        sums = sums * old + select(log == f32::NEG_INFINITY, 0.0, values * new);
        total = total * old + new;
        peak = higher;
    }
    let empty = total == 0.0;
    let weight = select(empty, 1.0, total);
    let log = select(empty, f32::NEG_INFINITY, (peak + log2(weight)) * (LN_2 as f64 as f32));
    store(out + (batch * out_batch + head * out_head + row * out_row) + column, (sums / weight) as T, mask = mask);
    if let Some(lse) = lse {
        store(lse + (batch * lse_batch + head * lse_head + row), log);
    }
}

/// Attention over all keys from attention over parts of them: with `w[p] = exp(lse[p])`,
/// `out = sum of w[p] * parts[p] / sum of w[p]`, and the logarithm of the sum of `w`.
///
/// # Shapes
///
/// `parts` is `[parts, batch, heads, queries, d]`, what [`forward`](super::forward) gives for each part of the keys, and
/// `lse` `[parts, batch, heads, queries]`. Results are `[batch, heads, queries, d]` in the dtype `T`, and
/// `[batch, heads, queries]`. A part that a query sees nothing of has minus infinity in `lse`, and may hold anything; if all are
/// so, so is the result, and `out` is 0. Any floats; sums are in f32.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit or a last dimension is not contiguous, [`Error::OutOfMemory`], those of a
/// launch.
pub fn merge<'a, P: Float, T: Float>(
    cx: &Context,
    parts: impl Into<TensorView<'a, P, 5>>,
    lse: impl Into<TensorView<'a, f32, 4>>,
) -> Result<(Tensor<T, 4>, Tensor<f32, 3>)> {
    let (parts, logs) = (parts.into(), lse.into());
    let [_, batch, heads, queries, d] = parts.shape();
    let mut out = Tensor::empty(cx.device(), [batch, heads, queries, d])?;
    let mut lse = Tensor::empty(cx.device(), [batch, heads, queries])?;
    merge_into(cx, parts, logs, &mut out, Some(lse.view_mut()))?;
    Ok((out, lse))
}

/// [`merge`], into tensors of the shapes of its results; `out_lse` is not written if it is not given.
///
/// # Errors
///
/// As [`merge`].
pub fn merge_into<'a, 'b, P: Float, T: Float>(
    cx: &Context,
    parts: impl Into<TensorView<'a, P, 5>>,
    lse: impl Into<TensorView<'a, f32, 4>>,
    out: impl Into<TensorViewMut<'b, T, 4>>,
    out_lse: Option<TensorViewMut<'b, f32, 3>>,
) -> Result<()> {
    let (parts, logs, out) = (parts.into(), lse.into(), out.into());
    let [count, batch, heads, queries, d] = parts.shape();
    check::shape("lse", logs.shape(), [count, batch, heads, queries])?;
    check::shape("out", out.shape(), [batch, heads, queries, d])?;
    if let Some(lse) = &out_lse {
        check::shape("out_lse", lse.shape(), [batch, heads, queries])?;
        contiguous_last("out_lse", &lse.as_view())?;
    }
    contiguous_last("parts", &parts)?;
    contiguous_last("lse", &logs)?;
    contiguous_last("out", &out.as_view())?;
    let from: [i64; 5] = parts.strides().map(|stride| stride as i64);
    let logs_from = logs.strides().map(|stride| stride as i64);
    launch(cx, [count, batch, heads, queries, d], (parts.elements(), from), (logs.elements(), logs_from), out, out_lse)
}

fn launch<P: Float, T: Float>(
    cx: &Context,
    [count, batch, heads, queries, d]: [usize; 5],
    (parts, from): (View<'_, P>, [i64; 5]),
    (logs, logs_from): (View<'_, f32>, [i64; 4]),
    out: TensorViewMut<'_, T, 4>,
    lse: Option<TensorViewMut<'_, f32, 3>>,
) -> Result<()> {
    // Logarithms are written of heads without elements, too.
    if [batch, heads, queries].contains(&0) || (d == 0 && lse.is_none()) {
        return Ok(());
    }
    let to = out.strides().map(|stride| stride as i64);
    let (lse, lse_to) = logarithms(lse)?;
    AttentionMergeConsts { D: d.next_power_of_two().max(32) }
        .call(
            parts,
            logs,
            out.elements(),
            lse,
            check::size("parts", count)?,
            check::size("parts", d)?,
            from[0],
            from[1],
            from[2],
            from[3],
            logs_from[0],
            logs_from[1],
            logs_from[2],
            to[0],
            to[1],
            to[2],
            lse_to[0],
            lse_to[1],
        )
        .grid((queries, heads, batch))
        .num_warps(1)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Attention over two parts of the keys as attention over both: [`merge`] of `a` and `b`, each with its logarithms of sums.
/// A dtype of sums is kept: `f32` parts give an `f32` result.
///
/// # Shapes
///
/// Results and logarithms of both have the shapes of [`forward`](super::forward)'s: `[batch, heads, queries, d]` and
/// `[batch, heads, queries]`.
///
/// # Errors
///
/// As [`merge`].
pub fn merge_states<'a, T: Float>(
    cx: &Context,
    a: (impl Into<TensorView<'a, T, 4>>, impl Into<TensorView<'a, f32, 3>>),
    b: (impl Into<TensorView<'a, T, 4>>, impl Into<TensorView<'a, f32, 3>>),
) -> Result<(Tensor<T, 4>, Tensor<f32, 3>)> {
    let a = (a.0.into(), a.1.into());
    let [batch, heads, queries, _] = a.0.shape();
    let mut out = Tensor::empty(cx.device(), a.0.shape())?;
    let mut lse = Tensor::empty(cx.device(), [batch, heads, queries])?;
    merge_states_into(cx, a, b, &mut out, &mut lse)?;
    Ok((out, lse))
}

/// [`merge_states`], into tensors of the shapes of its results, without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`merge_states`], and [`Error::InvalidTensor`] if `out` or `out_lse` have other shapes or gaps.
pub fn merge_states_into<'a, 'b, T: Float>(
    cx: &Context,
    a: (impl Into<TensorView<'a, T, 4>>, impl Into<TensorView<'a, f32, 3>>),
    b: (impl Into<TensorView<'a, T, 4>>, impl Into<TensorView<'a, f32, 3>>),
    out: impl Into<TensorViewMut<'b, T, 4>>,
    out_lse: impl Into<TensorViewMut<'b, f32, 3>>,
) -> Result<()> {
    let (a, b) = ((a.0.into(), a.1.into()), (b.0.into(), b.1.into()));
    let (out, out_lse) = (out.into(), out_lse.into());
    let [batch, heads, queries, d] = a.0.shape();
    let rows = [batch, heads, queries];
    check::shape("b", b.0.shape(), a.0.shape())?;
    check::shape("lse of `a`", a.1.shape(), rows)?;
    check::shape("lse of `b`", b.1.shape(), rows)?;
    for (name, view) in [("a", &a.0), ("b", &b.0)] {
        contiguous_last(name, view)?;
    }
    for view in [&a.1, &b.1] {
        contiguous_last("lse", view)?;
    }
    check::shape("out", out.shape(), a.0.shape())?;
    check::shape("out_lse", out_lse.shape(), rows)?;
    packed("out", out.is_contiguous())?;
    packed("out_lse", out_lse.is_contiguous())?;
    if out_lse.is_empty() {
        return Ok(());
    }
    let strides = |view: &TensorView<'_, T, 4>| view.strides().map(|stride| stride as i64);
    let log_strides = |view: &TensorView<'_, f32, 3>| view.strides().map(|stride| stride as i64);
    let ([xa, xb], [la, lb]) = ([strides(&a.0), strides(&b.0)], [log_strides(&a.1), log_strides(&b.1)]);
    AttentionMergeTwoConsts { D: d.next_power_of_two().max(32) }
        .call(
            a.0.elements(),
            b.0.elements(),
            a.1.elements(),
            b.1.elements(),
            out.elements(),
            out_lse.elements(),
            check::size("a", heads)?,
            check::size("a", queries)?,
            check::size("a", d)?,
            xa[0],
            xa[1],
            xa[2],
            xb[0],
            xb[1],
            xb[2],
            la[0],
            la[1],
            lb[0],
            lb[1],
        )
        .grid((queries, heads, batch))
        .num_warps(1)
        .stream(cx.stream())
        .launch(cx.device())
}

/// A row per program; the grid is `[rows, heads, batches]`. Results have no gaps.
#[kernel]
pub(super) fn attention_merge_two<T: Float, const D: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    log_a: Ptr<f32>,
    log_b: Ptr<f32>,
    out: PtrMut<T>,
    lse: PtrMut<f32>,
    heads: i32,
    queries: i32,
    columns: i32,
    a_batch: i64,
    a_head: i64,
    a_row: i64,
    b_batch: i64,
    b_head: i64,
    b_row: i64,
    log_a_batch: i64,
    log_a_head: i64,
    log_b_batch: i64,
    log_b_head: i64,
) {
    let (row, head, batch) = (program_id(0) as i64, program_id(1) as i64, program_id(2) as i64);
    let column = arange(0, D);
    let mask = column < columns;
    let x = load(a + (batch * a_batch + head * a_head + row * a_row) + column, mask = mask) as T::Acc;
    let y = load(b + (batch * b_batch + head * b_head + row * b_row) + column, mask = mask) as T::Acc;
    let log_x = load(log_a + (batch * log_a_batch + head * log_a_head + row)) as T::Acc;
    let log_y = load(log_b + (batch * log_b_batch + head * log_b_head + row)) as T::Acc;
    let peak = maximum(maximum(log_x, log_y), T::Acc::MIN);
    let (weight_x, weight_y) = (exp(log_x - peak), exp(log_y - peak));
    let total = weight_x + weight_y;
    let empty = total == 0.0;
    let divisor = select(empty, 1.0, total);
    // A part that sees nothing may hold anything, which a weight of 0 would not hide.
    let x = select(log_x == T::Acc::NEG_INFINITY, 0.0, x * weight_x);
    let y = select(log_y == T::Acc::NEG_INFINITY, 0.0, y * weight_y);
    let merged = (x + y) / divisor;
    let log = select(empty, T::Acc::NEG_INFINITY, peak + log(divisor));
    let at = (batch * heads as i64 + head) * queries as i64 + row;
    store(out + at * columns as i64 + column, merged as T, mask = mask);
    store(lse + at, log as f32);
}
