//! Cross entropy with its gradient.

use super::{library, tensor};
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Contest, Failure, Stage};
use tilewright_kernels::rows::{self, CrossEntropy, Reduction};
use tilewright_kernels::{Tensor, TensorViewMut};

pub fn cross_entropy_gradient(stage: &mut Stage) -> Result<(), Failure> {
    let device = stage.device();
    let matrix = stage.sized(vec![Matrix::new(8192, 32_000)], vec![Matrix::new(4, 96)])[0];
    let Matrix { rows, columns, .. } = matrix;
    let x = Input::<bf16>::normal(&device, 1, matrix.len(), 0)?;
    let labels: Vec<i32> = (0..rows).map(|row| (row * 7919 % columns) as i32).collect();
    let given = Tensor::upload(&device, &labels, [rows])?;
    let mut expected = Vec::new();
    for row in sampled(rows) {
        let data = x.read(row * columns, columns)?;
        let total: f64 = data.iter().map(|x| x.exp()).sum();
        let hit = |i: usize| if i == labels[row] as usize { 1.0 } else { 0.0 };
        let values = data.iter().enumerate().map(|(i, x)| x.exp() / total - hit(i)).collect();
        expected.push(Segment { at: row * columns, values });
    }
    let out = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(8e-6, 0.01), expected)?;
    let (losses, dloss) = (device.zeros::<f32>(rows)?, Tensor::upload(&device, &[1.0f32], [1])?);
    let shape = [rows, columns];
    let ours = library(|cx| {
        let mut dx = out.lock();
        let dx = TensorViewMut::new(dx.view()?, shape)?;
        let options = CrossEntropy::default().reduction(Reduction::Sum);
        Ok(rows::cross_entropy_backward_into(cx, tensor(&x, shape)?, &given, options, &dloss, dx)?)
    });
    let labels = Argument::Address(given.buffer().raw().address.get());
    let rows_out = Argument::Address(losses.raw().address.get());
    let pointers = [x.argument(), labels, rows_out, out.argument()];
    let arguments = pointers.into_iter().chain([Argument::I32(columns as i32), Argument::F32(1.0)]).collect();
    let triton =
        stage.triton(("cross_entropy_gradient", bf16::NAME, matrix.variant()), arguments, |_| Some([rows, 1, 1]))?;
    stage.hold(Contest {
        work: "cross_entropy_gradient",
        shape: matrix.to_string(),
        dtype: bf16::NAME,
        bytes: (2 * matrix.len() * size_of::<bf16>()) as f64,
        outputs: vec![&out],
        contenders: vec![triton, ours],
    })
}
