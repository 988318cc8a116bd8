//! The gradients of layer norm and RMS norm.
//!
//! One kernel makes the gradient of the data. Each of its programs goes over several rows and keeps the sums for weight and
//! bias; a second kernel adds up the sums of all programs. The order of both is the same at every launch with as many
//! programs.

use super::norm::Norm;
use crate::arguments::{maybe, packed, vector};
use crate::config::config;
use crate::device::row_sums;
use crate::workspace::dtype_of_sums;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::MaybeViewMut;
use tilewright::prelude::*;
use tilewright::{ElementType, Result, ViewMut};

config! {
    /// How the gradients of layer norm and RMS norm run; sizes are rows and columns.
    "norm_backward": pub struct NormBackwardConfig {
        /// Rows of a tile, if rows are short.
        pub rows,
        /// Elements of a row that a program takes at a time. A whole row if it is that long: the row is then read once.
        pub block,
        /// Warps of a program.
        pub num_warps,
        /// Programs for each multiprocessor, where there are as many rows.
        pub programs or 0,
    }
}

impl NormBackwardConfig {
    /// The longest row that is kept in registers: beside it there are its gradient, the weight, and sums for weight and bias.
    const WHOLE: usize = 8192;

    pub(super) fn choose(columns: usize, dtype: ElementType) -> Self {
        let block = columns.next_power_of_two().clamp(16, Self::WHOLE);
        let rows = (1024 / block).max(1);
        // Of 16 bits a thread keeps 32 bytes of five tiles, in 128 registers: a multiprocessor then holds 512 threads, and half
        // as many share in the sums of a row as of 16 bytes each. The longest rows, and those of more bits, are kept as 16
        // bytes a thread, in 64 registers.
        let wide = rows * block * dtype.size() / (32 * 16);
        let num_warps = match dtype.size() {
            2 if wide <= 16 => (wide / 2).max(2),
            _ if wide > 32 => 16,
            _ => wide.max(2),
        };
        let resident = if num_warps * 2 == wide || wide > 32 { 16 } else { 32 };
        NormBackwardConfig { rows, block, num_warps, programs: resident / num_warps }
    }

    /// What a multiprocessor has for a thread: as many programs run as it holds at once.
    pub(super) fn registers(&self) -> u32 {
        let threads = 32 * self.num_warps * self.programs;
        (65_536 / threads.max(1)).clamp(32, 255) as u32
    }
}

/// The gradient of rows in registers; `sums` of `weight` and `bias` are written for each program.
#[kernel]
pub(super) fn norm_gradient<T: Float, P: Float, const ROWS: usize, const BLOCK: usize, const CENTRE: bool>(
    x: Ptr<T>,
    dy: Ptr<T>,
    weight: Option<Ptr<T>>,
    extra: Option<Ptr<T>>,
    dx: PtrMut<T>,
    weight_sums: Option<PtrMut<P>>,
    bias_sums: Option<PtrMut<P>>,
    x_stride: i64,
    dy_stride: i64,
    extra_stride: i64,
    dx_stride: i64,
    rows: i32,
    columns: i32,
    eps: Const<f64>,
) {
    let column = arange(0, BLOCK)[(None, ..)];
    let inside = column < columns;
    let n = columns as T::Acc;
    let mut weights = zeros::<T::Acc>([ROWS, BLOCK]);
    let mut biases = zeros::<T::Acc>([ROWS, BLOCK]);
    for first in (program_id(0) * ROWS..rows).step_by(num_programs(0) * ROWS) {
        let row = (first + arange(0, ROWS))[(.., None)];
        // Of one row, the loop says that it is there; a mask of columns alone leaves registers for the sums.
        let there = row < rows;
        let mask = if ROWS == 1 { broadcast_to(inside, [ROWS, BLOCK]) } else { there & inside };
        let row = row as i64;
        let values = load(x + row * x_stride + column, mask = mask) as T::Acc;
        let gradient = load(dy + row * dy_stride + column, mask = mask) as T::Acc;
        let along = if let Some(weight) = weight {
            gradient * load(weight + column, mask = inside) as T::Acc
        } else {
            gradient
        };
        let (centred, mean) = if CENTRE {
            let (total, mean) = row_sums(values, along);
            (select(inside, values - total / n, 0.0), mean / n)
        } else {
            (values, zeros::<T::Acc>([ROWS, 1]))
        };
        let (squares, common) = row_sums(centred * centred, centred * along);
        let scale = rsqrt(squares / n + eps as T::Acc);
        // Rows that are not there have no infinite scale, which zeros in sums for the weight would not hide.
        let scale = if ROWS == 1 { scale } else { select(there, scale, 0.0) };
        let result = scale * (along - mean - centred * (scale * scale * (common / n)));
        let result = if let Some(extra) = extra {
            result + load(extra + row * extra_stride + column, mask = mask) as T::Acc
        } else {
            result
        };
        store(dx + row * dx_stride + column, result as T, mask = mask);
        weights += gradient * centred * scale;
        biases += gradient;
    }
    // Tiles of another shape, so that these few stores of f32 do not decide the layout of the loop's loads.
    let start = program_id(0) as i64 * columns as i64;
    let column = arange(0, BLOCK);
    if let Some(weight_sums) = weight_sums {
        store(weight_sums + start + column, sum(weights, axis = 0) as P, mask = column < columns);
    }
    if let Some(bias_sums) = bias_sums {
        store(bias_sums + start + column, sum(biases, axis = 0) as P, mask = column < columns);
    }
}

