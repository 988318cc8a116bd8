//! Configurations of our products, and which ones are tried.

use std::fmt;
use std::str::FromStr;

use tilewright_bench::product::bench::Bench;
use tilewright_bench::product::{Group, Product};
use tilewright_bench::stage::Mode;
use tilewright_bench::{Failure, report};

/// Rows of tiles that neighbouring programs go down.
pub const GROUP: usize = 8;

/// A configuration of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    /// Rows of a tile of the result.
    pub bm: usize,
    /// Its columns.
    pub bn: usize,
    /// The part of `k` of a trip.
    pub bk: usize,
    /// Trips in flight.
    pub stages: u32,
    /// Warps that compute.
    pub warps: u32,
    /// Rows of tiles that neighbouring programs go down.
    pub group: usize,
    /// How many programs share a tile, each with a part of `k`.
    pub splits: usize,
}

/// A tile of one program.
pub const fn tile(bm: usize, bn: usize, bk: usize, stages: u32, warps: u32) -> Tile {
    Tile { bm, bn, bk, stages, warps, group: GROUP, splits: 1 }
}

/// A tile of several programs.
pub const fn shared(bm: usize, bn: usize, bk: usize, stages: u32, warps: u32, splits: usize) -> Tile {
    Tile { splits, ..tile(bm, bn, bk, stages, warps) }
}

impl Tile {
    /// The same with programs in groups of so many rows of tiles.
    const fn group(self, group: usize) -> Tile {
        Tile { group, ..self }
    }

    /// How many tiles cover a product.
    pub fn programs(self, product: &Product) -> usize {
        product.m.div_ceil(self.bm) * product.n.div_ceil(self.bn)
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tile { bm, bn, bk, stages, warps, group, splits } = self;
        write!(f, "BM={bm} BN={bn} BK={bk} stages={stages} warps={warps}")?;
        if *group != GROUP {
            write!(f, " GROUP={group}")?;
        }
        if *splits != 1 {
            write!(f, " splits={splits}")?;
        }
        Ok(())
    }
}

impl FromStr for Tile {
    type Err = Failure;

    /// `BMxBNxBKxSTAGESxWARPS`, then `gGROUP` and `/SPLITS` if they are not 8 and 1.
    fn from_str(text: &str) -> Result<Tile, Failure> {
        let number = |part: &str| match part.parse::<usize>() {
            Ok(0) => Err(format!("tile {text}: 0 is no size")),
            Ok(number) => Ok(number),
            Err(why) => Err(format!("tile {text}: {part}: {why}")),
        };
        let (rest, splits) = text.split_once('/').unwrap_or((text, "1"));
        let (sizes, group) = match rest.split_once('g') {
            Some((sizes, group)) => (sizes, number(group)?),
            None => (rest, GROUP),
        };
        let sizes: Vec<usize> = sizes.split('x').map(number).collect::<Result<_, _>>()?;
        let [bm, bn, bk, stages, warps] = sizes[..] else {
            return Err(format!("tile {text}: expected BMxBNxBKxSTAGESxWARPS").into());
        };
        Ok(Tile { group, splits: number(splits)?, ..tile(bm, bn, bk, stages as u32, warps as u32) })
    }
}

const CHECKED: [Tile; 4] =
    [tile(32, 32, 32, 2, 4), tile(64, 16, 16, 3, 4), shared(32, 32, 16, 2, 4, 2), shared(64, 32, 32, 3, 4, 3)];
