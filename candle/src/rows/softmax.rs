//! Softmax and its logarithm.

use crate::prelude::*;
use tilewright_kernels::rows;

candle_op! {
    /// Softmax of each row: `exp(x - max(x)) / sum(exp(x - max(x)))` over the last dimension.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    ///
    /// # fn main() -> candle_core::Result<()> {
    /// let x = Tensor::new(&[[1f32, 1.0], [2.0, 2.0]], &Device::Cpu)?;
    /// assert_eq!(tilewright_candle::rows::softmax(&x)?.to_vec2::<f32>()?, [[0.5, 0.5], [0.5, 0.5]]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Shapes and dtypes
    ///
    /// `x` is `[.., columns]` of f16, bf16, f32 or f64, and so is the result.
    ///
    /// # Errors
    ///
    /// Of other dtypes and of no dimensions, of rows with gaps; those of launches.
    pub fn softmax(x) -> (y: like(x)) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            rows::softmax_into(x.context(), x.rows::<T>()?, y.rows_mut::<T>()?)
        })
    }
    backward(dy) -> (x: dx) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            rows::softmax_backward_into(x.context(), y.rows::<T>()?, dy.rows::<T>()?, dx.rows_mut::<T>()?)
        })
    }
}

candle_op! {
    /// The logarithm of [`softmax`], without the loss of small numbers: `x - max(x) - log(sum(exp(x - max(x))))`.
    ///
    /// # Shapes and dtypes
    ///
    /// As [`softmax`].
    ///
    /// # Errors
    ///
    /// As [`softmax`].
    pub fn log_softmax(x) -> (y: like(x)) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            rows::log_softmax_into(x.context(), x.rows::<T>()?, y.rows_mut::<T>()?)
        })
    }
    backward(dy) -> (x: dx) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            rows::log_softmax_backward_into(x.context(), y.rows::<T>()?, dy.rows::<T>()?, dx.rows_mut::<T>()?)
        })
    }
}
