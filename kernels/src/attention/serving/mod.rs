//! Attention of a few queries over the keys of caches.

pub(super) mod kernels;
mod keys;

use super::merge::merge_into;
use super::options::{Attention, FAR, Places};
use super::parts::{self, Partial, one_part};
use super::shape::{contiguous_last, logarithms, tile_dim};
use crate::config::config;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use kernels::AttentionCachedConsts;
use keys::Keys;
pub use keys::PagedCache;
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, View};

config! {
    /// How [`decode`] and [`paged_decode`] run; sizes are those of heads, rows (queries times heads of a group) and keys.
    "attention_decode": pub struct DecodeConfig {
        /// Rows of a program.
        pub block_rows,
        /// Keys that it takes at a time.
        pub block_k,
        /// Into how many parts the keys of a sequence are divided; those of f64 are in one.
        pub parts or 0,
        /// Warps of a program.
        pub num_warps,
        /// Blocks of keys and values that are on their way at once.
        pub num_stages,
    }
}

impl DecodeConfig {
    /// `programs` are those of one part, `by_lanes` says whether keys are [read in the order of lanes](order_of_lanes).
    pub(super) fn rule(device: &Device, by_lanes: bool, d: usize, rows: usize, keys: usize, programs: usize) -> Self {
        let block_rows = rows.min(64).next_power_of_two().max(16);
        if !device.is_cuda() {
            return DecodeConfig { block_rows: 16, block_k: 32, parts: 2, num_warps: 4, num_stages: 2 };
        }
        let [block_k, num_warps, num_stages] = Self::blocks(device.compute_capability(), by_lanes, d, block_rows);
        // Up to two programs for each multiprocessor, which run at once, of at least so many keys each.
        let least = if d <= 128 { 256 } else { 128 };
        let wanted = 2 * device.multiprocessor_count() / programs.max(1);
        let parts = wanted.min(keys / least).clamp(1, 128);
        DecodeConfig { block_rows, block_k, parts, num_warps, num_stages }
    }

    /// Keys of a block, warps and stages.
    pub(super) fn blocks(capability: Option<(u32, u32)>, by_lanes: bool, d: usize, block_rows: usize) -> [usize; 3] {
        match capability {
            // Where two programs have room for that in shared memory, each has 64 KiB of keys and values on their way. On an
            // H100, 16 rows with heads of 128 read at 2.85 TB/s so, and with 3 stages of 64 keys at 2.1 TB/s.
            Some((9 | 10, _)) if by_lanes && d <= 128 && block_rows <= 32 => {
                let block_k = 2048 / block_rows;
                [block_k, 4, ((64 << 10) / (2 * block_k * tile_dim(d))).min(4)]
            }
            _ => {
                let (block_k, warps) = if d <= 128 { (64, if block_rows > 16 { 8 } else { 4 }) } else { (32, 8) };
                [block_k, warps, if matches!(capability, Some((9.., _))) { 3 } else { 2 }]
            }
        }
    }
}

config! {
    /// How [`paged_prefill`] runs; sizes are those of heads, rows (the longest sequence's queries times heads of a group) and
    /// keys.
    "attention_prefill": pub struct PrefillConfig {
        /// Rows of a program.
        pub block_rows,
        /// Keys that it takes at a time.
        pub block_k,
        /// Warps of a program.
        pub num_warps,
    }
}

impl PrefillConfig {
    pub(super) fn rule(device: &Device, bits: usize, d: usize) -> Self {
        let [block_rows, block_k, num_warps] = match (device.compute_capability(), bits) {
            (None, _) => [32, 32, 4],
            (Some((9.., _)), 16) if d <= 128 => [128, 64, 8],
            (_, 16) => [64, 32, 8],
            _ => [32, 16, 8],
        };
        PrefillConfig { block_rows, block_k, num_warps }
    }
}

/// The queries of a launch, and where its results go.
struct Queries<'a, T: DType> {
    q: View<'a, T>,
    /// Strides of sequences, heads and rows.
    strides: [i64; 3],
    starts: Option<TensorView<'a, i32, 1>>,
    heads: usize,
    /// The most queries of a sequence.
    most: usize,
}

