//! The gradients of group norm.
//!
//! A group that a program holds is read once. Of a larger one, a first pass makes moments of pieces, which a small kernel adds up
//! for each group, and a second pass makes the gradient of the data. Both ways leave, for each channel of a sample, its part of the
//! gradients of weight and bias, which a last kernel adds up over samples, in the same order at every launch.

use super::group_norm::{GroupNormConfig, Sizes};
use super::norm::Norm;
use super::norm_backward::{NormGradients, sums_of_columns};
use crate::arguments::{maybe, packed, vector};
use crate::config::Key;
use crate::device::row_sums;
use crate::workspace::{Memory, dtype_of_sums, part, room};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::{MaybeView, MaybeViewMut};
use tilewright::prelude::*;
use tilewright::{Result, ViewMut};

/// The sums of two columns, in one exchange between threads. `[1, 1]` each.
#[device]
fn both_sums<A: Float, const ROWS: usize>(
    a: Tile<A, { [ROWS, 1] }>,
    b: Tile<A, { [ROWS, 1] }>,
) -> (Tile<A, { [1, 1] }>, Tile<A, { [1, 1] }>) {
    reduce((a, b), axis = 0, keep_dims = true, |(a, b), (c, d)| (a + c, b + d))
}

/// The gradient of a group in registers, `dx = rstd * (w * dy - mean(w * dy) - (x - mean) * rstd^2 * mean(w * dy * (x - mean)))`,
/// and for each channel of a sample its part of the gradients of weight and bias.
#[kernel]
pub(super) fn group_gradient_whole<T: Float, P: Float, const CHANNELS: usize, const BLOCK: usize>(
    x: Ptr<T>,
    dy: Ptr<T>,
    weight: Option<Ptr<T>>,
    dx: PtrMut<T>,
    weight_parts: Option<PtrMut<P>>,
    bias_parts: Option<PtrMut<P>>,
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
    let gradient = load(dy + start + place, mask = mask) as T::Acc;
    let n = channels as T::Acc * inner as T::Acc;
    let scale = if let Some(weight) = weight {
        load(weight + program_id(0) % groups * channels + channel, mask = inside) as T::Acc
    } else {
        full([CHANNELS, 1], 1.0)
    };
    // Both tiles have a part in the first exchange, so that both are on their way at once.
    let (row, total) = row_sums(values, gradient);
    let (all, common) = both_sums(row, scale * total);
    let centred = select(mask, values - all / n, 0.0);
    let (row, product) = row_sums(centred * centred, centred * gradient);
    let (squares, along) = both_sums(row, scale * product);
    let rstd = rsqrt(squares / n + eps as T::Acc);
    let result = rstd * (gradient * scale - common / n - centred * (rstd * rstd * (along / n)));
    store(dx + start + place, result as T, mask = mask);
    let place = program_id(0) * channels + channel;
    if let Some(weight_parts) = weight_parts {
        store(weight_parts + place, (rstd * product) as P, mask = inside);
    }
    if let Some(bias_parts) = bias_parts {
        store(bias_parts + place, total as P, mask = inside);
    }
}

