//! Group norm of images, and its gradients.

use super::norm::Norm;
use super::norm_backward::NormGradients;
use crate::arguments::{maybe, packed};
use crate::config::config;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::launch::MaybeViewMut;
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
    pub(super) fn choose(channels: usize, inner: usize) -> Self {
        let (rows, block) = (channels.next_power_of_two(), inner.next_power_of_two().max(16));
        if rows.saturating_mul(block) > Self::WHOLE {
            return Self::pieces(channels, inner);
        }
        GroupNormConfig { channels: rows, block, num_warps: (rows * block / 512).clamp(1, 16) }
    }

    /// Pieces of a group.
    pub(super) fn pieces(channels: usize, inner: usize) -> Self {
        let block = inner.next_power_of_two().clamp(16, Self::PIECE);
        let channels = channels.next_power_of_two().min(Self::PIECE / block);
        GroupNormConfig { channels, block, num_warps: (channels * block / 256).clamp(1, 16) }
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

/// The sums of `dy * (x - mean)` and of `dy` over a channel of a sample.
#[kernel]
pub(super) fn channel_sums<T: Float, P: Float, const BLOCK: usize>(
    x: Ptr<T>,
    dy: Ptr<T>,
    statistics: Ptr<P>,
    sums: PtrMut<P>,
    channels: i32,
    inner: i32,
) {
    let row = program_id(0);
    let mean = load(statistics + 2 * (row / channels)) as T::Acc;
    let start = row as i64 * inner as i64;
    let mut products = zeros::<T::Acc>([BLOCK]);
    let mut totals = zeros::<T::Acc>([BLOCK]);
    for first in (0..inner).step_by(BLOCK) {
        let column = first + arange(0, BLOCK);
        let gradient = load(dy + start + column, mask = column < inner) as T::Acc;
        products += gradient * (load(x + start + column, mask = column < inner) as T::Acc - mean);
        totals += gradient;
    }
    store(sums + 2 * row, sum(products) as P);
    store(sums + 2 * row + 1, sum(totals) as P);
}

/// `dx = rstd * (w * dy - mean(w * dy) - (x - mean) * rstd^2 * mean(w * dy * (x - mean)))`, blocks of channels; the means
/// over a group are made of the sums of its channels.
#[kernel]
pub(super) fn group_gradient<T: Float, P: Float, const CHANNELS: usize, const BLOCK: usize>(
    x: Ptr<T>,
    dy: Ptr<T>,
    statistics: Ptr<P>,
    sums: Ptr<P>,
    weight: Option<Ptr<T>>,
    dx: PtrMut<T>,
    per_channel: i32,
    all_channels: i32,
    channels: i32,
    inner: i32,
) {
    let row = program_id(0) / per_channel;
    let column = program_id(0) % per_channel * BLOCK + arange(0, BLOCK);
    let mask = column < inner;
    let group = row / channels;
    let (mean, rstd) = (load(statistics + 2 * group) as T::Acc, load(statistics + 2 * group + 1) as T::Acc);
    let mut products = zeros::<T::Acc>([CHANNELS]);
    let mut totals = zeros::<T::Acc>([CHANNELS]);
    for first in (0..channels).step_by(CHANNELS) {
        let channel = first + arange(0, CHANNELS);
        let inside = channel < channels;
        let place = group * channels + channel;
        let product = load(sums + 2 * place, mask = inside) as T::Acc;
        let total = load(sums + 2 * place + 1, mask = inside) as T::Acc;
        if let Some(weight) = weight {
            let scale = load(weight + place % all_channels, mask = inside) as T::Acc;
            products += product * scale;
            totals += total * scale;
        } else {
            products += product;
            totals += total;
        }
    }
    let n = channels as T::Acc * inner as T::Acc;
    let (product, total) = (sum(products) / n, sum(totals) / n);
    let scale = if let Some(weight) = weight { load(weight + row % all_channels) as T::Acc } else { 1 as T::Acc };
    let start = row as i64 * inner as i64;
    let centred = load(x + start + column, mask = mask) as T::Acc - mean;
    let gradient = load(dy + start + column, mask = mask) as T::Acc * scale;
    let result = rstd * (gradient - total - centred * (rstd * rstd * product));
    store(dx + start + column, result as T, mask = mask);
}

/// `dweight` and `dbias`: the sums of channels over samples, one program for a block of channels.
#[kernel]
pub(super) fn group_weights<T: Float, P: Float, const BLOCK: usize>(
    statistics: Ptr<P>,
    sums: Ptr<P>,
    dweight: Option<PtrMut<T>>,
    dbias: Option<PtrMut<T>>,
    samples: i32,
    all_channels: i32,
    channels: i32,
) {
    let channel = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = channel < all_channels;
    let mut weights = zeros::<T::Acc>([BLOCK]);
    let mut biases = zeros::<T::Acc>([BLOCK]);
    for sample in 0..samples {
        let place = sample * all_channels + channel;
        let rstd = load(statistics + (2 * (place / channels) + 1), mask = mask) as T::Acc;
        weights += rstd * load(sums + 2 * place, mask = mask) as T::Acc;
        biases += load(sums + (2 * place + 1), mask = mask) as T::Acc;
    }
    if let Some(dweight) = dweight {
        store(dweight + channel, weights as T, mask = mask);
    }
    if let Some(dbias) = dbias {
        store(dbias + channel, biases as T, mask = mask);
    }
}

/// The sizes of an image.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    samples: usize,
    all_channels: usize,
    groups: usize,
    /// Of a group.
    channels: usize,
    inner: usize,
}

