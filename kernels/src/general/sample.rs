//! Drawing tokens from logits.

use super::arg::last_pass;
use super::axis::{Kept, Work, end_of_piece};
use super::number::Real;
use super::pairs::PairWorkspace;
use super::topk::{self, Extreme};
use crate::arguments::vector;
use crate::workspace::{Memory, contiguous, part, room};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Result, ViewMut};

/// What [`sample`] draws from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    temperature: f32,
    top_k: Option<usize>,
    top_p: f32,
    seed: u32,
}

/// The least temperature above 0.
const LEAST_TEMPERATURE: f32 = 1e-10;

impl Default for Sampling {
    /// All tokens, by their probabilities, with seed 0.
    fn default() -> Self {
        Sampling { temperature: 1.0, top_k: None, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Logits are divided by this. 0 takes the largest; what is above 0, but below 1e-10, counts as that, so that quotients are
    /// finite.
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.temperature = temperature;
        self
    }

    /// Only the `k` most likely tokens, up to 1024.
    pub fn top_k(mut self, k: usize) -> Self {
        self.top_k = Some(k);
        self
    }

    /// Only the most likely tokens that together have the probability `p`, the one included that reaches it (Holtzman, Buys,
    /// Du, Forbes and Choi, "The Curious Case of Neural Text Degeneration", 2019). Probabilities are relative to the `k` most
    /// likely tokens. Without [`Sampling::top_k`], these are the 1024 most likely ones.
    pub fn top_p(mut self, p: f32) -> Self {
        self.top_p = p;
        self
    }

    /// The same seed draws the same tokens. Every call takes another one.
    pub fn seed(mut self, seed: u32) -> Self {
        self.seed = seed;
        self
    }
}

/// Draws one of `k` logits of each row, which are in descending order.
#[kernel]
fn draw<T: Float, const K: usize>(
    logits: Ptr<T>,
    tokens: Ptr<i32>,
    out: PtrMut<i32>,
    k: i32,
    inverse_temperature: f32,
    top_p: f32,
    seed: u32,
) {
    let row = program_id(0);
    let lane = arange(0, K);
    let mask = lane < k;
    let v = load(logits + row as i64 * k as i64 + lane, mask = mask, other = T::NEG_INFINITY) as f32;
    let v = v - max(v, axis = 0);
    let p = select(mask, exp(v * inverse_temperature), 0.0);
    let before = cumsum(p, axis = 0) - p;
    let p = select((before < top_p * sum(p, axis = 0)) | (lane == 0), p, 0.0);
    let up_to = cumsum(p, axis = 0);
    let at = rand(seed, row) * sum(p, axis = 0);
    // The first one beyond the point, of those that have a probability: rounding may put the point behind the last.
    let last = max(select(p > 0.0, lane, 0), axis = 0);
    let chosen = minimum(min(select(up_to > at, lane, K as i32), axis = 0), last);
    let token = load(tokens + row as i64 * k as i64 + chosen);
    store(out + row, token);
}

/// The largest of `logit / temperature + noise` in each piece of a row, where the noise has Gumbel's distribution: that is a
/// draw from the softmax of the row (Gumbel, 1954).
#[kernel]
fn draw_all<T: Float, const BLOCK: usize>(
    logits: Ptr<T>,
    values: PtrMut<f32>,
    places: PtrMut<i32>,
    columns: i32,
    per_piece: i32,
    stride: i64,
    inverse_temperature: f32,
    seed: u32,
) {
    let row = program_id(0);
    let first = program_id(1) * per_piece;
    let end = end_of_piece(first, per_piece, columns);
    let mut best = full([BLOCK], f32::NEG_INFINITY);
    let mut best_at = full([BLOCK], i32::MAX);
    // The seed of a row: seeds and rows in the two halves of Philox's key.
    let key = ((row as i64) << 32) | seed as i64;
    for at in (first..end).step_by(BLOCK) {
        let column = at + arange(0, BLOCK);
        let mask = column < end;
        let v = load(logits + row as i64 * stride + column, mask = mask, other = T::NEG_INFINITY) as f32;
        // Random numbers are multiples of 2^-31: 0 becomes half of that, of which the noise is finite.
        let noise = -log(-log(maximum(rand(key, column), 2.328_306_4e-10)));
        let noisy = select(mask, v * inverse_temperature + noise, f32::NEG_INFINITY);
        let better = (noisy > best) | ((noisy != noisy) & (best == best));
        best = select(better, noisy, best);
        best_at = select(better, column, best_at);
    }
    let (value, place) = reduce((best, best_at), axis = 0, |(a, i), (b, j)| {
        let same = a == b || a != a && b != b;
        if a > b || a != a && b == b || same && i < j { (a, i) } else { (b, j) }
    });
    let result = program_id(1) as i64 * num_programs(0) as i64 + row as i64;
    store(values + result, value);
    store(places + result, select(place == i32::MAX, first, place));
}

/// Draws a token of each row of logits.
///
/// A token's probability is `exp(logit / temperature)` over the sum of those that may be drawn: see [`Sampling`]. A row in
/// which an element is NaN, or no element is above `-inf`, gives some index of the row.
///
/// # Shapes
///
/// `logits` is `[rows, columns]` of any float with 2^27 columns at most; the result is `[rows]`.
///
/// # Method
///
/// With [`Sampling::top_k`] or [`Sampling::top_p`] one of the most likely tokens is drawn, which [`topk`](super::topk) finds;
/// otherwise each logit gets noise of Gumbel's distribution, and the largest is taken. Random numbers are those of Philox
/// 4x32 by seed, row and column. Likely tokens and results of pieces are allocated for the call.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if rows have gaps, are empty or too long, or for a temperature below 0 or
/// not finite, a `top_p` not in `0..=1` or a `top_k` not in `1..=1024`; [`tilewright::Error::OutOfMemory`]; those of a launch.
pub fn sample<'a, T: Real>(
    cx: &Context,
    logits: impl Into<TensorView<'a, T, 2>>,
    sampling: Sampling,
) -> Result<Tensor<i32, 1>> {
    let logits = logits.into();
    let mut out = Tensor::empty(cx.device(), [logits.shape()[0]])?;
    sample_into(cx, logits, sampling, &mut out)?;
    Ok(out)
}

