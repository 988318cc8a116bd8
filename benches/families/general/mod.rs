//! Functions of tensors, which PyTorch has too (`peers/family_peers.py`): here only the library takes part.

pub mod conv;

use crate::families::frame::{Library, Row, tensor};
use tilewright::prelude::*;
use tilewright_bench::data::{Input, Integers, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Contender, Contest, Failure, How, Stage};
use tilewright_kernels::TensorView;
use tilewright_kernels::general::{self, Extreme, Order, Sampling, SortDigitsConfig};

/// The device's copy: what other rates are compared with.
pub fn copy(stage: &mut Stage) -> Result<(), Failure> {
    let (device, len) = (stage.device(), stage.either(1 << 28, 1 << 12));
    let x = Input::<f32>::normal(&device, 1, len, 0)?;
    let expected = vec![Segment { at: len / 2, values: x.read(len / 2, 16)? }];
    let out = Output::<f32>::new(&device, len, 0, Tolerance { relative: 0.0, absolute: 0.0 }, expected)?;
    let mut copy = Contender { name: "copy", configs: Vec::new() };
    copy.config("device to device".into(), |how| match how {
        How::Launch(_) => Ok(out.lock().view()?.copy_from(&x.view()?)?),
        How::Compile(..) | How::Inspect(..) => Ok(()),
    });
    stage.hold(Contest {
        work: "copy",
        shape: len.to_string(),
        dtype: f32::NAME,
        bytes: 8.0 * len as f64,
        flops: 0.0,
        outputs: vec![&out],
        contenders: vec![copy],
    })
}

