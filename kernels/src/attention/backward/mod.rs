//! Gradients of attention.

pub(super) mod fused;
pub(super) mod kernels;
mod packed;
mod results;
mod rotated;

pub use packed::{
    SavedPacked, backward_packed, backward_packed_into, backward_packed_into_with, backward_packed_workspace,
};
pub use rotated::{Rotation, backward_rotated, backward_rotated_into, backward_rotated_qkv_into};

use super::forward::Starts;
use super::options::{Attention, Places};
use super::shape::{Problem, contiguous_last, descriptor, tile_dim};
use crate::config::config;
use crate::general::write_zeros;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use kernels::{AttentionDeltasConsts, AttentionKeysBackwardConsts, AttentionQueriesBackwardConsts};
use results::{OfKeys, Results};
use tilewright::launch::{MaybeView, MaybeViewMut};
use tilewright::prelude::*;
use tilewright::{Result, TensorDesc};

config! {
    /// How [`backward`] runs; sizes are those of heads, queries and keys (of packed sequences the longest).
    "attention_backward": pub struct BackwardConfig {
        /// Queries that a program for keys and values takes at a time.
        pub keys_block_q,
        /// Keys of such a program.
        pub keys_block_k,
        /// Queries of a program for queries.
        pub queries_block_q,
        /// Keys that such a program takes at a time.
        pub queries_block_k,
        /// Warps of programs of both kinds.
        pub num_warps,
        /// Blocks that are on their way at once.
        pub num_stages,
        /// 1 for one kernel in the blocks of that for keys, which adds up gradients of queries in memory; 0 for two. Where that
        /// is said to be [`deterministic`](Attention::deterministic), or dtypes have other than 16 bits, there are two.
        pub fused or 0,
    }
}

impl BackwardConfig {
    /// `d` is the larger dimension of the tiles, `plain` says that there is no bias, no soft cap and no window
    /// over packed sequences, `any_order` that gradients of queries may be added up in any order.
    pub(super) fn rule(capability: Option<(u32, u32)>, bits: usize, d: usize, [plain, any_order]: [bool; 2]) -> Self {
        if bits == 16 && capability >= Some((9, 0)) && d <= 128 && plain && any_order {
            // Two programs share a multiprocessor where heads are small.
            let (block_k, num_warps) = if d <= 64 { (64, 4) } else { (128, 8) };
            return BackwardConfig {
                keys_block_q: 64,
                keys_block_k: block_k,
                queries_block_q: 64,
                queries_block_k: block_k,
                num_warps,
                num_stages: 2,
                fused: 1,
            };
        }
        let [keys_block_q, keys_block_k, queries_block_q, queries_block_k, num_warps, num_stages] =
            match (capability, bits) {
                (None, _) => [32, 32, 32, 32, 4, 2],
                (Some((9.., _)), 16) if d <= 64 => [64, 128, 128, if plain { 128 } else { 64 }, 8, 2],
                (Some((9.., _)), 16) if d <= 128 => [if plain { 64 } else { 32 }, 128, 128, 64, 8, 2],
                (Some((9.., _)), 16) => [32, 64, 64, 32, 8, 2],
                (_, 16) if d <= 64 => [32, 128, 128, 32, 8, 2],
                (_, 16) if d <= 128 => [32, 64, 64, 32, 8, 2],
                (_, 32) if d <= 64 => [32, 32, 32, 32, 8, 2],
                _ => [16, 32, 32, 16, 8, 1],
            };
        BackwardConfig { keys_block_q, keys_block_k, queries_block_q, queries_block_k, num_warps, num_stages, fused: 0 }
    }
}

/// What [`forward`](super::forward) read and gave, and the gradient of its result, with the shapes that it says.
#[derive(Debug, Clone, Copy)]
pub struct Saved<'a, T: DType> {
    /// Queries.
    pub q: TensorView<'a, T, 4>,
    /// Keys.
    pub k: TensorView<'a, T, 4>,
    /// Values.
    pub v: TensorView<'a, T, 4>,
    /// What was added to scores. Its own gradient is not computed.
    pub bias: Option<TensorView<'a, T, 4>>,
    /// The result.
    pub out: TensorView<'a, T, 4>,
    /// The logarithms of sums.
    pub lse: TensorView<'a, f32, 3>,
    /// The gradient of the result.
    pub dout: TensorView<'a, T, 4>,
    /// The gradient of `lse`, if something depends on it.
    pub dlse: Option<TensorView<'a, f32, 3>>,
}

