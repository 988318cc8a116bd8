//! Softmax of rows and its logarithm. The shapes of results name the last dimension, as a tensor without any would be a row of
//! others where calls are mapped.

use crate::views::{context, rows, rows_mut, same_shape};
use tilewright::prelude::*;
use tilewright_ffi::prelude::*;
use tilewright_kernels::rows as library;

/// The softmax of the last dimension.
#[op(out(y: x.dtype[..x.shape[..-1], x.shape[-1]]), backward = softmax_backward, vmap = broadcast_all)]
pub fn softmax(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        Ok(library::softmax_into(&context(&x), rows::<T>(&x)?, rows_mut::<T>(y)?)?)
    })
}

/// The gradient of [`softmax`], from its result.
#[op(out(d_x: y.dtype[..y.shape[..-1], y.shape[-1]]), vmap = broadcast_all)]
pub fn softmax_backward(d_y: TensorRef<'_>, y: TensorRef<'_>, d_x: TensorMut<'_>) -> Result<()> {
    same_shape(&d_y, &y)?;
    dispatch!(y.dtype() => T in [f32, f16, bf16, f64] {
        Ok(library::softmax_backward_into(&context(&y), rows::<T>(&y)?, rows::<T>(&d_y)?, rows_mut::<T>(d_x)?)?)
    })
}

/// The logarithm of the softmax of the last dimension.
#[op(out(y: x.dtype[..x.shape[..-1], x.shape[-1]]), backward = log_softmax_backward, vmap = broadcast_all)]
pub fn log_softmax(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        Ok(library::log_softmax_into(&context(&x), rows::<T>(&x)?, rows_mut::<T>(y)?)?)
    })
}

/// The gradient of [`log_softmax`], from its result.
#[op(out(d_x: y.dtype[..y.shape[..-1], y.shape[-1]]), vmap = broadcast_all)]
pub fn log_softmax_backward(d_y: TensorRef<'_>, y: TensorRef<'_>, d_x: TensorMut<'_>) -> Result<()> {
    same_shape(&d_y, &y)?;
    dispatch!(y.dtype() => T in [f32, f16, bf16, f64] {
        Ok(library::log_softmax_backward_into(&context(&y), rows::<T>(&y)?, rows::<T>(&d_y)?, rows_mut::<T>(d_x)?)?)
    })
}
