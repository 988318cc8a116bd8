//! Gated activations.

use crate::prelude::*;
use crate::tensor::same_shape;
use tilewright_kernels::rows::{self, Gelu};

candle_op! {
    /// `silu(a) * b` (Shazeer, "GLU Variants Improve Transformer", 2020).
    ///
    /// Both halves of one product need no copy:
    ///
    /// ```
    /// use candle_core::{D, Device, Tensor};
    /// use tilewright_candle::rows::swiglu;
    ///
    /// # fn main() -> candle_core::Result<()> {
    /// let both = Tensor::new(&[[0f32, 2.0, 3.0, 4.0]], &Device::Cpu)?;
    /// let y = swiglu(&both.narrow(D::Minus1, 0, 2)?, &both.narrow(D::Minus1, 2, 2)?)?;
    /// assert_eq!(y.to_vec2::<f32>()?[0][0], 0.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Shapes and dtypes
    ///
    /// `a` and `b` have one shape and one dtype, f16, bf16, f32 or f64, and so has the result.
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes, of rows with gaps; those of launches.
    pub fn swiglu(a, b) -> (y: like(a)) {
        same_shape("b", b.dims(), a)?;
        dispatch!(a => T in [f16, bf16, f32, f64] {
            rows::swiglu_into(a.context(), a.rows::<T>()?, b.rows::<T>()?, y.rows_mut::<T>()?)
        })
    }
    backward(dy) -> (a: da, b: db) {
        dispatch!(a => T in [f16, bf16, f32, f64] {
            let (dy, da, db) = (dy.rows::<T>()?, da.rows_mut::<T>()?, db.rows_mut::<T>()?);
            rows::swiglu_backward_into(a.context(), a.rows::<T>()?, b.rows::<T>()?, dy, da, db)
        })
    }
}

candle_op! {
    /// `gelu(a) * b`, from the same paper as [`swiglu`].
    ///
    /// # Shapes and dtypes
    ///
    /// As [`swiglu`].
    ///
    /// # Errors
    ///
    /// As [`swiglu`].
    pub fn geglu(a, b; gelu: Gelu) -> (y: like(a)) {
        same_shape("b", b.dims(), a)?;
        dispatch!(a => T in [f16, bf16, f32, f64] {
            rows::geglu_into(a.context(), a.rows::<T>()?, b.rows::<T>()?, gelu, y.rows_mut::<T>()?)
        })
    }
    backward(dy) -> (a: da, b: db) {
        dispatch!(a => T in [f16, bf16, f32, f64] {
            let (dy, da, db) = (dy.rows::<T>()?, da.rows_mut::<T>()?, db.rows_mut::<T>()?);
            rows::geglu_backward_into(a.context(), a.rows::<T>()?, b.rows::<T>()?, gelu, dy, da, db)
        })
    }
}
