//! Gated activations: SwiGLU and GeGLU.

use crate::arguments::{Blocks, Source};
use crate::config::{Key, config};
use crate::device::logistic;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

config! {
    /// How gated activations run; sizes are rows and columns.
    "gated": pub struct GatedConfig {
        /// Elements of a program.
        pub block,
        /// Warps of a program.
        pub num_warps,
    }
}

/// 8 elements a thread: 16 bytes of 16-bit elements.
pub(super) const GATED: GatedConfig = GatedConfig { block: 1024, num_warps: 4 };

/// How [`geglu`] computes `gelu(x) = x * P(X <= x)` for a normal `X` (Hendrycks and Gimpel, "Gaussian Error Linear Units",
/// 2016).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gelu {
    /// `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    #[default]
    Tanh,
    /// `0.5 x (1 + erf(x / sqrt(2)))`.
    Erf,
}

/// Which function gates; the numbers that kernels know them by.
const SILU: i32 = 0;
const GELU_TANH: i32 = 1;
const GELU_ERF: i32 = 2;

impl Gelu {
    fn kind(self) -> i32 {
        match self {
            Gelu::Tanh => GELU_TANH,
            Gelu::Erf => GELU_ERF,
        }
    }
}

/// The gate and its derivative. `(1 + tanh(u)) / 2` is `1 / (1 + exp(-2 u))`. The numbers: `2 sqrt(2 / pi)`, `sqrt(1 / 2)`, and
/// the density of the normal distribution at 0, `1 / sqrt(2 pi)`.
#[device]
fn gate<A: Float, const N: usize, const KIND: i32>(a: Tile<A, { [N] }>) -> (Tile<A, { [N] }>, Tile<A, { [N] }>) {
    if KIND == SILU {
        let s = logistic(a);
        (a * s, s * (1.0 + a * (1.0 - s)))
    } else if KIND == GELU_TANH {
        let cubed = 0.044715 * a * a;
        let s = logistic(1.595769121605731 * a * (1.0 + cubed));
        (a * s, s + a * s * (1.0 - s) * 1.595769121605731 * (1.0 + 3.0 * cubed))
    } else {
        let p = 0.5 * (1.0 + erf(a * 0.7071067811865476));
        (a * p, p + a * (0.3989422804014327 * exp(-0.5 * a * a)))
    }
}

/// `out = gate(a) * b`, blocks of rows.
#[kernel(flush = true)]
pub(super) fn gated<T: Float, const BLOCK: usize, const KIND: i32>(
    a: Ptr<T>,
    b: Ptr<T>,
    out: PtrMut<T>,
    a_stride: i64,
    b_stride: i64,
    out_stride: i64,
    per_row: i32,
    columns: i32,
) {
    let row = (program_id(0) / per_row) as i64;
    let column = program_id(0) % per_row * BLOCK + arange(0, BLOCK);
    let mask = column < columns;
    let (gated, _) = gate::<_, _, KIND>(load(a + row * a_stride + column, mask = mask) as T::Acc);
    let b = load(b + row * b_stride + column, mask = mask) as T::Acc;
    store(out + row * out_stride + column, (gated * b) as T, mask = mask);
}

/// `da = dy * b * gate'(a)` and `db = dy * gate(a)`, perhaps in place.
#[kernel(flush = true)]
pub(super) fn gated_gradient<T: Float, const BLOCK: usize, const KIND: i32>(
    #[in_place(da)] a: Ptr<T>,
    #[in_place(db)] b: Ptr<T>,
    dy: Ptr<T>,
    da: PtrMut<T>,
    db: PtrMut<T>,
    a_stride: i64,
    b_stride: i64,
    dy_stride: i64,
    da_stride: i64,
    db_stride: i64,
    per_row: i32,
    columns: i32,
) {
    let row = (program_id(0) / per_row) as i64;
    let column = program_id(0) % per_row * BLOCK + arange(0, BLOCK);
    let mask = column < columns;
    let a = load(a + row * a_stride + column, mask = mask) as T::Acc;
    let b = load(b + row * b_stride + column, mask = mask) as T::Acc;
    let dy = load(dy + row * dy_stride + column, mask = mask) as T::Acc;
    let (gated, slope) = gate::<_, _, KIND>(a);
    store(da + row * da_stride + column, (dy * b * slope) as T, mask = mask);
    store(db + row * db_stride + column, (dy * gated) as T, mask = mask);
}

