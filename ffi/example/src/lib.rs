//! A library of operators: what `tilewright-ffi` makes for PyTorch, JAX and TVM-FFI of Rust functions.
//!
//! | operator | shows |
//! |---|---|
//! | [`silu`] | a gradient, dtypes, `jax.vmap` |
//! | [`scaled`] | an optional tensor, an attribute with a default, a gradient that is optional too |
//! | [`both_scaled`] | an optional output, and its gradient |
//! | [`row_sum`] | an output of another shape and dtype |
//! | [`pairs`] | two outputs, sizes computed from attributes |
//! | [`add_assign`] | a tensor that is written in place |
//! | [`reversed`] | scratch memory, strings |
//! | [`copied`] | all dtypes |

mod checks;
mod kernels;

pub use checks::{fails, launches_out_of_bounds, nothing, panics, shifted, silu_with_constants};

use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright_ffi::prelude::*;

/// Elements per program of elementwise kernels.
const BLOCK: usize = 1024;

/// `x * sigmoid(x)`, elementwise.
#[op(out(y: like(x)), backward = silu_backward, vmap = broadcast_all)]
pub fn silu(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let n = x.len();
        kernels::silu::<T, BLOCK>(x.flat::<T>()?, y.flat_mut::<T>()?, n as i64).grid(n.div_ceil(BLOCK)).launch(x.device())?;
        Ok(())
    })
}

/// The gradient of [`silu`].
#[op(out(d_x: like(x)), vmap = broadcast_all)]
pub fn silu_backward(d_y: TensorRef<'_>, x: TensorRef<'_>, d_x: TensorMut<'_>) -> Result<()> {
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let n = x.len();
        kernels::silu_backward::<T, BLOCK>(d_y.flat::<T>()?, x.flat::<T>()?, d_x.flat_mut::<T>()?, n as i64)
            .grid(n.div_ceil(BLOCK))
            .launch(x.device())?;
        Ok(())
    })
}

/// `factor * x * weight`, with a weight for each column, or none.
#[op(out(y: like(x)), backward = scaled_backward)]
pub fn scaled(
    x: TensorRef<'_>,
    weight: Option<TensorRef<'_>>,
    y: TensorMut<'_>,
    #[default(1.0)] factor: f64,
) -> Result<()> {
    let [_, columns] = x.dims()?;
    check_weight(weight, columns)?;
    let n = x.len();
    dispatch!(x.dtype() => T in [f32, f64] {
        let weight = MaybeView::from(weight.map(|weight| weight.flat::<T>()).transpose()?);
        kernels::scaled::<T, BLOCK>(x.flat::<T>()?, weight, y.flat_mut::<T>()?, factor, columns as i64, n as i64)
            .grid(n.div_ceil(BLOCK))
            .launch(x.device())?;
        Ok(())
    })
}

/// Checks that there is a weight for each column, if there is any.
fn check_weight(weight: Option<TensorRef<'_>>, columns: usize) -> Result<()> {
    let Some(weight) = weight.filter(|weight| weight.shape() != [columns]) else { return Ok(()) };
    let given = format!("has shape {:?}", weight.shape());
    Err(tilewright_ffi::Error::argument("weight", given, format!("[{columns}], a number per column")))
}

/// The gradients of [`scaled`].
#[op(out(d_x: like(x), d_weight: like(weight)))]
pub fn scaled_backward(
    d_y: TensorRef<'_>,
    x: TensorRef<'_>,
    weight: Option<TensorRef<'_>>,
    d_x: TensorMut<'_>,
    d_weight: Option<TensorMut<'_>>,
    factor: f64,
) -> Result<()> {
    let [rows, columns] = x.dims()?;
    check_weight(weight, columns)?;
    let (n, device) = (x.len(), x.device());
    dispatch!(x.dtype() => T in [f32, f64] {
        let weight = MaybeView::from(weight.map(|weight| weight.flat::<T>()).transpose()?);
        kernels::scaled::<T, BLOCK>(d_y.flat::<T>()?, weight, d_x.flat_mut::<T>()?, factor, columns as i64, n as i64)
            .grid(n.div_ceil(BLOCK))
            .launch(x.device())?;
        if let Some(d_weight) = d_weight {
            let (d_y, x, d_weight) = (d_y.flat::<T>()?, x.flat::<T>()?, d_weight.flat_mut::<T>()?);
            kernels::column_products::<T, 64>(d_y, x, d_weight, factor, rows as i64, columns as i64)
                .grid(columns.div_ceil(64))
                .launch(device)?;
        }
        Ok(())
    })
}

/// `factor * x`, and `factor * w` if there is a `w`.
#[op(out(y: like(x), z: like(w)), backward = both_scaled_backward)]
pub fn both_scaled(
    x: TensorRef<'_>,
    w: Option<TensorRef<'_>>,
    y: TensorMut<'_>,
    z: Option<TensorMut<'_>>,
    #[default(1.0)] factor: f64,
) -> Result<()> {
    times(Some(x), y, factor)?;
    z.map_or(Ok(()), |z| times(w, z, factor))
}

