//! Attention over queries, keys and values of 8 bits.

use super::device::{Rows, Scores, Seen, bend, finish, hide, seen, unseen};
use super::forward::{ForwardConfig, place_of};
use super::options::{Attention, Places};
use super::shape::{Problem, descriptor, logarithms, tile_dim};
use crate::check::MOST_PROGRAMS;
use crate::config::Key;
use crate::workspace::Memory;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, TensorDesc};

/// How far the exponents of weights are raised: they are up to 2^8 instead of 1, which f8e4m3 has as well, and small ones keep
/// their bits (Shah et al., "FlashAttention-3", 2024).
const RAISED: f64 = 8.0;

/// What scores are multiplied by at least. Products of queries and keys are below 2^26, so that they vanish.
const LEAST_SCALE: f64 = 1e-30;

/// Keys whose places are changed among themselves.
const RUN: usize = 16;

/// Where the key is that a thread multiplies at a place. Of 16 scores of a row a thread has two and, eight further, two more; as
/// factors of 8 bits they stand side by side. With values in the same order weights stay in their threads.
#[device]
fn key_at<const N: usize>(place: Tile<i32, { [N] }>) -> Tile<i32, { [N] }> {
    place - place % 16 + place / 2 % 2 * 8 + place / 4 % 4 * 2 + place % 2
}

/// Weights with their keys in that order.
#[device]
fn in_order_of_factors<T: Num, const M: usize, const N: usize>(weights: Tile<T, { [M, N] }>) -> Tile<T, { [M, N] }> {
    static_assert!(N % RUN == 0);
    reshape(permute(reshape(weights, [M, N / RUN, 2, 4, 2]), [0, 1, 3, 2, 4]), [M, N])
}

/// Writes the values of a head one column after the other, with keys in the order of factors, and zeros behind the last: the
/// instructions of Hopper read both factors along what is summed.
///
/// The grid is `[blocks of keys times blocks of columns, heads, batches]`.
#[kernel(flush = true)]
fn order_values<T: Num, const BN: usize, const BD: usize>(
    v: Ptr<T>,
    out: PtrMut<T>,
    keys: i32,
    columns: i32,
    rows: i32,
    v_batch: i64,
    v_head: i64,
    v_row: i64,
    v_column: i64,
    out_batch: i64,
    out_head: i64,
) {
    let blocks = cdiv(columns, BD);
    let place = program_id(0) / blocks * BN + arange(0, BN);
    let column = program_id(0) % blocks * BD + arange(0, BD);
    let key = key_at(place);
    let (head, batch) = (program_id(1) as i64, program_id(2) as i64);
    let from = (key as i64 * v_row)[(.., None)] + column as i64 * v_column;
    let inside = column < columns;
    let values = load(v + (batch * v_batch + head * v_head) + from, mask = (key < keys)[(.., None)] & inside);
    let to = (column as i64 * rows as i64)[(.., None)] + place as i64;
    let mask = inside[(.., None)] & (place < rows);
    store(out + (batch * out_batch + head * out_head) + to, values.trans(), mask = mask);
}

/// The kernel of [`forward`](super::forward) for factors of 8 bits, with values as [`order_values`] writes them.
///
/// Columns of values are `DV`, and with `TWO` as many again: one after the other, a product has room beside the sums.
#[kernel(flush = true)]
pub(super) fn attention_fp8<
    T: Float,
    O: Float,
    const BM: usize,
    const BN: usize,
    const D: usize,
    const DV: usize,
    const TWO: bool,
    const LOOP: bool,
