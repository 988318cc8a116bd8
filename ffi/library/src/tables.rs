//! Rows of a table.

use crate::views::{context, rows, rows_mut};
use tilewright::prelude::*;
use tilewright_ffi::prelude::*;
use tilewright_kernels::general::Real;
use tilewright_kernels::rows::{self as library, EmbeddingWorkspace};
use tilewright_kernels::{TensorView, TensorViewMut};

/// The rows of `table`, `[entries, columns]`, with the indices `ids`, of any shape, in i64 or i32.
#[op(out(y: table.dtype[..ids.shape, table.shape[1]]), backward = embedding_backward)]
pub fn embedding(table: TensorRef<'_>, ids: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    let (cx, n) = (context(&table), ids.len());
    dispatch!(ids.dtype() => I in [i64, i32] {
        let ids = TensorView::new(ids.flat::<I>()?, [n])?;
        dispatch!(table.dtype() => T in [f32, f16, bf16, f64] {
            Ok(library::embedding_into(&cx, table.view::<T, 2>()?, ids, rows_mut::<T>(y)?)?)
        })
    })
}

/// The gradient of [`embedding`]: rows of one index are summed in f32 (f64 for f64) and rounded once, in one order.
#[op(out(d_table: like(table)))]
pub fn embedding_backward(
    d_y: TensorRef<'_>,
    table: TensorRef<'_>,
    ids: TensorRef<'_>,
    d_table: TensorMut<'_>,
    scratch: &Scratch<'_>,
) -> Result<()> {
    let (cx, n) = (context(&table), ids.len());
    let [entries, columns] = table.dims()?;
    dispatch!(ids.dtype() => I in [i64, i32] {
        let ids = TensorView::new(ids.flat::<I>()?, [n])?;
        dispatch!(table.dtype() => T in [f32, f16, bf16, f64] {
            let (order, sums) = (Workspace::<T>::order(n, entries), Workspace::<T>::sums(n));
            let workspace = Workspace::<T> {
                order: TensorViewMut::new(scratch.take(order)?, [order])?,
                sums: TensorViewMut::new(scratch.take(sums * columns)?, [sums, columns])?,
            };
            let (d_y, d_table) = (rows::<T>(&d_y)?, d_table.view_mut::<T, 2>()?);
            Ok(library::embedding_gradient_into(&cx, d_y, ids, workspace, d_table)?)
        })
    })
}

type Workspace<'a, T> = EmbeddingWorkspace<'a, <T as Real>::Sums>;
