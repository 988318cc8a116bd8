//! Operators that fail in all ways that one can, one that does nothing, for measuring calls, and others that tests alone need.

use crate::{copied, kernels, row_sum, silu, silu_backward};
use tilewright_ffi::prelude::*;

/// Leaves `y` as it is: what remains is the price of the call.
#[op(out(y: like(x)), vmap = broadcast_all)]
pub fn nothing(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    let _ = (x, y);
    Ok(())
}

/// `y = x + by` on the CPU, in plain Rust; `by` is what was given, or 1.
#[op(out(y: like(x)), vmap = broadcast_all)]
pub fn shifted(x: TensorRef<'_>, y: TensorMut<'_>, by: Option<f64>, #[default(false)] negative: bool) -> Result<()> {
    let by = if negative { -by.unwrap_or(1.0) } else { by.unwrap_or(1.0) };
    for (y, x) in y.slice_mut::<f32>()?.iter_mut().zip(x.slice::<f32>()?) {
        *y = x + by as f32;
    }
    Ok(())
}

/// `x * sigmoid(x)`, with the sums of the rows of `x` and a copy of `w`, if there is one: constants to gradients.
#[op(out(y: like(x), sum: f32[..x.shape[..-1]], copy: like(w)), backward = silu_backward)]
pub fn silu_with_constants(
    x: TensorRef<'_>,
    w: Option<TensorRef<'_>>,
    y: TensorMut<'_>,
    sum: TensorMut<'_>,
    copy: Option<TensorMut<'_>>,
) -> Result<()> {
    silu(x, y)?;
    row_sum(x, sum)?;
    w.zip(copy).map_or(Ok(()), |(w, copy)| copied(w, copy))
}

/// Returns an error.
#[op(out(y: like(x)))]
pub fn fails(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    Err(format!("{} elements are too many", x.len().max(y.len())).into())
}

/// Panics.
#[op(out(y: like(x)))]
pub fn panics(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    panic!("{} elements are unlucky", x.len().max(y.len()));
}

/// Launches a kernel that reads behind the last element.
#[op(out(y: like(x)))]
pub fn launches_out_of_bounds(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    kernels::out_of_bounds::<64>(x.flat::<f32>()?, y.flat_mut::<f32>()?, x.len() as i64).grid(1).launch(x.device())?;
    Ok(())
}