#[rustfmt::skip]
const LARGE_TILES: [Tile; 14] = [
    tile(128, 256, 64, 3, 8), tile(128, 256, 64, 3, 8).group(4), tile(128, 256, 64, 3, 8).group(16),
    tile(128, 256, 64, 4, 8), tile(128, 256, 64, 4, 8).group(4), tile(128, 256, 64, 4, 8).group(16),
    tile(256, 128, 64, 3, 8), tile(256, 128, 64, 4, 8), tile(128, 128, 64, 5, 8), tile(128, 128, 64, 6, 8),
    tile(128, 128, 64, 6, 4), tile(128, 128, 64, 6, 4).group(4), tile(64, 256, 64, 5, 4), tile(128, 128, 64, 4, 4),
];
/// About one tile per multiprocessor, and everything that fits in flight: memory's latency is most of the time.
#[rustfmt::skip]
const SMALL_TILES: [Tile; 8] = [
    tile(64, 128, 128, 4, 4), tile(64, 128, 64, 6, 4), tile(64, 128, 64, 8, 4), tile(128, 64, 64, 6, 4),
    tile(128, 64, 64, 8, 4), tile(64, 64, 64, 6, 4), tile(64, 128, 64, 4, 4), tile(128, 128, 64, 4, 4),
];
/// Large ones, of which the last are shared, and smaller ones in turns, of which fewer are over.
#[rustfmt::skip]
const UNEVEN_TILES: [Tile; 6] = [
    tile(128, 256, 64, 4, 8), tile(256, 128, 64, 4, 8), tile(128, 128, 64, 5, 8), tile(128, 128, 64, 6, 4),
    tile(64, 256, 64, 5, 4), tile(64, 128, 64, 8, 4),
];
#[rustfmt::skip]
const BYTE_TILES: [Tile; 8] = [
    tile(128, 256, 128, 3, 8), tile(128, 256, 128, 3, 8).group(16), tile(128, 256, 128, 4, 8),
    tile(128, 256, 128, 4, 8).group(16), tile(256, 128, 128, 3, 8), tile(256, 128, 128, 4, 8),
    tile(128, 128, 128, 6, 4), tile(128, 128, 128, 4, 4),
];
#[rustfmt::skip]
const SINGLE_TILES: [Tile; 7] = [
    tile(128, 256, 32, 3, 8), tile(128, 256, 32, 3, 8).group(16), tile(128, 256, 32, 4, 8),
    tile(128, 256, 32, 4, 8).group(16), tile(256, 128, 32, 4, 8).group(16), tile(128, 128, 32, 6, 4),
    tile(128, 256, 16, 8, 8),
];
#[rustfmt::skip]
const SKINNY_TILES: [Tile; 33] = [
    tile(16, 32, 128, 5, 4), tile(16, 32, 256, 4, 4), tile(16, 64, 64, 6, 4), tile(16, 64, 128, 4, 4),
    tile(16, 64, 128, 6, 4), tile(16, 64, 256, 4, 4), tile(64, 32, 128, 5, 4), tile(64, 64, 64, 6, 4),
    tile(64, 64, 128, 4, 4), tile(64, 64, 128, 5, 4), tile(64, 128, 64, 5, 4), tile(128, 32, 128, 5, 4),
    tile(64, 128, 64, 6, 4), tile(64, 128, 64, 8, 4), tile(64, 128, 128, 4, 4),
    tile(128, 64, 64, 6, 4), tile(128, 64, 128, 4, 4), tile(128, 64, 128, 4, 8), tile(128, 128, 64, 5, 8),
    shared(16, 64, 128, 4, 4, 2), shared(16, 128, 128, 4, 4, 2), shared(16, 128, 64, 6, 4, 2),
    shared(16, 128, 128, 4, 8, 4), shared(64, 64, 128, 4, 4, 2), shared(64, 128, 64, 6, 4, 2),
    shared(64, 128, 128, 4, 4, 2), shared(64, 256, 64, 4, 4, 4), shared(64, 256, 64, 4, 8, 4),
    shared(128, 128, 64, 5, 4, 2), shared(128, 128, 64, 5, 8, 2), shared(128, 128, 128, 3, 8, 2),
    shared(128, 256, 64, 3, 8, 4), shared(128, 128, 64, 5, 8, 4),
];

/// The tiles to try for a product: those of `--tiles`, or those of its group.
///
/// # Errors
/// If `--tiles` does not say tiles.
pub fn tiles(bench: &Bench, product: &Product) -> Result<Vec<Tile>, Failure> {
    if let Some(list) = report::argument("--tiles") {
        return list.split(',').map(str::parse).collect();
    }
    if *bench.mode() == Mode::Check {
        return Ok(CHECKED.to_vec());
    }
    Ok(match product.group {
        Group::Large | Group::Batched => LARGE_TILES.to_vec(),
        Group::Small => SMALL_TILES.to_vec(),
        Group::Uneven => UNEVEN_TILES.to_vec(),
        Group::Bytes => BYTE_TILES.to_vec(),
        Group::Singles => SINGLE_TILES.to_vec(),
        // wgmma has 64 rows.
        Group::Skinny => SKINNY_TILES.iter().copied().filter(|tile| tile.bm <= product.m.max(64)).collect(),
    })
}