/// Gradients of the inputs of attention, with their shapes.
#[derive(Debug)]
pub struct Gradients<T: DType, const R: usize> {
    /// Of queries.
    pub dq: Tensor<T, R>,
    /// Of keys.
    pub dk: Tensor<T, R>,
    /// Of values.
    pub dv: Tensor<T, R>,
}

/// The gradients of [`forward`](super::forward): with `p` the weights, `dp = dout v^T` and
/// `ds = p * (dp - rowsum(out * dout) + dlse)`, they are `dv = p^T dout`, `dk = scale * ds^T q` and `dq = scale * ds k`.
///
/// Weights are computed again from `lse`. Gradients of keys and values are the sums over the heads of a group. It allocates
/// the results, and [`backward_into`]'s workspace.
///
/// Two kernels add up everything in one order: two runs give the same bits. One kernel, where [`BackwardConfig::fused`] asks
/// for it, computes less, and adds gradients of queries in memory in an order that may change with each run, in f32 and before
/// they are rounded. [`Attention::deterministic`] rules it out.
///
/// # Numerics
///
/// As for [`forward`](super::forward); weights and `ds` are rounded to the dtype before they are multiplied. What is hidden in a
/// block counts with weight 0, so all tensors must be finite, but for minus infinities in `lse`.
///
/// `lse` and `rowsum(out * dout) - dlse` are f32 for f64, too: its gradients have about as many digits as those of f32.
///
/// # Errors
///
/// As [`forward`](super::forward), and [`Error::InvalidGrid`] of more than 65,535 heads or sequences.
pub fn backward<T: Float>(cx: &Context, saved: Saved<'_, T>, options: &Attention) -> Result<Gradients<T, 4>> {
    allocating(cx, saved, options, |workspace, gradients| {
        launch(cx, saved, NOT_ROTATED, None, options, workspace, gradients)
    })
}

/// Queries and keys as they are.
const NOT_ROTATED: Option<Rotation<'static, f32>> = None;

/// Runs with a workspace and tensors for the gradients, which it gives.
fn allocating<T: Float>(
    cx: &Context,
    saved: Saved<'_, T>,
    options: &Attention,
    run: impl FnOnce(TensorViewMut<'_, f32, 4>, Results<'_, T>) -> Result<()>,
) -> Result<Gradients<T, 4>> {
    Problem::of(&saved.q, &saved.k, &saved.v)?;
    let mut gradients = Gradients {
        dq: Tensor::zeros(cx.device(), saved.q.shape())?,
        dk: Tensor::zeros(cx.device(), saved.k.shape())?,
        dv: Tensor::zeros(cx.device(), saved.v.shape())?,
    };
    let mut workspace = Tensor::zeros(cx.device(), backward_workspace(cx, &saved, options)?)?;
    let Gradients { dq, dk, dv } = &mut gradients;
    run(workspace.view_mut(), Results::Apart([dq.view_mut(), dk.view_mut(), dv.view_mut()]))?;
    Ok(gradients)
}

/// [`backward`], into tensors of the shapes of `q`, `k` and `v`. `workspace` is without gaps; what it holds does not matter.
/// Its shape is `[2, batch, heads, queries]`, or that of [`backward_workspace`], which one kernel for all gradients needs.
///
/// # Errors
///
/// As [`forward`](super::forward), and [`Error::InvalidGrid`] of more than 65,535 heads or sequences.
pub fn backward_into<'b, T: Float>(
    cx: &Context,
    saved: Saved<'_, T>,
    options: &Attention,
    workspace: impl Into<TensorViewMut<'b, f32, 4>>,
    dq: impl Into<TensorViewMut<'b, T, 4>>,
    dk: impl Into<TensorViewMut<'b, T, 4>>,
    dv: impl Into<TensorViewMut<'b, T, 4>>,
) -> Result<()> {
    let results = Results::Apart([dq.into(), dk.into(), dv.into()]);
    launch(cx, saved, NOT_ROTATED, None, options, workspace.into(), results)
}