/// Of each channel of a sample, in pieces of `BLOCK` elements: the mean of `x`, the squares around it, the sum of `dy`, and that
/// of `dy * (x - mean)`. A program takes a piece of `CHANNELS` channels of a group.
#[kernel]
pub(super) fn piece_moments<T: Float, P: Float, const CHANNELS: usize, const BLOCK: usize>(
    x: Ptr<T>,
    dy: Ptr<T>,
    moments: PtrMut<P>,
    pieces: i32,
    tiles: i32,
    channels: i32,
    inner: i32,
) {
    let piece = program_id(0) % pieces;
    let group = program_id(0) / pieces / tiles;
    let channel = (program_id(0) / pieces % tiles * CHANNELS + arange(0, CHANNELS))[(.., None)];
    let column = (piece * BLOCK + arange(0, BLOCK))[(None, ..)];
    let inside = channel < channels;
    let mask = inside & (column < inner);
    let row = group as i64 * channels as i64 + channel as i64;
    let values = load(x + row * inner as i64 + column, mask = mask) as T::Acc;
    let gradient = load(dy + row * inner as i64 + column, mask = mask) as T::Acc;
    let (all, total) = row_sums(values, gradient);
    let mean = all / minimum(inner - piece * BLOCK, BLOCK as i32) as T::Acc;
    let centred = select(mask, values - mean, 0.0);
    let (squares, product) = row_sums(centred * centred, centred * gradient);
    let place = moments + 4 * (row * pieces as i64 + piece as i64);
    store(place, mean as P, mask = inside);
    store(place + 1, squares as P, mask = inside);
    store(place + 2, total as P, mask = inside);
    store(place + 3, product as P, mask = inside);
}

/// What [`group_gradient`] needs of a group, made of the moments of its pieces, and the parts of the gradients of weight and bias.
/// Squares and products are taken from the mean of a piece to that of the group (Chan, Golub and LeVeque, "Algorithms for
/// Computing the Sample Variance", 1983).
#[kernel]
pub(super) fn group_moments<T: Float, P: Float, const CHANNELS: usize, const PIECES: usize>(
    moments: Ptr<P>,
    weight: Option<Ptr<T>>,
    coefficients: PtrMut<P>,
    weight_parts: Option<PtrMut<P>>,
    bias_parts: Option<PtrMut<P>>,
    groups: i32,
    pieces: i32,
    block: i32,
    channels: i32,
    inner: i32,
    eps: Const<f64>,
) {
    let start = program_id(0) as i64 * channels as i64;
    let n = channels as T::Acc * inner as T::Acc;
    let mut means = zeros::<T::Acc>([CHANNELS, PIECES]);
    for first in (0..channels).step_by(CHANNELS) {
        let channel = (first + arange(0, CHANNELS))[(.., None)];
        for first in (0..pieces).step_by(PIECES) {
            let piece = (first + arange(0, PIECES))[(None, ..)];
            let mask = (channel < channels) & (piece < pieces);
            let place = moments + 4 * ((start + channel as i64) * pieces as i64 + piece as i64);
            let count = minimum(inner - piece * block, block) as T::Acc;
            means += load(place, mask = mask) as T::Acc * count;
        }
    }
    let mean = sum(means) / n;
    let mut squares = zeros::<T::Acc>([CHANNELS, PIECES]);
    for first in (0..channels).step_by(CHANNELS) {
        let channel = (first + arange(0, CHANNELS))[(.., None)];
        for first in (0..pieces).step_by(PIECES) {
            let piece = (first + arange(0, PIECES))[(None, ..)];
            let mask = (channel < channels) & (piece < pieces);
            let place = moments + 4 * ((start + channel as i64) * pieces as i64 + piece as i64);
            let count = minimum(inner - piece * block, block) as T::Acc;
            let distance = select(mask, load(place, mask = mask) as T::Acc - mean, 0.0);
            squares += load(place + 1, mask = mask) as T::Acc + count * distance * distance;
        }
    }
    let rstd = rsqrt(sum(squares) / n + eps as T::Acc);
    let mut commons = zeros::<T::Acc>([CHANNELS, 1]);
    let mut alongs = zeros::<T::Acc>([CHANNELS, 1]);
    for first in (0..channels).step_by(CHANNELS) {
        let channel = (first + arange(0, CHANNELS))[(.., None)];
        let inside = channel < channels;
        let mut totals = zeros::<T::Acc>([CHANNELS, PIECES]);
        let mut products = zeros::<T::Acc>([CHANNELS, PIECES]);
        for first in (0..pieces).step_by(PIECES) {
            let piece = (first + arange(0, PIECES))[(None, ..)];
            let mask = inside & (piece < pieces);
            let place = moments + 4 * ((start + channel as i64) * pieces as i64 + piece as i64);
            let distance = load(place, mask = mask) as T::Acc - mean;
            let total = load(place + 2, mask = mask) as T::Acc;
            totals += total;
            products += load(place + 3, mask = mask) as T::Acc + distance * total;
        }
        let (total, product) = row_sums(totals, products);
        let scale = if let Some(weight) = weight {
            load(weight + program_id(0) % groups * channels + channel, mask = inside) as T::Acc
        } else {
            full([CHANNELS, 1], 1.0)
        };
        commons += scale * total;
        alongs += scale * product;
        if let Some(weight_parts) = weight_parts {
            store(weight_parts + start + channel, (rstd * product) as P, mask = inside);
        }
        if let Some(bias_parts) = bias_parts {
            store(bias_parts + start + channel, total as P, mask = inside);
        }
    }
    let place = coefficients + 4 * program_id(0) as i64;
    store(place, mean as P);
    store(place + 1, rstd as P);
    store(place + 2, (sum(commons) / n) as P);
    store(place + 3, (rstd * rstd * (sum(alongs) / n)) as P);
}

