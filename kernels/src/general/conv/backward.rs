//! Gradients of convolutions.

use super::forward::ConvConfig;
use super::{Convolution, check_sizes};
use crate::config::{Key, config};
use crate::general::axis::Work;
use crate::general::number::Real;
use crate::general::reduce::sum_as;
use crate::tensor::layout::Layout;
use crate::workspace::{Memory, part, product, room};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// `dx[n, y, z, c] = sum over i, j, o of dy[n, p, q, o] * filters[o, i, j, c]`, where `p s = y + pad - i d`, and `q` alike.
#[kernel]
fn convolve_back<T: Float, const BM: usize, const BN: usize, const BK: usize>(
    dy: Ptr<T>,
    filters: Ptr<T>,
    dx: PtrMut<T>,
    pixels: i32,
    h: i32,
    w: i32,
    channels: i32,
    p: i32,
    q: i32,
    outs: i32,
    taps: i32,
    kw: i32,
    stride_h: i32,
    stride_w: i32,
    pad_h: i32,
    pad_w: i32,
    dilation_h: i32,
    dilation_w: i32,
    x_pixel: i64,
    out_pixel: i64,
) {
    let (group, pixel) = (program_id(2), program_id(0) * BM + arange(0, BM));
    let c = program_id(1) * BN + arange(0, BN);
    let top = pixel / w % h + pad_h;
    let left = pixel % w + pad_w;
    let image = (pixel / (h * w)) as i64 * (p as i64 * q as i64);
    let dy = dy + group as i64 * outs as i64;
    let filters = filters + group as i64 * outs as i64 * (taps as i64 * channels as i64);
    let chunks = cdiv(outs, BK);
    let mut acc = zeros::<T::Acc>([BM, BN]);
    for step in 0..taps * chunks {
        let (tap, o) = (step / chunks, step % chunks * BK + arange(0, BK));
        let y = top - tap / kw * dilation_h;
        let z = left - tap % kw * dilation_w;
        let hit = (y >= 0) & (z >= 0) & (y % stride_h == 0) & (z % stride_w == 0);
        let (y, z) = (y / stride_h, z / stride_w);
        let inside = (pixel < pixels) & hit & (y < p) & (z < q);
        let place = (image + (y * q + z) as i64) * out_pixel;
        let a = load(dy + (place[(.., None)] + o as i64), mask = inside[(.., None)] & (o < outs));
        let from = (o as i64 * (taps as i64 * channels as i64))[(.., None)] + (tap * channels + c) as i64;
        let b = load(filters + from, mask = (o < outs)[(.., None)] & (c < channels));
        acc = dot(a, b, acc = acc, precision = tf32x3);
    }
    let to = (pixel as i64 * x_pixel + (group * channels) as i64)[(.., None)] + c as i64;
    store(dx + to, acc as T, mask = (pixel < pixels)[(.., None)] & (c < channels));
}