impl Sizes {
    fn of<T: DType>(x: &TensorView<'_, T, 3>, groups: usize, norm: &Norm<'_, T>) -> Result<Sizes> {
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
        choose: fn(usize, usize) -> GroupNormConfig,
    ) -> Result<GroupNormConfig> {
        let sizes = [self.samples * self.groups, self.channels, self.inner];
        cx.config(dtype, &sizes, || choose(self.channels, self.inner))
    }

    /// Elements and warps of a program that takes part of a channel.
    fn channel_block(&self) -> (usize, u32) {
        let block = self.inner.next_power_of_two().clamp(32, 1024);
        (block, (block / 256).max(1) as u32)
    }

    fn numbers(&self) -> Result<[i32; 3]> {
        let number = |size| check::size("x", size);
        Ok([number(self.all_channels)?, number(self.channels)?, number(self.inner)?])
    }
}

fn statistics<T: Float, P: Float>(cx: &Context, x: &TensorView<'_, T, 3>, sizes: Sizes, eps: f64) -> Result<Buffer<P>> {
    let config = sizes.config(cx, T::ELEMENT, GroupNormConfig::pieces)?;
    let [_, channels, inner] = sizes.numbers()?;
    let mut statistics = cx.device().empty::<P>(2 * sizes.samples * sizes.groups)?;
    GroupStatisticsConsts { CHANNELS: config.channels, BLOCK: config.block }
        .call(x.elements(), &mut statistics, channels, inner, eps)
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
) -> Result<()> {
    let sizes = Sizes::of(&x, groups, norm)?;
    check::shape("out", out.shape(), x.shape())?;
    packed("out", out.is_contiguous())?;
    if x.is_empty() {
        return Ok(());
    }
    let [all_channels, channels, inner] = sizes.numbers()?;
    let (weight, bias) = (maybe(norm.weight), maybe(norm.bias));
    let config = sizes.config(cx, T::ELEMENT, GroupNormConfig::choose)?;
    if config.channels >= sizes.channels && config.block >= sizes.inner {
        return GroupWholeConsts { CHANNELS: config.channels, BLOCK: config.block }
            .call(x.elements(), weight, bias, out.elements(), check::size("groups", groups)?, channels, inner, norm.eps)
            .grid(sizes.samples * groups)
            .num_warps(config.num_warps as u32)
            .stream(cx.stream())
            .launch(cx.device());
    }
    let statistics = statistics::<T, P>(cx, &x, sizes, norm.eps)?;
    let (block, warps) = sizes.channel_block();
    let per_channel = sizes.inner.div_ceil(block);
    let per = per_channel as i32;
    GroupScaleConsts { BLOCK: block }
        .call(x.elements(), &statistics, weight, bias, out.elements(), per, all_channels, channels, inner)
        .grid(sizes.samples * sizes.all_channels * per_channel)
        .num_warps(warps)
        .stream(cx.stream())
        .launch(cx.device())
}

