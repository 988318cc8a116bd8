//! Products of matrices.

use super::fused::{Around, multiplied};
use crate::prelude::*;
use tilewright_kernels::general::contiguous;
use tilewright_kernels::products::Matmul;
use tilewright_kernels::{Context, Tensor as Scratch, TensorView, TensorViewMut};

candle_op! {
    /// `x @ weight^T`: a linear layer, of weights as candle's `Linear` has them.
    ///
    /// ```
    /// use candle_core::{Device, Tensor};
    ///
    /// # fn main() -> candle_core::Result<()> {
    /// let x = Tensor::new(&[[[1f32, 2.0], [3.0, 4.0]]], &Device::Cpu)?;
    /// let weight = Tensor::new(&[[1f32, 0.0], [0.0, -1.0], [1.0, 1.0]], &Device::Cpu)?;
    /// let y = tilewright_candle::products::linear(&x, &weight)?;
    /// assert_eq!(y.to_vec3::<f32>()?, [[[1.0, -2.0, 3.0], [3.0, -4.0, 7.0]]]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Shapes and dtypes
    ///
    /// `x` is `[.., k]` of f16, bf16, f32 or f64 with rows at one distance, `weight` `[n, k]` of the same dtype and any strides; the
    /// result is `[.., n]`.
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes, of rows with gaps; those of launches.
    pub fn linear(x, weight) -> (y: projected(x, weight)?) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            multiplied::<T>(x, weight, Around::default(), y)
        })
    }
    backward(dy) -> (x: dx, weight: dweight) {
        dispatch!(x => T in [f16, bf16, f32, f64] {
            let (cx, plain, dy) = (x.context(), Matmul::default(), dy.rows::<T>()?);
            product(cx, &plain, dy, weight.view::<T, 2>()?, dx.rows_mut::<T>()?)?;
            product(cx, &plain, dy.transpose(0, 1)?, x.rows::<T>()?, dweight.view_mut::<T, 2>()?)
        })
    }
}

/// The dtype and shape of a linear layer's result.
pub(super) fn projected(x: TensorRef<'_>, weight: TensorRef<'_>) -> Result<Spec> {
    let [n, k] = weight.shape()?;
    projected_columns(x, weight.name(), [k, n])
}

/// The same of weights that multiply `k` numbers and give `n`.
pub(super) fn projected_columns(x: TensorRef<'_>, weight: &str, [k, n]: [usize; 2]) -> Result<Spec> {
    match x.dims() {
        [outer @ .., last] if *last == k => Ok(Spec::new(x.dtype(), [outer, &[n]].concat())),
        shape => {
            let hint = format!("`{weight}` multiplies {k} numbers: the last dimension has as many");
            Err(x.invalid(format!("has the shape {shape:?}"), hint))
        }
    }
}

/// A product, with room for programs that share tiles where there are any.
pub(super) fn product<T: Float, const M: usize, const N: usize>(
    cx: &Context,
    matmul: &Matmul<'_, T>,
    a: TensorView<'_, T, M>,
    b: TensorView<'_, T, N>,
    out: TensorViewMut<'_, T, M>,
) -> Result<()> {
    match matmul.workspace(cx, a, b)? {
        0 => matmul.run_into(cx, a, b, out),
        room => matmul.run_into_with(cx, a, b, out, &mut Scratch::<f32, 1>::empty(cx.device(), [room])?),
    }
}

candle_op! {
    /// `a @ b`, of one pair of matrices or several.
    ///
    /// # Shapes and dtypes
    ///
    /// `a` is `[m, k]` and `b` `[k, n]`, or `a` is `[batch, m, k]` and `b` `[batch, k, n]` or `[k, n]`, of f16, bf16, f32 or f64
    /// and any strides: `a.matmul(&b.t()?)` is this with the same transpose.
    ///
    /// # Errors
    ///
    /// Of other dtypes and shapes; those of launches.
    pub fn matmul(a, b) -> (y: matrix(a, b)?) {
        dispatch!(a => T in [f16, bf16, f32, f64] {
            let (cx, plain) = (a.context(), Matmul::default());
            match (a.dims().len(), b.dims().len()) {
                (3, 3) => product(cx, &plain, a.view::<T, 3>()?, b.view::<T, 3>()?, y.view_mut()?),
                (3, _) => product(cx, &plain, a.view::<T, 3>()?, b.view::<T, 2>()?, y.view_mut()?),
                _ => product(cx, &plain, a.view::<T, 2>()?, b.view::<T, 2>()?, y.view_mut()?),
            }
        })
    }
    backward(dy) -> (a: da, b: db) {
        dispatch!(a => T in [f16, bf16, f32, f64] {
            let (cx, plain) = (a.context(), Matmul::default());
            match (a.dims().len(), b.dims().len()) {
                (3, 3) => {
                    let (a, b, dy) = (a.view::<T, 3>()?, b.view::<T, 3>()?, dy.view::<T, 3>()?);
                    product(cx, &plain, dy, b.transpose(1, 2)?, da.view_mut()?)?;
                    product(cx, &plain, a.transpose(1, 2)?, dy, db.view_mut()?)
                }
                (3, _) => {
                    let (rows, b) = (a.rows::<T>(), b.view::<T, 2>()?);
                    product(cx, &plain, dy.view::<T, 3>()?, b.transpose(0, 1)?, da.view_mut()?)?;
                    match rows {
                        Ok(rows) => product(cx, &plain, rows.transpose(0, 1)?, dy.rows::<T>()?, db.view_mut()?),
                        // One matrix of all rows needs them at one distance.
                        Err(_) => {
                            let whole = contiguous(cx, a.view::<T, 3>()?)?;
                            let [batch, m, k] = whole.shape();
                            let rows = whole.view().reshape([batch * m, k])?;
                            product(cx, &plain, rows.transpose(0, 1)?, dy.rows::<T>()?, db.view_mut()?)
                        }
                    }
                }
                _ => {
                    let (a, b, dy) = (a.view::<T, 2>()?, b.view::<T, 2>()?, dy.view::<T, 2>()?);
                    product(cx, &plain, dy, b.transpose(0, 1)?, da.view_mut()?)?;
                    product(cx, &plain, a.transpose(0, 1)?, dy, db.view_mut()?)
                }
            }
        })
    }
}

fn matrix(a: TensorRef<'_>, b: TensorRef<'_>) -> Result<Spec> {
    match (a.dims(), b.dims()) {
        (&[m, k], &[rows, n]) if k == rows => Ok(Spec::new(a.dtype(), (m, n))),
        (&[batch, m, k], &[others, rows, n]) if k == rows && batch == others => Ok(Spec::new(a.dtype(), (batch, m, n))),
        (&[batch, m, k], &[rows, n]) if k == rows => Ok(Spec::new(a.dtype(), (batch, m, n))),
        (left, right) => Err(b.invalid(
            format!("has the shape {right:?} where `a` has {left:?}"),
            "[m, k] and [k, n], [batch, m, k] and [batch, k, n], or [batch, m, k] and [k, n] are accepted",
        )),
    }
}
