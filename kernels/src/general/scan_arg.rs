//! Running extremes along a dimension, and where they are.

use super::arg::first_pass;
use super::axis::{Kept, Work, end_of_piece};
use super::number::Number;
use super::pairs::{PairRoom, PairWorkspace, memory};
use super::scan::twice;
use crate::workspace::part;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// Running extremes and their places, tile by tile with a carry. A place of `i32::MAX` marks no element.
#[kernel]
fn running_extremes<T: Num, const LARGEST: bool, const BK: usize, const BL: usize>(
    x: Ptr<T>,
    x_places: Option<Ptr<i32>>,
    carries: Option<Ptr<T>>,
    carry_places: Option<Ptr<i32>>,
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
    values_axis: i64,
    places_kept: i64,
    places_beside: i64,
    places_axis: i64,
    carry_beside: i64,
    carry_piece: i64,
) {
    let blocks = cdiv(kept, BK);
    let i = program_id(0) % blocks * BK + arange(0, BK);
    let beside = (program_id(0) / blocks) as i64;
    let first = program_id(1) * per_piece;
    let end = end_of_piece(first, per_piece, len);
    let carried = beside * carry_beside + (program_id(1) - 1) as i64 * carry_piece + i as i64;
    let some = (i < kept) & (program_id(1) > 0);
    let none = (full([BK], lowest), full([BK], i32::MAX));
    let mut best =
        if let Some(carries) = carries { load(carries + carried, mask = some, other = lowest) } else { none.0 };
    let mut best_at =
        if let Some(at) = carry_places { load(at + carried, mask = some, other = i32::MAX) } else { none.1 };
    for at in (first..end).step_by(BL) {
        let j = at + arange(0, BL);
        let mask = (i < kept)[(.., None)] & (j < end);
        let place = beside * x_beside + ((i as i64 * x_kept)[(.., None)] + j as i64 * x_axis);
        let v = load(x + place, mask = mask, other = lowest);
        let v_at = if let Some(x_places) = x_places {
            load(x_places + place, mask = mask, other = i32::MAX)
        } else {
            select(mask, broadcast_to(j, [BK, BL]), i32::MAX)
        };
        let (value, value_at) = associative_scan((v, v_at), axis = 1, |(a, i), (b, j)| {
            let more = if LARGEST { b > a } else { b < a };
            if j != i32::MAX && (i == i32::MAX || more || b != b && a == a) { (b, j) } else { (a, i) }
        });
        let more = if LARGEST { value > best[(.., None)] } else { value < best[(.., None)] };
        let nan = (value != value) & (best == best)[(.., None)];
        let newer = (value_at != i32::MAX) & ((best_at == i32::MAX)[(.., None)] | more | nan);
        let value = select(newer, value, best[(.., None)]);
        let value_at = select(newer, value_at, best_at[(.., None)]);
        let to = beside * values_beside + ((i as i64 * values_kept)[(.., None)] + j as i64 * values_axis);
        store(values + to, value, mask = mask);
        let to = beside * places_beside + ((i as i64 * places_kept)[(.., None)] + j as i64 * places_axis);
        store(places + to, value_at, mask = mask);
        // The last results, which only the tile that ends the piece does not have in its last column.
        let (last, last_at) = reduce((v, v_at), axis = 1, |(a, i), (b, j)| {
            let more = if LARGEST { a > b } else { a < b };
            let same = a == b || a != a && b != b;
            if i != i32::MAX && (j == i32::MAX || more || a != a && b == b || same && i < j) { (a, i) } else { (b, j) }
        });
        let more = if LARGEST { last > best } else { last < best };
        let newer = (last_at != i32::MAX) & ((best_at == i32::MAX) | more | ((last != last) & (best == best)));
        best = select(newer, last, best);
        best_at = select(newer, last_at, best_at);
    }
}

/// What comes before pieces: extremes and their places, `[pieces, beside, kept]`.
type Carries<'a, T> = Option<(View<'a, T>, View<'a, i32>)>;

