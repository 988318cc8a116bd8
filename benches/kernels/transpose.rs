//! Transposition of a matrix.

use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Contender, Contest, Failure, Stage, Submit};

/// `out[j, i] = x[i, j]`, an `M` x `N` tile per program.
#[kernel]
pub fn transpose<T: Float, const M: usize, const N: usize>(x: Ptr<T>, out: PtrMut<T>, rows: i32, columns: i32) {
    let row = program_id(1) * M + arange(0, M);
    let column = program_id(0) * N + arange(0, N);
    let (inside_rows, inside_columns) = (row < rows, column < columns);
    let mask = inside_rows[(.., None)] & inside_columns[(None, ..)];
    let tile = load(x + row[(.., None)] * columns + column[(None, ..)], mask = mask);
    let mask = inside_columns[(.., None)] & inside_rows[(None, ..)];
    store(out + column[(.., None)] * rows + row[(None, ..)], trans(tile), mask = mask);
}

/// Rows, columns and warps of tiles.
const TILES: [(usize, usize, u32); 7] =
    [(32, 32, 4), (64, 32, 4), (32, 64, 4), (64, 64, 4), (64, 64, 8), (128, 64, 8), (64, 128, 8)];

fn contest<T: Element>(stage: &mut Stage, matrix: Matrix) -> Result<(), Failure> {
    let device = stage.device();
    let Matrix { rows, columns, start } = matrix;
    let x = Input::<T>::normal(&device, 11, matrix.len(), start)?;
    let mut expected = Vec::new();
    // Some columns of the input, which are rows of the output, up to a few hundred elements.
    let few = rows.min(300);
    let data = (0..few).map(|row| x.read(row * columns, columns)).collect::<Result<Vec<_>, _>>()?;
    for column in sampled(columns) {
        expected.push(Segment { at: column * rows, values: data.iter().map(|row| row[column]).collect() });
    }
    let exact = Tolerance { relative: 0.0, absolute: 0.0 };
    let out = Output::<T>::new(&device, matrix.len(), start, exact, expected)?;
    let (x, y) = (&x, &out);
    let mut ours = Contender::ours();
    for (m, n, w) in TILES {
        ours.config(format!("M={m} N={n} warps={w}"), move |how| {
            let mut y = y.lock();
            let call = TransposeConsts { M: m, N: n }.call(x.view()?, y.view()?, rows as i32, columns as i32);
            call.grid((columns.div_ceil(n), rows.div_ceil(m))).num_warps(w).submit(how)
        });
    }
    let arguments = vec![x.argument(), out.argument(), Argument::I32(rows as i32), Argument::I32(columns as i32)];
    let triton = stage.triton(("transpose", T::NAME, matrix.variant()), arguments, |e| {
        Some([columns.div_ceil(e.get("N")?), rows.div_ceil(e.get("M")?), 1])
    })?;
    stage.hold(Contest {
        work: "transpose",
        shape: matrix.to_string(),
        dtype: T::NAME,
        bytes: (2 * matrix.len() * size_of::<T>()) as f64,
        flops: 0.0,
        outputs: vec![&out],
        contenders: vec![triton, ours],
    })
}

pub fn contests(stage: &mut Stage) -> Result<(), Failure> {
    let full = vec![Matrix::new(8192, 8192), Matrix::new(8192, 8200), Matrix { rows: 8192, columns: 8192, start: 1 }];
    let small = vec![Matrix::new(64, 128), Matrix::new(33, 100), Matrix { rows: 40, columns: 130, start: 1 }];
    for matrix in stage.sized(full, small) {
        contest::<f32>(stage, matrix)?;
        contest::<f16>(stage, matrix)?;
    }
    Ok(())
}