/// The shape of the workspace with which [`backward_into`] does what the configuration says: `[n, batch, heads, queries]`, with
/// 2 for `n` where two kernels are to run, and `d` more, rounded up to a multiple of 4, where it is one.
///
/// # Errors
///
/// As [`forward`](super::forward).
pub fn backward_workspace<T: Float>(cx: &Context, saved: &Saved<'_, T>, options: &Attention) -> Result<[usize; 4]> {
    let problem = Problem::of(&saved.q, &saved.k, &saved.v)?;
    let plain = is_plain(saved, options, false);
    let config = choose::<T>(cx, &problem, [problem.queries, problem.keys], [plain, !options.deterministic])?;
    Ok(problem.workspace(fused::is_chosen::<T>(&config, options), problem.queries))
}

/// What both kernels of the gradients are given.
struct Launch<'a, T: DType, C: DType> {
    problem: Problem,
    places: Places,
    soft_cap: Option<f64>,
    config: BackwardConfig,
    saved: Saved<'a, T>,
    rotation: Option<Rotation<'a, C>>,
    starts: Option<Starts<'a>>,
    /// How many sequences there are, and the most queries and keys of one.
    sequences: usize,
    queries: usize,
    keys: usize,
}

fn launch<T: Float, C: Float>(
    cx: &Context,
    saved: Saved<'_, T>,
    rotation: Option<Rotation<'_, C>>,
    starts: Option<(Starts<'_>, usize)>,
    options: &Attention,
    workspace: TensorViewMut<'_, f32, 4>,
    mut results: Results<'_, T>,
) -> Result<()> {
    let problem = Problem::of(&saved.q, &saved.k, &saved.v)?;
    let Problem { batch, heads, queries, d, dv: d_values, .. } = problem;
    check::shape("out", saved.out.shape(), [batch, heads, queries, d_values])?;
    check::shape("dout", saved.dout.shape(), [batch, heads, queries, d_values])?;
    check::shape("lse", saved.lse.shape(), [batch, heads, queries])?;
    let (starts, longest_keys) = starts.map_or((None, problem.keys), |(starts, keys)| (Some(starts), keys));
    let (sequences, longest) = problem.sequences(&starts)?;
    let length = if starts.is_some() { packed::length(queries, sequences) } else { queries };
    let room = workspace.shape()[0];
    if room != problem.workspace(true, length)[0] {
        check::shape("workspace", workspace.shape(), problem.workspace(false, length))?;
    }
    check::shape("workspace", workspace.shape(), [room, batch, heads, length])?;
    results.check(&saved, &problem)?;
    if !workspace.is_contiguous() {
        return Err(check::invalid("workspace", "has gaps", "give a tensor without"));
    }
    for (name, view) in [("lse", Some(&saved.lse)), ("dlse", saved.dlse.as_ref())] {
        if let Some(view) = view {
            check::shape(name, view.shape(), [batch, heads, queries])?;
            contiguous_last(name, view)?;
        }
    }
    if let Some(rotation) = &rotation {
        rotation.check(&problem)?;
    }
    let saved = Saved { bias: saved.bias.map(|bias| problem.bias(bias)).transpose()?, ..saved };
    let places = Places::of(options, d)?;
    let keys = longest_keys.min(problem.keys);
    let plain = is_plain(&saved, options, starts.is_some());
    let traits = [plain, !options.deterministic && room > 2];
    let config = choose::<T>(cx, &problem, [longest, keys], traits)?;
    let fused = fused::is_chosen::<T>(&config, options) && room > 2;
    let is_empty = heads == 0 || sequences == 0;
    if starts.is_some() {
        // For tokens that no sequence has. These tensors have no gaps. Sums of one kernel are written for all queries.
        results.clear(cx, !fused || is_empty)?;
    } else if heads == 0 {
        results.clear_keys_and_values(cx, &problem)?;
    }
    if is_empty {
        return Ok(());
    }
    let mut workspace = workspace;
    if starts.is_some() {
        // What lies between sequences counts with weight 0, so it must be finite: of logarithms and sums, which come last.
        let vectors = workspace.len() / room * (room - 2);
        write_zeros(cx, workspace.elements_mut().slice_mut(vectors..)?)?;
    }
    let Room { mut logs, mut deltas, mut sums } = Room::of(workspace, &problem)?;
    let cleared = if fused { sums.as_mut().map(TensorViewMut::reborrow) } else { None };
    prepare(cx, &problem, &saved, starts.as_ref(), [logs.reborrow(), deltas.reborrow()], cleared)?;
    let soft_cap = options.soft_cap;
    let launch =
        Launch { problem, places, soft_cap, config, saved, rotation, starts, sequences, queries: longest, keys };
    if let Some(sums) = sums.filter(|_| fused) {
        return launch.fused(cx, logs.as_view(), deltas.as_view(), sums, results);
    }
    launch.keys(cx, logs.as_view(), deltas.as_view(), results.keys_and_values(&problem)?)?;
    launch.turn_keys_back(cx, results.keys(&problem)?)?;
    launch.queries(cx, logs.as_view(), deltas.as_view(), results.queries(&problem)?)?;
    launch.turn_queries_back(cx, results.queries(&problem)?)
}

/// Whether there is no bias, no soft cap and no window over packed sequences.
fn is_plain<T: DType>(saved: &Saved<'_, T>, options: &Attention, packed: bool) -> bool {
    saved.bias.is_none() && options.soft_cap.is_none() && !(packed && options.left.is_some())
}

/// The configuration for sequences of at most so many queries and keys, with what [`BackwardConfig::rule`] asks for.
fn choose<T: DType>(cx: &Context, problem: &Problem, longest: [usize; 2], traits: [bool; 2]) -> Result<BackwardConfig> {
    cx.config(T::ELEMENT, &[problem.d, longest[0], longest[1]], || {
        let capability = cx.device().compute_capability();
        BackwardConfig::rule(capability, 8 * size_of::<T>(), tile_dim(problem.d.max(problem.dv)), traits)
    })
}

impl Problem {
    /// The shape of the workspace of two kernels or one, with rows of this length for the queries of a head.
    fn workspace(&self, fused: bool, length: usize) -> [usize; 4] {
        let sums = if fused { fused::width(self) } else { 0 };
        [2 + sums, self.batch, self.heads, length]
    }
}

/// A workspace as tensors.
struct Room<'a> {
    logs: TensorViewMut<'a, f32, 3>,
    deltas: TensorViewMut<'a, f32, 3>,
    /// Sums of gradients of queries, where there is room. They come first: their rows begin at multiples of 16 bytes.
    sums: Option<TensorViewMut<'a, f32, 4>>,
}