/// `partial[s, o, tap, c]`: the sum of `dy[pixel, o] * x[pixel at tap, c]` over part `s` of the pixels. These are taken in blocks
/// of `ROWS` rows of an image times `WIDE` of their pixels, so that only rows are divided among images.
#[kernel]
fn convolve_filters<T: Float, A: Float, const BM: usize, const BN: usize, const ROWS: usize, const WIDE: usize>(
    x: Ptr<T>,
    dy: Ptr<T>,
    partial: PtrMut<A>,
    rows: i32,
    per_part: i32,
    h: i32,
    w: i32,
    channels: i32,
    p: i32,
    q: i32,
    outs: i32,
    groups: i32,
    taps: i32,
    kw: i32,
    stride_h: i32,
    stride_w: i32,
    pad_h: i32,
    pad_w: i32,
    dilation_h: i32,
    dilation_w: i32,
    x_pixel: i64,
    out_pixel: i64,
) {
    let blocks = cdiv(channels, BN);
    let tiles = cdiv(outs, BM) * blocks;
    let (tile, product) = (program_id(0) % tiles, program_id(0) / tiles);
    let o = tile / blocks * BM + arange(0, BM);
    let c = tile % blocks * BN + arange(0, BN);
    let (tap, group) = (product % taps, product / taps);
    let x = x + group as i64 * channels as i64;
    let dy = dy + group as i64 * outs as i64;
    let across = cdiv(q, WIDE);
    let first = program_id(1) * per_part;
    let end = minimum(first + per_part, cdiv(rows, ROWS) * across);
    let mut acc = zeros::<T::Acc>([BM, BN]);
    for block in first..end {
        let row = (block / across * ROWS + arange(0, ROWS))[(.., None, None)];
        let column = (block % across * WIDE + arange(0, WIDE))[(None, .., None)];
        let exists = (row < rows) & (column < q);
        let place = (row * q + column) as i64 * out_pixel;
        let a = load(dy + (place + o[(None, None, ..)] as i64), mask = exists & (o < outs)[(None, None, ..)]);
        let y = row % p * stride_h - pad_h + tap / kw * dilation_h;
        let z = column * stride_w - pad_w + tap % kw * dilation_w;
        let inside = exists & (y >= 0) & (y < h) & (z >= 0) & (z < w);
        let place = ((row / p * h + y) * w + z) as i64 * x_pixel;
        let b = load(x + (place + c[(None, None, ..)] as i64), mask = inside & (c < channels)[(None, None, ..)]);
        let (a, b) = (reshape(a, [ROWS * WIDE, BM]), reshape(b, [ROWS * WIDE, BN]));
        acc = dot(a.trans(), b, acc = acc, precision = tf32x3);
    }
    let row = (program_id(1) as i64 * (groups * outs) as i64 + (group * outs + o) as i64) * taps as i64 + tap as i64;
    let to = (row * channels as i64)[(.., None)] + c as i64;
    store(partial + to, acc as A, mask = (o < outs)[(.., None)] & (c < channels));
}

/// The gradient of [`conv2d`](super::conv2d) for its image: `dx`, of the shape `x_shape`.
///
/// # Shapes
///
/// `filters` is `[o, kh, kw, c / groups]`, `dy` has the shape of the result, `[n, p, q, o]`; both in row-major order without
/// gaps.
///
/// # Numerics
///
/// As [`conv2d`](super::conv2d). With a stride, taps that miss the result's pixels are multiplied as zeros.
///
/// # Errors
///
/// Those of [`conv2d`](super::conv2d).
pub fn conv2d_backward_input<'a, 'b, T: Real>(
    cx: &Context,
    x_shape: [usize; 4],
    filters: impl Into<TensorView<'a, T, 4>>,
    dy: impl Into<TensorView<'b, T, 4>>,
    convolution: Convolution,
) -> Result<Tensor<T, 4>> {
    let filters = filters.into();
    convolution.result(x_shape, filters.shape())?;
    check_sizes("x_shape", x_shape)?;
    let mut dx = Tensor::empty(cx.device(), x_shape)?;
    conv2d_backward_input_into(cx, filters, dy, convolution, &mut dx)?;
    Ok(dx)
}

