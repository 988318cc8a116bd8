//! Divergences between rows of logarithms of probabilities: of Kullback and Leibler, and of Jensen and Shannon.

use super::reduction::{Reduction, losses};
use crate::check::{self, Rows};
use crate::config::{Key, config};
use crate::{Context, Tensor, TensorView, TensorViewMut};
use tilewright::Result;
use tilewright::prelude::*;

config! {
    /// How divergences run; sizes are rows and columns.
    "divergence": pub struct DivergenceConfig {
        /// Elements of a row that a program takes at a time.
        pub block,
        /// Warps of a program.
        pub num_warps,
    }
}

impl DivergenceConfig {
    pub(super) fn choose(columns: usize) -> Self {
        let block = columns.next_power_of_two().clamp(32, 8192);
        // 8 elements a thread, 16 bytes of 16-bit elements; twice as many in the longest blocks.
        DivergenceConfig { block, num_warps: (block / 256).clamp(1, 16) }
    }

    /// Of the gradient of Kullback and Leibler's, of which a program takes one block.
    pub(super) fn choose_backward(columns: usize) -> Self {
        let block = columns.next_power_of_two().clamp(32, 1024);
        DivergenceConfig { block, num_warps: (block / 256).clamp(1, 4) }
    }

    /// Of the divergence of Jensen and Shannon, which needs more registers: half as many threads.
    pub(super) fn choose_jsd(columns: usize) -> Self {
        let block = columns.next_power_of_two().clamp(32, 2048);
        DivergenceConfig { block, num_warps: (block / 512).clamp(1, 16) }
    }

    /// Of its gradient, which is written too.
    pub(super) fn choose_jsd_backward(columns: usize) -> Self {
        let block = columns.next_power_of_two().clamp(32, 4096);
        DivergenceConfig { block, num_warps: (block / 512).clamp(1, 16) }
    }
}

/// What a target row holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KlTarget {
    /// Logarithms of probabilities.
    #[default]
    Logarithms,
    /// Probabilities.
    Probabilities,
}

/// The sum over a row of `p (log p - input)`.
#[kernel(flush = true)]
pub(super) fn kl_losses<T: Float, const BLOCK: usize, const LOGARITHMS: bool>(
    input: Ptr<T>,
    target: Ptr<T>,
    losses: PtrMut<f32>,
    input_stride: i64,
    target_stride: i64,
    columns: i32,
) {
    let row = program_id(0) as i64;
    let (input, target) = (input + row * input_stride, target + row * target_stride);
    let mut sums = zeros::<T::Acc>([BLOCK]);
    for first in (0..columns).step_by(BLOCK) {
        let column = first + arange(0, BLOCK);
        let mask = column < columns;
        let x = load(input + column, mask = mask) as T::Acc;
        let t = load(target + column, mask = mask) as T::Acc;
        let (p, log_p) = if LOGARITHMS { (exp(t), t) } else { (t, log(t)) };
        // What has no probability has no loss, whatever its logarithm, but for one that is no number.
        sums += select(mask & ((p != 0.0) | is_nan(x)), p * (log_p - x), 0.0);
    }
    store(losses + row, sum(sums, axis = 0) as f32);
}

/// `dinput = -p * scale * dloss`.
#[kernel(flush = true)]
pub(super) fn kl_gradient<T: Float, const BLOCK: usize, const LOGARITHMS: bool>(
    target: Ptr<T>,
    dloss: Ptr<f32>,
    out: PtrMut<T>,
    target_stride: i64,
    dloss_stride: i64,
    out_stride: i64,
    per_row: i32,
    columns: i32,
    scale: f32,
) {
    let row = (program_id(0) / per_row) as i64;
    let column = program_id(0) % per_row * BLOCK + arange(0, BLOCK);
    let mask = column < columns;
    let t = load(target + row * target_stride + column, mask = mask) as T::Acc;
    let p = if LOGARITHMS { exp(t) } else { t };
    let factor = -(scale * load(dloss + row * dloss_stride)) as T::Acc;
    store(out + row * out_stride + column, (p * factor) as T, mask = mask);
}

/// `a (b - c)`, 0 where `a` is, whatever the logarithms, but for such that are no numbers.
#[device]
fn part<A: Float, const N: usize>(a: Tile<A, { [N] }>, b: Tile<A, { [N] }>, c: Tile<A, { [N] }>) -> Tile<A, { [N] }> {
    select((a != 0.0) | is_nan(c), a * (b - c), 0.0)
}

