//! Sorting rows.

use super::number::Number;
use super::pairs::{PairRoom, PairWorkspace};
use super::radix::digits_room;
use crate::check::{self, MOST_PROGRAMS, Rows};
use crate::{Context, Tensor, TensorView, TensorViewMut};
use tilewright::launch::MaybeViewMut;
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// The longest row that one program sorts.
const WHOLE: usize = 16_384;

/// The order of a sort.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// The smallest first.
    #[default]
    Ascending,
    /// The largest first.
    Descending,
}

/// A row in registers. What pads it stays behind, as it is of the extreme value and sorting is stable.
#[kernel]
fn sort_whole<T: Num, const DESCENDING: bool, const BLOCK: usize>(
    x: Ptr<T>,
    values: Option<PtrMut<T>>,
    places: Option<PtrMut<i32>>,
    padding: T,
    columns: i32,
    x_stride: i64,
    values_stride: i64,
    places_stride: i64,
) {
    let row = program_id(0) as i64;
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let v = load(x + row * x_stride + column, mask = mask, other = padding);
    if let Some(places) = places {
        let order = if DESCENDING { argsort(v, descending = true) } else { argsort(v) };
        store(places + row * places_stride + column, order, mask = mask);
        if let Some(values) = values {
            // Read again, as the row is in the cache: so the sort has the registers of what it would otherwise keep.
            let sorted = load(x + row * x_stride + order, mask = mask);
            store(values + row * values_stride + column, sorted, mask = mask);
        }
    } else {
        if let Some(values) = values {
            let sorted = if DESCENDING { sort(v, descending = true) } else { sort(v) };
            store(values + row * values_stride + column, sorted, mask = mask);
        }
    }
}

/// Rows of a matrix to write, and the distance between them.
pub(super) struct To<'a, T: DType> {
    pub(super) elements: ViewMut<'a, T>,
    pub(super) stride: usize,
}

impl<'a, T: DType> To<'a, T> {
    pub(super) fn new(elements: impl Into<ViewMut<'a, T>>, stride: usize) -> Self {
        To { elements: elements.into(), stride }
    }
}

/// The distance between rows that are written, if they are.
pub(super) fn stride<T: DType>(to: &Option<To<'_, T>>) -> i64 {
    to.as_ref().map_or(0, |to| to.stride as i64)
}

/// The longest row, so that axis 1 of a grid has a program for every 2048 elements of it.
const LONGEST: usize = MOST_PROGRAMS * 2048;

/// Rows that are sorted.
pub(super) struct Sorted<'a, T: DType> {
    pub(super) x: View<'a, T>,
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) order: Order,
}

impl<T: Number> Sorted<'_, T> {
    /// Sorts rows that fit into registers.
    fn whole(&self, cx: &Context, values: Option<To<'_, T>>, places: Option<To<'_, i32>>) -> Result<()> {
        let block = self.columns.next_power_of_two();
        let (values_stride, places_stride) = (stride(&values), stride(&places));
        SortWholeConsts { DESCENDING: self.order == Order::Descending, BLOCK: block }
            .call(
                self.x,
                MaybeViewMut::from(values.map(|to| to.elements)),
                MaybeViewMut::from(places.map(|to| to.elements)),
                if self.order == Order::Ascending { T::LAST } else { T::LOWEST },
                self.columns as i32,
                self.stride as i64,
                values_stride,
                places_stride,
            )
            .grid(self.rows)
            .num_warps((block / 512).clamp(1, 32) as u32)
            .stream(cx.stream())
            .launch(cx.device())
    }
}

/// Sorts rows into what is wanted.
fn run<T: Number, const R: usize>(
    cx: &Context,
    x: TensorView<'_, T, R>,
    order: Order,
    values: Option<TensorViewMut<'_, T, R>>,
    places: Option<TensorViewMut<'_, i32, R>>,
    workspace: Option<PairWorkspace<'_, T>>,
) -> Result<()> {
    let from = x.rows("x")?;
    let values = values.map(|to| rows_like("values", x.shape(), to)).transpose()?;
    let places = places.map(|to| rows_like("places", x.shape(), to)).transpose()?;
    check_columns(from.columns)?;
    if x.is_empty() {
        return Ok(());
    }
    let Rows { rows, columns, stride } = from;
    let sorted = Sorted { x: x.elements(), stride, rows, columns, order };
    if columns <= WHOLE {
        return sorted.whole(cx, values, places);
    }
    sorted.by_digits(cx, values, places, workspace)
}

