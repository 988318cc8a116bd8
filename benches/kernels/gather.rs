//! Embedding: rows of a table, chosen by indices in memory.

use tilewright::prelude::*;
use tilewright_bench::cubin::Argument;
use tilewright_bench::data::{Input, Output, Segment, Tolerance, sampled};
use tilewright_bench::element::Element;
use tilewright_bench::shape::Matrix;
use tilewright_bench::{Contender, Contest, Failure, Stage, Submit, SubmitUnchecked};

/// Rows of the table.
const VOCABULARY: usize = 50257;

/// `out[i] = table[ids[i]]`, one row per program.
#[kernel]
pub fn gather<T: Float, const BLOCK: usize>(table: Ptr<T>, ids: Ptr<i32>, out: PtrMut<T>, columns: i32) {
    let row = program_id(0);
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let id = load(ids + row);
    store(out + row * columns + column, load(table + id * columns + column, mask = mask), mask = mask);
}

/// The same with `M` rows per program, of which each takes a tile of pointers.
#[kernel]
pub fn gather_tiles<T: Float, const M: usize, const BLOCK: usize>(
    table: Ptr<T>,
    ids: Ptr<i32>,
    out: PtrMut<T>,
    rows: i32,
    columns: i32,
) {
    let row = program_id(0) * M + arange(0, M);
    let column = arange(0, BLOCK);
    let mask = (row < rows)[(.., None)] & (column < columns)[(None, ..)];
    let id = load(ids + row, mask = row < rows);
    let values = load(table + id[(.., None)] * columns + column[(None, ..)], mask = mask);
    store(out + row[(.., None)] * columns + column[(None, ..)], values, mask = mask);
}

/// [`gather`], unchecked.
#[kernel]
pub unsafe fn gather_unchecked<T: Float, const BLOCK: usize>(
    table: Ptr<T>,
    ids: Ptr<i32>,
    out: PtrMut<T>,
    columns: i32,
) {
    let row = program_id(0);
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let id = load(ids + row);
    store(out + row * columns + column, load(table + id * columns + column, mask = mask), mask = mask);
}

/// [`gather_tiles`], unchecked.
#[kernel]
pub unsafe fn gather_tiles_unchecked<T: Float, const M: usize, const BLOCK: usize>(
    table: Ptr<T>,
    ids: Ptr<i32>,
    out: PtrMut<T>,
    rows: i32,
    columns: i32,
) {
    let row = program_id(0) * M + arange(0, M);
    let column = arange(0, BLOCK);
    let mask = (row < rows)[(.., None)] & (column < columns)[(None, ..)];
    let id = load(ids + row, mask = row < rows);
    let values = load(table + id[(.., None)] * columns + column[(None, ..)], mask = mask);
    store(out + row[(.., None)] * columns + column[(None, ..)], values, mask = mask);
}

/// Rows and warps of tiles.
const TILES: [(usize, u32); 3] = [(2, 4), (4, 8), (8, 8)];

fn checked<'a, T: Element>(
    matrix: Matrix,
    table: &'a Input<T>,
    ids: &'a Input<i32>,
    y: &'a Output<T>,
) -> Contender<'a> {
    let (rows, n, block) = (matrix.rows, matrix.columns as i32, matrix.block());
    let mut ours = Contender::ours();
    for w in matrix.warps() {
        ours.config(format!("BLOCK={block} warps={w}"), move |how| {
            let mut y = y.lock();
            let call = GatherConsts { BLOCK: block }.call(table.view()?, ids.view()?, y.view()?, n);
            call.grid(rows).num_warps(w).submit(how)
        });
    }
    for (m, w) in TILES {
        ours.config(format!("tiles M={m} BLOCK={block} warps={w}"), move |how| {
            let mut y = y.lock();
            let call = GatherTilesConsts { M: m, BLOCK: block };
            let call = call.call(table.view()?, ids.view()?, y.view()?, rows as i32, n);
            call.grid(rows.div_ceil(m)).num_warps(w).submit(how)
        });
    }
    ours
}

