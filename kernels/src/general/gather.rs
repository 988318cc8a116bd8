//! Elements at indices: read from there, written or added there.

use super::axis::Work;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// `out[o, j, i] = x[o, index[o, j, i], i]`, or `index[j]` where one index holds for a whole row (`ROWS`).
#[kernel]
fn gather_along<T: DType, I: Int, const ROWS: bool, const BK: usize, const BL: usize>(
    x: Ptr<T>,
    index: Ptr<I>,
    out: PtrMut<T>,
    kept: i32,
    len: i32,
    size: i32,
    x_kept: i64,
    x_beside: i64,
    x_axis: i64,
    index_kept: i64,
    index_beside: i64,
    index_axis: i64,
    out_kept: i64,
    out_beside: i64,
    out_axis: i64,
) {
    // All in axis 0 of the grid, as the others are short.
    let (blocks, pieces) = (cdiv(kept, BK), cdiv(len, BL));
    let i = program_id(0) / pieces % blocks * BK + arange(0, BK);
    let beside = (program_id(0) / pieces / blocks) as i64;
    let j = program_id(0) % pieces * BL + arange(0, BL);
    let mask = (i < kept)[(.., None)] & (j < len);
    let (i, row) = (i as i64, j as i64);
    let at = if ROWS {
        let at = load(index + row * index_axis, mask = j < len) as i64;
        assert!((at >= 0) & (at < size as i64), "an index is outside of the dimension");
        broadcast_to(at[(None, ..)], [BK, BL])
    } else {
        let place = beside * index_beside + ((i * index_kept)[(.., None)] + row * index_axis);
        let at = load(index + place, mask = mask) as i64;
        assert!((at >= 0) & (at < size as i64), "an index is outside of the dimension");
        at
    };
    let v = load(x + beside * x_beside + ((i * x_kept)[(.., None)] + at * x_axis), mask = mask);
    store(out + beside * out_beside + ((i * out_kept)[(.., None)] + row * out_axis), v, mask = mask);
}

/// `out[o, index[o, j, i], i] = x[o, j, i]`, or `+=` (`ADD`).
#[kernel]
fn scatter_along<T: Num, I: Int, const ROWS: bool, const ADD: bool, const BK: usize, const BL: usize>(
    x: Ptr<T>,
    index: Ptr<I>,
    out: PtrMut<T>,
    kept: i32,
    len: i32,
    size: i32,
    x_kept: i64,
    x_beside: i64,
    x_axis: i64,
    index_kept: i64,
    index_beside: i64,
    index_axis: i64,
    out_kept: i64,
    out_beside: i64,
    out_axis: i64,
) {
    // All in axis 0 of the grid, as the others are short.
    let (blocks, pieces) = (cdiv(kept, BK), cdiv(len, BL));
    let i = program_id(0) / pieces % blocks * BK + arange(0, BK);
    let beside = (program_id(0) / pieces / blocks) as i64;
    let j = program_id(0) % pieces * BL + arange(0, BL);
    let mask = (i < kept)[(.., None)] & (j < len);
    let (i, row) = (i as i64, j as i64);
    let at = if ROWS {
        let at = load(index + row * index_axis, mask = j < len) as i64;
        assert!((at >= 0) & (at < size as i64), "an index is outside of the dimension");
        broadcast_to(at[(None, ..)], [BK, BL])
    } else {
        let place = beside * index_beside + ((i * index_kept)[(.., None)] + row * index_axis);
        let at = load(index + place, mask = mask) as i64;
        assert!((at >= 0) & (at < size as i64), "an index is outside of the dimension");
        at
    };
    let v = load(x + beside * x_beside + ((i * x_kept)[(.., None)] + row * x_axis), mask = mask);
    let to = out + beside * out_beside + ((i * out_kept)[(.., None)] + at * out_axis);
    if ADD {
        atomic_add(to, v, mask = mask, order = relaxed);
    } else {
        store(to, v, mask = mask);
    }
}

/// Indices with their strides: of each element, or of each row.
struct Indices<'a, I: Int> {
    elements: tilewright::View<'a, I>,
    rows: bool,
    kept: i64,
    beside: i64,
    axis: i64,
}

impl<'a, I: Int> Indices<'a, I> {
    fn of_elements<const R: usize>(work: &Work, index: TensorView<'a, I, R>, axis: usize) -> Result<Self> {
        let strides = work.result("index", index.layout(), axis)?;
        let (kept, beside, axis) = (strides.kept, strides.beside, strides.axis);
        Ok(Indices { elements: index.elements(), rows: false, kept, beside, axis })
    }

    fn of_rows(index: TensorView<'a, I, 1>) -> Self {
        let axis = index.strides()[0] as i64;
        Indices { elements: index.elements(), rows: true, kept: 0, beside: 0, axis }
    }
}

