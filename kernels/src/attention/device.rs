//! What the kernels of attention share: scores, and the sums that a loop over keys carries.

use tilewright::prelude::*;

/// log2(e): weights are powers of two, which is what the hardware computes.
pub(super) const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// 1 / log2(e).
pub(super) const LN_2: f64 = std::f64::consts::LN_2;

/// What a loop over keys carries for each row of queries.
#[device]
pub(super) struct Rows<A: Float, const M: usize, const D: usize> {
    /// Sums of values with weights relative to `peak`.
    pub acc: Tile<A, { [M, D] }>,
    /// The largest score so far, times log2(e). Finite, so that no infinity is subtracted from another.
    pub peak: Tile<A, { [M] }>,
    /// The sum of weights.
    pub total: Tile<A, { [M] }>,
}

/// Rows that have seen no key.
#[device]
pub(super) fn unseen<A: Float, const M: usize, const D: usize>() -> Rows<A, M, D> {
    Rows { acc: zeros::<A>([M, D]), peak: full::<A>([M], A::MIN), total: zeros::<A>([M]) }
}

/// What a block of keys does to rows whose largest score so far is `peak` (Milakov and Gimelshein, 2018; Dao et al., 2022):
/// the largest score now, the factor of what was summed before, and the weights, `exp2(scores * factor - peak)`. Scores of keys
/// that a row does not see are minus infinity.
#[device]
pub(super) fn weigh<A: Float, const M: usize, const N: usize>(
    peak: Tile<A, { [M] }>,
    scores: Tile<A, { [M, N] }>,
    factor: A,
) -> (Tile<A, { [M] }>, Tile<A, { [M] }>, Tile<A, { [M, N] }>) {
    let higher = maximum(peak, max(scores, axis = 1) * factor);
    (higher, exp2(peak - higher), exp2(scores * factor - higher[(.., None)]))
}

/// Adds a block of keys to what rows have seen, as [`weigh`] says.
#[device]
pub(super) fn absorb<T: Float, A: Float, const M: usize, const N: usize, const D: usize>(
    rows: Rows<A, M, D>,
    scores: Tile<A, { [M, N] }>,
    values: Tile<T, { [N, D] }>,
    factor: A,
) -> Rows<A, M, D> {
    let (peak, old, weights) = weigh(rows.peak, scores, factor);
    let total = rows.total * old + sum(weights, axis = 1);
    let acc = dot(weights as T, values, acc = rows.acc * old[(.., None)], precision = tf32x3);
    Rows { acc, peak, total }
}

/// The mean of values by their weights, and the natural logarithm of the sum of exponentials: 0 and minus infinity for rows
/// that have seen nothing.
#[device]
pub(super) fn finish<A: Float, const M: usize, const D: usize>(
    rows: Rows<A, M, D>,
) -> (Tile<A, { [M, D] }>, Tile<A, { [M] }>) {
    let unit: f64 = LN_2;
    let empty = rows.total == 0.0;
    let total = select(empty, 1.0, rows.total);
    let log = select(empty, A::NEG_INFINITY, (rows.peak + log2(total)) * (unit as A));
    (rows.acc * (1.0 / total)[(.., None)], log)
}

/// Minus infinity for keys that a row does not see: it sees those from `from` up to, but not with, `to`.
#[device]
pub(super) fn hide<A: Float, const M: usize, const N: usize>(
    scores: Tile<A, { [M, N] }>,
    key: Tile<i32, { [N] }>,
    from: Tile<i32, { [M] }>,
    to: Tile<i32, { [M] }>,
) -> Tile<A, { [M, N] }> {
    select((key >= from[(.., None)]) & (key < to[(.., None)]), scores, A::NEG_INFINITY)
}

/// The same of keys that have no first one: it takes half the comparisons.
#[device]
pub(super) fn hide_later<A: Float, const M: usize, const N: usize>(
    scores: Tile<A, { [M, N] }>,
    key: Tile<i32, { [N] }>,
    to: Tile<i32, { [M] }>,
) -> Tile<A, { [M, N] }> {
    select(key < to[(.., None)], scores, A::NEG_INFINITY)
}

/// Where the numbers of the queries of packed sequences begin that begin at `start` among the queries, in ascending order: behind
/// those of the sequences before, with gaps of up to three, so that copies in hardware can begin there.
#[device]
pub(super) fn places_of_sequences<const N: usize>(
    start: Tile<i32, { [N] }>,
    sequence: Tile<i32, { [N] }>,
) -> Tile<i32, { [N] }> {
    (start + 3 * sequence) / 4 * 4
}

/// As [`places_of_sequences`], of one.
#[device]
pub(super) fn place_of_sequence(start: i32, sequence: i32) -> i32 {
    (start + 3 * sequence) / 4 * 4
}

/// Pairs of a gradient rotated by the negative angles: the gradient of what was rotated by them.
#[device]
pub(super) fn rotate_back<A: Float, const M: usize, const N: usize>(
    a: Tile<A, { [M, N] }>,
    b: Tile<A, { [M, N] }>,
    cosine: Tile<A, { [M, N] }>,
    sine: Tile<A, { [M, N] }>,
) -> (Tile<A, { [M, N] }>, Tile<A, { [M, N] }>) {
    (a * cosine + b * sine, b * cosine - a * sine)
}
