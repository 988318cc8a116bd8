//! Attention: results and logarithms of sums.

use super::device::{BiasStrides, Scores, Seen, absorb, bend, biased, biases, finish, hide, seen, sequence_at, unseen};
use super::options::{Attention, Places};
use super::shape::{Problem, descriptor, logarithms, tile_dim};
use crate::check::MOST_PROGRAMS;
use crate::config::config;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::launch::MaybeView;
use tilewright::prelude::*;

config! {
    /// How [`forward`] runs; sizes are those of heads, queries and keys (of packed sequences the longest).
    "attention": pub struct ForwardConfig {
        /// Queries of a program.
        pub block_q,
        /// Keys that it takes at a time.
        pub block_k,
        /// Warps of a program.
        pub num_warps,
        /// Blocks of keys and values that are on their way at once.
        pub num_stages,
        /// Programs for each multiprocessor, which go on from one block of queries to the next; 0 for a program for each
        /// block.
        pub programs or 0,
    }
}

impl ForwardConfig {
    /// `d` is the larger dimension of the tiles, `plain` says that there is neither a bias nor a soft cap, `even` that all
    /// queries see all keys.
    pub(super) fn rule(capability: Option<(u32, u32)>, bits: usize, d: usize, plain: bool, even: bool) -> Self {
        let [block_q, block_k, num_warps, num_stages] = match (capability, bits) {
            (None, _) => [32, 32, 4, 2],
            (Some((9.., _)), 16) if d <= 64 && plain => [64, 128, 4, 2],
            (Some((9.., _)), 16) if d <= 128 && plain => [128, 128, 8, 2],
            (Some((9.., _)), 16) => [128, 64, 8, 2],
            (_, 16) if d <= 64 => [128, 64, 8, 2],
            (_, 16) if d <= 128 => [128, 32, 8, 2],
            (_, 16) => [64, 32, 8, 2],
            (_, 32) if d <= 64 => [64, 32, 8, 2],
            (_, 32) if d <= 128 => [64, 16, 8, 2],
            (_, 64) if d <= 64 => [32, 16, 4, 1],
            _ => [32, 16, 8, 1],
        };
        // One program has a multiprocessor for itself then, and blocks that all take as long need no queue.
        let programs =
            usize::from(capability >= Some((9, 0)) && bits == 16 && (65..=128).contains(&d) && plain && even);
        ForwardConfig { block_q, block_k, num_warps, num_stages, programs }
    }

    /// The grid for so many blocks of queries, heads and batches; and, where programs share blocks, of how many sequences they
    /// take turns.
    pub(super) fn grid(&self, cx: &Context, blocks: [usize; 3]) -> ((usize, usize, usize), Option<i32>) {
        let [of_queries, heads, batches] = blocks;
        // More heads or batches than a grid has places for share programs.
        let several = if heads.max(batches) > MOST_PROGRAMS { self.programs.max(1) } else { self.programs };
        if several == 0 {
            return ((of_queries, heads, batches), None);
        }
        // Blocks of as many sequences take turns as have the places of a program's blocks go up by an odd number: all places
        // come up equally often then, where there is a power of two of them.
        let programs = several * cx.device().multiprocessor_count();
        let tiles: usize = blocks.iter().product();
        ((tiles.min(programs), 1, 1), Some(1 << programs.trailing_zeros().min(MOST_TOGETHER)))
    }

    /// That of factors of 8 bits.
    pub(super) fn rule_fp8(capability: Option<(u32, u32)>, d: usize, plain: bool) -> Self {
        let [block_q, block_k, num_warps, num_stages] = match capability {
            None => [32, 32, 4, 2],
            // Two programs share a multiprocessor: one computes weights while the other multiplies.
            Some((9.., _)) if d <= 128 && plain => [64, 128, 4, 2],
            Some((9.., _)) => [128, 64, 8, 2],
            _ if d <= 128 => [64, 32, 4, 2],
            _ => [64, 32, 8, 2],
        };
        ForwardConfig { block_q, block_k, num_warps, num_stages, programs: 0 }
    }
}

/// The most sequences, as a power of two, whose blocks take turns: keys and values of 8 sequences of 16384 fit into the cache.
const MOST_TOGETHER: u32 = 3;

/// Flash attention (Dao, "FlashAttention-2", 2023): a program keeps a block of queries, and takes keys and values block
/// after block. Scores are in shared memory or registers only.
///
/// With `LOOP` the grid has any number of programs, which share the blocks of queries of all heads and batches; without, there
/// is one for each, in a grid of blocks, heads and batches: programs in a row find their places by divisions, which are 200
/// instructions. Packed sequences begin at `q_starts[batch]` and `k_starts[batch]`; then `queries` is the most of one, and
/// `keys` is not asked for.
#[kernel(flush = true)]
pub(super) fn attention<
    T: Float,
    const BM: usize,
    const BN: usize,
    const D: usize,
    const DV: usize,
    const LOOP: bool,
