//! The largest or smallest elements of rows.

use super::number::Number;
use super::pairs::{PairRoom, PairWorkspace, memory};
use crate::workspace::{part, room};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::MaybeViewMut;
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// The most elements that are asked for.
pub(super) const MOST: usize = 1024;
/// The longest row that a program takes as a whole.
const WHOLE: usize = 16_384;
/// Rows up to this length are not divided into groups: the launches would cost more than they save.
const SHORT: usize = 4096;
/// Elements of a tile of groups.
const TILE: usize = 4096;
/// The longest row, so that axis 1 of a grid has a program for every tile of it.
const LONGEST: usize = 1 << 27;

/// Which elements [`topk`] takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Extreme {
    /// The largest, in descending order. NaN is larger than all numbers.
    #[default]
    Largest,
    /// The smallest, in ascending order.
    Smallest,
}

/// The `K` extreme elements of a row in registers, of which `k` are wanted.
#[kernel]
fn topk_whole<T: Num, const SMALLEST: bool, const K: usize, const BLOCK: usize>(
    x: Ptr<T>,
    values: Option<PtrMut<T>>,
    places: PtrMut<i32>,
    padding: T,
    columns: i32,
    k: i32,
    x_stride: i64,
    values_stride: i64,
    places_stride: i64,
) {
    let row = program_id(0) as i64;
    let column = arange(0, BLOCK);
    let v = load(x + row * x_stride + column, mask = column < columns, other = padding);
    let (best, at) = if SMALLEST {
        topk(v, K, axis = 0, smallest = true, return_indices = true)
    } else {
        topk(v, K, axis = 0, return_indices = true)
    };
    let lane = arange(0, K);
    if let Some(values) = values {
        store(values + row * values_stride + lane, best, mask = lane < k);
    }
    store(places + row * places_stride + lane, at, mask = lane < k);
}

/// The extreme of each group of `G` neighbours.
#[kernel]
fn group_extremes<T: Num, const SMALLEST: bool, const G: usize, const BG: usize>(
    x: Ptr<T>,
    extremes: PtrMut<T>,
    padding: T,
    columns: i32,
    groups: i32,
    x_stride: i64,
) {
    let row = program_id(0) as i64;
    let group = program_id(1) * BG + arange(0, BG);
    let column = group[(.., None)] * G + arange(0, G);
    let v = load(x + row * x_stride + column, mask = column < columns, other = padding);
    // NaN is the largest: the smallest of a group is NaN only where all are.
    let extreme = if SMALLEST {
        reduce(v, axis = 1, |a, b| minimum(a, b))
    } else {
        reduce(v, axis = 1, |a, b| maximum(a, b, propagate_nan = true))
    };
    store(extremes + row * groups as i64 + group, extreme, mask = group < groups);
}

/// The extreme elements of `K` groups, which hold those of the row.
#[kernel]
fn topk_of_groups<T: Num, const SMALLEST: bool, const K: usize, const G: usize>(
    x: Ptr<T>,
    chosen: Ptr<i32>,
    values: Option<PtrMut<T>>,
    places: PtrMut<i32>,
    padding: T,
    columns: i32,
    k: i32,
    x_stride: i64,
    values_stride: i64,
    places_stride: i64,
) {
    let row = program_id(0) as i64;
    let lane = arange(0, K);
    // In the order of the row, so that of equal elements the first one is first.
    let group = sort(load(chosen + row * K + lane));
    let column = group[(.., None)] * G + arange(0, G);
    let v = load(x + row * x_stride + column, mask = (column >= 0) & (column < columns), other = padding);
    let v = reshape(v, [K * G]);
    let (best, at) = if SMALLEST {
        topk(v, K, axis = 0, smallest = true, return_indices = true)
    } else {
        topk(v, K, axis = 0, return_indices = true)
    };
    if let Some(values) = values {
        store(values + row * values_stride + lane, best, mask = lane < k);
    }
    let place = gather(group, at / G as i32, axis = 0) * G + at % G as i32;
    store(places + row * places_stride + lane, place, mask = lane < k);
}

/// Rows of which the extremes are taken.
#[derive(Clone, Copy)]
struct Rows<'a, T: DType> {
    elements: View<'a, T>,
    rows: usize,
    columns: usize,
    stride: usize,
}

