//! Layer norm and RMS norm: they differ in whether the mean is subtracted.

use super::warps_of;
use crate::arguments::{maybe, maybe_mut, vector};
use crate::config::config;
use crate::{Context, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

config! {
    /// How layer norm and RMS norm run; sizes are rows and columns.
    "norm": pub struct NormConfig {
        /// Rows of a tile, if rows are short.
        pub rows,
        /// Elements of a row that a program takes at a time. A whole row if it is that long: the row is then read once.
        pub block,
        /// Warps of a program.
        pub num_warps,
    }
}

impl NormConfig {
    /// The longest row that is kept in registers.
    const WHOLE: usize = 16_384;

    pub(super) fn choose(columns: usize, bytes: usize) -> Self {
        let block = columns.next_power_of_two().clamp(16, Self::WHOLE);
        // Tiles of 1024 elements at least, so that a thread loads 16 bytes of 16-bit elements.
        let rows = (1024 / block).max(1);
        NormConfig { rows, block, num_warps: warps_of(rows * block, bytes).max(2) }
    }
}

/// What layer norm and RMS norm do beside normalising: `y * weight + bias`, each if given, and what is added to the
/// variance.
#[derive(Debug, Clone, Copy)]
pub struct Norm<'a, T: DType> {
    pub(super) weight: Option<TensorView<'a, T, 1>>,
    pub(super) bias: Option<TensorView<'a, T, 1>>,
    pub(super) eps: f64,
}

/// No weight, no bias, and an epsilon of 1e-5.
impl<T: DType> Default for Norm<'_, T> {
    fn default() -> Self {
        Norm { weight: None, bias: None, eps: 1e-5 }
    }
}

impl<'a, T: DType> Norm<'a, T> {
    /// Multiplies by a weight for each column (for each channel in a group norm).
    pub fn weight(mut self, weight: impl Into<TensorView<'a, T, 1>>) -> Self {
        self.weight = Some(weight.into());
        self
    }

    /// Adds a bias for each column (for each channel in a group norm).
    pub fn bias(mut self, bias: impl Into<TensorView<'a, T, 1>>) -> Self {
        self.bias = Some(bias.into());
        self
    }

    /// What is added to the variance, or to the mean square, before its root is taken. Each value is compiled for.
    pub fn eps(mut self, eps: f64) -> Self {
        self.eps = eps;
        self
    }

    pub(super) fn check(&self, columns: usize) -> Result<()> {
        self.weight.as_ref().map_or(Ok(()), |weight| vector("weight", weight, columns))?;
        self.bias.as_ref().map_or(Ok(()), |bias| vector("bias", bias, columns))
    }
}

/// Rows in registers. With `residual`, the sum of both is normalised, and written there; with `before` it is the sum with
/// that, and not with what `residual` holds.
#[kernel]
pub(super) fn norm_whole<T: Float, const ROWS: usize, const BLOCK: usize, const CENTRE: bool>(
    x: Ptr<T>,
    before: Option<Ptr<T>>,
    residual: Option<PtrMut<T>>,
    weight: Option<Ptr<T>>,
    bias: Option<Ptr<T>>,
    out: PtrMut<T>,
    x_stride: i64,
    before_stride: i64,
    residual_stride: i64,
    out_stride: i64,
    rows: i32,
    columns: i32,
    eps: Const<f64>,
) {
    let row = (program_id(0) * ROWS + arange(0, ROWS))[(.., None)];
    let column = arange(0, BLOCK)[(None, ..)];
    let inside = column < columns;
    let mask = if ROWS == 1 { broadcast_to(inside, [ROWS, BLOCK]) } else { (row < rows) & inside };
    let row = row as i64;
    let values = load(x + row * x_stride + column, mask = mask) as T::Acc;
    let values = if let Some(residual) = residual {
        let place = residual + row * residual_stride + column;
        let other = if let Some(before) = before {
            load(before + row * before_stride + column, mask = mask)
        } else {
            load(place, mask = mask)
        };
        // Rounded first: what is normalised is what stays in memory.
        let total = (values + other as T::Acc) as T;
        store(place, total, mask = mask);
        total as T::Acc
    } else {
        values
    };
    let n = columns as T::Acc;
    let values = if CENTRE { select(mask, values - sum(values, axis = 1, keep_dims = true) / n, 0.0) } else { values };
    let scale = rsqrt(sum(values * values, axis = 1, keep_dims = true) / n + eps as T::Acc);
    let result = values * scale;
    let result =
        if let Some(weight) = weight { result * load(weight + column, mask = inside) as T::Acc } else { result };
    let result = if let Some(bias) = bias { result + load(bias + column, mask = inside) as T::Acc } else { result };
    store(out + row * out_stride + column, result as T, mask = mask);
}

