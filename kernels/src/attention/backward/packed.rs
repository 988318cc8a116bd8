//! Gradients of attention of packed sequences.

use super::results::Results;
use super::{Attention, Gradients, NOT_ROTATED, Saved, choose, fused, is_plain, launch};
use crate::attention::forward::{Starts, one_batch, one_batch_mut};
use crate::attention::shape::Problem;
use crate::workspace::{Memory, product};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// What [`forward_packed`](crate::attention::forward_packed) read and gave, and the gradient of its result, with the shapes that
/// it says.
#[derive(Debug, Clone, Copy)]
pub struct SavedPacked<'a, T: DType> {
    /// Queries.
    pub q: TensorView<'a, T, 3>,
    /// Keys.
    pub k: TensorView<'a, T, 3>,
    /// Values.
    pub v: TensorView<'a, T, 3>,
    /// The result.
    pub out: TensorView<'a, T, 3>,
    /// The logarithms of sums.
    pub lse: TensorView<'a, f32, 2>,
    /// The gradient of the result.
    pub dout: TensorView<'a, T, 3>,
    /// Where sequences begin among the queries, in ascending order.
    pub q_starts: TensorView<'a, i32, 1>,
    /// Where they begin among the keys, in ascending order.
    pub k_starts: TensorView<'a, i32, 1>,
    /// The most queries of a sequence.
    pub longest: usize,
    /// The most keys of a sequence.
    pub longest_keys: usize,
}

/// What the gradients of packed sequences are computed from, as one batch.
struct Packed<'a, T: DType> {
    saved: Saved<'a, T>,
    starts: Starts<'a>,
    longest_keys: usize,
    /// The shape of the workspace.
    room: [usize; 4],
}

/// How many numbers there may be of the queries of a head, with the gaps between sequences: see `places_of_sequences`.
pub(super) fn length(tokens: usize, sequences: usize) -> usize {
    let all = tokens.saturating_add(sequences.saturating_mul(3));
    all.checked_next_multiple_of(4).unwrap_or(usize::MAX)
}

impl<'a, T: Float> Packed<'a, T> {
    fn of(cx: &Context, saved: &SavedPacked<'a, T>, options: &Attention) -> Result<Self> {
        let (q, k, v) = (one_batch(&saved.q)?, one_batch(&saved.k)?, one_batch(&saved.v)?);
        let problem = Problem::of(&q, &k, &v)?;
        let [tokens, heads, _] = saved.q.shape();
        check::shape("lse", saved.lse.shape(), [heads, tokens])?;
        let starts = Starts { q: saved.q_starts, k: saved.k_starts, longest: saved.longest };
        let lse = saved.lse.reshape([1, heads, tokens])?;
        let (out, dout) = (one_batch(&saved.out)?, one_batch(&saved.dout)?);
        let dense = Saved { q, k, v, bias: None, out, lse, dout, dlse: None };
        let (sequences, longest) = problem.sequences(&Some(starts))?;
        let longest = [longest, saved.longest_keys.min(problem.keys)];
        let traits = [is_plain(&dense, options, true), !options.deterministic];
        let config = choose::<T>(cx, &problem, longest, traits)?;
        let room = problem.workspace(fused::is_chosen::<T>(&config, options), length(tokens, sequences));
        Ok(Packed { saved: dense, starts, longest_keys: saved.longest_keys, room })
    }

    fn run(
        self,
        cx: &Context,
        options: &Attention,
        [dq, dk, dv]: [TensorViewMut<'_, T, 3>; 3],
        workspace: Option<TensorViewMut<'_, f32, 1>>,
    ) -> Result<()> {
        for (name, gradient) in [("dq", &dq), ("dk", &dk), ("dv", &dv)] {
            check::packed(name, &gradient.as_view())?;
        }
        let mut memory = Memory::of(cx, "workspace", workspace, product(&self.room))?;
        let workspace = TensorViewMut::new(memory.view_mut(), self.room)?;
        let into = Results::Apart([one_batch_mut(dq)?, one_batch_mut(dk)?, one_batch_mut(dv)?]);
        launch(cx, self.saved, NOT_ROTATED, Some((self.starts, self.longest_keys)), options, workspace, into)
    }
}

/// [`backward`](super::backward) of packed sequences. Gradients of tokens that no sequence has are 0; the tensors must be finite there,
/// too.
///
/// # Errors
///
/// As [`forward`](crate::attention::forward), and [`Error::InvalidGrid`] of more than 65,535 heads or sequences.
pub fn backward_packed<T: Float>(
    cx: &Context,
    saved: SavedPacked<'_, T>,
    options: &Attention,
) -> Result<Gradients<T, 3>> {
    let mut gradients = Gradients {
        dq: Tensor::empty(cx.device(), saved.q.shape())?,
        dk: Tensor::empty(cx.device(), saved.k.shape())?,
        dv: Tensor::empty(cx.device(), saved.v.shape())?,
    };
    let Gradients { dq, dk, dv } = &mut gradients;
    backward_packed_into(cx, saved, options, dq, dk, dv)?;
    Ok(gradients)
}

/// [`backward_packed`], into tensors of the shapes of `q`, `k` and `v`, in row-major order without gaps. What
/// [`backward_packed_workspace`] says is allocated for the call.
///
/// # Errors
///
/// As [`backward_packed`], and [`Error::InvalidTensor`] if gradients have other shapes or gaps.
pub fn backward_packed_into<'b, T: Float>(
    cx: &Context,
    saved: SavedPacked<'_, T>,
    options: &Attention,
    dq: impl Into<TensorViewMut<'b, T, 3>>,
    dk: impl Into<TensorViewMut<'b, T, 3>>,
    dv: impl Into<TensorViewMut<'b, T, 3>>,
) -> Result<()> {
    let into = [dq.into(), dk.into(), dv.into()];
    Packed::of(cx, &saved, options)?.run(cx, options, into, None)
}

/// [`backward_packed_into`], with a workspace of as many elements as [`backward_packed_workspace`] says, or more, without gaps; what
/// it holds does not matter. Nothing is allocated.
///
/// # Errors
///
/// As [`backward_packed_into`], and [`Error::InvalidTensor`] if the workspace has gaps or is too small.
pub fn backward_packed_into_with<'b, T: Float>(
    cx: &Context,
    saved: SavedPacked<'_, T>,
    options: &Attention,
    dq: impl Into<TensorViewMut<'b, T, 3>>,
    dk: impl Into<TensorViewMut<'b, T, 3>>,
    dv: impl Into<TensorViewMut<'b, T, 3>>,
    workspace: impl Into<TensorViewMut<'b, f32, 1>>,
) -> Result<()> {
    let into = [dq.into(), dk.into(), dv.into()];
    Packed::of(cx, &saved, options)?.run(cx, options, into, Some(workspace.into()))
}

/// How many elements [`backward_packed_into_with`] needs as its workspace, with the same context and options: two for each query of
/// each head and for three more of each sequence, and where one kernel computes all gradients `d` more, rounded up to a multiple
/// of 4.
///
/// # Errors
///
/// As [`forward`](crate::attention::forward).
pub fn backward_packed_workspace<T: Float>(
    cx: &Context,
    saved: &SavedPacked<'_, T>,
    options: &Attention,
) -> Result<usize> {
    Ok(product(&Packed::of(cx, saved, options)?.room))
}
