//! Cross entropy, its gradient, and both with the linear layer before them.

use crate::families::frame::{Library, Row, address, expected, size, tensor, triton_rows};
use std::cell::RefCell;
use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Failure, Stage};
use tilewright_kernels::rows::{self, CrossEntropy, CrossEntropyConfig, LinearCrossEntropyMut, Reduction};
use tilewright_kernels::{Tensor, TensorViewMut};

fn matrix(stage: &Stage) -> Matrix {
    stage.either(Matrix::new(8192, 32_000), Matrix::new(4, 96))
}

fn labels(rows: usize, classes: usize) -> Vec<i32> {
    (0..rows).map(|row| (row * 7919 % classes) as i32).collect()
}

fn configs() -> [CrossEntropyConfig; 5] {
    let tried = [(4096, 8), (8192, 8), (16_384, 16), (32_768, 16), (32_768, 32)];
    tried.map(|(block, num_warps)| CrossEntropyConfig { block, num_warps })
}

pub fn cross_entropy(stage: &mut Stage) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let shape @ [rows, columns] = [matrix.rows, matrix.columns];
    let x = Input::<bf16>::normal(&device, 1, matrix.len(), 0)?;
    let labels = labels(rows, columns);
    let given = Tensor::upload(&device, &labels, [rows])?;
    let [expected] = expected(matrix, [&x], |row, [x]| {
        let total: f64 = x.iter().map(|x| x.exp()).sum();
        [vec![total.ln() - x[labels[row] as usize]]]
    })?;
    let out = Output::<f32>::new(&device, rows, 0, Tolerance { relative: 0.0, absolute: 2e-5 }, expected)?;
    let library = Library::new(stage, |cx| {
        let options = CrossEntropy::default().reduction(Reduction::None);
        out.give(rows::cross_entropy(cx, tensor(&x, shape)?, &given, options)?.into_buffer());
        Ok(())
    })
    .tried(bf16::ELEMENT, &shape, &configs());
    let arguments = vec![x.argument(), address(&given), out.argument(), size(columns)];
    let peers = triton_rows(stage, "cross_entropy", matrix, arguments, false)?;
    Row::moving("cross_entropy", matrix, bf16::NAME, 2 * matrix.len()).hold(stage, vec![&out], peers, library)
}

pub fn cross_entropy_gradient(stage: &mut Stage) -> Result<(), Failure> {
    let (device, matrix) = (stage.device(), matrix(stage));
    let shape @ [rows, columns] = [matrix.rows, matrix.columns];
    let x = Input::<bf16>::normal(&device, 1, matrix.len(), 0)?;
    let labels = labels(rows, columns);
    let given = Tensor::upload(&device, &labels, [rows])?;
    let [expected] = expected(matrix, [&x], |row, [x]| {
        let total: f64 = x.iter().map(|x| x.exp()).sum();
        let hit = |i: usize| if i == labels[row] as usize { 1.0 } else { 0.0 };
        [x.iter().enumerate().map(|(i, x)| x.exp() / total - hit(i)).collect()]
    })?;
    let out = Output::<bf16>::new(&device, matrix.len(), 0, Tolerance::of::<bf16>(8e-6, 0.01), expected)?;
    let (losses, dloss) = (device.zeros::<f32>(rows)?, Tensor::upload(&device, &[1.0f32], [1])?);
    let library = Library::new(stage, |cx| {
        let mut dx = out.lock();
        let dx = TensorViewMut::new(dx.view()?, shape)?;
        let options = CrossEntropy::default().reduction(Reduction::Sum);
        Ok(rows::cross_entropy_backward_into(cx, tensor(&x, shape)?, &given, options, &dloss, dx)?)
    })
    .tried(bf16::ELEMENT, &shape, &configs());
    let losses = Argument::Address(losses.raw().address.get());
    let pointers = [x.argument(), address(&given), losses, out.argument()];
    let arguments = pointers.into_iter().chain([size(columns), Argument::F32(1.0)]).collect();
    let peers = triton_rows(stage, "cross_entropy_gradient", matrix, arguments, false)?;
    let row = Row::moving("cross_entropy_gradient", matrix, bf16::NAME, 4 * matrix.len());
    row.hold(stage, vec![&out], peers, library)
}