/// How a launch divides its work.
struct Blocks {
    rows: usize,
    keys: usize,
    parts: usize,
    num_warps: usize,
    num_stages: usize,
    /// From how many rows on blocks come by tensor copies.
    fed_from: usize,
}

/// Elements of a key of 8 bits that four lanes read at once, 16 bytes each.
pub(super) const LANES: usize = 64;

/// The elements of heads of `d` in which keys of 8 bits are in the order of the lanes that read them: [`LANES`], if they divide
/// a tile's heads. Otherwise the order is that of memory.
pub(super) fn order_of_lanes(d: usize) -> usize {
    if tile_dim(d).is_multiple_of(LANES) { LANES } else { 16 }
}

/// The fewest rows that warp groups multiply, where there are any.
fn fed_from(device: &Device) -> usize {
    match device.compute_capability() {
        None => 32,
        Some((9.., _)) => 64,
        Some(_) => usize::MAX,
    }
}

fn launch<T: Float, K: Float, O: Float>(
    cx: &Context,
    queries: &Queries<'_, T>,
    keys: &Keys<'_, K>,
    options: &Attention,
    blocks: &Blocks,
    out: TensorViewMut<'_, O, 5>,
    lse: Option<TensorViewMut<'_, f32, 4>>,
) -> Result<()> {
    let (places, group) = (Places::of(options, keys.d)?, keys.group(queries.heads)?);
    let rows = (queries.most * group).div_ceil(blocks.rows);
    let mut to = out.strides().map(|stride| stride as i64);
    let (lse, mut lse_to) = logarithms(lse)?;
    if queries.starts.is_some() {
        // Sequences follow each other in one dimension.
        (to[1], lse_to[1]) = (0, 0);
    }
    let table_stride = keys.table.map_or(0, |table| table.strides()[0] as i64);
    let each_head = |scale: Option<TensorView<'_, f32, 1>>| {
        scale.map_or(0, |scale| if scale.shape() == [1] { 0 } else { scale.strides()[0] as i32 })
    };
    let described = keys.blocks::<T>(blocks)?;
    AttentionCachedConsts {
        BM: blocks.rows,
        BN: blocks.keys,
        D: tile_dim(keys.d),
        DV: tile_dim(keys.dv),
        PAGE: keys.page_size,
        RUN: order_of_lanes(keys.d),
    }
    .call(
        queries.q,
        keys.k,
        keys.v,
        described.as_ref().map(|(k, _)| k),
        described.as_ref().map(|(_, v)| v),
        MaybeView::from(keys.table.map(|table| table.elements())),
        MaybeView::from(keys.lengths.map(|lengths| lengths.elements())),
        MaybeView::from(queries.starts.map(|starts| starts.elements())),
        MaybeView::from(keys.k_scale.map(|scale| scale.elements())),
        MaybeView::from(keys.v_scale.map(|scale| scale.elements())),
        out.elements(),
        lse,
        check::size("q", blocks.parts)?,
        check::size("q", queries.most)?,
        check::size("k", keys.most)?,
        check::size("k", keys.pages)?,
        check::size("k", keys.d)?,
        check::size("v", keys.dv)?,
        check::size("q", group)?,
        places.scale,
        options.soft_cap,
        places.left.unwrap_or(FAR),
        places.right,
        each_head(keys.k_scale),
        each_head(keys.v_scale),
        queries.strides[0],
        queries.strides[1],
        queries.strides[2],
        keys.k_strides[0],
        keys.k_strides[1],
        keys.k_strides[2],
        keys.v_strides[0],
        keys.v_strides[1],
        keys.v_strides[2],
        table_stride,
        to[0],
        to[1],
        to[2],
        to[3],
        lse_to[0],
        lse_to[1],
        lse_to[2],
    )
    .grid((rows * blocks.parts, keys.heads, keys.sequences))
    .num_warps(blocks.num_warps as u32)
    .num_stages(blocks.num_stages as u32)
    .stream(cx.stream())
    .launch(cx.device())
}

/// The results of [`decode`].
type Decoded<T> = Result<(Tensor<T, 4>, Tensor<f32, 3>)>;

