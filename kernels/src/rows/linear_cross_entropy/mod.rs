//! Cross entropy fused with the linear layer before it: the logits of all rows never exist at once.

pub(super) mod exponentials;

use super::cross_entropy::{CrossEntropy, Gradient, gradient, losses};
use super::cross_entropy_into::cross_entropy_scale_into;
use super::reduction::{Reduction, reduce};
use crate::arguments::{packed, vector};
use crate::products::matmul::problem::{Order, order};
use crate::products::tiles::{balanced, corner};
use crate::products::{Matmul, Precision};
use crate::workspace::{contiguous, part as part_of};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use exponentials::Work;
use tilewright::Result;
use tilewright::prelude::*;

/// `c += a * b`, where each factor has any strides.
#[kernel(num_warps = 8, num_stages = 3)]
pub(super) fn product<T: Float, C: Float, const M: usize, const N: usize, const K: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<C>,
    m: i32,
    n: i32,
    k: i32,
    a_m: i64,
    a_k: i64,
    b_k: i64,
    b_n: i64,
    c_m: i64,
) {
    let (rows, columns) = (program_id(0) * M + arange(0, M), program_id(1) * N + arange(0, N));
    let (row, column) = (rows[(.., None)] as i64, columns[(None, ..)] as i64);
    let mut acc = zeros::<T::Acc>([M, N]);
    for first in (0..k).step_by(K) {
        let inner = first + arange(0, K);
        let (across, down) = (inner[(None, ..)] as i64, inner[(.., None)] as i64);
        let x = load(a + (row * a_m + across * a_k), mask = (rows < m)[(.., None)] & (inner < k)[(None, ..)]);
        let y = load(b + (down * b_k + column * b_n), mask = (inner < k)[(.., None)] & (columns < n)[(None, ..)]);
        acc = dot(x, y, acc = acc, precision = tf32x3);
    }
    let (place, mask) = (c + (row * c_m + column), (rows < m)[(.., None)] & (columns < n)[(None, ..)]);
    store(place, (acc + load(place, mask = mask) as T::Acc) as C, mask = mask);
}

/// `c += a^T * b`, by blocks that the hardware copies. Sums are added to memory as they are.
#[kernel]
pub(super) fn product_blocks<T: Float, C: Float, const M: usize, const N: usize, const K: usize>(
    a: TensorDesc<T, { [K, M] }>,
    b: TensorDesc<T, { [K, N] }>,
    c: TensorDescMut<C, { [M, N] }>,
    m: i32,
    n: i32,
    k: i32,
) {
    let tiles = cdiv(m, M) * cdiv(n, N);
    #[warp_specialize]
    for tile in (program_id(0)..tiles).step_by(num_programs(0)) {
        let (row, column) = corner::<M, N, 8>(tile, m, n);
        let mut acc = zeros::<T::Acc>([M, N]);
        for first in (0..k).step_by(K) {
            acc = dot(a.load([first, row]).trans(), b.load([first, column]), acc = acc);
        }
        c.atomic_add([row, column], acc as C);
    }
}

/// The product of the family, with factors of f32 as here.
fn matmul<'a, R: Float>() -> Matmul<'a, R> {
    Matmul::default().precision(Precision::Tf32x3)
}

/// Blocks, warps and stages of [`product_blocks`]: two groups of four warps take turns on an H100.
pub(super) const BLOCKS: (usize, usize, usize, u32, u32) = (128, 128, 64, 4, 4);
/// The same on a CPU.
const ON_CPU: (usize, usize, usize, u32, u32) = (32, 32, 32, 4, 2);

/// [`add_product`] by blocks, if the hardware copies them and adds sums to memory: of 16 bits, into f32.
fn add_blocks<T: Float, C: Float>(
    cx: &Context,
    a: &TensorView<'_, T, 2>,
    b: &TensorView<'_, T, 2>,
    c: &mut TensorViewMut<'_, C, 2>,
) -> Result<bool> {
    let capability = cx.device().compute_capability();
    let across =
        |strides: [usize; 2], shape, bytes| order([0, strides[0], strides[1]], shape, bytes) == Some(Order::Across);
    let are_copied = across(a.strides(), a.shape(), size_of::<T>()) && across(b.strides(), b.shape(), size_of::<T>());
    let is_written = C::ELEMENT == f32::ELEMENT && across(c.strides(), c.shape(), size_of::<C>());
    if size_of::<T>() != 2 || !are_copied || !is_written || capability.is_some_and(|capability| capability < (9, 0)) {
        return Ok(false);
    }
    let ([k, m], [_, n]) = (a.shape(), b.shape());
    let [m_size, n_size, k_size] = [check::size("weight", m)?, check::size("x", n)?, check::size("x", k)?];
    let (bm, bn, bk, warps, stages) = if capability.is_some() { BLOCKS } else { ON_CPU };
    let a = TensorDesc::with_strides(a.elements(), a.shape(), a.strides())?;
    let b = TensorDesc::with_strides(b.elements(), b.shape(), b.strides())?;
    let (shape, strides) = (c.shape(), c.strides());
    let mut c = TensorDescMut::with_strides(c.elements_mut(), shape, strides)?;
    ProductBlocksConsts { M: bm, N: bn, K: bk }
        .call(&a, &b, &mut c, m_size, n_size, k_size)
        .grid(balanced(m.div_ceil(bm) * n.div_ceil(bn), cx.device().multiprocessor_count()))
        .num_warps(warps)
        .num_stages(stages)
        .stream(cx.stream())
        .launch(cx.device())?;
    Ok(true)
}