/// [`sample`], into a tensor `[rows]` without gaps. Likely tokens and results of pieces are allocated as there.
///
/// # Errors
///
/// As [`sample`], and if the shape of `out` does not fit or it has gaps.
pub fn sample_into<'a, 'b, T: Real>(
    cx: &Context,
    logits: impl Into<TensorView<'a, T, 2>>,
    sampling: Sampling,
    out: impl Into<TensorViewMut<'b, i32, 1>>,
) -> Result<()> {
    run(cx, logits.into(), sampling, out.into(), None)
}

/// Memory in which [`sample_into_with`] works; what it holds does not matter.
#[derive(Debug)]
pub struct SampleWorkspace<'a, T: DType> {
    /// Room for the most likely logits: as many as the [`SampleRoom`] says, or more, without gaps.
    pub values: TensorViewMut<'a, T, 1>,
    /// Room for indices, likewise.
    pub places: TensorViewMut<'a, i32, 1>,
    /// Room for logits with noise, likewise.
    pub noisy: TensorViewMut<'a, f32, 1>,
}

/// How many elements a [`SampleWorkspace`] has at least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleRoom {
    /// Of `values`, in the dtype of the logits.
    pub values: usize,
    /// Of `places`, i32.
    pub places: usize,
    /// Of `noisy`, f32.
    pub noisy: usize,
}

