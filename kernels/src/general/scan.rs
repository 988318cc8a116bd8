//! Running sums and products along a dimension.

use super::axis::{Kept, Work, end_of_piece};
use super::number::Number;
use super::reduce::{products, sums};
use crate::workspace::{Memory, contiguous, part, room};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// From where a scan begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direction {
    /// At index 0: each result is that of the elements up to its own.
    #[default]
    Forward,
    /// At the last index: each result is that of the elements from its own on.
    Backward,
}

/// A scan of tiles `[BK, BL]` one after the other, with what came before as a carry. A long dimension is scanned in pieces,
/// whose totals are reduced and scanned before: a piece begins with the total of those before it.
macro_rules! scan {
    ($name:ident, $totals:ident, |$a:ident, $b:ident| $combine:expr) => {
        mod $name {
            use super::*;

            #[kernel]
            pub(super) fn kernel<T: Num, A: Num, O: Num, const BACKWARD: bool, const BK: usize, const BL: usize>(
                x: Ptr<T>,
                carries: Option<Ptr<A>>,
                out: PtrMut<O>,
                identity: A,
                kept: i32,
                len: i32,
                per_piece: i32,
                x_kept: i64,
                x_beside: i64,
                x_axis: i64,
                out_kept: i64,
                out_beside: i64,
                out_axis: i64,
                carry_beside: i64,
                carry_piece: i64,
            ) {
                let blocks = cdiv(kept, BK);
                let i = program_id(0) % blocks * BK + arange(0, BK);
                let beside = (program_id(0) / blocks) as i64;
                let (x, out) = (x + beside * x_beside, out + beside * out_beside);
                let first = program_id(1) * per_piece;
                let end = end_of_piece(first, per_piece, len);
                let carry = full([BK], identity);
                let mut carry = if let Some(carries) = carries {
                    let before = if BACKWARD { program_id(1) + 1 } else { program_id(1) - 1 };
                    let some = (i < kept) & (before >= 0) & (before < num_programs(1));
                    let place = beside * carry_beside + before as i64 * carry_piece + i as i64;
                    load(carries + place, mask = some, other = identity)
                } else {
                    carry
                };
                for step in (0..end - first).step_by(BL) {
                    let at = if BACKWARD { first + (cdiv(end - first, BL) - 1) * BL - step } else { first + step };
                    let j = at + arange(0, BL);
                    let mask = (i < kept)[(.., None)] & (j < end);
                    let place = (i as i64 * x_kept)[(.., None)] + j as i64 * x_axis;
                    let v = load(x + place, mask = mask, other = identity as T) as A;
                    let running = if BACKWARD {
                        associative_scan(v, axis = 1, reverse = true, |$a, $b| $combine)
                    } else {
                        associative_scan(v, axis = 1, |$a, $b| $combine)
                    };
                    let $a = carry[(.., None)];
                    let $b = running;
                    let result = $combine;
                    store(out + ((i as i64 * out_kept)[(.., None)] + j as i64 * out_axis), result as O, mask = mask);
                    let $a = carry;
                    let $b = reduce(v, axis = 1, |$a, $b| $combine);
                    carry = $combine;
                }
            }

            fn pass<T: Num, A: Num, O: Num>(
                cx: &Context,
                work: &Work,
                (x, out): (View<'_, T>, ViewMut<'_, O>),
                (carries, partial): (Option<View<'_, A>>, Kept),
                (identity, direction): (A, Direction),
                to: Kept,
            ) -> Result<()> {
                KernelConsts { BACKWARD: direction == Direction::Backward, BK: work.block_kept, BL: work.block_axis }
                    .call(
                        x,
                        MaybeView::from(carries),
                        out,
                        identity,
                        work.kept.size as i32,
                        work.axis.size as i32,
                        work.per_piece as i32,
                        work.kept.stride as i64,
                        work.beside.stride as i64,
                        work.axis.stride as i64,
                        to.kept,
                        to.beside,
                        to.axis,
                        partial.beside,
                        partial.axis,
                    )
                    .grid((work.programs(), work.pieces))
                    .num_warps(work.warps())
                    .stream(cx.stream())
                    .launch(cx.device())
            }

            pub fn run<T: Num, A: Num, O: Num, const R: usize>(
                cx: &Context,
                x: TensorView<'_, T, R>,
                axis: usize,
                mut out: TensorViewMut<'_, O, R>,
                how: (A, Direction),
                workspace: Option<TensorViewMut<'_, A, 1>>,
            ) -> Result<()> {
                check::shape("out", out.shape(), x.shape())?;
                let work = Work::of("x", x.layout(), axis, true)?;
                if x.is_empty() {
                    return Ok(());
                }
                let (to, partial) = (work.result("out", out.layout(), axis)?, work.partial());
                let (x, out) = (x.elements(), out.elements_mut());
                if work.pieces == 1 {
                    return pass(cx, &work, (x, out), (None, partial), how, to);
                }
                let mut memory = Memory::of(cx, "workspace", workspace, twice(&work))?;
                let (mut totals, rest) = part(memory.view_mut(), work.partials())?;
                let (mut scanned, _) = part(rest, work.partials())?;
                $totals::pass(cx, &work, (true, false), (x, totals.reborrow()), (how.0, 0), partial)?;
                let between = (totals.as_view(), scanned.reborrow());
                pass(cx, &work.of_pieces(), between, (None, partial), how, partial)?;
                pass(cx, &work, (x, out), (Some(scanned.as_view()), partial), how, to)
            }
        }
    };
}

scan!(running_sums, sums, |a, b| a + b);
scan!(running_products, products, |a, b| a * b);

/// Elements for the totals of pieces, and for those of all pieces before them.
pub(super) fn twice(work: &Work) -> usize {
    if work.pieces > 1 { room(&[work.partials(); 2]) } else { 0 }
}

/// How many elements a scan along `axis` needs as its workspace, whatever the device: for few long rows the totals of pieces
/// twice, and 0 for others. [`cumsum_into_with`] and its kind say of which dtype they are. Both the shape and the strides of `x`
/// matter: ask with the tensor that is scanned, not with another one of its shape.
///
/// # Errors
///
/// Those of [`reduction_workspace`](super::reduction_workspace).
pub fn scan_workspace<'a, T: DType, const R: usize>(x: impl Into<TensorView<'a, T, R>>, axis: usize) -> Result<usize> {
    Ok(twice(&Work::of("x", x.into().layout(), axis, true)?))
}