/// `c = a^T * b`, or `c += a^T * b`, of `[k, m]` and `[k, n]`. Products of the family add to tensors other than the one that they
/// write.
fn add_product<T: Float, C: Float>(
    cx: &Context,
    a: TensorView<'_, T, 2>,
    b: TensorView<'_, T, 2>,
    mut c: TensorViewMut<'_, C, 2>,
    add: bool,
) -> Result<()> {
    if !add {
        return matmul().run_into(cx, a.transpose(0, 1)?, b, c);
    }
    if add_blocks(cx, &a, &b, &mut c)? {
        return Ok(());
    }
    let ([k, m], [_, n]) = (a.shape(), b.shape());
    // Half as many numbers along the inner dimension where each has twice the size, or three products.
    let (block, inner) = if size_of::<T>() <= 2 { (128, 64) } else { (64, 32) };
    let [a_k, a_m] = a.strides().map(|stride| stride as i64);
    let [b_k, b_n] = b.strides().map(|stride| stride as i64);
    let c_m = c.strides()[0] as i64;
    let [m_size, n_size, k_size] = [check::size("weight", m)?, check::size("x", n)?, check::size("x", k)?];
    ProductConsts { M: block, N: block, K: inner }
        .call(a.elements(), b.elements(), c.elements_mut(), m_size, n_size, k_size, a_m, a_k, b_k, b_n, c_m)
        .grid((m.div_ceil(block), n.div_ceil(block)))
        .stream(cx.stream())
        .launch(cx.device())
}

/// What [`linear_cross_entropy`] returns.
#[derive(Debug)]
pub struct LinearCrossEntropy<T: DType> {
    /// `[1]`, or `[rows]` for [`Reduction::None`].
    pub loss: Tensor<f32, 1>,
    /// The gradient of `x`.
    pub dx: Tensor<T, 2>,
    /// The gradient of the weight.
    pub dweight: Tensor<f32, 2>,
}

/// Where [`linear_cross_entropy_into`] writes.
#[derive(Debug)]
pub struct LinearCrossEntropyMut<'a, T: DType, W: DType> {
    /// `[1]`, or `[rows]` for [`Reduction::None`].
    pub loss: TensorViewMut<'a, f32, 1>,
    /// The gradient of `x`, `[rows, hidden]`, and that of the weight, `[classes, hidden]`; without them there is the loss
    /// alone. The weight's gradient is rounded to its dtype after each chunk: `f32` keeps the digits of many.
    pub gradients: Option<(TensorViewMut<'a, T, 2>, TensorViewMut<'a, W, 2>)>,
    /// Workspace for logits, `[chunk, classes]`: as many rows are taken at a time.
    pub logits: TensorViewMut<'a, T, 2>,
}

