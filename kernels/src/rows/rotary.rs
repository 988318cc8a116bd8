//! Rotary position embedding.

use crate::arguments::{Source, maybe};
use crate::config::config;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

config! {
    /// How rotary embedding runs; sizes are tokens, heads and the dimension of a head.
    "rotary": pub struct RotaryConfig {
        /// Tokens of a program.
        pub tokens,
        /// Heads of a program.
        pub heads,
        /// Warps of a program.
        pub num_warps,
    }
}

impl RotaryConfig {
    pub(super) fn choose(heads: usize, half: usize) -> Self {
        // All heads of a token, up to 2048 pairs: the token's angles are then read once. Of few heads several tokens, 1024
        // pairs.
        let rows = |pairs: usize| (pairs / half.next_power_of_two()).max(1);
        let heads = heads.next_power_of_two().min(rows(2048));
        let tokens = (rows(1024) / heads).max(1);
        RotaryConfig { tokens, heads, num_warps: (tokens * heads * half.next_power_of_two() / 256).clamp(4, 8) }
    }
}

/// Which elements of a head make a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pairs {
    /// `x[i]` and `x[i + dim / 2]`, as in GPT-NeoX and Llama's checkpoints for transformers.
    #[default]
    Halves,
    /// `x[2 i]` and `x[2 i + 1]`, as in the paper and in GPT-J.
    Interleaved,
}

/// Options of [`rotary`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Rotary<'a> {
    pairs: Pairs,
    positions: Option<TensorView<'a, i32, 2>>,
    backward: bool,
}

impl<'a> Rotary<'a> {
    /// Pairs are neighbours.
    pub fn interleaved(mut self) -> Self {
        self.pairs = Pairs::Interleaved;
        self
    }

    /// Pairs are made so.
    pub fn pairs(mut self, pairs: Pairs) -> Self {
        self.pairs = pairs;
        self
    }

    /// The row of the tables for each token, `[batch, tokens]`. Without it, token `i` of a sequence has row `i`.
    pub fn positions(mut self, positions: impl Into<TensorView<'a, i32, 2>>) -> Self {
        self.positions = Some(positions.into());
        self
    }

    /// Rotates by the negative angle: the gradient of a rotation, and its inverse.
    pub fn backward(mut self) -> Self {
        self.backward = true;
        self
    }
}

/// A block of tokens times a block of heads. Strides are those of batch, token and head.
#[kernel]
pub(super) fn rotate<
    T: Float,
    C: Float,
    const TOKENS: usize,
    const HEADS: usize,
    const HALF: usize,
    const INTERLEAVED: bool,
    const BACKWARD: bool,
>(
    #[in_place(out)] x: Ptr<T>,
    cos_table: Ptr<C>,
    sin_table: Ptr<C>,
    positions: Option<Ptr<i32>>,
    out: PtrMut<T>,
    x_batch: i64,
    x_token: i64,
    x_head: i64,
    out_batch: i64,
    out_token: i64,
    out_head: i64,
    table_stride: i64,
    length: i32,
    tokens: i32,
    heads: i32,
    half: i32,
) {
    let token = (program_id(0) * TOKENS + arange(0, TOKENS))[(.., None, None)];
    let head = (program_id(1) * HEADS + arange(0, HEADS))[(None, .., None)];
    let angle = arange(0, HALF)[(None, None, ..)];
    let place = token % length;
    let known = token < tokens;
    let position = if let Some(positions) = positions { load(positions + token, mask = known) } else { place };
    let table = position as i64 * table_stride + angle as i64;
    let inside = known & (angle < half);
    let cosine = load(cos_table + table, mask = inside) as T::Acc;
    let sine = load(sin_table + table, mask = inside) as T::Acc;
    let sine = if BACKWARD { -sine } else { sine };
    let (batch, place, head_index) = ((token / length) as i64, place as i64, head as i64);
    let x = x + (batch * x_batch + place * x_token + head_index * x_head);
    let out = out + (batch * out_batch + place * out_token + head_index * out_head);
    let there = known & (head < heads);
    if INTERLEAVED {
        let element = arange(0, 2 * HALF)[(None, None, ..)];
        let mask = there & (element < 2 * half);
        let both = load(x + element, mask = mask) as T::Acc;
        let (a, b) = split(reshape(both, [TOKENS, HEADS, HALF, 2]));
        let rotated = interleave(a * cosine - b * sine, b * cosine + a * sine);
        store(out + element, rotated as T, mask = mask);
    } else {
        let mask = there & (angle < half);
        let a = load(x + angle, mask = mask) as T::Acc;
        let b = load(x + half + angle, mask = mask) as T::Acc;
        store(out + angle, (a * cosine - b * sine) as T, mask = mask);
        store(out + half + angle, (b * cosine + a * sine) as T, mask = mask);
    }
}