fn decode_keys<T: Float, K: Float>(
    cx: &Context,
    q: &TensorView<'_, T, 4>,
    keys: &Keys<'_, K>,
    options: &Attention,
) -> Decoded<T> {
    let [batch, heads, most, _] = q.shape();
    let mut workspace = Tensor::empty(cx.device(), [decode_keys_workspace(cx, q, keys)?])?;
    let mut out = Tensor::empty(cx.device(), [batch, heads, most, keys.dv])?;
    let mut lse = Tensor::empty(cx.device(), [batch, heads, most])?;
    decode_keys_into(cx, q, keys, options, workspace.view_mut(), out.view_mut(), Some(lse.view_mut()))?;
    Ok((out, lse))
}

fn decode_keys_workspace<T: Float, K: Float>(
    cx: &Context,
    q: &TensorView<'_, T, 4>,
    keys: &Keys<'_, K>,
) -> Result<usize> {
    let [batch, heads, most, _] = q.shape();
    let group = keys.group_of(q)?;
    if q.is_empty() {
        return Ok(0);
    }
    Ok(parts::workspace(decode_config(cx, q, keys, group)?.parts, [batch, heads, most, keys.dv]))
}

/// The configuration for queries of which `group` heads share one of keys. It has at least one part, and one of f64.
fn decode_config<T: Float, K: Float>(
    cx: &Context,
    q: &TensorView<'_, T, 4>,
    keys: &Keys<'_, K>,
    group: usize,
) -> Result<DecodeConfig> {
    let ([batch, _, most, d], dv) = (q.shape(), keys.dv);
    let (rows, programs) = (most.saturating_mul(group), keys.heads.saturating_mul(batch));
    let key = keys.key(T::ELEMENT, programs);
    let config = cx.config(key, &[d, rows, keys.most], || {
        let blocks = rows.div_ceil(rows.min(64).next_power_of_two().max(16));
        let by_lanes = K::ELEMENT.size() == 1 && T::ELEMENT.size() == 2 && order_of_lanes(d) == LANES;
        DecodeConfig::rule(cx.device(), by_lanes, d.max(dv), rows, keys.most, blocks.saturating_mul(programs))
    })?;
    Ok(DecodeConfig { parts: parts::of::<T>(config.parts), ..config })
}

fn decode_keys_into<T: Float, K: Float>(
    cx: &Context,
    q: &TensorView<'_, T, 4>,
    keys: &Keys<'_, K>,
    options: &Attention,
    workspace: TensorViewMut<'_, f32, 1>,
    out: TensorViewMut<'_, T, 4>,
    lse: Option<TensorViewMut<'_, f32, 3>>,
) -> Result<()> {
    let ([batch, heads, most, d], dv) = (q.shape(), keys.dv);
    let group = keys.group_of(q)?;
    check::shape("out", out.shape(), [batch, heads, most, dv])?;
    if let Some(lse) = &lse {
        check::shape("lse", lse.shape(), [batch, heads, most])?;
        contiguous_last("lse", &lse.as_view())?;
    }
    contiguous_last("q", q)?;
    contiguous_last("out", &out.as_view())?;
    Places::of(options, d)?;
    if out.is_empty() {
        return Ok(());
    }
    let [sequence, head, row, _] = q.strides().map(|stride| stride as i64);
    let queries = Queries { q: q.elements(), strides: [sequence, head, row], starts: None, heads, most };
    let DecodeConfig { block_rows, block_k, parts, num_warps, num_stages } = decode_config(cx, q, keys, group)?;
    let fed_from = fed_from(cx.device());
    let blocks = Blocks { rows: block_rows, keys: block_k, parts, num_warps, num_stages, fed_from };
    let Some(Partial { mut sums, mut logs }) = Partial::of(workspace, parts, [batch, heads, most, dv])? else {
        return launch(cx, &queries, keys, options, &blocks, one_part(out)?, lse.map(one_part).transpose()?);
    };
    launch(cx, &queries, keys, options, &blocks, sums.reborrow(), Some(logs.reborrow()))?;
    merge_into(cx, sums.as_view(), logs.as_view(), out, lse)
}