/// The gradient of a group as in [`group_gradient_whole`], in the pieces of [`piece_moments`]: from the last to the first, as
/// what was read last is still in the cache.
#[kernel]
pub(super) fn group_gradient<T: Float, P: Float, const CHANNELS: usize, const BLOCK: usize>(
    x: Ptr<T>,
    dy: Ptr<T>,
    coefficients: Ptr<P>,
    weight: Option<Ptr<T>>,
    dx: PtrMut<T>,
    pieces: i32,
    tiles: i32,
    groups: i32,
    channels: i32,
    inner: i32,
) {
    let at = num_programs(0) - 1 - program_id(0);
    let group = at / pieces / tiles;
    let channel = (at / pieces % tiles * CHANNELS + arange(0, CHANNELS))[(.., None)];
    let column = (at % pieces * BLOCK + arange(0, BLOCK))[(None, ..)];
    let inside = channel < channels;
    let mask = inside & (column < inner);
    let start = (group as i64 * channels as i64 + channel as i64) * inner as i64;
    let values = load(x + start + column, mask = mask) as T::Acc;
    let gradient = load(dy + start + column, mask = mask) as T::Acc;
    let place = coefficients + 4 * group as i64;
    let (mean, rstd) = (load(place) as T::Acc, load(place + 1) as T::Acc);
    let (common, along) = (load(place + 2) as T::Acc, load(place + 3) as T::Acc);
    let gradient = if let Some(weight) = weight {
        gradient * load(weight + group % groups * channels + channel, mask = inside) as T::Acc
    } else {
        gradient
    };
    store(dx + start + column, (rstd * (gradient - common - (values - mean) * along)) as T, mask = mask);
}

/// `dweight` and `dbias`: the sums over samples of the parts of channels, `N` of them by one program.
#[kernel]
pub(super) fn group_weights<T: Float, P: Float, const M: usize, const N: usize>(
    weight_parts: Option<Ptr<P>>,
    bias_parts: Option<Ptr<P>>,
    dweight: Option<PtrMut<T>>,
    dbias: Option<PtrMut<T>>,
    samples: i32,
    all_channels: i32,
) {
    let column = program_id(0) * N + arange(0, N);
    if let Some(parts) = weight_parts {
        if let Some(dweight) = dweight {
            let sums = sums_of_columns::<_, M, N>(parts, column, samples, all_channels);
            store(dweight + column, sums as T, mask = column < all_channels);
        }
    }
    if let Some(parts) = bias_parts {
        if let Some(dbias) = dbias {
            let sums = sums_of_columns::<_, M, N>(parts, column, samples, all_channels);
            store(dbias + column, sums as T, mask = column < all_channels);
        }
    }
}