fn backward<T: Float, P: Float>(
    cx: &Context,
    x: TensorView<'_, T, 3>,
    dy: TensorView<'_, T, 3>,
    groups: usize,
    norm: &Norm<'_, T>,
) -> Result<NormGradients<T, 3>> {
    let sizes = Sizes::of(&x, groups, norm)?;
    check::shape("dy", dy.shape(), x.shape())?;
    packed("dy", dy.is_contiguous())?;
    let vector = |has: bool| has.then(|| Tensor::zeros(cx.device(), [sizes.all_channels])).transpose();
    let (mut dweight, mut dbias) = (vector(norm.weight.is_some())?, vector(norm.bias.is_some())?);
    let mut dx = Tensor::empty(cx.device(), x.shape())?;
    if x.is_empty() {
        return Ok(NormGradients { dx, dweight, dbias });
    }
    let statistics = statistics::<T, P>(cx, &x, sizes, norm.eps)?;
    let (block, warps) = sizes.channel_block();
    let [all_channels, channels, inner] = sizes.numbers()?;
    let rows = sizes.samples * sizes.all_channels;
    let mut sums = cx.device().empty::<P>(2 * rows)?;
    ChannelSumsConsts { BLOCK: block }
        .call(x.elements(), dy.elements(), &statistics, &mut sums, channels, inner)
        .grid(rows)
        .num_warps(warps)
        .stream(cx.stream())
        .launch(cx.device())?;
    let per_channel = sizes.inner.div_ceil(block);
    let (weight, per, out) = (maybe(norm.weight), per_channel as i32, dx.view_mut().elements());
    let (x, dy) = (x.elements(), dy.elements());
    GroupGradientConsts { CHANNELS: sizes.channels.next_power_of_two().min(256), BLOCK: block }
        .call(x, dy, &statistics, &sums, weight, out, per, all_channels, channels, inner)
        .grid(rows * per_channel)
        .num_warps(warps)
        .stream(cx.stream())
        .launch(cx.device())?;
    if dweight.is_some() || dbias.is_some() {
        let dweight = MaybeViewMut::from(dweight.as_mut().map(|dweight| dweight.buffer_mut().as_view_mut()));
        let dbias = MaybeViewMut::from(dbias.as_mut().map(|dbias| dbias.buffer_mut().as_view_mut()));
        GroupWeightsConsts { BLOCK: 64 }
            .call(&statistics, &sums, dweight, dbias, check::size("x", sizes.samples)?, all_channels, channels)
            .grid(sizes.all_channels.div_ceil(64))
            .num_warps(2)
            .stream(cx.stream())
            .launch(cx.device())?;
    }
    Ok(NormGradients { dx, dweight, dbias })
}

/// Group norm (Wu and He, "Group Normalization", 2018): the channels of a sample are divided into groups, and each group is
/// normalised, `y = (x - mean) / sqrt(var + eps) * weight + bias`, with a weight and a bias for each channel.
///
/// # Shapes
///
/// `x` is `[samples, channels, inner]` without gaps: images are reshaped, `inner` is height times width. The result has its
/// shape; weight and bias of `norm` are `[channels]`. Any float. A group of up to 16,384 elements is read once; for larger ones
/// mean and deviation of each group are allocated beside the result. One program computes those of a group: fewer groups than
/// a GPU has multiprocessors leave some idle for that time.
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
    if T::ELEMENT == f64::ELEMENT {
        forward::<T, f64>(cx, x, groups, norm, out.view_mut())?;
    } else {
        forward::<T, f32>(cx, x, groups, norm, out.view_mut())?;
    }
    Ok(out)
}

/// The gradients of [`group_norm`], of the same `x`, `groups` and `norm`. Sums are in the same order at every launch. Allocates
/// the gradients, and sums of each group and of each channel of a sample.
///
/// # Errors
///
/// As [`group_norm`].
pub fn group_norm_backward<'a, 'b, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    dy: impl Into<TensorView<'b, T, 3>>,
    groups: usize,
    norm: &Norm<'_, T>,
) -> Result<NormGradients<T, 3>> {
    if T::ELEMENT == f64::ELEMENT {
        backward::<T, f64>(cx, x.into(), dy.into(), groups, norm)
    } else {
        backward::<T, f32>(cx, x.into(), dy.into(), groups, norm)
    }
}
