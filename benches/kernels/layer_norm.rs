//! Layer norm over rows, forward.

use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Contender, Contest, Failure, Stage, Submit};

const EPS: f32 = 1e-5;

/// Layer norm of each row, the whole row in registers. Means and reciprocal deviations go out too.
#[kernel]
pub fn layer_norm<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    weight: Ptr<T>,
    bias: Ptr<T>,
    out: PtrMut<T>,
    means: PtrMut<f32>,
    rstds: PtrMut<f32>,
    columns: i32,
    eps: Const<f32>,
) {
    let row = program_id(0);
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = row * columns + column;
    let values = load(x + offsets, mask = mask) as f32;
    let mean = sum(values, axis = 0) / columns as f32;
    let centred = select(mask, values - mean, 0.0);
    let variance = sum(centred * centred, axis = 0) / columns as f32;
    let rstd = rsqrt(variance + eps);
    let scale = load(weight + column, mask = mask) as f32;
    let shift = load(bias + column, mask = mask) as f32;
    store(out + offsets, (centred * rstd * scale + shift) as T, mask = mask);
    store(means + row, mean);
    store(rstds + row, rstd);
}

/// The same in three passes over the row: mean, variance, result.
#[kernel]
pub fn layer_norm_passes<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    weight: Ptr<T>,
    bias: Ptr<T>,
    out: PtrMut<T>,
    means: PtrMut<f32>,
    rstds: PtrMut<f32>,
    columns: i32,
    eps: Const<f32>,
) {
    let row = program_id(0);
    let lane = arange(0, BLOCK);
    let start = row * columns;
    let mut sums = zeros::<f32>([BLOCK]);
    for first in (0..columns).step_by(BLOCK) {
        let column = first + lane;
        sums += load(x + start + column, mask = column < columns) as f32;
    }
    let mean = sum(sums, axis = 0) / columns as f32;
    let mut squares = zeros::<f32>([BLOCK]);
    for first in (0..columns).step_by(BLOCK) {
        let column = first + lane;
        let values = load(x + start + column, mask = column < columns) as f32;
        let centred = select(column < columns, values - mean, 0.0);
        squares += centred * centred;
    }
    let rstd = rsqrt(sum(squares, axis = 0) / columns as f32 + eps);
    for first in (0..columns).step_by(BLOCK) {
        let column = first + lane;
        let mask = column < columns;
        let values = load(x + start + column, mask = mask) as f32;
        let scale = load(weight + column, mask = mask) as f32;
        let shift = load(bias + column, mask = mask) as f32;
        store(out + start + column, ((values - mean) * rstd * scale + shift) as T, mask = mask);
    }
    store(means + row, mean);
    store(rstds + row, rstd);
}

/// Mean and reciprocal deviation of a row.
pub fn statistics(row: &[f64]) -> (f64, f64) {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    (mean, (variance + f64::from(EPS)).sqrt().recip())
}

/// Block sizes and warps of the kernel that goes over a row in pieces.
const PIECES: [(usize, u32); 6] = [(2048, 8), (4096, 8), (4096, 16), (8192, 16), (8192, 32), (16384, 32)];

fn contest<T: Element>(stage: &mut Stage, matrix: Matrix) -> Result<(), Failure> {
    let device = stage.device();
    let Matrix { rows, columns, start } = matrix;
    let x = Input::<T>::normal(&device, 3, matrix.len(), start)?;
    let weight = Input::<T>::normal(&device, 4, columns, start)?;
    let bias = Input::<T>::normal(&device, 5, columns, start)?;
    let (w, b) = (weight.read(0, columns)?, bias.read(0, columns)?);
    let (mut values, mut means, mut rstds) = (Vec::new(), Vec::new(), Vec::new());
    for row in sampled(rows) {
        let data = x.read(row * columns, columns)?;
        let (mean, rstd) = statistics(&data);
        let normed = data.iter().zip(&w).zip(&b).map(|((v, w), b)| (v - mean) * rstd * w + b).collect();
        values.push(Segment { at: row * columns, values: normed });
        means.push(Segment { at: row, values: vec![mean] });
        rstds.push(Segment { at: row, values: vec![rstd] });
    }
    let fine = Tolerance { relative: 2e-6, absolute: 1e-6 };
    let out = Output::<T>::new(&device, matrix.len(), start, Tolerance::of::<T>(2e-6, 4.0), values)?;
    let means = Output::<f32>::new(&device, rows, start, fine, means)?;
    let rstds = Output::<f32>::new(&device, rows, start, fine, rstds)?;
    let mut arguments = vec![x.argument(), weight.argument(), bias.argument(), out.argument()];
    arguments.extend([means.argument(), rstds.argument(), Argument::I32(columns as i32), Argument::F32(EPS)]);

    let (x, weight, bias, o, m, r) = (&x, &weight, &bias, &out, &means, &rstds);
    let (n, block) = (columns as i32, matrix.block());
    let mut ours = Contender::ours();
    for w in matrix.warps() {
        ours.config(format!("BLOCK={block} warps={w}"), move |how| {
            let (mut o, mut m, mut r) = (o.lock(), m.lock(), r.lock());
            LayerNormConsts { BLOCK: block }
                .call(x.view()?, weight.view()?, bias.view()?, o.view()?, m.view()?, r.view()?, n, EPS)
                .grid(rows)
                .num_warps(w)
                .submit(how)
        });
    }
    if columns > 8192 || block < 1024 {
        for (block, w) in PIECES {
            ours.config(format!("passes BLOCK={block} warps={w}"), move |how| {
                let (mut o, mut m, mut r) = (o.lock(), m.lock(), r.lock());
                LayerNormPassesConsts { BLOCK: block }
                    .call(x.view()?, weight.view()?, bias.view()?, o.view()?, m.view()?, r.view()?, n, EPS)
                    .grid(rows)
                    .num_warps(w)
                    .submit(how)
            });
        }
    }
    let triton = stage.triton(("layer_norm", T::NAME, matrix.variant()), arguments, |e| {
        let whole = !e.config.starts_with("passes");
        (!whole || e.get("BLOCK") == Some(block)).then_some([rows, 1, 1])
    })?;
    stage.hold(Contest {
        work: "layer_norm",
        shape: matrix.to_string(),
        dtype: T::NAME,
        bytes: (2 * matrix.len() * size_of::<T>()) as f64,
        flops: 0.0,
        outputs: vec![&out, &means, &rstds],
        contenders: vec![triton, ours],
    })
}

pub fn contests(stage: &mut Stage) -> Result<(), Failure> {
    for matrix in stage.matrices::<f32>() {
        contest::<f32>(stage, matrix)?;
    }
    for matrix in stage.matrices::<bf16>() {
        contest::<bf16>(stage, matrix)?;
    }
    Ok(())
}
