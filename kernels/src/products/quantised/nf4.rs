//! NF4: 16 numbers that normally distributed weights are spread over evenly.

use super::kernels::Nf4ProductConsts;
use super::launch::{Launch, Packed, QuantisedConfig, TALL, contiguous};
use super::unpack::nf4_number;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// Neighbours of a row that share the magnitude of the largest.
const BLOCK: usize = 64;

/// Weights `[n, k]`, whose transpose a product multiplies by: each is one of [`NF4`](super::NF4) times the largest magnitude
/// of its block of 64 neighbours along `k`.
#[derive(Debug, Clone, Copy)]
pub struct Nf4<'a> {
    bytes: TensorView<'a, u8, 2>,
    largest: TensorView<'a, f32, 2>,
}

impl<'a> Nf4<'a> {
    /// Bytes `[n, k / 2]` of two neighbours along `k` each, the first in the upper half, and the largest magnitudes
    /// `[n, k / 64]`. `k` is a multiple of 64.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if shapes do not fit or tensors have gaps.
    pub fn new(bytes: impl Into<TensorView<'a, u8, 2>>, largest: impl Into<TensorView<'a, f32, 2>>) -> Result<Self> {
        let (bytes, largest) = (bytes.into(), largest.into());
        let [n, halves] = bytes.shape();
        if !halves.is_multiple_of(BLOCK / 2) {
            let problem = format!("has rows of {halves} bytes");
            return Err(check::invalid("bytes", problem, "rows are whole blocks of 64 numbers, 32 bytes"));
        }
        check::shape("largest", largest.shape(), [n, halves / (BLOCK / 2)])?;
        contiguous("bytes", &bytes)?;
        contiguous("largest", &largest)?;
        Ok(Nf4 { bytes, largest })
    }
}

impl<F: Float> Packed<F> for Nf4<'_> {
    fn name(&self) -> &'static str {
        "nf4"
    }

    fn shape(&self) -> [usize; 2] {
        let [n, halves] = self.bytes.shape();
        [2 * halves, n]
    }

    fn step(&self) -> usize {
        usize::MAX
    }

    /// Narrow tiles leave registers for unpacking.
    fn adjusted(&self, config: QuantisedConfig, _device: &Device) -> QuantisedConfig {
        if config.bm == 16 { QuantisedConfig { bn: 64, bk: 128, num_stages: 3, ..config } } else { config }
    }

    fn launch<R: Float>(&self, launch: Launch<'_>, x: View<'_, F>, out: ViewMut<'_, R>) -> Result<()> {
        let ([m, n, k, splits], config) = (launch.sizes(), launch.config);
        Nf4ProductConsts { BM: config.bm, BN: config.bn, BK: config.bk, TALL }
            .call(
                x,
                self.bytes.elements(),
                self.largest.elements(),
                out,
                m,
                n,
                k,
                splits,
                launch.x_row,
                k / 2,
                k / 64,
                launch.out_row,
                launch.out_part,
            )
            .grid(launch.programs())
            .num_warps(config.num_warps as u32)
            .num_stages(config.num_stages as u32)
            .stream(launch.cx.stream())
            .launch(launch.cx.device())
    }
}

/// Weights that [`quantise_nf4`] has made.
#[derive(Debug)]
pub struct QuantisedNf4 {
    /// `[n, k / 2]`.
    pub bytes: Tensor<u8, 2>,
    /// `[n, k / 64]`.
    pub largest: Tensor<f32, 2>,
}

impl QuantisedNf4 {
    /// The weights, as a product takes them.
    ///
    /// # Errors
    ///
    /// As [`Nf4::new`], of tensors that were exchanged for others.
    pub fn view(&self) -> Result<Nf4<'_>> {
        Nf4::new(&self.bytes, &self.largest)
    }
}

/// The number of the nearest of the 16, by where `x` lies between their middles.
#[device]
fn nearest<const B: usize, const K: usize>(x: Tile<f32, { [B, K] }>) -> Tile<i32, { [B, K] }> {
    let lower = (x > -0.848_096_4) as i32
        + (x > -0.610_632_9) as i32
        + (x > -0.459_995_27) as i32
        + (x > -0.339_679_43) as i32
        + (x > -0.234_607_41) as i32
        + (x > -0.137_911_73) as i32
        + (x > -0.045_525_018) as i32;
    let upper = (x > 0.039_790_15) as i32
        + (x > 0.120_255_25) as i32
        + (x > 0.203_521_25) as i32
        + (x > 0.292_013_77) as i32
        + (x > 0.389_312_53) as i32
        + (x > 0.501_663_4) as i32
        + (x > 0.642_786_92) as i32
        + (x > 0.861_478_4) as i32;
    lower + upper
}