>(
    q: TensorDesc<T, { [1, 1, BM, D] }>,
    k: TensorDesc<T, { [1, 1, BN, D] }>,
    v: TensorDesc<T, { [1, 1, DV, BN] }>,
    q_scale: Option<Ptr<f32>>,
    k_scale: Option<Ptr<f32>>,
    v_scale: Option<Ptr<f32>>,
    out: PtrMut<O>,
    lse: Option<PtrMut<f32>>,
    batches: i32,
    heads: i32,
    queries: i32,
    keys: i32,
    columns: i32,
    group: i32,
    together: i32,
    scale: f64,
    soft_cap: Option<f64>,
    left: Option<i32>,
    right: i32,
    q_scale_batch: i64,
    q_scale_head: i64,
    k_scale_batch: i64,
    k_scale_head: i64,
    v_scale_batch: i64,
    v_scale_head: i64,
    out_batch: i64,
    out_head: i64,
    out_row: i64,
    lse_batch: i64,
    lse_head: i64,
) {
    let blocks = cdiv(queries, BM);
    let all = heads * batches;
    let out_blocks =
        tensor_desc(out, [batches, heads, queries, columns], [out_batch, out_head, out_row, 1], [1, 1, BM, DV]);
    let turns = if LOOP { cdiv(blocks * all - program_id(0), num_programs(0)) } else { 1 };
    for number in 0..turns {
        let (block, head, batch) = if LOOP {
            let (block, sequence) = place_of(program_id(0) + number * num_programs(0), blocks, all, together);
            (block, sequence % heads, minimum(sequence / heads, batches - 1))
        } else {
            (num_programs(0) - 1 - program_id(0), program_id(1), program_id(2))
        };
        let key_head = head / group;
        let first = block * BM;
        let row = first + arange(0, BM);
        let Seen { at, upto, begin, end, whole_from, whole_to } = seen::<BM, BN>(first, queries, keys, left, right);

        let mut scale = scale as f32;
        if let Some(of) = q_scale {
            scale *= load(of + (batch as i64 * q_scale_batch + key_head as i64 * q_scale_head));
        }
        if let Some(of) = k_scale {
            scale *= load(of + (batch as i64 * k_scale_batch + key_head as i64 * k_scale_head));
        }
        // Hidden scores are minus infinity, which no factor of 0 may multiply.
        scale = maximum(scale, LEAST_SCALE as f64 as f32);
        let query = reshape(q.load([batch, head, first, 0]), [BM, D]);
        let Rows { mut acc, mut peak, mut total } = unseen::<f32, BM, DV>();
        let mut second = zeros::<f32>([BM, DV]);
        #[warp_specialize]
        for start in (begin..end).step_by(BN) {
            let key = start + arange(0, BN);
            let block = reshape(k.load([batch, key_head, start, 0]), [BN, D]);
            let Scores { mut scores, factor, .. } = bend(dot(query, block.trans(), out = f32), scale, soft_cap);
            if start < whole_from || start + BN > whole_to {
                scores = hide(scores, key, at, left, upto);
            }
            // The largest score so far, less what exponents are raised by.
            let higher = maximum(peak, max(scores, axis = 1) * factor - (RAISED as f64 as f32));
            let old = exp2(peak - higher);
            let weights = exp2(scores * factor - higher[(.., None)]);
            total = total * old + sum(weights, axis = 1);
            let weights = in_order_of_factors(weights as T);
            // Sums of a block alone are the tensor cores'.
            let values = reshape(v.load([batch, key_head, 0, start]), [DV, BN]);
            acc = acc * old[(.., None)] + dot(weights, values.trans(), out = f32);
            if TWO {
                let values = reshape(v.load([batch, key_head, DV, start]), [DV, BN]);
                second = second * old[(.., None)] + dot(weights, values.trans(), out = f32);
            }
            peak = higher;
        }
        let unit = if let Some(of) = v_scale {
            load(of + (batch as i64 * v_scale_batch + key_head as i64 * v_scale_head))
        } else {
            1.0
        };
        let (result, log) = finish(Rows { acc, peak, total });
        if let Some(lse) = lse {
            store(lse + (batch as i64 * lse_batch + head as i64 * lse_head) + row, log, mask = row < queries);
        }
        out_blocks.store([batch, head, first, 0], reshape((result * unit) as O, [1, 1, BM, DV]));
        if TWO {
            let (result, _) = finish(Rows { acc: second, peak, total });
            out_blocks.store([batch, head, first, DV], reshape((result * unit) as O, [1, 1, BM, DV]));
        }
    }
}

