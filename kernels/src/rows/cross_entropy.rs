//! Cross entropy of rows of logits, and its gradient.

use super::cross_entropy_held::CrossEntropyGradientHeldConsts;
use super::cross_entropy_into::{CrossEntropyWorkspace, cross_entropy_into, cross_entropy_rows_into};
use super::reduction::{Reduction, reduce};
use super::warps_of;
use crate::arguments::{Source, packed};
use crate::config::{Key, config};
use crate::device::{exponentials, padded};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::{MaybeView, MaybeViewMut};
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

config! {
    /// How cross entropy runs; sizes are rows and classes.
    "cross_entropy": pub struct CrossEntropyConfig {
        /// Logits that a program takes at a time. A whole row if it is that long: the row is then read once.
        pub block,
        /// Warps of a program.
        pub num_warps,
    }
}

impl CrossEntropyConfig {
    /// The longest row that is kept in registers.
    const WHOLE: usize = 16_384;
    /// Logits of a longer row that are taken at a time.
    const PIECE: usize = 8192;

    pub(super) fn choose(classes: usize, bytes: usize) -> Self {
        let whole = classes.next_power_of_two().max(64);
        let block = if whole <= Self::WHOLE { whole } else { Self::PIECE };
        CrossEntropyConfig { block, num_warps: warps_of(block, bytes) }
    }

    /// Of the gradient, which takes a longer row in pieces of the same length: what it reads again is in the cache. Rows of 16
    /// bits and up to twice the length are held as they are, if their strides are whole units of 16 bytes.
    pub(super) fn choose_gradient(classes: usize, are_held: bool) -> Self {
        let longest = if are_held && classes <= 2 * Self::WHOLE { 2 * Self::WHOLE } else { Self::WHOLE };
        let block = classes.next_power_of_two().clamp(64, longest);
        CrossEntropyConfig { block, num_warps: (block / 512).clamp(1, 16) }
    }

    /// What a thread of a program has that holds its row, so that two programs fit a multiprocessor.
    pub(super) fn registers(&self) -> u32 {
        (1024 / self.num_warps.max(1)).clamp(64, 255) as u32
    }
}

/// Options of [`cross_entropy`] and its kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrossEntropy {
    pub(super) reduction: Reduction,
    pub(super) ignore_index: i64,
    pub(super) label_smoothing: f32,
    pub(super) z_loss: f32,
}

/// The mean, no smoothing, no z-loss; rows with the target -100 are ignored.
impl Default for CrossEntropy {
    fn default() -> Self {
        CrossEntropy { reduction: Reduction::Mean, ignore_index: -100, label_smoothing: 0.0, z_loss: 0.0 }
    }
}

impl CrossEntropy {
    /// What becomes of the losses of rows. A mean is over those rows that are not ignored; of none it is NaN.
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// Rows with this target have no loss and no gradient.
    pub fn ignore_index(mut self, target: i64) -> Self {
        self.ignore_index = target;
        self
    }

    /// The share of each target's weight that all classes have alike, from 0 to 1 (Szegedy et al., "Rethinking the Inception
    /// Architecture for Computer Vision", 2016). Each value is compiled for.
    pub fn label_smoothing(mut self, share: f32) -> Self {
        self.label_smoothing = share;
        self
    }

    /// Adds `weight * log(sum(exp(x)))^2` to each row's loss (Chowdhery et al., "PaLM", 2022).
    pub fn z_loss(mut self, weight: f32) -> Self {
        self.z_loss = weight;
        self
    }

    /// Whether the gradient of logits is what their shares of the sum of exponentials are, less one at the target.
    pub(super) fn has_plain_gradient(&self) -> bool {
        self.label_smoothing == 0.0 && self.z_loss == 0.0
    }
}

/// `scale[0] = 1 / (the number of targets that are not ignored)`, by one program.
#[kernel]
pub(super) fn count_targets<I: Int, const BLOCK: usize>(targets: Ptr<I>, scale: PtrMut<f32>, ignore: i64, rows: i32) {
    let mut counts = zeros::<i32>([BLOCK]);
    for first in (0..rows).step_by(BLOCK) {
        let row = first + arange(0, BLOCK);
        let target = load(targets + row, mask = row < rows) as i64;
        counts += ((row < rows) & (target != ignore)) as i32;
    }
    store(scale, 1.0 / sum(counts) as f32);
}