/// Refuses rows that are too long.
fn check_columns(columns: usize) -> Result<()> {
    check::size("x", columns)?;
    if columns > LONGEST {
        return Err(check::invalid(
            "x",
            format!("has rows of {columns}"),
            format!("sort rows of at most {LONGEST} elements"),
        ));
    }
    Ok(())
}

fn rows_like<'a, T: DType, const R: usize>(
    argument: &str,
    shape: [usize; R],
    to: TensorViewMut<'a, T, R>,
) -> Result<To<'a, T>> {
    check::shape(argument, to.shape(), shape)?;
    let stride = to.rows(argument)?.stride;
    Ok(To { elements: to.elements(), stride })
}

/// The rows of `x`, sorted, and the index that each element had in its row.
///
/// The sort is stable: of equal elements the first one comes first, in either order. `-0.0` is below `0.0`, and NaN, whatever
/// its sign, above all else.
///
/// # Shapes
///
/// `x` is `[.., columns]` with at most 134,215,680 columns, both results have its shape. To sort along another dimension, copy the
/// tensor with that one last ([`contiguous`](super::contiguous)).
///
/// # Method
///
/// Rows of up to 16,384 elements are sorted in registers, longer ones by their digits (Knuth, "The Art of Computer
/// Programming", volume 3, 5.2.5): once for each byte of an element they are read twice and written once, into workspaces
/// that are allocated for the call: one of the results' sizes for elements of two bytes, two for more.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if rows have gaps, do not follow each other or are too long,
/// [`tilewright::Error::OutOfMemory`], those of a launch.
pub fn sort<'a, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    order: Order,
) -> Result<(Tensor<T, R>, Tensor<i32, R>)> {
    let x = x.into();
    let mut values = Tensor::empty(cx.device(), x.shape())?;
    let mut places = Tensor::empty(cx.device(), x.shape())?;
    run(cx, x, order, Some(values.view_mut()), Some(places.view_mut()), None)?;
    Ok((values, places))
}

/// [`sort`], into tensors. Workspaces are allocated as there.
///
/// # Errors
///
/// As [`sort`], and if the shapes of `values` or `places` do not fit.
pub fn sort_into<'a, 'b, 'c, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    order: Order,
    values: impl Into<TensorViewMut<'b, T, R>>,
    places: impl Into<TensorViewMut<'c, i32, R>>,
) -> Result<()> {
    run(cx, x.into(), order, Some(values.into()), Some(places.into()), None)
}

/// [`sort_into`], with a workspace of the size that [`sort_workspace`] says, or larger. Nothing is allocated.
///
/// # Errors
///
/// As [`sort_into`], and [`tilewright::Error::InvalidTensor`] if a part of the workspace has gaps or is too small.
pub fn sort_into_with<'a, 'b, 'c, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    order: Order,
    values: impl Into<TensorViewMut<'b, T, R>>,
    places: impl Into<TensorViewMut<'c, i32, R>>,
    workspace: PairWorkspace<'_, T>,
) -> Result<()> {
    run(cx, x.into(), order, Some(values.into()), Some(places.into()), Some(workspace.contiguous()?))
}

/// What [`sort_into_with`] and [`argsort_into_with`] need as their workspace, with the same context and a tensor of this shape:
/// rows that are sorted in registers need none. Longer ones need the results once, or twice for elements of more than two
/// bytes, and counts of digits among the places.
///
/// # Errors
///
/// As [`sort`], and [`tilewright::Error::Tuning`] of a table's row that does not fit.
pub fn sort_workspace<'a, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
) -> Result<PairRoom> {
    workspace(cx, x.into(), true)
}