/// [`cross_entropy`](super::cross_entropy()) of `logits = x * weight^T`, with the gradients of `x` and `weight` for a `dloss` of
/// one. Logits are made for a chunk of rows at a time, and become their gradient in place, so that they need
/// `chunk * classes` elements rather than `rows * classes` (Hsu et al., "Liger Kernel: Efficient Triton Kernels for LLM
/// Training", 2024).
///
/// The chunk is such that its logits take about as much memory as `x`; [`linear_cross_entropy_into`] takes a workspace of any
/// size. Allocates the results and that workspace.
///
/// # Shapes
///
/// `x` is `[rows, hidden]`, `weight` is `[classes, hidden]`, `targets` is `[rows]`, of any integer.
///
/// # Numerics
///
/// Products are summed in f32 (f64 for f64); logits and their gradient are rounded to the dtype of `x`.
///
/// In bf16, without smoothing and z-loss, what is written are exponentials of logits, which are not rounded before, and the
/// gradients are products of these: no pass over all of them comes between. That is where rows of all matrices are whole units of
/// 16 bytes, on a GPU from compute capability 9.0. Shares of a row below 1e-16 may count as none. The target's logit is summed once
/// more, in another order: what is missing to a share of one errs by the difference of both sums, and is none where that is larger.
/// A chunk with a row of which the logarithm of the sum of exponentials is farther from zero than 50 has its first product done twice.
///
/// # Errors
///
/// As [`cross_entropy`](super::cross_entropy()).
pub fn linear_cross_entropy<'a, 'b, 'c, T: Float, I: Int>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    weight: impl Into<TensorView<'b, T, 2>>,
    targets: impl Into<TensorView<'c, I, 1>>,
    options: CrossEntropy,
) -> Result<LinearCrossEntropy<T>> {
    let (x, weight, targets) = (x.into(), weight.into(), targets.into());
    let ([rows, hidden], [classes, _]) = (x.shape(), weight.shape());
    let chunks = classes.div_ceil(hidden.max(1)).max(1);
    let chunk = rows.div_ceil(chunks).next_power_of_two().min(rows.max(1));
    let device = cx.device();
    let mut loss = Tensor::empty(device, [options.reduction.len(rows)])?;
    let mut dx = Tensor::empty(device, x.shape())?;
    let mut dweight = Tensor::empty(device, weight.shape())?;
    let mut logits = Tensor::empty(device, [chunk, classes])?;
    let out = LinearCrossEntropyMut {
        loss: loss.view_mut(),
        gradients: Some((dx.view_mut(), dweight.view_mut())),
        logits: logits.view_mut(),
    };
    linear_cross_entropy_into(cx, x, weight, targets, options, out)?;
    Ok(LinearCrossEntropy { loss, dx, dweight })
}

/// What [`linear_cross_entropy_into_with`] needs beside its results. What it holds does not matter.
#[derive(Debug)]
pub struct LinearCrossEntropyWorkspace<'a> {
    /// Room for the loss of each row, `[rows]`.
    pub losses: TensorViewMut<'a, f32, 1>,
    /// Room for one over the number of rows that count, `[1]`, if the reduction is a mean.
    pub scale: TensorViewMut<'a, f32, 1>,
    /// Room for sums of a chunk's rows: as many f32 as [`linear_cross_entropy_sums`] says. With less, logits are written, and
    /// become their gradient in a pass of its own.
    pub sums: TensorViewMut<'a, f32, 1>,
}

/// How many f32 sums of rows need in a [`LinearCrossEntropyWorkspace`], for a chunk of so many rows of `T`.
pub fn linear_cross_entropy_sums<T: Float>(cx: &Context, chunk: usize, classes: usize) -> usize {
    exponentials::room::<T>(cx, chunk, classes)
}

/// [`linear_cross_entropy`], into tensors that are given. Allocates the losses of rows, one number for their mean, and sums.
///
/// # Errors
///
/// As [`linear_cross_entropy`], and [`Error::InvalidTensor`] if the workspace has no rows.
pub fn linear_cross_entropy_into<'a, 'b, 'c, T: Float, I: Int, W: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    weight: impl Into<TensorView<'b, T, 2>>,
    targets: impl Into<TensorView<'c, I, 1>>,
    options: CrossEntropy,
    out: LinearCrossEntropyMut<'_, T, W>,
) -> Result<()> {
    let targets = targets.into();
    let ([chunk, classes], device) = (out.logits.shape(), cx.device());
    let room = if options.has_plain_gradient() && out.gradients.is_some() {
        exponentials::room::<T>(cx, chunk, classes)
    } else {
        0
    };
    let (mut losses, mut scale) = (Tensor::empty(device, targets.shape())?, Tensor::empty(device, [1])?);
    let mut sums = Tensor::empty(device, [room])?;
    let workspace =
        LinearCrossEntropyWorkspace { losses: losses.view_mut(), scale: scale.view_mut(), sums: sums.view_mut() };
    linear_cross_entropy_into_with(cx, x, weight, targets, options, out, workspace)
}

