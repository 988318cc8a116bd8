//! Functions that kernels of several families call.

use tilewright::prelude::*;

/// The sums of the rows of two tiles, in one exchange between threads. `[ROWS, 1]` each.
#[device]
pub fn row_sums<A: Float, const ROWS: usize, const BLOCK: usize>(
    a: Tile<A, { [ROWS, BLOCK] }>,
    b: Tile<A, { [ROWS, BLOCK] }>,
) -> (Tile<A, { [ROWS, 1] }>, Tile<A, { [ROWS, 1] }>) {
    reduce((a, b), axis = 1, keep_dims = true, |(a, b), (c, d)| (a + c, b + d))
}

/// `1 / (1 + exp(-x))` by the fast exponential and quotient: within 4 + |x| units of the last place, where `sigmoid` is within
/// 6 everywhere.
#[device]
pub fn logistic<A: Float, const N: usize>(x: Tile<A, { [N] }>) -> Tile<A, { [N] }> {
    1.0 / (1.0 + exp(-x))
}

/// Elements of a row that were loaded with minus infinity behind its end, in the dtype of sums: f8e4m3 has no infinity, and
/// numbers in its place that rows may have.
#[device]
pub fn padded<T: Float, const N: usize>(x: Tile<T, { [N] }>, mask: Tile<bool, { [N] }>) -> Tile<T::Acc, { [N] }> {
    let x = x as T::Acc;
    if T == f8e4m3 { select(mask, x, T::Acc::NEG_INFINITY) } else { x }
}

/// Of a row in pieces: its maximum, the sum of `exp(x - maximum)`, and the sum of `x - maximum`. The `GROUP` neighbours that a
/// thread loads at once share a running maximum and sums relative to it (Milakov and Gimelshein, "Online normalizer calculation
/// for softmax", 2018), so that there are nine exponentials for eight of them instead of sixteen.
#[device]
pub fn exponentials<T: Float, const LANES: usize, const GROUP: usize>(
    x: Ptr<T>,
    columns: i32,
) -> (T::Acc, T::Acc, T::Acc) {
    // Finite, so that a lane without elements so far has no infinity minus infinity.
    let mut peaks = full([LANES], T::Acc::MIN);
    let mut sums = zeros::<T::Acc>([LANES]);
    let mut totals = zeros::<T::Acc>([LANES]);
    for first in (0..columns).step_by(LANES * GROUP) {
        let column = first + arange(0, LANES)[(.., None)] * GROUP + arange(0, GROUP);
        let mask = column < columns;
        let values = load(x + column, mask = mask, other = T::NEG_INFINITY) as T::Acc;
        let values = if T == f8e4m3 { select(mask, values, T::Acc::NEG_INFINITY) } else { values };
        let higher = maximum(peaks, max(values, axis = 1));
        let relative = values - higher[(.., None)];
        sums = sums * exp(peaks - higher) + sum(exp(relative), axis = 1);
        // Each lane has had as many elements before. Of none, infinity would not be 0.
        let down = maximum(peaks - higher, T::Acc::MIN);
        totals += down * (first / LANES) as T::Acc + sum(select(mask, relative, 0.0), axis = 1);
        peaks = higher;
    }
    let peak = max(peaks, axis = 0);
    let rest = clamp(columns % (LANES * GROUP) - arange(0, LANES) * GROUP, 0, GROUP);
    let counts = columns / (LANES * GROUP) * GROUP + rest;
    totals += maximum(peaks - peak, T::Acc::MIN) * counts as T::Acc;
    (peak, sum(sums * exp(peaks - peak), axis = 0), sum(totals, axis = 0))
}