/// Blocks of 64 numbers, `B` for each program.
#[kernel]
fn nf4_quantise<F: Float, const B: usize>(w: Ptr<F>, bytes: PtrMut<u8>, largest: PtrMut<f32>, count: i32) {
    let block = program_id(0) * B + arange(0, B);
    let mask = (block < count)[(.., None)];
    let values = load(w + (block[(.., None)] as i64 * 64 + arange(0, 64) as i64), mask = mask) as f32;
    let size = max(abs(values), axis = 1);
    let code = nearest(div_rn(values, select(size > 0.0, size, 1.0)[(.., None)]));
    let (first, second) = split(reshape(code, [B, 32, 2]));
    store(bytes + (block[(.., None)] as i64 * 32 + arange(0, 32) as i64), (first << 4 | second) as u8, mask = mask);
    store(largest + block, size, mask = block < count);
}

/// Weights `[n, k]` as NF4; `k` is a multiple of 64.
///
/// # Numerics
///
/// Each number is divided by the largest magnitude of its block, in f32 and correctly rounded, and becomes the nearest of
/// [`NF4`](super::NF4). Weights are finite: NaN becomes some number, and has no part in the magnitude.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if `w` has gaps or rows that are no multiples of 64, [`Error::OutOfMemory`], those of a launch.
pub fn quantise_nf4<'a, F: Float>(cx: &Context, w: impl Into<TensorView<'a, F, 2>>) -> Result<QuantisedNf4> {
    let w = w.into();
    let [n, k] = w.shape();
    let mut made = QuantisedNf4 {
        bytes: Tensor::empty(cx.device(), [n, k / 2])?,
        largest: Tensor::empty(cx.device(), [n, k / BLOCK])?,
    };
    quantise_nf4_into(cx, w, &mut made.bytes, &mut made.largest)?;
    Ok(made)
}

/// [`quantise_nf4`], into tensors of the shapes of its results, without gaps.
///
/// # Errors
///
/// As [`quantise_nf4`], and [`Error::InvalidTensor`] if shapes do not fit.
pub fn quantise_nf4_into<'a, 'b, F: Float>(
    cx: &Context,
    w: impl Into<TensorView<'a, F, 2>>,
    bytes: impl Into<TensorViewMut<'b, u8, 2>>,
    largest: impl Into<TensorViewMut<'b, f32, 2>>,
) -> Result<()> {
    let (w, bytes, largest) = (w.into(), bytes.into(), largest.into());
    let [n, k] = w.shape();
    if !k.is_multiple_of(BLOCK) {
        return Err(check::invalid("w", format!("has rows of {k}"), "rows are whole blocks of 64: pad them"));
    }
    check::shape("bytes", bytes.shape(), [n, k / 2])?;
    check::shape("largest", largest.shape(), [n, k / BLOCK])?;
    contiguous("w", &w)?;
    contiguous("bytes", &bytes.as_view())?;
    contiguous("largest", &largest.as_view())?;
    if w.is_empty() {
        return Ok(());
    }
    let count = n * (k / BLOCK);
    nf4_quantise::<_, 16>(w.elements(), bytes.elements(), largest.elements(), check::size("w", count)?)
        .grid(count.div_ceil(16))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}

/// What blocks stand for, `B` for each program.
#[kernel]
fn nf4_dequantise<F: Float, const B: usize>(bytes: Ptr<u8>, largest: Ptr<f32>, out: PtrMut<F>, count: i32) {
    let block = program_id(0) * B + arange(0, B);
    let mask = (block < count)[(.., None)];
    let pair = load(bytes + (block[(.., None)] as i64 * 32 + arange(0, 32) as i64), mask = mask);
    let size = load(largest + block, mask = block < count);
    let values = nf4_number::<B, 64>(interleave(pair >> 4, pair & 15)) * size[(.., None)];
    store(out + (block[(.., None)] as i64 * 64 + arange(0, 64) as i64), values as F, mask = mask);
}

/// The matrix `[n, k]` that weights stand for, computed in f32 and rounded to `F`.
///
/// # Errors
///
/// [`Error::OutOfMemory`], those of a launch.
pub fn dequantise_nf4<F: Float>(cx: &Context, weights: &Nf4<'_>) -> Result<Tensor<F, 2>> {
    let [n, halves] = weights.bytes.shape();
    let mut out = Tensor::empty(cx.device(), [n, 2 * halves])?;
    dequantise_nf4_into(cx, weights, &mut out)?;
    Ok(out)
}

/// [`dequantise_nf4`], into a tensor of the result's shape, without gaps.
///
/// # Errors
///
/// As [`dequantise_nf4`], and [`Error::InvalidTensor`] if shapes do not fit.
pub fn dequantise_nf4_into<'a, F: Float>(
    cx: &Context,
    weights: &Nf4<'_>,
    out: impl Into<TensorViewMut<'a, F, 2>>,
) -> Result<()> {
    let (out, [n, halves]) = (out.into(), weights.bytes.shape());
    check::shape("out", out.shape(), [n, 2 * halves])?;
    contiguous("out", &out.as_view())?;
    if out.is_empty() {
        return Ok(());
    }
    let count = weights.largest.len();
    let (bytes, largest) = (weights.bytes.elements(), weights.largest.elements());
    nf4_dequantise::<_, 16>(bytes, largest, out.elements(), check::size("weights", count)?)
        .grid(count.div_ceil(16))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}
