//! Vector addition.

use tilewright::prelude::*;
use tilewright_bench::element::Element;
use tilewright_bench::{Failure, Stage, Submit};

use super::copy::SWEEP;
use super::elementwise::Elementwise;

/// `out = x + y`
#[kernel]
pub fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
}

fn work<T: Element>() -> Elementwise<T> {
    Elementwise {
        work: "add",
        inputs: 2,
        methods: vec![("", |c, how| {
            let grid = c.programs();
            AddConsts { BLOCK: c.block }.call(c.x[0], c.x[1], c.out, c.n).grid(grid).num_warps(c.warps).submit(how)
        })],
        extra: Vec::new(),
        reference: |_, x| x[0] + x[1],
        arithmetic: 1e-7,
    }
}

pub fn contests(stage: &mut Stage) -> Result<(), Failure> {
    for vector in stage.vectors(SWEEP.to_vec()) {
        work::<f32>().contest(stage, vector)?;
    }
    for vector in stage.vectors(vec![1 << 28]) {
        work::<bf16>().contest(stage, vector)?;
    }
    Ok(())
}
