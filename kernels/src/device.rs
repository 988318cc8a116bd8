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