impl<'a> Room<'a> {
    fn of(workspace: TensorViewMut<'a, f32, 4>, problem: &Problem) -> Result<Self> {
        let [rows, batch, heads, length] = workspace.shape();
        let (shape, each) = ([batch, heads, length], batch * heads * length);
        let (sums, rest) = workspace.elements().split_at_mut((rows - 2) * each)?;
        let (logs, deltas) = rest.split_at_mut(each)?;
        let wide = [batch, heads, length, fused::width(problem)];
        let sums = if rows > 2 { Some(TensorViewMut::new(sums, wide)?) } else { None };
        Ok(Room { logs: TensorViewMut::new(logs, shape)?, deltas: TensorViewMut::new(deltas, shape)?, sums })
    }
}

fn prepare<T: Float>(
    cx: &Context,
    problem: &Problem,
    saved: &Saved<'_, T>,
    starts: Option<&Starts<'_>>,
    [logs, deltas]: [TensorViewMut<'_, f32, 3>; 2],
    sums: Option<TensorViewMut<'_, f32, 4>>,
) -> Result<()> {
    let Problem { batch, heads, queries, dv, .. } = *problem;
    if logs.is_empty() {
        return Ok(());
    }
    let (out, dout) = (problem.last_contiguous("out", &saved.out)?, problem.last_contiguous("dout", &saved.dout)?);
    let (lse, dlse) = (saved.lse.strides(), saved.dlse.map_or([0; 3], |dlse| dlse.strides()));
    let (columns, width, length) = (tile_dim(dv), fused::width(problem), logs.shape()[2]);
    // 32 elements a thread.
    let rows = 4096 / columns.max(tile_dim(width));
    AttentionDeltasConsts { BM: rows, D: tile_dim(width), DV: columns }
        .call(
            saved.out.elements(),
            saved.dout.elements(),
            saved.lse.elements(),
            MaybeView::from(saved.dlse.map(|dlse| dlse.elements())),
            MaybeView::from(starts.map(|starts| starts.q.elements())),
            deltas.elements(),
            logs.elements(),
            MaybeViewMut::from(sums.map(TensorViewMut::elements)),
            check::size("q", queries)?,
            check::size("q_starts", starts.map_or(0, |starts| starts.q.shape()[0] - 1))?,
            starts.map_or(0, |starts| starts.q.shape()[0].ilog2() as i32 + 1),
            check::size("workspace", length)?,
            check::size("v", dv)?,
            check::size("q", width)?,
            out[0],
            out[1],
            out[2],
            dout[0],
            dout[1],
            dout[2],
            lse[0] as i64,
            lse[1] as i64,
            dlse[0] as i64,
            dlse[1] as i64,
        )
        .grid((queries.div_ceil(rows), heads, batch))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Numbers for each query, for kernels that read blocks of them.
fn rows_of<'a>(view: &TensorView<'a, f32, 3>) -> Result<TensorDesc<'a, f32, 3>> {
    TensorDesc::with_strides(view.elements(), view.shape(), view.strides())
}

