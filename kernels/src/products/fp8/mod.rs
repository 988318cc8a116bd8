//! Products of 8-bit floats with scales: per tensor, per row and column, or per block of 128.

#[cfg(test)]
mod code_tests;
mod kernels;
mod launch;
mod quantise;

pub use launch::{Fp8BlocksConfig, matmul_blocks, matmul_blocks_into};
pub use quantise::{
    BLOCK, LARGEST, quantise_blocks, quantise_blocks_into, quantise_rows, quantise_rows_into, quantise_squares,
    quantise_squares_into, quantise_tensor, quantise_tensor_into, quantise_tensor_into_with,
};

use super::Matmul;
use crate::{Context, Tensor, TensorView, TensorViewMut};
use tilewright::Result;
use tilewright::prelude::*;

/// `(a * a_scale) @ (b * b_scale)` with scales per tensor, or per row of `a` and per column of `b`.
///
/// # Shapes
///
/// `a` is `[m, k]` and `b` is `[k, n]`; `a_scale` is `[1]` or `[m]`, `b_scale` is `[1]` or `[n]`. Weights that are stored as
/// `[n, k]` are the fastest: give their transpose as a view. The result is `[m, n]`, of any float dtype. [`Matmul`] adds a
/// bias, a function and a residual in the same pass.
///
/// # Numerics
///
/// Products are exact; sums are multiplied by both scales at the end. They are in f32 but on Hopper, whose tensor cores keep 13
/// bits of fraction of what they add up, over all of `k`. [`matmul_blocks`] adds what they have of each 128 neighbours in f32.
///
/// # Errors
///
/// As [`Matmul::run`].
pub fn matmul<'a, 'b, 'c, 'd, F: Float, R: Float>(
    cx: &Context,
    a: impl Into<TensorView<'a, F, 2>>,
    a_scale: impl Into<TensorView<'b, f32, 1>>,
    b: impl Into<TensorView<'c, F, 2>>,
    b_scale: impl Into<TensorView<'d, f32, 1>>,
) -> Result<Tensor<R, 2>> {
    let (a_scale, b_scale) = (a_scale.into(), b_scale.into());
    Matmul::default().a_scale(a_scale).b_scale(b_scale).run(cx, a, b)
}

/// [`matmul`], into a tensor of the result's shape. Nothing is allocated: programs do not share tiles, as there is no room for their
/// sums; [`Matmul::run_into_with`] takes some.
///
/// # Errors
///
/// As [`matmul`], and [`Error::InvalidTensor`] if the shape of `out` does not fit.
pub fn matmul_into<'a, 'b, 'c, 'd, 'e, F: Float, R: Float>(
    cx: &Context,
    a: impl Into<TensorView<'a, F, 2>>,
    a_scale: impl Into<TensorView<'b, f32, 1>>,
    b: impl Into<TensorView<'c, F, 2>>,
    b_scale: impl Into<TensorView<'d, f32, 1>>,
    out: impl Into<TensorViewMut<'e, R, 2>>,
) -> Result<()> {
    let (a_scale, b_scale) = (a_scale.into(), b_scale.into());
    Matmul::default().a_scale(a_scale).b_scale(b_scale).run_into(cx, a, b, out)
}
