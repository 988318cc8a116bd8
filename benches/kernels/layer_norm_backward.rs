//! Layer norm over rows, backward: the gradients of the data, the weight and the bias.
//!
//! One kernel makes the gradient of the data; each of its programs goes over several rows and keeps the sums for
//! weight and bias in registers, so that a second kernel has few rows to add up.

use std::cell::RefCell;

use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Contender, Contest, Failure, Stage, Submit};

use super::layer_norm::statistics;

/// `dx` of all rows, and per program the sums of `dy * x_hat` and `dy` over its rows.
#[kernel]
pub fn layer_norm_backward<T: Float, const BLOCK: usize>(
    dy: Ptr<T>,
    x: Ptr<T>,
    weight: Ptr<T>,
    means: Ptr<f32>,
    rstds: Ptr<f32>,
    dx: PtrMut<T>,
    partial_weights: PtrMut<f32>,
    partial_biases: PtrMut<f32>,
    rows: i32,
    columns: i32,
) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let scale = load(weight + column, mask = mask) as f32;
    let mut weights = zeros::<f32>([BLOCK]);
    let mut biases = zeros::<f32>([BLOCK]);
    for row in (program_id(0)..rows).step_by(num_programs(0)) {
        let offsets = row * columns + column;
        let values = load(x + offsets, mask = mask) as f32;
        let gradient = load(dy + offsets, mask = mask) as f32;
        let rstd = load(rstds + row);
        let normed = select(mask, (values - load(means + row)) * rstd, 0.0);
        let scaled = scale * gradient;
        let along = sum(normed * scaled, axis = 0) / columns as f32;
        let mean = sum(scaled, axis = 0) / columns as f32;
        store(dx + offsets, ((scaled - (normed * along + mean)) * rstd) as T, mask = mask);
        weights += gradient * normed;
        biases += gradient;
    }
    let offsets = program_id(0) * columns + column;
    store(partial_weights + offsets, weights, mask = mask);
    store(partial_biases + offsets, biases, mask = mask);
}

/// Adds up the partial sums of both gradients, `M` rows of `N` columns at a time.
#[kernel]
pub fn finish<T: Float, const M: usize, const N: usize>(
    partial_weights: Ptr<f32>,
    partial_biases: Ptr<f32>,
    weight_gradient: PtrMut<T>,
    bias_gradient: PtrMut<T>,
    parts: i32,
    columns: i32,
) {
    let column = program_id(0) * N + arange(0, N);
    let inside = column < columns;
    let mut weights = zeros::<f32>([M, N]);
    let mut biases = zeros::<f32>([M, N]);
    for first in (0..parts).step_by(M) {
        let row = first + arange(0, M);
        let mask = (row < parts)[(.., None)] & inside[(None, ..)];
        let offsets = row[(.., None)] * columns + column[(None, ..)];
        weights += load(partial_weights + offsets, mask = mask);
        biases += load(partial_biases + offsets, mask = mask);
    }
    store(weight_gradient + column, sum(weights, axis = 0) as T, mask = inside);
    store(bias_gradient + column, sum(biases, axis = 0) as T, mask = inside);
}

/// Rows, columns and warps of the tiles of [`finish`].
const FINISH: (usize, usize, u32) = (32, 32, 4);

/// Programs of the first kernel: one, two and four per multiprocessor of an H100.
const PROGRAMS: [usize; 3] = [132, 264, 528];

/// The gradient of a row of data; adds to those of weight and bias.
fn reference(x: &[f64], dy: &[f64], w: &[f64]) -> Vec<f64> {
    let n = x.len() as f64;
    let (mean, rstd) = statistics(x);
    let normed = |i: usize| (x[i] - mean) * rstd;
    let along = (0..x.len()).map(|i| normed(i) * w[i] * dy[i]).sum::<f64>() / n;
    let average = (0..x.len()).map(|i| w[i] * dy[i]).sum::<f64>() / n;
    (0..x.len()).map(|i| (w[i] * dy[i] - (normed(i) * along + average)) * rstd).collect()
}

