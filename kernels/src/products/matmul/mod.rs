//! Products of matrices, with what often follows them.

#[cfg(test)]
mod code_tests;
mod config;
pub(in crate::products) mod kernels;
mod launch;
pub(crate) mod problem;

pub use config::MatmulConfig;
use config::{EndLoad, Machine, Work};

use super::Activation;
use crate::config::Key;
use crate::tensor::layout::Layout;
use crate::workspace::contiguous;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use launch::{Ends, Sums};
use problem::Problem;
use tilewright::prelude::*;
use tilewright::{ElementType, Result};

/// How factors of f32 are multiplied; those of other dtypes are multiplied exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Factors are rounded to 10 bits of fraction: products are within 2<sup>-10</sup>. The fastest.
    Tf32,
    /// Three products of tensor cores for each: within 2<sup>-20</sup>.
    Tf32x3,
    /// Six products of bf16: within 2<sup>-24</sup>, as f32 itself.
    #[default]
    Bf16x6,
    /// f32 arithmetic, without tensor cores.
    Ieee,
}

impl Precision {
    /// The number that kernels know it by.
    pub(super) const fn code(self) -> usize {
        self as usize
    }
}

/// `activation(a @ b * a_scale * b_scale + bias) + residual`, and how it is computed.
///
/// ```
/// use tilewright::prelude::*;
/// use tilewright_kernels::products::{Activation, Matmul};
/// use tilewright_kernels::{Context, Tensor};
///
/// # fn main() -> Result<(), Error> {
/// let cx = Context::new(&Device::best()?);
/// let x = Tensor::upload(cx.device(), &[1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
/// let w = Tensor::upload(cx.device(), &[1.0f32, 0.0, 0.0, -1.0], [2, 2])?;
/// let bias = Tensor::upload(cx.device(), &[0.5f32, 1.0], [2])?;
/// // Weights are often stored as `[outputs, inputs]`: their transpose is a view.
/// let w = w.view().transpose(0, 1)?;
/// let y = Matmul::default().bias(&bias).activation(Activation::Relu).run(&cx, &x, w)?;
/// assert_eq!(y.to_vec()?, [1.5f32, 0.0, 3.5, 0.0]);
/// # Ok(())
/// # }
/// ```
///
/// The result's dtype `R` is free: that of bias and residual, or of the tensor that is asked for. It is computed in f32 (f64
/// for factors of f64) and rounded once. Of factors of 8 bits Hopper's tensor cores keep 13 bits of fraction of sums, over all of
/// `k`; [`fp8::matmul_blocks`](super::fp8::matmul_blocks) adds up 128 products so, and these sums in f32.
#[derive(Debug, Clone, Copy)]
pub struct Matmul<'a, R: Float> {
    bias: Option<TensorView<'a, R, 1>>,
    residual: Option<TensorView<'a, R, 3>>,
    a_scale: Option<TensorView<'a, f32, 1>>,
    b_scale: Option<TensorView<'a, f32, 1>>,
    activation: Activation,
    precision: Precision,
}

impl<R: Float> Default for Matmul<'_, R> {
    fn default() -> Self {
        Matmul {
            bias: None,
            residual: None,
            a_scale: None,
            b_scale: None,
            activation: Activation::None,
            precision: Precision::default(),
        }
    }
}

impl<'a, R: Float> Matmul<'a, R> {
    /// Adds `bias[j]` to each column `j`, before the activation. Contiguous, `[n]`.
    pub fn bias(mut self, bias: impl Into<TensorView<'a, R, 1>>) -> Self {
        self.bias = Some(bias.into());
        self
    }

    /// Applies a function to each element.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Adds a tensor of the result's shape, after the activation. Any strides.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] never for views that exist.
    pub fn residual<const S: usize>(mut self, residual: impl Into<TensorView<'a, R, S>>) -> Result<Self> {
        self.residual = Some(problem::lifted(residual.into())?);
        Ok(self)
    }