/// The same for a row in pieces. The sums of a program stay in its part of memory.
#[kernel]
pub(super) fn norm_gradient_pieces<T: Float, P: Float, const BLOCK: usize, const CENTRE: bool>(
    x: Ptr<T>,
    dy: Ptr<T>,
    weight: Option<Ptr<T>>,
    extra: Option<Ptr<T>>,
    dx: PtrMut<T>,
    weight_sums: Option<PtrMut<P>>,
    bias_sums: Option<PtrMut<P>>,
    x_stride: i64,
    dy_stride: i64,
    extra_stride: i64,
    dx_stride: i64,
    rows: i32,
    columns: i32,
    eps: Const<f64>,
) {
    let lane = arange(0, BLOCK);
    let n = columns as T::Acc;
    let weighted = |gradient, column, mask| {
        if let Some(weight) = weight { gradient * load(weight + column, mask = mask) as T::Acc } else { gradient }
    };
    for row in (program_id(0)..rows).step_by(num_programs(0)) {
        let is_first = row == program_id(0);
        let (x, dy) = (x + row as i64 * x_stride, dy + row as i64 * dy_stride);
        let mut sums = zeros::<T::Acc>([BLOCK]);
        let mut alongs = zeros::<T::Acc>([BLOCK]);
        if CENTRE {
            for first in (0..columns).step_by(BLOCK) {
                let (column, mask) = (first + lane, first + lane < columns);
                sums += load(x + column, mask = mask) as T::Acc;
                alongs += weighted(load(dy + column, mask = mask) as T::Acc, column, mask);
            }
        }
        let (mean, mean_along) = (sum(sums, axis = 0) / n, sum(alongs, axis = 0) / n);
        let mut squares = zeros::<T::Acc>([BLOCK]);
        let mut products = zeros::<T::Acc>([BLOCK]);
        for first in (0..columns).step_by(BLOCK) {
            let (column, mask) = (first + lane, first + lane < columns);
            let centred = select(mask, load(x + column, mask = mask) as T::Acc - mean, 0.0);
            squares += centred * centred;
            products += centred * weighted(load(dy + column, mask = mask) as T::Acc, column, mask);
        }
        let scale = rsqrt(sum(squares, axis = 0) / n + eps as T::Acc);
        let factor = scale * scale * (sum(products, axis = 0) / n);
        for first in (0..columns).step_by(BLOCK) {
            let (column, mask) = (first + lane, first + lane < columns);
            let centred = load(x + column, mask = mask) as T::Acc - mean;
            let gradient = load(dy + column, mask = mask) as T::Acc;
            let along = weighted(gradient, column, mask);
            let result = scale * (along - mean_along - centred * factor);
            let result = if let Some(extra) = extra {
                result + load(extra + row as i64 * extra_stride + column, mask = mask) as T::Acc
            } else {
                result
            };
            store(dx + row as i64 * dx_stride + column, result as T, mask = mask);
            let start = program_id(0) as i64 * columns as i64;
            if let Some(weight_sums) = weight_sums {
                let before = load(weight_sums + start + column, mask = mask & !is_first) as T::Acc;
                store(weight_sums + start + column, (before + gradient * centred * scale) as P, mask = mask);
            }
            if let Some(bias_sums) = bias_sums {
                let before = load(bias_sums + start + column, mask = mask & !is_first) as T::Acc;
                store(bias_sums + start + column, (before + gradient) as P, mask = mask);
            }
        }
    }
}