/// What the elements of factors of 8 bits are multiplied by: each `[batch, kv_heads]`, of any strides, 1 where there is none.
/// They are finite, and those of queries and keys not negative.
///
/// Queries have the scale of the head of keys that they see: so scores of a group have one factor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fp8Scales<'a> {
    /// Of queries.
    pub q: Option<TensorView<'a, f32, 2>>,
    /// Of keys.
    pub k: Option<TensorView<'a, f32, 2>>,
    /// Of values.
    pub v: Option<TensorView<'a, f32, 2>>,
}

/// Softmax attention over queries, keys and values of 8 bits: [`forward`](super::forward) of `q_scale * q`, `k_scale * k` and
/// `v_scale * v`.
///
/// # Shapes
///
/// Those of [`forward`](super::forward); the result is a float of any dtype, `f16` or `bf16` mostly. Packed sequences and a bias
/// are not supported, other [`Attention`] is.
///
/// Values may have any strides. They are copied first, to so many bytes as there are, with keys rounded up to a multiple of 16:
/// one column after the other, as the instructions of Hopper read them.
///
/// # Numerics
///
/// Products of queries and keys are exact; weights are rounded to `f8e4m3`, raised by 2^8 so that small ones keep their bits.
/// Sums of weights are those before they are rounded, in f32. On Hopper the tensor cores keep 13 bits of fraction of what they
/// add up: the products of a score, and the weighted values of a block of keys, which are added to others in f32.
///
/// Shah et al., "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-precision", 2024.
///
/// # Errors
///
/// As [`forward`](super::forward).
pub fn forward_fp8<'a, O: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, F8E4M3, 4>>,
    k: impl Into<TensorView<'a, F8E4M3, 4>>,
    v: impl Into<TensorView<'a, F8E4M3, 4>>,
    scales: Fp8Scales<'a>,
    options: &Attention,
) -> Result<(Tensor<O, 4>, Tensor<f32, 3>)> {
    let (q, k, v) = (q.into(), k.into(), v.into());
    let [batch, heads, queries, _] = q.shape();
    Problem::of(&q, &k, &v)?;
    let mut out = Tensor::empty(cx.device(), [batch, heads, queries, v.shape()[3]])?;
    let mut lse = Tensor::empty(cx.device(), [batch, heads, queries])?;
    forward_fp8_into(cx, q, k, v, scales, options, &mut out, Some(lse.view_mut()))?;
    Ok((out, lse))
}

/// [`forward_fp8`], into tensors of the shapes of its results; `lse` is not written if it is not given. It allocates the copy of
/// the values.
///
/// # Errors
///
/// As [`forward_fp8`].
#[allow(clippy::too_many_arguments)]
pub fn forward_fp8_into<'a, 'b, O: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, F8E4M3, 4>>,
    k: impl Into<TensorView<'a, F8E4M3, 4>>,
    v: impl Into<TensorView<'a, F8E4M3, 4>>,
    scales: Fp8Scales<'a>,
    options: &Attention,
    out: impl Into<TensorViewMut<'b, O, 4>>,
    lse: Option<TensorViewMut<'b, f32, 3>>,
) -> Result<()> {
    let (q, k, v) = (q.into(), k.into(), v.into());
    run(cx, [q, k, v], scales, options, (out.into(), lse), None)
}

