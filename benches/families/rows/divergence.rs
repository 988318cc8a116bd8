//! Divergences of rows, and their gradients.

use crate::families::frame::{Library, Row, expected, size, tensor, triton_flat, triton_rows};
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::rows::{self, DivergenceConfig, KlTarget, Reduction};
use tilewright_kernels::{Context, Tensor};

fn matrix(stage: &Stage) -> Matrix {
    stage.either(Matrix::new(8192, 32_000), Matrix::new(4, 96))
}

fn configs() -> [DivergenceConfig; 6] {
    [(4096, 8), (2048, 4), (2048, 8), (8192, 16), (1024, 4), (4096, 16)]
        .map(|(block, num_warps)| DivergenceConfig { block, num_warps })
}

/// Logarithms of probabilities.
fn logarithms(device: &Device, seed: u64, matrix: Matrix) -> Result<Input<bf16>, Failure> {
    let x = Input::<bf16>::normal(device, seed, matrix.len(), 0)?;
    let y = rows::log_softmax(&Context::new(device), tensor(&x, [matrix.rows, matrix.columns])?)?;
    Ok(Input::from_buffer(y.into_buffer()))
}

/// Losses: sums of terms whose sizes add up to about 1, in f32.
const LOSSES: Tolerance = Tolerance { relative: 1e-5, absolute: 1e-5 };

pub fn kl(stage: &mut Stage) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let shape = [matrix.rows, matrix.columns];
    let (x, y) = (logarithms(&device, 1, matrix)?, logarithms(&device, 2, matrix)?);
    let [losses, gradients] = expected(matrix, [&x, &y], |_, [x, y]| {
        let loss = x.iter().zip(y).map(|(q, p)| p.exp() * (p - q)).sum();
        [vec![loss], y.iter().map(|p| -p.exp()).collect()]
    })?;
    let out = Output::<f32>::new(&device, matrix.rows, 0, LOSSES, losses)?;
    let library = Library::new(stage, |cx| {
        let (x, y) = (tensor(&x, shape)?, tensor(&y, shape)?);
        out.give(rows::kl_divergence(cx, x, y, KlTarget::Logarithms, Reduction::None)?.into_buffer());
        Ok(())
    })
    .tried(bf16::ELEMENT, &shape, &configs());
    let arguments = vec![x.argument(), y.argument(), out.argument(), size(matrix.columns)];
    let peers = triton_rows(stage, "kl_divergence", matrix, arguments, false)?;
    let row = Row::moving("kl_divergence", matrix, bf16::NAME, 4 * matrix.len());
    row.hold(stage, vec![&out], peers, library)?;

    let dx = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(8e-6, 1e-3), gradients)?;
    let dloss = Tensor::upload(&device, &[1.0f32], [1])?;
    let library = Library::new(stage, |cx| {
        let result =
            rows::kl_divergence_backward(cx, tensor(&y, shape)?, KlTarget::Logarithms, Reduction::Sum, &dloss)?;
        dx.give(result.into_buffer());
        Ok(())
    })
    .tried(bf16::ELEMENT, &shape, &configs());
    let arguments = vec![y.argument(), dx.argument(), size(matrix.len()), Argument::F32(1.0)];
    let peers = triton_flat(stage, "kl_divergence_backward", matrix.len(), arguments)?;
    let row = Row::moving("kl_divergence_backward", matrix, bf16::NAME, 4 * matrix.len());
    row.hold(stage, vec![&dx], peers, library)
}

pub fn jsd(stage: &mut Stage) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let shape = [matrix.rows, matrix.columns];
    let (x, y) = (logarithms(&device, 1, matrix)?, logarithms(&device, 2, matrix)?);
    let [losses, gradients] = expected(matrix, [&x, &y], |_, [x, y]| {
        let parts = |(log_q, log_p): (&f64, &f64)| {
            let (q, p) = (log_q.exp(), log_p.exp());
            let log_m = ((p + q) / 2.0).ln();
            (0.5 * q * (log_q - log_m), 0.5 * p * (log_p - log_m))
        };
        let each = || x.iter().zip(y).map(parts);
        [vec![each().map(|(of_q, of_p)| of_q + of_p).sum()], each().map(|(of_q, _)| of_q).collect()]
    })?;
    let out = Output::<f32>::new(&device, matrix.rows, 0, LOSSES, losses)?;
    let dx = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(8e-6, 1.0), gradients)?;
    let library = Library::new(stage, |cx| {
        let (x, y) = (tensor(&x, shape)?, tensor(&y, shape)?);
        out.give(rows::jsd(cx, x, y, 0.5, Reduction::None)?.into_buffer());
        Ok(())
    })
    .tried(bf16::ELEMENT, &shape, &configs());
    let pointers = vec![x.argument(), y.argument(), out.argument(), dx.argument()];
    let arguments: Vec<_> = pointers.into_iter().chain([size(matrix.columns), Argument::F32(1.0)]).collect();
    let peers = triton_rows(stage, "jsd", matrix, arguments.clone(), false)?;
    Row::moving("jsd", matrix, bf16::NAME, 4 * matrix.len()).hold(stage, vec![&out], peers, library)?;

    let dloss = Tensor::upload(&device, &[1.0f32], [1])?;
    let library = Library::new(stage, |cx| {
        let (x, y) = (tensor(&x, shape)?, tensor(&y, shape)?);
        dx.give(rows::jsd_backward(cx, x, y, 0.5, Reduction::Sum, &dloss)?.into_buffer());
        Ok(())
    })
    .tried(bf16::ELEMENT, &shape, &configs());
    let peers = triton_rows(stage, "jsd_backward", matrix, arguments, false)?;
    Row::moving("jsd_backward", matrix, bf16::NAME, 6 * matrix.len()).hold(stage, vec![&dx], peers, library)
}
