//! Group norm of images.

use super::norm::Norm;
use super::warps_of;
use crate::arguments::{maybe, packed};
use crate::config::config;
use crate::workspace::{self, Memory};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

config! {
    /// How group norm runs; sizes are groups of all samples, channels of a group, and elements of a channel.
    "group_norm": pub struct GroupNormConfig {
        /// Channels that a program takes at a time.
        pub channels,
        /// Elements of a channel that a program takes at a time. A group that one tile holds is read once.
        pub block,
        /// Warps of a program.
        pub num_warps,
    }
}

impl GroupNormConfig {
    /// The largest tile that is kept in registers.
    const WHOLE: usize = 16_384;
    /// Elements of a larger group that are taken at a time.
    const PIECE: usize = 2048;

    /// The whole group, if one tile holds it.
    pub(super) fn choose(channels: usize, inner: usize, bytes: usize) -> Self {
        let (rows, block) = (channels.next_power_of_two(), inner.next_power_of_two().max(16));
        if rows.saturating_mul(block) > Self::WHOLE {
            return Self::pieces(channels, inner);
        }
        GroupNormConfig { channels: rows, block, num_warps: warps_of(rows * block, bytes) }
    }

    /// Pieces of a group.
    pub(super) fn pieces(channels: usize, inner: usize) -> Self {
        let block = inner.next_power_of_two().clamp(16, Self::PIECE);
        let channels = channels.next_power_of_two().min(Self::PIECE / block);
        GroupNormConfig { channels, block, num_warps: (channels * block / 256).clamp(1, 16) }
    }

    /// Of the gradient, which holds as many elements of `dy` as of `x`.
    pub(super) fn choose_gradient(channels: usize, inner: usize, bytes: usize) -> Self {
        let whole = Self::choose(channels, inner, bytes);
        if whole.channels >= channels && whole.block >= inner {
            return whole;
        }
        let block = inner.next_power_of_two().clamp(16, 2 * Self::PIECE);
        let channels = channels.next_power_of_two().min(2 * Self::PIECE / block);
        GroupNormConfig { channels, block, num_warps: (channels * block / 512).clamp(1, 16) }
    }
}

/// A group in registers.
#[kernel]
pub(super) fn group_whole<T: Float, const CHANNELS: usize, const BLOCK: usize>(
    x: Ptr<T>,
    weight: Option<Ptr<T>>,
    bias: Option<Ptr<T>>,
    out: PtrMut<T>,
    groups: i32,
    channels: i32,
    inner: i32,
    eps: Const<f64>,
) {
    let channel = arange(0, CHANNELS)[(.., None)];
    let column = arange(0, BLOCK)[(None, ..)];
    let inside = channel < channels;
    let mask = inside & (column < inner);
    let start = program_id(0) as i64 * (channels as i64 * inner as i64);
    let place = channel * inner + column;
    let values = load(x + start + place, mask = mask) as T::Acc;
    let n = channels as T::Acc * inner as T::Acc;
    let centred = select(mask, values - sum(values) / n, 0.0);
    let rstd = rsqrt(sum(centred * centred) / n + eps as T::Acc);
    let channel = program_id(0) % groups * channels + channel;
    let result = if let Some(weight) = weight {
        centred * (rstd * load(weight + channel, mask = inside) as T::Acc)
    } else {
        centred * rstd
    };
    let result = if let Some(bias) = bias { result + load(bias + channel, mask = inside) as T::Acc } else { result };
    store(out + start + place, result as T, mask = mask);
}

/// The mean of a group and the reciprocal of its deviation, read once. Each lane keeps a running mean and the squares around
/// it (Welford, "Note on a Method for Calculating Corrected Sums of Squares and Products", 1962), which are combined at the
/// end.
#[kernel]
pub(super) fn group_statistics<T: Float, P: Float, const CHANNELS: usize, const BLOCK: usize>(
    x: Ptr<T>,
    statistics: PtrMut<P>,
    channels: i32,
    inner: i32,
    eps: Const<f64>,
) {
    let x = x + program_id(0) as i64 * (channels as i64 * inner as i64);
    let mut counts = zeros::<T::Acc>([CHANNELS, BLOCK]);
    let mut means = zeros::<T::Acc>([CHANNELS, BLOCK]);
    let mut squares = zeros::<T::Acc>([CHANNELS, BLOCK]);
    for channel in (0..channels).step_by(CHANNELS) {
        let channel = (channel + arange(0, CHANNELS))[(.., None)];
        for first in (0..inner).step_by(BLOCK) {
            let column = (first + arange(0, BLOCK))[(None, ..)];
            let mask = (channel < channels) & (column < inner);
            let values = load(x + (channel as i64 * inner as i64 + column as i64), mask = mask) as T::Acc;
            counts += mask as T::Acc;
            let distance = select(mask, values - means, 0.0);
            means += distance / maximum(counts, 1.0);
            squares += distance * (values - means);
        }
    }
    let n = channels as T::Acc * inner as T::Acc;
    let mean = sum(counts * means) / n;
    let distance = means - mean;
    let variance = sum(squares + counts * distance * distance) / n;
    store(statistics + 2 * program_id(0), mean as P);
    store(statistics + 2 * program_id(0) + 1, rsqrt(variance + eps as T::Acc) as P);
}

