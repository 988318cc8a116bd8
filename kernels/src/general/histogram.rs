//! How often values occur.

use super::fill::write_zeros;
use super::number::Real;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Result, ViewMut};

/// Bins that a program counts by itself before it adds them to memory.
const PRIVATE: usize = 4096;
/// Elements of a tile.
const BLOCK: usize = 4096;
/// Programs that keep a large GPU busy.
const PROGRAMS: usize = 528;

/// Counts of integers from 0 up to `bins`. A program counts its tiles in a histogram of its own (`PRIVATE`), or each element
/// in memory.
#[kernel]
fn count<T: Int, const PRIVATE: bool, const BINS: usize, const BLOCK: usize>(
    x: Ptr<T>,
    counts: PtrMut<i32>,
    len: i64,
    bins: i32,
) {
    let lane = arange(0, BINS);
    let mut own = zeros::<i32>([BINS]);
    for step in (program_id(0) as i64 * BLOCK..len).step_by(num_programs(0) as i64 * BLOCK) {
        let at = step + arange(0, BLOCK) as i64;
        let v = load(x + at, mask = at < len);
        // Compared in 64 bits; the greatest u64 are negative there, and not counted either.
        let counted = (at < len) & (v as i64 >= 0) & ((v as i64) < bins as i64);
        if PRIVATE {
            own += histogram(select(counted, v as i32, 0), BINS, mask = counted);
        } else {
            atomic_add(counts + select(counted, v as i32, 0), 1, mask = counted, order = relaxed);
        }
    }
    if PRIVATE {
        atomic_add(counts + lane, own, mask = (lane < bins) & (own > 0), order = relaxed);
    }
}

/// Counts of floats in bins of one width.
#[kernel]
fn count_floats<T: Float, const PRIVATE: bool, const BINS: usize, const BLOCK: usize>(
    x: Ptr<T>,
    counts: PtrMut<i32>,
    len: i64,
    bins: i32,
    low: f64,
    high: f64,
) {
    let lane = arange(0, BINS);
    let (low, high) = (low as T::Acc, high as T::Acc);
    let mut own = zeros::<i32>([BINS]);
    for step in (program_id(0) as i64 * BLOCK..len).step_by(num_programs(0) as i64 * BLOCK) {
        let at = step + arange(0, BLOCK) as i64;
        let v = load(x + at, mask = at < len) as T::Acc;
        let counted = (at < len) & (v >= low) & (v <= high);
        let bin = minimum(((v - low) / (high - low) * bins as T::Acc) as i32, bins - 1);
        let bin = select(counted, bin, 0);
        if PRIVATE {
            own += histogram(bin, BINS, mask = counted);
        } else {
            atomic_add(counts + bin, 1, mask = counted, order = relaxed);
        }
    }
    if PRIVATE {
        atomic_add(counts + lane, own, mask = (lane < bins) & (own > 0), order = relaxed);
    }
}

/// What both kernels are launched with: whether programs count by themselves, bins of a tile, programs.
fn plan(len: usize, bins: usize) -> (bool, usize, usize) {
    let private = bins <= PRIVATE;
    let blocks = len.div_ceil(BLOCK);
    let tile = if private { bins.next_power_of_two().max(32) } else { 32 };
    (private, tile, if private { blocks.min(PROGRAMS) } else { blocks.min(PROGRAMS * 4) })
}

/// How often each integer from 0 up to `bins` occurs; others are not counted.
///
/// # Shapes
///
/// `x` is of any shape, in row-major order without gaps, and has at most 2^31 - 65,536 elements; the result is `[bins]`.
///
/// # Method
///
/// Up to 4096 bins each program counts by itself, and adds what it has counted to memory; more are counted in memory.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if `x` has gaps or too many elements; [`tilewright::Error::OutOfMemory`]; those of a
/// launch.
pub fn bincount<'a, T: Int, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    bins: usize,
) -> Result<Tensor<i32, 1>> {
    check::size("bins", bins)?;
    let mut counts = Tensor::empty(cx.device(), [bins])?;
    bincount_into(cx, x, &mut counts)?;
    Ok(counts)
}