/// What the checks of the chosen rows cost: the same without.
fn unchecked<'a, T: Element>(
    matrix: Matrix,
    table: &'a Input<T>,
    ids: &'a Input<i32>,
    y: &'a Output<T>,
) -> Contender<'a> {
    let (rows, n, block) = (matrix.rows, matrix.columns as i32, matrix.block());
    let mut unchecked = Contender { name: "tilewright unchecked", configs: Vec::new() };
    for w in matrix.warps() {
        unchecked.config(format!("BLOCK={block} warps={w}"), move |how| {
            let mut y = y.lock();
            let call = GatherUncheckedConsts { BLOCK: block }.call(table.view()?, ids.view()?, y.view()?, n);
            // SAFETY: the indices are below the rows of the table, the masks keep the rest inside.
            unsafe { call.grid(rows).num_warps(w).submit(how) }
        });
    }
    for (m, w) in TILES {
        unchecked.config(format!("tiles M={m} BLOCK={block} warps={w}"), move |how| {
            let mut y = y.lock();
            let call = GatherTilesUncheckedConsts { M: m, BLOCK: block };
            let call = call.call(table.view()?, ids.view()?, y.view()?, rows as i32, n);
            // SAFETY: as above.
            unsafe { call.grid(rows.div_ceil(m)).num_warps(w).submit(how) }
        });
    }
    unchecked
}

fn contest<T: Element>(stage: &mut Stage, matrix: Matrix) -> Result<(), Failure> {
    let device = stage.device();
    let Matrix { rows, columns, start } = matrix;
    let table = Input::<T>::normal(&device, 12, VOCABULARY * columns, start)?;
    let chosen: Vec<i32> = (0..rows).map(|i| (i as u64 * 2_654_435_761 % VOCABULARY as u64) as i32).collect();
    let ids = Input::of(&device, &chosen)?;
    let mut expected = Vec::new();
    for row in sampled(rows) {
        let values = table.read(chosen[row] as usize * columns, columns)?;
        expected.push(Segment { at: row * columns, values });
    }
    let exact = Tolerance { relative: 0.0, absolute: 0.0 };
    let out = Output::<T>::new(&device, matrix.len(), start, exact, expected)?;
    let (table, ids, y, n, block) = (&table, &ids, &out, columns as i32, matrix.block());
    let (ours, unchecked) = (checked(matrix, table, ids, y), unchecked(matrix, table, ids, y));
    let arguments = vec![table.argument(), ids.argument(), out.argument(), Argument::I32(n)];
    let mut triton = stage.triton(("gather", T::NAME, matrix.variant()), arguments, |e| {
        (e.get("BLOCK") == Some(block)).then_some([rows, 1, 1])
    })?;
    let sizes = [Argument::I32(rows as i32), Argument::I32(n)];
    let arguments = [table.argument(), ids.argument(), out.argument()].into_iter().chain(sizes).collect();
    let tiles = stage.triton(("gather_tiles", T::NAME, matrix.variant()), arguments, |e| {
        (e.get("BLOCK") == Some(block)).then_some([rows.div_ceil(e.get("M")?), 1, 1])
    })?;
    triton.configs.extend(tiles.configs);
    stage.hold(Contest {
        work: "gather",
        shape: matrix.to_string(),
        dtype: T::NAME,
        bytes: (2 * matrix.len() * size_of::<T>()) as f64,
        flops: 0.0,
        outputs: vec![&out],
        contenders: vec![triton, ours, unchecked],
    })
}

pub fn contests(stage: &mut Stage) -> Result<(), Failure> {
    let full =
        vec![Matrix::new(65536, 1024), Matrix::new(65536, 1000), Matrix { rows: 65536, columns: 1024, start: 1 }];
    let small = vec![Matrix::new(5, 64), Matrix { rows: 2, columns: 100, start: 1 }];
    for matrix in stage.sized(full, small) {
        contest::<f32>(stage, matrix)?;
        contest::<bf16>(stage, matrix)?;
    }
    Ok(())
}
