//! Our matrix products, and the products that are measured.

use std::cell::RefCell;

use tilewright::prelude::*;
use tilewright_bench::product::bench::Bench;
use tilewright_bench::product::{Contender, Factor, Group, Product};
use tilewright_bench::stage::Mode;
use tilewright_bench::{Failure, Submit};

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
const SINGLES: [Product; 1] = [Product::new(Group::Singles, 4096, 4096, 4096)];

/// The products of one dtype.
fn products(bench: &Bench, full: &[&[Product]]) -> Vec<Product> {
    match bench.mode() {
        Mode::Check => CHECKED.to_vec(),
        Mode::Time | Mode::Look(_) => full.concat(),
    }
}

/// Reads everything, and writes a sum per program.
#[kernel]
pub fn read<T: Num, const BLOCK: usize, const STEPS: usize>(x: Ptr<T>, sums: PtrMut<f32>, n: i32) {
    let mut total = zeros::<f32>([BLOCK]);
    for step in 0..STEPS {
        let offsets = (program_id(0) * STEPS + step) * BLOCK + arange(0, BLOCK);
        total += load(x + offsets, mask = offsets < n, other = 0 as T) as f32;
    }
    store(sums + program_id(0), sum(total, axis = 0));
}

/// Elements per step, steps and warps of a program that reads.
const READS: [(usize, usize, u32); 6] =
    [(4096, 1, 4), (4096, 4, 4), (4096, 8, 8), (8192, 2, 8), (8192, 4, 8), (16384, 4, 8)];

/// The device's rate of reading, as a contender: it reads `b`.
fn reading<'a, T: Factor + Num>(product: &Product, sums: &'a RefCell<Buffer<f32>>) -> Contender<'a, T> {
    let [_, n, _] = product.lens();
    let mut contender = Contender::new("read");
    contender.moves = Some((n * size_of::<T>()) as f64);
    for (block, steps, warps) in READS {
        contender.config(format!("BLOCK={block} STEPS={steps} warps={warps}"), move |how, operands| {
            let mut sums = sums.borrow_mut();
            let call = ReadConsts { BLOCK: block, STEPS: steps }.call(operands.b, &mut *sums, n as i32);
            call.grid(n.div_ceil(block * steps)).num_warps(warps).submit(how)
        });
    }
    contender
}

/// Our contenders for a product.
fn ours<'a, T: Factor + Float>(product: &Product, sums: &'a RefCell<Buffer<f32>>) -> Vec<Contender<'a, T>> {
    match product.group {
        Group::Skinny => vec![reading(product, sums)],
        Group::Large | Group::Small | Group::Bytes | Group::Singles | Group::Batched => Vec::new(),
    }
}

/// Holds all contests.
pub fn all(bench: &mut Bench) -> Result<(), Failure> {
    // A sum per program of the kernel that reads.
    let sums = RefCell::new(bench.device().zeros::<f32>(8192 * 8192 / 4096)?);
    bench.hold_all::<f16>(&products(bench, &[&HALVES]), |p| ours(p, &sums))?;
    bench.hold_all::<bf16>(&products(bench, &[&HALVES, &FEW_ROWS, &BATCHES]), |p| ours(p, &sums))?;
    bench.hold_all::<f32>(&products(bench, &[&SINGLES]), |p| ours(p, &sums))
}