/// Without `x`, `out` is rotated in place.
fn launch<T: Float, C: Float>(
    cx: &Context,
    x: Option<TensorView<'_, T, 4>>,
    tables: [TensorView<'_, C, 2>; 2],
    rotary: &Rotary<'_>,
    out: TensorViewMut<'_, T, 4>,
) -> Result<()> {
    let [batch, length, heads, dim] = out.shape();
    if let Some(x) = &x {
        check::shape("x", x.shape(), out.shape())?;
    }
    let source = x.as_ref().map_or(out.strides(), |x| x.strides());
    let target = out.strides();
    if dim % 2 != 0 {
        return Err(check::invalid(
            "x",
            format!("has heads of {dim} elements"),
            "their number is even: elements are rotated in pairs",
        ));
    }
    if dim > 1 && (source[3] != 1 || target[3] != 1) {
        let problem = "has heads whose elements do not follow each other";
        return Err(check::invalid("x", problem, "copy it with `general::contiguous` first"));
    }
    let half = dim / 2;
    let stride = check_tables(&tables, rotary, [batch, length, half])?;
    if out.is_empty() {
        return Ok(());
    }
    let tokens = batch * length;
    let config = cx.config(T::ELEMENT, &[tokens, heads, dim], || RotaryConfig::choose(heads, half))?;
    let grid = (tokens.div_ceil(config.tokens.max(1)), heads.div_ceil(config.heads.max(1)));
    let [cos, sin] = tables;
    let (a, b) = (source.map(|stride| stride as i64), target.map(|stride| stride as i64));
    RotateConsts {
        TOKENS: config.tokens,
        HEADS: config.heads,
        HALF: half.next_power_of_two(),
        INTERLEAVED: rotary.pairs == Pairs::Interleaved,
        BACKWARD: rotary.backward,
    }
    .call(
        Source(x.map(|x| x.elements())),
        cos.elements(),
        sin.elements(),
        maybe(rotary.positions),
        out.elements(),
        a[0],
        a[1],
        a[2],
        b[0],
        b[1],
        b[2],
        stride as i64,
        check::size("x", length)?,
        check::size("x", tokens)?,
        check::size("x", heads)?,
        check::size("x", half)?,
    )
    .grid(grid)
    .num_warps(config.num_warps as u32)
    .stream(cx.stream())
    .launch(cx.device())
}

/// The distance between rows of the tables.
fn check_tables<C: Float>(
    [cos, sin]: &[TensorView<'_, C, 2>; 2],
    rotary: &Rotary<'_>,
    [batch, length, half]: [usize; 3],
) -> Result<usize> {
    check::shape("sin", sin.shape(), cos.shape())?;
    let [rows, columns] = cos.shape();
    let enough = rotary.positions.is_some() || rows >= length;
    if columns != half || !enough {
        let problem = format!("has the shape {:?}", cos.shape());
        let hint = format!("give a row of {half} cosines for each position, {length} rows at least");
        return Err(check::invalid("cos", problem, hint));
    }
    if let Some(positions) = &rotary.positions {
        check::shape("positions", positions.shape(), [batch, length])?;
        crate::arguments::packed("positions", positions.is_contiguous())?;
    }
    let (first, second) = (cos.rows("cos")?, sin.rows("sin")?);
    if rows > 1 && first.stride != second.stride {
        return Err(check::invalid("sin", "has other strides than `cos`", "give both tables the same strides"));
    }
    Ok(first.stride)
}

/// Rotary position embedding (Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021): each pair
/// `(a, b)` of a head becomes `(a cos - b sin, b cos + a sin)`, by the cosine and sine of the token's position and the pair.
///
/// # Shapes
///
/// `x` is `[batch, tokens, heads, dim]` with any strides but for the last dimension, which is contiguous; the result has its
/// shape. `cos` and `sin` are `[positions, dim / 2]`, of any float dtype. To rotate a part of each head, give that part as a
/// view, in place.
///
/// # Numerics
///
/// Computed in f32 (f64 for f64) and rounded once.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit or `dim` is odd; [`Error::OutOfMemory`], those of a launch. A position outside
/// the tables is reported when the result is read.
pub fn rotary<'a, 'b, 'c, T: Float, C: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    cos: impl Into<TensorView<'b, C, 2>>,
    sin: impl Into<TensorView<'c, C, 2>>,
    options: &Rotary<'_>,
) -> Result<Tensor<T, 4>> {
    let x = x.into();
    let mut out = Tensor::empty(cx.device(), x.shape())?;
    launch(cx, Some(x), [cos.into(), sin.into()], options, out.view_mut())?;
    Ok(out)
}

/// [`rotary`], into a tensor of the same shape.
///
/// # Errors
///
/// As [`rotary`].
pub fn rotary_into<'a, 'b, 'c, 'd, T: Float, C: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    cos: impl Into<TensorView<'b, C, 2>>,
    sin: impl Into<TensorView<'c, C, 2>>,
    options: &Rotary<'_>,
    out: impl Into<TensorViewMut<'d, T, 4>>,
) -> Result<()> {
    launch(cx, Some(x.into()), [cos.into(), sin.into()], options, out.into())
}

/// [`rotary`], in place.
///
/// # Errors
///
/// As [`rotary`].
pub fn rotary_in_place<'a, 'b, 'c, T: Float, C: Float>(
    cx: &Context,
    x: impl Into<TensorViewMut<'a, T, 4>>,
    cos: impl Into<TensorView<'b, C, 2>>,
    sin: impl Into<TensorView<'c, C, 2>>,
    options: &Rotary<'_>,
) -> Result<()> {
    launch(cx, None, [cos.into(), sin.into()], options, x.into())
}

/// The tables of [`rotary`] for positions from 0: `cos(p * theta^(-2 i / dim))` and the sines, `[positions, dim / 2]`,
/// computed in f64 on the host.
///
/// # Errors
///
/// [`Error::OutOfMemory`].
pub fn rotary_tables(
    cx: &Context,
    positions: usize,
    dim: usize,
    theta: f64,
) -> Result<(Tensor<f32, 2>, Tensor<f32, 2>)> {
    let half = dim / 2;
    let frequencies: Vec<f64> = (0..half).map(|i| theta.powf(-2.0 * i as f64 / dim as f64)).collect();
    let angles = || (0..positions).flat_map(|p| frequencies.iter().map(move |frequency| p as f64 * frequency));
    let cos: Vec<f32> = angles().map(|angle| angle.cos() as f32).collect();
    let sin: Vec<f32> = angles().map(|angle| angle.sin() as f32).collect();
    let shape = [positions, half];
    Ok((Tensor::upload(cx.device(), &cos, shape)?, Tensor::upload(cx.device(), &sin, shape)?))
}