/// The loss of a row with `x = log q` and `y = log p`, and its gradient for `x`.
#[kernel(flush = true)]
pub(super) fn jsd_rows<T: Float, const BLOCK: usize>(
    x: Ptr<T>,
    y: Ptr<T>,
    losses: Option<PtrMut<f32>>,
    dloss: Option<Ptr<f32>>,
    dx: Option<PtrMut<T>>,
    x_stride: i64,
    y_stride: i64,
    dloss_stride: i64,
    dx_stride: i64,
    columns: i32,
    beta: Const<f64>,
    scale: f32,
) {
    let row = program_id(0) as i64;
    let mut sums = zeros::<T::Acc>([BLOCK]);
    let factor = if let Some(dloss) = dloss { scale * load(dloss + row * dloss_stride) } else { 1.0 };
    for first in (0..columns).step_by(BLOCK) {
        let column = first + arange(0, BLOCK);
        let mask = column < columns;
        let log_q = load(x + row * x_stride + column, mask = mask, other = T::NEG_INFINITY) as T::Acc;
        let log_p = load(y + row * y_stride + column, mask = mask, other = T::NEG_INFINITY) as T::Acc;
        let (q, p) = (exp(log_q), exp(log_p));
        let (loss, gradient) = if beta == 0.0 {
            (part(p, log_p, log_q), -p)
        } else if beta == 1.0 {
            let loss = part(q, log_q, log_p);
            (loss, loss + q)
        } else {
            // Where the mixture is too small to be a number, its parts are too: they are smaller than any, whatever its
            // logarithm, as long as that is finite.
            let mixture = beta as T::Acc * p + (1.0 - beta) as T::Acc * q;
            let log_m = log(maximum(mixture, T::Acc::MIN_POSITIVE, propagate_nan = true));
            // Of logarithms that are finite, like the mixture's, what has no probability has no part, unless another is NaN.
            let part = |a, b| a * (maximum(b, T::Acc::MIN) - log_m);
            let of_q = (1.0 - beta) as T::Acc * part(q, log_q);
            (beta as T::Acc * part(p, log_p) + of_q, of_q)
        };
        sums += loss;
        if let Some(dx) = dx {
            store(dx + row * dx_stride + column, (gradient * factor as T::Acc) as T, mask = mask);
        }
    }
    if let Some(losses) = losses {
        store(losses + row, sum(sums, axis = 0) as f32);
    }
}

/// What a gradient is multiplied by for the mean over rows.
fn scale(reduction: Reduction, rows: usize) -> f32 {
    if reduction == Reduction::Mean { 1.0 / rows as f32 } else { 1.0 }
}

/// The Kullback-Leibler divergence of each row, `sum(p (log p - input))`, where `input` holds logarithms of probabilities
/// and `target` the probabilities `p` or their logarithms. Terms with `p = 0` are 0, and NaN with NaN.
///
/// # Shapes
///
/// `input` and `target` have one shape, `[rows, columns]`, of any float. The result is `[1]`, or `[rows]` for
/// [`Reduction::None`]; a mean is over rows. Allocates the losses of rows beside it.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64), where numbers below 2^-126 count as zeros; losses are f32, and added up in the same order at every launch.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes differ or rows have gaps; [`Error::OutOfMemory`], those of a launch.
pub fn kl_divergence<'a, 'b, T: Float>(
    cx: &Context,
    input: impl Into<TensorView<'a, T, 2>>,
    target: impl Into<TensorView<'b, T, 2>>,
    kind: KlTarget,
    reduction: Reduction,
) -> Result<Tensor<f32, 1>> {
    let input = input.into();
    let mut out = Tensor::empty(cx.device(), [reduction.len(input.shape()[0])])?;
    kl_divergence_into(cx, input, target, kind, reduction, &mut out)?;
    Ok(out)
}

