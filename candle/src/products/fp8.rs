//! Products of f8e4m3 with scales.

use super::linear::projected;
use crate::call;
use crate::prelude::*;
use candle_core::{DType as CandleDType, Module};
use tilewright_kernels::Tensor as Scratch;
use tilewright_kernels::products::fp8::{self, BLOCK};

candle_op! {
    /// `x` as f8e4m3, and a scale for each row of each block of 128 columns: what a product takes as its first factor.
    ///
    /// # Shapes and dtypes
    ///
    /// `x` is `[rows, columns]` of f16, bf16, f32 or f64; results are `[rows, columns]` of f8e4m3 and
    /// `[rows, ceil(columns / 128)]` of f32.
    ///
    /// # Numerics
    ///
    /// `scale = max(|x|) / 448`; `x / scale` is rounded to the nearest.
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes, of rows with gaps, of a tensor that requires a gradient; those of launches.
    pub fn quantise_blocks(x) -> (numbers: quantised(x)?, scales: scales(x, 1)?) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            fp8::quantise_blocks_into(x.context(), x.view::<T, 2>()?, numbers.view_mut()?, scales.view_mut()?)
        })
    }
}

candle_op! {
    /// `x` as f8e4m3, and a scale for each block of 128 by 128: what weights have.
    ///
    /// # Shapes and dtypes
    ///
    /// As [`quantise_blocks`]; scales are `[ceil(rows / 128), ceil(columns / 128)]`.
    ///
    /// # Errors
    ///
    /// As [`quantise_blocks`].
    pub fn quantise_squares(x) -> (numbers: quantised(x)?, scales: scales(x, BLOCK)?) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            fp8::quantise_squares_into(x.context(), x.view::<T, 2>()?, numbers.view_mut()?, scales.view_mut()?)
        })
    }
}

candle_op! {
    /// `a @ b` of f8e4m3 with scales, in another dtype.
    ///
    /// # Shapes and dtypes
    ///
    /// `a` is `[m, k]` with scales `[m, ceil(k / 128)]` ([`quantise_blocks`]), `b` `[k, n]` with scales
    /// `[ceil(k / 128), ceil(n / 128)]`, of any strides: those of weights `[n, k]` are the transposes of [`quantise_squares`]'s
    /// results. The result is `[m, n]` of `dtype`: f16, bf16 or f32.
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes, of tensors that require a gradient; those of launches.
    pub fn matmul_blocks(a, a_scale, b, b_scale; dtype: CandleDType) -> (
        y: Spec::new(dtype, a.shape::<2>().and_then(|[m, _]| Ok((m, b.shape::<2>()?[1])))?),
    ) {
        let (cx, a, b) = (a.context(), a.view::<F8E4M3, 2>()?, b.view::<F8E4M3, 2>()?);
        let (a_scale, b_scale) = (a_scale.view::<f32, 2>()?, b_scale.view::<f32, 2>()?);
        dispatch!(y => R in [f16, bf16, f32] {
            fp8::matmul_blocks_into(cx, a, a_scale, b, b_scale, y.view_mut::<R, 2>()?)
        })
    }
}

fn quantised(x: TensorRef<'_>) -> Result<Spec> {
    let [rows, columns] = x.shape()?;
    Ok(Spec::new(CandleDType::F8E4M3, (rows, columns)))
}

/// Scales of blocks of 128 columns and `tall` rows.
fn scales(x: TensorRef<'_>, tall: usize) -> Result<Spec> {
    let [rows, columns] = x.shape()?;
    Ok(Spec::new(CandleDType::F32, (rows.div_ceil(tall), columns.div_ceil(BLOCK))))
}

/// A linear layer with weights of f8e4m3: what it is given is rounded to f8e4m3 too, each with scales of its own.
///
/// ```
/// use candle_core::{DType, Device, Module, Tensor};
/// use tilewright_candle::products::Fp8Linear;
///
/// # fn main() -> candle_core::Result<()> {
/// let layer = Fp8Linear::quantise(&Tensor::ones((8, 128), DType::F32, &Device::Cpu)?)?;
/// let y = layer.forward(&Tensor::ones((2, 128), DType::F32, &Device::Cpu)?)?;
/// assert!(y.to_vec2::<f32>()?[1].iter().all(|y| (y - 128.0).abs() < 1e-4));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Fp8Linear {
    numbers: Tensor,
    scales: Tensor,
}

impl Fp8Linear {
    /// Weights `[n, k]` of f16, bf16, f32 or f64, quantised.
    ///
    /// # Errors
    ///
    /// As [`quantise_squares`].
    pub fn quantise(weight: &Tensor) -> candle_core::Result<Self> {
        let [numbers, scales] = quantise_squares(weight)?;
        Ok(Fp8Linear { numbers, scales })
    }

    /// Weights `[n, k]` of f8e4m3, and scales `[ceil(n / 128), ceil(k / 128)]` of f32.
    pub fn new(numbers: Tensor, scales: Tensor) -> Self {
        Fp8Linear { numbers, scales }
    }

    /// The weights and their scales.
    pub fn parts(&self) -> (&Tensor, &Tensor) {
        (&self.numbers, &self.scales)
    }
}

impl Module for Fp8Linear {
    /// `x` is `[.., k]` of f16, bf16 or f32, and so is the result, `[.., n]`.
    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let inputs = [("x", x), ("numbers", &self.numbers), ("scales", &self.scales)];
        let outputs = |[x, numbers, _]: [TensorRef<'_>; 3]| Ok([projected(x, numbers)?]);
        let [y] = call("Fp8Linear", inputs, outputs, |[x, numbers, scales], [y]| {
            dispatch!(x => T in [f16, bf16, f32] {
                let (cx, x) = (x.context(), x.rows::<T>()?);
                let mut small = Scratch::<F8E4M3, 2>::empty(cx.device(), x.shape())?;
                let mut x_scales = Scratch::empty(cx.device(), [x.shape()[0], x.shape()[1].div_ceil(BLOCK)])?;
                fp8::quantise_blocks_into(cx, x, &mut small, &mut x_scales)?;
                let (b, b_scales) = (numbers.view::<F8E4M3, 2>()?, scales.view::<f32, 2>()?);
                let (b, b_scales) = (b.transpose(0, 1)?, b_scales.transpose(0, 1)?);
                fp8::matmul_blocks_into(cx, &small, &x_scales, b, b_scales, y.rows_mut::<T>()?)
            })
        })?;
        Ok(y)
    }
}