/// Everything that the contenders read and write.
struct Task<T: Element> {
    matrix: Matrix,
    dy: Input<T>,
    x: Input<T>,
    weight: Input<T>,
    means: Input<f32>,
    rstds: Input<f32>,
    dx: Output<T>,
    dw: Output<T>,
    db: Output<T>,
    partial: RefCell<(Buffer<f32>, Buffer<f32>)>,
    locks: RefCell<Buffer<i32>>,
}

impl<T: Element> Task<T> {
    fn new(device: &Device, matrix: Matrix) -> Result<Task<T>, Failure> {
        let Matrix { rows, columns, start } = matrix;
        let x = Input::<T>::normal(device, 13, matrix.len(), start)?;
        let dy = Input::<T>::normal(device, 14, matrix.len(), start)?;
        let weight = Input::<T>::normal(device, 15, columns, start)?;
        let w = weight.read(0, columns)?;
        let chosen = sampled(rows);
        let (mut means, mut rstds, mut expected) = (vec![0.0; rows], vec![0.0; rows], Vec::new());
        let few = columns.min(64);
        let (mut dw, mut db) = (vec![0.0; few], vec![0.0; few]);
        for row in 0..rows {
            let data = x.read(row * columns, columns)?;
            let (mean, rstd) = statistics(&data);
            (means[row], rstds[row]) = (mean as f32, rstd as f32);
            let gradient = dy.read(row * columns, if chosen.contains(&row) { columns } else { few })?;
            for i in 0..few {
                dw[i] += gradient[i] * (data[i] - mean) * rstd;
                db[i] += gradient[i];
            }
            if chosen.contains(&row) {
                expected.push(Segment { at: row * columns, values: reference(&data, &gradient, &w) });
            }
        }
        // Sums of as many products of about 1 as there are rows, added in a tree.
        let summed = Tolerance { relative: T::HALF_ULP + 2e-6, absolute: 2e-7 * rows as f64 };
        let most = PROGRAMS[PROGRAMS.len() - 1];
        let sums = |values: Vec<f64>| vec![Segment { at: 0, values }];
        Ok(Task {
            matrix,
            dx: Output::new(device, matrix.len(), start, Tolerance::of::<T>(4e-6, 2.0), expected)?,
            dw: Output::new(device, columns, start, summed, sums(dw))?,
            db: Output::new(device, columns, start, summed, sums(db))?,
            means: Input::of(device, &means)?,
            rstds: Input::of(device, &rstds)?,
            partial: RefCell::new((device.zeros(most * columns)?, device.zeros(most * columns)?)),
            locks: RefCell::new(device.zeros(2 * GROUPS)?),
            dy,
            x,
            weight,
        })
    }

