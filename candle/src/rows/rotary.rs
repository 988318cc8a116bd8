//! Rotary position embedding.

use crate::prelude::*;
use candle_core::Device as CandleDevice;
use tilewright_kernels::rows::{self, Pairs, Rotary};
use tilewright_kernels::{TensorView, TensorViewMut};

/// Tables of [`rotary`]: the cosines and sines of `position * theta^(-2 i / dim)`, `[positions, dim / 2]` of f32 each.
///
/// # Errors
///
/// Those of the device's memory.
pub fn rotary_tables(
    positions: usize,
    dim: usize,
    theta: f64,
    device: &CandleDevice,
) -> candle_core::Result<(Tensor, Tensor)> {
    let angle = |at: usize| (at / (dim / 2)) as f64 * theta.powf(-2.0 * (at % (dim / 2)) as f64 / dim as f64);
    let table = |f: fn(f64) -> f64| {
        let numbers: Vec<f32> = (0..positions * (dim / 2)).map(|at| f(angle(at)) as f32).collect();
        Tensor::from_vec(numbers, (positions, dim / 2), device)
    };
    Ok((table(f64::cos)?, table(f64::sin)?))
}

candle_op! {
    /// Rotary position embedding (Su et al., "RoFormer", 2021): each pair `(a, b)` of a head becomes
    /// `(a cos - b sin, b cos + a sin)`, by the cosine and sine of the token's place and the pair.
    ///
    /// ```
    /// use candle_core::{DType, Device, Tensor};
    /// use tilewright_candle::rows::{Pairs, rotary, rotary_tables};
    ///
    /// # fn main() -> candle_core::Result<()> {
    /// let x = Tensor::ones((1, 2, 3, 4), DType::F32, &Device::Cpu)?; // batch, heads, tokens, elements of a head
    /// let (cos, sin) = rotary_tables(3, 4, 10_000.0, &Device::Cpu)?;
    /// let y = rotary(&x, &cos, &sin, Pairs::Halves)?;
    /// assert_eq!(y.narrow(2, 0, 1)?.flatten_all()?.to_vec1::<f32>()?, [1.0; 8]); // the first token is not turned
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Shapes and dtypes
    ///
    /// `x` is `[batch, heads, tokens, dim]` of f16, bf16, f32 or f64; only its last dimension needs to be contiguous. `cos` and
    /// `sin` are `[positions, dim / 2]` of any of these dtypes, one row for each token at least. [`Pairs::Halves`] is candle's
    /// `rope`, [`Pairs::Interleaved`] its `rope_i`.
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes; those of launches.
    pub fn rotary(x, cos, sin; pairs: Pairs) -> (y: like(x)) {
        turned(x, [cos, sin], &Rotary::default().pairs(pairs), y)
    }
    backward(dy) -> (x: dx) {
        turned(dy, [cos, sin], &Rotary::default().pairs(pairs).backward(), dx)
    }
}

candle_op! {
    /// [`rotary`] of tokens whose positions, rows of the tables, are in a tensor `[batch, tokens]` of u32 or i32.
    ///
    /// # Errors
    ///
    /// As [`rotary`], and of tensors that require a gradient. A position outside the tables is an error of the launch.
    pub fn rotary_at(x, cos, sin, positions; pairs: Pairs) -> (y: like(x)) {
        turned(x, [cos, sin], &Rotary::default().pairs(pairs).positions(positions.indices::<2>()?), y)
    }
}

candle_op! {
    /// [`rotary`] in place.
    ///
    /// # Errors
    ///
    /// As [`rotary`], and of tensors that require a gradient.
    pub fn rotary_in_place(mut x, cos, sin; pairs: Pairs) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            dispatch!(cos => C in [f16, bf16, f32, f64] {
                let (cx, x) = (x.context(), tokens_first(x.view_mut::<T, 4>()?)?);
                let options = Rotary::default().pairs(pairs);
                rows::rotary_in_place(cx, x, cos.view::<C, 2>()?, sin.view::<C, 2>()?, &options)
            })
        })
    }
}

/// `x`, turned, into `y`.
fn turned(x: TensorRef<'_>, [cos, sin]: [TensorRef<'_>; 2], options: &Rotary<'_>, y: TensorMut<'_>) -> Result<()> {
    dispatch!(x => T in [f16, bf16, f32, f64] {
        dispatch!(cos => C in [f16, bf16, f32, f64] {
            let from: TensorView<'_, T, 4> = x.view::<T, 4>()?.transpose(1, 2)?;
            let to = tokens_first(y.view_mut::<T, 4>()?)?;
            rows::rotary_into(x.context(), from, cos.view::<C, 2>()?, sin.view::<C, 2>()?, options, to)
        })
    })
}

/// `[batch, heads, tokens, dim]` as the library has it, `[batch, tokens, heads, dim]`.
fn tokens_first<T: DType>(x: TensorViewMut<'_, T, 4>) -> Result<TensorViewMut<'_, T, 4>> {
    x.transpose(1, 2)
}