/// A row in pieces, read once for each sum and once to be written.
#[kernel]
pub(super) fn norm_pieces<T: Float, const BLOCK: usize, const CENTRE: bool>(
    x: Ptr<T>,
    before: Option<Ptr<T>>,
    residual: Option<PtrMut<T>>,
    weight: Option<Ptr<T>>,
    bias: Option<Ptr<T>>,
    out: PtrMut<T>,
    x_stride: i64,
    before_stride: i64,
    residual_stride: i64,
    out_stride: i64,
    columns: i32,
    eps: Const<f64>,
) {
    let row = program_id(0) as i64;
    let lane = arange(0, BLOCK);
    let (x, out) = (x + row * x_stride, out + row * out_stride);
    let mut sums = zeros::<T::Acc>([BLOCK]);
    if CENTRE || residual.is_some() {
        for first in (0..columns).step_by(BLOCK) {
            let (column, mask) = (first + lane, first + lane < columns);
            let values = load(x + column, mask = mask) as T::Acc;
            if let Some(residual) = residual {
                let place = residual + row * residual_stride + column;
                let other = if let Some(before) = before {
                    load(before + row * before_stride + column, mask = mask)
                } else {
                    load(place, mask = mask)
                };
                let total = (values + other as T::Acc) as T;
                store(place, total, mask = mask);
                sums += total as T::Acc;
            } else {
                sums += values;
            }
        }
    }
    let n = columns as T::Acc;
    let mean = if CENTRE { sum(sums, axis = 0) / n } else { 0 as T::Acc };
    let mut squares = zeros::<T::Acc>([BLOCK]);
    for first in (0..columns).step_by(BLOCK) {
        let (column, mask) = (first + lane, first + lane < columns);
        let values = if let Some(residual) = residual {
            load(residual + row * residual_stride + column, mask = mask)
        } else {
            load(x + column, mask = mask)
        };
        let centred = select(mask, values as T::Acc - mean, 0.0);
        squares += centred * centred;
    }
    let scale = rsqrt(sum(squares, axis = 0) / n + eps as T::Acc);
    for first in (0..columns).step_by(BLOCK) {
        let (column, mask) = (first + lane, first + lane < columns);
        let values = if let Some(residual) = residual {
            load(residual + row * residual_stride + column, mask = mask)
        } else {
            load(x + column, mask = mask)
        };
        let result = (values as T::Acc - mean) * scale;
        let result =
            if let Some(weight) = weight { result * load(weight + column, mask = mask) as T::Acc } else { result };
        let result = if let Some(bias) = bias { result + load(bias + column, mask = mask) as T::Acc } else { result };
        store(out + column, result as T, mask = mask);
    }
}

/// What is added before a norm: to what `sum` holds, or to `before`. The sum is written.
pub(super) struct Added<'a, 'b, T: DType, const R: usize> {
    pub(super) before: Option<TensorView<'a, T, R>>,
    pub(super) sum: TensorViewMut<'b, T, R>,
}

/// Checks the arguments of a forward pass and launches it.
pub(super) fn forward<T: Float, const R: usize, const CENTRE: bool>(
    cx: &Context,
    x: TensorView<'_, T, R>,
    added: Option<Added<'_, '_, T, R>>,
    norm: &Norm<'_, T>,
    out: TensorViewMut<'_, T, R>,
) -> Result<()> {
    check::shape("out", out.shape(), x.shape())?;
    let (from, to) = (x.rows("x")?, out.rows("out")?);
    norm.check(from.columns)?;
    let (mut before_stride, mut residual_stride) = (0, 0);
    if let Some(Added { before, sum }) = &added {
        check::shape("residual", sum.shape(), x.shape())?;
        residual_stride = sum.rows("residual")?.stride as i64;
        if let Some(before) = before {
            check::shape("before", before.shape(), x.shape())?;
            before_stride = before.rows("before")?.stride as i64;
        }
    }
    if x.is_empty() {
        return Ok(());
    }
    let (rows, columns) = (check::size("x", from.rows)?, check::size("x", from.columns)?);
    let config =
        cx.config(T::ELEMENT, &[from.rows, from.columns], || NormConfig::choose(from.columns, size_of::<T>()))?;
    let (before, residual) = added.map_or((None, None), |added| (added.before, Some(added.sum)));
    let (x, out, before, residual) = (x.elements(), out.elements(), maybe(before), maybe_mut(residual));
    let (weight, bias) = (maybe(norm.weight), maybe(norm.bias));
    let (a, b, c, d) = (from.stride as i64, before_stride, residual_stride, to.stride as i64);
    let warps = config.num_warps as u32;
    if from.columns <= config.block {
        NormWholeConsts { ROWS: config.rows, BLOCK: config.block, CENTRE }
            .call(x, before, residual, weight, bias, out, a, b, c, d, rows, columns, norm.eps)
            .grid(from.rows.div_ceil(config.rows.max(1)))
            .num_warps(warps)
            .stream(cx.stream())
            .launch(cx.device())
    } else {
        NormPiecesConsts { BLOCK: config.block, CENTRE }
            .call(x, before, residual, weight, bias, out, a, b, c, d, columns, norm.eps)
            .grid(from.rows)
            .num_warps(warps)
            .stream(cx.stream())
            .launch(cx.device())
    }
}