/// [`forward`](super::forward) for few queries and many keys: the keys of a sequence are divided among programs, whose results
/// are [merged](super::merge).
///
/// # Shapes
///
/// Those of [`forward`](super::forward): `q` is `[batch, heads, queries, d]`, `k` `[batch, kv_heads, keys, d]` and `v`
/// `[batch, kv_heads, keys, dv]`. Of each sequence the first `lengths[batch]` keys count, `lengths` being `[batch]`, and all
/// of them without it; a length above `keys` counts as that, one below 0 as 0. Queries are the last of their sequence: with
/// [`Attention::causal`] the last query sees all keys.
///
/// It allocates the results, and [`decode_into`]'s workspace.
///
/// Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context inference", 2023.
///
/// # Errors
///
/// As [`forward`](super::forward), and [`Error::InvalidGrid`] of more than 65,535 heads or sequences.
pub fn decode<'a, T: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    lengths: Option<TensorView<'a, i32, 1>>,
    options: &Attention,
) -> Decoded<T> {
    decode_keys(cx, &q.into(), &Keys::dense(k.into(), v.into(), lengths)?, options)
}

/// [`decode`], into tensors of the shapes of its results; `lse` is not written if it is not given. It allocates nothing.
///
/// `workspace` is without gaps and has as many elements as [`decode_workspace`] says, or more; what it holds does not matter.
///
/// # Errors
///
/// As [`decode`], and [`Error::InvalidTensor`] if the workspace has gaps or is too small.
#[allow(clippy::too_many_arguments)]
pub fn decode_into<'a, 'b, T: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    lengths: Option<TensorView<'a, i32, 1>>,
    options: &Attention,
    workspace: impl Into<TensorViewMut<'b, f32, 1>>,
    out: impl Into<TensorViewMut<'b, T, 4>>,
    lse: Option<TensorViewMut<'b, f32, 3>>,
) -> Result<()> {
    let keys = Keys::dense(k.into(), v.into(), lengths)?;
    decode_keys_into(cx, &q.into(), &keys, options, workspace.into(), out.into(), lse)
}

/// How many f32 [`decode_into`] needs as its workspace, with the same context and tensors of these shapes: the results of parts
/// are `parts * batch * heads * queries * (dv + 1)`, with the parts of the [`DecodeConfig`]. One part needs none.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit, [`Error::Tuning`] of a table's row that does not.
pub fn decode_workspace<'a, T: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
) -> Result<usize> {
    decode_keys_workspace(cx, &q.into(), &Keys::dense(k.into(), v.into(), None)?)
}

/// [`decode`] over a [`PagedCache`]: `q` is `[sequences, heads, queries, d]`, the last queries of sequences whose keys are in
/// the cache already.
///
/// Pages of a multiple of 64 keys (32 where heads have more than 128 elements, and mostly 128 for keys of 8 bits) are read with
/// one number for a block.
///
/// It allocates the results, and [`paged_decode_into`]'s workspace.
///
/// # Errors
///
/// As [`forward`](super::forward), and [`Error::InvalidGrid`] of more than 65,535 heads or sequences.
pub fn paged_decode<'a, T: Float, K: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    cache: &PagedCache<'_, K>,
    options: &Attention,
) -> Decoded<T> {
    decode_keys(cx, &q.into(), &Keys::paged(cache)?, options)
}

/// [`paged_decode`], into tensors of the shapes of its results; `lse` is not written if it is not given. It allocates nothing.
///
/// `workspace` is without gaps and has as many elements as [`paged_decode_workspace`] says, or more; what it holds does not
/// matter.
///
/// # Errors
///
/// As [`paged_decode`], and [`Error::InvalidTensor`] if the workspace has gaps or is too small.
pub fn paged_decode_into<'a, 'b, T: Float, K: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    cache: &PagedCache<'_, K>,
    options: &Attention,
    workspace: impl Into<TensorViewMut<'b, f32, 1>>,
    out: impl Into<TensorViewMut<'b, T, 4>>,
    lse: Option<TensorViewMut<'b, f32, 3>>,
) -> Result<()> {
    decode_keys_into(cx, &q.into(), &Keys::paged(cache)?, options, workspace.into(), out.into(), lse)
}

/// How many f32 [`paged_decode_into`] needs as its workspace: as [`decode_workspace`]. Lengths of sequences do not matter, the
/// room that the table has for them does.
///
/// # Errors
///
/// As [`decode_workspace`].
pub fn paged_decode_workspace<'a, T: Float, K: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    cache: &PagedCache<'_, K>,
) -> Result<usize> {
    decode_keys_workspace(cx, &q.into(), &Keys::paged(cache)?)
}