/// Where [`group_norm_backward_into_with`] writes, and in what it works.
#[derive(Debug)]
pub struct GroupNormGradientsMut<'a, T: DType, P: DType> {
    /// The gradient of `x`, of its shape without gaps.
    pub dx: TensorViewMut<'a, T, 3>,
    /// The gradient of the weight, `[channels]`.
    pub dweight: Option<TensorViewMut<'a, T, 1>>,
    /// The gradient of the bias, `[channels]`.
    pub dbias: Option<TensorViewMut<'a, T, 1>>,
    /// Workspace without gaps, of as many elements as [`group_norm_backward_workspace`] says, or more; what it holds does not
    /// matter. `f32`, or `f64` for `x` of `f64`.
    pub workspace: TensorViewMut<'a, P, 1>,
}

/// How a gradient is computed.
struct Plan {
    sizes: Sizes,
    config: GroupNormConfig,
    /// Pieces of a channel, and of the channels of a group; `None` where a tile holds a group.
    pieces: Option<[usize; 2]>,
}

impl Plan {
    fn of<T: Float>(cx: &Context, sizes: Sizes) -> Result<Plan> {
        let tall = [sizes.samples * sizes.groups, sizes.channels, sizes.inner];
        let config = cx.config(Key::of(T::ELEMENT, "gradient"), &tall, || {
            GroupNormConfig::choose_gradient(sizes.channels, sizes.inner, size_of::<T>())
        })?;
        // The launch refuses tiles of nothing.
        let pieces = [sizes.inner.div_ceil(config.block.max(1)), sizes.channels.div_ceil(config.channels.max(1))];
        Ok(Plan { sizes, config, pieces: (!sizes.is_whole(config)).then_some(pieces) })
    }

    /// Elements of the parts of a workspace: for each channel of a sample its parts of the gradients of weight and bias; then
    /// what is known of pieces, and of groups.
    fn parts(&self) -> [usize; 4] {
        let Plan { sizes: Sizes { samples, all_channels, groups, .. }, pieces, .. } = *self;
        let each = samples * all_channels;
        pieces.map_or([each, each, 0, 0], |[pieces, _]| [each, each, 4 * each * pieces, 4 * samples * groups])
    }