>(
    q: TensorDesc<T, { [1, 1, BM, D] }>,
    k: TensorDesc<T, { [1, 1, BN, D] }>,
    v: TensorDesc<T, { [1, 1, BN, DV] }>,
    bias: Option<Ptr<T>>,
    q_starts: Option<Ptr<i32>>,
    k_starts: Option<Ptr<i32>>,
    out: PtrMut<T>,
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
    bias_batch: i64,
    bias_head: i64,
    bias_row: i64,
    out_batch: i64,
    out_head: i64,
    out_row: i64,
    lse_batch: i64,
    lse_head: i64,
) {
    let blocks = cdiv(queries, BM);
    let (all, longest) = (heads * batches, queries);
    let scale = scale as T::Acc;
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
        let first = block * BM;
        let (q_start, queries) = sequence_at(q_starts, batch, longest);
        let (k_start, keys) = sequence_at(k_starts, batch, keys);
        let page = if q_starts.is_some() { 0 } else { batch };
        let row = first + arange(0, BM);
        let Seen { at, upto, begin, end, whole_from, whole_to } = seen::<BM, BN>(first, queries, keys, left, right);
        let end = select(first < queries, end, 0);

        let query = reshape(q.load([page, head, q_start + first, 0]), [BM, D]);
        let mut rows = unseen::<T::Acc, BM, DV>();
        #[warp_specialize]
        for start in (begin..end).step_by(BN) {
            let key = start + arange(0, BN);
            let block = reshape(k.load([page, head / group, k_start + start, 0]), [BN, D]);
            let mut bent = bend(dot(query, block.trans(), out = T::Acc, precision = tf32x3), scale, soft_cap);
            if let Some(bias) = bias {
                let strides = BiasStrides { batch: bias_batch, head: bias_head, row: bias_row };
                let added = biases(bias, strides, (batch, head), (row, key), (queries, keys));
                bent = biased(bent, scale, soft_cap, added);
            }
            let Scores { mut scores, factor, .. } = bent;
            if start < whole_from || start + BN > whole_to {
                scores = hide(scores, key, at, left, upto);
            }
            let values = reshape(v.load([page, head / group, k_start + start, 0]), [BN, DV]);
            rows = absorb(rows, scores, values, factor);
        }
        let (result, log) = finish(rows);
        if let Some(lse) = lse {
            let lse = lse + (page as i64 * lse_batch + head as i64 * lse_head + q_start as i64);
            store(lse + row, log as f32, mask = row < queries);
        }
        // The long rows of large heads leave no room to gather blocks in.
        if q_starts.is_some() || DV > 128 {
            let column = arange(0, DV);
            let rows = (q_start + row) as i64 * out_row;
            let mask = (row < queries)[(.., None)] & (column < columns);
            let out = out + (page as i64 * out_batch + head as i64 * out_head);
            store(out + rows[(.., None)] + column, result as T, mask = mask);
        } else {
            out_blocks.store([batch, head, first, 0], reshape(result as T, [1, 1, BM, DV]));
        }
    }
}

/// Which block of queries of which of `all` sequences is the one at a turn.
///
/// The last queries see most where later keys are hidden: they come first. Programs that run at the same time read the
/// keys of `together` sequences, which the cache holds: with one, the blocks of a sequence follow each other; with more,
/// blocks of one place do, so that programs that take turns have equal shares. The bounds say what holds anyway, for those
/// who prove that no access leaves its buffer.
#[device]
pub(super) fn place_of(turn: i32, blocks: i32, all: i32, together: i32) -> (i32, i32) {
    let before = turn / (blocks * together) * together;
    let several = maximum(minimum(together, all - before), 1);
    let within = turn - before * blocks;
    let block = maximum(blocks - 1 - maximum(within / several, 0), 0);
    (block, maximum(minimum(before + within % several, all - 1), 0))
}

/// Where sequences begin in packed tensors.
#[derive(Clone, Copy)]
pub(super) struct Starts<'a> {
    pub(super) q: TensorView<'a, i32, 1>,
    pub(super) k: TensorView<'a, i32, 1>,
    /// The most queries of a sequence.
    pub(super) longest: usize,
}

