//! Convolutions as products of matrices that are never made: a row for each pixel of the result, a column for each of its
//! channels, summed over taps and channels of the image.

use super::{Convolution, check_sizes};
use crate::config::config;
use crate::general::number::Real;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::launch::MaybeView;
use tilewright::prelude::*;

config! {
    /// How [`conv2d`] runs; sizes are pixels of the result, its channels, and channels of the image in a group.
    "conv2d": pub struct ConvConfig {
        /// Pixels of a program.
        pub block_m,
        /// Channels of the result of a program.
        pub block_n,
        /// Channels of the image that are multiplied at a time.
        pub block_k,
        /// Warps of a program.
        pub num_warps,
        /// Stages of the pipeline that loads the factors.
        pub num_stages,
    }
}

impl ConvConfig {
    /// Blocks for channels of the result and of the image.
    pub(super) fn choose(channels_out: usize, channels_in: usize, bytes: usize) -> Self {
        // f32 is multiplied in three parts, each in registers: they suffice for smaller blocks and more warps.
        let wide = bytes >= 4;
        let block_n = channels_out.next_power_of_two().clamp(16, if wide { 64 } else { 128 });
        let block_k = channels_in.next_power_of_two().clamp(16, 128 / bytes);
        let num_warps = if block_n == 128 || wide { 8 } else { 4 };
        // With three stages of 16 bits a multiprocessor holds one more program than with four: 3 of 64 channels, 2 of 128.
        let num_stages = if wide { 4 } else { 3 };
        ConvConfig { block_m: 128, block_n, block_k, num_warps, num_stages }
    }
}

/// `out[n, p, q, o] = sum over i, j, c of x[n, p s - pad + i d, q s - pad + j d, c] * filters[o, i, j, c]` of one group.
#[kernel]
fn convolve<T: Float, const BM: usize, const BN: usize, const BK: usize>(
    x: Ptr<T>,
    filters: Ptr<T>,
    bias: Option<Ptr<T>>,
    out: PtrMut<T>,
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
    let o = program_id(1) * BN + arange(0, BN);
    let top = pixel / q % p * stride_h - pad_h;
    let left = pixel % q * stride_w - pad_w;
    let image = (pixel / (p * q)) as i64 * (h as i64 * w as i64);
    let x = x + group as i64 * channels as i64;
    let row = (group as i64 * outs as i64 + o as i64) * (taps as i64 * channels as i64);
    let chunks = cdiv(channels, BK);
    let mut acc = zeros::<T::Acc>([BM, BN]);
    for step in 0..taps * chunks {
        let (tap, c) = (step / chunks, step % chunks * BK + arange(0, BK));
        let y = top + tap / kw * dilation_h;
        let z = left + tap % kw * dilation_w;
        let inside = (pixel < pixels) & (y >= 0) & (y < h) & (z >= 0) & (z < w);
        let place = (image + (y * w + z) as i64) * x_pixel;
        let a = load(x + (place[(.., None)] + c as i64), mask = inside[(.., None)] & (c < channels));
        let from = row[(.., None)] + (tap * channels + c) as i64;
        let b = load(filters + from, mask = (o < outs)[(.., None)] & (c < channels));
        acc = dot(a, b.trans(), acc = acc, precision = tf32x3);
    }
    if let Some(bias) = bias {
        acc += load(bias + group * outs + o, mask = o < outs) as T::Acc;
    }
    let to = (pixel as i64 * out_pixel + (group * outs) as i64)[(.., None)] + o as i64;
    store(out + to, acc as T, mask = (pixel < pixels)[(.., None)] & (o < outs));
}