    /// The gradient of `x`; the parts of the gradients of weight and bias, one for each channel of a sample, where they are
    /// given.
    fn run<T: Float, P: Float>(
        &self,
        cx: &Context,
        [x, dy]: [TensorView<'_, T, 3>; 2],
        norm: &Norm<'_, T>,
        [weight_parts, bias_parts]: [Option<ViewMut<'_, P>>; 2],
        [mut moments, mut coefficients]: [ViewMut<'_, P>; 2],
        dx: TensorViewMut<'_, T, 3>,
    ) -> Result<()> {
        let Plan { sizes, config, pieces } = *self;
        let [_, channels, inner] = sizes.numbers()?;
        let (count, groups) = (sizes.samples * sizes.groups, check::size("groups", sizes.groups)?);
        let warps = config.num_warps as u32;
        let (x, dy, dx) = (x.elements(), dy.elements(), dx.elements());
        let (weight, weight_parts, bias_parts) =
            (maybe(norm.weight), MaybeViewMut::from(weight_parts), MaybeViewMut::from(bias_parts));
        let Some([pieces, tiles]) = pieces else {
            return GroupGradientWholeConsts { CHANNELS: config.channels, BLOCK: config.block }
                .call(x, dy, weight, dx, weight_parts, bias_parts, groups, channels, inner, norm.eps)
                .grid(count)
                .num_warps(warps)
                .stream(cx.stream())
                .launch(cx.device());
        };
        let (per_channel, per_group) = (check::size("x", pieces)?, check::size("x", tiles)?);
        PieceMomentsConsts { CHANNELS: config.channels, BLOCK: config.block }
            .call(x, dy, moments.reborrow(), per_channel, per_group, channels, inner)
            .grid(count * tiles * pieces)
            .num_warps(warps)
            .stream(cx.stream())
            .launch(cx.device())?;
        let (from, all, wide) = (moments.as_view(), coefficients.reborrow(), pieces.next_power_of_two().min(64));
        let block = config.block as i32;
        GroupMomentsConsts { CHANNELS: sizes.channels.next_power_of_two().min(1024 / wide), PIECES: wide }
            .call(from, weight, all, weight_parts, bias_parts, groups, per_channel, block, channels, inner, norm.eps)
            .grid(count)
            .num_warps(4)
            .stream(cx.stream())
            .launch(cx.device())?;
        GroupGradientConsts { CHANNELS: config.channels, BLOCK: config.block }
            .call(x, dy, coefficients.as_view(), weight, dx, per_channel, per_group, groups, channels, inner)
            .grid(count * tiles * pieces)
            .num_warps(warps)
            .stream(cx.stream())
            .launch(cx.device())
    }
}

/// The gradients of [`group_norm`](super::group_norm()), of the same `x`, `groups` and `norm`. Sums are in the same order at every
/// launch. A group is read once if it has up to 16,384 elements with both sizes rounded up to powers of two, larger ones twice.
/// Allocates the gradients, and beside them two numbers for each channel of a sample, of larger groups four more for each channel
/// and 4096 elements of it, and four for each group.
///
/// # Errors
///
/// As [`group_norm`](super::group_norm()).
pub fn group_norm_backward<'a, 'b, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    dy: impl Into<TensorView<'b, T, 3>>,
    groups: usize,
    norm: &Norm<'_, T>,
) -> Result<NormGradients<T, 3>> {
    let x = x.into();
    let vector = |has: bool| has.then(|| Tensor::empty(cx.device(), [x.shape()[1]])).transpose();
    let mut dx = Tensor::empty(cx.device(), x.shape())?;
    let (mut dweight, mut dbias) = (vector(norm.weight.is_some())?, vector(norm.bias.is_some())?);
    let vectors = [&mut dweight, &mut dbias].map(|vector| vector.as_mut().map(|vector| vector.view_mut()));
    let [to_weight, to_bias] = vectors;
    group_norm_backward_into(cx, x, dy, groups, norm, &mut dx, to_weight, to_bias)?;
    Ok(NormGradients { dx, dweight, dbias })
}

/// [`group_norm_backward`], into tensors as those of [`GroupNormGradientsMut`]. What is needed beside them is allocated as there.
///
/// # Errors
///
/// As [`group_norm_backward`], and [`Error::InvalidTensor`] if shapes of the gradients do not fit or they have gaps.
#[allow(clippy::too_many_arguments)]
pub fn group_norm_backward_into<'a, 'b, 'c, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    dy: impl Into<TensorView<'b, T, 3>>,
    groups: usize,
    norm: &Norm<'_, T>,
    dx: impl Into<TensorViewMut<'c, T, 3>>,
    dweight: Option<TensorViewMut<'c, T, 1>>,
    dbias: Option<TensorViewMut<'c, T, 1>>,
) -> Result<()> {
    let (x, dy, to) = (x.into(), dy.into(), (dx.into(), dweight, dbias));
    if T::ELEMENT == f64::ELEMENT {
        allocate::<T, f64>(cx, x, dy, groups, norm, to)
    } else {
        allocate::<T, f32>(cx, x, dy, groups, norm, to)
    }
}

type Targets<'a, T> = (TensorViewMut<'a, T, 3>, Option<TensorViewMut<'a, T, 1>>, Option<TensorViewMut<'a, T, 1>>);

/// With a workspace of its own.
fn allocate<T: Float, P: Float>(
    cx: &Context,
    x: TensorView<'_, T, 3>,
    dy: TensorView<'_, T, 3>,
    groups: usize,
    norm: &Norm<'_, T>,
    (dx, dweight, dbias): Targets<'_, T>,
) -> Result<()> {
    let mut workspace = Tensor::<P, 1>::empty(cx.device(), [group_norm_backward_workspace(cx, x, groups)?])?;
    let gradients = GroupNormGradientsMut { dx, dweight, dbias, workspace: workspace.view_mut() };
    group_norm_backward_into_with(cx, x, dy, groups, norm, gradients)
}

