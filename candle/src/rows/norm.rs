//! Layer norm and RMS norm.

use crate::prelude::*;
use crate::tensor::same_shape;
use tilewright_kernels::rows::{self, Norm, NormGradientsMut};
use tilewright_kernels::{Tensor as Scratch, TensorView};

candle_op! {
    /// `x / sqrt(mean(x^2) + eps) * weight` for each row (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019).
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    ///
    /// # fn main() -> candle_core::Result<()> {
    /// let x = Tensor::new(&[[3f32, -3.0], [5.0, 5.0]], &Device::Cpu)?;
    /// let weight = Tensor::new(&[1f32, 2.0], &Device::Cpu)?;
    /// let y = tilewright_candle::rows::rms_norm(&x, &weight, 0.0)?.to_vec2::<f32>()?;
    /// assert!((y[0][1] + 2.0).abs() < 1e-5 && (y[1][0] - 1.0).abs() < 1e-5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Shapes and dtypes
    ///
    /// `x` is `[.., columns]` of f16, bf16, f32 or f64, and so is the result; `weight` is `[columns]` of the same dtype. Each
    /// value of `eps` is compiled for.
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes, of rows with gaps; those of launches.
    pub fn rms_norm(x, weight; eps: f64) -> (y: like(x)) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let norm = norm::<T>(weight, None, eps)?;
            rows::rms_norm_into(x.context(), x.rows::<T>()?, &norm, y.rows_mut::<T>()?)
        })
    }
    backward(dy) -> (x: dx, weight: dweight) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let (norm, gradients) = (norm::<T>(weight, None, eps)?, Gradients { dx, dweight, dbias: None });
            if size_of::<T>() == 8 {
                backward::<T, f64, false>(x, dy, &norm, gradients)
            } else {
                backward::<T, f32, false>(x, dy, &norm, gradients)
            }
        })
    }
}

candle_op! {
    /// `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` for each row (Ba, Kiros and Hinton, "Layer Normalization", 2016).
    ///
    /// # Shapes and dtypes
    ///
    /// As [`rms_norm`]; `bias` is `[columns]` too.
    ///
    /// # Errors
    ///
    /// As [`rms_norm`].
    pub fn layer_norm(x, weight, bias; eps: f64) -> (y: like(x)) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let norm = norm::<T>(weight, Some(bias), eps)?;
            rows::layer_norm_into(x.context(), x.rows::<T>()?, &norm, y.rows_mut::<T>()?)
        })
    }
    backward(dy) -> (x: dx, weight: dweight, bias: dbias) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let norm = norm::<T>(weight, Some(bias), eps)?;
            let gradients = Gradients { dx, dweight, dbias: Some(dbias) };
            if size_of::<T>() == 8 {
                backward::<T, f64, true>(x, dy, &norm, gradients)
            } else {
                backward::<T, f32, true>(x, dy, &norm, gradients)
            }
        })
    }
}

candle_op! {
    /// Adds `x` to `residual`, and gives [`rms_norm`] of the sum: what stands between the layers of a transformer, in one
    /// launch.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    ///
    /// # fn main() -> candle_core::Result<()> {
    /// let (x, residual) = (Tensor::new(&[[1f32, -4.0]], &Device::Cpu)?, Tensor::new(&[[2f32, 1.0]], &Device::Cpu)?);
    /// let weight = Tensor::ones(2, candle_core::DType::F32, &Device::Cpu)?;
    /// let y = tilewright_candle::rows::add_rms_norm_in_place(&residual, &x, &weight, 0.0)?;
    /// assert_eq!(residual.to_vec2::<f32>()?, [[3.0, -3.0]]);
    /// assert!((y.to_vec2::<f32>()?[0][0] - 1.0).abs() < 1e-5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Shapes and dtypes
    ///
    /// As [`rms_norm`]; `residual` has the shape of `x`.
    ///
    /// # Errors
    ///
    /// As [`rms_norm`], and of tensors that require a gradient.
    pub fn add_rms_norm_in_place(mut residual, x, weight; eps: f64) -> (y: like(x)) {
        same_shape("residual", residual.dims(), x)?;
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let norm = norm::<T>(weight, None, eps)?;
            let (residual, out) = (residual.rows_mut::<T>()?, y.rows_mut::<T>()?);
            rows::add_rms_norm_into(x.context(), x.rows::<T>()?, residual, &norm, out)
        })
    }
}

fn norm<'a, T: crate::Element + Float>(
    weight: TensorRef<'a>,
    bias: Option<TensorRef<'a>>,
    eps: f64,
) -> Result<Norm<'a, T>> {
    let norm = Norm::default().eps(eps).weight(weight.view::<T, 1>()?);
    Ok(match bias {
        Some(bias) => norm.bias(bias.view::<T, 1>()?),
        None => norm,
    })
}

/// What the gradients are written to.
struct Gradients<'a> {
    dx: TensorMut<'a>,
    dweight: TensorMut<'a>,
    dbias: Option<TensorMut<'a>>,
}

/// `P` is what sums of `T` are kept in.
fn backward<T: crate::Element + Float, P: Float, const CENTRE: bool>(
    x: TensorRef<'_>,
    dy: TensorRef<'_>,
    norm: &Norm<'_, T>,
    gradients: Gradients<'_>,
) -> Result<()> {
    let (cx, x, dy): (_, _, TensorView<'_, T, 2>) = (x.context(), x.rows::<T>()?, dy.rows()?);
    let [rows, columns] = x.shape();
    let summed = 1 + usize::from(gradients.dbias.is_some());
    let programs = rows::norm_programs(cx, T::ELEMENT, rows, columns)?;
    let mut sums = Scratch::<P, 2>::empty(cx.device(), [summed * programs, columns])?;
    let gradients = NormGradientsMut {
        dx: gradients.dx.rows_mut()?,
        dweight: Some(gradients.dweight.view_mut()?),
        dbias: gradients.dbias.map(TensorMut::view_mut).transpose()?,
        sums: sums.view_mut(),
    };
    if CENTRE {
        rows::layer_norm_backward_into(cx, x, dy, norm, gradients)
    } else {
        rows::rms_norm_backward_into(cx, x, dy, norm, gradients)
    }
}
