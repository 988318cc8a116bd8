//! Operations on whole tiles: rows sorted, their largest elements, running sums, elements by index, counts; and random
//! numbers, which nothing is read for.

use tilewright::prelude::*;
use tilewright::{View, ViewMut};
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::shape::{Matrix, Variant};
use tilewright_bench::{Contender, Contest, Failure, How, Stage, Submit};

/// How many elements `topk` takes.
const K: usize = 64;
/// Into how many bins the histogram counts, and in how many parts.
const BINS: usize = 256;
const PARTS: usize = 1024;
const SEED: i32 = 1234;
const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };

/// A row per program, in ascending order.
#[kernel]
pub fn sort_rows<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let at = program_id(0) * BLOCK + arange(0, BLOCK);
    store(out + at, sort(load(x + at)));
}

/// The largest elements of a row per program, in descending order.
#[kernel]
pub fn topk_rows<const BLOCK: usize, const K: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let row = load(x + program_id(0) * BLOCK + arange(0, BLOCK));
    store(out + program_id(0) * K + arange(0, K), topk(row, K));
}

/// The running sums of a row per program.
#[kernel]
pub fn cumsum_rows<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let at = program_id(0) * BLOCK + arange(0, BLOCK);
    store(out + at, cumsum(load(x + at)));
}

/// The elements of a row per program, in the order that indices of its own give.
#[kernel]
pub fn gather_rows<const BLOCK: usize>(x: Ptr<f32>, ids: Ptr<i32>, out: PtrMut<f32>) {
    let at = program_id(0) * BLOCK + arange(0, BLOCK);
    store(out + at, gather(load(x + at), load(ids + at)));
}

/// How often each number occurs in a share of them per program.
#[kernel]
pub fn histogram_parts<const BLOCK: usize, const BINS: usize>(ids: Ptr<i32>, out: PtrMut<f32>, share: i32) {
    let start = program_id(0) * share;
    let mut counts = zeros::<i32>([BINS]);
    for first in (0..share).step_by(BLOCK) {
        let at = first + arange(0, BLOCK);
        let inside = at < share;
        counts += histogram(load(ids + start + at, mask = inside), BINS, mask = inside);
    }
    store(out + program_id(0) * BINS + arange(0, BINS), counts as f32);
}

/// Uniform numbers.
#[kernel]
pub fn uniform<const BLOCK: usize>(out: PtrMut<f32>, n: i32, seed: i32) {
    let at = program_id(0) * BLOCK + arange(0, BLOCK);
    store(out + at, rand(seed, at), mask = at < n);
}

