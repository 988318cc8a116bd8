//! Gradients of attention of rotated queries and keys, of what they were before.

use super::results::Results;
use super::{Attention, Gradients, Launch, Saved, allocating, launch};
use crate::attention::shape::{Problem, tile_dim};
use crate::rows::{Rotary, rotary_in_place};
use crate::{Context, TensorView, TensorViewMut, check};
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, View};

/// How queries and keys were rotated before attention: as [`rotary`](crate::rows::rotary) rotates the halves of heads. A key's
/// position is its index, a query's is its index and `keys - queries` more: queries and keys end together, as in causal attention.
#[derive(Debug, Clone, Copy)]
pub struct Rotation<'a, C: DType> {
    /// Cosines, `[positions, d / 2]`, without gaps.
    pub cos: TensorView<'a, C, 2>,
    /// Sines, of the same shape.
    pub sin: TensorView<'a, C, 2>,
}

impl<'a, C: Float> Rotation<'a, C> {
    /// # Errors
    /// If there are more queries than keys, if heads cannot be halved, or if the tables do not have a row for each key.
    pub(super) fn check(&self, problem: &Problem) -> Result<()> {
        let Problem { batch, queries, keys, d, .. } = *problem;
        if queries > keys {
            let hint = format!("queries end with the keys, of which there are {keys}, so that each has a position");
            return Err(check::invalid("q", format!("has {queries} rows"), hint));
        }
        if d % 2 != 0 {
            let hint = "their number is even: elements are rotated in pairs";
            return Err(check::invalid("q", format!("has heads of {d} elements"), hint));
        }
        check::size("k", batch.saturating_mul(keys))?;
        check::shape("sin", self.sin.shape(), self.cos.shape())?;
        let [rows, columns] = self.cos.shape();
        if columns != d / 2 || rows < keys {
            let problem = format!("has the shape {:?}", self.cos.shape());
            let hint = format!("give a row of {} cosines for each position, {keys} rows at least", d / 2);
            return Err(check::invalid("cos", problem, hint));
        }
        check::packed("cos", &self.cos)?;
        check::packed("sin", &self.sin)
    }

    /// The rows of positions from `first` on.
    fn from(&self, first: usize) -> Result<Self> {
        let rows = first..self.cos.shape()[0];
        Ok(Rotation { cos: self.cos.narrow(0, rows.clone())?, sin: self.sin.narrow(0, rows)? })
    }

    /// Gradients, `[batch, heads, tokens, d]`, rotated back where they are.
    fn turn_back<T: Float>(&self, cx: &Context, gradients: TensorViewMut<'_, T, 4>) -> Result<()> {
        let gradients = gradients.permute([0, 2, 1, 3])?;
        rotary_in_place(cx, gradients, self.cos, self.sin, &Rotary::default().backward())
    }
}

/// Cosines and sines as arguments of a kernel.
pub(super) fn tables<'a, C: Float>(rotation: Option<Rotation<'a, C>>) -> [MaybeView<'a, C>; 2] {
    let (cos, sin): (Option<View<'a, C>>, Option<View<'a, C>>) =
        rotation.map(|rotation| (rotation.cos.elements(), rotation.sin.elements())).unzip();
    [MaybeView::from(cos), MaybeView::from(sin)]
}

impl<'a, T: Float, C: Float> Launch<'a, T, C> {
    /// What the kernel of all gradients rotates those of keys by: a thread has both elements of a pair where tiles have no more
    /// columns than heads.
    pub(super) fn of_keys_in_registers(&self) -> Option<Rotation<'a, C>> {
        self.rotation.filter(|_| self.problem.d == tile_dim(self.problem.d))
    }

    /// The tables for queries.
    pub(super) fn of_queries(&self) -> Result<Option<Rotation<'a, C>>> {
        let Problem { queries, keys, .. } = self.problem;
        self.rotation.map(|rotation| rotation.from(keys - queries)).transpose()
    }

    /// Rotates gradients of keys that lie in memory.
    pub(super) fn turn_keys_back(&self, cx: &Context, dk: TensorViewMut<'_, T, 4>) -> Result<()> {
        self.rotation.map_or(Ok(()), |rotation| rotation.turn_back(cx, dk))
    }

    /// Rotates gradients of queries that lie in memory.
    pub(super) fn turn_queries_back(&self, cx: &Context, dq: TensorViewMut<'_, T, 4>) -> Result<()> {
        self.of_queries()?.map_or(Ok(()), |rotation| rotation.turn_back(cx, dq))
    }
}