    /// How factors of f32 are multiplied.
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        self
    }

    /// Multiplies sums by what the elements of `a` were divided by when they were quantised: `[1]`, one number for all, or
    /// `[m]`, one for each row. For matrices, not for several products.
    pub fn a_scale(mut self, scale: impl Into<TensorView<'a, f32, 1>>) -> Self {
        self.a_scale = Some(scale.into());
        self
    }

    /// The same for `b`: `[1]`, or `[n]`, one for each column.
    pub fn b_scale(mut self, scale: impl Into<TensorView<'a, f32, 1>>) -> Self {
        self.b_scale = Some(scale.into());
        self
    }

    /// Computes it. Where tiles are few, several programs share each: then sums of these are allocated too, as many f32 as
    /// [`Matmul::workspace`] says, until the product is done.
    ///
    /// # Shapes
    ///
    /// `a` is `[m, k]` and `b` is `[k, n]`; or `a` is `[batch, m, k]` and `b` is `[batch, k, n]` or `[k, n]`. One matrix
    /// is multiplied with all of the other side, whether it is `[1, ..]` or has a stride of 0. Any strides.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if shapes do not fit, [`Error::OutOfMemory`], those of a launch.
    pub fn run<'b, 'c, T: Float, const M: usize, const N: usize>(
        &self,
        cx: &Context,
        a: impl Into<TensorView<'b, T, M>>,
        b: impl Into<TensorView<'c, T, N>>,
    ) -> Result<Tensor<R, M>> {
        let (a, b) = (a.into(), b.into());
        let shape = problem::result(a.shape(), b.shape());
        self.problem(a.layout(), b.layout(), Layout::packed(shape))?;
        let mut out = Tensor::empty(cx.device(), shape)?;
        let mut sums = Tensor::<f32, 1>::empty(cx.device(), [self.workspace(cx, a, b)?])?;
        self.run_into_with(cx, a, b, &mut out, &mut sums)?;
        Ok(out)
    }

    /// [`Matmul::run`], into a tensor of the result's shape. Programs do not share tiles, as there is no room for their sums.
    ///
    /// # Errors
    ///
    /// As [`Matmul::run`].
    pub fn run_into<'b, 'c, 'd, T: Float, const M: usize, const N: usize>(
        &self,
        cx: &Context,
        a: impl Into<TensorView<'b, T, M>>,
        b: impl Into<TensorView<'c, T, N>>,
        out: impl Into<TensorViewMut<'d, R, M>>,
    ) -> Result<()> {
        self.compute(cx, a.into(), b.into(), out.into(), None)
    }

    /// [`Matmul::run_into`], with room for the sums of programs that share tiles: as many share one as there is room for.
    /// The order in which their sums are added up is always the same.
    ///
    /// # Errors
    ///
    /// As [`Matmul::run`], and [`Error::InvalidTensor`] if the workspace has gaps.
    pub fn run_into_with<'b, 'c, 'd, 'e, T: Float, const M: usize, const N: usize>(
        &self,
        cx: &Context,
        a: impl Into<TensorView<'b, T, M>>,
        b: impl Into<TensorView<'c, T, N>>,
        out: impl Into<TensorViewMut<'d, R, M>>,
        workspace: impl Into<TensorViewMut<'e, f32, 1>>,
    ) -> Result<()> {
        let workspace = contiguous("workspace", workspace.into())?;
        self.compute(cx, a.into(), b.into(), out.into(), Some(workspace))
    }

    /// How many f32 programs leave that share tiles; 0 where none do.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if shapes do not fit.
    pub fn workspace<'b, 'c, T: Float, const M: usize, const N: usize>(
        &self,
        cx: &Context,
        a: impl Into<TensorView<'b, T, M>>,
        b: impl Into<TensorView<'c, T, N>>,
    ) -> Result<usize> {
        let (a, b) = (a.into(), b.into());
        let shape = problem::result(a.shape(), b.shape());
        let problem = self.problem(a.layout(), b.layout(), Layout::packed(shape))?;
        let splits = self.config(cx, T::ELEMENT, &problem)?.splits;
        Ok(if splits > 1 { splits * problem.batch * problem.m * problem.n } else { 0 })
    }

    /// Checks shapes.
    fn problem<const M: usize, const N: usize>(&self, a: Layout<M>, b: Layout<N>, c: Layout<M>) -> Result<Problem> {
        let problem = Problem::new(a, b, c, self.residual.map(|view| view.layout()))?;
        if let Some(bias) = &self.bias {
            check::shape("bias", bias.shape(), [problem.n])?;
            if !bias.is_contiguous() {
                return Err(check::invalid("bias", "is not contiguous", "copy it with `general::contiguous` first"));
            }
        }
        for (name, scale, size) in [("a_scale", &self.a_scale, problem.m), ("b_scale", &self.b_scale, problem.n)] {
            let Some(scale) = scale else { continue };
            if scale.len() != 1 {
                check::shape(name, scale.shape(), [size])?;
            }
            if problem.batch != 1 {
                return Err(check::invalid(name, "is given for several products", "multiply one after the other"));
            }
            if !scale.is_contiguous() {
                return Err(check::invalid(name, "is not contiguous", "copy it with `general::contiguous` first"));
            }
        }
        Ok(problem)
    }

    fn config(&self, cx: &Context, dtype: ElementType, problem: &Problem) -> Result<MatmulConfig> {
        let &Problem { batch, m, n, k, .. } = problem;
        let ends =
            [self.bias.is_some(), self.activation != Activation::None, self.a_scale.is_some(), self.b_scale.is_some()];
        let ends = EndLoad::of(ends.iter().filter(|given| **given).count(), self.residual.is_some());
        let work = Work { dtype, precision: self.precision, ends };
        let choose = || MatmulConfig::choose(problem, work, Machine::of(cx.device()));
        let config = cx.config(Key::of(dtype, work.name(problem)), &[batch, m, n, k], choose)?;
        Ok(MatmulConfig { splits: if dtype == ElementType::F64 { 1 } else { config.splits.max(1) }, ..config })
    }

    fn compute<T: Float, const M: usize, const N: usize>(
        &self,
        cx: &Context,
        a: TensorView<'_, T, M>,
        b: TensorView<'_, T, N>,
        out: TensorViewMut<'_, R, M>,
        workspace: Option<TensorViewMut<'_, f32, 1>>,
    ) -> Result<()> {
        let problem = self.problem(a.layout(), b.layout(), out.layout())?;
        if out.is_empty() {
            return Ok(());
        }
        let config = self.config(cx, T::ELEMENT, &problem)?;
        let results = problem.batch * problem.m * problem.n;
        let room = workspace.as_ref().map_or(0, |workspace| workspace.len() / results);
        let splits = config.splits.min(room).max(1);
        let sums = Sums { cx, problem, config: MatmulConfig { splits, ..config }, precision: self.precision };
        let ends = Ends {
            a_scale: self.a_scale,
            b_scale: self.b_scale,
            bias: self.bias,
            residual: self.residual,
            activation: self.activation,
        };
        let (a, b, out) = (problem::lifted(a)?, problem::lifted(b)?, problem::lifted_mut(out)?);
        match workspace {
            Some(mut workspace) if splits > 1 => {
                sums.run(a, b, workspace.elements_mut(), &Ends::default())?;
                sums.finish(workspace.as_view().elements(), out, &ends)
            }
            _ => sums.run(a, b, out.elements(), &ends),
        }
    }
}

