//! Sorting rows.

use super::number::Number;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::MaybeViewMut;
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// The longest row that one program sorts. Longer ones are sorted in runs of this length, which are then merged.
const RUN: usize = 16_384;
/// Elements that a program merges at a time.
const MERGED: usize = 4096;

/// The order of a sort.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// The smallest first.
    #[default]
    Ascending,
    /// The largest first.
    Descending,
}

/// A run of a row in registers. What pads it stays behind, as it is of the extreme value and sorting is stable.
#[kernel]
fn sort_runs<T: Num, const DESCENDING: bool, const BLOCK: usize>(
    x: Ptr<T>,
    values: Option<PtrMut<T>>,
    places: Option<PtrMut<i32>>,
    padding: T,
    columns: i32,
    x_stride: i64,
    values_stride: i64,
    places_stride: i64,
) {
    let (row, first) = (program_id(0) as i64, program_id(1) * BLOCK);
    let column = first + arange(0, BLOCK);
    let mask = column < columns;
    let v = load(x + row * x_stride + column, mask = mask, other = padding);
    if let Some(places) = places {
        let order = if DESCENDING { argsort(v, descending = true) } else { argsort(v) };
        store(places + row * places_stride + column, first + order, mask = mask);
        if let Some(values) = values {
            // Read again, as the row is in the cache: so the sort has the registers of what it would otherwise keep.
            let sorted = load(x + row * x_stride + first + order, mask = mask);
            store(values + row * values_stride + column, sorted, mask = mask);
        }
    } else {
        if let Some(values) = values {
            let sorted = if DESCENDING { sort(v, descending = true) } else { sort(v) };
            store(values + row * values_stride + column, sorted, mask = mask);
        }
    }
}

/// How many of the first `diagonal` results of merging `[left, middle)` with `[middle, right)` come from the left: a binary
/// search (Odeh, Green, Mwassi, Shmueli and Birk, "Merge Path", 2012).
#[device]
fn taken_from_left<T: Num, const DESCENDING: bool>(
    x: Ptr<T>,
    left: i32,
    middle: i32,
    right: i32,
    diagonal: i32,
) -> i32 {
    let mut low = maximum(0, diagonal - (right - middle));
    let mut high = minimum(diagonal, middle - left);
    while low < high {
        let half = low + (high - low) / 2;
        let a = load(x + (left + half));
        let b = load(x + (middle + (diagonal - 1 - half)));
        // Whether `b` comes before `a` though it is in the right run. Of zeros the negative one is less, NaN is greatest.
        let less = if DESCENDING { a } else { b };
        let more = if DESCENDING { b } else { a };
        let zeros = less == more && (1 as T) / less < (1 as T) / more;
        let before = less < more || (more != more && less == less) || zeros;
        low = select(before, low, half + 1);
        high = select(before, half, high);
    }
    low
}

/// Merges pairs of neighbouring runs, `BLOCK` elements of the result per program: those that the runs have there, sorted.
#[kernel]
fn merge_runs<T: Num, const DESCENDING: bool, const BLOCK: usize>(
    x: Ptr<T>,
    x_places: Ptr<i32>,
    values: Option<PtrMut<T>>,
    places: PtrMut<i32>,
    padding: T,
    run: i32,
    columns: i32,
    x_stride: i64,
    x_places_stride: i64,
    values_stride: i64,
    places_stride: i64,
) {
    let row = program_id(0) as i64;
    let (x, x_places) = (x + row * x_stride, x_places + row * x_places_stride);
    let at = program_id(1) * BLOCK;
    // The pair of runs that these results lie in.
    let left = at / run / 2 * 2 * run;
    let middle = left + minimum(run, columns - left);
    let right = middle + minimum(run, columns - middle);
    let end = minimum(at - left + BLOCK, right - left);
    let first = taken_from_left::<T, DESCENDING>(x, left, middle, right, at - left);
    let last = taken_from_left::<T, DESCENDING>(x, left, middle, right, end);
    let lane = arange(0, BLOCK);
    let lefts = last - first;
    let from_right = middle + (at - left - first) - lefts;
    let place = lane + select(lane < lefts, left + first, from_right);
    let mask = lane < end - (at - left);
    let v = load(x + place, mask = mask, other = padding);
    let v_at = load(x_places + place, mask = mask);
    let order = if DESCENDING { argsort(v, descending = true) } else { argsort(v) };
    if let Some(values) = values {
        store(values + row * values_stride + at + lane, gather(v, order, axis = 0), mask = mask);
    }
    store(places + row * places_stride + at + lane, gather(v_at, order, axis = 0), mask = mask);
}

/// Rows of a matrix to write, and the distance between them.
struct To<'a, T: DType> {
    elements: ViewMut<'a, T>,
    stride: usize,
}

impl<'a, T: DType> To<'a, T> {
    fn new(buffer: &'a mut Buffer<T>, stride: usize) -> Self {
        To { elements: buffer.as_view_mut(), stride }
    }

    fn reborrow(&mut self) -> To<'_, T> {
        To { elements: self.elements.reborrow(), stride: self.stride }
    }
}

/// The longest row, so that axis 1 of a grid has a program for every [`MERGED`] elements of it.
const LONGEST: usize = 1 << 27;

/// What a sort is of.
#[derive(Clone, Copy)]
struct Sort<T> {
    rows: usize,
    columns: usize,
    order: Order,
    padding: T,
}