impl<T: Float, C: Float> Launch<'_, T, C> {
    fn bias_strides(&self) -> [i64; 4] {
        self.saved.bias.map_or([0; 4], |bias| bias.strides().map(|stride| stride as i64))
    }

    fn keys(
        &self,
        cx: &Context,
        logs: TensorView<'_, f32, 3>,
        deltas: TensorView<'_, f32, 3>,
        of_keys: OfKeys<'_, T>,
    ) -> Result<()> {
        let Launch { problem, places, saved, starts, config, .. } = self;
        if self.keys == 0 {
            return Ok(());
        }
        let (bias, dk, dv) = (self.bias_strides(), of_keys.keys_strides, of_keys.values_strides);
        AttentionKeysBackwardConsts {
            BM: config.keys_block_q,
            BN: config.keys_block_k,
            D: tile_dim(problem.d),
            DV: tile_dim(problem.dv),
        }
        .call(
            &descriptor("q", &saved.q)?,
            &descriptor("k", &saved.k)?,
            &descriptor("v", &saved.v)?,
            &descriptor("dout", &saved.dout)?,
            &rows_of(&logs)?,
            &rows_of(&deltas)?,
            MaybeView::from(saved.bias.map(|bias| bias.elements())),
            MaybeView::from(starts.map(|starts| starts.q.elements())),
            MaybeView::from(starts.map(|starts| starts.k.elements())),
            of_keys.keys,
            of_keys.values,
            of_keys.apart,
            check::size("q", problem.queries)?,
            check::size("k", problem.keys)?,
            check::size("k", problem.d)?,
            check::size("v", problem.dv)?,
            check::size("q", problem.group)?,
            places.scale,
            self.soft_cap,
            places.left,
            places.right,
            bias[0],
            bias[1],
            bias[2],
            dk[0],
            dk[1],
            dk[2],
            dv[0],
            dv[1],
            dv[2],
        )
        .grid((self.keys.div_ceil(config.keys_block_k), problem.heads / problem.group, self.sequences))
        .num_warps(config.num_warps as u32)
        .num_stages(config.num_stages as u32)
        .stream(cx.stream())
        .launch(cx.device())
    }

    fn queries(
        &self,
        cx: &Context,
        logs: TensorView<'_, f32, 3>,
        deltas: TensorView<'_, f32, 3>,
        dq: TensorViewMut<'_, T, 4>,
    ) -> Result<()> {
        let Launch { problem, places, saved, starts, config, .. } = self;
        if self.queries == 0 {
            return Ok(());
        }
        let (bias, dq_strides) = (self.bias_strides(), dq.strides());
        AttentionQueriesBackwardConsts {
            BM: config.queries_block_q,
            BN: config.queries_block_k,
            D: tile_dim(problem.d),
            DV: tile_dim(problem.dv),
        }
        .call(
            &descriptor("q", &saved.q)?,
            &descriptor("k", &saved.k)?,
            &descriptor("v", &saved.v)?,
            &descriptor("dout", &saved.dout)?,
            &rows_of(&logs)?,
            &rows_of(&deltas)?,
            MaybeView::from(saved.bias.map(|bias| bias.elements())),
            MaybeView::from(starts.map(|starts| starts.q.elements())),
            MaybeView::from(starts.map(|starts| starts.k.elements())),
            dq.elements(),
            check::size("q", problem.queries)?,
            check::size("k", problem.keys)?,
            check::size("k", problem.d)?,
            check::size("q", problem.group)?,
            places.scale,
            self.soft_cap,
            places.left,
            places.right,
            bias[0],
            bias[1],
            bias[2],
            dq_strides[0] as i64,
            dq_strides[1] as i64,
            dq_strides[2] as i64,
        )
        .grid((self.queries.div_ceil(config.queries_block_q), problem.heads, self.sequences))
        .num_warps(config.num_warps as u32)
        .num_stages(config.num_stages as u32)
        .stream(cx.stream())
        .launch(cx.device())
    }
}