fn pass<T: Num>(
    cx: &Context,
    work: &Work,
    (largest, lowest): (bool, T),
    (x, x_places): (View<'_, T>, Option<View<'_, i32>>),
    (carries, partial): (Carries<'_, T>, Kept),
    (values, to): (ViewMut<'_, T>, Kept),
    (places, place_to): (ViewMut<'_, i32>, Kept),
) -> Result<()> {
    let (carries, carry_places) = carries.unzip();
    RunningExtremesConsts { LARGEST: largest, BK: work.block_kept, BL: work.block_axis }
        .call(
            x,
            MaybeView::from(x_places),
            MaybeView::from(carries),
            MaybeView::from(carry_places),
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
            partial.beside,
            partial.axis,
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
    check::shape("values", values.shape(), x.shape())?;
    check::shape("places", places.shape(), x.shape())?;
    let work = Work::of("x", x.layout(), axis, true)?;
    if x.is_empty() {
        return Ok(());
    }
    let to = work.result("values", values.layout(), axis)?;
    let place_to = work.result("places", places.layout(), axis)?;
    let (x, strides) = (x.elements(), work.partial());
    let (values, places) = ((values.elements_mut(), to), (places.elements_mut(), place_to));
    if work.pieces == 1 {
        return pass(cx, &work, how, (x, None), (None, strides), values, places);
    }
    let (mut memory, mut memory_of_places) =
        memory(cx, workspace, PairRoom { values: twice(&work), places: twice(&work) })?;
    let (mut extremes, rest) = part(memory.view_mut(), work.partials())?;
    let (mut running, _) = part(rest, work.partials())?;
    let (mut extreme_places, rest) = part(memory_of_places.view_mut(), work.partials())?;
    let (mut running_places, _) = part(rest, work.partials())?;
    first_pass(cx, &work, how, x, (extremes.reborrow(), strides), (extreme_places.reborrow(), strides))?;
    let from = (extremes.as_view(), Some(extreme_places.as_view()));
    let between = ((running.reborrow(), strides), (running_places.reborrow(), strides));
    pass(cx, &work.of_pieces(), how, from, (None, strides), between.0, between.1)?;
    let carries = Some((running.as_view(), running_places.as_view()));
    pass(cx, &work, how, (x, None), (carries, strides), values, places)
}

macro_rules! functions {
    ($(#[doc = $doc:literal])* $largest:literal, $least:ident, $name:ident, $into:ident, $with:ident) => {
        $(#[doc = $doc])*
        /// Of equal elements the first one's index stays; a NaN is before all numbers, and stays.
        ///
        /// # Shapes
        ///
        /// `x` is of any shape and strides in which the dimensions before `axis` follow each other, and those behind it; both
        /// results have its shape.
        ///
        /// # Errors
        ///
        /// Those of [`cumsum`](super::cumsum).
        pub fn $name<'a, T: Number, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, T, R>>,
            axis: usize,
        ) -> Result<(Tensor<T, R>, Tensor<i32, R>)> {
            let x = x.into();
            let mut values = Tensor::empty(cx.device(), x.shape())?;
            let mut places = Tensor::empty(cx.device(), x.shape())?;
            $into(cx, x, axis, &mut values, &mut places)?;
            Ok((values, places))
        }

        #[doc = concat!("[`", stringify!($name), "`], into tensors. Few long rows are taken in pieces, whose extremes are ")]
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

        #[doc = concat!("[`", stringify!($into), "`], with a workspace for the extremes of pieces: as many values, and as ")]
        /// many indices, as [`scan_workspace`](super::scan_workspace) says. Nothing is allocated.
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
    /// The largest element so far along a dimension, and its index.
    true, LOWEST, cummax, cummax_into, cummax_into_with
}

functions! {
    /// The smallest element so far along a dimension, and its index.
    false, HIGHEST, cummin, cummin_into, cummin_into_with
}