/// What a sort needs, with places or without.
fn workspace<T: Number, const R: usize>(cx: &Context, x: TensorView<'_, T, R>, with_places: bool) -> Result<PairRoom> {
    let from = x.rows("x")?;
    check_columns(from.columns)?;
    if x.is_empty() || from.columns <= WHOLE {
        return Ok(PairRoom::default());
    }
    digits_room::<T>(cx, [from.rows, from.columns], with_places)
}

/// The values of [`sort`] alone, which takes half as much memory and less time.
///
/// # Errors
///
/// Those of [`sort`].
pub fn sort_values<'a, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    order: Order,
) -> Result<Tensor<T, R>> {
    let x = x.into();
    let mut values = Tensor::empty(cx.device(), x.shape())?;
    sort_values_into(cx, x, order, &mut values)?;
    Ok(values)
}

/// [`sort_values`], into a tensor. Workspaces are allocated as in [`sort`].
///
/// # Errors
///
/// As [`sort_values`], and if the shape of `values` does not fit.
pub fn sort_values_into<'a, 'b, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    order: Order,
    values: impl Into<TensorViewMut<'b, T, R>>,
) -> Result<()> {
    run(cx, x.into(), order, Some(values.into()), None, None)
}

/// [`sort_values_into`], with a workspace of the size that [`sort_values_workspace`] says, or larger. Nothing is allocated.
///
/// # Errors
///
/// As [`sort_values_into`], and [`tilewright::Error::InvalidTensor`] if a part of the workspace has gaps or is too small.
pub fn sort_values_into_with<'a, 'b, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    order: Order,
    values: impl Into<TensorViewMut<'b, T, R>>,
    workspace: PairWorkspace<'_, T>,
) -> Result<()> {
    run(cx, x.into(), order, Some(values.into()), None, Some(workspace.contiguous()?))
}

/// What [`sort_values_into_with`] needs as its workspace, with the same context and a tensor of this shape: what
/// [`sort_workspace`] says, with counts alone among the places.
///
/// # Errors
///
/// As [`sort_workspace`].
pub fn sort_values_workspace<'a, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
) -> Result<PairRoom> {
    workspace(cx, x.into(), false)
}

/// The indices of [`sort`] alone: of the element that comes first, and so on.
///
/// # Errors
///
/// Those of [`sort`].
pub fn argsort<'a, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    order: Order,
) -> Result<Tensor<i32, R>> {
    let x = x.into();
    let mut places = Tensor::empty(cx.device(), x.shape())?;
    argsort_into(cx, x, order, &mut places)?;
    Ok(places)
}

/// [`argsort`], into a tensor. Workspaces are allocated as in [`sort`].
///
/// # Errors
///
/// As [`argsort`], and if the shape of `places` does not fit.
pub fn argsort_into<'a, 'b, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    order: Order,
    places: impl Into<TensorViewMut<'b, i32, R>>,
) -> Result<()> {
    run(cx, x.into(), order, None, Some(places.into()), None)
}

/// [`argsort_into`], with a workspace of the size that [`sort_workspace`] says, or larger. Nothing is allocated.
///
/// # Errors
///
/// As [`argsort_into`], and [`tilewright::Error::InvalidTensor`] if a part of the workspace has gaps or is too small.
pub fn argsort_into_with<'a, 'b, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    order: Order,
    places: impl Into<TensorViewMut<'b, i32, R>>,
    workspace: PairWorkspace<'_, T>,
) -> Result<()> {
    run(cx, x.into(), order, None, Some(places.into()), Some(workspace.contiguous()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn sorts_fit_into_registers() {
        let target = Target::sm_90a();
        for block in [1024, 4096, WHOLE] {
            let whole = SortWholeConsts { DESCENDING: false, BLOCK: block };
            let compiled = whole.request::<f32>(true, true).num_warps((block / 512) as u32).compile(target);
            check_instructions(&format!("sort {block}"), compiled, &["ld.global.nc.v4.b32"]);
        }
    }
}
