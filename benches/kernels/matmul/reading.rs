//! The limit of products with few rows: a kernel that only reads.

use std::cell::RefCell;

use tilewright::prelude::*;
use tilewright_bench::Submit;
use tilewright_bench::product::{Contender, Factor, Product};

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

/// Elements per step, steps and warps.
const CONFIGS: [(usize, usize, u32); 6] =
    [(4096, 1, 4), (4096, 4, 4), (4096, 8, 8), (8192, 2, 8), (8192, 4, 8), (16384, 4, 8)];

/// The fewest elements that a program reads.
pub const LEAST: usize = 4096;

/// The device's rate of reading, as a contender: it reads `b`. There must be a sum for each program.
pub fn contender<'a, T: Factor + Num>(product: &Product, sums: &'a RefCell<Buffer<f32>>) -> Contender<'a, T> {
    let [_, n, _] = product.lens();
    let mut contender = Contender::new("read");
    contender.moves = Some((n * size_of::<T>()) as f64);
    for (block, steps, warps) in CONFIGS {
        contender.config(format!("BLOCK={block} STEPS={steps} warps={warps}"), move |how, operands| {
            let mut sums = sums.borrow_mut();
            let call = ReadConsts { BLOCK: block, STEPS: steps }.call(operands.b, &mut *sums, n as i32);
            call.grid(n.div_ceil(block * steps)).num_warps(warps).submit(how)
        });
    }
    contender
}
