//! Our matrix products, and the products that are measured.

pub mod cold;
mod descriptor;
mod even;
pub mod ladder;
mod pointer;
mod reading;
pub mod search;
mod split;
mod tile;

use std::cell::RefCell;

use kernel_core::num::F8E4M3;

use tilewright::prelude::*;
use tilewright_bench::Failure;
use tilewright_bench::product::bench::Bench;
use tilewright_bench::product::{Factor, Group, Product};
use tilewright_bench::stage::Mode;

use tile::Tile;

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

/// With tiles of 128 x 256 and 132 multiprocessors, 24, 13, 8 and 24 tiles are over.
const UNEVEN: [Product; 4] = [
    Product::new(Group::Uneven, 3072, 3072, 3072),
    Product::new(Group::Uneven, 3712, 1280, 8192),
    Product::new(Group::Uneven, 5120, 5120, 5120),
    Product::new(Group::Uneven, 2304, 4096, 4096),
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

/// Holds all contests.
pub fn all(bench: &mut Bench) -> Result<(), Failure> {
    // A sum per program of the kernel that reads.
    let sums = RefCell::new(bench.device().zeros::<f32>(8192 * 8192 / reading::LEAST)?);
    hold::<f16>(bench, &[&HALVES, &UNEVEN], &sums)?;
    hold::<bf16>(bench, &[&HALVES, &FEW_ROWS, &BATCHES], &sums)?;
    hold::<F8E4M3>(bench, &[&BYTES], &sums)?;
    hold::<f32>(bench, &[&SINGLES], &sums)
}

/// Holds the contests of one dtype.
fn hold<T: Factor + Float>(bench: &mut Bench, full: &[&[Product]], sums: &RefCell<Buffer<f32>>) -> Result<(), Failure> {
    let products = products::<T>(bench, full);
    let chosen: Vec<Vec<Tile>> =
        products.iter().map(|product| tile::tiles(bench, product)).collect::<Result<_, _>>()?;
    let (processors, device, checks) = (bench.processors(), bench.device().clone(), *bench.mode() == Mode::Check);
    bench.hold_all::<T>(&products, |product| {
        let at = products.iter().position(|p| p == product);
        let tiles = at.and_then(|at| chosen.get(at)).map_or(&[][..], |tiles| tiles);
        let (whole, parts): (Vec<Tile>, Vec<Tile>) = tiles.iter().partition(|tile| tile.splits == 1);
        let mut all = Vec::new();
        if product.group == Group::Skinny {
            all.push(reading::contender(product, sums));
        }
        if product.batch == 1 && !T::B_K_MAJOR && !parts.is_empty() {
            all.push(split::contender(&device, product, &parts)?);
        }
        if product.batch == 1 && !T::B_K_MAJOR && (product.group == Group::Uneven || checks) {
            // Few programs for the small products of checks, so that they too have whole tiles and parts of others.
            let programs = if checks { 5 } else { processors };
            all.push(even::contender(&device, product, &whole, programs)?);
        }
        all.push(pointer::contender(product, &whole));
        all.push(descriptor::contender(product, &whole));
        all.push(descriptor::persistent_contender(product, &whole, processors));
        Ok(all)
    })
}