/// Rows of f32 of which no two of a row are the same: what PyTorch and the library must agree on has one answer.
fn distinct(device: &Device, matrix: Matrix) -> Result<Input<f32>, Failure> {
    let Matrix { columns, .. } = matrix;
    let rows = (1usize << 20).div_ceil(columns).min(matrix.rows);
    // A step that has no factor in common with the number of columns visits each number once.
    let step = (columns as u64 * 618 / 1000) | 1;
    let step = (step..).step_by(2).find(|step| greatest_common_divisor(*step, columns as u64) == 1).unwrap_or(1);
    let number = |i: u64| {
        let (row, column) = (i / columns as u64, i % columns as u64);
        ((column * step + row * 7919) % columns as u64) as f32 / columns as f32 - 0.5
    };
    let data: Vec<f32> = (0..(rows * columns) as u64).map(number).collect();
    Ok(Input::repeated(device, matrix.len(), &data)?)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The indices of a row in the order of its elements.
fn ordered(row: &[f64], descending: bool) -> Vec<i32> {
    let mut indices: Vec<i32> = (0..row.len() as i32).collect();
    indices.sort_by(|a, b| {
        let (a, b) = (row[*a as usize], row[*b as usize]);
        if descending { b.total_cmp(&a) } else { a.total_cmp(&b) }
    });
    indices
}

/// What a row's `count` first indices are, for some rows.
fn first_indices(
    x: &Input<f32>,
    matrix: Matrix,
    count: usize,
    descending: bool,
) -> Result<Vec<(usize, Vec<i32>)>, Failure> {
    let mut expected = Vec::new();
    for row in sampled(matrix.rows) {
        let mut indices = ordered(&x.read(row * matrix.columns, matrix.columns)?, descending);
        indices.truncate(count);
        expected.push((row * count, indices));
    }
    Ok(expected)
}

/// Sorts rows that fit a program, and rows that are merged.
pub fn sort(stage: &mut Stage) -> Result<(), Failure> {
    let full = vec![Matrix::new(16_384, 4096), Matrix::new(64, 1 << 20)];
    for matrix in stage.sized(full, vec![Matrix::new(3, 100)]) {
        let x = distinct(&stage.device(), matrix)?;
        let places = Integers::known(first_indices(&x, matrix, matrix.columns, false)?);
        let library = Library::new(stage, |cx| {
            let (_, at) = general::sort(cx, tensor(&x, [matrix.rows, matrix.columns])?, Order::Ascending)?;
            places.give(at.into_buffer());
            Ok(())
        });
        let library = if matrix.columns > 16_384 {
            let tried = [(4096, 16), (2048, 16), (2048, 4), (1024, 4), (1024, 8)];
            let configs = tried.map(|(block, num_warps)| SortDigitsConfig { block, num_warps });
            library.tried(f32::ELEMENT, &[matrix.rows, matrix.columns], &configs)
        } else {
            library
        };
        // Elements are read and written, and so are the places.
        let row = Row::moving("sort", matrix, f32::NAME, 12 * matrix.len());
        row.hold(stage, vec![&places], Vec::new(), library)?;
    }
    Ok(())
}

pub fn topk(stage: &mut Stage) -> Result<(), Failure> {
    const K: usize = 64;
    let full = vec![Matrix::new(16_384, 4096), Matrix::new(256, 131_072)];
    for matrix in stage.sized(full, vec![Matrix::new(3, 100)]) {
        let x = distinct(&stage.device(), matrix)?;
        let places = Integers::known(first_indices(&x, matrix, K, true)?);
        let library = Library::new(stage, |cx| {
            let (_, at) = general::topk(cx, tensor(&x, [matrix.rows, matrix.columns])?, K, Extreme::Largest)?;
            places.give(at.into_buffer());
            Ok(())
        });
        let row = Row::moving("topk", matrix, f32::NAME, 4 * matrix.len() + 8 * matrix.rows * K);
        row.hold(stage, vec![&places], Vec::new(), library)?;
    }
    Ok(())
}

/// Draws from all tokens, and from the 50 likeliest up to a share of 0.9.
pub fn sample(stage: &mut Stage) -> Result<(), Failure> {
    const K: usize = 50;
    let matrix = stage.either(Matrix::new(256, 128_256), Matrix::new(3, 200));
    let x = distinct(&stage.device(), matrix)?;
    let Matrix { rows, columns, .. } = matrix;
    for (work, sampling) in
        [("sample", Sampling::default().seed(3)), ("sample_top_k", Sampling::default().seed(3).top_k(K).top_p(0.9))]
    {
        let least = if work == "sample" { columns } else { K };
        let mut known = Vec::new();
        for row in sampled(rows) {
            let mut likely = ordered(&x.read(row * columns, columns)?, true);
            likely.truncate(least);
            known.push((row, likely));
        }
        let tokens = Integers::new(move |got| {
            let wrong = |(row, likely): &&(usize, Vec<i32>)| !likely.contains(&got[*row]);
            match known.iter().find(wrong) {
                Some((row, _)) => Err(format!("row {row} draws {}, which is none of its {least} likeliest", got[*row])),
                None => Ok(()),
            }
        });
        let library = Library::new(stage, |cx| {
            let drawn = general::sample(cx, tensor(&x, [rows, columns])?, sampling)?;
            tokens.give(drawn.into_buffer());
            Ok(())
        });
        let row = Row::moving(work, matrix, f32::NAME, 4 * matrix.len());
        row.hold(stage, vec![&tokens], Vec::new(), library)?;
    }
    Ok(())
}

/// Numbers without an order, below `bins`.
fn numbers(len: usize, bins: usize) -> Vec<i32> {
    (0..len.min(1 << 20) as u64).map(|i| (((i * 2_654_435_761) >> 11) % bins as u64) as i32).collect()
}

pub fn bincount(stage: &mut Stage) -> Result<(), Failure> {
    let len = stage.either(1 << 26, 1 << 13);
    for bins in stage.either(vec![256, 4096, 65_536], vec![256]) {
        let device = stage.device();
        let data = numbers(len, bins);
        let x = Input::repeated(&device, len, &data)?;
        let mut counted = vec![0; bins];
        data.iter().for_each(|value| counted[*value as usize] += (len / data.len()) as i32);
        let counts = Integers::known(vec![(0, counted)]);
        let library = Library::new(stage, |cx| {
            counts.give(general::bincount(cx, TensorView::new(x.view()?, [len])?, bins)?.into_buffer());
            Ok(())
        });
        let row = Row::moving("bincount", format!("{len} in {bins}"), "i32", 4 * len);
        row.hold(stage, vec![&counts], Vec::new(), library)?;
    }
    Ok(())
}

pub fn histogram(stage: &mut Stage) -> Result<(), Failure> {
    const BINS: usize = 256;
    let (device, len) = (stage.device(), stage.either(1 << 26, 1 << 13));
    let data: Vec<f32> = numbers(len, 1 << 16).into_iter().map(|i| (i as f32 + 0.5) / 65_536.0).collect();
    let x = Input::repeated(&device, len, &data)?;
    let mut counted = vec![0; BINS];
    data.iter().for_each(|value| counted[(value * BINS as f32) as usize] += (len / data.len()) as i32);
    let counts = Integers::known(vec![(0, counted)]);
    let library = Library::new(stage, |cx| {
        counts.give(general::histogram(cx, tensor(&x, [len])?, BINS, 0.0, 1.0)?.into_buffer());
        Ok(())
    });
    let row = Row::moving("histogram", format!("{len} in {BINS}"), f32::NAME, 4 * len);
    row.hold(stage, vec![&counts], Vec::new(), library)
}

/// Along rows.
pub fn argmax_rows(stage: &mut Stage) -> Result<(), Failure> {
    argmax(stage, "argmax_rows", 1)
}

/// Along columns: the dimension that is not contiguous.
pub fn argmax_columns(stage: &mut Stage) -> Result<(), Failure> {
    argmax(stage, "argmax_columns", 0)
}

fn argmax(stage: &mut Stage, work: &'static str, axis: usize) -> Result<(), Failure> {
    let matrix = stage.either(Matrix::new(8192, 8192), Matrix::new(6, 100));
    let x = distinct(&stage.device(), matrix)?;
    let Matrix { rows, columns, .. } = matrix;
    // Of equal elements the first one counts.
    let better = |best: Option<(usize, f64)>, (i, x): (usize, f64)| match best {
        Some((_, most)) if most >= x => best,
        _ => Some((i, x)),
    };
    let mut known = Vec::new();
    if axis == 1 {
        for row in sampled(rows) {
            let data = x.read(row * columns, columns)?;
            known.push((row, data.into_iter().enumerate().fold(None, better)));
        }
    } else {
        let mut best = vec![None; columns.min(64)];
        for row in 0..rows {
            let data = x.read(row * columns, best.len())?;
            best.iter_mut().zip(data).for_each(|(best, x)| *best = better(*best, (row, x)));
        }
        known.extend(best.into_iter().enumerate());
    }
    let expected = known.into_iter().filter_map(|(at, best)| Some((at, vec![best?.0 as i32]))).collect();
    let places = Integers::known(expected);
    let library = Library::new(stage, |cx| {
        let (_, at) = general::argmax(cx, tensor(&x, [rows, columns])?, axis)?;
        places.give(at.into_buffer());
        Ok(())
    });
    Row::moving(work, matrix, f32::NAME, 4 * matrix.len()).hold(stage, vec![&places], Vec::new(), library)
}