/// The sums of `N` columns of a matrix, whose rows are taken `M` at a time.
#[device]
pub(super) fn sums_of_columns<P: Float, const M: usize, const N: usize>(
    parts: Ptr<P>,
    column: Tile<i32, { [N] }>,
    rows: i32,
    columns: i32,
) -> Tile<P::Acc, { [N] }> {
    let mut sums = zeros::<P::Acc>([M, N]);
    for first in (0..rows).step_by(M) {
        let row = first + arange(0, M);
        let mask = (row < rows)[(.., None)] & (column < columns)[(None, ..)];
        sums += load(parts + row[(.., None)] as i64 * columns as i64 + column[(None, ..)], mask = mask) as P::Acc;
    }
    sum(sums, axis = 0)
}

/// Adds up the rows of one matrix or of two, `M` rows of `N` columns at a time.
#[kernel]
pub(super) fn column_sums<T: Float, P: Float, const M: usize, const N: usize>(
    parts: Ptr<P>,
    out: PtrMut<T>,
    rows: i32,
    columns: i32,
) {
    let column = program_id(0) * N + arange(0, N);
    store(out + column, sums_of_columns::<_, M, N>(parts, column, rows, columns) as T, mask = column < columns);
}

/// The gradients that the backward pass of a norm returns.
#[derive(Debug)]
pub struct NormGradients<T: DType, const R: usize> {
    /// The gradient of `x`.
    pub dx: Tensor<T, R>,
    /// The gradient of the weight, if there is a weight.
    pub dweight: Option<Tensor<T, 1>>,
    /// The gradient of the bias, if there is a bias.
    pub dbias: Option<Tensor<T, 1>>,
}

/// Where the backward pass of a norm writes its gradients.
#[derive(Debug)]
pub struct NormGradientsMut<'a, T: DType, P: DType, const R: usize> {
    /// The gradient of `x`, of its shape.
    pub dx: TensorViewMut<'a, T, R>,
    /// The gradient of the weight, `[columns]`.
    pub dweight: Option<TensorViewMut<'a, T, 1>>,
    /// The gradient of the bias, `[columns]`.
    pub dbias: Option<TensorViewMut<'a, T, 1>>,
    /// Workspace for the gradients of weight and bias, `[gradients * programs, columns]` without gaps, which need not be
    /// zero: where both are asked for, it has two rows for each program. As many programs run, so that its size decides
    /// the order of the sums; [`norm_programs`] says how many fill the device. `f32`, or `f64` for `x` of `f64`.
    pub sums: TensorViewMut<'a, P, 2>,
}

/// How many programs of the backward pass of a norm fill the device: see [`NormGradientsMut::sums`].
///
/// # Errors
///
/// [`Error::InvalidSetting`] if the context's table is wrong.
pub fn norm_programs(cx: &Context, dtype: ElementType, rows: usize, columns: usize) -> Result<usize> {
    let config = cx.config(dtype, &[rows, columns], || NormBackwardConfig::choose(columns, dtype))?;
    Ok(cx
        .device()
        .multiprocessor_count()
        .saturating_mul(config.programs)
        .clamp(1, rows.div_ceil(config.rows.max(1)).max(1)))
}