/// As `gated_gradient`, of the halves of each row of `x`, into those of `dx`.
#[kernel(flush = true)]
pub(super) fn gated_gradient_halves<T: Float, const BLOCK: usize, const KIND: i32>(
    x: Ptr<T>,
    dy: Ptr<T>,
    dx: PtrMut<T>,
    x_stride: i64,
    dy_stride: i64,
    dx_stride: i64,
    per_row: i32,
    columns: i32,
) {
    let row = (program_id(0) / per_row) as i64;
    let column = program_id(0) % per_row * BLOCK + arange(0, BLOCK);
    let mask = column < columns;
    let a = load(x + row * x_stride + column, mask = mask) as T::Acc;
    let b = load(x + (row * x_stride + columns as i64) + column, mask = mask) as T::Acc;
    let dy = load(dy + row * dy_stride + column, mask = mask) as T::Acc;
    let (gated, slope) = gate::<_, _, KIND>(a);
    store(dx + row * dx_stride + column, (dy * b * slope) as T, mask = mask);
    store(dx + (row * dx_stride + columns as i64) + column, (dy * gated) as T, mask = mask);
}

fn forward<T: Float, const R: usize>(
    cx: &Context,
    kind: i32,
    a: TensorView<'_, T, R>,
    b: TensorView<'_, T, R>,
    out: TensorViewMut<'_, T, R>,
) -> Result<()> {
    check::shape("b", b.shape(), a.shape())?;
    check::shape("out", out.shape(), a.shape())?;
    let mut rows = [a.rows("a")?, b.rows("b")?, out.rows("out")?];
    if a.is_empty() {
        return Ok(());
    }
    let config = cx.config(T::ELEMENT, &[rows[0].rows, rows[0].columns], || GATED)?;
    let blocks = Blocks::of(&mut rows, config.block.max(1))?;
    let [x, y, z] = rows.map(|rows| rows.stride as i64);
    GatedConsts { BLOCK: config.block, KIND: kind }
        .call(a.elements(), b.elements(), out.elements(), x, y, z, blocks.per_row as i32, blocks.columns)
        .grid(blocks.programs)
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Without `inputs`, `a` and `b` are what `da` and `db` hold.
fn backward<T: Float, const R: usize>(
    cx: &Context,
    kind: i32,
    inputs: Option<(TensorView<'_, T, R>, TensorView<'_, T, R>)>,
    dy: TensorView<'_, T, R>,
    da: TensorViewMut<'_, T, R>,
    db: TensorViewMut<'_, T, R>,
) -> Result<()> {
    let shape = dy.shape();
    check::shape("da", da.shape(), shape)?;
    check::shape("db", db.shape(), shape)?;
    let (to_a, to_b) = (da.rows("da")?, db.rows("db")?);
    let (mut from_a, mut from_b) = (to_a, to_b);
    if let Some((a, b)) = &inputs {
        check::shape("a", a.shape(), shape)?;
        check::shape("b", b.shape(), shape)?;
        (from_a, from_b) = (a.rows("a")?, b.rows("b")?);
    }
    let mut rows = [from_a, from_b, dy.rows("dy")?, to_a, to_b];
    if dy.is_empty() {
        return Ok(());
    }
    let config = cx.config(Key::of(T::ELEMENT, "gradient"), &[rows[0].rows, rows[0].columns], || GATED)?;
    let blocks = Blocks::of(&mut rows, config.block.max(1))?;
    let [v, w, x, y, z] = rows.map(|rows| rows.stride as i64);
    let (a, b) = inputs.map(|(a, b)| (a.elements(), b.elements())).unzip();
    let (dy, da, db) = (dy.elements(), da.elements(), db.elements());
    GatedGradientConsts { BLOCK: config.block, KIND: kind }
        .call(Source(a), Source(b), dy, da, db, v, w, x, y, z, blocks.per_row as i32, blocks.columns)
        .grid(blocks.programs)
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// `silu(a) * b` with `silu(a) = a / (1 + exp(-a))` (Shazeer, "GLU Variants Improve Transformer", 2020).
///
/// # Shapes
///
/// `a` and `b` have one shape, and so has the result. Any float. Two halves of one tensor are two views of it.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64) and rounded once. f32 numbers below 2^-126 count as zeros.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes differ, if rows have gaps or do not follow each other; [`Error::OutOfMemory`], those
/// of a launch.
pub fn swiglu<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    a: impl Into<TensorView<'a, T, R>>,
    b: impl Into<TensorView<'b, T, R>>,
) -> Result<Tensor<T, R>> {
    let a = a.into();
    let mut out = Tensor::empty(cx.device(), a.shape())?;
    forward(cx, SILU, a, b.into(), out.view_mut())?;
    Ok(out)
}

/// [`swiglu`], into a tensor of the same shape.
///
/// # Errors
///
/// As [`swiglu`].
pub fn swiglu_into<'a, 'b, 'c, T: Float, const R: usize>(
    cx: &Context,
    a: impl Into<TensorView<'a, T, R>>,
    b: impl Into<TensorView<'b, T, R>>,
    out: impl Into<TensorViewMut<'c, T, R>>,
) -> Result<()> {
    forward(cx, SILU, a.into(), b.into(), out.into())
}

