//! Layer norm, RMS norm, and RMS norm of a sum.

use crate::views::{context, rows, rows_mut, same_shape, vector, vector_mut};
use tilewright::prelude::*;
use tilewright_ffi::prelude::*;
use tilewright_kernels::rows::{self as library, Norm, NormGradientsMut, norm_programs};
use tilewright_kernels::{Context, TensorView, TensorViewMut};

fn norm<'a, T: Float>(
    weight: Option<TensorView<'a, T, 1>>,
    bias: Option<TensorView<'a, T, 1>>,
    eps: f64,
) -> Norm<'a, T> {
    let norm = Norm::default().eps(eps);
    let norm = if let Some(weight) = weight { norm.weight(weight) } else { norm };
    if let Some(bias) = bias { norm.bias(bias) } else { norm }
}

/// The layer norm of the last dimension, with a weight and a bias for each column.
#[op(out(y: like(x)), backward = layer_norm_backward)]
pub fn layer_norm(
    x: TensorRef<'_>,
    weight: Option<TensorRef<'_>>,
    bias: Option<TensorRef<'_>>,
    y: TensorMut<'_>,
    #[default(1e-5)] eps: f64,
) -> Result<()> {
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let norm = norm(vector::<T>(weight)?, vector(bias)?, eps);
        Ok(library::layer_norm_into(&context(&x), rows::<T>(&x)?, &norm, rows_mut::<T>(y)?)?)
    })
}

/// The gradients of [`layer_norm`].
#[op(out(d_x: like(x), d_weight: like(weight), d_bias: like(bias)))]
#[allow(clippy::too_many_arguments)]
pub fn layer_norm_backward(
    d_y: TensorRef<'_>,
    x: TensorRef<'_>,
    weight: Option<TensorRef<'_>>,
    bias: Option<TensorRef<'_>>,
    d_x: TensorMut<'_>,
    d_weight: Option<TensorMut<'_>>,
    d_bias: Option<TensorMut<'_>>,
    eps: f64,
    scratch: &Scratch<'_>,
) -> Result<()> {
    same_shape(&d_y, &x)?;
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let norm = norm(vector::<T>(weight)?, vector(bias)?, eps);
        let targets = Targets { d_x: rows_mut(d_x)?, d_weight: vector_mut(d_weight)?, d_bias: vector_mut(d_bias)? };
        let inputs = Inputs { x: rows::<T>(&x)?, d_y: rows(&d_y)?, d_sum: None };
        gradients(&context(&x), Kind::Layer, inputs, &norm, targets, scratch)
    })
}

/// The RMS norm of the last dimension, with a weight for each column.
#[op(out(y: like(x)), backward = rms_norm_backward)]
pub fn rms_norm(
    x: TensorRef<'_>,
    weight: Option<TensorRef<'_>>,
    y: TensorMut<'_>,
    #[default(1e-5)] eps: f64,
) -> Result<()> {
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let norm = norm(vector::<T>(weight)?, None, eps);
        Ok(library::rms_norm_into(&context(&x), rows::<T>(&x)?, &norm, rows_mut::<T>(y)?)?)
    })
}

/// The gradients of [`rms_norm`].
#[op(out(d_x: like(x), d_weight: like(weight)))]
pub fn rms_norm_backward(
    d_y: TensorRef<'_>,
    x: TensorRef<'_>,
    weight: Option<TensorRef<'_>>,
    d_x: TensorMut<'_>,
    d_weight: Option<TensorMut<'_>>,
    eps: f64,
    scratch: &Scratch<'_>,
) -> Result<()> {
    same_shape(&d_y, &x)?;
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let norm = norm(vector::<T>(weight)?, None, eps);
        let targets = Targets { d_x: rows_mut(d_x)?, d_weight: vector_mut(d_weight)?, d_bias: None };
        let inputs = Inputs { x: rows::<T>(&x)?, d_y: rows(&d_y)?, d_sum: None };
        gradients(&context(&x), Kind::Rms, inputs, &norm, targets, scratch)
    })
}

