//! Rows of a table, by number, and the gradient of the table.

use crate::arguments::{packed, vector};
use crate::config::{Key, config};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

config! {
    /// How embeddings run; sizes are the number of indices and the columns of the table.
    "embedding": pub struct EmbeddingConfig {
        /// Indices of a program.
        pub rows,
        /// Columns of a program.
        pub block,
        /// Warps of a program.
        pub num_warps,
    }
}

impl EmbeddingConfig {
    /// A whole row, if it is not too long, 16 elements a thread.
    pub(super) fn choose(columns: usize) -> Self {
        let block = columns.next_power_of_two().clamp(16, 4096);
        EmbeddingConfig { rows: (1024 / block).max(1), block, num_warps: (block / 512).max(4) }
    }

    /// Of the gradient, which adds f32: 4 elements a thread, so that neighbouring threads add to neighbouring 16 bytes.
    pub(super) fn choose_backward(columns: usize) -> Self {
        let block = columns.next_power_of_two().clamp(16, 1024);
        EmbeddingConfig { rows: 1024 / block, block, num_warps: 8 }
    }
}

/// `out[i] = table[ids[i]]`, blocks of rows and columns.
#[kernel]
pub(super) fn gather_rows<T: DType, I: Int, const ROWS: usize, const BLOCK: usize>(
    table: Ptr<T>,
    ids: Ptr<I>,
    out: PtrMut<T>,
    table_stride: i64,
    out_stride: i64,
    entries: i64,
    n: i32,
    columns: i32,
) {
    let row = program_id(0) * ROWS + arange(0, ROWS);
    let column = (program_id(1) * BLOCK + arange(0, BLOCK))[(None, ..)];
    let id = load(ids + row, mask = row < n) as i64;
    assert!((id >= 0) & (id < entries), "an index is no row of the table");
    let mask = (row < n)[(.., None)] & (column < columns);
    let rows = load(table + (id[(.., None)] * table_stride + column as i64), mask = mask);
    store(out + (row[(.., None)] as i64 * out_stride + column as i64), rows, mask = mask);
}

/// `dtable[ids[i]] += dy[i]`, in any order.
#[kernel]
pub(super) fn scatter_rows<T: Float, G: Float, I: Int, const ROWS: usize, const BLOCK: usize>(
    dy: Ptr<T>,
    ids: Ptr<I>,
    dtable: PtrMut<G>,
    dy_stride: i64,
    table_stride: i64,
    entries: i64,
    n: i32,
    columns: i32,
) {
    let row = program_id(0) * ROWS + arange(0, ROWS);
    let column = (program_id(1) * BLOCK + arange(0, BLOCK))[(None, ..)];
    let id = load(ids + row, mask = row < n) as i64;
    assert!((id >= 0) & (id < entries), "an index is no row of the table");
    let mask = (row < n)[(.., None)] & (column < columns);
    let gradient = load(dy + (row[(.., None)] as i64 * dy_stride + column as i64), mask = mask) as G;
    atomic_add(dtable + (id[(.., None)] * table_stride + column as i64), gradient, mask = mask, order = relaxed);
}

/// `dtable[id] = sum of dy[i]` over those `i` with `ids[i] = id`, in the order in which `order` lists them. A program for each
/// index works where a run of equal ones begins.
#[kernel]
pub(super) fn sum_runs<T: Float, G: Float, I: Int, const BLOCK: usize>(
    dy: Ptr<T>,
    ids: Ptr<I>,
    order: Ptr<i32>,
    dtable: PtrMut<G>,
    dy_stride: i64,
    table_stride: i64,
    entries: i64,
    n: i32,
    columns: i32,
) {
    let first = program_id(0);
    let id = load(ids + load(order + first)) as i64;
    assert!(id >= 0 && id < entries, "an index is no row of the table");
    if first > 0 {
        if load(ids + load(order + first - 1)) as i64 == id {
            return;
        }
    }
    let column = program_id(1) * BLOCK + arange(0, BLOCK);
    let mask = column < columns;
    let mut sums = zeros::<T::Acc>([BLOCK]);
    let mut at = first;
    let mut row = load(order + first);
    let mut more = true;
    while more {
        assert!(row >= 0 && row < n, "`order` lists a position that does not exist");
        sums += load(dy + row as i64 * dy_stride + column, mask = mask) as T::Acc;
        at += 1;
        if at < n {
            row = load(order + at);
            more = load(ids + row) as i64 == id;
        } else {
            more = false;
        }
    }
    let place = dtable + id * table_stride + column;
    let before = load(place, mask = mask);
    // A table of f64 keeps its digits.
    let after = if G::BITS == 64 { before + sums as G } else { (before as T::Acc + sums) as G };
    store(place, after, mask = mask);
}

/// `out[i] = table[ids[i]]`.
///
/// # Shapes
///
/// `table` is `[entries, columns]` of any dtype, `ids` is `[n]` of any integer, the result is `[n, columns]`.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit or rows have gaps; [`Error::OutOfMemory`], those of a launch. An index
/// outside the table is reported when the result is read.
pub fn embedding<'a, 'b, T: DType, I: Int>(
    cx: &Context,
    table: impl Into<TensorView<'a, T, 2>>,
    ids: impl Into<TensorView<'b, I, 1>>,
) -> Result<Tensor<T, 2>> {
    let (table, ids) = (table.into(), ids.into());
    let mut out = Tensor::empty(cx.device(), [ids.len(), table.shape()[1]])?;
    embedding_into(cx, table, ids, &mut out)?;
    Ok(out)
}