/// [`conv2d_backward_input`], into a tensor of the image's shape, in row-major order without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`conv2d_backward_input`], and if `dx` has gaps.
pub fn conv2d_backward_input_into<'a, 'b, 'c, T: Real>(
    cx: &Context,
    filters: impl Into<TensorView<'a, T, 4>>,
    dy: impl Into<TensorView<'b, T, 4>>,
    convolution: Convolution,
    dx: impl Into<TensorViewMut<'c, T, 4>>,
) -> Result<()> {
    let (filters, dy, dx) = (filters.into(), dy.into(), dx.into());
    let x_shape = dx.shape();
    check::packed("dx", &dx.as_view())?;
    let shape @ [_, p, q, o] = convolution.result(x_shape, filters.shape())?;
    check::shape("dy", dy.shape(), shape)?;
    check::packed("filters", &filters)?;
    check::packed("dy", &dy)?;
    check_sizes("dx", x_shape)?;
    check_sizes("dy", shape)?;
    let ([n, h, w, c], [_, kh, kw, per_group]) = (x_shape, filters.shape());
    if dx.is_empty() {
        return Ok(());
    }
    let (pixels, outs) = (n * h * w, o / convolution.groups);
    let choose = || ConvConfig::choose(per_group, outs, size_of::<T>());
    let config = cx.config(Key::of(T::ELEMENT, "gradient"), &[pixels, c, outs], choose)?;
    let [s0, s1, p0, p1, d0, d1] = convolution.numbers();
    ConvolveBackConsts { BM: config.block_m, BN: config.block_n, BK: config.block_k }
        .call(
            dy.elements(),
            filters.elements(),
            dx.elements(),
            pixels as i32,
            h as i32,
            w as i32,
            per_group as i32,
            p as i32,
            q as i32,
            outs as i32,
            (kh * kw) as i32,
            kw as i32,
            s0,
            s1,
            p0,
            p1,
            d0,
            d1,
            c as i64,
            o as i64,
        )
        .grid((pixels.div_ceil(config.block_m), per_group.div_ceil(config.block_n), convolution.groups))
        .num_warps(config.num_warps as u32)
        .num_stages(config.num_stages as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

config! {
    /// How [`conv2d_backward_weight`] runs; sizes are pixels of the result, its channels, and channels of the image, both of
    /// a group.
    "conv2d_weight": pub struct ConvWeightConfig {
        /// Channels of the result of a program.
        pub block_m,
        /// Channels of the image of a program.
        pub block_n,
        /// Pixels that are multiplied at a time.
        pub block_k,
        /// Warps of a program.
        pub num_warps,
        /// Stages of the pipeline that loads the factors.
        pub num_stages,
        /// Programs that the pixels are divided among, over all filters.
        pub programs or 0,
    }
}

impl ConvWeightConfig {
    fn choose(channels_out: usize, channels_in: usize, bytes: usize) -> Self {
        let block = |channels: usize| channels.next_power_of_two().clamp(16, 64);
        ConvWeightConfig {
            block_m: block(channels_out),
            block_n: block(channels_in),
            block_k: 128 / bytes,
            // More for f32, which is multiplied in three parts.
            num_warps: if bytes >= 4 { 8 } else { 4 },
            num_stages: if bytes >= 4 { 4 } else { 3 },
            programs: 528,
        }
    }

    /// Pixels of a row that a block has: as many as leave no more than a fifth of them behind the ends of rows.
    fn wide(&self, q: usize) -> usize {
        let sizes = std::iter::successors(Some(self.block_k), |wide| Some(wide / 2)).take_while(|wide| *wide >= 8);
        let fits = |wide: &usize| wide.saturating_mul(q.div_ceil(*wide)).saturating_mul(4) <= q.saturating_mul(5);
        sizes.clone().find(fits).or(sizes.last()).unwrap_or(self.block_k).max(1)
    }
}

/// The gradient of [`conv2d`](super::conv2d) for its filters, of the shape `filters_shape`. That of the bias is the sum of
/// `dy` over all but the last dimension.
///
/// # Shapes
///
/// `x` is `[n, h, w, c]`, `dy` has the shape of the result, `[n, p, q, o]`; both in row-major order without gaps.
///
/// # Numerics
///
/// As [`conv2d`](super::conv2d). Pixels are divided into parts, whose sums (in f32, or f64) are allocated for the call.
///
/// # Errors
///
/// Those of [`conv2d`](super::conv2d).
pub fn conv2d_backward_weight<'a, 'b, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    dy: impl Into<TensorView<'b, T, 4>>,
    filters_shape: [usize; 4],
    convolution: Convolution,
) -> Result<Tensor<T, 4>> {
    let x = x.into();
    convolution.result(x.shape(), filters_shape)?;
    let mut filters = Tensor::empty(cx.device(), filters_shape)?;
    conv2d_backward_weight_into(cx, x, dy, convolution, &mut filters)?;
    Ok(filters)
}

/// [`conv2d_backward_weight`], into a tensor of the shape of the filters, in row-major order without gaps. The sums of parts are
/// allocated for the call.
///
/// # Errors
///
/// As [`conv2d_backward_weight`], and if `dfilters` has gaps.
pub fn conv2d_backward_weight_into<'a, 'b, 'c, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    dy: impl Into<TensorView<'b, T, 4>>,
    convolution: Convolution,
    dfilters: impl Into<TensorViewMut<'c, T, 4>>,
) -> Result<()> {
    weight_gradient(cx, x.into(), dy.into(), convolution, dfilters.into(), None)
}

