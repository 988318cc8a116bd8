//! The order in which programs go through the tiles of a product.

use tilewright::prelude::*;

/// Row and column of the first element of a tile.
///
/// Tiles are counted down `GROUP` rows of them before the next column begins, so that programs that run at the same time
/// share what they read.
#[device]
pub(crate) fn corner<const BM: usize, const BN: usize, const GROUP: usize>(tile: i32, m: i32, n: i32) -> (i32, i32) {
    static_assert!(GROUP > 0, "a column of no tiles has no corner");
    let wide = GROUP * cdiv(n, BN);
    let first = tile / wide * GROUP;
    let height = minimum(cdiv(m, BM) - first, GROUP);
    ((first + tile % wide % height) * BM, tile % wide / height * BN)
}

/// As few programs as need no more tiles each than `most` of them would.
pub(crate) fn balanced(tiles: usize, most: usize) -> usize {
    tiles.div_ceil(tiles.div_ceil(most.max(1)).max(1))
}

/// The share of a device's time that tiles fill, when each multiprocessor takes one at a time.
pub(crate) fn filled(tiles: usize, processors: usize) -> f64 {
    tiles as f64 / (tiles.div_ceil(processors).max(1) * processors) as f64
}
