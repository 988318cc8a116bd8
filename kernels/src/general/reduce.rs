//! Reductions along a dimension, or over all elements.

use super::axis::{Kept, Work, end_of_piece};
use super::number::{Number, Real};
use crate::workspace::{Memory, contiguous};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// A reduction: what becomes of each element, how two are combined, and what becomes of the total of `n`. A program keeps a
/// tile of running results, `[BK, BL]`, and combines its columns at the end. Long dimensions are reduced in pieces, of which
/// the `FIRST` launch makes the results that the `LAST` one combines.
macro_rules! reduction {
    ($name:ident<$bound:ident>, |$v:ident| $map:expr, |$a:ident, $b:ident| $combine:expr, |$total:ident, $n:ident| $finish:expr) => {
        pub(super) mod $name {
            use super::*;

            #[kernel]
            pub(super) fn kernel<
                T: $bound,
                A: $bound,
                O: $bound,
                const FIRST: bool,
                const LAST: bool,
                const BK: usize,
                const BL: usize,
            >(
                x: Ptr<T>,
                out: PtrMut<O>,
                identity: A,
                kept: i32,
                len: i32,
                per_piece: i32,
                count: i64,
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
                let mut totals = full([BK, BL], identity);
                for at in (first..end).step_by(BL) {
                    let j = at + arange(0, BL);
                    let mask = (i < kept)[(.., None)] & (j < end);
                    let place = (i as i64 * x_kept)[(.., None)] + j as i64 * x_axis;
                    let $v = load(x + place, mask = mask, other = identity as T) as A;
                    let $b = if FIRST { $map } else { $v };
                    let $a = totals;
                    totals = $combine;
                }
                let $total = reduce(totals, axis = 1, |$a, $b| $combine);
                let $n = count;
                let result = if LAST { $finish as O } else { $total as O };
                store(out + program_id(1) as i64 * out_piece + i as i64 * out_kept, result, mask = i < kept);
            }

            pub fn pass<T: $bound, A: $bound, O: $bound>(
                cx: &Context,
                work: &Work,
                (first, last): (bool, bool),
                (x, out): (View<'_, T>, ViewMut<'_, O>),
                (identity, count): (A, i64),
                to: Kept,
            ) -> Result<()> {
                KernelConsts { FIRST: first, LAST: last, BK: work.block_kept, BL: work.block_axis }
                    .call(
                        x,
                        out,
                        identity,
                        work.kept.size as i32,
                        work.axis.size as i32,
                        work.per_piece as i32,
                        count,
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

            pub fn run<T: $bound, A: $bound, O: $bound, const R: usize>(
                cx: &Context,
                x: TensorView<'_, T, R>,
                axis: usize,
                mut out: TensorViewMut<'_, O, R>,
                identity: A,
                (name, workspace): (&str, Option<TensorViewMut<'_, A, 1>>),
            ) -> Result<()> {
                reduced_shape("out", out.shape(), x.shape(), axis)?;
                if out.is_empty() {
                    return Ok(());
                }
                let work = Work::of("x", x.layout(), axis, true)?;
                let (to, count) = (work.result("out", out.layout(), axis)?, x.shape()[axis] as i64);
                let (x, out) = (x.elements(), out.elements_mut());
                if work.pieces == 1 {
                    return pass(cx, &work, (true, true), (x, out), (identity, count), to);
                }
                let mut partials = Memory::of(cx, name, workspace, work.room())?;
                pass(cx, &work, (true, false), (x, partials.view_mut()), (identity, count), work.partial())?;
                pass(cx, &work.of_pieces(), (false, true), (partials.view(), out), (identity, count), to)
            }
        }
    };
}

reduction!(sums<Num>, |v| v, |a, b| a + b, |total, _n| total);
reduction!(products<Num>, |v| v, |a, b| a * b, |total, _n| total);
reduction!(maxima<Num>, |v| v, |a, b| maximum(a, b, propagate_nan = true), |total, _n| total);
reduction!(minima<Num>, |v| v, |a, b| minimum(a, b, propagate_nan = true), |total, _n| total);
reduction!(means<Float>, |v| v, |a, b| a + b, |total, n| (total / n as A));
reduction!(sums_of_magnitudes<Float>, |v| abs(v), |a, b| a + b, |total, _n| total);
reduction!(roots_of_squares<Float>, |v| v * v, |a, b| a + b, |total, _n| sqrt_rn(total));
reduction!(largest_magnitudes<Float>, |v| abs(v), |a, b| maximum(a, b, propagate_nan = true), |total, _n| total);
reduction!(largest_of_numbers<Float>, |v| abs(v), |a, b| maximum(a, b), |total, _n| total);

/// Sums of what is already in the dtype of sums, rounded to another one. The workspace is for the results of pieces.
pub(super) fn sum_as<T: Real, const R: usize>(
    cx: &Context,
    x: TensorView<'_, T::Sums, R>,
    axis: usize,
    out: TensorViewMut<'_, T, R>,
    workspace: TensorViewMut<'_, T::Sums, 1>,
) -> Result<()> {
    sums::run(cx, x, axis, out, T::Sums::ZERO, ("workspace", Some(workspace)))
}

/// The largest magnitude of all elements but those that are NaN, into one. The workspace, with its name, is for the results of
/// pieces.
pub(super) fn largest_magnitude<T: Real>(
    cx: &Context,
    x: TensorView<'_, T, 1>,
    out: ViewMut<'_, T>,
    workspace: (&str, Option<TensorViewMut<'_, T::Sums, 1>>),
) -> Result<()> {
    largest_of_numbers::run(cx, x, 0, TensorViewMut::new(out, [1])?, T::Sums::ZERO, workspace)
}

/// Checks that `out` has the shape of `x` but for one element in dimension `axis`.
pub(super) fn reduced_shape<const R: usize>(
    argument: &str,
    out: [usize; R],
    mut x: [usize; R],
    axis: usize,
) -> Result<()> {
    if axis >= R {
        return Err(check::invalid("axis", format!("is {axis}"), format!("dimensions are numbered below {R}")));
    }
    x[axis] = 1;
    check::shape(argument, out, x)
}

/// A tensor for results along `axis`.
pub(super) fn reduced<T: DType, const R: usize>(
    cx: &Context,
    mut shape: [usize; R],
    axis: usize,
) -> Result<Tensor<T, R>> {
    if let Some(size) = shape.get_mut(axis) {
        *size = 1;
    }
    Tensor::empty(cx.device(), shape)
}

/// The error of a reduction without a result for no elements.
pub(super) fn not_empty<const R: usize>(shape: [usize; R], axis: usize) -> Result<()> {
    let others = shape.iter().enumerate().all(|(at, &size)| at == axis || size > 0);
    if others && shape.get(axis) == Some(&0) {
        return Err(check::invalid("x", format!("has no elements in dimension {axis}"), "give it one at least"));
    }
    Ok(())
}

/// How many elements a reduction along `axis` needs as its workspace, whatever the device: the results of pieces, for few
/// long rows, and 0 for others. [`sum_into_with`] and its kind say of which dtype they are. Both the shape and the strides of
/// `x` matter: ask with the tensor that is reduced, not with another one of its shape.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if there is no such dimension, or if dimensions are apart or have more than 2^31 - 65,536
/// elements.
pub fn reduction_workspace<'a, T: DType, const R: usize>(
    x: impl Into<TensorView<'a, T, R>>,
    axis: usize,
) -> Result<usize> {
    Ok(Work::of("x", x.into().layout(), axis, true)?.room())
}

/// The functions of one reduction: with a new tensor, into one, and over all elements.
macro_rules! functions {
    (
        $(#[doc = $doc:literal])*
        $bound:ident -> $out:ty, $kernel:ident::<$wide:ty>($identity:expr), $empty:ident;
        $name:ident, $into:ident, $with:ident, $all:ident
    ) => {
        $(#[doc = $doc])*
        ///
        /// # Shapes
        ///
        /// `x` is of any shape and strides in which the dimensions before `axis` follow each other, and those behind it; the
        /// result has its shape with one element in dimension `axis`.
        ///
        /// # Errors
        ///
        /// [`tilewright::Error::InvalidTensor`] if there is no such dimension, if dimensions are apart
        /// ([`contiguous`](super::contiguous) helps), have more than 2^31 - 65,536 elements, or if the result would be undefined
        /// for want of elements; [`tilewright::Error::OutOfMemory`]; those of a launch.
        pub fn $name<'a, T: $bound, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, T, R>>,
            axis: usize,
        ) -> Result<Tensor<$out, R>> {
            let x = x.into();
            let mut out = reduced(cx, x.shape(), axis)?;
            $into(cx, x, axis, &mut out)?;
            Ok(out)
        }

        #[doc = concat!("[`", stringify!($name), "`], into a tensor. Few long rows are reduced in pieces, whose results are ")]
        /// allocated for the call.
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`", stringify!($name), "`], and if the shape of `out` does not fit.")]
        pub fn $into<'a, 'b, T: $bound, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, T, R>>,
            axis: usize,
            out: impl Into<TensorViewMut<'b, $out, R>>,
        ) -> Result<()> {
            let x = x.into();
            $empty(x.shape(), axis)?;
            let identity: $wide = $identity;
            $kernel::run(cx, x, axis, out.into(), identity, ("workspace", None))
        }

        #[doc = concat!("[`", stringify!($into), "`], with a workspace for the results of pieces: it has as many elements of `",
            stringify!($wide), "` ")]
        /// as [`reduction_workspace`] says, or more; what it holds does not matter. Nothing is allocated.
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`", stringify!($into), "`], and [`tilewright::Error::InvalidTensor`] if the workspace has gaps ")]
        /// or is too small.
        pub fn $with<'a, 'b, 'c, T: $bound, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, T, R>>,
            axis: usize,
            out: impl Into<TensorViewMut<'b, $out, R>>,
            workspace: impl Into<TensorViewMut<'c, $wide, 1>>,
        ) -> Result<()> {
            let (x, workspace) = (x.into(), contiguous("workspace", workspace.into())?);
            $empty(x.shape(), axis)?;
            let identity: $wide = $identity;
            $kernel::run(cx, x, axis, out.into(), identity, ("workspace", Some(workspace)))
        }

        #[doc = concat!("[`", stringify!($name), "`] over all elements of a tensor in row-major order without gaps.")]
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`", stringify!($name), "`].")]
        pub fn $all<'a, T: $bound, const R: usize>(
            cx: &Context,
            x: impl Into<TensorView<'a, T, R>>,
        ) -> Result<Tensor<$out, 0>> {
            let x = x.into();
            let one = $name(cx, x.reshape([x.len()])?, 0)?;
            Tensor::from_buffer(one.into_buffer(), [])
        }
    };
}