/// [`conv2d_backward_weight_into`], with a workspace for the sums of parts: it has as many elements as
/// [`conv2d_backward_weight_workspace`] says, or more, of f32, or of f64 for `x` of f64; what it holds does not matter. Nothing is
/// allocated.
///
/// # Errors
///
/// As [`conv2d_backward_weight_into`], and if the workspace has gaps or is too small.
pub fn conv2d_backward_weight_into_with<'a, 'b, 'c, 'd, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    dy: impl Into<TensorView<'b, T, 4>>,
    convolution: Convolution,
    dfilters: impl Into<TensorViewMut<'c, T, 4>>,
    workspace: impl Into<TensorViewMut<'d, T::Sums, 1>>,
) -> Result<()> {
    weight_gradient(cx, x.into(), dy.into(), convolution, dfilters.into(), Some(workspace.into()))
}

/// How many elements [`conv2d_backward_weight_into_with`] needs as its workspace, with the same context and tensors of these shapes.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if shapes do not fit or are too large, [`tilewright::Error::Tuning`] of a table's row that does not.
pub fn conv2d_backward_weight_workspace<'a, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    filters_shape: [usize; 4],
    convolution: Convolution,
) -> Result<usize> {
    let x_shape = x.into().shape();
    let shape = convolution.result(x_shape, filters_shape)?;
    check_sizes("x", x_shape)?;
    check_sizes("dy", shape)?;
    Ok(room(&Division::of::<T>(cx, convolution, shape, filters_shape)?.lens(filters_shape)?))
}

/// How pixels are divided among programs.
struct Division {
    config: ConvWeightConfig,
    /// Pixels of a row that a block has, and rows.
    wide: usize,
    high: usize,
    /// Tiles of the filters of one tap and one group.
    tiles: usize,
    /// Parts of the pixels, and blocks of each; none of no pixels.
    parts: usize,
    per_part: usize,
}

impl Division {
    fn of<T: Real>(
        cx: &Context,
        convolution: Convolution,
        [n, p, q, o]: [usize; 4],
        [_, kh, kw, per_group]: [usize; 4],
    ) -> Result<Division> {
        // Products that cannot be counted are of tensors without elements, or of filters that are refused for their size.
        let (groups, taps, pixels) = (convolution.groups, product(&[kh, kw]), product(&[n, p, q]));
        let outs = o / groups;
        let choose = || ConvWeightConfig::choose(outs, per_group, size_of::<T>());
        let config = cx.config(T::ELEMENT, &[pixels, outs, per_group], choose)?;
        let ConvWeightConfig { block_m: bm, block_n: bn, block_k: bk, programs, .. } = config;
        let wide = config.wide(q);
        // The launch refuses tiles of nothing.
        let tiles = product(&[outs.div_ceil(bm.max(1)), per_group.div_ceil(bn.max(1))]);
        let high = (bk / wide).max(1);
        let blocks = product(&[product(&[n, p]).div_ceil(high), q.div_ceil(wide)]);
        // At least 512 pixels each, so that the sums are not most of the work.
        let parts = programs.div_ceil(product(&[tiles, taps, groups]).max(1)).min(pixels.div_ceil(512)).min(blocks);
        let per_part = blocks.div_ceil(parts.max(1));
        Ok(Division { config, wide, high, tiles, parts: blocks.div_ceil(per_part.max(1)), per_part })
    }

    /// Elements of the workspace: the sums of parts, and the results of pieces where there are many.
    fn lens(&self, filters_shape: [usize; 4]) -> Result<[usize; 2]> {
        let len = product(&filters_shape);
        let pieces = Work::of("dfilters", Layout::packed([self.parts, len]), 0, true)?.room();
        Ok([self.parts.saturating_mul(len), pieces])
    }
}

