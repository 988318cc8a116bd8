//! Norms and softmax.

use super::{library, tensor};
use std::cell::RefCell;
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Contender, Contest, Failure, Stage};
use tilewright_kernels::rows::{self, Norm, NormGradientsMut};
use tilewright_kernels::{Context, Tensor, TensorViewMut};

const EPS: f32 = 1e-6;

/// What peers have kernels for.
fn matrix(stage: &Stage) -> Matrix {
    stage.sized(vec![Matrix::new(8192, 4096)], vec![Matrix::new(5, 64)])[0]
}

fn rstd(row: &[f64]) -> f64 {
    (row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64 + f64::from(EPS)).sqrt().recip()
}

pub fn rms_norm(stage: &mut Stage) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let Matrix { rows, columns, .. } = matrix;
    let x = Input::<bf16>::normal(&device, 6, matrix.len(), 0)?;
    let weight = Input::<bf16>::normal(&device, 7, columns, 0)?;
    let w = weight.read(0, columns)?;
    let mut expected = Vec::new();
    for row in sampled(rows) {
        let data = x.read(row * columns, columns)?;
        let rstd = rstd(&data);
        expected.push(Segment { at: row * columns, values: data.iter().zip(&w).map(|(v, w)| v * rstd * w).collect() });
    }
    let out = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(2e-6, 1.0), expected)?;
    let ours = library(|cx| {
        let norm = Norm::default().weight(tensor(&weight, [columns])?).eps(f64::from(EPS));
        let mut y = out.lock();
        let y = TensorViewMut::new(y.view()?, [rows, columns])?;
        Ok(rows::rms_norm_into(cx, tensor(&x, [rows, columns])?, &norm, y)?)
    });
    let size = Argument::I32(columns as i32);
    let arguments = vec![x.argument(), weight.argument(), out.argument(), size, Argument::F32(EPS)];
    let triton = whole_rows(stage, "rms_norm", matrix, arguments)?;
    stage.hold(Contest {
        work: "rms_norm",
        shape: matrix.to_string(),
        dtype: bf16::NAME,
        bytes: (2 * matrix.len() * size_of::<bf16>()) as f64,
        outputs: vec![&out],
        contenders: vec![triton, ours],
    })
}

/// Triton's kernels that keep a row in registers.
fn whole_rows<'a>(
    stage: &Stage,
    work: &str,
    matrix: Matrix,
    arguments: Vec<Argument>,
) -> Result<Contender<'a>, Failure> {
    stage.triton((work, bf16::NAME, matrix.variant()), arguments, |e| {
        let fits = e.get("BLOCK") == Some(matrix.block()) && !e.config.starts_with(char::is_lowercase);
        fits.then_some([matrix.rows, 1, 1])
    })
}

pub fn layer_norm(stage: &mut Stage) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let Matrix { rows, columns, .. } = matrix;
    let x = Input::<bf16>::normal(&device, 6, matrix.len(), 0)?;
    let weight = Input::<bf16>::normal(&device, 7, columns, 0)?;
    let bias = Input::<bf16>::normal(&device, 8, columns, 0)?;
    let (w, b) = (weight.read(0, columns)?, bias.read(0, columns)?);
    let mut expected = Vec::new();
    for row in sampled(rows) {
        let data = x.read(row * columns, columns)?;
        let mean = data.iter().sum::<f64>() / columns as f64;
        let centred: Vec<f64> = data.iter().map(|v| v - mean).collect();
        let rstd = rstd(&centred);
        let values = centred.iter().zip(&w).zip(&b).map(|((v, w), b)| v * rstd * w + b).collect();
        expected.push(Segment { at: row * columns, values });
    }
    let out = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(4e-6, 4.0), expected)?;
    let ours = library(|cx| {
        let norm = Norm::default().weight(tensor(&weight, [columns])?).bias(tensor(&bias, [columns])?);
        let mut y = out.lock();
        let y = TensorViewMut::new(y.view()?, [rows, columns])?;
        Ok(rows::layer_norm_into(cx, tensor(&x, [rows, columns])?, &norm.eps(f64::from(EPS)), y)?)
    });
    let statistics = Input::<f32>::normal(&device, 9, 2 * rows, 0)?;
    let Argument::Address(means) = statistics.argument() else { return Err("an input has an address".into()) };
    let rstds = Argument::Address(means + 4 * rows as u64);
    let data = [x.argument(), weight.argument(), bias.argument(), out.argument(), statistics.argument(), rstds];
    let arguments = data.into_iter().chain([Argument::I32(columns as i32), Argument::F32(EPS)]).collect();
    let triton = whole_rows(stage, "layer_norm", matrix, arguments)?;
    stage.hold(Contest {
        work: "layer_norm",
        shape: matrix.to_string(),
        dtype: bf16::NAME,
        bytes: (2 * matrix.len() * size_of::<bf16>()) as f64,
        outputs: vec![&out],
        contenders: vec![triton, ours],
    })
}