/// [`backward`](super::backward) where queries and keys were rotated before: `saved.q` and `saved.k` are the rotated ones,
/// gradients are those of what they were before.
///
/// Where one kernel computes all gradients, they are rotated before they are rounded, those of keys if `d` is a power of two from
/// 16 on. Elsewhere [`rotary_in_place`](crate::rows::rotary_in_place) rotates them in memory. The workspace is that of
/// [`backward_workspace`](super::backward_workspace).
///
/// # Shapes
///
/// Those of [`backward`](super::backward), with an even `d` and as many keys as queries or more; the tables are
/// `[positions, d / 2]`, of any float dtype, with a row for each key at least.
///
/// # Errors
///
/// As [`backward`](super::backward), and [`Error::InvalidTensor`] if there are more queries than keys, if `d` is odd, or if the
/// tables have other shapes or gaps.
pub fn backward_rotated<T: Float, C: Float>(
    cx: &Context,
    saved: Saved<'_, T>,
    rotation: Rotation<'_, C>,
    options: &Attention,
) -> Result<Gradients<T, 4>> {
    allocating(cx, saved, options, |workspace, gradients| {
        launch(cx, saved, Some(rotation), None, options, workspace, gradients)
    })
}

/// [`backward_rotated`], into tensors of the shapes of `q`, `k` and `v`, with the workspace of
/// [`backward_into`](super::backward_into).
///
/// # Errors
///
/// As [`backward_rotated`].
#[allow(clippy::too_many_arguments)]
pub fn backward_rotated_into<'b, T: Float, C: Float>(
    cx: &Context,
    saved: Saved<'_, T>,
    rotation: Rotation<'_, C>,
    options: &Attention,
    workspace: impl Into<TensorViewMut<'b, f32, 4>>,
    dq: impl Into<TensorViewMut<'b, T, 4>>,
    dk: impl Into<TensorViewMut<'b, T, 4>>,
    dv: impl Into<TensorViewMut<'b, T, 4>>,
) -> Result<()> {
    let results = Results::Apart([dq.into(), dk.into(), dv.into()]);
    launch(cx, saved, Some(rotation), None, options, workspace.into(), results)
}

/// [`backward_rotated`], into one tensor for all gradients, as a product of queries, keys and values has them: `dqkv` is
/// `[batch, heads + 2 * kv_heads, tokens, d]`, with the heads of queries, keys and values one after the other. There are as many
/// queries as keys then, and heads of values have `d` elements too. The workspace is that of
/// [`backward_into`](super::backward_into).
///
/// ```
/// use tilewright::prelude::*;
/// use tilewright_kernels::attention::{self, Attention, Rotation, Saved};
/// use tilewright_kernels::{Context, Tensor, rows};
///
/// # fn main() -> Result<(), Error> {
/// let cx = Context::new(&Device::best()?);
/// // Each token has two heads of queries, one of keys and one of values; queries and keys are rotated.
/// let qkv = Tensor::<f32, 4>::zeros(cx.device(), [1, 6, 2 + 1 + 1, 16])?;
/// let (cos, sin) = rows::rotary_tables(&cx, 6, 16, 10_000.0)?;
/// let heads = qkv.view().permute([0, 2, 1, 3])?;
/// let (q, k, v) = (heads.narrow(1, 0..2)?, heads.narrow(1, 2..3)?, heads.narrow(1, 3..4)?);
/// let options = Attention::default().causal();
/// let (out, lse) = attention::forward(&cx, q, k, v, &options)?;
///
/// let saved = Saved { q, k, v, bias: None, out: out.view(), lse: lse.view(), dout: out.view(), dlse: None };
/// let mut workspace = Tensor::zeros(cx.device(), attention::backward_workspace(&cx, &saved, &options)?)?;
/// let mut dqkv = Tensor::zeros(cx.device(), qkv.shape())?;
/// let rotation = Rotation { cos: cos.view(), sin: sin.view() };
/// let into = dqkv.view_mut().permute([0, 2, 1, 3])?;
/// attention::backward_rotated_qkv_into(&cx, saved, rotation, &options, &mut workspace, into)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As [`backward_rotated`], and [`Error::InvalidTensor`] if queries, keys and values do not have one number of tokens and one size of
/// heads, or if `dqkv` has another shape.
pub fn backward_rotated_qkv_into<'b, T: Float, C: Float>(
    cx: &Context,
    saved: Saved<'_, T>,
    rotation: Rotation<'_, C>,
    options: &Attention,
    workspace: impl Into<TensorViewMut<'b, f32, 4>>,
    dqkv: impl Into<TensorViewMut<'b, T, 4>>,
) -> Result<()> {
    launch(cx, saved, Some(rotation), None, options, workspace.into(), Results::Beside(dqkv.into()))
}