/// [`bincount`], into a tensor with as many elements as there are bins, without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`bincount`], and if `counts` has gaps.
pub fn bincount_into<'a, 'b, T: Int, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    counts: impl Into<TensorViewMut<'b, i32, 1>>,
) -> Result<()> {
    let Some(Work { x, mut counts, most }) = Work::of(cx, x.into(), counts.into())? else { return Ok(()) };
    let (private, tile, programs) = plan(x.len(), counts.len());
    CountConsts { PRIVATE: private, BINS: tile, BLOCK }
        .call(x.elements(), counts.reborrow(), x.len() as i64, most)
        .grid(programs)
        .num_warps(8)
        .stream(cx.stream())
        .launch(cx.device())
}

/// What is counted, where to, and the number of bins.
struct Work<'a, T: DType> {
    x: TensorView<'a, T, 1>,
    counts: ViewMut<'a, i32>,
    most: i32,
}

impl<'a, T: DType> Work<'a, T> {
    /// Checks elements and counts, and writes zeros to these; none if that is all.
    fn of<const R: usize>(
        cx: &Context,
        x: TensorView<'a, T, R>,
        counts: TensorViewMut<'a, i32, 1>,
    ) -> Result<Option<Self>> {
        let x = x.reshape([x.len()])?;
        check::packed("x", &x)?;
        check::size("x", x.len())?;
        let most = check::size("bins", counts.len())?;
        check::packed("counts", &counts.as_view())?;
        let mut counts = counts.elements();
        write_zeros(cx, counts.reborrow())?;
        Ok((!x.is_empty() && most > 0).then_some(Work { x, counts, most }))
    }
}

/// How many elements are in each of `bins` parts of `low..=high`, which have one width. The last one has its upper end, `high`.
/// NaN and what is outside are not counted.
///
/// # Numerics
///
/// The bin is `(x - low) / (high - low) * bins`, computed in f32 (f64 for f64): an element that close to the border of two
/// bins may be counted in either.
///
/// # Errors
///
/// Those of [`bincount`], and if `low` is not below `high`, also once both are rounded to what bins are computed in.
pub fn histogram<'a, T: Real, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    bins: usize,
    low: f64,
    high: f64,
) -> Result<Tensor<i32, 1>> {
    check::size("bins", bins)?;
    let mut counts = Tensor::empty(cx.device(), [bins])?;
    histogram_into(cx, x, low, high, &mut counts)?;
    Ok(counts)
}

/// [`histogram`], into a tensor with as many elements as there are bins, without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`histogram`], and if `counts` has gaps.
pub fn histogram_into<'a, 'b, T: Real, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    low: f64,
    high: f64,
    counts: impl Into<TensorViewMut<'b, i32, 1>>,
) -> Result<()> {
    check_range::<T>(low, high)?;
    let Some(Work { x, mut counts, most }) = Work::of(cx, x.into(), counts.into())? else { return Ok(()) };
    let (private, tile, programs) = plan(x.len(), counts.len());
    CountFloatsConsts { PRIVATE: private, BINS: tile, BLOCK }
        .call(x.elements(), counts.reborrow(), x.len() as i64, most, low, high)
        .grid(programs)
        .num_warps(8)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Checks that bins of the range have a width, in the dtype that the kernel computes in.
fn check_range<T: Real>(low: f64, high: f64) -> Result<()> {
    let refused = |hint: &str| Err(check::invalid("low", format!("is {low} for `high` = {high}"), hint));
    if !(low < high && (high - low).is_finite()) {
        return refused("give finite numbers in order");
    }
    let (first, last) = (low as f32, high as f32);
    if T::ELEMENT != f64::ELEMENT && !(first < last && (last - first).is_finite()) {
        return refused("bins are computed in f32: give numbers that differ in it, and whose difference it has");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn counts_are_made_in_shared_memory() {
        for bins in [256, PRIVATE] {
            let consts = CountConsts { PRIVATE: true, BINS: bins, BLOCK };
            let compiled = consts.request::<i32>().num_warps(8).compile(Target::sm_90a());
            check_instructions(&format!("{bins} bins"), compiled, &["ld.global.nc.v4.b32"]);
        }
        let consts = CountFloatsConsts { PRIVATE: true, BINS: 256, BLOCK };
        let compiled = consts.request::<f32>().num_warps(8).compile(Target::sm_90a());
        check_instructions("256 bins of floats", compiled, &["ld.global.nc.v4.b32"]);
    }
}