/// `out = (x - mean) * rstd * weight + bias`, blocks of channels.
#[kernel]
pub(super) fn group_scale<T: Float, P: Float, const BLOCK: usize>(
    x: Ptr<T>,
    statistics: Ptr<P>,
    weight: Option<Ptr<T>>,
    bias: Option<Ptr<T>>,
    out: PtrMut<T>,
    per_channel: i32,
    all_channels: i32,
    channels: i32,
    inner: i32,
) {
    let row = program_id(0) / per_channel;
    let column = program_id(0) % per_channel * BLOCK + arange(0, BLOCK);
    let mask = column < inner;
    let group = row / channels;
    let channel = row % all_channels;
    let (mean, rstd) = (load(statistics + 2 * group) as T::Acc, load(statistics + 2 * group + 1) as T::Acc);
    let scale = if let Some(weight) = weight { rstd * load(weight + channel) as T::Acc } else { rstd };
    let shift = if let Some(bias) = bias { load(bias + channel) as T::Acc } else { 0 as T::Acc };
    let start = row as i64 * inner as i64;
    let values = load(x + start + column, mask = mask) as T::Acc;
    store(out + start + column, ((values - mean) * scale + shift) as T, mask = mask);
}

/// The sizes of an image.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) samples: usize,
    pub(super) all_channels: usize,
    pub(super) groups: usize,
    /// Of a group.
    pub(super) channels: usize,
    pub(super) inner: usize,
}

impl Sizes {
    pub(super) fn of<T: DType>(x: &TensorView<'_, T, 3>, groups: usize, norm: &Norm<'_, T>) -> Result<Sizes> {
        let [samples, all_channels, inner] = x.shape();
        packed("x", x.is_contiguous())?;
        if groups == 0 || all_channels % groups != 0 {
            let problem = format!("has {all_channels} channels, which {groups} groups do not divide");
            return Err(check::invalid("x", problem, "give a number of groups that divides the channels"));
        }
        norm.check(all_channels)?;
        check::size("x", samples * all_channels)?;
        Ok(Sizes { samples, all_channels, groups, channels: all_channels / groups, inner })
    }

    fn config(
        &self,
        cx: &Context,
        dtype: tilewright::ElementType,
        choose: impl Fn(usize, usize) -> GroupNormConfig,
    ) -> Result<GroupNormConfig> {
        let sizes = [self.samples * self.groups, self.channels, self.inner];
        cx.config(dtype, &sizes, || choose(self.channels, self.inner))
    }

    /// How a group is read that may fit a tile.
    fn choose(&self, cx: &Context, dtype: tilewright::ElementType) -> Result<GroupNormConfig> {
        self.config(cx, dtype, |channels, inner| GroupNormConfig::choose(channels, inner, dtype.size()))
    }

    /// Whether a tile holds a group.
    pub(super) fn is_whole(&self, config: GroupNormConfig) -> bool {
        config.channels >= self.channels && config.block >= self.inner
    }

    /// The number of means and deviations.
    fn statistics(&self) -> usize {
        2 * self.samples * self.groups
    }

    /// Elements and warps of a program that takes part of a channel.
    fn channel_block(&self) -> (usize, u32) {
        let block = self.inner.next_power_of_two().clamp(32, 1024);
        (block, (block / 256).max(1) as u32)
    }

    pub(super) fn numbers(&self) -> Result<[i32; 3]> {
        let number = |size| check::size("x", size);
        Ok([number(self.all_channels)?, number(self.channels)?, number(self.inner)?])
    }
}

/// Mean and deviation of each group, into a workspace.
fn statistics<'a, T: Float, P: Float>(
    cx: &Context,
    x: &TensorView<'_, T, 3>,
    sizes: Sizes,
    eps: f64,
    workspace: Option<TensorViewMut<'a, P, 1>>,
) -> Result<Memory<'a, P>> {
    let config = sizes.config(cx, T::ELEMENT, GroupNormConfig::pieces)?;
    let [_, channels, inner] = sizes.numbers()?;
    let mut statistics = Memory::of(cx, "workspace", workspace, sizes.statistics())?;
    GroupStatisticsConsts { CHANNELS: config.channels, BLOCK: config.block }
        .call(x.elements(), statistics.view_mut(), channels, inner, eps)
        .grid(sizes.samples * sizes.groups)
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())?;
    Ok(statistics)
}

