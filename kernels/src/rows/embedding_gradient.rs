//! The gradient of a table, of which each row is written once.
//!
//! Positions are sorted by their indices, so that those of one row of the table are a run. A program for each row sums its run.
//! Runs may be of any length: what stands between multiples of a chunk is summed before, by a program for each chunk that is of
//! one run alone, so that the row's program adds a few positions at either end and a sum for each chunk between them.

use super::embedding::EmbeddingConfig;
use crate::arguments::{packed, vector};
use crate::config::Key;
use crate::general::{Keys, Real};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Error, Result, View, ViewMut};

/// The fewest positions of a chunk.
const LEAST_CHUNK: usize = 64;

/// Elements of a program that prepares or looks through indices.
const BLOCK: usize = 512;

/// Rows of a table that a program has, so that it writes several where no index occurs.
const OWN: usize = 4;
/// Tables with fewer rows have a program for each, as multiprocessors would have none otherwise.
const MANY: usize = 4096;

impl EmbeddingConfig {
    /// Of sums over positions, 8 of them at once: 8 elements a thread, so that much of a run is on its way.
    pub(super) fn choose_sums(columns: usize) -> Self {
        let block = columns.next_power_of_two().clamp(32, 1024);
        EmbeddingConfig { rows: 8, block, num_warps: (block / 256).max(1) }
    }
}

/// Indices as keys that are sorted, and no run for any row.
#[kernel]
pub(super) fn prepare_runs<I: Int, const BLOCK: usize>(
    ids: Ptr<I>,
    keys: PtrMut<i32>,
    bounds: PtrMut<i32>,
    n: i32,
    entries: i32,
) {
    let at = program_id(0) * BLOCK + arange(0, BLOCK);
    let id = load(ids + at, mask = at < n) as i64;
    assert!((at >= n) | ((id >= 0) & (id < entries as i64)), "an index is no row of the table");
    store(keys + at, id as i32, mask = at < n);
    store(bounds + at, 0, mask = at < 2 * entries);
}

/// Where the run of each row begins and ends among sorted indices.
#[kernel]
pub(super) fn find_runs<const BLOCK: usize>(
    keys: Ptr<i32>,
    starts: PtrMut<i32>,
    ends: PtrMut<i32>,
    n: i32,
    entries: i32,
) {
    let at = program_id(0) * BLOCK + arange(0, BLOCK);
    let (before, after) = (at - 1, at + 1);
    let key = load(keys + at, mask = at < n);
    let is_first = load(keys + before, mask = (before >= 0) & (before < n), other = -1) != key;
    let is_last = load(keys + after, mask = after < n, other = -1) != key;
    let is_row = (at < n) & (key >= 0) & (key < entries);
    store(starts + key, at, mask = is_row & is_first);
    store(ends + key, at + 1, mask = is_row & is_last);
}

/// The sum of `dy` over each chunk of sorted positions, where all of them have one index.
#[kernel]
pub(super) fn sum_chunks<T: Float, S: Float, const ROWS: usize, const BLOCK: usize>(
    dy: Ptr<T>,
    keys: Ptr<i32>,
    places: Ptr<i32>,
    sums: PtrMut<S>,
    stride: i64,
    n: i32,
    columns: i32,
    chunk: i32,
) {
    let first = program_id(0) * chunk;
    if load(keys + first) != load(keys + first + chunk - 1) {
        return;
    }
    let column = program_id(1) * BLOCK + arange(0, BLOCK);
    let mut total = zeros::<S>([BLOCK]);
    for at in (first..first + chunk).step_by(ROWS) {
        let row = load(places + at + arange(0, ROWS));
        let mask = ((row >= 0) & (row < n))[(.., None)] & (column < columns);
        total += sum(load(dy + (row[(.., None)] as i64 * stride + column as i64), mask = mask) as S, axis = 0);
    }
    store(sums + (program_id(0) as i64 * columns as i64 + column as i64), total, mask = column < columns);
}