/// [`embedding`], into a tensor of shape `[n, columns]`.
///
/// # Errors
///
/// As [`embedding`].
pub fn embedding_into<'a, 'b, 'c, T: DType, I: Int>(
    cx: &Context,
    table: impl Into<TensorView<'a, T, 2>>,
    ids: impl Into<TensorView<'b, I, 1>>,
    out: impl Into<TensorViewMut<'c, T, 2>>,
) -> Result<()> {
    let (table, ids, out) = (table.into(), ids.into(), out.into());
    let [entries, columns] = table.shape();
    check::shape("out", out.shape(), [ids.len(), columns])?;
    packed("ids", ids.is_contiguous())?;
    let (from, to) = (table.rows("table")?, out.rows("out")?);
    if out.is_empty() {
        return Ok(());
    }
    let config = cx.config(T::ELEMENT, &out.shape(), || EmbeddingConfig::choose(columns))?;
    let sizes = (check::size("ids", ids.len())?, check::size("table", columns)?);
    let grid = (ids.len().div_ceil(config.rows.max(1)), columns.div_ceil(config.block.max(1)));
    let (source, strides) = ((table.elements(), ids.elements()), (from.stride as i64, to.stride as i64));
    GatherRowsConsts { ROWS: config.rows, BLOCK: config.block }
        .call(source.0, source.1, out.elements(), strides.0, strides.1, entries as i64, sizes.0, sizes.1)
        .grid(grid)
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Adds the gradient of [`embedding`] to `dtable`: `dtable[ids[i]] += dy[i]`.
///
/// Rows are added by atomic operations, in an order that differs from launch to launch, and each addition is rounded to the
/// dtype of `dtable`: give `f32`. [`embedding_backward_ordered`] has one order.
///
/// # Shapes
///
/// `dy` is `[n, columns]`, `ids` is `[n]`, `dtable` is `[entries, columns]`, of a float of 16 bits or more.
///
/// # Errors
///
/// As [`embedding`].
pub fn embedding_backward<'a, 'b, 'c, T: Float, G: Float, I: Int>(
    cx: &Context,
    dy: impl Into<TensorView<'a, T, 2>>,
    ids: impl Into<TensorView<'b, I, 1>>,
    dtable: impl Into<TensorViewMut<'c, G, 2>>,
) -> Result<()> {
    let (dy, ids, dtable) = (dy.into(), ids.into(), dtable.into());
    let [entries, columns] = dtable.shape();
    check::shape("dy", dy.shape(), [ids.len(), columns])?;
    packed("ids", ids.is_contiguous())?;
    let (from, to) = (dy.rows("dy")?, dtable.rows("dtable")?);
    if dy.is_empty() {
        return Ok(());
    }
    let config =
        cx.config(Key::of(T::ELEMENT, "gradient"), &dy.shape(), || EmbeddingConfig::choose_backward(columns))?;
    let sizes = (check::size("ids", ids.len())?, check::size("dy", columns)?);
    let grid = (ids.len().div_ceil(config.rows.max(1)), columns.div_ceil(config.block.max(1)));
    let (source, strides) = ((dy.elements(), ids.elements()), (from.stride as i64, to.stride as i64));
    ScatterRowsConsts { ROWS: config.rows, BLOCK: config.block }
        .call(source.0, source.1, dtable.elements(), strides.0, strides.1, entries as i64, sizes.0, sizes.1)
        .grid(grid)
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// [`embedding_backward`] in one order: rows of one index are summed in f32 (f64 for f64) in the order in which `order` lists
/// them, and added to `dtable` once. An index that occurs often is summed by one program for each block of columns, so
/// that its time grows with the number of its occurrences.
///
/// # Shapes
///
/// As [`embedding_backward`]; `order` is `[n]` and lists the positions `0..n` so that equal indices stand together, as sorting
/// does: [`positions_in_order`]. Where it does not, which sums are lost is open.
///
/// # Errors
///
/// As [`embedding`]. A position outside `0..n` is reported when the result is read.
pub fn embedding_backward_ordered<'a, 'b, 'c, 'd, T: Float, G: Float, I: Int>(
    cx: &Context,
    dy: impl Into<TensorView<'a, T, 2>>,
    ids: impl Into<TensorView<'b, I, 1>>,
    order: impl Into<TensorView<'c, i32, 1>>,
    dtable: impl Into<TensorViewMut<'d, G, 2>>,
) -> Result<()> {
    let (dy, ids, order, dtable) = (dy.into(), ids.into(), order.into(), dtable.into());
    let [entries, columns] = dtable.shape();
    check::shape("dy", dy.shape(), [ids.len(), columns])?;
    packed("ids", ids.is_contiguous())?;
    vector("order", &order, ids.len())?;
    let (from, to) = (dy.rows("dy")?, dtable.rows("dtable")?);
    if dy.is_empty() {
        return Ok(());
    }
    let config =
        cx.config(Key::of(T::ELEMENT, "gradient"), &dy.shape(), || EmbeddingConfig::choose_backward(columns))?;
    let (n, width) = (check::size("ids", ids.len())?, check::size("dy", columns)?);
    let (ids, order, strides) = (ids.elements(), order.elements(), (from.stride as i64, to.stride as i64));
    SumRunsConsts { BLOCK: config.block }
        .call(dy.elements(), ids, order, dtable.elements(), strides.0, strides.1, entries as i64, n, width)
        .grid((n as usize, columns.div_ceil(config.block.max(1))))
        .num_warps((config.block / 256).clamp(1, 4) as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// The positions of indices in the order of the indices, equal ones in the order in which they stand: what
/// [`embedding_backward_ordered`] takes. Computed on the host.
pub fn positions_in_order<I: Ord>(ids: &[I]) -> Vec<i32> {
    let mut positions: Vec<i32> = (0..ids.len() as i32).collect();
    positions.sort_by_key(|&position| &ids[position as usize]);
    positions
}