/// The RMS norm `y` of `sum = x + residual`, and that sum: what stands between the layers of a transformer.
#[op(out(y: like(x), sum: like(x)), backward = add_rms_norm_backward)]
pub fn add_rms_norm(
    x: TensorRef<'_>,
    residual: TensorRef<'_>,
    weight: Option<TensorRef<'_>>,
    y: TensorMut<'_>,
    sum: TensorMut<'_>,
    #[default(1e-5)] eps: f64,
) -> Result<()> {
    same_shape(&residual, &x)?;
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let norm = norm(vector::<T>(weight)?, None, eps);
        let (cx, residual) = (context(&x), rows::<T>(&residual)?);
        Ok(library::rms_norm_of_sum_into(&cx, rows::<T>(&x)?, residual, &norm, rows_mut::<T>(sum)?, rows_mut::<T>(y)?)?)
    })
}

/// The gradients of [`add_rms_norm`]. That of `x` is that of `residual` too. `d_sum` is left out where nothing depends on the sum.
#[op(out(d_x_and_residual: like(sum), d_weight: like(weight)))]
#[allow(clippy::too_many_arguments)]
pub fn add_rms_norm_backward(
    d_y: TensorRef<'_>,
    d_sum: Option<TensorRef<'_>>,
    sum: TensorRef<'_>,
    weight: Option<TensorRef<'_>>,
    d_x_and_residual: TensorMut<'_>,
    d_weight: Option<TensorMut<'_>>,
    eps: f64,
    scratch: &Scratch<'_>,
) -> Result<()> {
    same_shape(&d_y, &sum)?;
    if let Some(d_sum) = &d_sum {
        same_shape(d_sum, &sum)?;
    }
    dispatch!(sum.dtype() => T in [f32, f16, bf16, f64] {
        let (cx, norm) = (context(&sum), norm(vector::<T>(weight)?, None, eps));
        let d_x = rows_mut::<T>(d_x_and_residual)?;
        let targets = Targets { d_x, d_weight: vector_mut(d_weight)?, d_bias: None };
        let inputs = Inputs { x: rows::<T>(&sum)?, d_y: rows(&d_y)?, d_sum: d_sum.map(|d_sum| rows(&d_sum)).transpose()? };
        gradients(&cx, Kind::Rms, inputs, &norm, targets, scratch)
    })
}

/// Which norm.
#[derive(Clone, Copy)]
enum Kind {
    Layer,
    Rms,
}

/// What is read.
struct Inputs<'a, T: DType> {
    x: TensorView<'a, T, 2>,
    d_y: TensorView<'a, T, 2>,
    d_sum: Option<TensorView<'a, T, 2>>,
}

/// What is written.
struct Targets<'a, T: DType> {
    d_x: TensorViewMut<'a, T, 2>,
    d_weight: Option<TensorViewMut<'a, T, 1>>,
    d_bias: Option<TensorViewMut<'a, T, 1>>,
}

/// Sums over rows are kept in f32, those of f64 in f64.
fn gradients<T: Float>(
    cx: &Context,
    kind: Kind,
    inputs: Inputs<'_, T>,
    norm: &Norm<'_, T>,
    targets: Targets<'_, T>,
    scratch: &Scratch<'_>,
) -> Result<()> {
    if T::ELEMENT == f64::ELEMENT {
        gradients_with::<T, f64>(cx, kind, inputs, norm, targets, scratch)
    } else {
        gradients_with::<T, f32>(cx, kind, inputs, norm, targets, scratch)
    }
}

fn gradients_with<T: Float, P: Float>(
    cx: &Context,
    kind: Kind,
    Inputs { x, d_y, d_sum }: Inputs<'_, T>,
    norm: &Norm<'_, T>,
    targets: Targets<'_, T>,
    scratch: &Scratch<'_>,
) -> Result<()> {
    let [rows, columns] = x.shape();
    let sums = usize::from(targets.d_weight.is_some()) + usize::from(targets.d_bias.is_some());
    let parts = sums * norm_programs(cx, T::ELEMENT, rows, columns)?;
    let sums = TensorViewMut::new(scratch.take::<P>(parts * columns)?, [parts, columns])?;
    let gradients = NormGradientsMut { dx: targets.d_x, dweight: targets.d_weight, dbias: targets.d_bias, sums };
    match (kind, d_sum) {
        (Kind::Layer, _) => library::layer_norm_backward_into(cx, x, d_y, norm, gradients)?,
        (Kind::Rms, None) => library::rms_norm_backward_into(cx, x, d_y, norm, gradients)?,
        (Kind::Rms, Some(d_sum)) => library::add_rms_norm_backward_into(cx, x, d_y, d_sum, norm, gradients)?,
    }
    Ok(())
}