/// [`sample_into`], with a workspace of the size that [`sample_workspace`] says, or larger. Nothing is allocated.
///
/// # Errors
///
/// As [`sample_into`], and [`tilewright::Error::InvalidTensor`] if a part of the workspace has gaps or is too small.
pub fn sample_into_with<'a, 'b, T: Real>(
    cx: &Context,
    logits: impl Into<TensorView<'a, T, 2>>,
    sampling: Sampling,
    out: impl Into<TensorViewMut<'b, i32, 1>>,
    workspace: SampleWorkspace<'_, T>,
) -> Result<()> {
    let SampleWorkspace { values, places, noisy } = workspace;
    let values = contiguous("workspace.values", values)?;
    let (places, noisy) = (contiguous("workspace.places", places)?, contiguous("workspace.noisy", noisy)?);
    run(cx, logits.into(), sampling, out.into(), Some(SampleWorkspace { values, places, noisy }))
}

/// What [`sample_into_with`] needs as its workspace for logits of this shape, whatever the device. Of the temperature it matters
/// only whether it is 0, and the seed does not matter.
///
/// # Errors
///
/// As [`sample`].
pub fn sample_workspace<'a, T: Real>(
    logits: impl Into<TensorView<'a, T, 2>>,
    sampling: Sampling,
) -> Result<SampleRoom> {
    let logits = logits.into();
    let rows = logits.shape()[0];
    Ok(match Draw::of(logits, sampling)? {
        Draw::Nothing => SampleRoom::default(),
        Draw::All(Blocks { work, .. }) => {
            let results = work.pieces * rows;
            SampleRoom { values: 0, places: results, noisy: room(&[results, rows]) }
        }
        Draw::Likely(k) => {
            let inner = topk::topk_workspace(logits, k)?;
            let (values, places) = (room(&[rows * k, inner.values]), room(&[rows * k, inner.places]));
            SampleRoom { values, places, noisy: 0 }
        }
    })
}

/// Work on whole rows, in blocks of so many columns.
struct Blocks {
    work: Work,
    block: usize,
}

/// How tokens are drawn.
enum Draw {
    /// There are no rows.
    Nothing,
    /// From whole rows, in pieces where there are few.
    All(Blocks),
    /// From so many of the most likely ones.
    Likely(usize),
}

impl Draw {
    fn of<T: Real>(logits: TensorView<'_, T, 2>, sampling: Sampling) -> Result<Draw> {
        let Sampling { temperature, top_k, top_p, .. } = sampling;
        let [rows, columns] = logits.shape();
        let wrong = |name: &str, value: String, range: &str| Err(check::invalid(name, format!("is {value}"), range));
        // Divided by infinity, minus infinity is NaN.
        if !temperature.is_finite() || temperature < 0.0 {
            return wrong("temperature", temperature.to_string(), "it is at least 0 and finite");
        }
        if !(0.0..=1.0).contains(&top_p) {
            return wrong("top_p", top_p.to_string(), "it is between 0 and 1");
        }
        if top_k.is_some_and(|k| k == 0 || k > topk::MOST) {
            return wrong("top_k", format!("{top_k:?}"), "it is between 1 and 1024");
        }
        if rows > 0 && columns == 0 {
            return wrong("logits", "without columns".into(), "give it one at least");
        }
        if rows == 0 {
            return Ok(Draw::Nothing);
        }
        if top_k.is_none() && top_p == 1.0 && temperature > 0.0 {
            let columns = logits.rows("logits")?.columns;
            check::size("logits", columns)?;
            let block = columns.next_power_of_two().min(2048);
            let work = Work::of("logits", logits.layout(), 1, true)?.with_blocks(1, block);
            return Ok(Draw::All(Blocks { work, block }));
        }
        Ok(Draw::Likely(if temperature == 0.0 { 1 } else { top_k.unwrap_or(topk::MOST).min(columns) }))
    }
}

