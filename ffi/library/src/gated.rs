//! Gated activations.

use crate::views::{context, rows, rows_mut, same_outer, same_shape};
use tilewright::prelude::*;
use tilewright_ffi::Error;
use tilewright_ffi::prelude::*;
use tilewright_kernels::TensorView;
use tilewright_kernels::rows::{self as library, Gelu};

/// `silu(gate) * x`. Both may be parts of the rows of one tensor.
#[op(out(y: like(x)), backward = swiglu_backward, vmap = broadcast_all)]
pub fn swiglu(gate: TensorRef<'_>, x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    same_shape(&gate, &x)?;
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        Ok(library::swiglu_into(&context(&x), rows::<T>(&gate)?, rows::<T>(&x)?, rows_mut::<T>(y)?)?)
    })
}

/// The gradients of [`swiglu`].
#[op(out(d_gate: like(gate), d_x: like(x)), vmap = broadcast_all)]
pub fn swiglu_backward(
    d_y: TensorRef<'_>,
    gate: TensorRef<'_>,
    x: TensorRef<'_>,
    d_gate: TensorMut<'_>,
    d_x: TensorMut<'_>,
) -> Result<()> {
    same_shape(&gate, &x)?;
    same_shape(&d_y, &x)?;
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let (d_gate, d_x) = (rows_mut::<T>(d_gate)?, rows_mut::<T>(d_x)?);
        Ok(library::swiglu_backward_into(&context(&x), rows::<T>(&gate)?, rows::<T>(&x)?, rows::<T>(&d_y)?, d_gate, d_x)?)
    })
}

/// The halves of the rows of a tensor.
fn halves<'a, T: DType>(x: &TensorRef<'a>) -> Result<[TensorView<'a, T, 2>; 2]> {
    let (x, (_, columns)) = (rows::<T>(x)?, x.rows());
    Ok([x.narrow(1, 0..columns / 2)?, x.narrow(1, columns / 2..columns / 2 * 2)?])
}

/// `silu(gate) * up`, where the rows of `x`, `[.., 2 * columns]`, have `gate` in their first half and `up` in the second, as a
/// product makes them that has the weights of both. The gradient is one tensor too, which nobody has to put together.
#[op(out(y: x.dtype[..x.shape[..-1], x.shape[-1] / 2]), backward = swiglu_halves_backward, vmap = broadcast_all)]
pub fn swiglu_halves(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    if x.shape().last().is_none_or(|columns| columns % 2 != 0) {
        return Err(Error::argument("x", format_args!("has shape {:?}", x.shape()), "an even last dimension"));
    }
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let [gate, up] = halves::<T>(&x)?;
        Ok(library::swiglu_into(&context(&x), gate, up, rows_mut::<T>(y)?)?)
    })
}

/// The gradient of [`swiglu_halves`].
#[op(out(d_x: x.dtype[..x.shape[..-1], x.shape[-1]]), vmap = broadcast_all)]
pub fn swiglu_halves_backward(d_y: TensorRef<'_>, x: TensorRef<'_>, d_x: TensorMut<'_>) -> Result<()> {
    same_outer(&d_y, &x, 1)?;
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        Ok(library::swiglu_backward_halves_into(&context(&x), rows::<T>(&x)?, rows::<T>(&d_y)?, rows_mut::<T>(d_x)?)?)
    })
}

fn gelu(approximate: &str) -> Result<Gelu> {
    match approximate {
        "none" => Ok(Gelu::Erf),
        "tanh" => Ok(Gelu::Tanh),
        other => Err(Error::argument("approximate", format_args!("is \"{other}\""), "\"none\", \"tanh\"")),
    }
}

/// `gelu(gate) * x`, with the error function or, where `approximate` is `"tanh"`, with the hyperbolic tangent.
#[op(out(y: like(x)), backward = geglu_backward, vmap = broadcast_all)]
pub fn geglu(
    gate: TensorRef<'_>,
    x: TensorRef<'_>,
    y: TensorMut<'_>,
    #[default("none")] approximate: &str,
) -> Result<()> {
    same_shape(&gate, &x)?;
    let gelu = gelu(approximate)?;
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        Ok(library::geglu_into(&context(&x), rows::<T>(&gate)?, rows::<T>(&x)?, gelu, rows_mut::<T>(y)?)?)
    })
}

/// The gradients of [`geglu`].
#[op(out(d_gate: like(gate), d_x: like(x)), vmap = broadcast_all)]
pub fn geglu_backward(
    d_y: TensorRef<'_>,
    gate: TensorRef<'_>,
    x: TensorRef<'_>,
    d_gate: TensorMut<'_>,
    d_x: TensorMut<'_>,
    approximate: &str,
) -> Result<()> {
    same_shape(&gate, &x)?;
    same_shape(&d_y, &x)?;
    let gelu = gelu(approximate)?;
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let (cx, d_y) = (context(&x), rows::<T>(&d_y)?);
        let (d_gate, d_x) = (rows_mut::<T>(d_gate)?, rows_mut::<T>(d_x)?);
        Ok(library::geglu_backward_into(&cx, rows::<T>(&gate)?, rows::<T>(&x)?, gelu, d_y, d_gate, d_x)?)
    })
}