/// What is read.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a, T: DType, const R: usize> {
    pub(super) x: TensorView<'a, T, R>,
    pub(super) dy: TensorView<'a, T, R>,
    /// Added to the gradient of `x`.
    pub(super) extra: Option<TensorView<'a, T, R>>,
}

/// Allocates the gradients and the workspace. Sums are kept in `f32`, those of `f64` in `f64`.
pub(super) fn allocate<T: Float, const R: usize, const CENTRE: bool>(
    cx: &Context,
    inputs: Inputs<'_, T, R>,
    norm: &Norm<'_, T>,
) -> Result<NormGradients<T, R>> {
    if T::ELEMENT == f64::ELEMENT {
        allocate_with::<T, f64, R, CENTRE>(cx, inputs, norm)
    } else {
        allocate_with::<T, f32, R, CENTRE>(cx, inputs, norm)
    }
}

fn allocate_with<T: Float, P: Float, const R: usize, const CENTRE: bool>(
    cx: &Context,
    inputs: Inputs<'_, T, R>,
    norm: &Norm<'_, T>,
) -> Result<NormGradients<T, R>> {
    let from = inputs.x.rows("x")?;
    let vector = |has: bool| has.then(|| Tensor::empty(cx.device(), [from.columns])).transpose();
    let (mut dweight, mut dbias) = (vector(norm.weight.is_some())?, vector(norm.bias.is_some())?);
    let gradients = usize::from(dweight.is_some()) + usize::from(dbias.is_some());
    let parts = gradients * norm_programs(cx, T::ELEMENT, from.rows, from.columns)?;
    let mut sums = Tensor::<P, 2>::empty(cx.device(), [parts, from.columns])?;
    let mut dx = Tensor::empty(cx.device(), inputs.x.shape())?;
    let targets = NormGradientsMut {
        dx: dx.view_mut(),
        dweight: dweight.as_mut().map(|dweight| dweight.view_mut()),
        dbias: dbias.as_mut().map(|dbias| dbias.view_mut()),
        sums: sums.view_mut(),
    };
    backward::<T, P, R, CENTRE>(cx, inputs, norm, targets)?;
    Ok(NormGradients { dx, dweight, dbias })
}