/// [`kl_divergence`], into a tensor of the result's shape, without gaps. Losses of rows that are added up are allocated for the
/// call.
///
/// # Errors
///
/// As [`kl_divergence`], and [`Error::InvalidTensor`] if `out` has another shape or gaps.
pub fn kl_divergence_into<'a, 'b, 'c, T: Float>(
    cx: &Context,
    input: impl Into<TensorView<'a, T, 2>>,
    target: impl Into<TensorView<'b, T, 2>>,
    kind: KlTarget,
    reduction: Reduction,
    out: impl Into<TensorViewMut<'c, f32, 1>>,
) -> Result<()> {
    kl(cx, input.into(), target.into(), kind, reduction, (out.into(), None))
}

/// [`kl_divergence_into`], with a workspace for the losses of rows: one f32 for each, or more, without gaps; none for
/// [`Reduction::None`]. What it holds does not matter. Nothing is allocated.
///
/// # Errors
///
/// As [`kl_divergence_into`], and [`Error::InvalidTensor`] if the workspace has gaps or is too small.
pub fn kl_divergence_into_with<'a, 'b, 'c, 'd, T: Float>(
    cx: &Context,
    input: impl Into<TensorView<'a, T, 2>>,
    target: impl Into<TensorView<'b, T, 2>>,
    kind: KlTarget,
    reduction: Reduction,
    out: impl Into<TensorViewMut<'c, f32, 1>>,
    workspace: impl Into<TensorViewMut<'d, f32, 1>>,
) -> Result<()> {
    kl(cx, input.into(), target.into(), kind, reduction, (out.into(), Some(workspace.into())))
}

fn kl<T: Float>(
    cx: &Context,
    input: TensorView<'_, T, 2>,
    target: TensorView<'_, T, 2>,
    kind: KlTarget,
    reduction: Reduction,
    to: (TensorViewMut<'_, f32, 1>, Option<TensorViewMut<'_, f32, 1>>),
) -> Result<()> {
    check::shape("target", target.shape(), input.shape())?;
    let (from, other) = (input.rows("input")?, target.rows("target")?);
    let config = cx.config(Key::of(T::ELEMENT, "kl"), &input.shape(), || DivergenceConfig::choose(from.columns))?;
    let (columns, strides) = (check::size("input", from.columns)?, (from.stride as i64, other.stride as i64));
    losses(cx, from.rows, reduction, to, |losses| {
        KlLossesConsts { BLOCK: config.block, LOGARITHMS: kind == KlTarget::Logarithms }
            .call(input.elements(), target.elements(), losses.elements(), strides.0, strides.1, columns)
            .grid(from.rows)
            .num_warps(config.num_warps as u32)
            .stream(cx.stream())
            .launch(cx.device())
    })
}

/// The gradient of [`kl_divergence`] for `input`: `-p * dloss`, over the number of rows if their mean is asked for.
///
/// # Shapes
///
/// As [`kl_divergence`]; `dloss` is the gradient of its result and has its shape.
///
/// # Errors
///
/// As [`kl_divergence`].
pub fn kl_divergence_backward<'a, 'b, T: Float>(
    cx: &Context,
    target: impl Into<TensorView<'a, T, 2>>,
    kind: KlTarget,
    reduction: Reduction,
    dloss: impl Into<TensorView<'b, f32, 1>>,
) -> Result<Tensor<T, 2>> {
    let target = target.into();
    let mut out = Tensor::empty(cx.device(), target.shape())?;
    kl_divergence_backward_into(cx, target, kind, reduction, dloss, &mut out)?;
    Ok(out)
}