/// [`linear_cross_entropy_into`], with a workspace: nothing is allocated. Of reductions other than a mean its `scale` is neither
/// checked nor written.
///
/// # Errors
///
/// As [`linear_cross_entropy_into`], and [`Error::InvalidTensor`] if the losses of the workspace, or for a mean its scale, have
/// other shapes than [`LinearCrossEntropyWorkspace`] says, or if losses or sums have gaps.
pub fn linear_cross_entropy_into_with<'a, 'b, 'c, T: Float, I: Int, W: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    weight: impl Into<TensorView<'b, T, 2>>,
    targets: impl Into<TensorView<'c, I, 1>>,
    options: CrossEntropy,
    out: LinearCrossEntropyMut<'_, T, W>,
    workspace: LinearCrossEntropyWorkspace<'_>,
) -> Result<()> {
    let (x, weight, targets) = (x.into(), weight.into(), targets.into());
    let LinearCrossEntropyMut { loss, mut gradients, mut logits } = out;
    let LinearCrossEntropyWorkspace { losses: mut row_losses, mut scale, sums } = workspace;
    let mut sums = contiguous("sums", sums)?.elements();
    let rows = x.shape()[0];
    check_arguments(&x, &weight, &targets, &loss, &gradients, &logits, &options)?;
    vector("losses", &row_losses.as_view(), rows)?;
    let chunk = logits.shape()[0];
    let scale = if options.reduction == Reduction::Mean {
        cross_entropy_scale_into(cx, targets, options, scale.reborrow())?;
        Some(scale.as_view().elements())
    } else {
        None
    };
    for first in (0..rows).step_by(chunk) {
        let last = (first + chunk).min(rows);
        let part = x.narrow(0, first..last)?;
        let targets = targets.narrow(0, first..last)?.elements();
        let mut logits = logits.reborrow().narrow(0, 0..last - first)?;
        if let Some((dx, dweight)) = &mut gradients
            && exponentials::room::<T>(cx, last - first, weight.shape()[0]) <= sums.len()
            && options.has_plain_gradient()
            && exponentials::are_possible(cx, [part, weight, logits.as_view()])
        {
            let mut dx = dx.reborrow().narrow(0, first..last)?;
            let (mut factors, workspace) = part_of(sums.reborrow(), last - first)?;
            let work = Work {
                x: part,
                weight,
                targets,
                scale,
                ignore: options.ignore_index,
                e: logits.reborrow(),
                // Until it is the gradient.
                scaled: dx.reborrow(),
                losses: row_losses.reborrow().narrow(0, first..last)?.elements(),
                factors: factors.reborrow(),
                workspace,
            };
            exponentials::write(cx, work)?;
            let factors = TensorView::new(factors.as_view(), [last - first])?;
            add_product(cx, logits.as_view(), dx.as_view(), dweight.reborrow(), first > 0)?;
            matmul().a_scale(factors).run_into(cx, logits.as_view(), weight, dx)?;
            continue;
        }
        matmul().run_into(cx, part, weight.transpose(0, 1)?, logits.reborrow())?;
        let mut losses_here = row_losses.reborrow().narrow(0, first..last)?;
        let Some((dx, dweight)) = &mut gradients else {
            losses(cx, logits.as_view(), targets, losses_here.elements_mut(), &options)?;
            continue;
        };
        let work = Gradient {
            logits: None,
            targets,
            scale,
            dloss: None,
            losses: Some(losses_here.elements_mut()),
            dlogits: logits.reborrow(),
        };
        gradient(cx, work, &options)?;
        matmul().run_into(cx, logits.as_view(), weight, dx.reborrow().narrow(0, first..last)?)?;
        add_product(cx, logits.as_view(), part, dweight.reborrow(), first > 0)?;
    }
    if let (0, Some((_, dweight))) = (rows, &mut gradients) {
        // Of no rows it is a product without terms: zeros.
        add_product(cx, logits.as_view().narrow(0, 0..0)?, x, dweight.reborrow(), false)?;
    }
    if options.reduction == Reduction::None {
        return crate::general::copy_into(cx, &row_losses, loss);
    }
    reduce(cx, row_losses.as_view(), scale, 1.0, loss)
}

fn check_arguments<T: DType, I: DType, W: DType>(
    x: &TensorView<'_, T, 2>,
    weight: &TensorView<'_, T, 2>,
    targets: &TensorView<'_, I, 1>,
    loss: &TensorViewMut<'_, f32, 1>,
    gradients: &Option<(TensorViewMut<'_, T, 2>, TensorViewMut<'_, W, 2>)>,
    logits: &TensorViewMut<'_, T, 2>,
    options: &CrossEntropy,
) -> Result<()> {
    let ([rows, hidden], [classes, _]) = (x.shape(), weight.shape());
    check::shape("weight", weight.shape(), [classes, hidden])?;
    check::shape("targets", targets.shape(), [rows])?;
    packed("targets", targets.is_contiguous())?;
    check::shape("loss", loss.shape(), [options.reduction.len(rows)])?;
    if let Some((dx, dweight)) = gradients {
        check::shape("dx", dx.shape(), x.shape())?;
        check::shape("dweight", dweight.shape(), weight.shape())?;
        dx.rows("dx")?;
        dweight.rows("dweight")?;
    }
    logits.rows("logits")?;
    if logits.shape()[0] == 0 || logits.shape()[1] != classes {
        let problem = format!("has the shape {:?}", logits.shape());
        let hint = format!("give a workspace of one row or more, of {classes} logits each");
        return Err(check::invalid("logits", problem, hint));
    }
    Ok(())
}