/// How many elements of a workspace [`group_norm_backward_into_with`] needs, with the same context and a tensor of this shape,
/// whichever gradients are asked for.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if `groups` does not divide the channels or `x` has gaps, [`Error::Tuning`] of a table's row that
/// does not fit.
pub fn group_norm_backward_workspace<'a, T: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    groups: usize,
) -> Result<usize> {
    let x = x.into();
    let sizes = Sizes::of(&x, groups, &Norm::default())?;
    if x.is_empty() {
        return Ok(0);
    }
    Ok(room(&Plan::of::<T>(cx, sizes)?.parts()))
}

/// [`group_norm_backward`], into tensors that are given, with the workspace among them. Nothing is allocated.
///
/// # Errors
///
/// As [`group_norm_backward`], and [`Error::InvalidTensor`] if shapes of the gradients do not fit or they have gaps, or if the
/// workspace has another dtype or gaps, or is too small.
pub fn group_norm_backward_into_with<'a, 'b, T: Float, P: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 3>>,
    dy: impl Into<TensorView<'b, T, 3>>,
    groups: usize,
    norm: &Norm<'_, T>,
    gradients: GroupNormGradientsMut<'_, T, P>,
) -> Result<()> {
    let (x, dy) = (x.into(), dy.into());
    let GroupNormGradientsMut { dx, mut dweight, mut dbias, workspace } = gradients;
    dtype_of_sums::<T, P>("workspace")?;
    let sizes = Sizes::of(&x, groups, norm)?;
    for (name, like, is_contiguous) in [("dy", dy.shape(), dy.is_contiguous()), ("dx", dx.shape(), dx.is_contiguous())]
    {
        check::shape(name, like, x.shape())?;
        packed(name, is_contiguous)?;
    }
    for (name, out) in [("dweight", &dweight), ("dbias", &dbias)] {
        out.as_ref().map_or(Ok(()), |out| vector(name, &out.as_view(), sizes.all_channels))?;
    }
    let [all_channels, _, _] = sizes.numbers()?;
    // Of nothing gradients of weight and bias are sums over no samples.
    let plan = if x.is_empty() { None } else { Some(Plan::of::<T>(cx, sizes)?) };
    let parts = plan.as_ref().map_or([0; 4], Plan::parts);
    let mut memory = Memory::of(cx, "workspace", Some(workspace), room(&parts))?;
    let (mut weight_parts, rest) = part(memory.view_mut(), parts[0])?;
    let (mut bias_parts, rest) = part(rest, parts[1])?;
    let (moments, rest) = part(rest, parts[2])?;
    let (coefficients, _) = part(rest, parts[3])?;
    if let Some(plan) = &plan {
        let weight_parts = dweight.is_some().then(|| weight_parts.reborrow());
        let bias_parts = dbias.is_some().then(|| bias_parts.reborrow());
        plan.run(cx, [x, dy], norm, [weight_parts, bias_parts], [moments, coefficients], dx)?;
    }
    if all_channels == 0 || (dweight.is_none() && dbias.is_none()) {
        return Ok(());
    }
    let samples = plan.map_or(Ok(0), |plan| check::size("x", plan.sizes.samples))?;
    let weight_parts = MaybeView::from(dweight.is_some().then(|| weight_parts.as_view()));
    let bias_parts = MaybeView::from(dbias.is_some().then(|| bias_parts.as_view()));
    let [first, second] =
        [&mut dweight, &mut dbias].map(|out| MaybeViewMut::from(out.as_mut().map(|out| out.elements_mut())));
    GroupWeightsConsts { M: 32, N: 32 }
        .call(weight_parts, bias_parts, first, second, samples, all_channels)
        .grid(sizes.all_channels.div_ceil(32))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}
