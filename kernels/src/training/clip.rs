//! Norms of gradients, and clipping by them.

use crate::arguments::{packed, vector};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// Elements that a program takes at a time, 16 a thread.
const BLOCK: usize = 4096;
const WARPS: u32 = 8;

/// The sum of squares of the elements that a program takes, one block of `num_programs` at a time.
#[kernel]
pub(super) fn square_sums<T: Float, const BLOCK: usize>(x: Ptr<T>, sums: PtrMut<f32>, n: i64) {
    let mut squares = zeros::<f32>([BLOCK]);
    let step = num_programs(0) as i64 * BLOCK as i64;
    for first in (program_id(0) as i64 * BLOCK as i64..n).step_by(step) {
        let at = first + arange(0, BLOCK) as i64;
        let values = load(x + at, mask = at < n) as f32;
        squares += values * values;
    }
    store(sums + program_id(0), sum(squares, axis = 0));
}

/// `norm[0] = sqrt(sum(sums))`, by one program.
#[kernel]
pub(super) fn root_of_sum<const BLOCK: usize>(sums: Ptr<f32>, norm: PtrMut<f32>, n: i32) {
    let mut total = zeros::<f32>([BLOCK]);
    for first in (0..n).step_by(BLOCK) {
        let at = first + arange(0, BLOCK);
        total += load(sums + at, mask = at < n);
    }
    store(norm, sqrt(sum(total, axis = 0)));
}

#[kernel]
pub(super) fn factor(norm: Ptr<f32>, factor: PtrMut<f32>, most: f32) {
    let norm = load(norm);
    // A norm that is NaN shows in what is scaled.
    store(factor, select(norm <= most, 1.0, most / norm));
}

#[kernel]
pub(super) fn scale_elements<T: Float, const BLOCK: usize>(x: PtrMut<T>, factor: Ptr<f32>, n: i64) {
    let at = program_id(0) as i64 * BLOCK as i64 + arange(0, BLOCK) as i64;
    let values = load(x + at, mask = at < n) as T::Acc;
    store(x + at, (values * load(factor) as T::Acc) as T, mask = at < n);
}

/// Programs that sum a tensor of `len`: two for each multiprocessor of a large GPU at most, whatever the device, so that
/// the order of sums is the same on all.
fn programs(len: usize) -> usize {
    len.div_ceil(BLOCK).min(264)
}

/// The norm of all elements of all tensors together: the root of the sum of their squares, `[1]`. Of a
/// [`Packed`](super::Packed) give `all()`.
///
/// Allocates a number for each program that sums. Launches one kernel for each tensor, and one more.
///
/// # Numerics
///
/// Squares are summed in f32, in the same order at every launch and on all GPUs.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if a tensor has gaps, [`Error::OutOfMemory`], those of a launch.
pub fn global_norm<T: Float>(cx: &Context, tensors: &[TensorView<'_, T, 1>]) -> Result<Tensor<f32, 1>> {
    let len = tensors.iter().map(|tensor| programs(tensor.len())).sum();
    let mut sums = Tensor::empty(cx.device(), [len])?;
    let mut norm = Tensor::empty(cx.device(), [1])?;
    global_norm_into(cx, tensors, &mut sums, &mut norm)?;
    Ok(norm)
}

/// [`global_norm`], into a tensor `[1]`. The workspace `sums` has a number for each 4096 elements of each tensor, 264 for each
/// tensor at most.
///
/// # Errors
///
/// As [`global_norm`], and [`Error::InvalidTensor`] if the workspace has another length.
pub fn global_norm_into<'a, 'b, T: Float>(
    cx: &Context,
    tensors: &[TensorView<'_, T, 1>],
    sums: impl Into<TensorViewMut<'a, f32, 1>>,
    norm: impl Into<TensorViewMut<'b, f32, 1>>,
) -> Result<()> {
    let (sums, norm) = (sums.into(), norm.into());
    let len: usize = tensors.iter().map(|tensor| programs(tensor.len())).sum();
    vector("sums", &sums.as_view(), len)?;
    vector("norm", &norm.as_view(), 1)?;
    for tensor in tensors {
        packed("tensors", tensor.is_contiguous())?;
    }
    let (mut sums, mut first) = (sums.elements(), 0);
    for tensor in tensors {
        let count = programs(tensor.len());
        let part = sums.reborrow().slice_mut(first..first + count)?;
        first += count;
        SquareSumsConsts { BLOCK }
            .call(tensor.elements(), part, tensor.len() as i64)
            .grid(count)
            .num_warps(WARPS)
            .stream(cx.stream())
            .launch(cx.device())?;
    }
    RootOfSumConsts { BLOCK: 1024 }
        .call(sums.as_view(), norm.elements(), check::size("sums", len)?)
        .grid(1)
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}

/// What gradients of a norm are multiplied by so that it is `most` at most: `[1]`, `most / norm`, or 1 where the norm is not
/// larger. The host need not know it: [`adamw`](super::adamw) and [`scale_in_place`] read it where it is.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if `norm` is not `[1]`; [`Error::OutOfMemory`], those of a launch.
pub fn clip_factor<'a>(cx: &Context, norm: impl Into<TensorView<'a, f32, 1>>, most: f32) -> Result<Tensor<f32, 1>> {
    let mut out = Tensor::empty(cx.device(), [1])?;
    clip_factor_into(cx, norm, most, &mut out)?;
    Ok(out)
}

/// [`clip_factor`], into a tensor `[1]`. Nothing is allocated.
///
/// # Errors
///
/// As [`clip_factor`], and [`Error::InvalidTensor`] if `out` is not `[1]`.
pub fn clip_factor_into<'a, 'b>(
    cx: &Context,
    norm: impl Into<TensorView<'a, f32, 1>>,
    most: f32,
    out: impl Into<TensorViewMut<'b, f32, 1>>,
) -> Result<()> {
    let (norm, out) = (norm.into(), out.into());
    vector("norm", &norm, 1)?;
    vector("out", &out.as_view(), 1)?;
    let call = factor(norm.elements(), out.elements(), most);
    call.grid(1).num_warps(1).stream(cx.stream()).launch(cx.device())
}

/// `x = x * factor[0]`, in place.
///
/// # Shapes
///
/// `x` has any shape and no gaps, `factor` is `[1]`.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if `x` has gaps or `factor` another shape; those of a launch.
pub fn scale_in_place<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorViewMut<'a, T, R>>,
    factor: impl Into<TensorView<'b, f32, 1>>,
) -> Result<()> {
    let (x, factor) = (x.into(), factor.into());
    packed("x", x.is_contiguous())?;
    vector("factor", &factor, 1)?;
    let len = x.len();
    ScaleElementsConsts { BLOCK: 1024 }
        .call(x.elements(), factor.elements(), len as i64)
        .grid(len.div_ceil(1024))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}
