//! Cross entropy of rows of logits, forward.

use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Contender, Contest, Failure, Stage, Submit};

/// `loss = log(sum(exp(x))) - x[label]` for each row, the whole row in registers.
#[kernel]
pub fn cross_entropy<T: Float, const BLOCK: usize>(x: Ptr<T>, labels: Ptr<i32>, losses: PtrMut<f32>, columns: i32) {
    let row = program_id(0);
    let column = arange(0, BLOCK);
    let start = row * columns;
    let at_label = load(x + start + load(labels + row)) as f32;
    let values = load(x + start + column, mask = column < columns, other = T::NEG_INFINITY) as f32;
    let peak = max(values, axis = 0);
    store(losses + row, log(sum(exp(values - peak), axis = 0)) + peak - at_label);
}

/// The same with the row in pieces: each lane keeps a running maximum and the sum relative to it.
#[kernel]
pub fn cross_entropy_online<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    labels: Ptr<i32>,
    losses: PtrMut<f32>,
    columns: i32,
) {
    let row = program_id(0);
    let lane = arange(0, BLOCK);
    let start = row * columns;
    let at_label = load(x + start + load(labels + row)) as f32;
    // Finite, so that a lane without elements so far has no infinity minus infinity.
    let mut peaks = full::<f32>([BLOCK], -1e30);
    let mut sums = zeros::<f32>([BLOCK]);
    for first in (0..columns).step_by(BLOCK) {
        let column = first + lane;
        let values = load(x + start + column, mask = column < columns, other = T::NEG_INFINITY) as f32;
        let higher = maximum(peaks, values);
        sums = sums * exp(peaks - higher) + exp(values - higher);
        peaks = higher;
    }
    let peak = max(peaks, axis = 0);
    store(losses + row, log(sum(sums * exp(peaks - peak), axis = 0)) + peak - at_label);
}

fn reference(row: &[f64], label: usize) -> f64 {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter().map(|v| (v - max).exp()).sum::<f64>().ln() + max - row[label]
}

/// Block sizes and warps of the kernel that goes over a row in pieces.
const PIECES: [(usize, u32); 7] = [(1024, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 16), (8192, 32), (16384, 32)];

fn contest<T: Element>(stage: &mut Stage, matrix: Matrix) -> Result<(), Failure> {
    let device = stage.device();
    let Matrix { rows, columns, start } = matrix;
    let x = Input::<T>::normal(&device, 8, matrix.len(), start)?;
    let chosen: Vec<i32> = (0..rows).map(|row| (row * 7919 % columns) as i32).collect();
    let labels = Input::of(&device, &chosen)?;
    let mut expected = Vec::new();
    for row in sampled(rows) {
        let loss = reference(&x.read(row * columns, columns)?, chosen[row] as usize);
        expected.push(Segment { at: row, values: vec![loss] });
    }
    let out = Output::<f32>::new(&device, rows, 0, Tolerance { relative: 2e-6, absolute: 1e-5 }, expected)?;
    let (x, labels, y, n, block) = (&x, &labels, &out, columns as i32, matrix.block());
    let mut ours = Contender::ours();
    for w in matrix.warps() {
        ours.config(format!("BLOCK={block} warps={w}"), move |how| {
            let mut y = y.lock();
            let call = CrossEntropyConsts { BLOCK: block }.call(x.view()?, labels.view()?, y.view()?, n);
            call.grid(rows).num_warps(w).submit(how)
        });
    }
    for (block, w) in PIECES {
        ours.config(format!("online BLOCK={block} warps={w}"), move |how| {
            let mut y = y.lock();
            let call = CrossEntropyOnlineConsts { BLOCK: block }.call(x.view()?, labels.view()?, y.view()?, n);
            call.grid(rows).num_warps(w).submit(how)
        });
    }
    let arguments = vec![x.argument(), labels.argument(), out.argument(), Argument::I32(n)];
    let triton = stage.triton(("cross_entropy", T::NAME, matrix.variant()), arguments, |e| {
        let whole = !e.config.starts_with("online");
        (!whole || e.get("BLOCK") == Some(block)).then_some([rows, 1, 1])
    })?;
    stage.hold(Contest {
        work: "cross_entropy",
        shape: matrix.to_string(),
        dtype: T::NAME,
        bytes: (matrix.len() * size_of::<T>()) as f64,
        flops: 0.0,
        outputs: vec![&out],
        contenders: vec![triton, ours],
    })
}

pub fn contests(stage: &mut Stage) -> Result<(), Failure> {
    let full = vec![Matrix::new(8192, 32000), Matrix::new(4096, 50257)];
    let small = vec![Matrix::new(5, 64), Matrix::new(3, 100), Matrix { rows: 2, columns: 130, start: 1 }];
    for matrix in stage.sized(full, small) {
        contest::<f32>(stage, matrix)?;
        contest::<bf16>(stage, matrix)?;
    }
    Ok(())
}