/// The gradients of [`both_scaled`].
#[op(out(d_x: like(d_y), d_w: like(w)))]
pub fn both_scaled_backward(
    d_y: TensorRef<'_>,
    d_z: Option<TensorRef<'_>>,
    w: Option<TensorRef<'_>>,
    d_x: TensorMut<'_>,
    d_w: Option<TensorMut<'_>>,
    factor: f64,
) -> Result<()> {
    times(Some(d_y), d_x, factor)?;
    let _ = w;
    // Where nothing depends on `z`, there is a `d_w`, and it is 0.
    d_w.map_or(Ok(()), |d_w| times(d_z, d_w, factor))
}

/// `y` = `factor * x`, or 0 without an `x`.
fn times(x: Option<TensorRef<'_>>, y: TensorMut<'_>, factor: f64) -> Result<()> {
    let (n, device) = (y.len(), y.device());
    dispatch!(y.dtype() => T in [f32, f64] {
        let x = MaybeView::from(x.map(|x| x.flat::<T>()).transpose()?);
        kernels::times::<T, BLOCK>(x, y.flat_mut::<T>()?, factor, n as i64)
            .grid(n.div_ceil(BLOCK))
            .launch(device)?;
        Ok(())
    })
}

/// The sum of each row, in f32.
#[op(out(sum: f32[..x.shape[..-1]]), vmap = broadcast_all)]
pub fn row_sum(x: TensorRef<'_>, sum: TensorMut<'_>) -> Result<()> {
    let (rows, columns) = x.rows();
    dispatch!(x.dtype() => T in [f32, f16, bf16] {
        kernels::row_sum::<T, 64>(x.flat::<T>()?, sum.flat_mut::<f32>()?, columns as i64).grid(rows).launch(x.device())?;
        Ok(())
    })
}

/// Neighbours apart: the elements of even and of odd columns, the first `count` of each.
#[op(out(even: x.dtype[x.shape[0], min(count, x.shape[1] / 2)], odd: x.dtype[x.shape[0], min(count, x.shape[1] / 2)]))]
pub fn pairs(x: TensorRef<'_>, even: TensorMut<'_>, odd: TensorMut<'_>, #[default(1000000)] count: i64) -> Result<()> {
    let [rows, columns] = x.dims()?;
    let [_, wanted] = even.dims()?;
    debug_assert_eq!(wanted as i64, count.min(columns as i64 / 2));
    dispatch!(x.dtype() => T in [f32, i32, i64] {
        let (device, x) = (x.device(), x.flat::<T>()?);
        kernels::pairs::<T, 64>(x, even.flat_mut::<T>()?, odd.flat_mut::<T>()?, columns as i64, wanted as i64)
            .grid((wanted.div_ceil(64), rows))
            .launch(device)?;
        Ok(())
    })
}

/// `x += alpha * y`, in place.
#[op]
pub fn add_assign(x: TensorMut<'_>, y: TensorRef<'_>, #[default(1.0)] alpha: f64) -> Result<()> {
    if x.shape() != y.shape() {
        let given = format!("has shape {:?}", y.shape());
        return Err(tilewright_ffi::Error::argument("y", given, format!("that of `x`, {:?}", x.shape())));
    }
    dispatch!(x.dtype() => T in [f32, f64] {
        let (n, device) = (x.len(), x.device());
        kernels::add_assign::<T, BLOCK>(x.flat_mut::<T>()?, y.flat::<T>()?, alpha, n as i64)
            .grid(n.div_ceil(BLOCK))
            .launch(device)?;
        Ok(())
    })
}

/// The elements in reverse order, through memory in between; with `how = "twice"` in their own.
#[op(out(y: like(x)))]
pub fn reversed(x: TensorRef<'_>, y: TensorMut<'_>, #[default("once")] how: &str, scratch: &Scratch<'_>) -> Result<()> {
    let (n, device) = (x.len(), x.device());
    let grid = n.div_ceil(BLOCK);
    let y = y.flat_mut::<f32>()?;
    match how {
        "once" => kernels::reversed::<f32, BLOCK>(x.flat::<f32>()?, y, n as i64).grid(grid).launch(device)?,
        "twice" => {
            let mut between = scratch.take::<f32>(n)?;
            kernels::reversed::<f32, BLOCK>(x.flat::<f32>()?, &mut between, n as i64).grid(grid).launch(device)?;
            kernels::reversed::<f32, BLOCK>(&between, y, n as i64).grid(grid).launch(device)?;
        }
        _ => return Err(tilewright_ffi::Error::argument("how", format!("is \"{how}\""), "\"once\", \"twice\"")),
    }
    Ok(())
}

/// A copy.
#[op(out(y: like(x)), vmap = broadcast_all)]
pub fn copied(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    dispatch!(x.dtype() => T in [
        f32, f16, bf16, f64, F8E4M3, F8E5M2, i8, i16, i32, i64, u8, u16, u32, u64, bool,
    ] {
        let n = x.len();
        kernels::copied::<T, BLOCK>(x.flat::<T>()?, y.flat_mut::<T>()?, n as i64).grid(n.div_ceil(BLOCK)).launch(x.device())?;
        Ok(())
    })
}

export!(
    tw_example: silu,
    silu_backward,
    scaled,
    scaled_backward,
    both_scaled,
    both_scaled_backward,
    row_sum,
    pairs,
    add_assign,
    reversed,
    copied,
    nothing,
    shifted,
    silu_with_constants,
    fails,
    panics,
    launches_out_of_bounds,
);