/// Where results go.
struct Results<'a, T: DType> {
    values: Option<(ViewMut<'a, T>, usize)>,
    places: (ViewMut<'a, i32>, usize),
}

/// What is taken: which, how many, and what pads a row.
#[derive(Clone, Copy)]
struct Taken<T> {
    smallest: bool,
    k: usize,
    padding: T,
}

/// Elements of a group, if a row is divided: the square root of the row over `k` balances the number of groups with that
/// of the elements of those that are chosen.
fn group(columns: usize, k: usize) -> Option<usize> {
    if columns <= SHORT || columns < 8 * k {
        return None;
    }
    let balanced = (columns / k).isqrt().next_power_of_two().clamp(16, 128);
    Some(balanced.min(WHOLE / k)).filter(|group| columns.div_ceil(*group) >= k)
}

/// Warps of a program that has so many elements in registers.
fn warps(elements: usize) -> u32 {
    (elements / 512).clamp(1, 32) as u32
}

/// What is allocated for rows that are divided into groups, or given: the extremes of groups, and which are chosen, for each
/// level of groups of groups.
fn levels(rows: usize, columns: usize, k: usize) -> PairRoom {
    let k = k.next_power_of_two();
    let Some(group) = group(columns, k) else { return PairRoom::default() };
    let groups = columns.div_ceil(group);
    let inner = levels(rows, groups, k);
    PairRoom { values: room(&[rows * groups, inner.values]), places: room(&[rows * k, inner.places]) }
}

fn run<T: Num>(
    cx: &Context,
    x: Rows<'_, T>,
    taken: Taken<T>,
    to: Results<'_, T>,
    workspace: Option<PairWorkspace<'_, T>>,
) -> Result<()> {
    let Some(group) = group(x.columns, taken.k.next_power_of_two()) else { return whole(cx, x, taken, to) };
    let (mut extremes, mut chosen) = memory(cx, workspace, levels(x.rows, x.columns, taken.k))?;
    by_groups(cx, group, x, taken, to, (extremes.view_mut(), chosen.view_mut()))
}

/// Rows that a program takes as a whole.
fn whole<T: Num>(cx: &Context, x: Rows<'_, T>, taken: Taken<T>, to: Results<'_, T>) -> Result<()> {
    let k = taken.k.next_power_of_two();
    let (values, values_stride) = to.values.unzip();
    let (places, places_stride) = to.places;
    let block = x.columns.next_power_of_two().max(k);
    TopkWholeConsts { SMALLEST: taken.smallest, K: k, BLOCK: block }
        .call(
            x.elements,
            MaybeViewMut::from(values),
            places,
            taken.padding,
            x.columns as i32,
            taken.k as i32,
            x.stride as i64,
            values_stride.unwrap_or(0) as i64,
            places_stride as i64,
        )
        .grid(x.rows)
        .num_warps(warps(block))
        .stream(cx.stream())
        .launch(cx.device())
}

/// Rows in groups of so many elements, within memory of the size that [`levels`] says.
fn by_groups<T: Num>(
    cx: &Context,
    group: usize,
    x: Rows<'_, T>,
    taken: Taken<T>,
    to: Results<'_, T>,
    (extremes, chosen): (ViewMut<'_, T>, ViewMut<'_, i32>),
) -> Result<()> {
    let k = taken.k.next_power_of_two();
    let (values, values_stride) = to.values.unzip();
    let (places, places_stride) = to.places;
    let groups = x.columns.div_ceil(group);
    let (mut extremes, other_extremes) = part(extremes, x.rows * groups)?;
    let (mut chosen, others_chosen) = part(chosen, x.rows * k)?;
    let per_tile = TILE / group;
    GroupExtremesConsts { SMALLEST: taken.smallest, G: group, BG: per_tile }
        .call(x.elements, extremes.reborrow(), taken.padding, x.columns as i32, groups as i32, x.stride as i64)
        .grid((x.rows, groups.div_ceil(per_tile)))
        .num_warps(8)
        .stream(cx.stream())
        .launch(cx.device())?;
    let of_groups = Rows { elements: extremes.as_view(), rows: x.rows, columns: groups, stride: groups };
    let places_of_groups = Results { values: None, places: (chosen.reborrow(), k) };
    let taken_groups = Taken { k, ..taken };
    match self::group(groups, k) {
        None => whole(cx, of_groups, taken_groups, places_of_groups)?,
        Some(inner) => {
            by_groups(cx, inner, of_groups, taken_groups, places_of_groups, (other_extremes, others_chosen))?;
        }
    }
    TopkOfGroupsConsts { SMALLEST: taken.smallest, K: k, G: group }
        .call(
            x.elements,
            chosen.as_view(),
            MaybeViewMut::from(values),
            places,
            taken.padding,
            x.columns as i32,
            taken.k as i32,
            x.stride as i64,
            values_stride.unwrap_or(0) as i64,
            places_stride as i64,
        )
        .grid(x.rows)
        .num_warps(warps(k * group))
        .stream(cx.stream())
        .launch(cx.device())
}

/// The `k` largest (or smallest) elements of each row in order, and their indices.
///
/// Of equal elements the first one comes first. NaN is larger than all numbers, `-0.0` smaller than `0.0`.
///
/// # Shapes
///
/// `x` is `[.., columns]` with `k <= columns <= 2^27`, and `k` is at most 1024; both results are `[.., k]`.
///
/// # Method
///
/// A long row is read once, for the extreme of each group of 16 to 128 neighbours. The `k` groups with the best of them hold
/// the `k` best elements, and are read again. The extremes and the chosen groups are allocated for the call.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if `k` does not fit, or if rows have gaps, do not follow each other or are too long;
/// [`tilewright::Error::OutOfMemory`]; those of a launch.
pub fn topk<'a, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    k: usize,
    extreme: Extreme,
) -> Result<(Tensor<T, R>, Tensor<i32, R>)> {
    let x = x.into();
    let mut shape = x.shape();
    check_k(x, k)?;
    shape[R - 1] = k;
    let mut values = Tensor::empty(cx.device(), shape)?;
    let mut places = Tensor::empty(cx.device(), shape)?;
    topk_into(cx, x, k, extreme, &mut values, &mut places)?;
    Ok((values, places))
}