/// `dtable[id]` is the sum of `dy` over the run of `id`: of the positions in front of its first chunk and behind its last, then
/// of its chunks. A program has `OWN` rows of the table, far from each other, as frequent indices are often neighbours.
#[kernel]
pub(super) fn sum_rows<T: Float, S: Float, G: Float, const OWN: usize, const ROWS: usize, const BLOCK: usize>(
    dy: Ptr<T>,
    places: Ptr<i32>,
    starts: Ptr<i32>,
    ends: Ptr<i32>,
    sums: Ptr<S>,
    dtable: PtrMut<G>,
    dy_stride: i64,
    table_stride: i64,
    n: i32,
    entries: i32,
    columns: i32,
    chunk: i32,
    chunks: i32,
) {
    let column = program_id(1) * BLOCK + arange(0, BLOCK);
    // Most rows of a large table have no position. All of a program's are cleared at once.
    let own = program_id(0) + arange(0, OWN) * num_programs(0);
    let len = load(ends + own, mask = own < entries) - load(starts + own, mask = own < entries);
    let mask = ((own < entries) & (len == 0))[(.., None)] & (column < columns);
    store(dtable + (own[(.., None)] as i64 * table_stride + column as i64), zeros::<G>([OWN, BLOCK]), mask = mask);
    if max(len) == 0 {
        return;
    }
    for id in (program_id(0)..entries).step_by(num_programs(0)) {
        let (start, end) = (clamp(load(starts + id), 0, n), clamp(load(ends + id), 0, n));
        if start < end {
            // Rounded up by the division of the next line, which has room for the sum: a second kind takes registers.
            let first = (start + (chunk - 1)) / chunk;
            let last = maximum(minimum(end / chunk, chunks), first);
            let (before, between) = (first * chunk - start, (last - first) * chunk);
            let mut total = zeros::<S>([BLOCK]);
            for step in (0..end - start - between).step_by(ROWS) {
                let at = step + arange(0, ROWS);
                let position = start + at + select(at < before, 0, between);
                let row = load(places + position, mask = (position >= 0) & (position < end), other = -1);
                let mask = ((row >= 0) & (row < n))[(.., None)] & (column < columns);
                total +=
                    sum(load(dy + (row[(.., None)] as i64 * dy_stride + column as i64), mask = mask) as S, axis = 0);
            }
            for step in (first..last).step_by(ROWS / 2) {
                let at = step + arange(0, ROWS / 2);
                let mask = ((at < last) & (at < chunks))[(.., None)] & (column < columns);
                let place = at[(.., None)] as i64 * columns as i64 + column as i64;
                total += sum(load(sums + place, mask = mask), axis = 0);
            }
            store(dtable + (id as i64 * table_stride + column as i64), total as G, mask = column < columns);
        }
    }
}

/// Positions of a chunk: few, so that little is left at the ends of a run, and more where there are more chunks than a program
/// soon adds up. A multiple of the rows that are summed at once.
fn chunk(n: usize) -> usize {
    (n.isqrt() / 4).next_power_of_two().clamp(LEAST_CHUNK, 4096)
}

/// So many numbers, and what makes those behind them begin at 16 bytes.
fn aligned(n: usize) -> usize {
    n.next_multiple_of(4)
}

/// Memory in which [`embedding_gradient_into`] works.
#[derive(Debug)]
pub struct EmbeddingWorkspace<'a, S: Float> {
    /// Indices and positions in their order, and where each row's begin: `[EmbeddingWorkspace::order(n, entries)]`.
    pub order: TensorViewMut<'a, i32, 1>,
    /// Sums of many positions with one index: `[EmbeddingWorkspace::sums(n), columns]`.
    pub sums: TensorViewMut<'a, S, 2>,
}

impl<'a, S: Float> EmbeddingWorkspace<'a, S> {
    /// Elements of `order` for `n` indices of a table with so many rows.
    pub fn order(n: usize, entries: usize) -> usize {
        4 * aligned(n) + Keys::counts(n) + 2 * entries
    }

    /// Rows of `sums` for `n` indices.
    pub fn sums(n: usize) -> usize {
        n / chunk(n)
    }
}