/// Softmax attention: for each batch and head, `out = softmax(scale * q k^T + bias) v`.
///
/// # Shapes
///
/// `q` is `[batch, heads, queries, d]`, `k` `[batch, kv_heads, keys, d]` and `v` `[batch, kv_heads, keys, dv]`. Results are
/// `out`, `[batch, heads, queries, dv]`, and `lse`, `[batch, heads, queries]`: the natural logarithm of the sum of
/// exponentials of a row's scores. `heads` is a multiple of `kv_heads`; head `h` of queries reads head
/// `h / (heads / kv_heads)` of keys. The last dimension of all is contiguous, others have any strides. `d` and `dv` are from
/// 1 to 256; tiles have powers of two, so that others cost as much as the next one.
///
/// Any float; `lse` is `f32`.
///
/// # Which keys a query sees
///
/// All, unless [`Attention`] says otherwise. Queries and keys end together: query `i` stands at key `i + keys - queries`,
/// and [`Attention::causal`] hides those after it (the mask is aligned at the bottom right). A query that sees nothing gives
/// 0, and minus infinity in `lse`.
///
/// # Numerics
///
/// Products are summed in f32 (f64 for f64), and so are weights, which are rounded to the dtype before they multiply values;
/// f32 multiplies with `tf32x3`. Keys that are hidden in a block count with weight 0, so values must be finite. Scores, with
/// `bias`, should be above -3.4e38: a row of which none is gives 0.
///
/// On Hopper blocks come by tensor copies if strides are multiples of 16 bytes, and not 0.
///
/// Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit or a last dimension is not contiguous, [`Error::InvalidSetting`] if the scale
/// or the soft cap is not positive and finite, [`Error::OutOfMemory`], those of a launch.
pub fn forward<'a, T: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    options: &Attention,
) -> Result<(Tensor<T, 4>, Tensor<f32, 3>)> {
    let (q, k, v) = (q.into(), k.into(), v.into());
    let [batch, heads, queries, _] = q.shape();
    Problem::of(&q, &k, &v)?;
    let mut out = Tensor::empty(cx.device(), [batch, heads, queries, v.shape()[3]])?;
    let mut lse = Tensor::empty(cx.device(), [batch, heads, queries])?;
    forward_into(cx, q, k, v, None, options, &mut out, Some(lse.view_mut()))?;
    Ok((out, lse))
}

/// [`forward`], into tensors of the shapes of its results, and with a bias that is added to scaled scores (after the soft
/// cap): `[batch, heads, queries, keys]`, which [`TensorView::broadcast`] makes of one for all batches or heads. `lse`, which
/// gradients need, is not written if it is not given.
///
/// # Errors
///
/// As [`forward`].
#[allow(clippy::too_many_arguments)]
pub fn forward_into<'a, 'b, T: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    bias: Option<TensorView<'a, T, 4>>,
    options: &Attention,
    out: impl Into<TensorViewMut<'b, T, 4>>,
    lse: Option<TensorViewMut<'b, f32, 3>>,
) -> Result<()> {
    launch(cx, [q.into(), k.into(), v.into()], bias, None, options, out.into(), lse)
}

/// [`forward`] of sequences of different lengths, which follow each other in packed tensors.
///
/// # Shapes
///
/// `q` is `[tokens, heads, d]`, `k` `[key_tokens, kv_heads, d]` and `v` `[key_tokens, kv_heads, dv]`; `out` is
/// `[tokens, heads, dv]` and `lse` `[heads, tokens]`. Sequence `i` has queries `q_starts[i]..q_starts[i + 1]` and keys
/// `k_starts[i]..k_starts[i + 1]`: both tensors, on the device, have one number more than there are sequences. No sequence
/// has more than `longest` queries; those beyond are not computed.
///
/// Starts are not checked. Tokens that no sequence has, and those that starts outside the tensors mean, count as zeros.
///
/// # Errors
///
/// As [`forward`].
#[allow(clippy::too_many_arguments)]
pub fn forward_packed<'a, T: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 3>>,
    k: impl Into<TensorView<'a, T, 3>>,
    v: impl Into<TensorView<'a, T, 3>>,
    q_starts: impl Into<TensorView<'a, i32, 1>>,
    k_starts: impl Into<TensorView<'a, i32, 1>>,
    longest: usize,
    options: &Attention,
) -> Result<(Tensor<T, 3>, Tensor<f32, 2>)> {
    let (q, k, v) = (q.into(), k.into(), v.into());
    let ([tokens, heads, _], dv) = (q.shape(), v.shape()[2]);
    Problem::of(&one_batch(&q)?, &one_batch(&k)?, &one_batch(&v)?)?;
    let mut out = Tensor::zeros(cx.device(), [tokens, heads, dv])?;
    let mut lse = Tensor::zeros(cx.device(), [heads, tokens])?;
    forward_packed_into(cx, q, k, v, q_starts, k_starts, longest, options, &mut out, Some(lse.view_mut()))?;
    Ok((out, lse))
}

