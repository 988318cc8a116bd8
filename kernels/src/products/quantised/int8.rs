//! 8-bit integers with a scale per column.

use super::kernels::Int8ProductConsts;
use super::launch::{Launch, Packed, QuantisedConfig, TALL, contiguous};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::prelude::*;
use tilewright::{Result, View, ViewMut};

/// Weights `[k, n]` in 8 bits: `number * scale`, with a scale for each column.
#[derive(Debug, Clone, Copy)]
pub struct Int8<'a> {
    numbers: TensorView<'a, i8, 2>,
    scales: TensorView<'a, f32, 1>,
}

impl<'a> Int8<'a> {
    /// Weights `[k, n]` of any strides, and their scales `[n]`. Weights stored as `[n, k]` are given as their transpose.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if shapes do not fit, or scales have gaps.
    pub fn new(numbers: impl Into<TensorView<'a, i8, 2>>, scales: impl Into<TensorView<'a, f32, 1>>) -> Result<Self> {
        let (numbers, scales) = (numbers.into(), scales.into());
        check::shape("scales", scales.shape(), [numbers.shape()[1]])?;
        contiguous("scales", &scales)?;
        Ok(Int8 { numbers, scales })
    }
}

impl<F: Float> Packed<F> for Int8<'_> {
    fn name(&self) -> &'static str {
        "int8"
    }

    fn shape(&self) -> [usize; 2] {
        self.numbers.shape()
    }

    fn step(&self) -> usize {
        usize::MAX
    }

    /// Blocks of weights have another shape than tiles of the result: then each is loaded 16 bytes at a time, as tiles of one
    /// shape are loaded and stored alike.
    fn adjusted(&self, config: QuantisedConfig, _device: &Device) -> QuantisedConfig {
        match config.bm {
            64 => QuantisedConfig { bk: 128, num_stages: 3, ..config },
            128 => QuantisedConfig { bk: 64, num_stages: 4, ..config },
            _ => config,
        }
    }

    fn launch<R: Float>(&self, launch: Launch<'_>, x: View<'_, F>, out: ViewMut<'_, R>) -> Result<()> {
        let ([m, n, k, splits], config) = (launch.sizes(), launch.config);
        let [row, column] = self.numbers.strides();
        Int8ProductConsts { BM: config.bm, BN: config.bn, BK: config.bk, TALL }
            .call(
                x,
                self.numbers.elements(),
                self.scales.elements(),
                out,
                m,
                n,
                k,
                splits,
                launch.x_row,
                row as i64,
                column as i64,
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

/// Weights that [`quantise_int8`] has made.
#[derive(Debug)]
pub struct QuantisedInt8 {
    /// `[k, n]`.
    pub numbers: Tensor<i8, 2>,
    /// `[n]`.
    pub scales: Tensor<f32, 1>,
}

impl QuantisedInt8 {
    /// The weights, as a product takes them.
    ///
    /// # Errors
    ///
    /// As [`Int8::new`], of tensors that were exchanged for others.
    pub fn view(&self) -> Result<Int8<'_>> {
        Int8::new(&self.numbers, &self.scales)
    }
}

/// A scale for each of `BN` columns, which are read twice.
#[kernel]
fn int8_quantise<F: Float, const BK: usize, const BN: usize>(
    w: Ptr<F>,
    numbers: PtrMut<i8>,
    scales: PtrMut<f32>,
    n: i32,
    k: i32,
    w_row: i64,
    w_column: i64,
) {
    let j = program_id(0) * BN + arange(0, BN);
    let mut largest = zeros::<f32>([BK, BN]);
    for t in (0..k).step_by(BK) {
        let i = t + arange(0, BK)[(.., None)];
        let values = load(w + (i as i64 * w_row + j as i64 * w_column), mask = (i < k) & (j < n));
        largest = maximum(largest, abs(values as f32));
    }
    let scale = maximum(div_rn(max(largest, axis = 0), 127.0), 1.175_494_4e-38);
    for t in (0..k).step_by(BK) {
        let i = t + arange(0, BK)[(.., None)];
        let mask = (i < k) & (j < n);
        let values = load(w + (i as i64 * w_row + j as i64 * w_column), mask = mask) as f32;
        store(numbers + (i as i64 * n as i64 + j as i64), round_ties_even(div_rn(values, scale)) as i8, mask = mask);
    }
    store(scales + j, scale, mask = j < n);
}

/// Weights `[k, n]` of any strides in 8 bits, with a scale for each column.
///
/// # Numerics
///
/// `scale = max(|w|) / 127`, correctly rounded and at least 2<sup>-126</sup>; `number = round(w / scale)`, ties to even. NaN
/// becomes 0, and has no part in the maximum.
///
/// # Errors
///
/// [`Error::OutOfMemory`], those of a launch.
pub fn quantise_int8<'a, F: Float>(cx: &Context, w: impl Into<TensorView<'a, F, 2>>) -> Result<QuantisedInt8> {
    let w = w.into();
    let [k, n] = w.shape();
    let mut made =
        QuantisedInt8 { numbers: Tensor::empty(cx.device(), [k, n])?, scales: Tensor::empty(cx.device(), [n])? };
    quantise_int8_into(cx, w, &mut made.numbers, &mut made.scales)?;
    Ok(made)
}