macro_rules! functions {
    ($(#[doc = $doc:literal])* $identity:ident, $kernel:ident, $name:ident, $into:ident, $with:ident) => {
        $(#[doc = $doc])*
        ///
        /// # Shapes
        ///
        /// `x` is of any shape and strides in which the dimensions before `axis` follow each other, and those behind it; the
        /// result has its shape.
        ///
        /// # Numerics
        ///
        /// Floats are combined in f32 (f64 for f64), within tiles in a tree, and each result is rounded once. Integers give 64
        /// bits, and wrap.
        ///
        /// # Errors
        ///
        /// [`tilewright::Error::InvalidTensor`] if there is no such dimension, or if dimensions are apart
        /// ([`contiguous`](super::contiguous) helps) or have more than 2^31 - 65,536 elements;
        /// [`tilewright::Error::OutOfMemory`]; those of a launch.
        pub fn $name<'a, T: Number, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, T, R>>,
            axis: usize,
            direction: Direction,
        ) -> Result<Tensor<T::Total, R>> {
            let x = x.into();
            let mut out = Tensor::empty(cx.device(), x.shape())?;
            $into(cx, x, axis, direction, &mut out)?;
            Ok(out)
        }

        #[doc = concat!("[`", stringify!($name), "`], into a tensor. Few long rows are taken in pieces, whose totals are ")]
        /// allocated for the call.
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`", stringify!($name), "`], and if the shape of `out` does not fit.")]
        pub fn $into<'a, 'b, T: Number, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, T, R>>,
            axis: usize,
            direction: Direction,
            out: impl Into<TensorViewMut<'b, T::Total, R>>,
        ) -> Result<()> {
            $kernel::run(cx, x.into(), axis, out.into(), (T::Wide::$identity, direction), None)
        }

        #[doc = concat!("[`", stringify!($into), "`], with a workspace for the totals of pieces: it has as many elements of ")]
        /// `T::Wide` as [`scan_workspace`] says, or more; what it holds does not matter. Nothing is allocated.
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`", stringify!($into), "`], and [`tilewright::Error::InvalidTensor`] if the workspace has gaps ")]
        /// or is too small.
        pub fn $with<'a, 'b, 'c, T: Number, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, T, R>>,
            axis: usize,
            direction: Direction,
            out: impl Into<TensorViewMut<'b, T::Total, R>>,
            workspace: impl Into<TensorViewMut<'c, T::Wide, 1>>,
        ) -> Result<()> {
            let workspace = contiguous("workspace", workspace.into())?;
            $kernel::run(cx, x.into(), axis, out.into(), (T::Wide::$identity, direction), Some(workspace))
        }
    };
}

functions! {
    /// Running sums along a dimension. The gradient of one is the other direction's sum of the gradient.
    ZERO, running_sums, cumsum, cumsum_into, cumsum_into_with
}

functions! {
    /// Running products along a dimension.
    ONE, running_products, cumprod, cumprod_into, cumprod_into_with
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;
    use tilewright::launch::AssumedScalar::One;

    #[test]
    fn scans_access_wide_along_both_dimensions() {
        let consts = |bk, bl| running_sums::KernelConsts { BACKWARD: false, BK: bk, BL: bl };
        let inner = running_sums::KernelAssumed { x_axis: One, out_axis: One, ..Default::default() };
        let outer = running_sums::KernelAssumed { x_kept: One, out_kept: One, ..Default::default() };
        let target = Target::sm_90a();
        let wide = ["ld.global.nc.v4.b32", "st.global.v4.b32"];
        for carried in [false, true] {
            let request = consts(1, 4096).request::<f32, f32, f32>(carried).num_warps(8).assume(inner);
            check_instructions("cumsum of rows", request.compile(target), &wide);
        }
        let request = consts(128, 32).request::<f32, f32, f32>(false).num_warps(8).assume(outer);
        check_instructions("cumsum of columns", request.compile(target), &wide);
    }
}
