//! Rotary position embedding.

use crate::views::context;
use tilewright::prelude::*;
use tilewright_ffi::prelude::*;
use tilewright_kernels::rows::{self as library, Rotary};
use tilewright_kernels::{TensorView, TensorViewMut};

/// Rotary position embedding of `x`, `[batch, tokens, heads, dim]`: the two halves of a head, or with `interleaved` neighbours,
/// are rotated by the angle of the token's position. `cos` and `sin` are `[positions, dim / 2]`, in f32 or the dtype of `x`;
/// `positions`, `[batch, tokens]` in i32, says which row is whose, the token's index if it is not given.
#[op(out(y: like(x)), backward = rotary_backward)]
pub fn rotary(
    x: TensorRef<'_>,
    cos: TensorRef<'_>,
    sin: TensorRef<'_>,
    positions: Option<TensorRef<'_>>,
    y: TensorMut<'_>,
    #[default(false)] interleaved: bool,
) -> Result<()> {
    rotate(x, [cos, sin], positions, y, interleaved, false)
}

/// The gradient of [`rotary`]: the rotation back.
#[op(out(d_x: like(d_y)))]
pub fn rotary_backward(
    d_y: TensorRef<'_>,
    cos: TensorRef<'_>,
    sin: TensorRef<'_>,
    positions: Option<TensorRef<'_>>,
    d_x: TensorMut<'_>,
    interleaved: bool,
) -> Result<()> {
    rotate(d_y, [cos, sin], positions, d_x, interleaved, true)
}

/// [`rotary`] of `x` itself, which needs no memory beside it: with `backward` by the negative angles, the rotation back.
#[op]
pub fn rotary_in_place(
    x: TensorMut<'_>,
    cos: TensorRef<'_>,
    sin: TensorRef<'_>,
    positions: Option<TensorRef<'_>>,
    #[default(false)] interleaved: bool,
    #[default(false)] backward: bool,
) -> Result<()> {
    let (cx, options) = (context(&cos), options(positions, interleaved, backward)?);
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let x: TensorViewMut<'_, T, 4> = x.view_mut()?;
        if cos.dtype() == T::ELEMENT {
            library::rotary_in_place(&cx, x, cos.view::<T, 2>()?, sin.view::<T, 2>()?, &options)?;
        } else {
            library::rotary_in_place(&cx, x, cos.view::<f32, 2>()?, sin.view::<f32, 2>()?, &options)?;
        }
        Ok(())
    })
}

fn options(positions: Option<TensorRef<'_>>, interleaved: bool, backward: bool) -> Result<Rotary<'_>> {
    let options = Rotary::default();
    let options = if interleaved { options.interleaved() } else { options };
    let options = if backward { options.backward() } else { options };
    Ok(match positions {
        Some(positions) => options.positions(positions.view::<i32, 2>()?),
        None => options,
    })
}

fn rotate(
    x: TensorRef<'_>,
    [cos, sin]: [TensorRef<'_>; 2],
    positions: Option<TensorRef<'_>>,
    y: TensorMut<'_>,
    interleaved: bool,
    backward: bool,
) -> Result<()> {
    let options = options(positions, interleaved, backward)?;
    let cx = context(&x);
    dispatch!(x.dtype() => T in [f32, f16, bf16, f64] {
        let (from, to): (TensorView<'_, T, 4>, TensorViewMut<'_, T, 4>) = (x.view()?, y.view_mut()?);
        if cos.dtype() == T::ELEMENT {
            library::rotary_into(&cx, from, cos.view::<T, 2>()?, sin.view::<T, 2>()?, &options, to)?;
        } else {
            library::rotary_into(&cx, from, cos.view::<f32, 2>()?, sin.view::<f32, 2>()?, &options, to)?;
        }
        Ok(())
    })
}