fn weight_gradient<T: Real>(
    cx: &Context,
    x: TensorView<'_, T, 4>,
    dy: TensorView<'_, T, 4>,
    convolution: Convolution,
    dfilters: TensorViewMut<'_, T, 4>,
    workspace: Option<TensorViewMut<'_, T::Sums, 1>>,
) -> Result<()> {
    let filters_shape = dfilters.shape();
    let shape @ [n, p, q, o] = convolution.result(x.shape(), filters_shape)?;
    check::shape("dy", dy.shape(), shape)?;
    check::packed("x", &x)?;
    check::packed("dy", &dy)?;
    check::packed("dfilters", &dfilters.as_view())?;
    check_sizes("x", x.shape())?;
    check_sizes("dy", shape)?;
    let ([_, h, w, c], [_, kh, kw, per_group]) = (x.shape(), filters_shape);
    let division = Division::of::<T>(cx, convolution, shape, filters_shape)?;
    let lens = division.lens(filters_shape)?;
    let mut memory = Memory::of(cx, "workspace", workspace, room(&lens))?;
    if dfilters.is_empty() {
        return Ok(());
    }
    let Division { config, wide, high, tiles, parts, per_part } = division;
    let (mut partial, pieces) = part(memory.view_mut(), lens[0])?;
    let (groups, taps, len) = (convolution.groups, kh * kw, dfilters.len());
    let [s0, s1, p0, p1, d0, d1] = convolution.numbers();
    // Of no pixels the sums are those of no parts.
    if parts > 0 {
        ConvolveFiltersConsts { BM: config.block_m, BN: config.block_n, ROWS: high, WIDE: wide }
            .call(
                x.elements(),
                dy.elements(),
                partial.reborrow(),
                (n * p) as i32,
                per_part as i32,
                h as i32,
                w as i32,
                per_group as i32,
                p as i32,
                q as i32,
                (o / groups) as i32,
                groups as i32,
                taps as i32,
                kw as i32,
                s0,
                s1,
                p0,
                p1,
                d0,
                d1,
                c as i64,
                o as i64,
            )
            .grid((tiles * taps * groups, parts))
            .num_warps(config.num_warps as u32)
            .num_stages(config.num_stages as u32)
            .stream(cx.stream())
            .launch(cx.device())?;
    }
    let (partial, room) = (TensorView::new(partial.as_view(), [parts, len])?, pieces.len());
    sum_as(cx, partial, 0, dfilters.reshape([1, len])?, TensorViewMut::new(pieces, [room])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn gradients_of_half_precision_are_made_on_tensor_cores() {
        let target = Target::sm_90a();
        for (o, c) in [(64, 64), (256, 256)] {
            let config = ConvConfig::choose(c, o, 2);
            let consts = ConvolveBackConsts { BM: config.block_m, BN: config.block_n, BK: config.block_k };
            let (warps, stages) = (config.num_warps as u32, config.num_stages as u32);
            let request = consts.request::<f16>().num_warps(warps).num_stages(stages);
            check_instructions("conv2d, gradient of the image", request.compile(target), &["wgmma", "cp.async.cg"]);
            let config = ConvConfig::choose(c, o, 4);
            let consts = ConvolveBackConsts { BM: config.block_m, BN: config.block_n, BK: config.block_k };
            let (warps, stages) = (config.num_warps as u32, config.num_stages as u32);
            let request = consts.request::<f32>().num_warps(warps).num_stages(stages);
            check_instructions("conv2d, gradient of the image, f32", request.compile(target), &["cp.async.cg"]);
        }
        let consts = |config: &ConvWeightConfig| ConvolveFiltersConsts {
            BM: config.block_m,
            BN: config.block_n,
            ROWS: config.block_k / config.wide(56),
            WIDE: config.wide(56),
        };
        let config = ConvWeightConfig::choose(64, 64, 2);
        let (warps, stages) = (config.num_warps as u32, config.num_stages as u32);
        let request = consts(&config).request::<f16, f32>().num_warps(warps).num_stages(stages);
        check_instructions("conv2d, gradient of filters", request.compile(target), &["wgmma", "cp.async.cg"]);
        let config = ConvWeightConfig::choose(64, 64, 4);
        let (warps, stages) = (config.num_warps as u32, config.num_stages as u32);
        let request = consts(&config).request::<f32, f32>().num_warps(warps).num_stages(stages);
        check_instructions("conv2d, gradient of filters, f32", request.compile(target), &["cp.async.cg"]);
    }
}