/// [`quantise_int8`], into tensors of the shapes of its results, without gaps.
///
/// # Errors
///
/// As [`quantise_int8`], and [`Error::InvalidTensor`] if shapes do not fit.
pub fn quantise_int8_into<'a, 'b, F: Float>(
    cx: &Context,
    w: impl Into<TensorView<'a, F, 2>>,
    numbers: impl Into<TensorViewMut<'b, i8, 2>>,
    scales: impl Into<TensorViewMut<'b, f32, 1>>,
) -> Result<()> {
    let (w, numbers, scales) = (w.into(), numbers.into(), scales.into());
    let ([k, n], [row, column]) = (w.shape(), w.strides());
    let (rows, columns) = (check::size("w", k)?, check::size("w", n)?);
    check::shape("numbers", numbers.shape(), [k, n])?;
    check::shape("scales", scales.shape(), [n])?;
    contiguous("numbers", &numbers.as_view())?;
    contiguous("scales", &scales.as_view())?;
    // Columns without elements have a scale, too.
    if n == 0 {
        return Ok(());
    }
    let bn = 64;
    Int8QuantiseConsts { BK: 32, BN: bn }
        .call(w.elements(), numbers.elements(), scales.elements(), columns, rows, row as i64, column as i64)
        .grid(n.div_ceil(bn))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}

/// `number * scale`, in blocks.
#[kernel]
fn int8_dequantise<F: Float, const BK: usize, const BN: usize>(
    numbers: Ptr<i8>,
    scales: Ptr<f32>,
    out: PtrMut<F>,
    n: i32,
    k: i32,
    row: i64,
    column: i64,
) {
    let i = program_id(0) / cdiv(n, BN) * BK + arange(0, BK)[(.., None)];
    let j = program_id(0) % cdiv(n, BN) * BN + arange(0, BN);
    let mask = (i < k) & (j < n);
    let values = load(numbers + (i as i64 * row + j as i64 * column), mask = mask) as f32;
    let values = values * load(scales + j, mask = j < n);
    store(out + (i as i64 * n as i64 + j as i64), values as F, mask = mask);
}

/// The matrix `[k, n]` that weights stand for, `number * scale` in f32, rounded to `F`.
///
/// # Errors
///
/// [`Error::OutOfMemory`], those of a launch.
pub fn dequantise_int8<F: Float>(cx: &Context, weights: &Int8<'_>) -> Result<Tensor<F, 2>> {
    let mut out = Tensor::empty(cx.device(), weights.numbers.shape())?;
    dequantise_int8_into(cx, weights, &mut out)?;
    Ok(out)
}

/// [`dequantise_int8`], into a tensor of the result's shape, without gaps.
///
/// # Errors
///
/// As [`dequantise_int8`], and [`Error::InvalidTensor`] if shapes do not fit.
pub fn dequantise_int8_into<'a, F: Float>(
    cx: &Context,
    weights: &Int8<'_>,
    out: impl Into<TensorViewMut<'a, F, 2>>,
) -> Result<()> {
    let out = out.into();
    let ([k, n], [row, column]) = (weights.numbers.shape(), weights.numbers.strides());
    let (rows, columns) = (check::size("weights", k)?, check::size("weights", n)?);
    check::shape("out", out.shape(), [k, n])?;
    contiguous("out", &out.as_view())?;
    if out.is_empty() {
        return Ok(());
    }
    let (bk, bn) = (16, 128);
    Int8DequantiseConsts { BK: bk, BN: bn }
        .call(
            weights.numbers.elements(),
            weights.scales.elements(),
            out.elements(),
            columns,
            rows,
            row as i64,
            column as i64,
        )
        .grid(k.div_ceil(bk) * n.div_ceil(bn))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}
