//! Gradients of layer norm and RMS norm.

use super::norm::{EPS, matrix, normed};
use crate::families::frame::{Library, Row, address, expected, size, tensor};
use std::cell::RefCell;
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, Verify};
use tilewright_bench::element::Element;
use tilewright_bench::shape::{Matrix, Variant};
use tilewright_bench::{Contender, Failure, Stage};
use tilewright_kernels::rows::{self, Norm, NormBackwardConfig, NormGradientsMut};
use tilewright_kernels::{Context, Tensor, TensorViewMut};

/// Programs of the peer's first kernel.
const PROGRAMS: [usize; 3] = [132, 264, 528];
/// The most programs of ours that are tried, for each multiprocessor.
const MOST: usize = 8;

/// Everything that the contenders read and write.
struct Task {
    centre: bool,
    matrix: Matrix,
    dy: Input<bf16>,
    x: Input<bf16>,
    weight: Input<bf16>,
    means: Input<f32>,
    rstds: Input<f32>,
    dx: Output<bf16>,
    dw: Output<bf16>,
    db: Output<bf16>,
    sums: RefCell<Tensor<f32, 2>>,
}

/// The statistics of all rows, and the first sums over rows of `dy * normed(x)` and of `dy`.
fn sums(matrix: Matrix, x: &Input<bf16>, dy: &Input<bf16>, centre: bool) -> Result<[Vec<f64>; 4], Failure> {
    let Matrix { rows, columns, .. } = matrix;
    let some = columns.min(64);
    let [mut means, mut rstds] = [const { Vec::new() }; 2];
    let [mut weights, mut biases] = [vec![0.0; some], vec![0.0; some]];
    for row in 0..rows {
        let x = x.read(row * columns, columns)?;
        let dy = dy.read(row * columns, some)?;
        let (normed, rstd) = normed(&x, centre);
        means.push(if centre { x.iter().sum::<f64>() / columns as f64 } else { 0.0 });
        rstds.push(rstd);
        for i in 0..some {
            weights[i] += dy[i] * normed[i];
            biases[i] += dy[i];
        }
    }
    Ok([means, rstds, weights, biases])
}

impl Task {
    fn new(device: &Device, matrix: Matrix, centre: bool) -> Result<Task, Failure> {
        let Matrix { rows, columns, .. } = matrix;
        let dy = Input::<bf16>::normal(device, 13, matrix.len(), 0)?;
        let x = Input::<bf16>::normal(device, 14, matrix.len(), 0)?;
        let weight = Input::<bf16>::normal(device, 15, columns, 0)?;
        let w = weight.read(0, columns)?;
        let [means, rstds, weights, biases] = sums(matrix, &x, &dy, centre)?;
        let [expected] = expected(matrix, [&x, &dy], |_, [x, dy]| {
            let (normed, rstd) = normed(x, centre);
            let g: Vec<f64> = dy.iter().zip(&w).map(|(dy, w)| dy * w).collect();
            let along = g.iter().zip(&normed).map(|(g, x)| g * x).sum::<f64>() / columns as f64;
            let mean = if centre { g.iter().sum::<f64>() / columns as f64 } else { 0.0 };
            [g.iter().zip(&normed).map(|(g, x)| rstd * (g - mean - x * along)).collect()]
        })?;
        // Sums of as many products of about 1 as there are rows, added in a tree.
        let summed = Tolerance { relative: bf16::HALF_ULP + 2e-6, absolute: 2e-7 * rows as f64 };
        let of_rows = |values| Output::new(device, columns, 0, summed, vec![Segment { at: 0, values }]);
        let single = |values: &[f64]| values.iter().map(|x| *x as f32).collect::<Vec<f32>>();
        let cx = Context::new(device);
        let most = (device.multiprocessor_count() * MOST).max(PROGRAMS[2]).min(rows);
        let programs = rows::norm_programs(&cx, bf16::ELEMENT, rows, columns)?.max(most);
        Ok(Task {
            centre,
            matrix,
            dx: Output::new(device, matrix.len(), 0, Tolerance::of::<bf16>(4e-6, 2.0), expected)?,
            dw: of_rows(weights)?,
            db: of_rows(biases)?,
            means: Input::of(device, &single(&means))?,
            rstds: Input::of(device, &single(&rstds))?,
            // Those of the weight, and those of the bias behind them.
            sums: RefCell::new(Tensor::zeros(device, [2 * programs, columns])?),
            dy,
            x,
            weight,
        })
    }

    fn outputs(&self) -> Vec<&dyn Verify> {
        let all: [&dyn Verify; 3] = [&self.dx, &self.dw, &self.db];
        all[..if self.centre { 3 } else { 2 }].to_vec()
    }