/// The gradients of [`swiglu`] for `a` and `b`: `(dy * b * silu'(a), dy * silu(a))`.
///
/// # Errors
///
/// As [`swiglu`].
pub fn swiglu_backward<'a, 'b, 'c, T: Float, const R: usize>(
    cx: &Context,
    a: impl Into<TensorView<'a, T, R>>,
    b: impl Into<TensorView<'b, T, R>>,
    dy: impl Into<TensorView<'c, T, R>>,
) -> Result<(Tensor<T, R>, Tensor<T, R>)> {
    gradients(cx, SILU, a.into(), b.into(), dy.into())
}

/// [`swiglu_backward`], into tensors of the same shape.
///
/// # Errors
///
/// As [`swiglu`].
pub fn swiglu_backward_into<'a, 'b, 'c, 'd, 'e, T: Float, const R: usize>(
    cx: &Context,
    a: impl Into<TensorView<'a, T, R>>,
    b: impl Into<TensorView<'b, T, R>>,
    dy: impl Into<TensorView<'c, T, R>>,
    da: impl Into<TensorViewMut<'d, T, R>>,
    db: impl Into<TensorViewMut<'e, T, R>>,
) -> Result<()> {
    backward(cx, SILU, Some((a.into(), b.into())), dy.into(), da.into(), db.into())
}

/// [`swiglu_backward`], in place: `a` and `b` become their gradients.
///
/// # Errors
///
/// As [`swiglu`].
pub fn swiglu_backward_in_place<'a, 'b, 'c, T: Float, const R: usize>(
    cx: &Context,
    a: impl Into<TensorViewMut<'a, T, R>>,
    b: impl Into<TensorViewMut<'b, T, R>>,
    dy: impl Into<TensorView<'c, T, R>>,
) -> Result<()> {
    backward(cx, SILU, None, dy.into(), a.into(), b.into())
}

