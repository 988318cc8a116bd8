//! Products with what stands around them.

use super::linear::{product, projected, projected_columns};
use super::row::RowProduct;
use crate::prelude::*;
use crate::tensor::given;
use crate::{Element, call_with};
use tilewright_kernels::products::{Activation, Matmul};
use tilewright_kernels::rows::{Norm, rms_norm_into, swiglu_into};
use tilewright_kernels::{Tensor as Scratch, TensorView};

/// What a product is given, and what follows it, in [`fused_linear`]: `activation(norm(x) @ weight^T + bias) + residual`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fused<'a> {
    /// The weight of an RMS norm of each row of `x`, `[k]`, and its epsilon.
    pub norm: Option<(&'a Tensor, f64)>,
    /// `[n]`.
    pub bias: Option<&'a Tensor>,
    /// A function of each element.
    pub activation: Activation,
    /// Of the result's shape, rows at one distance.
    pub residual: Option<&'a Tensor>,
}

/// `activation(norm(x) @ weight^T + bias) + residual`, in one launch where rows are few, as in decoding; otherwise the norm is one
/// of its own. Without gradients.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use tilewright_candle::products::{Activation, Fused, fused_linear};
///
/// # fn main() -> candle_core::Result<()> {
/// let x = Tensor::new(&[[1f32, -2.0]], &Device::Cpu)?;
/// let weight = Tensor::new(&[[1f32, 0.0], [0.0, 1.0]], &Device::Cpu)?;
/// let around = Fused { activation: Activation::Relu, residual: Some(&x), ..Fused::default() };
/// assert_eq!(fused_linear(&x, &weight, around)?.to_vec2::<f32>()?, [[2.0, -2.0]]);
/// # Ok(())
/// # }
/// ```
///
/// # Shapes and dtypes
///
/// As [`linear`](super::linear()); norm, bias and residual are of the same dtype.
///
/// # Errors
///
/// As [`linear`](super::linear()), and of tensors that require a gradient.
pub fn fused_linear(x: &Tensor, weight: &Tensor, around: Fused<'_>) -> candle_core::Result<Tensor> {
    let Fused { norm, bias, activation, residual } = around;
    let norm_weight = norm.map(|(norm, _)| ("norm", norm));
    let inputs = [
        Some(("x", x)),
        Some(("weight", weight)),
        norm_weight,
        bias.map(|bias| ("bias", bias)),
        residual.map(|residual| ("residual", residual)),
    ];
    let outputs = |[x, weight, ..]: [Option<TensorRef<'_>>; 5]| Ok([projected(given(x)?, given(weight)?)?]);
    let [y] = call_with("fused_linear", inputs, outputs, |[x, weight, norm_weight, bias, residual], [y]| {
        let (x, weight) = (given(x)?, given(weight)?);
        let norm = norm_weight.zip(norm.map(|(_, eps)| eps));
        let around = Around { norm, bias, activation, residual };
        dispatch!(x => T in [f16, bf16, f32, f64] { multiplied::<T>(x, weight, around, y) })
    })?;
    Ok(y)
}

/// [`Fused`] in the body of an op.
#[derive(Default)]
pub(super) struct Around<'a> {
    norm: Option<(TensorRef<'a>, f64)>,
    bias: Option<TensorRef<'a>>,
    activation: Activation,
    residual: Option<TensorRef<'a>>,
}

/// A linear layer with what stands around it.
pub(super) fn multiplied<T: Element + Float>(
    x: TensorRef<'_>,
    weight: TensorRef<'_>,
    around: Around<'_>,
    y: TensorMut<'_>,
) -> Result<()> {
    let Around { norm, bias, activation, residual } = around;
    if let Some(residual) = residual.filter(|residual| residual.dims() != y.dims()) {
        let hint = format!("the result has the shape {:?}", y.dims());
        return Err(residual.invalid(format!("has the shape {:?}", residual.dims()), hint));
    }
    let row = RowProduct {
        x: x.rows::<T>()?,
        weight: weight.view::<T, 2>()?,
        norm: normed_by::<T>(x, norm)?,
        residual: residual.map(|residual| residual.rows::<T>()).transpose()?,
        gated: false,
    };
    if bias.is_none() && activation == Activation::None && row.fits() {
        return row.launch(x, y.rows_mut::<T>()?);
    }
    let mut matmul = Matmul::default().activation(activation);
    if let Some(bias) = bias {
        matmul = matmul.bias(bias.view::<T, 1>()?);
    }
    if let Some(residual) = row.residual {
        matmul = matmul.residual(residual)?;
    }
    let (cx, weight) = (x.context(), row.weight.transpose(0, 1)?);
    match normed(x, row.x, row.norm)? {
        Some(normed) => product(cx, &matmul, normed.view(), weight, y.rows_mut::<T>()?),
        None => product(cx, &matmul, row.x, weight, y.rows_mut::<T>()?),
    }
}

/// The weight of a norm of rows `x`, of the right length.
fn normed_by<'a, T: Element + Float>(
    x: TensorRef<'_>,
    norm: Option<(TensorRef<'a>, f64)>,
) -> Result<Option<(TensorView<'a, T, 1>, f64)>> {
    let Some((norm, eps)) = norm else { return Ok(None) };
    let (weight, columns) = (norm.view::<T, 1>()?, x.dims().last().copied().unwrap_or(0));
    if weight.len() == columns {
        return Ok(Some((weight, eps)));
    }
    Err(norm.invalid(format!("has the shape {:?}", norm.dims()), format!("`x` has rows of {columns}")))
}

/// RMS norm of rows, as a tensor of its own.
fn normed<T: Element + Float>(
    at: TensorRef<'_>,
    x: TensorView<'_, T, 2>,
    norm: Option<(TensorView<'_, T, 1>, f64)>,
) -> Result<Option<Scratch<T, 2>>> {
    let Some((weight, eps)) = norm else { return Ok(None) };
    let mut normed = Scratch::empty(at.device(), x.shape())?;
    rms_norm_into(at.context(), x, &Norm::default().weight(weight).eps(eps), &mut normed)?;
    Ok(Some(normed))
}

/// A gated layer: `silu(a) * b`, with `a` and `b` the products of `norm(x)` with the first and the second half of the weight's rows. In
/// one launch where rows are few, as in decoding. Without gradients.
///
/// # Shapes and dtypes
///
/// `x` is `[.., k]` of f16, bf16, f32 or f64 with rows at one distance, `weight` `[2 n, k]` of the same dtype, and the norm's
/// weight `[k]`; the result is `[.., n]`.
///
/// # Errors
///
/// As [`linear`](super::linear()), and of tensors that require a gradient.
pub fn fused_swiglu(x: &Tensor, weight: &Tensor, norm: Option<(&Tensor, f64)>) -> candle_core::Result<Tensor> {
    let inputs = [Some(("x", x)), Some(("weight", weight)), norm.map(|(norm, _)| ("norm", norm))];
    let outputs = |[x, weight, _]: [Option<TensorRef<'_>>; 3]| {
        let (x, weight) = (given(x)?, given(weight)?);
        match weight.shape()? {
            [rows, k] if rows.is_multiple_of(2) => Ok([projected_columns(x, weight.name(), [k, rows / 2])?]),
            shape => Err(weight.invalid(format!("has the shape {shape:?}"), "rows come in two halves of one size")),
        }
    };
    let [y] = call_with("fused_swiglu", inputs, outputs, |[x, weight, norm_weight], [y]| {
        let (x, weight) = (given(x)?, given(weight)?);
        let norm = norm_weight.zip(norm.map(|(_, eps)| eps));
        dispatch!(x => T in [f16, bf16, f32, f64] { gated::<T>(x, weight, norm, y) })
    })?;
    Ok(y)
}

fn gated<T: Element + Float>(
    x: TensorRef<'_>,
    weight: TensorRef<'_>,
    norm: Option<(TensorRef<'_>, f64)>,
    y: TensorMut<'_>,
) -> Result<()> {
    let (rows, norm, cx) = (x.rows::<T>()?, normed_by::<T>(x, norm)?, x.context());
    let row = RowProduct { x: rows, weight: weight.view::<T, 2>()?, norm, residual: None, gated: true };
    if row.fits() {
        return row.launch(x, y.rows_mut::<T>()?);
    }
    let (y, weight) = (y.rows_mut::<T>()?, row.weight.transpose(0, 1)?);
    let [m, n] = y.shape();
    let mut both = Scratch::<T, 2>::empty(x.device(), [m, 2 * n])?;
    match normed(x, rows, norm)? {
        Some(normed) => product(cx, &Matmul::default(), normed.view(), weight, both.view_mut())?,
        None => product(cx, &Matmul::default(), rows, weight, both.view_mut())?,
    }
    swiglu_into(cx, both.view().narrow(1, 0..n)?, both.view().narrow(1, n..2 * n)?, y)
}
