//! What `time-builds` edits: attention over rows of a cache, of ten functions and a struct.

use tilewright::prelude::*;

const LOG2_E: f32 = 1.442_695;

/// Running softmax of rows.
#[device]
pub struct State<const M: usize, const D: usize> {
    pub max: Tile<f32, { [M] }>,
    pub sum: Tile<f32, { [M] }>,
    pub acc: Tile<f32, { [M, D] }>,
}

/// Nothing seen yet.
#[device]
pub fn fresh<const M: usize, const D: usize>() -> State<M, D> {
    State { max: full([M], f32::NEG_INFINITY), sum: zeros([M]), acc: zeros([M, D]) }
}

/// `x * sigmoid(x)`
#[device]
pub fn silu<T: Float, const M: usize, const N: usize>(x: Tile<T, { [M, N] }>) -> Tile<T, { [M, N] }> {
    x * sigmoid(x)
}

/// Rows of a matrix.
#[device]
pub fn rows<T: Float, const M: usize, const N: usize>(
    x: Ptr<T>,
    first: i32,
    end: i32,
    stride: i64,
) -> Tile<T, { [M, N] }> {
    let row = first + arange(0, M);
    let at = row[(.., None)] as i64 * stride + arange(0, N) as i64;
    load(x + at, mask = (row < end)[(.., None)])
}

/// Scores are squeezed between `-cap` and `cap`.
#[device]
pub fn capped<const M: usize, const N: usize>(x: Tile<f32, { [M, N] }>, cap: f32) -> Tile<f32, { [M, N] }> {
    let limited = cap * tanh(x / cap);
    if cap > 0.0 { limited } else { x }
}

/// Whether a query sees a key.
#[device]
pub fn seen<const M: usize, const N: usize>(query: i32, key: i32, end: i32, window: i32) -> Tile<bool, { [M, N] }> {
    let (query, key) = ((query + arange(0, M))[(.., None)], key + arange(0, N));
    (key <= query) & (key > query - window) & (key < end)
}

/// Scores of a block.
#[device]
pub fn scores<T: Float, const M: usize, const N: usize, const D: usize>(
    q: Tile<T, { [M, D] }>,
    k: Tile<T, { [N, D] }>,
    seen: Tile<bool, { [M, N] }>,
    scale: f32,
    cap: f32,
) -> Tile<f32, { [M, N] }> {
    let raw = dot(q, trans(k), out = f32) * scale;
    select(seen, capped(raw, cap) * LOG2_E, f32::NEG_INFINITY)
}

/// What a number becomes when the greatest one changes.
#[device]
pub fn rescaled<const M: usize>(old: Tile<f32, { [M] }>, new: Tile<f32, { [M] }>) -> Tile<f32, { [M] }> {
    select(new == f32::NEG_INFINITY, 1.0, exp2(old - new))
}

/// A block more.
#[device]
pub fn absorbed<T: Float, const M: usize, const N: usize, const D: usize>(
    state: State<M, D>,
    scores: Tile<f32, { [M, N] }>,
    v: Tile<T, { [N, D] }>,
) -> State<M, D> {
    let State { max: before, sum: total, acc } = state;
    let greatest = maximum(before, max(scores, axis = 1));
    let factor = rescaled(before, greatest);
    let finite = select(greatest == f32::NEG_INFINITY, 0.0, greatest);
    let p = exp2(scores - finite[(.., None)]);
    let acc = dot(p as T, v, acc = acc * factor[(.., None)]);
    State { max: greatest, sum: total * factor + sum(p, axis = 1), acc }
}

/// The result.
#[device]
pub fn finished<const M: usize, const D: usize>(state: State<M, D>) -> Tile<f32, { [M, D] }> {
    let total = select(state.sum > 0.0, state.sum, 1.0);
    state.acc / total[(.., None)]
}

/// Writes rows.
#[device]
pub fn write<T: Float, const M: usize, const N: usize>(
    out: PtrMut<T>,
    x: Tile<f32, { [M, N] }>,
    first: i32,
    end: i32,
    stride: i64,
) {
    let row = first + arange(0, M);
    let at = row[(.., None)] as i64 * stride + arange(0, N) as i64;
    store(out + at, silu(x) as T, mask = (row < end)[(.., None)]);
}

/// Attention with a window, gated.
#[kernel]
pub fn edited<T: Float, const M: usize, const N: usize, const D: usize>(
    q: Ptr<T>,
    k: Ptr<T>,
    v: Ptr<T>,
    out: PtrMut<T>,
    queries: i32,
    keys: i32,
    stride: i64,
    scale: f32,
    cap: f32,
    window: i32,
) {
    let first = program_id(0) * M;
    let query = rows::<T, M, D>(q, first, queries, stride);
    let mut state = fresh::<M, D>();
    for start in (0..keys).step_by(N) {
        let there = seen::<M, N>(first, start, keys, window);
        let s = scores(query, rows::<T, N, D>(k, start, keys, stride), there, scale * EDIT.0, cap);
        state = absorbed(state, s, rows::<T, N, D>(v, start, keys, stride));
    }
    write(out, finished(state), first, queries, stride);
}
