//! Our matrix products, and the products that are measured.

pub mod cold;
mod descriptor;
mod pointer;
mod reading;
mod split;

use std::cell::RefCell;
use std::fmt;

use kernel_core::num::F8E4M3;

use tilewright::prelude::*;
use tilewright_bench::Failure;
use tilewright_bench::product::bench::Bench;
use tilewright_bench::product::{Factor, Group, Product};
use tilewright_bench::stage::Mode;

/// Sizes that nothing divides, for checks.
const CHECKED: [Product; 3] = [
    Product::new(Group::Large, 65, 47, 100),
    Product::new(Group::Skinny, 1, 130, 33),
    Product { batch: 3, ..Product::new(Group::Batched, 33, 20, 17) },
];

/// The large products of 16-bit floats, the small one, and those that are limited by memory.
const HALVES: [Product; 8] = [
    Product::new(Group::Large, 2048, 2048, 2048),
    Product::new(Group::Large, 4096, 4096, 4096),
    Product::new(Group::Large, 8192, 8192, 8192),
    Product::new(Group::Large, 8192, 8192, 512),
    Product::new(Group::Large, 8192, 8192, 1024),
    Product::new(Group::Large, 8192, 8192, 2048),
    Product::new(Group::Large, 8192, 8192, 16384),
    Product::new(Group::Small, 1024, 1024, 1024),
];

const FEW_ROWS: [Product; 3] = [
    Product::new(Group::Skinny, 16, 8192, 8192),
    Product::new(Group::Skinny, 64, 8192, 8192),
    Product::new(Group::Skinny, 128, 8192, 8192),
];

const BATCHES: [Product; 1] = [Product { batch: 16, ..Product::new(Group::Batched, 2048, 2048, 2048) }];
const BYTES: [Product; 1] = [Product::new(Group::Bytes, 8192, 8192, 8192)];
const SINGLES: [Product; 1] = [Product::new(Group::Singles, 4096, 4096, 4096)];

/// The products of one dtype.
fn products<T: Factor>(bench: &Bench, full: &[&[Product]]) -> Vec<Product> {
    match bench.mode() {
        // Batches are measured, and written, with `b` row-major only.
        Mode::Check => CHECKED.into_iter().filter(|p| p.batch == 1 || !T::B_K_MAJOR).collect(),
        Mode::Time | Mode::Look(_) => full.concat(),
    }
}

/// A configuration of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    bm: usize,
    bn: usize,
    bk: usize,
    stages: u32,
    warps: u32,
}

impl Tile {
    /// How many tiles cover a product.
    fn programs(self, product: &Product) -> usize {
        product.m.div_ceil(self.bm) * product.n.div_ceil(self.bn)
    }
}

impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tile { bm, bn, bk, stages, warps } = self;
        write!(f, "BM={bm} BN={bn} BK={bk} stages={stages} warps={warps}")
    }
}

/// Rows of tiles that neighbouring programs go down.
const GROUP: usize = 8;

const fn tile(bm: usize, bn: usize, bk: usize, stages: u32, warps: u32) -> Tile {
    Tile { bm, bn, bk, stages, warps }
}

const SMALL_TILES: [Tile; 2] = [tile(32, 32, 32, 2, 4), tile(64, 16, 16, 3, 4)];
#[rustfmt::skip]
const LARGE_TILES: [Tile; 12] = [
    tile(128, 256, 64, 3, 8), tile(128, 256, 64, 4, 8), tile(256, 128, 64, 3, 8), tile(256, 128, 64, 4, 8),
    tile(128, 128, 64, 3, 8), tile(128, 128, 64, 4, 8), tile(128, 128, 64, 4, 4), tile(64, 256, 64, 4, 4),
    tile(128, 64, 64, 4, 4), tile(64, 128, 64, 4, 4), tile(128, 128, 64, 6, 4), tile(64, 256, 64, 5, 4),
];
#[rustfmt::skip]
const BYTE_TILES: [Tile; 6] = [
    tile(128, 256, 128, 3, 8), tile(128, 256, 128, 4, 8), tile(256, 128, 128, 3, 8), tile(256, 128, 128, 4, 8),
    tile(128, 128, 128, 4, 8), tile(128, 128, 128, 4, 4),
];
#[rustfmt::skip]
const SINGLE_TILES: [Tile; 6] = [
    tile(128, 256, 32, 3, 8), tile(128, 256, 32, 4, 8), tile(256, 128, 32, 4, 8), tile(128, 128, 32, 4, 8),
    tile(128, 128, 32, 4, 4), tile(64, 256, 32, 4, 4),
];
#[rustfmt::skip]
const SKINNY_TILES: [Tile; 16] = [
    tile(16, 32, 128, 5, 4), tile(16, 32, 256, 4, 4), tile(16, 64, 64, 6, 4), tile(16, 64, 128, 4, 4),
    tile(16, 64, 128, 6, 4), tile(16, 64, 256, 4, 4), tile(64, 32, 128, 5, 4), tile(64, 64, 64, 6, 4),
    tile(64, 64, 128, 4, 4), tile(64, 64, 128, 5, 4), tile(64, 128, 64, 5, 4), tile(128, 32, 128, 5, 4),
    tile(128, 64, 64, 6, 4), tile(128, 64, 128, 4, 4), tile(128, 64, 128, 4, 8), tile(128, 128, 64, 5, 8),
];

/// The tiles to try for a product.
fn tiles(bench: &Bench, product: &Product) -> Vec<Tile> {
    if *bench.mode() == Mode::Check {
        return SMALL_TILES.to_vec();
    }
    match product.group {
        Group::Large | Group::Small | Group::Batched => LARGE_TILES.to_vec(),
        Group::Bytes => BYTE_TILES.to_vec(),
        Group::Singles => SINGLE_TILES.to_vec(),
        // wgmma has 64 rows.
        Group::Skinny => SKINNY_TILES.iter().copied().filter(|tile| tile.bm <= product.m.max(64)).collect(),
    }
}

/// Holds all contests.
pub fn all(bench: &mut Bench) -> Result<(), Failure> {
    // A sum per program of the kernel that reads.
    let sums = RefCell::new(bench.device().zeros::<f32>(8192 * 8192 / reading::LEAST)?);
    hold::<f16>(bench, &[&HALVES], &sums)?;
    hold::<bf16>(bench, &[&HALVES, &FEW_ROWS, &BATCHES], &sums)?;
    hold::<F8E4M3>(bench, &[&BYTES], &sums)?;
    hold::<f32>(bench, &[&SINGLES], &sums)
}

/// Holds the contests of one dtype.
fn hold<T: Factor + Float>(bench: &mut Bench, full: &[&[Product]], sums: &RefCell<Buffer<f32>>) -> Result<(), Failure> {
    let products = products::<T>(bench, full);
    let chosen: Vec<Vec<Tile>> = products.iter().map(|product| tiles(bench, product)).collect();
    let (processors, device, check) = (bench.processors(), bench.device().clone(), *bench.mode() == Mode::Check);
    bench.hold_all::<T>(&products, |product| {
        let at = products.iter().position(|p| p == product);
        let tiles = at.and_then(|at| chosen.get(at)).map_or(&[][..], |tiles| tiles);
        let mut all = Vec::new();
        if product.group == Group::Skinny {
            all.push(reading::contender(product, sums));
            if !T::B_K_MAJOR {
                all.push(split::contender(&device, product, check)?);
            }
        }
        all.push(pointer::contender(product, tiles));
        all.push(descriptor::contender(product, tiles));
        if product.batch == 1 {
            all.push(descriptor::persistent_contender(product, tiles, processors));
        }
        Ok(all)
    })
}