/// [`kl_divergence_backward`], into a tensor. Nothing is allocated.
///
/// # Errors
///
/// As [`kl_divergence_backward`], and [`Error::InvalidTensor`] if `dinput` has another shape, or rows of it have gaps.
pub fn kl_divergence_backward_into<'a, 'b, 'c, T: Float>(
    cx: &Context,
    target: impl Into<TensorView<'a, T, 2>>,
    kind: KlTarget,
    reduction: Reduction,
    dloss: impl Into<TensorView<'b, f32, 1>>,
    dinput: impl Into<TensorViewMut<'c, T, 2>>,
) -> Result<()> {
    let (target, dloss, dinput) = (target.into(), dloss.into(), dinput.into());
    let from = target.rows("target")?;
    crate::arguments::vector("dloss", &dloss, reduction.len(from.rows))?;
    check::shape("dinput", dinput.shape(), target.shape())?;
    let stride = dinput.rows("dinput")?.stride as i64;
    if target.is_empty() {
        return Ok(());
    }
    let choose = || DivergenceConfig::choose_backward(from.columns);
    let config = cx.config(Key::of(T::ELEMENT, "kl gradient"), &target.shape(), choose)?;
    let per_row = from.columns.div_ceil(config.block.max(1));
    let columns = check::size("target", from.columns)?;
    let dloss_stride = i64::from(reduction == Reduction::None);
    KlGradientConsts { BLOCK: config.block, LOGARITHMS: kind == KlTarget::Logarithms }
        .call(
            target.elements(),
            dloss.elements(),
            dinput.elements(),
            from.stride as i64,
            dloss_stride,
            stride,
            per_row as i32,
            columns,
            scale(reduction, from.rows),
        )
        .grid(from.rows * per_row)
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// The generalised Jensen-Shannon divergence of each row (Agarwal et al., "On-Policy Distillation of Language Models",
/// 2024): with `m = beta p + (1 - beta) q`, it is `beta KL(p || m) + (1 - beta) KL(q || m)`, where `x` holds `log q` and `y`
/// holds `log p`. For a `beta` of 0 it is `KL(p || q)`, for 1 it is `KL(q || p)`. Each `beta` is compiled for. NaN among the
/// logarithms of a row makes its divergence NaN.
///
/// # Shapes
///
/// `x` and `y` have one shape, `[rows, columns]`, of any float. The result is `[1]`, or `[rows]` for [`Reduction::None`]; a mean
/// is over rows. Allocates the losses of rows beside it.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64), where numbers below 2^-126 count as zeros; losses are f32, and added up in the same order at every launch.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes differ or rows have gaps, [`Error::InvalidSetting`] if `beta` is not from 0 to 1;
/// [`Error::OutOfMemory`], those of a launch.
pub fn jsd<'a, 'b, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    y: impl Into<TensorView<'b, T, 2>>,
    beta: f64,
    reduction: Reduction,
) -> Result<Tensor<f32, 1>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), [reduction.len(x.shape()[0])])?;
    jsd_into(cx, x, y, beta, reduction, &mut out)?;
    Ok(out)
}

/// [`jsd`], into a tensor of the result's shape, without gaps. Losses of rows that are added up are allocated for the call.
///
/// # Errors
///
/// As [`jsd`], and [`Error::InvalidTensor`] if `out` has another shape or gaps.
pub fn jsd_into<'a, 'b, 'c, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    y: impl Into<TensorView<'b, T, 2>>,
    beta: f64,
    reduction: Reduction,
    out: impl Into<TensorViewMut<'c, f32, 1>>,
) -> Result<()> {
    jsd_losses(cx, Jsd::of(x.into(), y.into(), beta)?, reduction, (out.into(), None))
}

/// [`jsd_into`], with a workspace for the losses of rows: one f32 for each, or more, without gaps; none for [`Reduction::None`].
/// What it holds does not matter. Nothing is allocated.
///
/// # Errors
///
/// As [`jsd_into`], and [`Error::InvalidTensor`] if the workspace has gaps or is too small.
pub fn jsd_into_with<'a, 'b, 'c, 'd, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    y: impl Into<TensorView<'b, T, 2>>,
    beta: f64,
    reduction: Reduction,
    out: impl Into<TensorViewMut<'c, f32, 1>>,
    workspace: impl Into<TensorViewMut<'d, f32, 1>>,
) -> Result<()> {
    jsd_losses(cx, Jsd::of(x.into(), y.into(), beta)?, reduction, (out.into(), Some(workspace.into())))
}

fn jsd_losses<T: Float>(
    cx: &Context,
    jsd: Jsd<'_, T>,
    reduction: Reduction,
    to: (TensorViewMut<'_, f32, 1>, Option<TensorViewMut<'_, f32, 1>>),
) -> Result<()> {
    losses(cx, jsd.from.rows, reduction, to, |losses| jsd.launch(cx, Some(losses), None))
}