/// Checks that shapes agree but in dimension `axis`, where the first has `len` elements.
fn shapes<const R: usize>(argument: &str, actual: [usize; R], like: [usize; R], axis: usize, len: usize) -> Result<()> {
    let mut expected = like;
    match expected.get_mut(axis) {
        Some(size) => *size = len,
        None => return Err(check::invalid("axis", format!("is {axis}"), format!("dimensions are numbered below {R}"))),
    }
    check::shape(argument, actual, expected)
}

fn run_gather<T: DType, I: Int, const R: usize>(
    cx: &Context,
    x: TensorView<'_, T, R>,
    axis: usize,
    work: &Work,
    index: Indices<'_, I>,
    mut out: TensorViewMut<'_, T, R>,
) -> Result<()> {
    let size = check::size("x", x.shape()[axis])?;
    let (from, to) = (work.result("x", x.layout(), axis)?, work.result("out", out.layout(), axis)?);
    GatherAlongConsts { ROWS: index.rows, BK: work.block_kept, BL: work.block_axis }
        .call(
            x.elements(),
            index.elements,
            out.elements_mut(),
            work.kept.size as i32,
            work.axis.size as i32,
            size,
            from.kept,
            from.beside,
            from.axis,
            index.kept,
            index.beside,
            index.axis,
            to.kept,
            to.beside,
            to.axis,
        )
        .grid(work.programs() * work.axis.size.div_ceil(work.block_axis))
        .num_warps(work.warps())
        .stream(cx.stream())
        .launch(cx.device())
}

fn run_scatter<T: Num, I: Int, const R: usize>(
    cx: &Context,
    mut out: TensorViewMut<'_, T, R>,
    (axis, add): (usize, bool),
    work: &Work,
    index: Indices<'_, I>,
    x: TensorView<'_, T, R>,
) -> Result<()> {
    let size = check::size("out", out.shape()[axis])?;
    let (from, to) = (work.result("x", x.layout(), axis)?, work.result("out", out.layout(), axis)?);
    ScatterAlongConsts { ROWS: index.rows, ADD: add, BK: work.block_kept, BL: work.block_axis }
        .call(
            x.elements(),
            index.elements,
            out.elements_mut(),
            work.kept.size as i32,
            work.axis.size as i32,
            size,
            from.kept,
            from.beside,
            from.axis,
            index.kept,
            index.beside,
            index.axis,
            to.kept,
            to.beside,
            to.axis,
        )
        .grid(work.programs() * work.axis.size.div_ceil(work.block_axis))
        .num_warps(work.warps())
        .stream(cx.stream())
        .launch(cx.device())
}

/// `out[.., j, ..] = x[.., index[j], ..]`: the slices of `x` with these indices in dimension `axis`. Of a table of rows and
/// dimension 0 that is an embedding. The gradient is [`index_add_into`] of zeros.
///
/// # Shapes
///
/// `index` is `[n]` of any integer; the result has the shape of `x` with `n` elements in dimension `axis`. The dimensions
/// before `axis` follow each other, and those behind it.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if shapes or strides do not fit; [`tilewright::Error::OutOfMemory`]; those of a launch,
/// among them, when the result is read, an assertion about an index outside of the dimension.
pub fn index_select<'a, 'b, T: DType, I: Int, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    axis: usize,
    index: impl Into<TensorView<'b, I, 1>>,
) -> Result<Tensor<T, R>> {
    let (x, index) = (x.into(), index.into());
    let mut shape = x.shape();
    if let Some(size) = shape.get_mut(axis) {
        *size = index.len();
    }
    let mut out = Tensor::empty(cx.device(), shape)?;
    index_select_into(cx, x, axis, index, &mut out)?;
    Ok(out)
}

/// [`index_select`], into a tensor.
///
/// # Errors
///
/// As [`index_select`], and if the shape of `out` does not fit.
pub fn index_select_into<'a, 'b, 'c, T: DType, I: Int, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    axis: usize,
    index: impl Into<TensorView<'b, I, 1>>,
    out: impl Into<TensorViewMut<'c, T, R>>,
) -> Result<()> {
    let (x, index, out) = (x.into(), index.into(), out.into());
    shapes("out", out.shape(), x.shape(), axis, index.len())?;
    let work = Work::of("out", out.layout(), axis, false)?;
    if out.is_empty() {
        return Ok(());
    }
    run_gather(cx, x, axis, &work, Indices::of_rows(index), out)
}

/// `out[.., index[j], ..] += x[.., j, ..]` in dimension `axis`. An index may come several times.
///
/// # Shapes
///
/// `index` is `[n]` of any integer, `x` has the shape of `out` with `n` elements in dimension `axis`. The dimensions before
/// `axis` follow each other, and those behind it. Any number of at least 16 bits.
///
/// # Numerics
///
/// Each element is added to memory in its own dtype, atomically and in no certain order: sums of floats may differ from call
/// to call in their last digits.
///
/// # Errors
///
/// Those of [`index_select`].
pub fn index_add_into<'a, 'b, 'c, T: Num, I: Int, const R: usize>(
    cx: &Context,
    out: impl Into<TensorViewMut<'a, T, R>>,
    axis: usize,
    index: impl Into<TensorView<'b, I, 1>>,
    x: impl Into<TensorView<'c, T, R>>,
) -> Result<()> {
    let (x, index, out) = (x.into(), index.into(), out.into());
    shapes("x", x.shape(), out.shape(), axis, index.len())?;
    let work = Work::of("x", x.layout(), axis, false)?;
    if x.is_empty() {
        return Ok(());
    }
    run_scatter(cx, out, (axis, true), &work, Indices::of_rows(index), x)
}

