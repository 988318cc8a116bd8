//! Products with what often follows them.

use crate::elementwise::kernels;
use crate::views::{context, rows, rows_mut, same_outer, vector};
use tilewright::prelude::*;
use tilewright_ffi::Error;
use tilewright_ffi::prelude::*;
use tilewright_kernels::products::{Activation, GatedMatmul, Matmul};
use tilewright_kernels::{Context, TensorView, TensorViewMut};

fn activation(name: &str) -> Result<Activation> {
    Ok(match name {
        "none" => Activation::None,
        "relu" => Activation::Relu,
        "gelu" => Activation::Gelu,
        "gelu_tanh" => Activation::GeluTanh,
        "silu" => Activation::Silu,
        other => {
            let known = "\"none\", \"relu\", \"gelu\", \"gelu_tanh\", \"silu\"";
            return Err(Error::argument("activation", format_args!("is \"{other}\""), known));
        }
    })
}

/// `activation(x @ weight^T + bias)` of `x`, `[.., inputs]`, and `weight`, `[outputs, inputs]`. The activation is `"none"`,
/// `"relu"`, `"gelu"`, `"gelu_tanh"` or `"silu"`. It has no gradient; [`linear`] has one.
#[op(out(y: x.dtype[..x.shape[..-1], weight.shape[0]]))]
pub fn linear_activation(
    x: TensorRef<'_>,
    weight: TensorRef<'_>,
    bias: Option<TensorRef<'_>>,
    y: TensorMut<'_>,
    #[default("none")] activation: &str,
    scratch: &Scratch<'_>,
) -> Result<()> {
    let activation = self::activation(activation)?;
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let weight = weights::<T>(&x, &weight)?.transpose(0, 1)?;
        let product = Matmul::default().activation(activation);
        let product = if let Some(bias) = vector::<T>(bias)? { product.bias(bias) } else { product };
        multiply(&context(&x), &product, rows::<T>(&x)?, weight, rows_mut(y)?, scratch)
    })
}

/// `x @ weight^T + bias` of `x`, `[.., inputs]`, and `weight`, `[outputs, inputs]`.
#[op(out(y: x.dtype[..x.shape[..-1], weight.shape[0]]), backward = linear_backward)]
pub fn linear(
    x: TensorRef<'_>,
    weight: TensorRef<'_>,
    bias: Option<TensorRef<'_>>,
    y: TensorMut<'_>,
    scratch: &Scratch<'_>,
) -> Result<()> {
    linear_activation(x, weight, bias, y, "none", scratch)
}

/// The gradients of [`linear`].
#[op(out(d_x: like(x), d_weight: like(weight), d_bias: like(bias)))]
#[allow(clippy::too_many_arguments)]
pub fn linear_backward(
    d_y: TensorRef<'_>,
    x: TensorRef<'_>,
    weight: TensorRef<'_>,
    bias: Option<TensorRef<'_>>,
    d_x: TensorMut<'_>,
    d_weight: TensorMut<'_>,
    d_bias: Option<TensorMut<'_>>,
    scratch: &Scratch<'_>,
) -> Result<()> {
    let ([outputs, _], cx) = (weight.dims()?, context(&x));
    if let Some(bias) = bias.filter(|bias| bias.shape() != [outputs]) {
        let given = format!("has shape {:?}", bias.shape());
        return Err(Error::argument("bias", given, format!("[{outputs}], a number per output")));
    }
    same_outer(&d_y, &x, 1)?;
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let weight = weights::<T>(&x, &weight)?;
        let (x, d_y) = (rows::<T>(&x)?, rows::<T>(&d_y)?);
        multiply(&cx, &Matmul::default(), d_y, weight, rows_mut::<T>(d_x)?, scratch)?;
        multiply(&cx, &Matmul::default(), d_y.transpose(0, 1)?, x, d_weight.view_mut::<T, 2>()?, scratch)?;
        if let Some(d_bias) = d_bias {
            kernels::add_rows(cx.device(), d_y, d_bias.flat_mut::<T>()?)?;
        }
        Ok(())
    })
}

/// `silu(gate) * up` of `x`, `[.., inputs]`, where the first half of the rows of `weight`, `[2 * outputs, inputs]`, makes
/// `gate = x @ weight^T` and the second `up`: products and gate in one pass. It has no gradient;
/// [`linear_swiglu_keeping`] keeps what gradients need.
#[op(out(y: x.dtype[..x.shape[..-1], weight.shape[0] / 2]))]
pub fn linear_swiglu(x: TensorRef<'_>, weight: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let weight = both_halves::<T>(&x, &weight)?;
        Ok(GatedMatmul::default().run_into(&context(&x), rows::<T>(&x)?, weight, rows_mut(y)?)?)
    })
}

/// [`linear_swiglu`], and `products = x @ weight^T`, `[.., 2 * outputs]`. The gradient of `products` is
/// [`swiglu_halves_backward`](crate::gated::swiglu_halves_backward) of that of `y`, and those of `x` and `weight` are products of
/// it.
#[op(out(y: x.dtype[..x.shape[..-1], weight.shape[0] / 2], products: x.dtype[..x.shape[..-1], weight.shape[0]]))]
pub fn linear_swiglu_keeping(
    x: TensorRef<'_>,
    weight: TensorRef<'_>,
    y: TensorMut<'_>,
    products: TensorMut<'_>,
) -> Result<()> {
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let weight = both_halves::<T>(&x, &weight)?;
        let (products, y) = (rows_mut(products)?, rows_mut(y)?);
        Ok(GatedMatmul::default().run_into_keeping(&context(&x), rows::<T>(&x)?, weight, products, y)?)
    })
}

/// The weights of a gate and of what it multiplies, as a product takes them.
fn both_halves<'a, T: DType>(x: &TensorRef<'_>, weight: &TensorRef<'a>) -> Result<TensorView<'a, T, 2>> {
    if weight.shape().first().is_none_or(|rows| rows % 2 != 0) {
        let problem = format_args!("has shape {:?}", weight.shape());
        return Err(Error::argument("weight", problem, "an even first dimension"));
    }
    Ok(weights::<T>(x, weight)?.transpose(0, 1)?)
}

/// Weights, `[outputs, inputs]`, of the inputs that `x` has.
fn weights<'a, T: DType>(x: &TensorRef<'_>, weight: &TensorRef<'a>) -> Result<TensorView<'a, T, 2>> {
    let (view, (_, inputs)) = (weight.view::<T, 2>()?, x.rows());
    if view.shape()[1] == inputs {
        return Ok(view);
    }
    let accepted = format!("[outputs, {inputs}], as `x` has shape {:?}", x.shape());
    Err(Error::argument("weight", format_args!("has shape {:?}", weight.shape()), accepted))
}

/// A product, with room for the sums of programs that share a tile.
fn multiply<T: Float>(
    cx: &Context,
    product: &Matmul<'_, T>,
    a: TensorView<'_, T, 2>,
    b: TensorView<'_, T, 2>,
    out: TensorViewMut<'_, T, 2>,
    scratch: &Scratch<'_>,
) -> Result<()> {
    let room = product.workspace(cx, a, b)?;
    if room == 0 {
        return Ok(product.run_into(cx, a, b, out)?);
    }
    let workspace = TensorViewMut::new(scratch.take::<f32>(room)?, [room])?;
    Ok(product.run_into_with(cx, a, b, out, workspace)?)
}