fn forward<T: Float, P: Float>(
    cx: &Context,
    x: TensorView<'_, T, 3>,
    groups: usize,
    norm: &Norm<'_, T>,
    out: TensorViewMut<'_, T, 3>,
    workspace: Option<TensorViewMut<'_, P, 1>>,
) -> Result<()> {
    let sizes = Sizes::of(&x, groups, norm)?;
    check::shape("out", out.shape(), x.shape())?;
    packed("out", out.is_contiguous())?;
    if x.is_empty() {
        return Ok(());
    }
    let [all_channels, channels, inner] = sizes.numbers()?;
    let (weight, bias) = (maybe(norm.weight), maybe(norm.bias));
    let config = sizes.choose(cx, T::ELEMENT)?;
    if sizes.is_whole(config) {
        return GroupWholeConsts { CHANNELS: config.channels, BLOCK: config.block }
            .call(x.elements(), weight, bias, out.elements(), check::size("groups", groups)?, channels, inner, norm.eps)
            .grid(sizes.samples * groups)
            .num_warps(config.num_warps as u32)
            .stream(cx.stream())
            .launch(cx.device());
    }
    let statistics = statistics::<T, P>(cx, &x, sizes, norm.eps, workspace)?;
    let (block, warps) = sizes.channel_block();
    let per_channel = sizes.inner.div_ceil(block);
    let per = per_channel as i32;
    GroupScaleConsts { BLOCK: block }
        .call(x.elements(), statistics.view(), weight, bias, out.elements(), per, all_channels, channels, inner)
        .grid(sizes.samples * sizes.all_channels * per_channel)
        .num_warps(warps)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Group norm (Wu and He, "Group Normalization", 2018): the channels of a sample are divided into groups, and each group is
/// normalised, `y = (x - mean) / sqrt(var + eps) * weight + bias`, with a weight and a bias for each channel.
///
/// # Shapes
///
/// `x` is `[samples, channels, inner]` without gaps: images are reshaped, `inner` is height times width. The result has its
/// shape; weight and bias of `norm` are `[channels]`. Any float. A group is read once if it has up to 16,384 elements with both
/// sizes rounded up to powers of two; for larger ones mean and deviation of each group are allocated beside the result. One
/// program computes those of a group: fewer groups than a GPU has multiprocessors leave some idle for that time.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64) and rounded once. Variances are computed around means, of large groups around running means.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if `groups` does not divide the channels, shapes do not fit, or `x` has gaps;
/// [`Error::OutOfMemory`], those of a launch.
pub fn group_norm<'a, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    groups: usize,
    norm: &Norm<'_, T>,
) -> Result<Tensor<T, 3>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    group_norm_into(cx, x, groups, norm, &mut out)?;
    Ok(out)
}

/// [`group_norm`], into a tensor of the shape of `x` without gaps. Means and deviations of large groups are allocated as there.
///
/// # Errors
///
/// As [`group_norm`], and [`Error::InvalidTensor`] if `out` has another shape or gaps.
pub fn group_norm_into<'a, 'b, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    groups: usize,
    norm: &Norm<'_, T>,
    out: impl Into<TensorViewMut<'b, T, 3>>,
) -> Result<()> {
    if T::ELEMENT == f64::ELEMENT {
        forward::<T, f64>(cx, x.into(), groups, norm, out.into(), None)
    } else {
        forward::<T, f32>(cx, x.into(), groups, norm, out.into(), None)
    }
}

/// [`group_norm_into`], with a workspace for means and deviations: it has as many elements as [`group_norm_workspace`] says, or
/// more, of f32, or of f64 for `x` of f64; what it holds does not matter. Nothing is allocated.
///
/// # Errors
///
/// As [`group_norm_into`], and [`Error::InvalidTensor`] if the workspace has another dtype or gaps, or is too small.
pub fn group_norm_into_with<'a, 'b, 'c, T: Float, P: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    groups: usize,
    norm: &Norm<'_, T>,
    out: impl Into<TensorViewMut<'b, T, 3>>,
    workspace: impl Into<TensorViewMut<'c, P, 1>>,
) -> Result<()> {
    workspace::dtype_of_sums::<T, P>("workspace")?;
    let workspace = workspace::contiguous("workspace", workspace.into())?;
    forward(cx, x.into(), groups, norm, out.into(), Some(workspace))
}

/// How many elements [`group_norm_into_with`] needs as its workspace, with the same context and a tensor of this shape: two for
/// each group of each sample, and 0 where groups are read once.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if `groups` does not divide the channels or `x` has gaps, [`Error::Tuning`] of a table's row that
/// does not fit.
pub fn group_norm_workspace<'a, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    groups: usize,
) -> Result<usize> {
    let x = x.into();
    let sizes = Sizes::of(&x, groups, &Norm::default())?;
    if x.is_empty() || sizes.is_whole(sizes.choose(cx, T::ELEMENT)?) {
        return Ok(0);
    }
    Ok(sizes.statistics())
}
