//! Sums of rows and of columns.

use std::cell::RefCell;

use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::{Matrix, Variant};
use tilewright_bench::{Contender, Contest, Failure, Stage, Submit};

/// The sum of each row, the whole row in registers.
#[kernel]
pub fn row_sum<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<f32>, columns: i32) {
    let column = arange(0, BLOCK);
    let values = load(x + program_id(0) * columns + column, mask = column < columns) as f32;
    store(out + program_id(0), sum(values, axis = 0));
}

/// The sums of `M` rows per program, with the columns in pieces of `N`.
#[kernel]
pub fn row_sum_tiles<T: Float, const M: usize, const N: usize>(x: Ptr<T>, out: PtrMut<f32>, rows: i32, columns: i32) {
    let row = program_id(0) * M + arange(0, M);
    let inside = row < rows;
    let mut sums = zeros::<f32>([M, N]);
    for first in (0..columns).step_by(N) {
        let column = first + arange(0, N);
        let mask = inside[(.., None)] & (column < columns)[(None, ..)];
        sums += load(x + row[(.., None)] * columns + column[(None, ..)], mask = mask) as f32;
    }
    store(out + row, sum(sums, axis = 1), mask = inside);
}

/// The sums of `N` columns per program over a share of the rows, `M` rows at a time. With one program along the rows
/// that is all of them; else the results are partial sums, for the same kernel.
#[kernel]
pub fn column_sum<T: Float, const M: usize, const N: usize>(
    x: Ptr<T>,
    out: PtrMut<f32>,
    rows: i32,
    columns: i32,
    share: i32,
) {
    let column = program_id(0) * N + arange(0, N);
    let inside = column < columns;
    let start = program_id(1) * share;
    let end = minimum(start + share, rows);
    let mut sums = zeros::<f32>([M, N]);
    for first in (start..end).step_by(M) {
        let row = first + arange(0, M);
        let mask = (row < end)[(.., None)] & inside[(None, ..)];
        sums += load(x + row[(.., None)] * columns + column[(None, ..)], mask = mask) as f32;
    }
    store(out + program_id(1) * columns + column, sum(sums, axis = 0), mask = inside);
}

/// Rows, columns and warps of tiles for row sums.
const ROW_TILES: [(usize, usize, u32); 3] = [(4, 1024, 4), (1, 4096, 4), (4, 2048, 8)];

fn row_contest<T: Element>(stage: &mut Stage, matrix: Matrix) -> Result<(), Failure> {
    let device = stage.device();
    let Matrix { rows, columns, start } = matrix;
    let x = Input::<T>::normal(&device, 9, matrix.len(), start)?;
    let mut expected = Vec::new();
    for row in sampled(rows) {
        expected.push(Segment { at: row, values: vec![x.read(row * columns, columns)?.iter().sum()] });
    }
    // The terms are about 1 in size, and each is rounded once in the tree of additions.
    let absolute = 1e-6 * columns as f64 / 8.0;
    let out = Output::<f32>::new(&device, rows, start, Tolerance { relative: 2e-6, absolute }, expected)?;
    let (x, y, n, block) = (&x, &out, columns as i32, matrix.block());
    let mut ours = Contender::ours();
    for w in matrix.warps() {
        ours.config(format!("BLOCK={block} warps={w}"), move |how| {
            let mut y = y.lock();
            RowSumConsts { BLOCK: block }.call(x.view()?, y.view()?, n).grid(rows).num_warps(w).submit(how)
        });
    }
    for (m, columns, w) in ROW_TILES {
        ours.config(format!("tiles M={m} N={columns} warps={w}"), move |how| {
            let mut y = y.lock();
            let call = RowSumTilesConsts { M: m, N: columns }.call(x.view()?, y.view()?, rows as i32, n);
            call.grid(rows.div_ceil(m)).num_warps(w).submit(how)
        });
    }
    let variant = matrix.variant();
    let whole = vec![x.argument(), out.argument(), Argument::I32(n)];
    let mut triton = stage
        .triton(("row_sum", T::NAME, variant), whole, |e| (e.get("BLOCK") == Some(block)).then_some([rows, 1, 1]))?;
    let tiles = vec![x.argument(), out.argument(), Argument::I32(rows as i32), Argument::I32(n)];
    let tiles =
        stage.triton(("row_sum_tiles", T::NAME, variant), tiles, |e| Some([rows.div_ceil(e.get("M")?), 1, 1]))?;
    triton.configs.extend(tiles.configs);
    stage.hold(Contest {
        work: "row_sum",
        shape: matrix.to_string(),
        dtype: T::NAME,
        bytes: (matrix.len() * size_of::<T>()) as f64,
        flops: 0.0,
        outputs: vec![&out],
        contenders: vec![triton, ours],
    })
}