fn run<T: Real>(
    cx: &Context,
    logits: TensorView<'_, T, 2>,
    sampling: Sampling,
    out: TensorViewMut<'_, i32, 1>,
    workspace: Option<SampleWorkspace<'_, T>>,
) -> Result<()> {
    vector("out", &out.as_view(), logits.shape()[0])?;
    let drawn = Draw::of(logits, sampling)?;
    let needed = sample_workspace(logits, sampling)?;
    let (values, places, noisy) = match workspace {
        Some(SampleWorkspace { values, places, noisy }) => (Some(values), Some(places), Some(noisy)),
        None => (None, None, None),
    };
    match drawn {
        Draw::Nothing => Ok(()),
        Draw::All(blocks) => {
            let mut places = Memory::of(cx, "workspace.places", places, needed.places)?;
            let mut noisy = Memory::of(cx, "workspace.noisy", noisy, needed.noisy)?;
            draw_of_all(cx, logits, &blocks, sampling, out, (noisy.view_mut(), places.view_mut()))
        }
        Draw::Likely(k) => {
            let mut values = Memory::of(cx, "workspace.values", values, needed.values)?;
            let mut places = Memory::of(cx, "workspace.places", places, needed.places)?;
            draw_of_likely(cx, logits, k, sampling, out, (values.view_mut(), places.view_mut()))
        }
    }
}

/// Draws from the `k` most likely tokens of each row.
fn draw_of_likely<T: Real>(
    cx: &Context,
    logits: TensorView<'_, T, 2>,
    k: usize,
    sampling: Sampling,
    out: TensorViewMut<'_, i32, 1>,
    (values, places): (ViewMut<'_, T>, ViewMut<'_, i32>),
) -> Result<()> {
    let rows = logits.shape()[0];
    let ((mut values, rest), (mut tokens, others)) = (part(values, rows * k)?, part(places, rows * k)?);
    let (extremes, chosen) = (rest.len(), others.len());
    let workspace =
        PairWorkspace { values: TensorViewMut::new(rest, [extremes])?, places: TensorViewMut::new(others, [chosen])? };
    let to = (TensorViewMut::new(values.reborrow(), [rows, k])?, TensorViewMut::new(tokens.reborrow(), [rows, k])?);
    topk::into(cx, logits, (k, Extreme::Largest), to, Some(workspace))?;
    let Sampling { temperature, top_p, seed, .. } = sampling;
    let inverse = if temperature == 0.0 { 1.0 } else { 1.0 / temperature.max(LEAST_TEMPERATURE) };
    let block = k.next_power_of_two();
    DrawConsts { K: block }
        .call(values.as_view(), tokens.as_view(), out.elements(), k as i32, inverse, top_p, seed)
        .grid(rows)
        .num_warps((block / 256).clamp(1, 4) as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Draws from whole rows, in pieces where there are few.
fn draw_of_all<T: Real>(
    cx: &Context,
    logits: TensorView<'_, T, 2>,
    Blocks { work, block }: &Blocks,
    sampling: Sampling,
    out: TensorViewMut<'_, i32, 1>,
    (noisy, mut places): (ViewMut<'_, f32>, ViewMut<'_, i32>),
) -> Result<()> {
    let from = logits.rows("logits")?;
    let (mut values, mut best) = part(noisy, work.pieces * from.rows)?;
    DrawAllConsts { BLOCK: *block }
        .call(
            logits.elements(),
            values.reborrow(),
            places.reborrow(),
            check::size("logits", from.columns)?,
            work.per_piece as i32,
            from.stride as i64,
            1.0 / sampling.temperature.max(LEAST_TEMPERATURE),
            sampling.seed,
        )
        .grid((from.rows, work.pieces))
        .num_warps((block / 256).clamp(1, 8) as u32)
        .stream(cx.stream())
        .launch(cx.device())?;
    let to = Kept { kept: 1, beside: from.rows as i64, axis: 0 };
    let how = (true, f32::NEG_INFINITY);
    let pieces = (values.as_view(), places.as_view());
    last_pass(cx, work, how, pieces, (best.reborrow(), to), (out.elements(), to))
}
