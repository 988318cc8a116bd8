//! Whether all or any elements along a dimension are true.

use super::axis::{Kept, Work, end_of_piece};
use super::reduce::{reduced, reduced_shape};
use crate::workspace::{Memory, contiguous};
use crate::{Context, Tensor, TensorView, TensorViewMut};
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// Whether all (`ALL`) or any of `len` elements are true, in pieces as reductions of numbers.
#[kernel]
fn truth<const ALL: bool, const BK: usize, const BL: usize>(
    x: Ptr<bool>,
    out: PtrMut<bool>,
    kept: i32,
    len: i32,
    per_piece: i32,
    x_kept: i64,
    x_beside: i64,
    x_axis: i64,
    out_kept: i64,
    out_beside: i64,
    out_piece: i64,
) {
    let blocks = cdiv(kept, BK);
    let i = program_id(0) % blocks * BK + arange(0, BK);
    let beside = (program_id(0) / blocks) as i64;
    let (x, out) = (x + beside * x_beside, out + beside * out_beside);
    let first = program_id(1) * per_piece;
    let end = end_of_piece(first, per_piece, len);
    let mut found = full([BK, BL], false);
    for at in (first..end).step_by(BL) {
        let j = at + arange(0, BL);
        let mask = (i < kept)[(.., None)] & (j < end);
        let v = load(x + (i as i64 * x_kept)[(.., None)] + j as i64 * x_axis, mask = mask);
        found = found | (mask & if ALL { !v } else { v });
    }
    let found = any(found, axis = 1);
    let result = if ALL { !found } else { found };
    store(out + program_id(1) as i64 * out_piece + i as i64 * out_kept, result, mask = i < kept);
}

fn pass(cx: &Context, work: &Work, all: bool, x: View<'_, bool>, out: ViewMut<'_, bool>, to: Kept) -> Result<()> {
    TruthConsts { ALL: all, BK: work.block_kept, BL: work.block_axis }
        .call(
            x,
            out,
            work.kept.size as i32,
            work.axis.size as i32,
            work.per_piece as i32,
            work.kept.stride as i64,
            work.beside.stride as i64,
            work.axis.stride as i64,
            to.kept,
            to.beside,
            to.axis,
        )
        .grid((work.programs(), work.pieces))
        .num_warps(work.warps())
        .stream(cx.stream())
        .launch(cx.device())
}

fn run<const R: usize>(
    cx: &Context,
    x: TensorView<'_, bool, R>,
    axis: usize,
    mut out: TensorViewMut<'_, bool, R>,
    all: bool,
    workspace: Option<TensorViewMut<'_, bool, 1>>,
) -> Result<()> {
    reduced_shape("out", out.shape(), x.shape(), axis)?;
    if out.is_empty() {
        return Ok(());
    }
    let work = Work::of("x", x.layout(), axis, true)?;
    let to = work.result("out", out.layout(), axis)?;
    if work.pieces == 1 {
        return pass(cx, &work, all, x.elements(), out.elements_mut(), to);
    }
    let mut partials = Memory::of(cx, "workspace", workspace, work.room())?;
    pass(cx, &work, all, x.elements(), partials.view_mut(), work.partial())?;
    pass(cx, &work.of_pieces(), all, partials.view(), out.elements_mut(), to)
}

macro_rules! functions {
    ($(#[doc = $doc:literal])* $all:literal, $name:ident, $into:ident, $with:ident, $of_all:ident) => {
        $(#[doc = $doc])*
        ///
        /// # Errors
        ///
        /// Those of [`sum`](super::sum).
        pub fn $name<'a, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, bool, R>>,
            axis: usize,
        ) -> Result<Tensor<bool, R>> {
            let x = x.into();
            let mut out = reduced(cx, x.shape(), axis)?;
            run(cx, x, axis, out.view_mut(), $all, None)?;
            Ok(out)
        }

        #[doc = concat!("[`", stringify!($name), "`], into a tensor. Few long rows are taken in pieces, whose results are ")]
        /// allocated for the call.
        ///
        /// # Errors
        ///
        /// Those of [`sum_into`](super::sum_into).
        pub fn $into<'a, 'b, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, bool, R>>,
            axis: usize,
            out: impl Into<TensorViewMut<'b, bool, R>>,
        ) -> Result<()> {
            run(cx, x.into(), axis, out.into(), $all, None)
        }

        #[doc = concat!("[`", stringify!($into), "`], with a workspace for the results of pieces: it has as many `bool` ")]
        /// as [`reduction_workspace`](super::reduction_workspace) says, or more; what it holds does not matter. Nothing is
        /// allocated.
        ///
        /// # Errors
        ///
        /// Those of [`sum_into_with`](super::sum_into_with).
        pub fn $with<'a, 'b, 'c, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, bool, R>>,
            axis: usize,
            out: impl Into<TensorViewMut<'b, bool, R>>,
            workspace: impl Into<TensorViewMut<'c, bool, 1>>,
        ) -> Result<()> {
            run(cx, x.into(), axis, out.into(), $all, Some(contiguous("workspace", workspace.into())?))
        }

        #[doc = concat!("[`", stringify!($name), "`] over all elements of a tensor in row-major order without gaps.")]
        ///
        /// # Errors
        ///
        /// Those of [`sum_all`](super::sum_all).
        pub fn $of_all<'a, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, bool, R>>,
        ) -> Result<Tensor<bool, 0>> {
            let x = x.into();
            let one = $name(cx, x.reshape([x.len()])?, 0)?;
            Tensor::from_buffer(one.into_buffer(), [])
        }
    };
}

functions! {
    /// Whether all elements along a dimension are true; without elements they are. The result has one element there.
    true, all, all_into, all_into_with, all_all
}

functions! {
    /// Whether any element along a dimension is true; without elements none is. The result has one element there.
    false, any, any_into, any_into_with, any_all
}
