//! Gradients of convolutions.

use super::forward::ConvConfig;
use super::{Convolution, check_sizes};
use crate::general::number::Real;
use crate::general::reduce::sum_as;
use crate::{Context, Tensor, TensorView, check};
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

/// `partial[s, o, tap, c]`: the sum of `dy[pixel, o] * x[pixel at tap, c]` over part `s` of the pixels.
#[kernel]
fn convolve_filters<T: Float, A: Float, const BM: usize, const BN: usize, const BK: usize>(
    x: Ptr<T>,
    dy: Ptr<T>,
    partial: PtrMut<A>,
    pixels: i32,
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
    let first = program_id(1) * per_part;
    let end = minimum(first + per_part, pixels);
    let mut acc = zeros::<T::Acc>([BM, BN]);
    for start in (first..end).step_by(BK) {
        let pixel = start + arange(0, BK);
        let a = load(
            dy + ((pixel as i64 * out_pixel)[(.., None)] + o as i64),
            mask = (pixel < end)[(.., None)] & (o < outs),
        );
        let y = pixel / q % p * stride_h - pad_h + tap / kw * dilation_h;
        let z = pixel % q * stride_w - pad_w + tap % kw * dilation_w;
        let inside = (pixel < end) & (y >= 0) & (y < h) & (z >= 0) & (z < w);
        let image = (pixel / (p * q)) as i64 * (h as i64 * w as i64);
        let place = (image + (y * w + z) as i64) * x_pixel;
        let b = load(x + (place[(.., None)] + c as i64), mask = inside[(.., None)] & (c < channels));
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
    let (filters, dy) = (filters.into(), dy.into());
    let shape @ [_, p, q, o] = convolution.result(x_shape, filters.shape())?;
    check::shape("dy", dy.shape(), shape)?;
    check::packed("filters", &filters)?;
    check::packed("dy", &dy)?;
    check_sizes("x_shape", x_shape)?;
    check_sizes("dy", shape)?;
    let ([n, h, w, c], [_, kh, kw, per_group]) = (x_shape, filters.shape());
    let mut dx = Tensor::empty(cx.device(), x_shape)?;
    if dx.is_empty() {
        return Ok(dx);
    }
    let (pixels, outs) = (n * h * w, o / convolution.groups);
    let choose = || ConvConfig::choose(per_group, outs, size_of::<T>());
    let config = cx.config(T::ELEMENT, &[pixels, c, outs], choose)?;
    let [s0, s1, p0, p1, d0, d1] = convolution.numbers();
    ConvolveBackConsts { BM: config.block_m, BN: config.block_n, BK: config.block_k }
        .call(
            dy.elements(),
            filters.elements(),
            dx.buffer_mut(),
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
        .launch(cx.device())?;
    Ok(dx)
}

/// Pixels that are multiplied at a time for the gradient of filters.
const BLOCK_PIXELS: usize = 32;
/// Warps of a program, more for f32, which is multiplied in three parts.
fn filter_warps(bytes: usize) -> u32 {
    if bytes >= 4 { 8 } else { 4 }
}

/// Programs that keep a large GPU busy.
const PROGRAMS: usize = 528;

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
    let (x, dy) = (x.into(), dy.into());
    let shape @ [n, p, q, o] = convolution.result(x.shape(), filters_shape)?;
    check::shape("dy", dy.shape(), shape)?;
    check::packed("x", &x)?;
    check::packed("dy", &dy)?;
    check_sizes("x", x.shape())?;
    check_sizes("dy", shape)?;
    let ([_, h, w, c], [_, kh, kw, per_group]) = (x.shape(), filters_shape);
    if dy.is_empty() {
        return Tensor::zeros(cx.device(), filters_shape);
    }
    let mut filters = Tensor::empty(cx.device(), filters_shape)?;
    if filters.is_empty() {
        return Ok(filters);
    }
    let (groups, taps, pixels) = (convolution.groups, kh * kw, n * p * q);
    let outs = o / groups;
    let bm = outs.next_power_of_two().clamp(16, 64);
    let bn = per_group.next_power_of_two().clamp(16, 64);
    let tiles = outs.div_ceil(bm) * per_group.div_ceil(bn);
    let blocks = pixels.div_ceil(BLOCK_PIXELS);
    // At least 16 blocks of pixels each, so that the sums are not most of the work.
    let parts = PROGRAMS.div_ceil(tiles * taps * groups).min(blocks.div_ceil(16));
    let per_part = blocks.div_ceil(parts) * BLOCK_PIXELS;
    let parts = pixels.div_ceil(per_part);
    let len = filters.len();
    let mut partial = Tensor::<T::Sums, 2>::empty(cx.device(), [parts, len])?;
    let [s0, s1, p0, p1, d0, d1] = convolution.numbers();
    ConvolveFiltersConsts { BM: bm, BN: bn, BK: BLOCK_PIXELS }
        .call(
            x.elements(),
            dy.elements(),
            partial.buffer_mut(),
            pixels as i32,
            per_part as i32,
            h as i32,
            w as i32,
            per_group as i32,
            p as i32,
            q as i32,
            outs as i32,
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
        .num_warps(filter_warps(size_of::<T>()))
        .num_stages(4)
        .stream(cx.stream())
        .launch(cx.device())?;
    sum_as(cx, partial.view(), 0, filters.view_mut().reshape([1, len])?)?;
    Ok(filters)
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
        let consts = || ConvolveFiltersConsts { BM: 64, BN: 64, BK: BLOCK_PIXELS };
        let request = consts().request::<f16, f32>().num_warps(filter_warps(2)).num_stages(4);
        check_instructions("conv2d, gradient of filters", request.compile(target), &["wgmma", "cp.async.cg"]);
        let request = consts().request::<f32, f32>().num_warps(filter_warps(4)).num_stages(4);
        check_instructions("conv2d, gradient of filters, f32", request.compile(target), &["cp.async.cg"]);
    }
}