/// A convolution of images with channels last:
/// `out[n, p, q, o] = bias[o] + sum over i, j, c of x[n, p s - pad + i d, q s - pad + j d, c] * filters[o, i, j, c]`, where `x`
/// is zero outside, `s` is the stride and `d` the dilation, along height and width each. Filters are not turned round, as in
/// all libraries for networks. Of `g` groups, group `k` of the result's channels is made of group `k` of the image's.
///
/// # Shapes
///
/// `x` is `[n, h, w, c]`, `filters` is `[o, kh, kw, c / groups]`, `bias` is `[o]`, all in row-major order without gaps; the
/// result is `[n, p, q, o]` with `p = (h + 2 pad - d (kh - 1) - 1) / s + 1`, and `q` alike. An image with channels first is
/// copied with [`contiguous`](crate::general::contiguous) of `x.permute([0, 2, 3, 1])`. An image has at most
/// 2^31 - 65,536 elements, and so have the pixels of all.
///
/// # Numerics
///
/// Products are exact for 16 bits and summed in f32; f32 is multiplied as `tf32x3`, close to f32 arithmetic. The result is
/// rounded once.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if shapes do not fit or a tensor has gaps; [`tilewright::Error::OutOfMemory`]; those of
/// a launch.
pub fn conv2d<'a, 'b, 'c, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    filters: impl Into<TensorView<'b, T, 4>>,
    bias: Option<TensorView<'c, T, 1>>,
    convolution: Convolution,
) -> Result<Tensor<T, 4>> {
    let (x, filters) = (x.into(), filters.into());
    let mut out = Tensor::empty(cx.device(), convolution.result(x.shape(), filters.shape())?)?;
    conv2d_into(cx, x, filters, bias, convolution, &mut out)?;
    Ok(out)
}

/// [`conv2d`], into a tensor of the result's shape, in row-major order without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`conv2d`], and if `out` has another shape or gaps.
pub fn conv2d_into<'a, 'b, 'c, 'd, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    filters: impl Into<TensorView<'b, T, 4>>,
    bias: Option<TensorView<'c, T, 1>>,
    convolution: Convolution,
    out: impl Into<TensorViewMut<'d, T, 4>>,
) -> Result<()> {
    let (x, filters, out) = (x.into(), filters.into(), out.into());
    let shape @ [n, p, q, o] = convolution.result(x.shape(), filters.shape())?;
    check::shape("out", out.shape(), shape)?;
    check::packed("out", &out.as_view())?;
    let ([_, h, w, c], [_, kh, kw, per_group]) = (x.shape(), filters.shape());
    check::packed("x", &x)?;
    check::packed("filters", &filters)?;
    if let Some(bias) = &bias {
        check::shape("bias", bias.shape(), [o])?;
        check::packed("bias", bias)?;
    }
    check_sizes("x", x.shape())?;
    check_sizes("out", shape)?;
    if out.is_empty() {
        return Ok(());
    }
    let (pixels, outs) = (n * p * q, o / convolution.groups);
    let choose = || ConvConfig::choose(outs, per_group, size_of::<T>());
    let config = cx.config(T::ELEMENT, &[pixels, o, per_group], choose)?;
    let [s0, s1, p0, p1, d0, d1] = convolution.numbers();
    ConvolveConsts { BM: config.block_m, BN: config.block_n, BK: config.block_k }
        .call(
            x.elements(),
            filters.elements(),
            MaybeView::from(bias.map(|bias| bias.elements())),
            out.elements(),
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
        .grid((pixels.div_ceil(config.block_m), outs.div_ceil(config.block_n), convolution.groups))
        .num_warps(config.num_warps as u32)
        .num_stages(config.num_stages as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn products_of_half_precision_are_pipelined_on_tensor_cores() {
        for (o, c) in [(64, 64), (256, 256)] {
            let config = ConvConfig::choose(o, c, 4);
            let consts = ConvolveConsts { BM: config.block_m, BN: config.block_n, BK: config.block_k };
            let request =
                consts.request::<f32>(true).num_warps(config.num_warps as u32).num_stages(config.num_stages as u32);
            check_instructions(
                &format!("conv2d {c} to {o}, f32"),
                request.compile(Target::sm_90a()),
                &["cp.async.cg", "st.global.v4"],
            );
            let config = ConvConfig::choose(o, c, 2);
            let consts = ConvolveConsts { BM: config.block_m, BN: config.block_n, BK: config.block_k };
            let request =
                consts.request::<f16>(false).num_warps(config.num_warps as u32).num_stages(config.num_stages as u32);
            check_instructions(
                &format!("conv2d {c} to {o}"),
                request.compile(Target::sm_90a()),
                &["wgmma", "cp.async.cg", "st.global.v4"],
            );
        }
    }
}