/// [`topk`], into tensors. Extremes and chosen groups of long rows are allocated as there.
///
/// # Errors
///
/// As [`topk`], and if the shapes of `values` or `places` do not fit.
pub fn topk_into<'a, 'b, 'c, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    k: usize,
    extreme: Extreme,
    values: impl Into<TensorViewMut<'b, T, R>>,
    places: impl Into<TensorViewMut<'c, i32, R>>,
) -> Result<()> {
    into(cx, x.into(), (k, extreme), (values.into(), places.into()), None)
}

/// [`topk_into`], with a workspace of the size that [`topk_workspace`] says, or larger. Nothing is allocated.
///
/// # Errors
///
/// As [`topk_into`], and [`tilewright::Error::InvalidTensor`] if a part of the workspace has gaps or is too small.
pub fn topk_into_with<'a, 'b, 'c, T: Number, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    k: usize,
    extreme: Extreme,
    values: impl Into<TensorViewMut<'b, T, R>>,
    places: impl Into<TensorViewMut<'c, i32, R>>,
    workspace: PairWorkspace<'_, T>,
) -> Result<()> {
    into(cx, x.into(), (k, extreme), (values.into(), places.into()), Some(workspace.contiguous()?))
}

/// What [`topk_into_with`] needs as its workspace for the `k` best elements of rows like these, whatever the device: the
/// extremes of groups and the chosen groups of long rows. Others need none.
///
/// # Errors
///
/// As [`topk`].
pub fn topk_workspace<'a, T: Number, const R: usize>(x: impl Into<TensorView<'a, T, R>>, k: usize) -> Result<PairRoom> {
    let from = check_k(x.into(), k)?;
    Ok(levels(from.rows, from.columns, k))
}

pub(super) fn into<T: Number, const R: usize>(
    cx: &Context,
    x: TensorView<'_, T, R>,
    (k, extreme): (usize, Extreme),
    (values, places): (TensorViewMut<'_, T, R>, TensorViewMut<'_, i32, R>),
    workspace: Option<PairWorkspace<'_, T>>,
) -> Result<()> {
    let from = check_k(x, k)?;
    let mut shape = x.shape();
    shape[R - 1] = k;
    check::shape("values", values.shape(), shape)?;
    check::shape("places", places.shape(), shape)?;
    let (values_rows, places_rows) = (values.rows("values")?, places.rows("places")?);
    if values.is_empty() {
        return Ok(());
    }
    let (smallest, padding) = match extreme {
        Extreme::Largest => (false, T::LOWEST),
        Extreme::Smallest => (true, T::LAST),
    };
    let to = Results {
        values: Some((values.elements(), values_rows.stride)),
        places: (places.elements(), places_rows.stride),
    };
    run(cx, from, Taken { smallest, k, padding }, to, workspace)
}

/// Checks how many elements of a row are asked for.
fn check_k<T: Number, const R: usize>(x: TensorView<'_, T, R>, k: usize) -> Result<Rows<'_, T>> {
    let from = x.rows("x")?;
    let most = MOST.min(from.columns);
    if k > most {
        let hint = format!("`k` is at most {most}, of rows of {}", from.columns);
        return Err(check::invalid("k", format!("is {k}"), hint));
    }
    if from.columns > LONGEST {
        return Err(check::invalid("x", format!("has rows of {}", from.columns), "rows have at most 2^27 elements"));
    }
    Ok(Rows { elements: x.elements(), rows: from.rows, columns: from.columns, stride: from.stride })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn groups_are_read_wide() {
        let target = Target::sm_90a();
        for (g, bg) in [(16, 256), (128, 32)] {
            let groups = GroupExtremesConsts { SMALLEST: false, G: g, BG: bg };
            let compiled = groups.request::<bf16>().num_warps(8).compile(target);
            check_instructions(&format!("extremes of groups of {g}"), compiled, &["ld.global.nc.v4.b32"]);
        }
        let whole = TopkWholeConsts { SMALLEST: false, K: 64, BLOCK: SHORT };
        check_instructions(
            "topk of a row",
            whole.request::<bf16>(true).num_warps(8).compile(target),
            &["ld.global.nc.v4.b32"],
        );
        for (k, g) in [(64, 32), (1024, 16)] {
            let of_groups = TopkOfGroupsConsts { SMALLEST: false, K: k, G: g };
            let compiled = of_groups.request::<bf16>(true).num_warps((k * g / 512) as u32).compile(target);
            check_instructions(&format!("topk {k} of groups of {g}"), compiled, &["ld.global.nc.v4.b32"]);
        }
    }
}
