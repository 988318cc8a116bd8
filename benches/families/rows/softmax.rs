//! Softmax and its logarithm.

use crate::families::frame::{Library, Row, expected, size, tensor, triton_rows};
use tilewright::prelude::*;
use tilewright_bench::data::{Input, Output, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::config::Config;
use tilewright_kernels::rows::{self, LogSoftmaxConfig, SoftmaxConfig};
use tilewright_kernels::{Context, TensorView, TensorViewMut};

fn matrix(stage: &Stage) -> Matrix {
    stage.either(Matrix::new(8192, 8192), Matrix::new(5, 64))
}

/// A function of one matrix.
type Forward = fn(&Context, TensorView<'_, bf16, 2>, TensorViewMut<'_, bf16, 2>) -> Result<(), Error>;
/// A gradient, from a result and that of the result.
type Backward =
    fn(&Context, TensorView<'_, bf16, 2>, TensorView<'_, bf16, 2>, TensorViewMut<'_, bf16, 2>) -> Result<(), Error>;

fn forward<C: Config>(
    stage: &mut Stage,
    work: &'static str,
    f: Forward,
    of_row: fn(&[f64]) -> Vec<f64>,
    configs: &[C],
) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let shape = [matrix.rows, matrix.columns];
    let x = Input::<bf16>::normal(&device, 6, matrix.len(), 0)?;
    let [expected] = expected(matrix, [&x], |_, [x]| [of_row(x)])?;
    // Logarithms of shares of a row are about -9.
    let out = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(4e-6, 10.0), expected)?;
    let library = Library::new(stage, |cx| {
        let mut y = out.lock();
        Ok(f(cx, tensor(&x, shape)?, TensorViewMut::new(y.view()?, shape)?)?)
    })
    .tried(bf16::ELEMENT, &shape, configs);
    let arguments = vec![x.argument(), out.argument(), size(matrix.columns)];
    let peers = triton_rows(stage, work, matrix, arguments, true)?;
    Row::moving(work, matrix, bf16::NAME, 4 * matrix.len()).hold(stage, vec![&out], peers, library)
}

fn backward<C: Config>(
    stage: &mut Stage,
    work: &'static str,
    (f, g): (Forward, Backward),
    of_row: fn(&[f64], &[f64]) -> Vec<f64>,
    configs: &[C],
) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let shape = [matrix.rows, matrix.columns];
    let x = Input::<bf16>::normal(&device, 6, matrix.len(), 0)?;
    let dy = Input::<bf16>::normal(&device, 7, matrix.len(), 0)?;
    let mut y = device.zeros::<bf16>(matrix.len())?;
    f(&Context::new(&device), tensor(&x, shape)?, TensorViewMut::new(&mut y, shape)?)?;
    let y = Input::from_buffer(y);
    let [expected] = expected(matrix, [&y, &dy], |_, [y, dy]| [of_row(y, dy)])?;
    let out = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(8e-6, 2.0), expected)?;
    let library = Library::new(stage, |cx| {
        let mut dx = out.lock();
        Ok(g(cx, tensor(&y, shape)?, tensor(&dy, shape)?, TensorViewMut::new(dx.view()?, shape)?)?)
    })
    .tried(bf16::ELEMENT, &shape, configs);
    let arguments = vec![y.argument(), dy.argument(), out.argument(), size(matrix.columns)];
    let peers = triton_rows(stage, work, matrix, arguments, true)?;
    Row::moving(work, matrix, bf16::NAME, 6 * matrix.len()).hold(stage, vec![&out], peers, library)
}

/// Blocks and warps to try.
const TRIED: [(usize, usize); 4] = [(8192, 4), (8192, 8), (8192, 32), (4096, 16)];

pub fn softmax(stage: &mut Stage) -> Result<(), Failure> {
    let of_row = |x: &[f64]| {
        let total: f64 = x.iter().map(|x| x.exp()).sum();
        x.iter().map(|x| x.exp() / total).collect()
    };
    let configs = TRIED.map(|(block, num_warps)| SoftmaxConfig { block, num_warps });
    forward(stage, "softmax", |cx, x, y| rows::softmax_into(cx, x, y), of_row, &configs)
}

pub fn softmax_backward(stage: &mut Stage) -> Result<(), Failure> {
    let of_row = |y: &[f64], dy: &[f64]| {
        let total: f64 = y.iter().zip(dy).map(|(y, dy)| y * dy).sum();
        y.iter().zip(dy).map(|(y, dy)| y * (dy - total)).collect()
    };
    let configs = TRIED.map(|(block, num_warps)| SoftmaxConfig { block, num_warps });
    let both: (Forward, Backward) =
        (|cx, x, y| rows::softmax_into(cx, x, y), |cx, y, dy, dx| rows::softmax_backward_into(cx, y, dy, dx));
    backward(stage, "softmax_backward", both, of_row, &configs)
}

pub fn log_softmax(stage: &mut Stage) -> Result<(), Failure> {
    let of_row = |x: &[f64]| {
        let total: f64 = x.iter().map(|x| x.exp()).sum();
        x.iter().map(|x| x - total.ln()).collect()
    };
    let configs = TRIED.map(|(block, num_warps)| LogSoftmaxConfig { block, num_warps });
    forward(stage, "log_softmax", |cx, x, y| rows::log_softmax_into(cx, x, y), of_row, &configs)
}

pub fn log_softmax_backward(stage: &mut Stage) -> Result<(), Failure> {
    let of_row = |y: &[f64], dy: &[f64]| {
        let total: f64 = dy.iter().sum();
        y.iter().zip(dy).map(|(y, dy)| dy - y.exp() * total).collect()
    };
    let configs = TRIED.map(|(block, num_warps)| LogSoftmaxConfig { block, num_warps });
    let both: (Forward, Backward) =
        (|cx, x, y| rows::log_softmax_into(cx, x, y), |cx, y, dy, dx| rows::log_softmax_backward_into(cx, y, dy, dx));
    backward(stage, "log_softmax_backward", both, of_row, &configs)
}