/// Rows, columns and warps of tiles, and programs along the rows, for column sums.
const COLUMN_TILES: [(usize, usize, u32, usize); 5] =
    [(16, 128, 4, 32), (32, 128, 8, 32), (16, 256, 8, 32), (32, 64, 4, 16), (8, 512, 4, 64)];

/// Rows, columns and warps of the tiles that add up partial sums.
const FINISH: (usize, usize, u32) = (16, 64, 4);

fn column_contest<T: Element>(stage: &mut Stage, matrix: Matrix) -> Result<(), Failure> {
    let device = stage.device();
    let Matrix { rows, columns, start } = matrix;
    let x = Input::<T>::normal(&device, 10, matrix.len(), start)?;
    let few = columns.min(64);
    let mut values = vec![0.0; few];
    for row in 0..rows {
        for (total, v) in values.iter_mut().zip(x.read(row * columns, few)?) {
            *total += v;
        }
    }
    let absolute = 1e-6 * rows as f64 / 8.0;
    let expected = vec![Segment { at: 0, values }];
    let out = Output::<f32>::new(&device, columns, start, Tolerance { relative: 2e-6, absolute }, expected)?;
    let most = COLUMN_TILES.iter().map(|t| t.3).max().unwrap_or(1);
    let partial = RefCell::new(device.zeros::<f32>(most * columns)?);
    let (x, y, p) = (&x, &out, &partial);
    let (m2, n2, w2) = FINISH;
    let mut ours = Contender::ours();
    for (m, n, w, splits) in COLUMN_TILES {
        let share = rows.div_ceil(splits);
        ours.config(format!("M={m} N={n} warps={w} splits={splits}"), move |how| {
            let (mut y, mut p) = (y.lock(), p.borrow_mut());
            let call = ColumnSumConsts { M: m, N: n };
            let call = call.call(x.view()?, &mut *p, rows as i32, columns as i32, share as i32);
            call.grid((columns.div_ceil(n), splits)).num_warps(w).submit(how)?;
            let call = ColumnSumConsts { M: m2, N: n2 };
            let call = call.call(&*p, y.view()?, splits as i32, columns as i32, splits as i32);
            call.grid((columns.div_ceil(n2), 1)).num_warps(w2).submit(how)
        });
    }
    let partial = Argument::Address(partial.borrow().raw().address.get());
    let size = |i: usize| Argument::I32(i as i32);
    let mut triton = Contender { name: "triton", configs: Vec::new() };
    for (m, n, _, splits) in COLUMN_TILES {
        let share = rows.div_ceil(splits);
        let first = vec![x.argument(), partial, size(rows), size(columns), size(share)];
        let first = stage.peers(("column_sum", T::NAME, matrix.variant()), first, |e| {
            let same = e.get("M") == Some(m) && e.get("N") == Some(n);
            same.then_some([columns.div_ceil(n), splits, 1])
        })?;
        let then = vec![partial, out.argument(), size(splits), size(columns), size(splits)];
        let variant = if start == 0 { matrix.variant() } else { Variant::Offset };
        let then = stage.peers(("column_sum", "f32", variant), then, |e| {
            let same = e.get("M") == Some(m2) && e.get("N") == Some(n2);
            same.then_some([columns.div_ceil(n2), 1, 1])
        })?;
        let Some((_, then)) = then.into_iter().next() else { continue };
        for (entry, first) in first {
            let then = then.clone();
            triton.config(format!("{} splits={splits}", entry.config), move |_| {
                first()?;
                then()
            });
        }
    }
    stage.hold(Contest {
        work: "column_sum",
        shape: matrix.to_string(),
        dtype: T::NAME,
        bytes: (matrix.len() * size_of::<T>()) as f64,
        flops: 0.0,
        outputs: vec![&out],
        contenders: vec![triton, ours],
    })
}

fn matrices(stage: &Stage) -> Vec<Matrix> {
    let full = vec![Matrix::new(8192, 8192), Matrix::new(65536, 1000), Matrix { rows: 8192, columns: 8192, start: 1 }];
    let small = vec![Matrix::new(70, 64), Matrix::new(33, 100), Matrix { rows: 40, columns: 130, start: 1 }];
    stage.sized(full, small)
}

pub fn row_contests(stage: &mut Stage) -> Result<(), Failure> {
    for matrix in matrices(stage) {
        row_contest::<f32>(stage, matrix)?;
        row_contest::<bf16>(stage, matrix)?;
    }
    Ok(())
}

pub fn column_contests(stage: &mut Stage) -> Result<(), Failure> {
    for matrix in matrices(stage) {
        column_contest::<f32>(stage, matrix)?;
        column_contest::<bf16>(stage, matrix)?;
    }
    Ok(())
}
