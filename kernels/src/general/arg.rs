//! Where the largest and smallest elements along a dimension are.

use super::axis::{Kept, Work, end_of_piece};
use super::number::Number;
use super::pairs::{PairRoom, PairWorkspace, memory};
use super::reduce::{not_empty, reduced, reduced_shape};
use crate::{Context, Tensor, TensorView, TensorViewMut};
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// The extreme of each piece, and where it is. A lane meets elements in order, so that it keeps the first of equal ones. Its
/// place is `i32::MAX` until it has met one that is more than `lowest`.
#[kernel]
fn extremes<T: Num, const LARGEST: bool, const BK: usize, const BL: usize>(
    x: Ptr<T>,
    values: PtrMut<T>,
    places: PtrMut<i32>,
    lowest: T,
    kept: i32,
    len: i32,
    per_piece: i32,
    x_kept: i64,
    x_beside: i64,
    x_axis: i64,
    values_kept: i64,
    values_beside: i64,
    values_piece: i64,
    places_kept: i64,
    places_beside: i64,
    places_piece: i64,
) {
    let blocks = cdiv(kept, BK);
    let i = program_id(0) % blocks * BK + arange(0, BK);
    let (beside, piece) = ((program_id(0) / blocks) as i64, program_id(1) as i64);
    let x = x + beside * x_beside;
    let first = program_id(1) * per_piece;
    let end = end_of_piece(first, per_piece, len);
    let mut best = full([BK, BL], lowest);
    let mut best_at = full([BK, BL], i32::MAX);
    for at in (first..end).step_by(BL) {
        let j = at + arange(0, BL);
        let mask = (i < kept)[(.., None)] & (j < end);
        let v = load(x + (i as i64 * x_kept)[(.., None)] + j as i64 * x_axis, mask = mask, other = lowest);
        let more = if LARGEST { v > best } else { v < best };
        // A NaN is more than every number.
        let better = more | ((v != v) & (best == best));
        best = select(better, v, best);
        best_at = select(better, broadcast_to(j, [BK, BL]), best_at);
    }
    let (value, place) = reduce((best, best_at), axis = 1, |(a, i), (b, j)| {
        let more = if LARGEST { a > b } else { a < b };
        let same = a == b || a != a && b != b;
        if more || a != a && b == b || same && i < j { (a, i) } else { (b, j) }
    });
    // All are `lowest`: the first one is the first.
    let place = select(place == i32::MAX, first, place);
    store(values + beside * values_beside + piece * values_piece + i as i64 * values_kept, value, mask = i < kept);
    store(places + beside * places_beside + piece * places_piece + i as i64 * places_kept, place, mask = i < kept);
}

/// The extreme of the extremes of pieces, `[pieces, beside * kept]`, which fit a tile.
#[kernel]
fn extremes_of_pieces<T: Num, const LARGEST: bool, const BK: usize, const BP: usize>(
    partial: Ptr<T>,
    partial_places: Ptr<i32>,
    values: PtrMut<T>,
    places: PtrMut<i32>,
    lowest: T,
    kept: i32,
    beside: i32,
    pieces: i32,
    values_kept: i64,
    values_beside: i64,
    places_kept: i64,
    places_beside: i64,
) {
    let blocks = cdiv(kept, BK);
    let i = program_id(0) % blocks * BK + arange(0, BK);
    let (row, piece) = (program_id(0) / blocks, arange(0, BP));
    let mask = (i < kept)[(.., None)] & (piece < pieces);
    let from = (row as i64 * kept as i64) + i[(.., None)] as i64 + piece as i64 * (kept as i64 * beside as i64);
    let v = load(partial + from, mask = mask, other = lowest);
    let at = load(partial_places + from, mask = mask, other = i32::MAX);
    let (value, place) = reduce((v, at), axis = 1, |(a, i), (b, j)| {
        let more = if LARGEST { a > b } else { a < b };
        let same = a == b || a != a && b != b;
        if more || a != a && b == b || same && i < j { (a, i) } else { (b, j) }
    });
    store(values + row as i64 * values_beside + i as i64 * values_kept, value, mask = i < kept);
    store(places + row as i64 * places_beside + i as i64 * places_kept, place, mask = i < kept);
}