impl<T: Num> Sort<T> {
    fn runs(
        &self,
        cx: &Context,
        (x, x_stride): (View<'_, T>, usize),
        values: Option<To<'_, T>>,
        places: Option<To<'_, i32>>,
    ) -> Result<()> {
        let block = self.columns.next_power_of_two().min(RUN);
        let (values_stride, places_stride) =
            (values.as_ref().map_or(0, |to| to.stride), places.as_ref().map_or(0, |to| to.stride));
        SortRunsConsts { DESCENDING: self.order == Order::Descending, BLOCK: block }
            .call(
                x,
                MaybeViewMut::from(values.map(|to| to.elements)),
                MaybeViewMut::from(places.map(|to| to.elements)),
                self.padding,
                self.columns as i32,
                x_stride as i64,
                values_stride as i64,
                places_stride as i64,
            )
            .grid((self.rows, self.columns.div_ceil(block)))
            .num_warps((block / 512).clamp(1, 32) as u32)
            .stream(cx.stream())
            .launch(cx.device())
    }

    /// Merges runs of `run` elements.
    fn merge(
        &self,
        cx: &Context,
        run: usize,
        (x, x_stride): (View<'_, T>, usize),
        (x_places, x_places_stride): (View<'_, i32>, usize),
        values: Option<To<'_, T>>,
        places: To<'_, i32>,
    ) -> Result<()> {
        let values_stride = values.as_ref().map_or(0, |to| to.stride);
        MergeRunsConsts { DESCENDING: self.order == Order::Descending, BLOCK: MERGED }
            .call(
                x,
                x_places,
                MaybeViewMut::from(values.map(|to| to.elements)),
                places.elements,
                self.padding,
                run as i32,
                self.columns as i32,
                x_stride as i64,
                x_places_stride as i64,
                values_stride as i64,
                places.stride as i64,
            )
            .grid((self.rows, self.columns.div_ceil(MERGED)))
            .num_warps(8)
            .stream(cx.stream())
            .launch(cx.device())
    }

    /// Sorts runs into one pair of workspaces, and merges them between two; the last merge writes the results.
    fn merged(
        &self,
        cx: &Context,
        x: (View<'_, T>, usize),
        mut values: Option<To<'_, T>>,
        mut places: Option<To<'_, i32>>,
    ) -> Result<()> {
        let (columns, len) = (self.columns, self.rows * self.columns);
        let mut from = (cx.device().empty::<T>(len)?, cx.device().empty::<i32>(len)?);
        let mut to = (cx.device().empty::<T>(len)?, cx.device().empty::<i32>(len)?);
        self.runs(cx, x, Some(To::new(&mut from.0, columns)), Some(To::new(&mut from.1, columns)))?;
        let mut run = RUN;
        while run < columns {
            let (x, x_places) = ((from.0.as_view(), columns), (from.1.as_view(), columns));
            if run * 2 >= columns {
                let spare = To::new(&mut to.1, columns);
                let places = places.as_mut().map_or(spare, To::reborrow);
                return self.merge(cx, run, x, x_places, values.as_mut().map(To::reborrow), places);
            }
            let places = To::new(&mut to.1, columns);
            self.merge(cx, run, x, x_places, Some(To::new(&mut to.0, columns)), places)?;
            std::mem::swap(&mut from, &mut to);
            run *= 2;
        }
        Ok(())
    }
}

/// Sorts rows into what is wanted.
fn run<T: Number, const R: usize>(
    cx: &Context,
    x: TensorView<'_, T, R>,
    order: Order,
    values: Option<TensorViewMut<'_, T, R>>,
    places: Option<TensorViewMut<'_, i32, R>>,
) -> Result<()> {
    let from = x.rows("x")?;
    let values = values.map(|to| rows_like("values", x.shape(), to)).transpose()?;
    let places = places.map(|to| rows_like("places", x.shape(), to)).transpose()?;
    check::size("x", from.columns)?;
    if from.columns > LONGEST {
        return Err(check::invalid("x", format!("has rows of {}", from.columns), "sort rows of at most 2^27 elements"));
    }
    if x.is_empty() {
        return Ok(());
    }
    let padding = if order == Order::Ascending { T::LAST } else { T::LOWEST };
    let sort = Sort { rows: from.rows, columns: from.columns, order, padding };
    let x = (x.elements(), from.stride);
    if from.columns <= RUN { sort.runs(cx, x, values, places) } else { sort.merged(cx, x, values, places) }
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
/// `x` is `[.., columns]` with at most 2^27 columns, both results have its shape. To sort along another dimension, copy the
/// tensor with that one last ([`contiguous`](super::contiguous)).
///
/// # Method
///
/// Rows of up to 16,384 elements are sorted in registers, longer ones in runs of this length, which are merged in pairs: each
/// doubling reads and writes the row once more, in two workspaces of the results' sizes that are allocated for the call.
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
    run(cx, x, order, Some(values.view_mut()), Some(places.view_mut()))?;
    Ok((values, places))
}

/// [`sort`], into tensors.
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
    run(cx, x.into(), order, Some(values.into()), Some(places.into()))
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
    run(cx, x, order, Some(values.view_mut()), None)?;
    Ok(values)
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
    run(cx, x, order, None, Some(places.view_mut()))?;
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn sorts_fit_into_registers() {
        let target = Target::sm_90a();
        let runs = |block: usize| SortRunsConsts { DESCENDING: false, BLOCK: block };
        let warps = |block: usize| (block / 512).clamp(1, 32) as u32;
        for block in [1024, 4096, RUN] {
            let compiled = runs(block).request::<f32>(true, true).num_warps(warps(block)).compile(target);
            check_instructions(&format!("sort {block}"), compiled, &["ld.global.nc.v4.b32"]);
        }
        let merge = MergeRunsConsts { DESCENDING: false, BLOCK: MERGED };
        check_instructions("merge", merge.request::<f32>(true).num_warps(8).compile(target), &[]);
    }
}