pub fn softmax(stage: &mut Stage) -> Result<(), Failure> {
    let device = stage.device();
    let matrix = stage.sized(vec![Matrix::new(8192, 8192)], vec![Matrix::new(5, 64)])[0];
    let Matrix { rows, columns, .. } = matrix;
    let x = Input::<bf16>::normal(&device, 6, matrix.len(), 0)?;
    let mut expected = Vec::new();
    for row in sampled(rows) {
        let exps: Vec<f64> = x.read(row * columns, columns)?.iter().map(|x| x.exp()).collect();
        let total: f64 = exps.iter().sum();
        expected.push(Segment { at: row * columns, values: exps.iter().map(|x| x / total).collect() });
    }
    let out = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(4e-6, 0.0), expected)?;
    let ours = library(|cx| {
        let mut y = out.lock();
        let y = TensorViewMut::new(y.view()?, [rows, columns])?;
        Ok(rows::softmax_into(cx, tensor(&x, [rows, columns])?, y)?)
    });
    let triton =
        whole_rows(stage, "softmax", matrix, vec![x.argument(), out.argument(), Argument::I32(columns as i32)])?;
    stage.hold(Contest {
        work: "softmax",
        shape: matrix.to_string(),
        dtype: bf16::NAME,
        bytes: (2 * matrix.len() * size_of::<bf16>()) as f64,
        outputs: vec![&out],
        contenders: vec![triton, ours],
    })
}

/// Programs of the peer's first kernel.
const PROGRAMS: [usize; 3] = [132, 264, 528];

/// Everything that the contenders of the gradient read and write.
struct Task {
    matrix: Matrix,
    dy: Input<bf16>,
    x: Input<bf16>,
    weight: Input<bf16>,
    rstds: Input<f32>,
    dx: Output<bf16>,
    dw: Output<bf16>,
    sums: RefCell<Tensor<f32, 2>>,
}