/// The loss of a row of which the maximum, the sum of `exp(x - maximum)` and the target's logit are known, and, with smoothing,
/// its share of the mean of `x - maximum`. It is that of differences, however large the logits are.
#[device]
pub(super) fn row_loss<A: Float>(peak: A, mass: A, chosen: A, smoothed: A, smoothing: f32, z: f32) -> A {
    let (lse, off) = (peak + log(mass), peak - chosen);
    let nll = if smoothing > 0.0 { (1.0 - smoothing) as A * off - smoothed + log(mass) } else { off + log(mass) };
    nll + z as A * lse * lse
}

/// The loss of each row.
#[kernel(flush = true)]
pub(super) fn cross_entropy_losses<T: Float, I: Int, const BLOCK: usize, const GROUP: usize>(
    logits: Ptr<T>,
    targets: Ptr<I>,
    losses: PtrMut<f32>,
    stride: i64,
    columns: i32,
    ignore: i64,
    smoothing: Const<f32>,
    z: f32,
) {
    let row = program_id(0);
    let target = load(targets + row) as i64;
    if target == ignore {
        store(losses + row, 0.0);
        return;
    }
    assert!(target >= 0 && target < columns as i64, "a target is no class, and is not ignored");
    let x = logits + row as i64 * stride;
    let (peak, mass, total) = exponentials::<T, { BLOCK / GROUP }, GROUP>(x, columns);
    let chosen = load(x + target) as T::Acc;
    let smoothed = smoothing as T::Acc * (total / columns as T::Acc);
    store(losses + row, row_loss(peak, mass, chosen, smoothed, smoothing, z) as f32);
}

/// The gradient of each row's loss, times `scale[0]` and `dloss[row * dloss_stride]`, and the loss.
#[kernel(flush = true)]
pub(super) fn cross_entropy_gradient<T: Float, I: Int, const BLOCK: usize, const GROUP: usize, const WHOLE: bool>(
    #[in_place(dlogits)] logits: Ptr<T>,
    targets: Ptr<I>,
    scale: Option<Ptr<f32>>,
    dloss: Option<Ptr<f32>>,
    losses: Option<PtrMut<f32>>,
    dlogits: PtrMut<T>,
    stride: i64,
    out_stride: i64,
    dloss_stride: i64,
    columns: i32,
    ignore: i64,
    smoothing: Const<f32>,
    z: f32,
) {
    let row = program_id(0);
    let target = load(targets + row) as i64;
    let (x, out) = (logits + row as i64 * stride, dlogits + row as i64 * out_stride);
    if target == ignore {
        for first in (0..columns).step_by(BLOCK) {
            let column = first + arange(0, BLOCK);
            store(out + column, zeros::<T>([BLOCK]), mask = column < columns);
        }
        if let Some(losses) = losses {
            store(losses + row, 0.0);
        }
        return;
    }
    assert!(target >= 0 && target < columns as i64, "a target is no class, and is not ignored");
    let factor = if let Some(scale) = scale { load(scale) as T::Acc } else { 1.0 };
    let factor =
        if let Some(dloss) = dloss { factor * load(dloss + row as i64 * dloss_stride) as T::Acc } else { factor };
    let chosen = load(x + target) as T::Acc;
    let target = target as i32;
    let share = smoothing as T::Acc / columns as T::Acc;
    let hit = factor * (1.0 - smoothing) as T::Acc;
    let (peak, mass, total) = if WHOLE {
        let column = arange(0, BLOCK);
        let inside = column < columns;
        let values = padded(load(x + column, mask = inside, other = T::NEG_INFINITY), inside);
        let peak = max(values, axis = 0);
        let relative = values - peak;
        let numerator = exp(relative);
        let mass = sum(numerator, axis = 0);
        let weight = factor * (1.0 + 2.0 * z as T::Acc * (peak + log(mass))) / mass;
        let gradient = numerator * weight - select(column == target, hit, 0.0);
        let gradient = if smoothing > 0.0 { gradient - factor * share } else { gradient };
        store(out + column, gradient as T, mask = inside);
        (peak, mass, if smoothing > 0.0 { sum(select(inside, relative, 0.0), axis = 0) } else { 0.0 })
    } else {
        let (peak, mass, total) = exponentials::<T, { BLOCK / GROUP }, GROUP>(x, columns);
        let weight = factor * (1.0 + 2.0 * z as T::Acc * (peak + log(mass))) / mass;
        for first in (0..columns).step_by(BLOCK) {
            let column = first + arange(0, BLOCK);
            let inside = column < columns;
            let values = load(x + column, mask = inside) as T::Acc;
            let gradient = exp(values - peak) * weight - select(column == target, hit, 0.0);
            let gradient = if smoothing > 0.0 { gradient - factor * share } else { gradient };
            store(out + column, gradient as T, mask = inside);
        }
        (peak, mass, total)
    };
    if let Some(losses) = losses {
        store(losses + row, row_loss(peak, mass, chosen, share * total, smoothing, z) as f32);
    }
}

