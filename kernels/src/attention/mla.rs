//! Multi-head latent attention over a cache, with absorbed projections.

use super::device::{Rows, Scores, bend, finish};
use super::merge::merge_into;
use super::options::{Attention, FAR, MOST, Places};
use super::parts::{self, Partial, one_part};
use super::shape::{contiguous_last, logarithms};
use crate::config::{Key, config};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Result, TensorDesc};

config! {
    /// How [`mla_decode`] runs; sizes are those of the latent part, heads and keys.
    "attention_mla": pub struct MlaConfig {
        /// Heads of a program.
        pub block_heads,
        /// Keys that it takes at a time: a power of two that divides the page size. Rows of tables where it does not are
        /// passed over.
        pub block_k,
        /// Into how many parts the keys of a sequence are divided; those of f64 are in one.
        pub parts or 0,
        /// Warps of a program.
        pub num_warps,
        /// Blocks of keys that are on their way at once.
        pub num_stages,
    }
}

impl MlaConfig {
    /// `programs` are those of one part, if each has 64 heads. A key has so many latent elements, elements of position, and bytes in
    /// each of them; whether tensor copies can bring them is said too.
    fn rule(device: &Device, key: ([usize; 3], bool), keys: usize, page: usize, programs: usize) -> Self {
        let ([rank, positions, element], is_copied) = key;
        let bytes = (rank + positions) * element;
        // The largest power of two that divides the page size, up to a limit.
        let block = |most: usize| most.min(1 << page.trailing_zeros());
        if !device.is_cuda() {
            return MlaConfig { block_heads: 16, block_k: block(16), parts: 2, num_warps: 4, num_stages: 1 };
        }
        let hopper = device.compute_capability().is_some_and(|(major, _)| major >= 9);
        // Two blocks of 72 KiB have room beside the queries. With fewer keys than 64, tensor cores wait for the queries, which each
        // instruction reads again.
        let block_k = block(match hopper {
            true if 64 * bytes <= 72 << 10 => 64,
            true => 32,
            false => 16,
        });
        // As many parts as run at once: more would begin a second turn of all multiprocessors, and merging them takes time too.
        let parts = (device.multiprocessor_count() / programs.max(1)).min(keys / (4 * block_k)).clamp(1, 128);
        let (block_heads, num_stages) = if hopper { (64, 2) } else { (16, 1) };
        // Where four warps hold no more than half of the sums, the compiler has groups of four share a block: one computes its
        // scores while two sum up the values of the block before. Blocks have to be copied by the hardware.
        let shares = device.compute_capability().is_some_and(|(major, _)| major == 9)
            && is_copied
            && block_k == 64
            && rank == 512
            && element == 2;
        MlaConfig { block_heads, block_k, parts, num_warps: if shares { 4 } else { 8 }, num_stages }
    }
}

/// Sums of each row in eight parts, of which a thread has one where two warp groups have a half of the columns each, and two where
/// one has all of them: of each eight columns four threads have a pair.
///
/// Carried like that, the sums of a loop take no exchange between threads in its iterations.
#[device]
fn sums_of_threads<A: Float, const M: usize, const N: usize>(weights: Tile<A, { [M, N] }>) -> Tile<A, { [M, 2, 4] }> {
    static_assert!(N % 16 == 0);
    sum(sum(reshape(weights, [M, 2, N / 16, 4, 2]), axis = 4), axis = 2)
}

/// Weights are powers of two relative to a score of their row that may be smaller than the largest by so much: a weight is 256 at
/// most, which any float of 16 bits has room for.
const FAR_ABOVE: f64 = 8.0;

/// What tensor copies bring begins at multiples of so many bytes, and so do its rows.
const COPIED_BYTES: usize = 16;