/// The gradient of [`embedding`](super::embedding()) alone, `[entries, columns]`: row `id` is the sum of `dy[i]` over those `i` with
/// `ids[i] = id`, and zero where there is none.
///
/// # Shapes
///
/// `dy` is `[n, columns]`, `ids` is `[n]` of any integer.
///
/// # Numerics
///
/// Rows of one index are summed in f32 (f64 for f64) and rounded once, in an order that depends on `ids` alone: the same
/// at every launch.
///
/// # Method
///
/// Sorts positions by their indices, in as many passes as the number of the last row has bytes; then each row of `dy` is read
/// once, and each row of the result written once. Many programs sum the rows of an index that occurs often, so that the time
/// of one grows with the root of the number of indices. Allocates the [`EmbeddingWorkspace`].
/// [`embedding_backward`](super::embedding_backward) adds to a gradient that is there.
///
/// # Errors
///
/// As [`embedding`](super::embedding()), [`Error::InvalidGrid`] of more than 134,215,680 indices, and [`Error::InvalidSetting`] of a
/// configuration that does not fit.
pub fn embedding_gradient<'a, 'b, T: Real, I: Int>(
    cx: &Context,
    dy: impl Into<TensorView<'a, T, 2>>,
    ids: impl Into<TensorView<'b, I, 1>>,
    entries: usize,
) -> Result<Tensor<T, 2>> {
    let (dy, ids) = (dy.into(), ids.into());
    let (n, columns) = (ids.len(), dy.shape()[1]);
    let mut order = Tensor::empty(cx.device(), [EmbeddingWorkspace::<T::Sums>::order(n, entries)])?;
    let mut sums = Tensor::empty(cx.device(), [EmbeddingWorkspace::<T::Sums>::sums(n), columns])?;
    let workspace = EmbeddingWorkspace { order: order.view_mut(), sums: sums.view_mut() };
    let mut dtable = Tensor::empty(cx.device(), [entries, columns])?;
    embedding_gradient_into(cx, dy, ids, workspace, &mut dtable)?;
    Ok(dtable)
}

/// [`embedding_gradient`], into a tensor `[entries, columns]` of any float, whatever it holds.
///
/// # Errors
///
/// As [`embedding_gradient`].
pub fn embedding_gradient_into<'a, 'b, 'c, T: Real, G: Float, I: Int>(
    cx: &Context,
    dy: impl Into<TensorView<'a, T, 2>>,
    ids: impl Into<TensorView<'b, I, 1>>,
    workspace: EmbeddingWorkspace<'_, T::Sums>,
    dtable: impl Into<TensorViewMut<'c, G, 2>>,
) -> Result<()> {
    let (dy, ids, dtable) = (dy.into(), ids.into(), dtable.into());
    let ([entries, columns], n) = (dtable.shape(), ids.len());
    check::shape("dy", dy.shape(), [n, columns])?;
    packed("ids", ids.is_contiguous())?;
    let EmbeddingWorkspace { order, sums } = workspace;
    vector("order", &order.as_view(), EmbeddingWorkspace::<T::Sums>::order(n, entries))?;
    check::shape("sums", sums.shape(), [EmbeddingWorkspace::<T::Sums>::sums(n), columns])?;
    packed("sums", sums.is_contiguous())?;
    let (from, to) = (dy.rows("dy")?, dtable.rows("dtable")?);
    if check::size("dtable", entries)? > i32::MAX / 2 {
        let problem = format!("has {entries} rows");
        return Err(check::invalid("dtable", problem, format!("there are at most {}", i32::MAX / 2)));
    }
    let config = cx.config(Key::of(T::ELEMENT, "sums"), &dtable.shape(), || EmbeddingConfig::choose_sums(columns))?;
    // A chunk has whole groups of rows, and sums of chunks are added half as many at once.
    let fits = |rows: usize| rows.is_power_of_two() && (2..=LEAST_CHUNK).contains(&rows);
    if !fits(config.rows) || !config.block.is_power_of_two() {
        return Err(Error::InvalidSetting {
            name: "rows and block of embedding sums".into(),
            value: format!("{} and {}", config.rows, config.block).into(),
            expected: format!("powers of two, the rows from 2 to {LEAST_CHUNK}").into(),
        });
    }
    let runs = Runs::find(cx, ids.elements(), entries, order.elements())?;
    let work =
        Sums { runs, dy: dy.elements(), stride: from.stride as i64, columns: check::size("dy", columns)?, config };
    work.run(cx, sums.elements(), (dtable.elements(), to.stride as i64))
}