/// One row's gradient, from logits that are never stored. `Sum` is the reduction.
fn gradient(x: &[f64], weight: &Input<bf16>, classes: usize, label: usize) -> Result<Vec<f64>, Failure> {
    let hidden = x.len();
    let at_once = (1 << 22) / hidden;
    let chunks = || (0..classes).step_by(at_once).map(|first| (first, at_once.min(classes - first)));
    let mut shares = Vec::new();
    for (first, count) in chunks() {
        let rows = weight.read(first * hidden, count * hidden)?;
        shares.extend(rows.chunks(hidden).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>().exp()));
    }
    let total: f64 = shares.iter().sum();
    let mut out = vec![0.0; hidden];
    for (first, count) in chunks() {
        let rows = weight.read(first * hidden, count * hidden)?;
        for (class, w) in rows.chunks(hidden).enumerate() {
            let factor = shares[first + class] / total - if first + class == label { 1.0 } else { 0.0 };
            out.iter_mut().zip(w).for_each(|(out, w)| *out += factor * w);
        }
    }
    Ok(out)
}

pub fn linear_cross_entropy(stage: &mut Stage) -> Result<(), Failure> {
    let device = stage.device();
    let [rows, hidden, classes, chunk] = stage.either([4096, 4096, 32_000, 1024], [6, 32, 80, 4]);
    let x = Input::<bf16>::normal(&device, 1, rows * hidden, 0)?;
    // Logits of about 1.
    let size_of_weight = (hidden as f32).sqrt().recip();
    let weight = Input::<bf16>::scaled(&device, 2, classes * hidden, size_of_weight)?;
    let labels = labels(rows, classes);
    let given = Tensor::upload(&device, &labels, [rows])?;
    let row = rows / 2;
    let values = gradient(&x.read(row * hidden, hidden)?, &weight, classes, labels[row] as usize)?;
    // Logits up to 5 and shares are rounded, each with a relative error of half an ulp: so shares are off by 6 of them, and
    // a sum of them weighted by elements of the weight by no more than 6 of those.
    let absolute = 6.0 * bf16::HALF_ULP * f64::from(size_of_weight);
    let tolerance = Tolerance { relative: 2.0 * bf16::HALF_ULP, absolute };
    let expected = vec![Segment { at: row * hidden, values }];
    let dx = Output::<bf16>::new(&device, rows * hidden, 0, tolerance, expected)?;
    let dweight = RefCell::new(Tensor::<f32, 2>::zeros(&device, [classes, hidden])?);
    let logits = RefCell::new(Tensor::<bf16, 2>::zeros(&device, [chunk, classes])?);
    let loss = RefCell::new(Tensor::<f32, 1>::zeros(&device, [1])?);
    let library = Library::new(stage, |cx| {
        let (mut dx, mut dweight) = (dx.lock(), dweight.borrow_mut());
        let (mut logits, mut loss) = (logits.borrow_mut(), loss.borrow_mut());
        let out = LinearCrossEntropyMut {
            loss: loss.view_mut(),
            gradients: Some((TensorViewMut::new(dx.view()?, [rows, hidden])?, dweight.view_mut())),
            logits: logits.view_mut(),
        };
        let (x, weight) = (tensor(&x, [rows, hidden])?, tensor(&weight, [classes, hidden])?);
        let options = CrossEntropy::default().reduction(Reduction::Sum);
        Ok(rows::linear_cross_entropy_into(cx, x, weight, &given, options, out)?)
    });
    let flops = 6.0 * rows as f64 * hidden as f64 * classes as f64;
    let bytes = 2 * (2 * rows * hidden + classes * hidden) + 4 * classes * hidden;
    Row::moving("linear_cross_entropy", format!("{rows}x{hidden}x{classes}"), bf16::NAME, bytes).computing(flops).hold(
        stage,
        vec![&dx],
        Vec::new(),
        library,
    )
}
