//! Cross entropy.

use crate::prelude::*;
use candle_core::DType as CandleDType;
use tilewright_kernels::rows::{self, CrossEntropy, CrossEntropyWorkspace, Reduction};
use tilewright_kernels::{Tensor, TensorView, TensorViewMut};

candle_op! {
    /// Cross entropy of rows of logits with a class for each row: `log(sum(exp(x))) - x[target]`, with what
    /// [`CrossEntropy`] asks for: a mean or a sum, label smoothing, a z-loss, rows to ignore.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    /// use tilewright_candle::rows::{CrossEntropy, cross_entropy};
    ///
    /// # fn main() -> candle_core::Result<()> {
    /// let logits = Tensor::new(&[[0f32, 0.0], [1.0, 1.0]], &Device::Cpu)?;
    /// let targets = Tensor::new(&[0u32, 1], &Device::Cpu)?;
    /// let loss = cross_entropy(&logits, &targets, CrossEntropy::default())?;
    /// assert!((loss.to_scalar::<f32>()? - 2f32.ln()).abs() < 1e-6);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Shapes and dtypes
    ///
    /// `logits` is `[rows, classes]` of f16, bf16, f32 or f64, its rows without gaps; `targets` is `[rows]` of u8, u32, i32 or
    /// i64. The result is a scalar of f32, or `[rows]` for [`Reduction::None`].
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes. A target that is neither a class nor ignored is an error of the launch.
    pub fn cross_entropy(logits, targets; options: CrossEntropy) -> (loss: losses(logits, options)?) {
        dispatch!(logits => T in [f16, bf16, f32, f64] {
            dispatch!(targets => I in [u8, u32, i32, i64] {
                let (x, targets) = (logits.view::<T, 2>()?, targets.view::<I, 1>()?);
                let len = loss.len();
                let out = TensorViewMut::new(loss.flat_mut::<f32>()?, [len])?;
                let (cx, count) = (logits.context(), targets.len());
                let (mut losses, mut scale) = (Tensor::empty(cx.device(), [count])?, Tensor::empty(cx.device(), [1])?);
                let workspace = CrossEntropyWorkspace { losses: losses.view_mut(), scale: scale.view_mut() };
                rows::cross_entropy_into(cx, x, targets, options, workspace, out)
            })
        })
    }
    backward(dloss) -> (logits: dlogits) {
        dispatch!(logits => T in [f16, bf16, f32, f64] {
            dispatch!(targets => I in [u8, u32, i32, i64] {
                let (x, targets) = (logits.view::<T, 2>()?, targets.view::<I, 1>()?);
                let dloss = TensorView::new(dloss.flat::<f32>()?, [dloss.len()])?;
                let out = dlogits.view_mut::<T, 2>()?;
                rows::cross_entropy_backward_into(logits.context(), x, targets, options, dloss, out)
            })
        })
    }
}

/// What becomes of the losses of rows.
fn losses(logits: TensorRef<'_>, options: CrossEntropy) -> Result<Spec> {
    let [rows, _] = logits.shape()?;
    let each = options == options.reduction(Reduction::None);
    Ok(if each { Spec::new(CandleDType::F32, rows) } else { Spec::new(CandleDType::F32, ()) })
}
