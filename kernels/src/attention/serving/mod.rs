//! Attention of a few queries over the keys of caches.

pub(super) mod kernels;

use super::merge::merge_into;
use super::options::{Attention, FAR, Places};
use super::shape::{MAX_HEAD, contiguous_last, tile_dim};
use crate::config::config;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use kernels::AttentionCachedConsts;
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, TensorDesc, View};

config! {
    /// How [`decode`] and [`paged_decode`] run; sizes are those of heads, rows (queries times heads of a group) and keys.
    "attention_decode": pub struct DecodeConfig {
        /// Rows of a program.
        pub block_rows,
        /// Keys that it takes at a time.
        pub block_k,
        /// Into how many parts the keys of a sequence are divided.
        pub parts,
        /// Warps of a program.
        pub num_warps,
        /// Blocks of keys and values that are on their way at once.
        pub num_stages,
    }
}

impl DecodeConfig {
    /// `programs` are those of one part.
    pub(super) fn rule(device: &Device, d: usize, rows: usize, keys: usize, programs: usize) -> Self {
        let block_rows = rows.next_power_of_two().clamp(16, 64);
        let (block_k, num_warps) = if d <= 128 { (64, if block_rows > 32 { 8 } else { 4 }) } else { (32, 8) };
        if !device.is_cuda() {
            return DecodeConfig { block_rows: 16, block_k: 32, parts: 2, num_warps: 4, num_stages: 2 };
        }
        // Twice as many programs as multiprocessors, of at least four blocks each.
        let wanted = (2 * device.multiprocessor_count()).div_ceil(programs.max(1));
        let parts = wanted.min(keys / (4 * block_k)).clamp(1, 128);
        DecodeConfig { block_rows, block_k, parts, num_warps, num_stages: 3 }
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

/// Keys and values in pages, of sequences that grow.
///
/// Sequence `i` has `lengths[i]` keys, the first of them in page `table[i][0]`, the next page of them in `table[i][1]`, and so
/// on. What lies behind a sequence's last key is not read, but for numbers of pages, which need not be valid.
#[derive(Debug, Clone, Copy)]
pub struct PagedCache<'a, K: DType> {
    /// `[pages, page size, kv_heads, d]`, of the queries' dtype or an 8-bit float. The last dimension is contiguous.
    pub k: TensorView<'a, K, 4>,
    /// `[pages, page size, kv_heads, dv]`.
    pub v: TensorView<'a, K, 4>,
    /// `[sequences, most pages of one]`, the last dimension contiguous.
    pub table: TensorView<'a, i32, 2>,
    /// `[sequences]`.
    pub lengths: TensorView<'a, i32, 1>,
    /// What keys are multiplied by: one number, or one for each head.
    pub k_scale: Option<TensorView<'a, f32, 1>>,
    /// What values are multiplied by.
    pub v_scale: Option<TensorView<'a, f32, 1>>,
}

/// Keys and values wherever they are.
struct Keys<'a, K: DType> {
    k: View<'a, K>,
    v: View<'a, K>,
    /// Strides of pages (or sequences), heads and rows.
    k_strides: [i64; 3],
    v_strides: [i64; 3],
    table: Option<TensorView<'a, i32, 2>>,
    lengths: Option<TensorView<'a, i32, 1>>,
    k_scale: Option<TensorView<'a, f32, 1>>,
    v_scale: Option<TensorView<'a, f32, 1>>,
    sequences: usize,
    heads: usize,
    /// The most keys of a sequence.
    most: usize,
    pages: usize,
    page_size: usize,
    d: usize,
    dv: usize,
}