/// Reductions that have a result without elements.
fn any_shape<const R: usize>(_shape: [usize; R], _axis: usize) -> Result<()> {
    Ok(())
}

functions! {
    /// Sums along a dimension.
    ///
    /// # Numerics
    ///
    /// Floats are added in f32 (f64 for f64) and rounded once; each lane adds up elements, and lanes are added in a tree.
    /// Integers are added in 64 bits, which is the result's dtype, and wrap. No elements give 0.
    Number -> T::Total, sums::<T::Wide>(T::Wide::ZERO), any_shape;
    sum, sum_into, sum_into_with, sum_all
}

functions! {
    /// Products along a dimension.
    ///
    /// # Numerics
    ///
    /// Floats are multiplied in f32 (f64 for f64) and rounded once; integers in 64 bits, which is the result's dtype, and
    /// wrap. No elements give 1.
    Number -> T::Total, products::<T::Wide>(T::Wide::ONE), any_shape;
    prod, prod_into, prod_into_with, prod_all
}

functions! {
    /// The largest element along a dimension. NaN where one is NaN.
    Number -> T, maxima::<T>(T::LOWEST), not_empty;
    max, max_into, max_into_with, max_all
}

functions! {
    /// The smallest element along a dimension. NaN where one is NaN.
    Number -> T, minima::<T>(T::HIGHEST), not_empty;
    min, min_into, min_into_with, min_all
}

