//! Copies between tensors of different strides.

use crate::check::{LONGEST, MOST_PROGRAMS};
use crate::tensor::layout::Layout;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// Copies blocks of two dimensions, `m` and `n`; two others, `a` and `b`, are axes 1 and 2 of the grid.
#[kernel]
fn copy_blocks<T: DType, const BM: usize, const BN: usize>(
    x: Ptr<T>,
    out: PtrMut<T>,
    m: i32,
    n: i32,
    x_m: i64,
    x_n: i64,
    x_a: i64,
    x_b: i64,
    out_m: i64,
    out_n: i64,
    out_a: i64,
    out_b: i64,
) {
    let blocks = cdiv(n, BN);
    let i = (program_id(0) / blocks * BM + arange(0, BM))[(.., None)];
    let j = program_id(0) % blocks * BN + arange(0, BN);
    let (a, b) = (program_id(1) as i64, program_id(2) as i64);
    let mask = (i < m) & (j < n);
    let block = load(x + (a * x_a + b * x_b) + (i as i64 * x_m + j as i64 * x_n), mask = mask);
    store(out + (a * out_a + b * out_b) + (i as i64 * out_m + j as i64 * out_n), block, mask = mask);
}

/// One dimension of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Dimension {
    size: usize,
    from: usize,
    to: usize,
}

const ONE: Dimension = Dimension { size: 1, from: 0, to: 0 };

/// The dimensions of a copy, those that follow each other on both sides as one, unless that would be too long, and without those
/// of size 1.
fn merged<const R: usize>(from: &Layout<R>, to: &Layout<R>) -> Vec<Dimension> {
    let mut merged: Vec<Dimension> = Vec::new();
    for axis in 0..R {
        let this = Dimension { size: from.shape[axis], from: from.strides[axis], to: to.strides[axis] };
        if this.size == 1 {
            continue;
        }
        match merged.last_mut() {
            Some(last)
                if last.from == this.from * this.size
                    && last.to == this.to * this.size
                    && last.size * this.size <= LONGEST =>
            {
                *last = Dimension { size: last.size * this.size, ..this };
            }
            _ => merged.push(this),
        }
    }
    merged
}

/// The dimension with the smallest stride on one side, taken out.
fn take_innermost(dimensions: &mut Vec<Dimension>, stride: impl Fn(&Dimension) -> usize) -> Dimension {
    let at = (0..dimensions.len()).min_by_key(|&at| stride(&dimensions[at]));
    at.map_or(ONE, |at| dimensions.remove(at))
}

/// `out = x`, whatever the strides of both.
///
/// # Shapes
///
/// `x` and `out` have one shape, of any dtype.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if the shapes differ or a dimension is longer than 2^31 - 65,536; those of a launch.
pub fn copy_into<'a, 'b, T: DType, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    out: impl Into<TensorViewMut<'b, T, R>>,
) -> Result<()> {
    let (x, out) = (x.into(), out.into());
    check::shape("out", out.shape(), x.shape())?;
    if x.is_empty() {
        return Ok(());
    }
    let mut rest = merged(&x.layout(), &out.layout());
    // The last dimension is contiguous where it is written, the other where it is read.
    let n = take_innermost(&mut rest, |dimension| dimension.to);
    let m = take_innermost(&mut rest, |dimension| dimension.from);
    let b = take_innermost(&mut rest, |dimension| dimension.to);
    let a = take_innermost(&mut rest, |dimension| dimension.to);
    let (from, mut to) = (x.elements(), out.elements());
    for (skipped_from, skipped_to) in starts(&rest) {
        let (from, to) = (from.slice(skipped_from..)?, to.reborrow().slice_mut(skipped_to..)?);
        launch(cx, from, to, [m, n, a, b])?;
    }
    Ok(())
}

/// Where each part begins that the dimensions beyond four divide a copy into.
fn starts(rest: &[Dimension]) -> Vec<(usize, usize)> {
    let mut starts = vec![(0, 0)];
    for dimension in rest {
        let steps = |(from, to): (usize, usize)| {
            (0..dimension.size).map(move |i| (from + i * dimension.from, to + i * dimension.to))
        };
        starts = starts.into_iter().flat_map(steps).collect();
    }
    starts
}

fn launch<T: DType>(
    cx: &Context,
    x: tilewright::View<'_, T>,
    mut out: tilewright::ViewMut<'_, T>,
    [m, n, a, b]: [Dimension; 4],
) -> Result<()> {
    let (bm, bn) = if m.size == 1 { (1, 1024) } else { (64, 64) };
    let firsts = |size: usize| (0..size).step_by(MOST_PROGRAMS);
    for (first_a, first_b) in firsts(a.size).flat_map(|i| firsts(b.size).map(move |j| (i, j))) {
        let x = x.slice(first_a * a.from + first_b * b.from..)?;
        let mut out = out.reborrow().slice_mut(first_a * a.to + first_b * b.to..)?;
        CopyBlocksConsts { BM: bm, BN: bn }
            .call(
                x,
                &mut out,
                check::size("x", m.size)?,
                check::size("x", n.size)?,
                m.from as i64,
                n.from as i64,
                a.from as i64,
                b.from as i64,
                m.to as i64,
                n.to as i64,
                a.to as i64,
                b.to as i64,
            )
            .grid((
                m.size.div_ceil(bm) * n.size.div_ceil(bn),
                (a.size - first_a).min(MOST_PROGRAMS),
                (b.size - first_b).min(MOST_PROGRAMS),
            ))
            .stream(cx.stream())
            .launch(cx.device())?;
    }
    Ok(())
}

/// A copy in row-major order without gaps.
///
/// # Errors
///
/// [`Error::OutOfMemory`], and those of [`copy_into`].
pub fn contiguous<'a, T: DType, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
) -> Result<Tensor<T, R>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    copy_into(cx, x, &mut out)?;
    Ok(out)
}

/// The last two dimensions exchanged, in row-major order: blocks of 64 x 64 are read along rows and written along columns.
/// [`copy_into`] of a view with dimensions exchanged does the same into a tensor that is given.
///
/// # Errors
///
/// Those of [`contiguous`]; [`tilewright::Error::InvalidTensor`] if there are fewer than two dimensions.
pub fn transpose<'a, T: DType, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
) -> Result<Tensor<T, R>> {
    contiguous(cx, x.into().transpose(R.wrapping_sub(2), R.wrapping_sub(1))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;
    use tilewright::launch::AssumedScalar::One;

    #[test]
    fn transposition_is_wide_on_both_sides() {
        let assumed = CopyBlocksAssumed { x_m: One, out_n: One, ..Default::default() };
        let consts = CopyBlocksConsts { BM: 64, BN: 64 };
        let wide = ["ld.global.nc.v4", "st.global.v4"];
        check_instructions("transpose f32", consts.request::<f32>().assume(assumed).compile(Target::sm_90a()), &wide);
        check_instructions("transpose f16", consts.request::<f16>().assume(assumed).compile(Target::sm_90a()), &wide);
    }
}