    fn ours(&self) -> Contender<'_> {
        let Matrix { rows, columns, .. } = self.matrix;
        let (block, n) = (self.matrix.block(), columns as i32);
        let (m2, n2, w2) = FINISH;
        let mut ours = Contender::ours();
        for w in self.matrix.warps() {
            for programs in PROGRAMS.map(|p| p.min(rows)) {
                ours.config(format!("BLOCK={block} warps={w} programs={programs}"), move |how| {
                    let (mut dx, mut dw, mut db) = (self.dx.lock(), self.dw.lock(), self.db.lock());
                    let (weights, biases) = &mut *self.partial.borrow_mut();
                    let (dy, x, weight) = (self.dy.view()?, self.x.view()?, self.weight.view()?);
                    let (means, rstds) = (self.means.view()?, self.rstds.view()?);
                    LayerNormBackwardConsts { BLOCK: block }
                        .call(dy, x, weight, means, rstds, dx.view()?, &mut *weights, &mut *biases, rows as i32, n)
                        .grid(programs)
                        .num_warps(w)
                        .submit(how)?;
                    FinishConsts { M: m2, N: n2 }
                        .call(&*weights, &*biases, dw.view()?, db.view()?, programs as i32, n)
                        .grid(columns.div_ceil(n2))
                        .num_warps(w2)
                        .submit(how)
                });
            }
        }
        ours
    }

    /// Our algorithm in Triton, and that of Triton's tutorial, which adds into shared rows under locks.
    fn triton(&self, stage: &Stage) -> Result<Contender<'_>, Failure> {
        let Matrix { rows, columns, .. } = self.matrix;
        let variant = self.matrix.variant();
        let block = self.matrix.block();
        let (weights, biases) = &*self.partial.borrow();
        let address = |b: &Buffer<f32>| Argument::Address(b.raw().address.get());
        let partial = [address(weights), address(biases)];
        let size = |i: usize| Argument::I32(i as i32);
        let data = [self.dy.argument(), self.x.argument(), self.weight.argument()];
        let statistics = [self.means.argument(), self.rstds.argument()];
        let (m2, n2, _) = FINISH;
        let finish = |parts: usize| {
            let gradients = [self.dw.argument(), self.db.argument(), size(parts), size(columns)];
            let arguments = partial.into_iter().chain(gradients).collect();
            stage.peers(("layer_norm_finish", T::NAME, variant), arguments, |e| {
                (e.get("M") == Some(m2) && e.get("N") == Some(n2)).then_some([columns.div_ceil(n2), 1, 1])
            })
        };
        let mut triton = Contender { name: "triton", configs: Vec::new() };
        for programs in PROGRAMS.map(|p| p.min(rows)) {
            let rest = [self.dx.argument(), partial[0], partial[1], size(rows), size(columns)];
            let arguments = data.into_iter().chain(statistics).chain(rest).collect();
            let first = stage.peers(("layer_norm_backward", T::NAME, variant), arguments, |e| {
                (e.get("BLOCK") == Some(block)).then_some([programs, 1, 1])
            })?;
            let Some((_, then)) = finish(programs)?.into_iter().next() else { continue };
            for (entry, first) in first {
                let then = then.clone();
                triton.config(format!("{} programs={programs}", entry.config), move |_| {
                    first()?;
                    then()
                });
            }
        }
        let locks = Argument::Address(self.locks.borrow().raw().address.get());
        let rest = [partial[0], partial[1]];
        let arguments = [self.dx.argument()].into_iter().chain(rest).chain(data).chain(statistics);
        let arguments = arguments.chain([locks, size(columns)]).collect();
        let locked = stage.peers(("layer_norm_backward_locks", T::NAME, variant), arguments, |e| {
            (e.get("BLOCK") == Some(block)).then_some([rows, 1, 1])
        })?;
        for (entry, first) in locked {
            let groups = entry.get("GROUPS").unwrap_or(GROUPS);
            let Some((_, then)) = finish(groups.min(rows))?.into_iter().next() else { continue };
            triton.config(format!("locks {}", entry.config), move |_| {
                // A lock that was never taken says that the row of sums is not there yet.
                self.locks.borrow_mut().fill(0)?;
                first()?;
                then()
            });
        }
        Ok(triton)
    }
}

/// The most rows of sums that the tutorial's kernel shares.
const GROUPS: usize = 256;

fn contest<T: Element>(stage: &mut Stage, matrix: Matrix) -> Result<(), Failure> {
    let task = Task::<T>::new(&stage.device(), matrix)?;
    let (ours, triton) = (task.ours(), task.triton(stage)?);
    stage.hold(Contest {
        work: "layer_norm_backward",
        shape: matrix.to_string(),
        dtype: T::NAME,
        bytes: (3 * matrix.len() * size_of::<T>()) as f64,
        flops: 0.0,
        outputs: vec![&task.dx, &task.dw, &task.db],
        contenders: vec![triton, ours],
    })
}

pub fn contests(stage: &mut Stage) -> Result<(), Failure> {
    // Sums for rows beyond a block of 16,384 do not fit into registers beside the row.
    for matrix in stage.matrices::<f32>().into_iter().filter(|m| m.columns <= 16384) {
        contest::<f32>(stage, matrix)?;
    }
    for matrix in stage.matrices::<bf16>().into_iter().filter(|m| m.columns <= 16384) {
        contest::<bf16>(stage, matrix)?;
    }
    Ok(())
}