functions! {
    /// Means along a dimension: sums over the number of elements.
    ///
    /// # Numerics
    ///
    /// As [`sum`], with the division before the one rounding. No elements give NaN.
    Real -> T, means::<T::Sums>(T::Sums::ZERO), any_shape;
    mean, mean_into, mean_into_with, mean_all
}

functions! {
    /// Sums of magnitudes along a dimension: the norm for p = 1.
    Real -> T, sums_of_magnitudes::<T::Sums>(T::Sums::ZERO), any_shape;
    norm_l1, norm_l1_into, norm_l1_into_with, norm_l1_all
}

functions! {
    /// Square roots of sums of squares along a dimension: the Euclidean norm.
    ///
    /// # Numerics
    ///
    /// As [`sum`], and a correctly rounded root. Squares are not scaled: elements beyond 1.8e19 overflow in f32.
    Real -> T, roots_of_squares::<T::Sums>(T::Sums::ZERO), any_shape;
    norm_l2, norm_l2_into, norm_l2_into_with, norm_l2_all
}

functions! {
    /// The largest magnitude along a dimension: the maximum norm. NaN where an element is NaN; no elements give 0.
    Real -> T, largest_magnitudes::<T::Sums>(T::Sums::ZERO), any_shape;
    norm_max, norm_max_into, norm_max_into_with, norm_max_all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;
    use tilewright::launch::AssumedScalar::One;

    #[test]
    fn reductions_load_wide_along_both_dimensions() {
        let consts = |bk, bl| sums::KernelConsts { FIRST: true, LAST: true, BK: bk, BL: bl };
        let inner = sums::KernelAssumed { x_axis: One, out_kept: One, ..Default::default() };
        let outer = sums::KernelAssumed { x_kept: One, out_kept: One, ..Default::default() };
        let target = Target::sm_90a();
        let compiled = consts(1, 4096).request::<f32, f32, f32>().num_warps(8).assume(inner).compile(target);
        check_instructions("sum of long rows", compiled, &["ld.global.nc.v4.b32"]);
        let compiled = consts(32, 128).request::<f16, f32, f16>().num_warps(8).assume(inner).compile(target);
        check_instructions("sum of short rows", compiled, &["ld.global.nc.v4.b32"]);
        let compiled = consts(128, 32).request::<f32, f32, f32>().num_warps(8).assume(outer).compile(target);
        check_instructions("sum of columns", compiled, &["ld.global.nc.v4.b32"]);
        let compiled = consts(128, 32).request::<f16, f32, f16>().num_warps(8).assume(outer).compile(target);
        check_instructions("sum of columns, f16", compiled, &["ld.global.nc.v4.b32"]);
    }
}