/// [`swiglu_backward`], of the halves of each row of `x` into those of `dx`, for products that make both at once: `x` and `dx` are
/// `[.., 2 * columns]`, `dy` is `[.., columns]`.
///
/// # Errors
///
/// As [`swiglu`].
pub fn swiglu_backward_halves_into<'a, 'b, 'c, T: Float, const R: usize>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, R>>,
    dy: impl Into<TensorView<'b, T, R>>,
    dx: impl Into<TensorViewMut<'c, T, R>>,
) -> Result<()> {
    let (x, dy, dx) = (x.into(), dy.into(), dx.into());
    let mut whole = dy.shape();
    if let Some(columns) = whole.last_mut() {
        *columns *= 2;
    }
    check::shape("x", x.shape(), whole)?;
    check::shape("dx", dx.shape(), whole)?;
    let (from, dy_rows, to) = (x.rows("x")?, dy.rows("dy")?, dx.rows("dx")?);
    if dy.is_empty() {
        return Ok(());
    }
    let config = cx.config(Key::of(T::ELEMENT, "gradient"), &[dy_rows.rows, dy_rows.columns], || GATED)?;
    // Rows of halves do not follow each other: blocks are those of a row.
    let (columns, block) = (check::size("dy", dy_rows.columns)?, config.block.max(1));
    let per_row = dy_rows.columns.div_ceil(block);
    let [x_stride, dy_stride, dx_stride] = [from, dy_rows, to].map(|rows| rows.stride as i64);
    GatedGradientHalvesConsts { BLOCK: block, KIND: SILU }
        .call(x.elements(), dy.elements(), dx.elements(), x_stride, dy_stride, dx_stride, per_row as i32, columns)
        .grid(dy_rows.rows * per_row)
        .num_warps(config.num_warps as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

fn gradients<T: Float, const R: usize>(
    cx: &Context,
    kind: i32,
    a: TensorView<'_, T, R>,
    b: TensorView<'_, T, R>,
    dy: TensorView<'_, T, R>,
) -> Result<(Tensor<T, R>, Tensor<T, R>)> {
    let mut da = Tensor::empty(cx.device(), a.shape())?;
    let mut db = Tensor::empty(cx.device(), a.shape())?;
    backward(cx, kind, Some((a, b)), dy, da.view_mut(), db.view_mut())?;
    Ok((da, db))
}

/// `gelu(a) * b` (Shazeer, "GLU Variants Improve Transformer", 2020).
///
/// # Shapes
///
/// `a` and `b` have one shape, and so has the result. Any float.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64) and rounded once. f32 numbers below 2^-126 count as zeros.
///
/// # Errors
///
/// As [`swiglu`].
pub fn geglu<'a, 'b, T: Float, const R: usize>(
    cx: &Context,
    a: impl Into<TensorView<'a, T, R>>,
    b: impl Into<TensorView<'b, T, R>>,
    gelu: Gelu,
) -> Result<Tensor<T, R>> {
    let a = a.into();
    let mut out = Tensor::empty(cx.device(), a.shape())?;
    forward(cx, gelu.kind(), a, b.into(), out.view_mut())?;
    Ok(out)
}

/// [`geglu`], into a tensor of the same shape.
///
/// # Errors
///
/// As [`swiglu`].
pub fn geglu_into<'a, 'b, 'c, T: Float, const R: usize>(
    cx: &Context,
    a: impl Into<TensorView<'a, T, R>>,
    b: impl Into<TensorView<'b, T, R>>,
    gelu: Gelu,
    out: impl Into<TensorViewMut<'c, T, R>>,
) -> Result<()> {
    forward(cx, gelu.kind(), a.into(), b.into(), out.into())
}

/// The gradients of [`geglu`] for `a` and `b`: `(dy * b * gelu'(a), dy * gelu(a))`.
///
/// # Errors
///
/// As [`swiglu`].
pub fn geglu_backward<'a, 'b, 'c, T: Float, const R: usize>(
    cx: &Context,
    a: impl Into<TensorView<'a, T, R>>,
    b: impl Into<TensorView<'b, T, R>>,
    gelu: Gelu,
    dy: impl Into<TensorView<'c, T, R>>,
) -> Result<(Tensor<T, R>, Tensor<T, R>)> {
    gradients(cx, gelu.kind(), a.into(), b.into(), dy.into())
}

/// [`geglu_backward`], into tensors of the same shape.
///
/// # Errors
///
/// As [`swiglu`].
pub fn geglu_backward_into<'a, 'b, 'c, 'd, 'e, T: Float, const R: usize>(
    cx: &Context,
    a: impl Into<TensorView<'a, T, R>>,
    b: impl Into<TensorView<'b, T, R>>,
    gelu: Gelu,
    dy: impl Into<TensorView<'c, T, R>>,
    da: impl Into<TensorViewMut<'d, T, R>>,
    db: impl Into<TensorViewMut<'e, T, R>>,
) -> Result<()> {
    backward(cx, gelu.kind(), Some((a.into(), b.into())), dy.into(), da.into(), db.into())
}

/// [`geglu_backward`], in place: `a` and `b` become their gradients.
///
/// # Errors
///
/// As [`swiglu`].
pub fn geglu_backward_in_place<'a, 'b, 'c, T: Float, const R: usize>(
    cx: &Context,
    a: impl Into<TensorViewMut<'a, T, R>>,
    b: impl Into<TensorViewMut<'b, T, R>>,
    gelu: Gelu,
    dy: impl Into<TensorView<'c, T, R>>,
) -> Result<()> {
    backward(cx, gelu.kind(), None, dy.into(), a.into(), b.into())
}