/// `out = a @ b`, for one pair of matrices or several.
///
/// # Shapes
///
/// `a` is `[m, k]` and `b` is `[k, n]`; or `a` is `[batch, m, k]` and `b` is `[batch, k, n]` or `[k, n]`. Any strides, so that
/// `a @ b^T` is the product with `b.view().transpose(0, 1)?`. The hardware's copies need a dimension without gaps and
/// the other at multiples of 16 bytes; other matrices are read through pointers.
///
/// # Gradients
///
/// They are products as well: of `y = a @ b` and `dy`, `da = dy @ b^T` and `db = a^T @ dy`, both of views.
///
/// # Numerics
///
/// Factors of 16 or 8 bits are multiplied exactly and summed in f32; those of f32 as [`Precision::default`] says, and f64 in
/// f64. The result is rounded once. [`Matmul`] chooses otherwise, and computes what often follows in the same pass.
///
/// # Errors
///
/// As [`Matmul::run`], which says also what is allocated.
pub fn matmul<'a, 'b, T: Float, const M: usize, const N: usize>(
    cx: &Context,
    a: impl Into<TensorView<'a, T, M>>,
    b: impl Into<TensorView<'b, T, N>>,
) -> Result<Tensor<T, M>> {
    Matmul::default().run(cx, a, b)
}

/// [`matmul`], into a tensor of the result's shape and any float dtype.
///
/// # Errors
///
/// As [`matmul`].
pub fn matmul_into<'a, 'b, 'c, T: Float, R: Float, const M: usize, const N: usize>(
    cx: &Context,
    a: impl Into<TensorView<'a, T, M>>,
    b: impl Into<TensorView<'b, T, N>>,
    out: impl Into<TensorViewMut<'c, R, M>>,
) -> Result<()> {
    Matmul::default().run_into(cx, a, b, out)
}