/// [`forward_packed`], into tensors of the shapes of its results. Rows of tokens that no sequence has are left as they are, and
/// `lse` is not written if it is not given.
///
/// # Errors
///
/// As [`forward`].
#[allow(clippy::too_many_arguments)]
pub fn forward_packed_into<'a, 'b, T: Float>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 3>>,
    k: impl Into<TensorView<'a, T, 3>>,
    v: impl Into<TensorView<'a, T, 3>>,
    q_starts: impl Into<TensorView<'a, i32, 1>>,
    k_starts: impl Into<TensorView<'a, i32, 1>>,
    longest: usize,
    options: &Attention,
    out: impl Into<TensorViewMut<'b, T, 3>>,
    lse: Option<TensorViewMut<'b, f32, 2>>,
) -> Result<()> {
    let packed = [one_batch(&q.into())?, one_batch(&k.into())?, one_batch(&v.into())?];
    let starts = Starts { q: q_starts.into(), k: k_starts.into(), longest };
    let of_batch = |lse: TensorViewMut<'b, f32, 2>| {
        let [heads, tokens] = lse.shape();
        lse.reshape([1, heads, tokens])
    };
    let lse = lse.map(of_batch).transpose()?;
    launch(cx, packed, None, Some(starts), options, one_batch_mut(out.into())?, lse)
}

/// Packed tokens `[tokens, heads, d]` as `[1, heads, tokens, d]`.
pub(super) fn one_batch<'a, T: DType>(x: &TensorView<'a, T, 3>) -> Result<TensorView<'a, T, 4>> {
    let [tokens, heads, d] = x.shape();
    x.permute([1, 0, 2])?.reshape([1, heads, tokens, d])
}

/// The same of a tensor that is written.
pub(super) fn one_batch_mut<T: DType>(x: TensorViewMut<'_, T, 3>) -> Result<TensorViewMut<'_, T, 4>> {
    let [tokens, heads, d] = x.shape();
    x.permute([1, 0, 2])?.reshape([1, heads, tokens, d])
}

fn launch<'a, T: Float>(
    cx: &Context,
    [q, k, v]: [TensorView<'a, T, 4>; 3],
    bias: Option<TensorView<'a, T, 4>>,
    starts: Option<Starts<'a>>,
    options: &Attention,
    out: TensorViewMut<'_, T, 4>,
    lse: Option<TensorViewMut<'_, f32, 3>>,
) -> Result<()> {
    let problem = Problem::of(&q, &k, &v)?;
    let Problem { batch, heads, queries, keys, d, dv, group } = problem;
    check::shape("out", out.shape(), [batch, heads, queries, dv])?;
    if let Some(lse) = &lse {
        check::shape("lse", lse.shape(), [batch, heads, queries])?;
    }
    let bias = bias.map(|bias| problem.bias(bias)).transpose()?;
    let places = Places::of(options, d)?;
    let (batches, longest) = problem.sequences(&starts)?;
    if out.is_empty() || batches == 0 || longest == 0 {
        return Ok(());
    }
    let out_strides = problem.last_contiguous("out", &out.as_view())?;
    let (lse, [lse_batch, lse_head, _]) = logarithms(lse)?;
    let dims = (tile_dim(d), tile_dim(dv));
    let plain = bias.is_none() && options.soft_cap.is_none();
    let even = starts.is_none() && options.left.is_none() && options.right.is_none();
    let config = cx.config(T::ELEMENT, &[d, longest, keys], || {
        let capability = cx.device().compute_capability();
        ForwardConfig::rule(capability, 8 * size_of::<T>(), dims.0.max(dims.1), plain, even)
    })?;
    let blocks = longest.div_ceil(config.block_q);
    let tiles = blocks * heads * batches;
    check::size("q", tiles)?;
    let (grid, together) = config.grid(cx, [blocks, heads, batches]);
    let bias_strides = bias.map_or([0; 4], |bias| bias.strides().map(|stride| stride as i64));
    AttentionConsts { BM: config.block_q, BN: config.block_k, D: dims.0, DV: dims.1, LOOP: together.is_some() }
        .call(
            &descriptor("q", &q)?,
            &descriptor("k", &k)?,
            &descriptor("v", &v)?,
            MaybeView::from(bias.map(|bias| bias.elements())),
            MaybeView::from(starts.map(|starts| starts.q.elements())),
            MaybeView::from(starts.map(|starts| starts.k.elements())),
            out.elements(),
            lse,
            check::size("q", batches)?,
            check::size("q", heads)?,
            check::size("q", longest)?,
            check::size("k", keys)?,
            check::size("v", dv)?,
            check::size("q", group)?,
            together.unwrap_or(1),
            places.scale,
            options.soft_cap,
            places.left,
            places.right,
            bias_strides[0],
            bias_strides[1],
            bias_strides[2],
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