/// `out[.., j, ..] = x[.., index[.., j, ..], ..]` in dimension `axis`: an index for each element of the result. The gradient
/// is [`scatter_add_into`] of zeros.
///
/// # Shapes
///
/// `index` has the shape of `x` but in dimension `axis`, where it may have any size; the result has its shape. The dimensions
/// before `axis` follow each other, and those behind it.
///
/// # Errors
///
/// Those of [`index_select`].
pub fn gather<'a, 'b, T: DType, I: Int, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    axis: usize,
    index: impl Into<TensorView<'b, I, R>>,
) -> Result<Tensor<T, R>> {
    let index = index.into();
    let mut out = Tensor::empty(cx.device(), index.shape())?;
    gather_into(cx, x, axis, index, &mut out)?;
    Ok(out)
}

/// [`gather`], into a tensor.
///
/// # Errors
///
/// As [`gather`], and if the shape of `out` is not that of `index`.
pub fn gather_into<'a, 'b, 'c, T: DType, I: Int, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    axis: usize,
    index: impl Into<TensorView<'b, I, R>>,
    out: impl Into<TensorViewMut<'c, T, R>>,
) -> Result<()> {
    let (x, index, out) = (x.into(), index.into(), out.into());
    shapes("index", index.shape(), x.shape(), axis, index.shape().get(axis).copied().unwrap_or(0))?;
    check::shape("out", out.shape(), index.shape())?;
    let work = Work::of("out", out.layout(), axis, false)?;
    if out.is_empty() {
        return Ok(());
    }
    run_gather(cx, x, axis, &work, Indices::of_elements(&work, index, axis)?, out)
}

macro_rules! scatters {
    ($(#[doc = $doc:literal])* $name:ident, $add:literal) => {
        $(#[doc = $doc])*
        ///
        /// # Shapes
        ///
        /// `index` and `x` have one shape: that of `out` but in dimension `axis`, where they may have any size. The dimensions
        /// before `axis` follow each other, and those behind it.
        ///
        /// # Errors
        ///
        /// Those of [`index_select`].
        pub fn $name<'a, 'b, 'c, T: Num, I: Int, const R: usize>(
            cx: &Context,
            out: impl Into<TensorViewMut<'a, T, R>>,
            axis: usize,
            index: impl Into<TensorView<'b, I, R>>,
            x: impl Into<TensorView<'c, T, R>>,
        ) -> Result<()> {
            let (x, index, out) = (x.into(), index.into(), out.into());
            shapes("x", x.shape(), out.shape(), axis, x.shape().get(axis).copied().unwrap_or(0))?;
            check::shape("index", index.shape(), x.shape())?;
            let work = Work::of("x", x.layout(), axis, false)?;
            if x.is_empty() {
                return Ok(());
            }
            run_scatter(cx, out, (axis, $add), &work, Indices::of_elements(&work, index, axis)?, x)
        }
    };
}

scatters! {
    /// `out[.., index[.., j, ..], ..] = x[.., j, ..]` in dimension `axis`. Of several elements for one place any one stays.
    scatter_into, false
}

scatters! {
    /// `out[.., index[.., j, ..], ..] += x[.., j, ..]` in dimension `axis`, for numbers of at least 16 bits. Each element is
    /// added to memory atomically, in its own dtype and in no certain order.
    scatter_add_into, true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;
    use tilewright::launch::AssumedScalar::One;

    #[test]
    fn rows_of_tables_are_read_wide() {
        let consts = GatherAlongConsts { ROWS: true, BK: 128, BL: 32 };
        let rows = GatherAlongAssumed { x_kept: One, out_kept: One, index_axis: One, ..Default::default() };
        let compiled = consts.request::<f16, i32>().num_warps(8).assume(rows).compile(Target::sm_90a());
        check_instructions("rows of a table", compiled, &["ld.global.nc.v4.b32", "st.global.v4.b32"]);
        let consts = ScatterAlongConsts { ROWS: true, ADD: true, BK: 128, BL: 32 };
        let rows = ScatterAlongAssumed { x_kept: One, out_kept: One, index_axis: One, ..Default::default() };
        let compiled = consts.request::<f32, i32>().num_warps(8).assume(rows).compile(Target::sm_90a());
        check_instructions("rows added to a table", compiled, &["ld.global.nc.v4.b32"]);
    }
}