/// A launch of [`extremes`].
pub(super) fn first_pass<T: Num>(
    cx: &Context,
    work: &Work,
    (largest, lowest): (bool, T),
    x: View<'_, T>,
    (values, to): (ViewMut<'_, T>, Kept),
    (places, place_to): (ViewMut<'_, i32>, Kept),
) -> Result<()> {
    ExtremesConsts { LARGEST: largest, BK: work.block_kept, BL: work.block_axis }
        .call(
            x,
            values,
            places,
            lowest,
            work.kept.size as i32,
            work.axis.size as i32,
            work.per_piece as i32,
            work.kept.stride as i64,
            work.beside.stride as i64,
            work.axis.stride as i64,
            to.kept,
            to.beside,
            to.axis,
            place_to.kept,
            place_to.beside,
            place_to.axis,
        )
        .grid((work.programs(), work.pieces))
        .num_warps(work.warps())
        .stream(cx.stream())
        .launch(cx.device())
}

fn run<T: Num, const R: usize>(
    cx: &Context,
    x: TensorView<'_, T, R>,
    axis: usize,
    (mut values, mut places): (TensorViewMut<'_, T, R>, TensorViewMut<'_, i32, R>),
    how: (bool, T),
    workspace: Option<PairWorkspace<'_, T>>,
) -> Result<()> {
    reduced_shape("values", values.shape(), x.shape(), axis)?;
    reduced_shape("places", places.shape(), x.shape(), axis)?;
    not_empty(x.shape(), axis)?;
    if values.is_empty() {
        return Ok(());
    }
    let work = Work::of("x", x.layout(), axis, true)?;
    let to = work.result("values", values.layout(), axis)?;
    let place_to = work.result("places", places.layout(), axis)?;
    let (values, places) = (values.elements_mut(), places.elements_mut());
    if work.pieces == 1 {
        return first_pass(cx, &work, how, x.elements(), (values, to), (places, place_to));
    }
    let room = PairRoom { values: work.room(), places: work.room() };
    let (mut partial, mut partial_places) = memory(cx, workspace, room)?;
    let strides = work.partial();
    let pieces = ((partial.view_mut(), strides), (partial_places.view_mut(), strides));
    first_pass(cx, &work, how, x.elements(), pieces.0, pieces.1)?;
    last_pass(cx, &work, how, (partial.view(), partial_places.view()), (values, to), (places, place_to))
}

/// A launch of [`extremes_of_pieces`].
pub(super) fn last_pass<T: Num>(
    cx: &Context,
    work: &Work,
    (largest, lowest): (bool, T),
    (partial, partial_places): (View<'_, T>, View<'_, i32>),
    (values, to): (ViewMut<'_, T>, Kept),
    (places, place_to): (ViewMut<'_, i32>, Kept),
) -> Result<()> {
    let last = work.of_pieces();
    ExtremesOfPiecesConsts { LARGEST: largest, BK: last.block_kept, BP: last.block_axis }
        .call(
            partial,
            partial_places,
            values,
            places,
            lowest,
            last.kept.size as i32,
            last.beside.size as i32,
            work.pieces as i32,
            to.kept,
            to.beside,
            place_to.kept,
            place_to.beside,
        )
        .grid(last.programs())
        .num_warps(last.warps())
        .stream(cx.stream())
        .launch(cx.device())
}

macro_rules! functions {
    ($(#[doc = $doc:literal])* $largest:literal, $least:ident, $name:ident, $into:ident, $with:ident) => {
        $(#[doc = $doc])*
        /// Of equal elements it is the first; a NaN is before all numbers, and the first NaN before others. Indices count
        /// along the dimension, from 0.
        ///
        /// # Shapes
        ///
        /// `x` is of any shape and strides in which the dimensions before `axis` follow each other, and those behind it; both
        /// results have its shape with one element in dimension `axis`.
        ///
        /// # Errors
        ///
        /// [`tilewright::Error::InvalidTensor`] if there is no such dimension or it has no elements, if dimensions are apart
        /// ([`contiguous`](super::contiguous) helps) or have more than 2^31 - 65,536 elements;
        /// [`tilewright::Error::OutOfMemory`]; those of a launch.
        pub fn $name<'a, T: Number, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, T, R>>,
            axis: usize,
        ) -> Result<(Tensor<T, R>, Tensor<i32, R>)> {
            let x = x.into();
            let mut values = reduced(cx, x.shape(), axis)?;
            let mut places = reduced(cx, x.shape(), axis)?;
            $into(cx, x, axis, &mut values, &mut places)?;
            Ok((values, places))
        }

        #[doc = concat!("[`", stringify!($name), "`], into tensors. Few long rows are taken in pieces, whose results are ")]
        /// allocated for the call.
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`", stringify!($name), "`], and if the shapes of `values` or `places` do not fit.")]
        pub fn $into<'a, 'b, 'c, T: Number, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, T, R>>,
            axis: usize,
            values: impl Into<TensorViewMut<'b, T, R>>,
            places: impl Into<TensorViewMut<'c, i32, R>>,
        ) -> Result<()> {
            run(cx, x.into(), axis, (values.into(), places.into()), ($largest, T::$least), None)
        }

        #[doc = concat!("[`", stringify!($into), "`], with a workspace for the results of pieces: as many values, and as many ")]
        /// indices, as [`reduction_workspace`](super::reduction_workspace) says. Nothing is allocated.
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`", stringify!($into), "`], and [`tilewright::Error::InvalidTensor`] if a part of the workspace ")]
        /// has gaps or is too small.
        pub fn $with<'a, 'b, 'c, T: Number, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, T, R>>,
            axis: usize,
            values: impl Into<TensorViewMut<'b, T, R>>,
            places: impl Into<TensorViewMut<'c, i32, R>>,
            workspace: PairWorkspace<'_, T>,
        ) -> Result<()> {
            let to = (values.into(), places.into());
            run(cx, x.into(), axis, to, ($largest, T::$least), Some(workspace.contiguous()?))
        }
    };
}

functions! {
    /// The largest elements along a dimension, and their indices.
    true, LOWEST, argmax, argmax_into, argmax_into_with
}

functions! {
    /// The smallest elements along a dimension, and their indices.
    false, HIGHEST, argmin, argmin_into, argmin_into_with
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;
    use tilewright::launch::AssumedScalar::One;
    use tilewright::launch::LaunchVariant;

    /// The host proves that no access leaves its buffer, whether rows are divided or not.
    #[test]
    fn launches_need_no_checks() {
        let device = Device::cpu();
        for (rows, len, per_piece) in [(300usize, 8192usize, 8192usize), (3, 40_000, 16_384), (3, 40_001, 16_384)] {
            let pieces = len.div_ceil(per_piece);
            let x = device.zeros::<f32>(rows * len).unwrap();
            let mut values = device.zeros::<f32>(rows * pieces).unwrap();
            let mut places = device.zeros::<i32>(rows * pieces).unwrap();
            let call = ExtremesConsts { LARGEST: true, BK: 1, BL: 4096 }.call(
                &x,
                &mut values,
                &mut places,
                f32::NEG_INFINITY,
                rows as i32,
                len as i32,
                per_piece as i32,
                len as i64,
                0,
                1,
                1,
                0,
                rows as i64,
                1,
                0,
                rows as i64,
            );
            let compiled = call.grid((rows, pieces)).num_warps(8).compile(Target::sm_90a()).unwrap();
            assert_eq!(*compiled.variant(), LaunchVariant::Fast, "{}", compiled.report());
        }
    }

    #[test]
    fn extremes_load_wide_along_both_dimensions() {
        let consts = |bk, bl| ExtremesConsts { LARGEST: true, BK: bk, BL: bl };
        let inner = ExtremesAssumed { x_axis: One, ..Default::default() };
        let outer = ExtremesAssumed { x_kept: One, values_kept: One, places_kept: One, ..Default::default() };
        let target = Target::sm_90a();
        let compiled = consts(1, 4096).request::<f32>().num_warps(8).assume(inner).compile(target);
        check_instructions("argmax of rows", compiled, &["ld.global.nc.v4.b32"]);
        let compiled = consts(128, 32).request::<f32>().num_warps(8).assume(outer).compile(target);
        check_instructions("argmax of columns", compiled, &["ld.global.nc.v4.b32"]);
        let compiled = consts(128, 32).request::<bf16>().num_warps(8).assume(outer).compile(target);
        check_instructions("argmax of columns, bf16", compiled, &["ld.global.nc.v4.b32"]);
    }
}