/// A key is a latent vector of twice `H` elements, which is the value too, and `P` elements of position behind it. All heads read
/// the same keys: a tile has a row for each.
///
/// The grid is `[blocks of heads times parts, queries, sequences]`.
#[kernel(flush = true)]
pub(super) fn attention_mla<T: Float, O: Float, const BM: usize, const BN: usize, const H: usize, const P: usize>(
    content: TensorDesc<T, { [1, 1, BM, H] }>,
    turned: TensorDesc<T, { [1, 1, BM, P] }>,
    latent: TensorDesc<T, { [1, BN, H] }>,
    position: TensorDesc<T, { [1, BN, P] }>,
    table: Ptr<i32>,
    lengths: Ptr<i32>,
    out: PtrMut<O>,
    lse: Option<PtrMut<f32>>,
    parts: i32,
    heads: i32,
    queries: i32,
    keys: i32,
    page_size: i32,
    scale: f64,
    soft_cap: Option<f64>,
    left: i32,
    right: i32,
    table_sequence: i64,
    out_part: i64,
    out_sequence: i64,
    out_head: i64,
    out_row: i64,
    lse_part: i64,
    lse_sequence: i64,
    lse_head: i64,
) {
    let (part, query, sequence) = (program_id(0) % parts, program_id(1), program_id(2));
    let first = program_id(0) / parts * BM;
    // Queries are the last of their sequence.
    let keys = clamp(load(lengths + sequence), 0, keys);
    let at = query + keys - queries;
    let (begin, end) = (maximum(at - left, 0), minimum(keys, at + right + 1));
    let from = begin / BN * BN;
    let each = cdiv(cdiv(maximum(end - from, 0), BN), parts) * BN;
    let (from, to) = (from + part * each, minimum(end, from + (part + 1) * each));

    let content_0 = reshape(content.load([sequence, query, first, 0]), [BM, H]);
    let content_1 = reshape(content.load([sequence, query, first, H as i32]), [BM, H]);
    let turned = reshape(turned.load([sequence, query, first, 0]), [BM, P]);
    let table = table + sequence as i64 * table_sequence;
    let scale = scale as T::Acc;
    let (mut acc_0, mut acc_1) = (zeros::<T::Acc>([BM, H]), zeros::<T::Acc>([BM, H]));
    let mut peak = full::<T::Acc>([BM], T::Acc::MIN);
    let mut totals = zeros::<T::Acc>([BM, 2, 4]);
    #[warp_specialize]
    for start in (from..to).step_by(BN) {
        let page = load(table + start / page_size);
        let block_0 = reshape(latent.load([page, start % page_size, 0]), [BN, H]);
        let block_1 = reshape(latent.load([page, start % page_size, H as i32]), [BN, H]);
        let turn = reshape(position.load([page, start % page_size, 0]), [BN, P]);
        let mut scores = dot(content_0, block_0.trans(), out = T::Acc, precision = tf32x3);
        scores = dot(content_1, block_1.trans(), acc = scores, precision = tf32x3);
        scores = dot(turned, turn.trans(), acc = scores, precision = tf32x3);
        let Scores { mut scores, factor, .. } = bend(scores, scale, soft_cap);
        if start < begin || start + BN > to {
            let key = start + arange(0, BN);
            scores = select((key >= begin) & (key < to), scores, T::Acc::NEG_INFINITY);
        }
        // Weights are relative to a score that follows the largest only where one is far above it: that multiplies the sums of all
        // rows, which takes as long as a quarter of the product. Most blocks have none.
        let above = scores * factor - peak[(.., None)];
        let mut weights = exp2(above);
        if any(above > FAR_ABOVE as f64 as T::Acc) {
            let higher = maximum(peak, max(scores * factor, axis = 1));
            let old = exp2(peak - higher);
            totals *= old[(.., None, None)];
            acc_0 *= old[(.., None)];
            acc_1 *= old[(.., None)];
            weights = exp2(scores * factor - higher[(.., None)]);
            peak = higher;
        }
        totals += if BN % 16 == 0 {
            sums_of_threads::<T::Acc, BM, BN>(weights)
        } else {
            broadcast_to((sum(weights, axis = 1) * 0.125)[(.., None, None)], [BM, 2, 4])
        };
        acc_0 = dot(weights as T, block_0, acc = acc_0, precision = tf32x3);
        acc_1 = dot(weights as T, block_1, acc = acc_1, precision = tf32x3);
    }
    let total = sum(sum(totals, axis = 2), axis = 1);
    let (result_0, log) = finish(Rows { acc: acc_0, peak, total });
    let (result_1, _) = finish(Rows { acc: acc_1, peak, total });
    let head = first + arange(0, BM);
    let to = part as i64 * out_part + sequence as i64 * out_sequence;
    let out_rows = to + query as i64 * out_row + head as i64 * out_head;
    let inside = head < heads;
    let columns = arange(0, H);
    store(out + out_rows[(.., None)] + columns, result_0 as O, mask = inside[(.., None)]);
    store(out + out_rows[(.., None)] + (columns + H), result_1 as O, mask = inside[(.., None)]);
    if let Some(lse) = lse {
        let to = part as i64 * lse_part + sequence as i64 * lse_sequence;
        store(lse + (to + query as i64 + head as i64 * lse_head), log as f32, mask = inside);
    }
}