/// Submits a kernel on rows of so many elements: how many rows, and warps for each.
type SubmitRows = fn(usize, View<'_, f32>, ViewMut<'_, f32>, (usize, u32), &How<'_>) -> Result<(), Failure>;

/// What a row per program gives: its length, its elements from those of the input, and what submits it.
struct Rows {
    work: &'static str,
    len: usize,
    tolerance: Tolerance,
    reference: fn(&[f64]) -> Vec<f64>,
    submit: SubmitRows,
}

impl Rows {
    fn contest(&self, stage: &mut Stage, matrix: Matrix) -> Result<(), Failure> {
        let (device, Matrix { rows, columns, .. }) = (stage.device(), matrix);
        let x = Input::<f32>::normal(&device, 21, matrix.len(), 0)?;
        let mut expected = Vec::new();
        for row in sampled(rows) {
            let values = (self.reference)(&x.read(row * columns, columns)?);
            expected.push(Segment { at: row * self.len, values });
        }
        let out = Output::<f32>::new(&device, rows * self.len, 0, self.tolerance, expected)?;
        let (x, y, submit) = (&x, &out, self.submit);
        let mut ours = Contender::ours();
        for warps in matrix.warps() {
            ours.config(format!("BLOCK={columns} warps={warps}"), move |how| {
                let mut y = y.lock();
                submit(columns, x.view()?, y.view()?, (rows, warps), how)
            });
        }
        let arguments = vec![x.argument(), out.argument()];
        let triton = stage.triton((self.work, "f32", Variant::Aligned), arguments, |e| {
            (e.get("BLOCK") == Some(columns)).then_some([rows, 1, 1])
        })?;
        stage.hold(Contest {
            work: self.work,
            shape: matrix.to_string(),
            dtype: "f32",
            bytes: (4 * rows * (columns + self.len)) as f64,
            flops: 0.0,
            outputs: vec![&out],
            contenders: vec![triton, ours],
        })
    }
}

fn matrices(stage: &Stage) -> Vec<Matrix> {
    stage.sized(vec![Matrix::new(8192, 4096)], vec![Matrix::new(5, 64), Matrix::new(3, 1024)])
}

fn in_order(row: &[f64]) -> Vec<f64> {
    let mut row = row.to_vec();
    row.sort_by(f64::total_cmp);
    row
}

pub fn sort_contests(stage: &mut Stage) -> Result<(), Failure> {
    for matrix in matrices(stage) {
        let rows = Rows {
            work: "sort",
            len: matrix.columns,
            tolerance: EXACT,
            reference: in_order,
            submit: |block, x, out, (rows, warps), how| {
                SortRowsConsts { BLOCK: block }.call(x, out).grid(rows).num_warps(warps).submit(how)
            },
        };
        rows.contest(stage, matrix)?;
    }
    Ok(())
}

pub fn topk_contests(stage: &mut Stage) -> Result<(), Failure> {
    for matrix in matrices(stage) {
        let rows = Rows {
            work: "topk",
            len: K,
            tolerance: EXACT,
            reference: |row| in_order(row).into_iter().rev().take(K).collect(),
            submit: |block, x, out, (rows, warps), how| {
                TopkRowsConsts { BLOCK: block, K }.call(x, out).grid(rows).num_warps(warps).submit(how)
            },
        };
        rows.contest(stage, matrix)?;
    }
    Ok(())
}

pub fn cumsum_contests(stage: &mut Stage) -> Result<(), Failure> {
    for matrix in matrices(stage) {
        let rows = Rows {
            work: "cumsum",
            len: matrix.columns,
            // The terms are about 1 in size, their sums below 300, and each is rounded once in a tree of additions.
            tolerance: Tolerance { relative: 2e-6, absolute: 5e-4 },
            reference: |row| row.iter().scan(0.0, |sum, x| Some((*sum += x, *sum).1)).collect(),
            submit: |block, x, out, (rows, warps), how| {
                CumsumRowsConsts { BLOCK: block }.call(x, out).grid(rows).num_warps(warps).submit(how)
            },
        };
        rows.contest(stage, matrix)?;
    }
    Ok(())
}

/// Numbers that look random.
fn numbers(len: usize) -> impl Iterator<Item = u64> {
    (0..len as u64)
        .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32)
}

pub fn gather_contests(stage: &mut Stage) -> Result<(), Failure> {
    for matrix in matrices(stage) {
        let (device, Matrix { rows, columns, .. }) = (stage.device(), matrix);
        let x = Input::<f32>::normal(&device, 22, matrix.len(), 0)?;
        let chosen: Vec<i32> = numbers(matrix.len()).map(|x| (x % columns as u64) as i32).collect();
        let ids = Input::of(&device, &chosen)?;
        let mut expected = Vec::new();
        for row in sampled(rows) {
            let (from, ids) = (x.read(row * columns, columns)?, &chosen[row * columns..][..columns]);
            expected.push(Segment { at: row * columns, values: ids.iter().map(|&id| from[id as usize]).collect() });
        }
        let out = Output::<f32>::new(&device, matrix.len(), 0, EXACT, expected)?;
        let (x, ids, y) = (&x, &ids, &out);
        let mut ours = Contender::ours();
        for warps in matrix.warps() {
            ours.config(format!("BLOCK={columns} warps={warps}"), move |how| {
                let mut y = y.lock();
                let call = GatherRowsConsts { BLOCK: columns }.call(x.view()?, ids.view()?, y.view()?);
                call.grid(rows).num_warps(warps).submit(how)
            });
        }
        let arguments = vec![x.argument(), ids.argument(), out.argument()];
        let triton = stage.triton(("gather_tile", "f32", Variant::Aligned), arguments, |e| {
            (e.get("BLOCK") == Some(columns)).then_some([rows, 1, 1])
        })?;
        stage.hold(Contest {
            work: "gather_tile",
            shape: matrix.to_string(),
            dtype: "f32",
            bytes: (12 * matrix.len()) as f64,
            flops: 0.0,
            outputs: vec![&out],
            contenders: vec![triton, ours],
        })?;
    }
    Ok(())
}

