//! RMS norm over rows.

use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Contender, Contest, Failure, Stage, Submit};

const EPS: f32 = 1e-6;

/// `out = x / sqrt(mean(x^2) + eps) * weight` for each row, the whole row in registers.
#[kernel]
pub fn rms_norm<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    weight: Ptr<T>,
    out: PtrMut<T>,
    columns: i32,
    eps: Const<f32>,
) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let offsets = program_id(0) * columns + column;
    let values = load(x + offsets, mask = mask) as f32;
    let rstd = rsqrt(sum(values * values, axis = 0) / columns as f32 + eps);
    let scale = load(weight + column, mask = mask) as f32;
    store(out + offsets, (values * rstd * scale) as T, mask = mask);
}

/// The same in two passes over the row.
#[kernel]
pub fn rms_norm_passes<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    weight: Ptr<T>,
    out: PtrMut<T>,
    columns: i32,
    eps: Const<f32>,
) {
    let lane = arange(0, BLOCK);
    let start = program_id(0) * columns;
    let mut squares = zeros::<f32>([BLOCK]);
    for first in (0..columns).step_by(BLOCK) {
        let column = first + lane;
        let values = load(x + start + column, mask = column < columns) as f32;
        squares += values * values;
    }
    let rstd = rsqrt(sum(squares, axis = 0) / columns as f32 + eps);
    for first in (0..columns).step_by(BLOCK) {
        let column = first + lane;
        let mask = column < columns;
        let values = load(x + start + column, mask = mask) as f32;
        let scale = load(weight + column, mask = mask) as f32;
        store(out + start + column, (values * rstd * scale) as T, mask = mask);
    }
}

/// Block sizes and warps of the kernel that goes over a row in pieces.
const PIECES: [(usize, u32); 6] = [(2048, 8), (4096, 8), (4096, 16), (8192, 16), (8192, 32), (16384, 32)];

fn contest<T: Element>(stage: &mut Stage, matrix: Matrix) -> Result<(), Failure> {
    let device = stage.device();
    let Matrix { rows, columns, start } = matrix;
    let x = Input::<T>::normal(&device, 6, matrix.len(), start)?;
    let weight = Input::<T>::normal(&device, 7, columns, start)?;
    let w = weight.read(0, columns)?;
    let mut expected = Vec::new();
    for row in sampled(rows) {
        let data = x.read(row * columns, columns)?;
        let square = data.iter().map(|v| v * v).sum::<f64>() / columns as f64;
        let rstd = (square + f64::from(EPS)).sqrt().recip();
        expected.push(Segment { at: row * columns, values: data.iter().zip(&w).map(|(v, w)| v * rstd * w).collect() });
    }
    let out = Output::<T>::new(&device, matrix.len(), start, Tolerance::of::<T>(2e-6, 1.0), expected)?;
    let arguments =
        vec![x.argument(), weight.argument(), out.argument(), Argument::I32(columns as i32), Argument::F32(EPS)];

    let (x, weight, y, n, block) = (&x, &weight, &out, columns as i32, matrix.block());
    let mut ours = Contender::ours();
    for w in matrix.warps() {
        ours.config(format!("BLOCK={block} warps={w}"), move |how| {
            let mut y = y.lock();
            let call = RmsNormConsts { BLOCK: block }.call(x.view()?, weight.view()?, y.view()?, n, EPS);
            call.grid(rows).num_warps(w).submit(how)
        });
    }
    if columns > 8192 || block < 1024 {
        for (block, w) in PIECES {
            ours.config(format!("passes BLOCK={block} warps={w}"), move |how| {
                let mut y = y.lock();
                let call = RmsNormPassesConsts { BLOCK: block }.call(x.view()?, weight.view()?, y.view()?, n, EPS);
                call.grid(rows).num_warps(w).submit(how)
            });
        }
    }
    let triton = stage.triton(("rms_norm", T::NAME, matrix.variant()), arguments, |e| {
        let whole = !e.config.starts_with("passes");
        (!whole || e.get("BLOCK") == Some(block)).then_some([rows, 1, 1])
    })?;
    stage.hold(Contest {
        work: "rms_norm",
        shape: matrix.to_string(),
        dtype: T::NAME,
        bytes: (2 * matrix.len() * size_of::<T>()) as f64,
        flops: 0.0,
        outputs: vec![&out],
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