/// The gradient of [`jsd`] for `x`: `(1 - beta) q (log q - log m) * dloss`, for a `beta` of 0 `-p * dloss` and for 1
/// `q (log q - log p + 1) * dloss`; over the number of rows if their mean is asked for.
///
/// # Shapes
///
/// As [`jsd`]; `dloss` is the gradient of its result and has its shape.
///
/// # Errors
///
/// As [`jsd`].
pub fn jsd_backward<'a, 'b, 'c, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    y: impl Into<TensorView<'b, T, 2>>,
    beta: f64,
    reduction: Reduction,
    dloss: impl Into<TensorView<'c, f32, 1>>,
) -> Result<Tensor<T, 2>> {
    let x = x.into();
    let mut dx = Tensor::empty(cx.device(), x.shape())?;
    jsd_backward_into(cx, x, y, beta, reduction, dloss, &mut dx)?;
    Ok(dx)
}

/// [`jsd_backward`], into a tensor. Nothing is allocated.
///
/// # Errors
///
/// As [`jsd_backward`], and [`Error::InvalidTensor`] if `dx` has another shape, or rows of it have gaps.
pub fn jsd_backward_into<'a, 'b, 'c, 'd, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 2>>,
    y: impl Into<TensorView<'b, T, 2>>,
    beta: f64,
    reduction: Reduction,
    dloss: impl Into<TensorView<'c, f32, 1>>,
    dx: impl Into<TensorViewMut<'d, T, 2>>,
) -> Result<()> {
    let (x, dloss, dx) = (x.into(), dloss.into(), dx.into());
    let jsd = Jsd::of(x, y.into(), beta)?;
    crate::arguments::vector("dloss", &dloss, reduction.len(jsd.from.rows))?;
    check::shape("dx", dx.shape(), x.shape())?;
    let stride = dx.rows("dx")?.stride as i64;
    jsd.launch(cx, None, Some(JsdGradient { dloss, reduction, dx, stride }))
}

/// What the gradient of [`jsd`] reads and writes beside the logarithms.
struct JsdGradient<'a, T: DType> {
    dloss: TensorView<'a, f32, 1>,
    reduction: Reduction,
    dx: TensorViewMut<'a, T, 2>,
    stride: i64,
}

/// Logarithms, checked.
struct Jsd<'a, T: DType> {
    x: TensorView<'a, T, 2>,
    y: TensorView<'a, T, 2>,
    beta: f64,
    from: Rows,
    other: Rows,
}

impl<'a, T: Float> Jsd<'a, T> {
    fn of(x: TensorView<'a, T, 2>, y: TensorView<'a, T, 2>, beta: f64) -> Result<Self> {
        check::shape("y", y.shape(), x.shape())?;
        if !(0.0..=1.0).contains(&beta) {
            let value = beta.to_string().into();
            return Err(Error::InvalidSetting {
                name: "`beta` of jsd".into(),
                value,
                expected: "a number from 0 to 1".into(),
            });
        }
        Ok(Jsd { x, y, beta, from: x.rows("x")?, other: y.rows("y")? })
    }

    fn launch(
        self,
        cx: &Context,
        losses: Option<TensorViewMut<'_, f32, 1>>,
        gradient: Option<JsdGradient<'_, T>>,
    ) -> Result<()> {
        let Jsd { x, y, beta, from, other } = self;
        if from.rows == 0 {
            return Ok(());
        }
        let is_gradient = gradient.is_some();
        let choose = if is_gradient { DivergenceConfig::choose_jsd_backward } else { DivergenceConfig::choose_jsd };
        let key = Key::of(T::ELEMENT, if is_gradient { "jsd gradient" } else { "jsd" });
        let config = cx.config(key, &x.shape(), || choose(from.columns))?;
        let (mut dloss, mut dloss_stride, mut dx, mut dx_stride, mut factor) = (None, 0, None, 0, 1.0);
        if let Some(gradient) = gradient {
            dloss_stride = i64::from(gradient.reduction == Reduction::None);
            factor = scale(gradient.reduction, from.rows);
            dx_stride = gradient.stride;
            (dloss, dx) = (Some(gradient.dloss), Some(gradient.dx));
        }
        JsdRowsConsts { BLOCK: config.block }
            .call(
                x.elements(),
                y.elements(),
                crate::arguments::maybe_mut(losses),
                crate::arguments::maybe(dloss),
                crate::arguments::maybe_mut(dx),
                from.stride as i64,
                other.stride as i64,
                dloss_stride,
                dx_stride,
                check::size("x", from.columns)?,
                beta,
                factor,
            )
            .grid(from.rows)
            .num_warps(config.num_warps as u32)
            .stream(cx.stream())
            .launch(cx.device())
    }
}