/// Checks the arguments of a backward pass and launches it.
pub(super) fn backward<T: Float, P: Float, const R: usize, const CENTRE: bool>(
    cx: &Context,
    inputs: Inputs<'_, T, R>,
    norm: &Norm<'_, T>,
    targets: NormGradientsMut<'_, T, P, R>,
) -> Result<()> {
    let (Inputs { x, dy, extra }, NormGradientsMut { dx, dweight, dbias, sums }) = (inputs, targets);
    dtype_of_sums::<T, P>("sums")?;
    check::shape("dy", dy.shape(), x.shape())?;
    check::shape("dx", dx.shape(), x.shape())?;
    let (from, grads, to) = (x.rows("x")?, dy.rows("dy")?, dx.rows("dx")?);
    norm.check(from.columns)?;
    let mut extra_stride = 0;
    if let Some(extra) = &extra {
        check::shape("dsum", extra.shape(), x.shape())?;
        extra_stride = extra.rows("dsum")?.stride as i64;
    }
    dweight.as_ref().map_or(Ok(()), |dweight| vector("dweight", &dweight.as_view(), from.columns))?;
    dbias.as_ref().map_or(Ok(()), |dbias| vector("dbias", &dbias.as_view(), from.columns))?;
    let programs = parts(&sums, usize::from(dweight.is_some()) + usize::from(dbias.is_some()), from.columns)?;
    let config =
        cx.config(T::ELEMENT, &[from.rows, from.columns], || NormBackwardConfig::choose(from.columns, T::ELEMENT))?;
    let (rows, columns) = (check::size("x", from.rows)?, check::size("x", from.columns)?);
    if from.columns == 0 {
        return Ok(());
    }
    let programs = match programs {
        Some(programs) => programs,
        None => norm_programs(cx, T::ELEMENT, from.rows, from.columns)?,
    };
    let (mut first, mut second) = divided(sums, dweight.is_some(), dbias.is_some(), programs * from.columns)?;
    let (x, dy, dx, weight, extra) = (x.elements(), dy.elements(), dx.elements(), maybe(norm.weight), maybe(extra));
    let strides = [from.stride as i64, grads.stride as i64, extra_stride, to.stride as i64];
    let weight_sums = MaybeViewMut::from(first.as_mut().map(|sums| sums.reborrow()));
    let bias_sums = MaybeViewMut::from(second.as_mut().map(|sums| sums.reborrow()));
    let warps = config.num_warps as u32;
    let [a, b, c, d] = strides;
    if from.columns <= config.block {
        NormGradientConsts { ROWS: config.rows, BLOCK: config.block, CENTRE }
            .call(x, dy, weight, extra, dx, weight_sums, bias_sums, a, b, c, d, rows, columns, norm.eps)
            .grid(programs)
            .num_warps(warps)
            .max_registers(config.registers())
            .stream(cx.stream())
            .launch(cx.device())?;
    } else {
        NormGradientPiecesConsts { BLOCK: config.block, CENTRE }
            .call(x, dy, weight, extra, dx, weight_sums, bias_sums, a, b, c, d, rows, columns, norm.eps)
            .grid(programs)
            .num_warps(warps)
            .max_registers(config.registers())
            .stream(cx.stream())
            .launch(cx.device())?;
    }
    // Programs without rows have written zeros, or nothing: those of long rows count no more than there are rows.
    let written = if from.columns <= config.block { programs } else { programs.min(from.rows) };
    for (sums, out) in [(first, dweight), (second, dbias)] {
        if let (Some(sums), Some(out)) = (sums, out) {
            add_columns(cx, sums.as_view(), out, written)?;
        }
    }
    Ok(())
}

/// The parts of a workspace for the sums of weight and bias, each of `len`.
#[allow(clippy::type_complexity)]
fn divided<P: DType>(
    sums: TensorViewMut<'_, P, 2>,
    has_weight: bool,
    has_bias: bool,
    len: usize,
) -> Result<(Option<ViewMut<'_, P>>, Option<ViewMut<'_, P>>)> {
    Ok(match (has_weight, has_bias) {
        (false, false) => (None, None),
        (true, false) => (Some(sums.elements()), None),
        (false, true) => (None, Some(sums.elements())),
        (true, true) => {
            let (first, second) = sums.elements().split_at_mut(len)?;
            (Some(first), Some(second))
        }
    })
}

/// How many programs a workspace is for; `None` where nothing is summed.
fn parts<P: DType>(sums: &TensorViewMut<'_, P, 2>, gradients: usize, columns: usize) -> Result<Option<usize>> {
    if gradients == 0 {
        return Ok(None);
    }
    packed("sums", sums.is_contiguous())?;
    let [parts, width] = sums.shape();
    if parts == 0 || parts % gradients != 0 || width != columns {
        let problem = format!("has the shape {:?}", sums.shape());
        let hint = format!("give it {gradients} rows of {columns} for each program, and one program at least");
        return Err(check::invalid("sums", problem, hint));
    }
    Ok(Some(parts / gradients))
}

/// `out[j] = sum over i of sums[i, j]`, over `rows` rows.
pub(super) fn add_columns<T: Float, P: Float>(
    cx: &Context,
    sums: tilewright::View<'_, P>,
    out: TensorViewMut<'_, T, 1>,
    rows: usize,
) -> Result<()> {
    let columns = check::size("out", out.len())?;
    ColumnSumsConsts { M: 32, N: 32 }
        .call(sums, out.elements(), check::size("sums", rows)?, columns)
        .grid((columns as usize).div_ceil(32))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}