impl<'a, K: DType> Keys<'a, K> {
    /// Keys and values `[batch, kv_heads, keys, d]`.
    fn dense(
        k: TensorView<'a, K, 4>,
        v: TensorView<'a, K, 4>,
        lengths: Option<TensorView<'a, i32, 1>>,
    ) -> Result<Self> {
        let ([batch, heads, most, d], dv) = (k.shape(), v.shape()[3]);
        check::shape("v", v.shape(), [batch, heads, most, dv])?;
        let strides = |view: &TensorView<'_, K, 4>| {
            let [batch, head, row, _] = view.strides().map(|stride| stride as i64);
            [batch, head, row]
        };
        Keys {
            k: k.elements(),
            v: v.elements(),
            k_strides: strides(&k),
            v_strides: strides(&v),
            table: None,
            lengths,
            k_scale: None,
            v_scale: None,
            sequences: batch,
            heads,
            most,
            pages: 1,
            page_size: 1,
            d,
            dv,
        }
        .checked(&k, &v)
    }

    fn paged(cache: &PagedCache<'a, K>) -> Result<Self> {
        let ([pages, page_size, heads, d], dv) = (cache.k.shape(), cache.v.shape()[3]);
        check::shape("v", cache.v.shape(), [pages, page_size, heads, dv])?;
        let [sequences, most_pages] = cache.table.shape();
        contiguous_last("table", &cache.table)?;
        if page_size == 0 || (pages == 0 && most_pages > 0) {
            return Err(check::invalid("k", "has no page", "make at least one page of at least one key"));
        }
        let strides = |view: &TensorView<'_, K, 4>| {
            let [page, row, head, _] = view.strides().map(|stride| stride as i64);
            [page, head, row]
        };
        Keys {
            k: cache.k.elements(),
            v: cache.v.elements(),
            k_strides: strides(&cache.k),
            v_strides: strides(&cache.v),
            table: Some(cache.table),
            lengths: Some(cache.lengths),
            k_scale: cache.k_scale,
            v_scale: cache.v_scale,
            sequences,
            heads,
            most: most_pages.saturating_mul(page_size),
            pages,
            page_size,
            d,
            dv,
        }
        .checked(&cache.k, &cache.v)
    }

    fn checked(self, k: &TensorView<'_, K, 4>, v: &TensorView<'_, K, 4>) -> Result<Self> {
        contiguous_last("k", k)?;
        contiguous_last("v", v)?;
        for (name, size) in [("k", self.d), ("v", self.dv)] {
            if size == 0 || size > MAX_HEAD {
                let problem = format!("has heads of {size} elements");
                return Err(check::invalid(name, problem, format!("heads have 1 to {MAX_HEAD}")));
            }
        }
        if self.most >= FAR as usize {
            let problem = format!("has room for {} keys in a sequence", self.most);
            return Err(check::invalid("k", problem, format!("there are at most {FAR}")));
        }
        if let Some(lengths) = &self.lengths {
            check::shape("lengths", lengths.shape(), [self.sequences])?;
            contiguous_last("lengths", lengths)?;
        }
        for (name, scale) in [("k_scale", &self.k_scale), ("v_scale", &self.v_scale)] {
            if let Some(scale) = scale
                && scale.shape() != [1]
            {
                check::shape(name, scale.shape(), [self.heads])?;
            }
        }
        Ok(self)
    }

    /// Pages as tensors, where blocks of them can be copied as they are and feed products of warp groups.
    fn blocks<T: Float>(&self, blocks: &Blocks) -> Result<Option<(TensorDesc<'a, K, 4>, TensorDesc<'a, K, 4>)>> {
        if self.table.is_none()
            || K::ELEMENT != T::ELEMENT
            || blocks.rows < blocks.fed_from
            || !self.page_size.is_multiple_of(blocks.keys)
        {
            return Ok(None);
        }
        let described = |view: View<'a, K>, [page, head, row]: [i64; 3], columns: usize| {
            let shape = [self.pages, self.heads, self.page_size, columns];
            TensorDesc::with_strides(view, shape, [page as usize, head as usize, row as usize, 1])
        };
        Ok(Some((described(self.k, self.k_strides, self.d)?, described(self.v, self.v_strides, self.dv)?)))
    }

    /// The heads of queries that share one of keys.
    fn group(&self, heads: usize) -> Result<usize> {
        if heads == 0 {
            return Ok(1);
        }
        if self.heads == 0 || !heads.is_multiple_of(self.heads) {
            let hint = format!("the {heads} heads of `q` must be a multiple of them");
            return Err(check::invalid("k", format!("has {} heads", self.heads), hint));
        }
        Ok(heads / self.heads)
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
    lse: TensorViewMut<'_, f32, 4>,
) -> Result<()> {
    let (places, group) = (Places::of(options, keys.d)?, keys.group(queries.heads)?);
    let rows = (queries.most * group).div_ceil(blocks.rows);
    let (mut to, mut lse_to) = (out.strides().map(|stride| stride as i64), lse.strides().map(|stride| stride as i64));
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
        lse.elements(),
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
    keys: Keys<'_, K>,
    options: &Attention,
) -> Decoded<T> {
    let [batch, heads, most, d] = q.shape();
    check::shape("q", q.shape(), [keys.sequences, heads, most, keys.d])?;
    contiguous_last("q", q)?;
    let (group, dv) = (keys.group(heads)?, keys.dv);
    Places::of(options, d)?;
    let mut out = Tensor::zeros(cx.device(), [batch, heads, most, dv])?;
    let mut lse = Tensor::zeros(cx.device(), [batch, heads, most])?;
    if out.is_empty() {
        return Ok((out, lse));
    }
    let rows = most * group;
    let config = cx.config(T::ELEMENT, &[d, rows, keys.most], || {
        let blocks = rows.div_ceil(rows.next_power_of_two().clamp(16, 64));
        DecodeConfig::rule(cx.device(), d.max(dv), rows, keys.most, blocks * keys.heads * batch)
    })?;
    let [sequence, head, row, _] = q.strides().map(|stride| stride as i64);
    let queries = Queries { q: q.elements(), strides: [sequence, head, row], starts: None, heads, most };
    let DecodeConfig { block_rows, block_k, parts, num_warps, num_stages } = config;
    let blocks = Blocks {
        rows: block_rows,
        keys: block_k,
        parts: parts.max(1),
        num_warps,
        num_stages,
        fed_from: fed_from(cx.device()),
    };
    if blocks.parts == 1 {
        let (to, lse_to) = (out.view_mut().reshape([1, batch, heads, most, dv])?, lse.view_mut());
        launch(cx, &queries, &keys, options, &blocks, to, lse_to.reshape([1, batch, heads, most])?)?;
        return Ok((out, lse));
    }
    let mut sums = Tensor::<f32, 5>::zeros(cx.device(), [parts, batch, heads, most, dv])?;
    let mut logs = Tensor::zeros(cx.device(), [parts, batch, heads, most])?;
    launch(cx, &queries, &keys, options, &blocks, sums.view_mut(), logs.view_mut())?;
    merge_into(cx, &sums, &logs, &mut out, &mut lse)?;
    Ok((out, lse))
}