/// Logits and targets that fit each other.
pub(super) fn check<T: DType, I: DType>(logits: &TensorView<'_, T, 2>, targets: &TensorView<'_, I, 1>) -> Result<()> {
    check::shape("targets", targets.shape(), [logits.shape()[0]])?;
    packed("targets", targets.is_contiguous())
}

/// What divides the sum of losses: nothing, or the number of targets that count, which is not known on the host.
pub(super) fn mean_scale<I: Int>(
    cx: &Context,
    targets: View<'_, I>,
    options: &CrossEntropy,
) -> Result<Option<Buffer<f32>>> {
    if options.reduction != Reduction::Mean {
        return Ok(None);
    }
    let mut scale = cx.device().empty::<f32>(1)?;
    count(cx, targets, options, scale.as_view_mut())?;
    Ok(Some(scale))
}

/// Launches the count of targets.
pub(super) fn count<I: Int>(
    cx: &Context,
    targets: View<'_, I>,
    options: &CrossEntropy,
    scale: ViewMut<'_, f32>,
) -> Result<()> {
    let rows = check::size("targets", targets.len())?;
    CountTargetsConsts { BLOCK: 1024 }
        .call(targets, scale, options.ignore_index, rows)
        .grid(1)
        .num_warps(8)
        .stream(cx.stream())
        .launch(cx.device())
}

/// What a launch of the gradient reads and writes. Without `logits` it works in place.
pub(super) struct Gradient<'a, T: DType, I: DType> {
    pub(super) logits: Option<TensorView<'a, T, 2>>,
    pub(super) targets: View<'a, I>,
    pub(super) scale: Option<View<'a, f32>>,
    pub(super) dloss: Option<View<'a, f32>>,
    pub(super) losses: Option<ViewMut<'a, f32>>,
    pub(super) dlogits: TensorViewMut<'a, T, 2>,
}

