//! Gated activations.

use crate::families::frame::{Library, Row, expected, size, tensor, triton, triton_flat};
use tilewright::prelude::*;
use tilewright_bench::data::{Input, Output, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::TensorViewMut;
use tilewright_kernels::rows::{self, GatedConfig, Gelu};

/// The width that the peers of rows are compiled for is no power of two.
fn matrix(stage: &Stage) -> Matrix {
    stage.either(Matrix::new(8192, 11_008), Matrix::new(3, 100))
}

fn configs() -> [GatedConfig; 4] {
    [(512, 2), (1024, 2), (2048, 4), (2048, 8)].map(|(block, num_warps)| GatedConfig { block, num_warps })
}

/// The gate and its derivative.
type Gate = fn(f64) -> (f64, f64);

fn silu(a: f64) -> (f64, f64) {
    let s = 1.0 / (1.0 + (-a).exp());
    (a * s, s * (1.0 + a * (1.0 - s)))
}

fn gelu(a: f64) -> (f64, f64) {
    let k = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    let s = 1.0 / (1.0 + (-k * a * (1.0 + 0.044715 * a * a)).exp());
    (a * s, s + a * s * (1.0 - s) * k * (1.0 + 3.0 * 0.044715 * a * a))
}

pub fn swiglu(stage: &mut Stage) -> Result<(), Failure> {
    forward(stage, "swiglu", silu)
}

pub fn geglu(stage: &mut Stage) -> Result<(), Failure> {
    forward(stage, "geglu", gelu)
}

fn forward(stage: &mut Stage, work: &'static str, gate: Gate) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let shape = [matrix.rows, matrix.columns];
    let a = Input::<bf16>::normal(&device, 1, matrix.len(), 0)?;
    let b = Input::<bf16>::normal(&device, 2, matrix.len(), 0)?;
    let [expected] = expected(matrix, [&a, &b], |_, [a, b]| [a.iter().zip(b).map(|(a, b)| gate(*a).0 * b).collect()])?;
    let out = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(8e-6, 4.0), expected)?;
    let library = Library::new(stage, |cx| {
        let mut y = out.lock();
        let (a, b, y) = (tensor(&a, shape)?, tensor(&b, shape)?, TensorViewMut::new(y.view()?, shape)?);
        if work == "swiglu" {
            Ok(rows::swiglu_into(cx, a, b, y)?)
        } else {
            Ok(rows::geglu_into(cx, a, b, Gelu::Tanh, y)?)
        }
    })
    .tried(bf16::ELEMENT, &shape, &configs());
    let arguments = vec![a.argument(), b.argument(), out.argument(), size(matrix.len())];
    let peers = triton_flat(stage, work, matrix.len(), arguments)?;
    Row::moving(work, matrix, bf16::NAME, 6 * matrix.len()).hold(stage, vec![&out], peers, library)
}

pub fn swiglu_backward(stage: &mut Stage) -> Result<(), Failure> {
    backward(stage, "swiglu_backward", silu)
}

pub fn geglu_backward(stage: &mut Stage) -> Result<(), Failure> {
    backward(stage, "geglu_backward", gelu)
}

fn backward(stage: &mut Stage, work: &'static str, gate: Gate) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let shape = [matrix.rows, matrix.columns];
    let input = |seed| Input::<bf16>::normal(&device, seed, matrix.len(), 0);
    let (a, b, dy) = (input(1)?, input(2)?, input(3)?);
    let [of_a, of_b] = expected(matrix, [&a, &b, &dy], |_, [a, b, dy]| {
        let each = || a.iter().zip(b).zip(dy).map(|((a, b), dy)| (gate(*a), b, dy));
        let of_a = each().map(|((_, slope), b, dy)| dy * b * slope).collect();
        [of_a, each().map(|((value, _), _, dy)| dy * value).collect()]
    })?;
    let output = |expected| Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(8e-6, 4.0), expected);
    let (da, db) = (output(of_a)?, output(of_b)?);
    let library = Library::new(stage, |cx| {
        let (a, b, dy) = (tensor(&a, shape)?, tensor(&b, shape)?, tensor(&dy, shape)?);
        let (mut da, mut db) = (da.lock(), db.lock());
        let (da, db) = (TensorViewMut::new(da.view()?, shape)?, TensorViewMut::new(db.view()?, shape)?);
        if work == "swiglu_backward" {
            Ok(rows::swiglu_backward_into(cx, a, b, dy, da, db)?)
        } else {
            Ok(rows::geglu_backward_into(cx, a, b, Gelu::Tanh, dy, da, db)?)
        }
    })
    .tried(bf16::ELEMENT, &shape, &configs());
    let pointers = [a.argument(), b.argument(), dy.argument(), da.argument(), db.argument()];
    let arguments: Vec<_> = pointers.into_iter().chain([size(matrix.len())]).collect();
    let mut peers = triton_flat(stage, work, matrix.len(), arguments.clone())?;
    let by_rows = triton(stage, (work, bf16::NAME), arguments, |e| {
        (e.get("COLUMNS") == Some(matrix.columns)).then_some([matrix.rows, 1, 1])
    })?;
    if let Some(peer) = peers.first_mut() {
        peer.configs.extend(by_rows.into_iter().flat_map(|peer| peer.configs));
    }
    Row::moving(work, matrix, bf16::NAME, 10 * matrix.len()).hold(stage, vec![&da, &db], peers, library)
}
