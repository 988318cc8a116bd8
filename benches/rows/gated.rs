//! Gated activations.

use super::{library, tensor};
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Contest, Failure, Stage};
use tilewright_kernels::TensorViewMut;
use tilewright_kernels::rows::{self, Gelu};

/// The width that the peers of rows are compiled for is no power of two.
fn matrix(stage: &Stage) -> Matrix {
    stage.sized(vec![Matrix::new(8192, 11_008)], vec![Matrix::new(3, 100)])[0]
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
    let (device, matrix) = (stage.device(), matrix(stage));
    let Matrix { rows, columns, .. } = matrix;
    let a = Input::<bf16>::normal(&device, 1, matrix.len(), 0)?;
    let b = Input::<bf16>::normal(&device, 2, matrix.len(), 0)?;
    let mut expected = Vec::new();
    for row in sampled(rows) {
        let (a, b) = (a.read(row * columns, columns)?, b.read(row * columns, columns)?);
        expected.push(Segment { at: row * columns, values: a.iter().zip(&b).map(|(a, b)| silu(*a).0 * b).collect() });
    }
    let out = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(4e-6, 1.0), expected)?;
    let ours = library(|cx| {
        let mut y = out.lock();
        let y = TensorViewMut::new(y.view()?, [rows, columns])?;
        Ok(rows::swiglu_into(cx, tensor(&a, [rows, columns])?, tensor(&b, [rows, columns])?, y)?)
    });
    let arguments = vec![a.argument(), b.argument(), out.argument(), Argument::I32(matrix.len() as i32)];
    let triton = stage.triton(("swiglu", bf16::NAME, matrix.variant()), arguments, |e| {
        Some([matrix.len().div_ceil(e.get("BLOCK")?), 1, 1])
    })?;
    stage.hold(Contest {
        work: "swiglu",
        shape: matrix.to_string(),
        dtype: bf16::NAME,
        bytes: (3 * matrix.len() * size_of::<bf16>()) as f64,
        outputs: vec![&out],
        contenders: vec![triton, ours],
    })
}

pub fn swiglu_backward(stage: &mut Stage) -> Result<(), Failure> {
    backward(stage, "swiglu_backward", silu)
}

pub fn geglu_backward(stage: &mut Stage) -> Result<(), Failure> {
    backward(stage, "geglu_backward", gelu)
}

fn backward(stage: &mut Stage, work: &'static str, gate: Gate) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let Matrix { rows, columns, .. } = matrix;
    let input = |seed| Input::<bf16>::normal(&device, seed, matrix.len(), 0);
    let (a, b, dy) = (input(1)?, input(2)?, input(3)?);
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for row in sampled(rows) {
        let at = row * columns;
        let (a, b, dy) = (a.read(at, columns)?, b.read(at, columns)?, dy.read(at, columns)?);
        let each = || a.iter().zip(&b).zip(&dy).map(|((a, b), dy)| (gate(*a), b, dy));
        of_a.push(Segment { at, values: each().map(|((_, slope), b, dy)| dy * b * slope).collect() });
        of_b.push(Segment { at, values: each().map(|((value, _), _, dy)| dy * value).collect() });
    }
    let output = |expected| Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(8e-6, 4.0), expected);
    let (da, db) = (output(of_a)?, output(of_b)?);
    let shape = [rows, columns];
    let ours = library(|cx| {
        let (a, b, dy) = (tensor(&a, shape)?, tensor(&b, shape)?, tensor(&dy, shape)?);
        let (mut da, mut db) = (da.lock(), db.lock());
        let (da, db) = (TensorViewMut::new(da.view()?, shape)?, TensorViewMut::new(db.view()?, shape)?);
        if work == "swiglu_backward" {
            Ok(rows::swiglu_backward_into(cx, a, b, dy, da, db)?)
        } else {
            Ok(rows::geglu_backward_into(cx, a, b, Gelu::Tanh, dy, da, db)?)
        }
    });
    let pointers = vec![a.argument(), b.argument(), dy.argument(), da.argument(), db.argument()];
    let all = pointers.iter().copied().chain([Argument::I32(matrix.len() as i32)]).collect();
    let mut triton = stage.triton((work, bf16::NAME, matrix.variant()), all, |e| {
        let flat = e.get("COLUMNS").is_none();
        flat.then_some([matrix.len().div_ceil(e.get("BLOCK")?), 1, 1])
    })?;
    let by_rows = stage.triton((work, bf16::NAME, matrix.variant()), pointers, |e| {
        (e.get("COLUMNS") == Some(columns)).then_some([rows, 1, 1])
    })?;
    triton.configs.extend(by_rows.configs);
    stage.hold(Contest {
        work,
        shape: matrix.to_string(),
        dtype: bf16::NAME,
        bytes: (5 * matrix.len() * size_of::<bf16>()) as f64,
        outputs: vec![&da, &db],
        contenders: vec![triton, ours],
    })
}
