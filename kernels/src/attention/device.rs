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

/// Where a packed sequence begins, and its length; without `starts` it begins at 0, and has the length `whole`.
#[device]
pub(super) fn sequence_at(starts: Option<Ptr<i32>>, number: i32, whole: i32) -> (i32, i32) {
    if let Some(starts) = starts {
        let start = load(starts + number);
        (start, load(starts + number + 1) - start)
    } else {
        (0, whole)
    }
}

/// The keys that a block of queries sees, which are the last ones of their sequence.
#[device]
pub(super) struct Seen<const M: usize> {
    /// The place of each query among the keys.
    pub at: Tile<i32, { [M] }>,
    /// Behind the last key that each query sees.
    pub upto: Tile<i32, { [M] }>,
    /// Where blocks of keys begin that some query sees, and behind the last of these keys.
    pub begin: i32,
    pub end: i32,
    /// All queries see all keys of blocks between these.
    pub whole_from: i32,
    pub whole_to: i32,
}

/// What queries from `first` on see in blocks of `N` keys.
#[device]
pub(super) fn seen<const M: usize, const N: usize>(
    first: i32,
    queries: i32,
    keys: i32,
    left: Option<i32>,
    right: i32,
) -> Seen<M> {
    let place = first + keys - queries;
    let at = place + arange(0, M);
    Seen {
        at,
        upto: minimum(at + (right + 1), keys),
        begin: if let Some(left) = left { maximum(place - left, 0) / N * N } else { 0 },
        end: minimum(keys, place + M + right),
        whole_from: if let Some(left) = left { place + M - 1 - left } else { 0 },
        whole_to: minimum(keys, place + right + 1),
    }
}

/// Minus infinity for keys that a row does not see: it sees those before `to`, with `left` from so many before its place `at`.
#[device]
pub(super) fn hide<A: Float, const M: usize, const N: usize>(
    scores: Tile<A, { [M, N] }>,
    key: Tile<i32, { [N] }>,
    at: Tile<i32, { [M] }>,
    left: Option<i32>,
    to: Tile<i32, { [M] }>,
) -> Tile<A, { [M, N] }> {
    if let Some(left) = left {
        hide_outside(scores, key, at - left, to)
    } else {
        select(key < to[(.., None)], scores, A::NEG_INFINITY)
    }
}

/// Minus infinity for keys that are not between `from`, with it, and `to`, without it.
#[device]
pub(super) fn hide_outside<A: Float, const M: usize, const N: usize>(
    scores: Tile<A, { [M, N] }>,
    key: Tile<i32, { [N] }>,
    from: Tile<i32, { [M] }>,
    to: Tile<i32, { [M] }>,
) -> Tile<A, { [M, N] }> {
    select((key >= from[(.., None)]) & (key < to[(.., None)]), scores, A::NEG_INFINITY)
}

/// Scores as they are weighed: what `exp2` takes is their product with `factor`.
#[device]
pub(super) struct Scores<A: Float, const M: usize, const N: usize> {
    pub scores: Tile<A, { [M, N] }>,
    pub factor: A,
    /// What gradients of these scores are multiplied by for those of the products, where the scores are capped.
    pub slope: Tile<A, { [M, N] }>,
}

/// Products of queries and keys, with a cap bent towards it: `cap * tanh(product * scale / cap)`.
#[device]
pub(super) fn bend<A: Float, const M: usize, const N: usize>(
    products: Tile<A, { [M, N] }>,
    scale: A,
    soft_cap: Option<f64>,
) -> Scores<A, M, N> {
    if let Some(cap) = soft_cap {
        let bent = tanh(products * (scale / cap as A));
        Scores { scores: bent * cap as A, factor: LOG2_E as f64 as A, slope: 1.0 - bent * bent }
    } else {
        Scores { scores: products, factor: scale * (LOG2_E as f64 as A), slope: full([M, N], 1.0) }
    }
}

/// Elements between the biases of two batches, of two heads and of two queries.
#[device]
pub(super) struct BiasStrides {
    pub batch: i64,
    pub head: i64,
    pub row: i64,
}

/// The biases of a block of scores; 0 where there are none.
#[device]
pub(super) fn biases<T: Float, const M: usize, const N: usize>(
    bias: Ptr<T>,
    strides: BiasStrides,
    (batch, head): (i32, i32),
    (row, key): (Tile<i32, { [M] }>, Tile<i32, { [N] }>),
    (queries, keys): (i32, i32),
) -> Tile<T, { [M, N] }> {
    let offsets = row[(.., None)] as i64 * strides.row + key as i64;
    let mask = (row < queries)[(.., None)] & (key < keys);
    load(bias + (batch as i64 * strides.batch + head as i64 * strides.head) + offsets, mask = mask)
}

/// Scores with a bias, which is added to what is scaled.
#[device]
pub(super) fn biased<T: Float, A: Float, const M: usize, const N: usize>(
    scores: Scores<A, M, N>,
    scale: A,
    soft_cap: Option<f64>,
    added: Tile<T, { [M, N] }>,
) -> Scores<A, M, N> {
    let scaled = if soft_cap.is_some() { scores.scores } else { scores.scores * scale };
    Scores { scores: scaled + added as A, factor: LOG2_E as f64 as A, ..scores }
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
