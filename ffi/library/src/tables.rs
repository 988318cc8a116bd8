//! Rows of a table.

use crate::elementwise::kernels;
use crate::views::{context, rows, rows_mut};
use tilewright::prelude::*;
use tilewright_ffi::prelude::*;
use tilewright_kernels::rows as library;
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

/// The gradient of [`embedding`]: rows of one index are added in f32 (f64 for f64), in an order that may change.
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
            let (d_y, mut d_table) = (rows::<T>(&d_y)?, d_table.view_mut::<T, 2>()?);
            if size_of::<T>() >= 4 {
                kernels::clear(cx.device(), d_table.elements_mut())?;
                return Ok(library::embedding_backward(&cx, d_y, ids, d_table)?);
            }
            let mut sums = TensorViewMut::new(scratch.take::<f32>(entries * columns)?, [entries, columns])?;
            kernels::clear(cx.device(), sums.elements_mut())?;
            library::embedding_backward(&cx, d_y, ids, sums.reborrow())?;
            Ok(kernels::round(cx.device(), &sums.elements_mut(), d_table.elements())?)
        })
    })
}