/// The cache of multi-head latent attention: for each token a latent vector, and what has the token's position in it.
///
/// Sequence `i` has `lengths[i]` tokens, the first of them in page `table[i][0]`, and so on. What lies in a page behind the
/// last token of a sequence counts with weight 0, so it must be finite: a cache begins with zeros.
///
/// Nothing outside the cache is read, whatever the numbers, and nothing is reported: a length above what the table has pages
/// for counts as that, one below 0 as 0, and tokens of a page that there is not are zeros.
#[derive(Debug, Clone, Copy)]
pub struct LatentCache<'a, T: DType> {
    /// `[pages, page size, rank + positions]`, the last dimension contiguous.
    pub tokens: TensorView<'a, T, 3>,
    /// `[sequences, most pages of one]`, the last dimension contiguous.
    pub table: TensorView<'a, i32, 2>,
    /// `[sequences]`.
    pub lengths: TensorView<'a, i32, 1>,
    /// The elements of a latent vector, a power of two up to 512. Behind them are the positions, a power of two as well.
    pub rank: usize,
}

/// Shapes of a launch.
struct Sizes {
    sequences: usize,
    heads: usize,
    queries: usize,
    rank: usize,
    positions: usize,
    page_size: usize,
    /// The most keys of a sequence.
    keys: usize,
    /// Whether tensor copies can bring tokens: they begin at multiples of 16 bytes.
    is_copied: bool,
}

fn sizes<T: DType>(q: &TensorView<'_, T, 4>, cache: &LatentCache<'_, T>) -> Result<Sizes> {
    let ([sequences, heads, queries, d], [pages, page_size, width]) = (q.shape(), cache.tokens.shape());
    let [rows, most_pages] = cache.table.shape();
    check::shape("q", q.shape(), [rows, heads, queries, width])?;
    check::shape("lengths", cache.lengths.shape(), [sequences])?;
    contiguous_last("q", q)?;
    contiguous_last("tokens", &cache.tokens)?;
    contiguous_last("table", &cache.table)?;
    contiguous_last("lengths", &cache.lengths)?;
    let (rank, positions) = (cache.rank, d.saturating_sub(cache.rank));
    let fits = |size: usize| size.is_power_of_two() && (16..=512).contains(&size);
    if !fits(rank) || !fits(positions) {
        let problem = format!("has tokens of {width} elements, of which {rank} are latent");
        return Err(check::invalid("tokens", problem, "both parts must be powers of two from 16 to 512"));
    }
    let keys = most_pages.saturating_mul(page_size);
    if page_size == 0 || (pages == 0 && most_pages > 0) {
        return Err(check::invalid("tokens", "has no page", "make at least one page of at least one token"));
    }
    if keys > MOST as usize {
        let problem = format!("has room for {keys} tokens in a sequence");
        return Err(check::invalid("table", problem, format!("there are at most {MOST}")));
    }
    let [page, token, _] = cache.tokens.strides().map(|stride| stride.is_multiple_of(COPIED_BYTES / size_of::<T>()));
    let address = cache.tokens.elements().raw().address.get();
    let is_copied = page && token && address.is_multiple_of(COPIED_BYTES as u64);
    Ok(Sizes { sequences, heads, queries, rank, positions, page_size, keys, is_copied })
}