/// Elements per step and warps of histograms.
const STEPS: [(usize, u32); 6] = [(1024, 4), (2048, 4), (4096, 4), (2048, 8), (4096, 8), (8192, 8)];

pub fn histogram_contests(stage: &mut Stage) -> Result<(), Failure> {
    for matrix in stage.sized(vec![Matrix::new(PARTS, 65536)], vec![Matrix::new(3, 2048)]) {
        let (device, Matrix { rows: parts, columns: share, .. }) = (stage.device(), matrix);
        let counted: Vec<i32> = numbers(matrix.len()).map(|x| (x % BINS as u64) as i32).collect();
        let ids = Input::of(&device, &counted)?;
        let mut expected = Vec::new();
        for part in sampled(parts) {
            let mut values = vec![0.0; BINS];
            counted[part * share..][..share].iter().for_each(|&bin| values[bin as usize] += 1.0);
            expected.push(Segment { at: part * BINS, values });
        }
        let out = Output::<f32>::new(&device, parts * BINS, 0, EXACT, expected)?;
        let (ids, y) = (&ids, &out);
        let mut ours = Contender::ours();
        for (block, warps) in STEPS {
            ours.config(format!("BLOCK={block} warps={warps}"), move |how| {
                let mut y = y.lock();
                let call = HistogramPartsConsts { BLOCK: block, BINS }.call(ids.view()?, y.view()?, share as i32);
                call.grid(parts).num_warps(warps).submit(how)
            });
        }
        let arguments = vec![ids.argument(), out.argument(), Argument::I32(share as i32)];
        let triton = stage.triton(("histogram", "f32", Variant::Aligned), arguments, |_| Some([parts, 1, 1]))?;
        stage.hold(Contest {
            work: "histogram",
            shape: matrix.len().to_string(),
            dtype: "f32",
            bytes: (4 * matrix.len()) as f64,
            flops: 0.0,
            outputs: vec![&out],
            contenders: vec![triton, ours],
        })?;
    }
    Ok(())
}

/// Elements and warps of programs that draw numbers.
const DRAWS: [(usize, u32); 5] = [(512, 4), (1024, 4), (1024, 8), (2048, 4), (2048, 8)];

pub fn rand_contests(stage: &mut Stage) -> Result<(), Failure> {
    for matrix in stage.sized(vec![Matrix::new(1 << 10, 1 << 16)], vec![Matrix::new(1, 4096)]) {
        let (device, len) = (stage.device(), matrix.len());
        let out = Output::<f32>::new(&device, len, 0, EXACT, Vec::new())?;
        let y = &out;
        let mut ours = Contender::ours();
        for (block, warps) in DRAWS {
            ours.config(format!("BLOCK={block} warps={warps}"), move |how| {
                let mut y = y.lock();
                let call = UniformConsts { BLOCK: block }.call(y.view()?, len as i32, SEED);
                call.grid(len.div_ceil(block)).num_warps(warps).submit(how)
            });
        }
        let arguments = vec![out.argument(), Argument::I32(len as i32), Argument::I32(SEED)];
        let triton = stage
            .triton(("rand", "f32", Variant::Aligned), arguments, |e| Some([len.div_ceil(e.get("BLOCK")?), 1, 1]))?;
        stage.hold(Contest {
            work: "rand",
            shape: len.to_string(),
            dtype: "f32",
            bytes: (4 * len) as f64,
            flops: 0.0,
            outputs: vec![&out],
            contenders: vec![triton, ours],
        })?;
    }
    Ok(())
}
