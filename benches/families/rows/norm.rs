//! Layer norm and RMS norm.

use crate::families::frame::{Library, Row, expected, size, tensor, triton_rows};
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Tolerance, Updated};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::TensorViewMut;
use tilewright_kernels::rows::{self, Norm, NormConfig};

pub(super) const EPS: f32 = 1e-6;

pub(super) fn matrix(stage: &Stage) -> Matrix {
    stage.either(Matrix::new(8192, 4096), Matrix::new(5, 64))
}

/// A row without its mean, if that is wanted, and the reciprocal of its deviation.
pub(super) fn normed(row: &[f64], centre: bool) -> (Vec<f64>, f64) {
    let count = row.len() as f64;
    let mean = if centre { row.iter().sum::<f64>() / count } else { 0.0 };
    let centred: Vec<f64> = row.iter().map(|x| x - mean).collect();
    let rstd = (centred.iter().map(|x| x * x).sum::<f64>() / count + f64::from(EPS)).sqrt().recip();
    (centred.into_iter().map(|x| x * rstd).collect(), rstd)
}

fn configs() -> [NormConfig; 4] {
    [(4096, 4), (4096, 16), (2048, 8), (2048, 4)].map(|(block, num_warps)| NormConfig { rows: 1, block, num_warps })
}

pub fn rms_norm(stage: &mut Stage) -> Result<(), Failure> {
    forward(stage, "rms_norm", false)
}

pub fn layer_norm(stage: &mut Stage) -> Result<(), Failure> {
    forward(stage, "layer_norm", true)
}

fn forward(stage: &mut Stage, work: &'static str, centre: bool) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let shape @ [rows, columns] = [matrix.rows, matrix.columns];
    let x = Input::<bf16>::normal(&device, 6, matrix.len(), 0)?;
    let weight = Input::<bf16>::normal(&device, 7, columns, 0)?;
    let bias = Input::<bf16>::normal(&device, 8, columns, 0)?;
    let (w, b) = (weight.read(0, columns)?, bias.read(0, columns)?);
    let [expected] = expected(matrix, [&x], |_, [x]| {
        let terms = normed(x, centre).0.into_iter().zip(&w).zip(&b);
        [terms.map(|((x, w), b)| if centre { x * w + b } else { x * w }).collect()]
    })?;
    let out = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(4e-6, 4.0), expected)?;
    let library = Library::new(stage, |cx| {
        let norm = Norm::default().weight(tensor(&weight, [columns])?).eps(f64::from(EPS));
        let mut y = out.lock();
        let (x, y) = (tensor(&x, shape)?, TensorViewMut::new(y.view()?, shape)?);
        if centre {
            Ok(rows::layer_norm_into(cx, x, &norm.bias(tensor(&bias, [columns])?), y)?)
        } else {
            Ok(rows::rms_norm_into(cx, x, &norm, y)?)
        }
    })
    .tried(bf16::ELEMENT, &shape, &configs());
    let statistics = Input::<f32>::normal(&device, 9, 2 * rows, 0)?;
    let mut arguments = vec![x.argument(), weight.argument()];
    if centre {
        let Argument::Address(means) = statistics.argument() else { return Err("an input has an address".into()) };
        let rstds = Argument::Address(means + 4 * rows as u64);
        arguments.extend([bias.argument(), out.argument(), statistics.argument(), rstds]);
    } else {
        arguments.push(out.argument());
    }
    arguments.extend([size(columns), Argument::F32(EPS)]);
    let peers = triton_rows(stage, work, matrix, arguments, true)?;
    Row::moving(work, matrix, bf16::NAME, 4 * matrix.len()).hold(stage, vec![&out], peers, library)
}

pub fn add_rms_norm(stage: &mut Stage) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let shape @ [_, columns] = [matrix.rows, matrix.columns];
    let x = Input::<bf16>::normal(&device, 6, matrix.len(), 0)?;
    let from = Input::<bf16>::normal(&device, 5, matrix.len(), 0)?;
    let weight = Input::<bf16>::normal(&device, 7, columns, 0)?;
    let w = weight.read(0, columns)?;
    let [sums, results] = expected(matrix, [&x, &from], |_, [x, residual]| {
        let sums: Vec<f64> = x.iter().zip(residual).map(|(x, r)| bf16::from_f32((x + r) as f32).to_f64()).collect();
        let results = normed(&sums, false).0.into_iter().zip(&w).map(|(x, w)| x * w).collect();
        [sums, results]
    })?;
    let exact = Tolerance { relative: 0.0, absolute: 0.0 };
    let residual = Updated { from, out: Output::new(&device, matrix.len(), 0, exact, sums)? };
    let out = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(4e-6, 4.0), results)?;
    let library = Library::new(stage, |cx| {
        let norm = Norm::default().weight(tensor(&weight, [columns])?).eps(f64::from(EPS));
        let (mut sum, mut y) = (residual.out.lock(), out.lock());
        let (sum, y) = (TensorViewMut::new(sum.view()?, shape)?, TensorViewMut::new(y.view()?, shape)?);
        Ok(rows::add_rms_norm_into(cx, tensor(&x, shape)?, sum, &norm, y)?)
    })
    .tried(bf16::ELEMENT, &shape, &configs());
    let pointers = [x.argument(), residual.out.argument(), weight.argument(), out.argument()];
    let arguments = pointers.into_iter().chain([size(columns), Argument::F32(EPS)]).collect();
    let peers = triton_rows(stage, "add_rms_norm", matrix, arguments, true)?;
    let row = Row::moving("add_rms_norm", matrix, bf16::NAME, 8 * matrix.len());
    row.hold(stage, vec![&residual, &out], peers, library)
}