impl Task {
    fn new(device: &Device, matrix: Matrix) -> Result<Task, Failure> {
        let Matrix { rows, columns, .. } = matrix;
        let dy = Input::<bf16>::normal(device, 13, matrix.len(), 0)?;
        let x = Input::<bf16>::normal(device, 14, matrix.len(), 0)?;
        let weight = Input::<bf16>::normal(device, 15, columns, 0)?;
        let w = weight.read(0, columns)?;
        let (chosen, mut expected, mut rstds) = (sampled(rows), Vec::new(), vec![0.0f32; rows]);
        let mut sums = vec![0.0; columns.min(64)];
        for (row, of_row) in rstds.iter_mut().enumerate() {
            let (x, dy) = (x.read(row * columns, columns)?, dy.read(row * columns, columns)?);
            let rstd = rstd(&x);
            *of_row = rstd as f32;
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum += dy[i] * x[i] * rstd;
            }
            if chosen.contains(&row) {
                let g: Vec<f64> = dy.iter().zip(&w).map(|(dy, w)| dy * w).collect();
                let along = g.iter().zip(&x).map(|(g, x)| g * x * rstd).sum::<f64>() / columns as f64;
                let values = g.iter().zip(&x).map(|(g, x)| rstd * (g - x * rstd * along)).collect();
                expected.push(Segment { at: row * columns, values });
            }
        }
        // Sums of as many products of about 1 as there are rows, added in a tree.
        let summed = Tolerance { relative: bf16::HALF_ULP + 2e-6, absolute: 2e-7 * rows as f64 };
        let sums_expected = vec![Segment { at: 0, values: sums }];
        let cx = Context::new(device);
        let programs = rows::norm_programs(&cx, bf16::ELEMENT, rows, columns)?.max(PROGRAMS[2].min(rows));
        Ok(Task {
            matrix,
            dx: Output::new(device, matrix.len(), 0, Tolerance::of::<bf16>(4e-6, 2.0), expected)?,
            dw: Output::new(device, columns, 0, summed, sums_expected)?,
            rstds: Input::of(device, &rstds)?,
            sums: RefCell::new(Tensor::zeros(device, [programs, columns])?),
            dy,
            x,
            weight,
        })
    }

    fn ours(&self) -> Contender<'_> {
        let Matrix { rows, columns, .. } = self.matrix;
        library(move |cx| {
            let norm = Norm::default().weight(tensor(&self.weight, [columns])?).eps(f64::from(EPS));
            let (mut dx, mut dw, mut sums) = (self.dx.lock(), self.dw.lock(), self.sums.borrow_mut());
            let programs = rows::norm_programs(cx, bf16::ELEMENT, rows, columns)?;
            let gradients = NormGradientsMut {
                dx: TensorViewMut::new(dx.view()?, [rows, columns])?,
                dweight: Some(TensorViewMut::new(dw.view()?, [columns])?),
                dbias: None,
                sums: sums.view_mut().narrow(0, 0..programs)?,
            };
            let (x, dy) = (tensor(&self.x, [rows, columns])?, tensor(&self.dy, [rows, columns])?);
            Ok(rows::rms_norm_backward_into(cx, x, dy, &norm, gradients)?)
        })
    }

    fn triton(&self, stage: &Stage) -> Result<Contender<'_>, Failure> {
        let Matrix { rows, columns, .. } = self.matrix;
        let variant = self.matrix.variant();
        let size = |i: usize| Argument::I32(i as i32);
        let sums = Argument::Address(self.sums.borrow().buffer().raw().address.get());
        let mut triton = Contender { name: "triton", configs: Vec::new() };
        for programs in PROGRAMS.map(|programs| programs.min(rows)) {
            let inputs = [self.dy.argument(), self.x.argument(), self.weight.argument(), self.rstds.argument()];
            let rest = [self.dx.argument(), sums, size(rows), size(columns)];
            let arguments = inputs.into_iter().chain(rest).collect();
            let first = stage.peers(("rms_norm_backward", bf16::NAME, variant), arguments, |e| {
                (e.get("BLOCK") == Some(self.matrix.block())).then_some([programs, 1, 1])
            })?;
            let arguments = vec![sums, self.dw.argument(), size(programs), size(columns)];
            let then = stage.peers(("rms_norm_finish", bf16::NAME, variant), arguments, |e| {
                Some([columns.div_ceil(e.get("N")?), 1, 1])
            })?;
            let Some((_, then)) = then.into_iter().next() else { continue };
            for (entry, first) in first {
                let then = then.clone();
                triton.config(format!("{} programs={programs}", entry.config), move |_| {
                    first()?;
                    then()
                });
            }
        }
        Ok(triton)
    }
}

pub fn rms_norm_backward(stage: &mut Stage) -> Result<(), Failure> {
    let matrix = matrix(stage);
    let task = Task::new(&stage.device(), matrix)?;
    let (ours, triton) = (task.ours(), task.triton(stage)?);
    stage.hold(Contest {
        work: "rms_norm_backward",
        shape: matrix.to_string(),
        dtype: bf16::NAME,
        bytes: (3 * matrix.len() * size_of::<bf16>()) as f64,
        outputs: vec![&task.dx, &task.dw],
        contenders: vec![triton, ours],
    })
}