/// Positions in the order of their indices, and where those of each row of the table are.
struct Runs<'a> {
    sorted: Keys<'a>,
    starts: ViewMut<'a, i32>,
    ends: ViewMut<'a, i32>,
}

impl<'a> Runs<'a> {
    fn find<I: Int>(cx: &Context, ids: View<'_, I>, entries: usize, memory: ViewMut<'a, i32>) -> Result<Self> {
        let n = ids.len();
        let part = |memory: ViewMut<'a, i32>| -> Result<_> {
            let (part, rest) = memory.split_at_mut(aligned(n))?;
            Ok((part.split_at_mut(n)?.0, rest))
        };
        let (values, memory) = part(memory)?;
        let (places, memory) = part(memory)?;
        let mut keys = Keys { values, places };
        let (values, memory) = part(memory)?;
        let (places, memory) = part(memory)?;
        let (counts, mut bounds) = memory.split_at_mut(Keys::counts(n))?;
        let (len, rows) = (check::size("ids", n)?, entries as i32);
        PrepareRunsConsts { BLOCK }
            .call(ids, keys.values.reborrow(), bounds.reborrow(), len, rows)
            .grid(n.max(2 * entries).div_ceil(BLOCK))
            .num_warps(4)
            .stream(cx.stream())
            .launch(cx.device())?;
        let sorted = keys.sort(cx, entries, Keys { values, places }, counts)?;
        let (mut starts, mut ends) = bounds.split_at_mut(entries)?;
        FindRunsConsts { BLOCK }
            .call(sorted.values.as_view(), starts.reborrow(), ends.reborrow(), len, rows)
            .grid(n.div_ceil(BLOCK))
            .num_warps(4)
            .stream(cx.stream())
            .launch(cx.device())?;
        Ok(Runs { sorted, starts, ends })
    }
}

/// What is summed over runs.
struct Sums<'a, T: DType> {
    runs: Runs<'a>,
    dy: View<'a, T>,
    stride: i64,
    columns: i32,
    config: EmbeddingConfig,
}

impl<T: Real> Sums<'_, T> {
    fn run<G: Float>(
        self,
        cx: &Context,
        mut sums: ViewMut<'_, T::Sums>,
        (dtable, table_stride): (ViewMut<'_, G>, i64),
    ) -> Result<()> {
        let Sums { runs, dy, stride, columns, config } = self;
        let (n, entries) = (runs.sorted.values.len(), runs.starts.len());
        let (chunk, blocks) = (chunk(n), (columns as usize).div_ceil(config.block));
        let (len, places) = (n as i32, runs.sorted.places.as_view());
        SumChunksConsts { ROWS: config.rows, BLOCK: config.block }
            .call(dy, runs.sorted.values.as_view(), places, sums.reborrow(), stride, len, columns, chunk as i32)
            .grid((n / chunk, blocks))
            .num_warps(config.num_warps as u32)
            .stream(cx.stream())
            .launch(cx.device())?;
        let bounds = (runs.starts.as_view(), runs.ends.as_view());
        let own = if entries < MANY { 1 } else { OWN };
        SumRowsConsts { OWN: own, ROWS: config.rows, BLOCK: config.block }
            .call(
                dy,
                places,
                bounds.0,
                bounds.1,
                sums.as_view(),
                dtable,
                stride,
                table_stride,
                len,
                entries as i32,
                columns,
                chunk as i32,
                (n / chunk) as i32,
            )
            .grid((entries.div_ceil(own), blocks))
            .num_warps(config.num_warps as u32)
            .stream(cx.stream())
            .launch(cx.device())
    }
}