/// Multi-head latent attention for few queries, with absorbed projections: keys are the tokens of the cache, values their
/// latent vectors, and all heads share them.
///
/// # Shapes
///
/// `q` is `[sequences, heads, queries, rank + positions]`: queries projected to the latent space, and their part with
/// positions. They are the last queries of sequences whose tokens are in the cache already. Results are
/// `[sequences, heads, queries, rank]`, still to be projected up, and the logarithms of sums, `[sequences, heads, queries]`.
///
/// The scale is that of heads before the absorption, `1 / sqrt(d)` of their size: it has to be given. Biases are not
/// supported, masks and the soft cap are those of [`forward`](super::forward).
///
/// It allocates the results, and [`mla_decode_into`]'s workspace.
///
/// DeepSeek-AI, "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model", 2024.
///
/// # Errors
///
/// As [`forward`](super::forward), [`Error::InvalidGrid`] of more than 65,535 queries or sequences, and
/// [`Error::InvalidSetting`] without a scale.
pub fn mla_decode<'a, T: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    cache: &LatentCache<'_, T>,
    options: &Attention,
) -> Result<(Tensor<T, 4>, Tensor<f32, 3>)> {
    let q = q.into();
    let Sizes { sequences, heads, queries, rank, .. } = sizes(&q, cache)?;
    let mut workspace = Tensor::empty(cx.device(), [mla_decode_workspace(cx, q, cache)?])?;
    let mut out = Tensor::empty(cx.device(), [sequences, heads, queries, rank])?;
    let mut lse = Tensor::empty(cx.device(), [sequences, heads, queries])?;
    mla_decode_into(cx, q, cache, options, &mut workspace, &mut out, Some(lse.view_mut()))?;
    Ok((out, lse))
}

/// [`mla_decode`], into tensors of the shapes of its results; `lse` is not written if it is not given. It allocates nothing.
///
/// `workspace` is without gaps and has as many elements as [`mla_decode_workspace`] says, or more; what it holds does not
/// matter.
///
/// # Errors
///
/// As [`mla_decode`], and [`Error::InvalidTensor`] if the workspace has gaps or is too small.
pub fn mla_decode_into<'a, 'b, T: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    cache: &LatentCache<'_, T>,
    options: &Attention,
    workspace: impl Into<TensorViewMut<'b, f32, 1>>,
    out: impl Into<TensorViewMut<'b, T, 4>>,
    lse: Option<TensorViewMut<'b, f32, 3>>,
) -> Result<()> {
    let (q, out) = (q.into(), out.into());
    let sizes = sizes(&q, cache)?;
    let Sizes { sequences, heads, queries, rank, .. } = sizes;
    check::shape("out", out.shape(), [sequences, heads, queries, rank])?;
    if let Some(lse) = &lse {
        check::shape("lse", lse.shape(), [sequences, heads, queries])?;
        contiguous_last("lse", &lse.as_view())?;
    }
    contiguous_last("out", &out.as_view())?;
    let places = Places::of(&options.with_scale("heads before the absorption")?, rank)?;
    if out.is_empty() {
        return Ok(());
    }
    let config = sizes.config::<T>(cx)?;
    let partial = Partial::of(workspace.into(), config.parts, [sequences, heads, queries, rank])?;
    let launch = Launch { q, cache, sizes, places, soft_cap: options.soft_cap, config };
    let Some(Partial { mut sums, mut logs }) = partial else {
        return launch.run(cx, one_part(out)?, lse.map(one_part).transpose()?);
    };
    launch.run(cx, sums.reborrow(), Some(logs.reborrow()))?;
    merge_into(cx, sums.as_view(), logs.as_view(), out, lse)
}

/// How many f32 [`mla_decode_into`] needs as its workspace, with the same context and tensors of these shapes: the results of
/// parts are `parts * sequences * heads * queries * (rank + 1)`, with the parts of the [`MlaConfig`]. One part needs none.
/// Lengths of sequences do not matter, the room that the table has for them does.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit, [`Error::InvalidSetting`] and [`Error::Tuning`] of a configuration that does
/// not.
pub fn mla_decode_workspace<'a, T: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    cache: &LatentCache<'_, T>,
) -> Result<usize> {
    let q = q.into();
    let sizes = sizes(&q, cache)?;
    if q.is_empty() {
        return Ok(0);
    }
    let Sizes { sequences, heads, queries, rank, .. } = sizes;
    Ok(parts::workspace(sizes.config::<T>(cx)?.parts, [sequences, heads, queries, rank]))
}