/// [`forward`](super::forward) for few queries and many keys: the keys of a sequence are divided among programs, whose results
/// are [merged](super::merge).
///
/// # Shapes
///
/// Those of [`forward`](super::forward): `q` is `[batch, heads, queries, d]`, `k` `[batch, kv_heads, keys, d]` and `v`
/// `[batch, kv_heads, keys, dv]`. Of each sequence the first `lengths[batch]` keys count, `lengths` being `[batch]`, and all
/// of them without it. Queries are the last of their sequence: with [`Attention::causal`] the last query sees all keys.
///
/// It allocates the results, and `4 * parts * batch * heads * queries * (dv + 1)` bytes for those of parts, which are f32.
///
/// Dao, Haziza, Massa and Sizov, "Flash-Decoding for long-context inference", 2023.
///
/// # Errors
///
/// As [`forward`](super::forward).
pub fn decode<'a, T: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    lengths: Option<TensorView<'a, i32, 1>>,
    options: &Attention,
) -> Decoded<T> {
    decode_keys(cx, &q.into(), Keys::dense(k.into(), v.into(), lengths)?, options)
}

/// [`decode`] over a [`PagedCache`]: `q` is `[sequences, heads, queries, d]`, the last queries of sequences whose keys are in
/// the cache already.
///
/// Pages of a multiple of 64 keys (32 where heads have more than 128 elements) are read with one number for a block.
///
/// # Errors
///
/// As [`forward`](super::forward).
pub fn paged_decode<'a, T: Float, K: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    cache: &PagedCache<'_, K>,
    options: &Attention,
) -> Decoded<T> {
    decode_keys(cx, &q.into(), Keys::paged(cache)?, options)
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
/// As [`forward`](super::forward).
pub fn paged_prefill<'a, T: Float, K: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 3>>,
    q_starts: impl Into<TensorView<'a, i32, 1>>,
    longest: usize,
    cache: &PagedCache<'_, K>,
    options: &Attention,
) -> Result<(Tensor<T, 3>, Tensor<f32, 2>)> {
    let (q, starts, keys) = (q.into(), q_starts.into(), Keys::paged(cache)?);
    let ([tokens, heads, d], dv) = (q.shape(), keys.dv);
    check::shape("q", q.shape(), [tokens, heads, keys.d])?;
    check::shape("q_starts", starts.shape(), [keys.sequences + 1])?;
    contiguous_last("q", &q)?;
    contiguous_last("q_starts", &starts)?;
    let group = keys.group(heads)?;
    Places::of(options, d)?;
    let mut out = Tensor::zeros(cx.device(), [tokens, heads, dv])?;
    let mut lse = Tensor::zeros(cx.device(), [heads, tokens])?;
    let most = longest.min(tokens);
    if out.is_empty() || most == 0 || keys.sequences == 0 {
        return Ok((out, lse));
    }
    let config = cx.config(T::ELEMENT, &[d, most * group, keys.most], || {
        PrefillConfig::rule(cx.device(), 8 * size_of::<T>(), tile_dim(d.max(dv)))
    })?;
    let [row, head, _] = q.strides().map(|stride| stride as i64);
    let queries = Queries { q: q.elements(), strides: [0, head, row], starts: Some(starts), heads, most };
    let PrefillConfig { block_rows, block_k, num_warps } = config;
    let blocks =
        Blocks { rows: block_rows, keys: block_k, parts: 1, num_warps, num_stages: 2, fed_from: fed_from(cx.device()) };
    let to = out.view_mut().permute([1, 0, 2])?.reshape([1, 1, heads, tokens, dv])?;
    let lse_to = lse.view_mut().reshape([1, 1, heads, tokens])?;
    launch(cx, &queries, &keys, options, &blocks, to, lse_to)?;
    Ok((out, lse))
}