    fn ours(&self, stage: &Stage) -> Library<'_> {
        let shape @ [rows, columns] = [self.matrix.rows, self.matrix.columns];
        let tried = [(4096, 4, 4), (4096, 8, 4), (4096, 8, 2), (4096, 16, 1), (4096, 16, 2)];
        let configs =
            tried.map(|(block, num_warps, programs)| NormBackwardConfig { rows: 1, block, num_warps, programs });
        let call = move |cx: &Context| {
            let norm = Norm::default().weight(tensor(&self.weight, [columns])?).eps(f64::from(EPS));
            let (mut dx, mut dw, mut db) = (self.dx.lock(), self.dw.lock(), self.db.lock());
            let mut sums = self.sums.borrow_mut();
            let parts = rows::norm_programs(cx, bf16::ELEMENT, rows, columns)? * if self.centre { 2 } else { 1 };
            let gradients = NormGradientsMut {
                dx: TensorViewMut::new(dx.view()?, shape)?,
                dweight: Some(TensorViewMut::new(dw.view()?, [columns])?),
                dbias: if self.centre { Some(TensorViewMut::new(db.view()?, [columns])?) } else { None },
                sums: sums.view_mut().narrow(0, 0..parts)?,
            };
            let (x, dy) = (tensor(&self.x, shape)?, tensor(&self.dy, shape)?);
            if self.centre {
                // That there is a bias says that its gradient is wanted, whatever it is.
                let norm = norm.bias(tensor(&self.weight, [columns])?);
                Ok(rows::layer_norm_backward_into(cx, x, dy, &norm, gradients)?)
            } else {
                Ok(rows::rms_norm_backward_into(cx, x, dy, &norm, gradients)?)
            }
        };
        Library::new(stage, call).tried(bf16::ELEMENT, &shape, &configs)
    }

    /// Triton's two kernels, one after the other: gradients and sums of parts of the rows, then their sums.
    fn triton(&self, stage: &Stage, work: &str, finish: &str) -> Result<Vec<Contender<'_>>, Failure> {
        let Matrix { rows, columns, .. } = self.matrix;
        let Argument::Address(sums) = address(&self.sums.borrow()) else { return Err("sums have an address".into()) };
        let mut triton = Contender { name: "triton", configs: Vec::new() };
        for programs in PROGRAMS.map(|programs| programs.min(rows)) {
            let biases = Argument::Address(sums + (4 * programs * columns) as u64);
            let weights = Argument::Address(sums);
            let mut arguments = vec![self.dy.argument(), self.x.argument(), self.weight.argument()];
            let mut then = vec![weights];
            if self.centre {
                arguments.extend([self.means.argument(), self.rstds.argument(), self.dx.argument(), weights, biases]);
                then.extend([biases, self.dw.argument(), self.db.argument()]);
            } else {
                arguments.extend([self.rstds.argument(), self.dx.argument(), weights]);
                then.push(self.dw.argument());
            }
            arguments.extend([size(rows), size(columns)]);
            then.extend([size(programs), size(columns)]);
            let first = stage.peers((work, bf16::NAME, Variant::Aligned), arguments, |e| {
                (e.get("BLOCK")? >= columns).then_some([programs, 1, 1])
            })?;
            let then = stage
                .peers((finish, bf16::NAME, Variant::Aligned), then, |e| Some([columns.div_ceil(e.get("N")?), 1, 1]))?;
            let Some((_, then)) = then.into_iter().next() else { continue };
            for (entry, first) in first {
                let then = then.clone();
                triton.config(format!("{} programs={programs}", entry.config), move |_| {
                    first()?;
                    then()
                });
            }
        }
        Ok(if triton.configs.is_empty() { Vec::new() } else { vec![triton] })
    }
}

fn contest(stage: &mut Stage, work: &'static str, finish: &str, centre: bool) -> Result<(), Failure> {
    let matrix = matrix(stage);
    let task = Task::new(&stage.device(), matrix, centre)?;
    let (library, peers) = (task.ours(stage), task.triton(stage, work, finish)?);
    Row::moving(work, matrix, bf16::NAME, 6 * matrix.len()).hold(stage, task.outputs(), peers, library)
}

pub fn rms_norm(stage: &mut Stage) -> Result<(), Failure> {
    contest(stage, "rms_norm_backward", "rms_norm_finish", false)
}

pub fn layer_norm(stage: &mut Stage) -> Result<(), Failure> {
    contest(stage, "layer_norm_backward", "layer_norm_finish", true)
}
