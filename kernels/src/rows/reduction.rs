//! What becomes of the losses of rows.

use crate::arguments::packed;
use crate::workspace::{Memory, contiguous};
use crate::{Context, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Result, View};

/// What a loss function returns of the losses of its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reduction {
    /// One loss for each row.
    None,
    /// Their sum.
    Sum,
    /// Their mean, over those rows that count.
    #[default]
    Mean,
}

impl Reduction {
    /// The length of what it makes of `rows` losses.
    pub fn len(self, rows: usize) -> usize {
        if self == Reduction::None { rows } else { 1 }
    }
}

/// `out[0] = factor * sum(x)`, by one program: the order of the sum is the same at every launch.
#[kernel]
pub(super) fn total<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    factor: Option<Ptr<T>>,
    scale: f32,
    out: PtrMut<T>,
    n: i32,
) {
    let mut sums = zeros::<T::Acc>([BLOCK]);
    for first in (0..n).step_by(BLOCK) {
        let at = first + arange(0, BLOCK);
        sums += load(x + at, mask = at < n) as T::Acc;
    }
    let all = sum(sums, axis = 0) * scale as T::Acc;
    let all = if let Some(factor) = factor { all * load(factor) as T::Acc } else { all };
    store(out, all as T);
}

/// Adds up losses: `out[0] = scale * factor[0] * sum(losses)`.
pub(crate) fn reduce(
    cx: &Context,
    losses: TensorView<'_, f32, 1>,
    factor: Option<View<'_, f32>>,
    scale: f32,
    out: TensorViewMut<'_, f32, 1>,
) -> Result<()> {
    let n = check::size("losses", losses.len())?;
    let factor = tilewright::launch::MaybeView::from(factor);
    TotalConsts { BLOCK: 4096 }
        .call(losses.elements(), factor, scale, out.elements(), n)
        .grid(1)
        .num_warps(16)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Losses of rows, made by `run`, as a [`Reduction`] wants them: where they are added up, in a workspace or in memory of their own,
/// otherwise in `out`. The mean of no rows is NaN, as 0 / 0 is.
pub(super) fn losses(
    cx: &Context,
    rows: usize,
    reduction: Reduction,
    (mut out, workspace): (TensorViewMut<'_, f32, 1>, Option<TensorViewMut<'_, f32, 1>>),
    run: impl FnOnce(TensorViewMut<'_, f32, 1>) -> Result<()>,
) -> Result<()> {
    check::shape("out", out.shape(), [reduction.len(rows)])?;
    packed("out", out.is_contiguous())?;
    let workspace = workspace.map(|workspace| contiguous("workspace", workspace)).transpose()?;
    let scale = match reduction {
        Reduction::None => return run(out),
        Reduction::Sum => 1.0,
        Reduction::Mean => 1.0 / rows as f32,
    };
    let mut memory = Memory::of(cx, "workspace", workspace, rows)?;
    run(TensorViewMut::new(memory.view_mut(), [rows])?)?;
    reduce(cx, TensorView::new(memory.view(), [rows])?, None, scale, out.reborrow())
}