/// [`forward_fp8_into`], with a workspace for the copy of the values: it has as many elements as [`forward_fp8_workspace`]
/// says, or more, and begins at a multiple of 16 bytes; what it holds does not matter. Nothing is allocated.
///
/// # Errors
///
/// As [`forward_fp8_into`], and [`tilewright::Error::InvalidTensor`] if the workspace has gaps or is too small.
#[allow(clippy::too_many_arguments)]
pub fn forward_fp8_into_with<'a, 'b, O: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, F8E4M3, 4>>,
    k: impl Into<TensorView<'a, F8E4M3, 4>>,
    v: impl Into<TensorView<'a, F8E4M3, 4>>,
    scales: Fp8Scales<'a>,
    options: &Attention,
    out: impl Into<TensorViewMut<'b, O, 4>>,
    lse: Option<TensorViewMut<'b, f32, 3>>,
    workspace: impl Into<TensorViewMut<'b, F8E4M3, 1>>,
) -> Result<()> {
    let (inputs, workspace) = ([q.into(), k.into(), v.into()], workspace.into());
    run(cx, inputs, scales, options, (out.into(), lse), Some(workspace))
}

/// How many elements of 8 bits [`forward_fp8_into_with`] needs as its workspace for values of this shape, whatever the device:
/// as many as there are, with keys rounded up to a multiple of 16.
pub fn forward_fp8_workspace<'a>(v: impl Into<TensorView<'a, F8E4M3, 4>>) -> usize {
    // More than can be counted is more than any memory has.
    ordered_shape(&v.into()).into_iter().fold(1, usize::saturating_mul)
}

fn run<O: Float>(
    cx: &Context,
    [q, k, v]: [TensorView<'_, F8E4M3, 4>; 3],
    scales: Fp8Scales<'_>,
    options: &Attention,
    (out, lse): (TensorViewMut<'_, O, 4>, Option<TensorViewMut<'_, f32, 3>>),
    workspace: Option<TensorViewMut<'_, F8E4M3, 1>>,
) -> Result<()> {
    let problem = Problem::of(&q, &k, &v)?;
    let mut memory = Memory::of(cx, "workspace", workspace, forward_fp8_workspace(v))?;
    order(cx, &v, TensorViewMut::new(memory.view_mut(), ordered_shape(&v))?)?;
    let values = TensorView::new(memory.view(), ordered_shape(&v))?;
    launch(cx, problem, [q, k, values], scales, options, out, lse)
}

/// The shape of values as [`order_values`] writes them, `[batch, kv_heads, dv, keys]`, with as many keys as fill rows of 16.
fn ordered_shape(v: &TensorView<'_, F8E4M3, 4>) -> [usize; 4] {
    let [batch, kv_heads, keys, dv] = v.shape();
    [batch, kv_heads, dv, keys.checked_next_multiple_of(RUN).unwrap_or(usize::MAX)]
}

/// Launches [`order_values`], into a tensor of that shape.
fn order(cx: &Context, v: &TensorView<'_, F8E4M3, 4>, mut out: TensorViewMut<'_, F8E4M3, 4>) -> Result<()> {
    const BN: usize = 128;
    const BD: usize = 64;
    let ([batch, kv_heads, keys, dv], [.., rows]) = (v.shape(), out.shape());
    if out.is_empty() {
        return Ok(());
    }
    let strides = v.strides().map(|stride| stride as i64);
    let [out_batch, out_head, ..] = out.strides().map(|stride| stride as i64);
    let starts = |size: usize| (0..size).step_by(MOST_PROGRAMS);
    for (batch_from, head_from) in starts(batch).flat_map(|b| starts(kv_heads).map(move |h| (b, h))) {
        let out = out.reborrow().narrow(0, batch_from..batch)?.narrow(1, head_from..kv_heads)?;
        let v = v.narrow(0, batch_from..batch)?.narrow(1, head_from..kv_heads)?;
        OrderValuesConsts { BN, BD }
            .call(
                v.elements(),
                out.elements(),
                check::size("v", keys)?,
                check::size("v", dv)?,
                check::size("v", rows)?,
                strides[0],
                strides[1],
                strides[2],
                strides[3],
                out_batch,
                out_head,
            )
            .grid((
                rows.div_ceil(BN) * dv.div_ceil(BD),
                (kv_heads - head_from).min(MOST_PROGRAMS),
                (batch - batch_from).min(MOST_PROGRAMS),
            ))
            .stream(cx.stream())
            .launch(cx.device())?;
    }
    Ok(())
}

/// A scale's address and strides.
fn scale<'a>(
    name: &str,
    view: Option<TensorView<'a, f32, 2>>,
    shape: [usize; 2],
) -> Result<(MaybeView<'a, f32>, [i64; 2])> {
    let Some(view) = view else { return Ok((MaybeView::from(None), [0; 2])) };
    check::shape(name, view.shape(), shape)?;
    Ok((MaybeView::from(Some(view.elements())), view.strides().map(|stride| stride as i64)))
}

