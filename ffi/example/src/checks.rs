//! Operators that fail in all ways that one can, and one that does nothing, for measuring calls.

use crate::kernels;
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