/// Attention of new tokens over a [`PagedCache`] that has their keys already.
///
/// # Shapes
///
/// `q` is `[tokens, heads, d]`: the queries of sequence `i` are `q_starts[i]..q_starts[i + 1]`, at most `longest` of them, and
/// they are the last of its `lengths[i]` tokens. Results are `[tokens, heads, dv]`, and `[heads, tokens]` for the logarithms
/// of sums.
///
/// # Errors
///
/// As [`forward`](super::forward), and [`Error::InvalidGrid`] of more than 65,535 heads or sequences.
pub fn paged_prefill<'a, T: Float, K: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 3>>,
    q_starts: impl Into<TensorView<'a, i32, 1>>,
    longest: usize,
    cache: &PagedCache<'_, K>,
    options: &Attention,
) -> Result<(Tensor<T, 3>, Tensor<f32, 2>)> {
    let (q, keys) = (q.into(), Keys::paged(cache)?);
    let [tokens, heads, _] = q.shape();
    check::shape("q", q.shape(), [tokens, heads, keys.d])?;
    keys.group(heads)?;
    let mut out = Tensor::zeros(cx.device(), [tokens, heads, keys.dv])?;
    let mut lse = Tensor::zeros(cx.device(), [heads, tokens])?;
    paged_prefill_into(cx, q, q_starts, longest, cache, options, &mut out, Some(lse.view_mut()))?;
    Ok((out, lse))
}

/// [`paged_prefill`], into tensors of the shapes of its results. Rows of tokens that no sequence has are left as they are, and
/// `lse` is not written if it is not given.
///
/// # Errors
///
/// As [`forward`](super::forward), and [`Error::InvalidGrid`] of more than 65,535 heads or sequences.
#[allow(clippy::too_many_arguments)]
pub fn paged_prefill_into<'a, 'b, T: Float, K: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 3>>,
    q_starts: impl Into<TensorView<'a, i32, 1>>,
    longest: usize,
    cache: &PagedCache<'_, K>,
    options: &Attention,
    out: impl Into<TensorViewMut<'b, T, 3>>,
    lse: Option<TensorViewMut<'b, f32, 2>>,
) -> Result<()> {
    let (q, starts, keys, out) = (q.into(), q_starts.into(), Keys::paged(cache)?, out.into());
    let ([tokens, heads, d], dv) = (q.shape(), keys.dv);
    check::shape("q", q.shape(), [tokens, heads, keys.d])?;
    check::shape("q_starts", starts.shape(), [keys.sequences + 1])?;
    check::shape("out", out.shape(), [tokens, heads, dv])?;
    if let Some(lse) = &lse {
        check::shape("lse", lse.shape(), [heads, tokens])?;
        contiguous_last("lse", &lse.as_view())?;
    }
    contiguous_last("q", &q)?;
    contiguous_last("q_starts", &starts)?;
    contiguous_last("out", &out.as_view())?;
    let group = keys.group(heads)?;
    Places::of(options, d)?;
    let most = longest.min(tokens);
    if out.is_empty() || most == 0 || keys.sequences == 0 {
        return Ok(());
    }
    let key = keys.key(T::ELEMENT, keys.heads * keys.sequences);
    let config = cx.config(key, &[d, most * group, keys.most], || {
        PrefillConfig::rule(cx.device(), 8 * size_of::<T>(), tile_dim(d.max(dv)))
    })?;
    let [row, head, _] = q.strides().map(|stride| stride as i64);
    let queries = Queries { q: q.elements(), strides: [0, head, row], starts: Some(starts), heads, most };
    let PrefillConfig { block_rows, block_k, num_warps } = config;
    let fed_from = fed_from(cx.device());
    let blocks = Blocks { rows: block_rows, keys: block_k, parts: 1, num_warps, num_stages: 2, fed_from };
    let to = out.permute([1, 0, 2])?.reshape([1, 1, heads, tokens, dv])?;
    let lse = lse.map(|lse| lse.reshape([1, 1, heads, tokens])).transpose()?;
    launch(cx, &queries, &keys, options, &blocks, to, lse)
}
