//! Softmax over rows.

use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Contender, Contest, Failure, Stage, Submit, SubmitUnchecked};

/// Softmax of each row, the whole row in registers.
#[kernel]
pub fn softmax<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, columns: i32) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = program_id(0) * columns + column;
    let row = load(x + offsets, mask = mask, other = T::NEG_INFINITY) as f32;
    let numerator = exp(row - max(row, axis = 0));
    store(out + offsets, (numerator / sum(numerator, axis = 0)) as T, mask = mask);
}

/// The same, unchecked.
#[kernel]
pub unsafe fn softmax_unchecked<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, columns: i32) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = program_id(0) * columns + column;
    let row = load(x + offsets, mask = mask, other = T::NEG_INFINITY) as f32;
    let numerator = exp(row - max(row, axis = 0));
    store(out + offsets, (numerator / sum(numerator, axis = 0)) as T, mask = mask);
}

/// Softmax of each row in two passes over it: each lane keeps a running maximum and the sum relative to it.
#[kernel]
pub fn softmax_online<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, columns: i32) {
    let lane = arange(0, BLOCK);
    let start = program_id(0) * columns;
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
    let total = sum(sums * exp(peaks - peak), axis = 0);
    for first in (0..columns).step_by(BLOCK) {
        let column = first + lane;
        let values = load(x + start + column, mask = column < columns) as f32;
        store(out + start + column, (exp(values - peak) / total) as T, mask = column < columns);
    }
}

fn reference(row: &[f64]) -> Vec<f64> {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = row.iter().map(|v| (v - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

/// Block sizes and warps of the kernel that goes over a row in pieces.
const PIECES: [(usize, u32); 6] = [(2048, 8), (4096, 8), (4096, 16), (8192, 16), (8192, 32), (16384, 32)];

fn contest<T: Element>(stage: &mut Stage, matrix: Matrix) -> Result<(), Failure> {
    let device = stage.device();
    let Matrix { rows, columns, start } = matrix;
    let x = Input::<T>::normal(&device, 2, matrix.len(), start)?;
    let mut expected = Vec::new();
    for row in sampled(rows) {
        expected.push(Segment { at: row * columns, values: reference(&x.read(row * columns, columns)?) });
    }
    let tolerance = Tolerance::of::<T>(3e-6, 1.0 / columns as f64);
    let out = Output::<T>::new(&device, matrix.len(), start, tolerance, expected)?;
    let (x, y, n, block) = (&x, &out, columns as i32, matrix.block());

    let mut ours = Contender::ours();
    let mut unchecked = Contender { name: "tilewright unchecked", configs: Vec::new() };
    for w in matrix.warps() {
        let name = format!("BLOCK={block} warps={w}");
        ours.config(name.clone(), move |how| {
            let mut y = y.lock();
            SoftmaxConsts { BLOCK: block }.call(x.view()?, y.view()?, n).grid(rows).num_warps(w).submit(how)
        });
        unchecked.config(name, move |how| {
            let mut y = y.lock();
            let call = SoftmaxUncheckedConsts { BLOCK: block }.call(x.view()?, y.view()?, n);
            // SAFETY: the mask keeps every access inside the rows, which are inside the buffers.
            unsafe { call.grid(rows).num_warps(w).submit(how) }
        });
    }
    if columns > 8192 || block < 1024 {
        for (block, w) in PIECES {
            ours.config(format!("online BLOCK={block} warps={w}"), move |how| {
                let mut y = y.lock();
                SoftmaxOnlineConsts { BLOCK: block }.call(x.view()?, y.view()?, n).grid(rows).num_warps(w).submit(how)
            });
        }
    }
    let arguments = vec![x.argument(), out.argument(), Argument::I32(n)];
    let triton = stage.triton(("softmax", T::NAME, matrix.variant()), arguments, |e| {
        let whole = !e.config.starts_with("online");
        (!whole || e.get("BLOCK") == Some(block)).then_some([rows, 1, 1])
    })?;
    stage.hold(Contest {
        work: "softmax",
        shape: matrix.to_string(),
        dtype: T::NAME,
        bytes: (2 * matrix.len() * size_of::<T>()) as f64,
        flops: 0.0,
        outputs: vec![&out],
        contenders: vec![triton, ours, unchecked],
    })
}

pub fn contests(stage: &mut Stage) -> Result<(), Failure> {
    let sweep = stage.sized([256, 512, 2048, 4096, 8192].map(|c| Matrix::new(4096, c)).into(), Vec::new());
    for matrix in stage.matrices::<f32>().into_iter().chain(sweep.clone()) {
        contest::<f32>(stage, matrix)?;
    }
    for matrix in stage.matrices::<bf16>().into_iter().chain(sweep) {
        contest::<bf16>(stage, matrix)?;
    }
    Ok(())
}