/// The columns of values that are multiplied at once, and whether there are as many again.
pub(super) fn parts(columns: usize) -> (usize, bool) {
    if columns > 128 { (columns / 2, true) } else { (columns, false) }
}

fn launch<O: Float>(
    cx: &Context,
    problem: Problem,
    [q, k, v]: [TensorView<'_, F8E4M3, 4>; 3],
    scales: Fp8Scales<'_>,
    options: &Attention,
    out: TensorViewMut<'_, O, 4>,
    lse: Option<TensorViewMut<'_, f32, 3>>,
) -> Result<()> {
    let Problem { batch, heads, queries, keys, d, dv, group } = problem;
    check::shape("out", out.shape(), [batch, heads, queries, dv])?;
    if let Some(lse) = &lse {
        check::shape("lse", lse.shape(), [batch, heads, queries])?;
    }
    let of_heads = [batch, k.shape()[1]];
    let (q_scale, q_strides) = scale("q_scale", scales.q, of_heads)?;
    let (k_scale, k_strides) = scale("k_scale", scales.k, of_heads)?;
    let (v_scale, v_strides) = scale("v_scale", scales.v, of_heads)?;
    let places = Places::of(options, d)?;
    if out.is_empty() {
        return Ok(());
    }
    let out_strides = problem.last_contiguous("out", &out.as_view())?;
    let (lse, [lse_batch, lse_head, _]) = logarithms(lse)?;
    let dims = (tile_dim(d), tile_dim(dv));
    let plain = options.soft_cap.is_none();
    let config = cx.config(Key::of(F8E4M3::ELEMENT, "scaled"), &[d, queries, keys], || {
        ForwardConfig::rule_fp8(cx.device().compute_capability(), dims.0.max(dims.1), plain)
    })?;
    let blocks = queries.div_ceil(config.block_q);
    let tiles = blocks * heads * batch;
    check::size("q", tiles)?;
    let (grid, together) = config.grid(cx, [blocks, heads, batch]);
    let (part, two) = parts(dims.1);
    AttentionFp8Consts {
        BM: config.block_q,
        BN: config.block_k,
        D: dims.0,
        DV: part,
        TWO: two,
        LOOP: together.is_some(),
    }
    .call(
        &descriptor("q", &q)?,
        &descriptor("k", &k)?,
        &TensorDesc::with_strides(v.elements(), v.shape(), v.strides())?,
        q_scale,
        k_scale,
        v_scale,
        out.elements(),
        lse,
        check::size("q", batch)?,
        check::size("q", heads)?,
        check::size("q", queries)?,
        check::size("k", keys)?,
        check::size("v", dv)?,
        check::size("q", group)?,
        together.unwrap_or(1),
        places.scale,
        options.soft_cap,
        places.left,
        places.right,
        q_strides[0],
        q_strides[1],
        k_strides[0],
        k_strides[1],
        v_strides[0],
        v_strides[1],
        out_strides[0],
        out_strides[1],
        out_strides[2],
        lse_batch,
        lse_head,
    )
    .grid(grid)
    .num_warps(config.num_warps as u32)
    .num_stages(config.num_stages as u32)
    .stream(cx.stream())
    .launch(cx.device())
}