/// Launches the gradient of at least one row.
pub(super) fn gradient<T: Float, I: Int>(cx: &Context, work: Gradient<'_, T, I>, options: &CrossEntropy) -> Result<()> {
    let to = work.dlogits.rows("dlogits")?;
    let from = work.logits.as_ref().map_or(Ok(to), |logits| logits.rows("logits"))?;
    if to.rows == 0 || to.columns == 0 {
        // Without classes there is no gradient, and losses are those of rows that do not count.
        let losses = work.losses.filter(|_| to.rows > 0);
        return losses.map_or(Ok(()), |out| self::losses(cx, work.dlogits.as_view(), work.targets, out, options));
    }
    let are_wide = to.rows == 1 || [from.stride, to.stride].iter().all(|stride| stride % 8 == 0);
    let config = cx.config(Key::of(T::ELEMENT, "gradient"), &[to.rows, to.columns], || {
        CrossEntropyConfig::choose_gradient(to.columns, size_of::<T>() == 2 && are_wide)
    })?;
    let dloss_stride = i64::from(work.dloss.is_some_and(|dloss| dloss.len() > 1));
    let source = Source(work.logits.map(|logits| logits.elements()));
    let (targets, out) = (work.targets, work.dlogits.elements());
    let (scale, dloss) = (MaybeView::from(work.scale), MaybeView::from(work.dloss));
    let losses = MaybeViewMut::from(work.losses);
    let (a, b, columns) = (from.stride as i64, to.stride as i64, check::size("logits", to.columns)?);
    let (ignore, smoothing, z) = (options.ignore_index, options.label_smoothing, options.z_loss);
    let warps = config.num_warps as u32;
    let holds = config.block > CrossEntropyConfig::WHOLE && to.columns <= config.block;
    // The other form refuses blocks that are no powers of two.
    if size_of::<T>() == 2 && holds && config.block.is_power_of_two() {
        return CrossEntropyGradientHeldConsts { PIECE: config.block / 4 }
            .call(source, targets, scale, dloss, losses, out, a, b, dloss_stride, columns, ignore, smoothing, z)
            .grid(to.rows)
            .num_warps(warps)
            .max_registers(config.registers())
            .stream(cx.stream())
            .launch(cx.device());
    }
    CrossEntropyGradientConsts { BLOCK: config.block, GROUP: 16 / size_of::<T>(), WHOLE: to.columns <= config.block }
        .call(source, targets, scale, dloss, losses, out, a, b, dloss_stride, columns, ignore, smoothing, z)
        .grid(to.rows)
        .num_warps(warps)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Launches the losses of rows.
pub(super) fn losses<T: Float, I: Int>(
    cx: &Context,
    logits: TensorView<'_, T, 2>,
    targets: View<'_, I>,
    out: ViewMut<'_, f32>,
    options: &CrossEntropy,
) -> Result<()> {
    let from = logits.rows("logits")?;
    if from.rows == 0 {
        return Ok(());
    }
    let config =
        cx.config(T::ELEMENT, &[from.rows, from.columns], || CrossEntropyConfig::choose(from.columns, size_of::<T>()))?;
    let (columns, stride) = (check::size("logits", from.columns)?, from.stride as i64);
    let (ignore, smoothing, z) = (options.ignore_index, options.label_smoothing, options.z_loss);
    CrossEntropyLossesConsts { BLOCK: config.block, GROUP: 16 / size_of::<T>() }
        .call(logits.elements(), targets, out, stride, columns, ignore, smoothing, z)
        .grid(from.rows)
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// What a reduction makes of the losses of rows.
pub(super) fn reduced(
    cx: &Context,
    losses: Tensor<f32, 1>,
    scale: Option<View<'_, f32>>,
    options: &CrossEntropy,
) -> Result<Tensor<f32, 1>> {
    if options.reduction == Reduction::None {
        return Ok(losses);
    }
    let mut out = Tensor::empty(cx.device(), [1])?;
    reduce(cx, losses.view(), scale, 1.0, out.view_mut())?;
    Ok(out)
}

/// Cross entropy of rows of logits with a class for each row:
/// `loss = log(sum(exp(x))) - x[target]`, with label smoothing `s`
/// `log(sum(exp(x))) - (1 - s) x[target] - s mean(x)`, and with a z-loss `z log(sum(exp(x)))^2` more.
///
/// # Shapes
///
/// `logits` is `[rows, classes]`, of any float; `targets` is `[rows]`, of `i32`, `i64` or another integer. The result is
/// `[1]`, or `[rows]` for [`Reduction::None`]. Allocates the losses of rows beside it.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64), where numbers below 2^-126 count as zeros; losses are f32. They are added up in the same order at every launch.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit, or rows have gaps; [`Error::OutOfMemory`], those of a launch. A target that is
/// neither a class nor ignored is reported when the result is read.
pub fn cross_entropy<'a, 'b, T: Float, I: Int>(
    cx: &Context,
    logits: impl Into<TensorView<'a, T, 2>>,
    targets: impl Into<TensorView<'b, I, 1>>,
    options: CrossEntropy,
) -> Result<Tensor<f32, 1>> {
    let (logits, targets) = (logits.into(), targets.into());
    check(&logits, &targets)?;
    let mut losses = Tensor::empty(cx.device(), targets.shape())?;
    if options.reduction == Reduction::None {
        cross_entropy_rows_into(cx, logits, targets, options, &mut losses)?;
        return Ok(losses);
    }
    let (mut scale, mut out) = (Tensor::empty(cx.device(), [1])?, Tensor::empty(cx.device(), [1])?);
    let workspace = CrossEntropyWorkspace { losses: losses.view_mut(), scale: scale.view_mut() };
    cross_entropy_into(cx, logits, targets, options, workspace, &mut out)?;
    Ok(out)
}

/// The gradient of [`cross_entropy`]: for each row `(softmax(x) (1 + 2 z log(sum(exp(x)))) - (1 - s) [j = target] - s / classes)`
/// times `dloss`, over the number of rows that count if their mean is asked for.
///
/// # Shapes
///
/// As [`cross_entropy`]; `dloss` is the gradient of its result and has its shape.
///
/// # Errors
///
/// As [`cross_entropy`].
pub fn cross_entropy_backward<'a, 'b, 'c, T: Float, I: Int>(
    cx: &Context,
    logits: impl Into<TensorView<'a, T, 2>>,
    targets: impl Into<TensorView<'b, I, 1>>,
    options: CrossEntropy,
    dloss: impl Into<TensorView<'c, f32, 1>>,
) -> Result<Tensor<T, 2>> {
    let logits = logits.into();
    let mut dlogits = Tensor::empty(cx.device(), logits.shape())?;
    cross_entropy_backward_into(cx, logits, targets, options, dloss, &mut dlogits)?;
    Ok(dlogits)
}

/// [`cross_entropy_backward`], into a tensor of the shape of `logits`. Of a mean it allocates one number, the divisor;
/// [`cross_entropy_scale_into`](super::cross_entropy_scale_into) and
/// [`cross_entropy_gradient_into`](super::cross_entropy_gradient_into) allocate nothing.
///
/// # Errors
///
/// As [`cross_entropy`].
pub fn cross_entropy_backward_into<'a, 'b, 'c, 'd, T: Float, I: Int>(
    cx: &Context,
    logits: impl Into<TensorView<'a, T, 2>>,
    targets: impl Into<TensorView<'b, I, 1>>,
    options: CrossEntropy,
    dloss: impl Into<TensorView<'c, f32, 1>>,
    dlogits: impl Into<TensorViewMut<'d, T, 2>>,
) -> Result<()> {
    let (logits, targets, dloss, dlogits) = (logits.into(), targets.into(), dloss.into(), dlogits.into());
    check(&logits, &targets)?;
    check::shape("dlogits", dlogits.shape(), logits.shape())?;
    check::shape("dloss", dloss.shape(), [options.reduction.len(targets.len())])?;
    packed("dloss", dloss.is_contiguous())?;
    let scale = mean_scale(cx, targets.elements(), &options)?;
    let work = Gradient {
        logits: Some(logits),
        targets: targets.elements(),
        scale: scale.as_ref().map(|scale| scale.as_view()),
        dloss: Some(dloss.elements()),
        losses: None,
        dlogits,
    };
    gradient(cx, work, &options)
}

/// [`cross_entropy`] and its gradient for a `dloss` of 1 at once: `logits` become their gradient.
///
/// # Errors
///
/// As [`cross_entropy`].
pub fn cross_entropy_in_place<'a, 'b, T: Float, I: Int>(
    cx: &Context,
    logits: impl Into<TensorViewMut<'a, T, 2>>,
    targets: impl Into<TensorView<'b, I, 1>>,
    options: CrossEntropy,
) -> Result<Tensor<f32, 1>> {
    let (logits, targets) = (logits.into(), targets.into());
    check(&logits.as_view(), &targets)?;
    let scale = mean_scale(cx, targets.elements(), &options)?;
    let mut rows = Tensor::zeros(cx.device(), targets.shape())?;
    let work = Gradient {
        logits: None,
        targets: targets.elements(),
        scale: scale.as_ref().map(|scale| scale.as_view()),
        dloss: None,
        losses: Some(rows.view_mut().elements()),
        dlogits: logits,
    };
    gradient(cx, work, &options)?;
    reduced(cx, rows, scale.as_ref().map(|scale| scale.as_view()), &options)
}