impl Sizes {
    /// The configuration for these sizes. It has at least one part, and one of f64, as results of parts are f32.
    fn config<T: Float>(&self, cx: &Context) -> Result<MlaConfig> {
        let &Sizes { sequences, heads, queries, rank, positions, page_size, keys, is_copied } = self;
        let programs = heads.div_ceil(64).saturating_mul(queries).saturating_mul(sequences);
        let key = Key::from(T::ELEMENT).and([Some(programs), Some(page_size)]);
        let element = size_of::<T>();
        let rule = || MlaConfig::rule(cx.device(), ([rank, positions, element], is_copied), keys, page_size, programs);
        // Rows of tables are for page sizes that round up to the same power of two, which others' blocks need not divide.
        let divides = |config: &MlaConfig| page_size.is_multiple_of(config.block_k);
        let config = cx.fitting_config(key, &[rank, heads, keys], divides, rule)?;
        if !divides(&config) {
            return Err(Error::InvalidSetting {
                name: "block_k of attention_mla".into(),
                value: config.block_k.to_string().into(),
                expected: format!("a divisor of the page size, {page_size}").into(),
            });
        }
        Ok(MlaConfig { parts: parts::of::<T>(config.parts), ..config })
    }
}

/// What a launch is given.
struct Launch<'a, 'c, T: DType> {
    q: TensorView<'a, T, 4>,
    cache: &'c LatentCache<'c, T>,
    sizes: Sizes,
    places: Places,
    soft_cap: Option<f64>,
    config: MlaConfig,
}

impl<T: Float> Launch<'_, '_, T> {
    fn run<O: Float>(
        &self,
        cx: &Context,
        out: TensorViewMut<'_, O, 5>,
        lse: Option<TensorViewMut<'_, f32, 4>>,
    ) -> Result<()> {
        let Launch { cache, sizes, places, config, .. } = self;
        let (rank, width) = (sizes.rank, sizes.rank + sizes.positions);
        let queries = self.q.permute([0, 2, 1, 3])?;
        let (content, turned) = (queries.narrow(3, 0..rank)?, queries.narrow(3, rank..width)?);
        let (latent, position) = (cache.tokens.narrow(2, 0..rank)?, cache.tokens.narrow(2, rank..width)?);
        let to = out.strides().map(|stride| stride as i64);
        let (lse, lse_to) = logarithms(lse)?;
        AttentionMlaConsts { BM: config.block_heads, BN: config.block_k, H: rank / 2, P: sizes.positions }
            .call(
                &TensorDesc::with_strides(content.elements(), content.shape(), content.strides())?,
                &TensorDesc::with_strides(turned.elements(), turned.shape(), turned.strides())?,
                &TensorDesc::with_strides(latent.elements(), latent.shape(), latent.strides())?,
                &TensorDesc::with_strides(position.elements(), position.shape(), position.strides())?,
                cache.table.elements(),
                cache.lengths.elements(),
                out.elements(),
                lse,
                check::size("parts", config.parts)?,
                check::size("q", sizes.heads)?,
                check::size("q", sizes.queries)?,
                check::size("tokens", sizes.keys)?,
                check::size("tokens", sizes.page_size)?,
                places.scale,
                self.soft_cap,
                places.left.unwrap_or(FAR),
                places.right,
                cache.table.strides()[0] as i64,
                to[0],
                to[1],
                to[2],
                to[3],
                lse_to[0],
                lse_to[1],
                lse_to[2],
            )
            .grid((sizes.heads.div_ceil(config.block_heads) * config.parts, sizes.queries, sizes.sequences))
            .num_warps(config.num_warps as u32)
            .num_stages(config.num_stages as u32)
            .stream(cx.stream())
            .launch(cx.device())
    }
}
