//! Tokens sorted by expert.
//!
//! A pair is a token and one of its experts; they are numbered as the router chose them. Sorting counts the pairs of each
//! expert in each chunk of pairs, adds the counts up, and puts each pair behind those of its expert before it: the order of an
//! expert's pairs is that of their numbers, whatever order programs run in.

use crate::products::Activation;
use crate::products::activation::activate;
use crate::{Context, Tensor, TensorView, check};
use tilewright::prelude::*;
use tilewright::{Buffer, Result};

/// Rows of tokens in the order of their experts. An expert's rows begin at a multiple of a block, so that no block has rows of
/// two; what is between is padding.
#[derive(Debug)]
pub struct Groups {
    /// The pair of each row, -1 for padding.
    pub(super) pairs: Buffer<i32>,
    /// The row of each pair.
    pub(super) rows: Buffer<i32>,
    /// The expert of each block of rows.
    pub(super) owners: Buffer<i32>,
    /// Where the blocks of each expert end.
    pub(super) ends: Buffer<i32>,
    /// How many blocks there are: one number.
    pub(super) used: Buffer<i32>,
    pub(super) block: usize,
    pub(super) experts: usize,
    pub(super) tokens: usize,
    pub(super) chosen: usize,
}

/// Pairs that a program counts and places.
pub(super) const CHUNK: usize = 64;

/// Elements of a tile of the one program that places experts: more would not stay in registers.
pub(super) const PART: usize = 2048;

/// How many pairs of a chunk each expert has.
#[kernel]
pub(super) fn count_pairs<const CHUNK: usize, const E: usize>(
    chosen: Ptr<i32>,
    counts: PtrMut<i32>,
    pairs: i32,
    experts: i32,
) {
    let pair = program_id(0) * CHUNK + arange(0, CHUNK);
    let expert = load(chosen + pair, mask = pair < pairs);
    store(counts + program_id(0) * E + arange(0, E), histogram(expert, E, mask = (pair < pairs) & (expert < experts)));
}

/// Where each expert's rows of each chunk begin, instead of their counts; whose each block is, and how many there are.
#[kernel]
pub(super) fn place_experts<const E: usize, const CHUNKS: usize, const BLOCKS: usize>(
    counts: PtrMut<i32>,
    owners: PtrMut<i32>,
    ends_of: PtrMut<i32>,
    used: PtrMut<i32>,
    chunks: i32,
    block: i32,
    most: i32,
    experts: i32,
) {
    let expert = arange(0, E);
    let mut total = zeros::<i32>([E]);
    for first in (0..chunks).step_by(CHUNKS) {
        let chunk = first + arange(0, CHUNKS)[(.., None)];
        total += sum(load(counts + chunk * E + expert, mask = chunk < chunks), axis = 0);
    }
    let blocks = cdiv(total, block);
    let ends = cumsum(blocks, axis = 0);
    let mut next = (ends - blocks) * block;
    for first in (0..chunks).step_by(CHUNKS) {
        let chunk = first + arange(0, CHUNKS)[(.., None)];
        let count = load(counts + chunk * E + expert, mask = chunk < chunks);
        store(counts + chunk * E + expert, next + cumsum(count, axis = 0) - count, mask = chunk < chunks);
        next += sum(count, axis = 0);
    }
    for first in (0..most).step_by(BLOCKS) {
        let which = first + arange(0, BLOCKS);
        let owner = sum((ends[(None, ..)] <= which[(.., None)]) as i32, axis = 1);
        store(owners + which, minimum(owner, E as i32 - 1), mask = which < most);
    }
    store(ends_of + expert, minimum(ends, most), mask = expert < experts);
    store(used, minimum(max(ends), most));
}

/// The row of each pair, and the pair of each row.
#[kernel(max_registers = 96)]
pub(super) fn place_pairs<const CHUNK: usize, const E: usize>(
    chosen: Ptr<i32>,
    starts: Ptr<i32>,
    rows: PtrMut<i32>,
    pairs: PtrMut<i32>,
    count: i32,
    experts: i32,
) {
    let pair = program_id(0) * CHUNK + arange(0, CHUNK);
    let own = load(chosen + pair, mask = pair < count, other = -1);
    let is_expert = (own >= 0) & (own < experts);
    let start = load(starts + program_id(0) * E + own, mask = is_expert);
    let is_before = (own[(None, ..)] == own[(.., None)]) & (pair < pair[(.., None)]);
    let row = select(is_expert, start + sum(is_before as i32, axis = 1), -1);
    store(rows + pair, row, mask = pair < count);
    store(pairs + row, pair, mask = is_expert);
}

impl Groups {
    /// Sorts `[tokens, k]` choices among so many experts. Numbers that are no expert's are left out.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidTensor`] if there are more than 1024 experts or choices have gaps, [`Error::OutOfMemory`], those of a
    /// launch.
    pub fn new<'a>(cx: &Context, chosen: impl Into<TensorView<'a, i32, 2>>, experts: usize) -> Result<Groups> {
        let chosen = chosen.into();
        let [tokens, k] = chosen.shape();
        let each = (tokens * k).div_ceil(experts.max(1));
        let block = match each {
            _ if !cx.device().is_cuda() => 16,
            0..=16 => 16,
            17..=128 => 64,
            _ => 128,
        };
        Self::with_block(cx, chosen, experts, block)
    }

    /// [`Groups::new`] with blocks of so many rows, a power of two.
    ///
    /// # Errors
    ///
    /// As [`Groups::new`].
    pub fn with_block<'a>(
        cx: &Context,
        chosen: impl Into<TensorView<'a, i32, 2>>,
        experts: usize,
        block: usize,
    ) -> Result<Groups> {
        let chosen = chosen.into();
        let [tokens, k] = chosen.shape();
        if experts == 0 || experts > 1024 || !block.is_power_of_two() || !chosen.is_contiguous() {
            let problem = format!("{chosen:?} is to be sorted among {experts} experts in blocks of {block}");
            let hint = "give a contiguous tensor, 1 to 1024 experts and a power of two";
            return Err(check::invalid("chosen", problem, hint));
        }
        let count = tokens * k;
        // Each expert that has rows may have one block that is not full.
        let most = (count + experts.min(count) * (block - 1)) / block;
        check::size("chosen", most.saturating_mul(block))?;
        let device = cx.device();
        let mut groups = Groups {
            pairs: device.full(most * block, -1)?,
            rows: device.zeros(count)?,
            owners: device.zeros(most)?,
            ends: device.zeros(experts)?,
            used: device.zeros(1)?,
            block,
            experts,
            tokens,
            chosen: k,
        };
        if count == 0 {
            return Ok(groups);
        }
        let (chunks, wide) = (count.div_ceil(CHUNK), experts.next_power_of_two());
        let mut counts = device.zeros(chunks * wide)?;
        CountPairsConsts { CHUNK, E: wide }
            .call(chosen.elements(), &mut counts, count as i32, experts as i32)
            .grid(chunks)
            .num_warps(4)
            .stream(cx.stream())
            .launch(device)?;
        PlaceExpertsConsts { E: wide, CHUNKS: (PART / wide).min(64), BLOCKS: (PART / wide).min(64) }
            .call(
                &mut counts,
                &mut groups.owners,
                &mut groups.ends,
                &mut groups.used,
                chunks as i32,
                block as i32,
                most as i32,
                experts as i32,
            )
            .grid(1)
            .num_warps(8)
            .stream(cx.stream())
            .launch(device)?;
        PlacePairsConsts { CHUNK, E: wide }
            .call(chosen.elements(), &counts, &mut groups.rows, &mut groups.pairs, count as i32, experts as i32)
            .grid(chunks)
            .num_warps(4)
            .stream(cx.stream())
            .launch(device)?;
        Ok(groups)
    }

    /// Rows with padding: those of [`gather`] and of products.
    pub fn height(&self) -> usize {
        self.pairs.len()
    }

    /// Rows of a block.
    pub fn block(&self) -> usize {
        self.block
    }

    /// The pair `token * k + choice` of each row, -1 for padding.
    pub fn pairs(&self) -> &Buffer<i32> {
        &self.pairs
    }

    /// The row of each pair.
    pub fn rows(&self) -> &Buffer<i32> {
        &self.rows
    }
}

/// Copies rows of tokens to the rows of their pairs; padding becomes zero.
#[kernel]
fn gather_rows<T: DType, const ROWS: usize, const BLOCK: usize>(
    x: Ptr<T>,
    pairs: Ptr<i32>,
    out: PtrMut<T>,
    tokens: i32,
    height: i32,
    columns: i32,
    chosen: i32,
    stride: i64,
) {
    let blocks = cdiv(columns, BLOCK);
    let row = program_id(0) / blocks * ROWS + arange(0, ROWS);
    let column = program_id(0) % blocks * BLOCK + arange(0, BLOCK);
    let pair = load(pairs + row, mask = row < height, other = -1);
    let token = pair / chosen;
    let is_there = (pair >= 0) & (token < tokens);
    let from = token[(.., None)] as i64 * stride + column as i64;
    let value = load(x + from, mask = is_there[(.., None)] & (column < columns));
    let to = row[(.., None)] as i64 * columns as i64 + column as i64;
    store(out + to, value, mask = (row < height)[(.., None)] & (column < columns));
}

/// The row of each pair's token, `[groups.height(), columns]`; padding is zero.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if `x` has another number of tokens or gaps in its rows, [`Error::OutOfMemory`], those of a launch.
pub fn gather<'a, T: DType>(cx: &Context, x: impl Into<TensorView<'a, T, 2>>, groups: &Groups) -> Result<Tensor<T, 2>> {
    let x = x.into();
    let columns = x.shape()[1];
    check::shape("x", x.shape(), [groups.tokens, columns])?;
    let stride = x.rows("x")?.stride;
    let mut out = Tensor::empty(cx.device(), [groups.height(), columns])?;
    if out.is_empty() {
        return Ok(out);
    }
    let block = columns.next_power_of_two().min(1024);
    let rows = 1024 / block.max(128);
    GatherRowsConsts { ROWS: rows, BLOCK: block }
        .call(
            x.elements(),
            &groups.pairs,
            out.buffer_mut(),
            groups.tokens as i32,
            groups.height() as i32,
            check::size("x", columns)?,
            groups.chosen as i32,
            stride as i64,
        )
        .grid(groups.height().div_ceil(rows) * columns.div_ceil(block))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())?;
    Ok(out)
}

/// `out[t] = sum over c of weights[t, c] * y[row of pair (t, c)]`, in f32.
#[kernel]
fn combine_rows<T: Float, const BLOCK: usize>(
    y: Ptr<T>,
    weights: Ptr<f32>,
    rows: Ptr<i32>,
    out: PtrMut<T>,
    columns: i32,
    chosen: i32,
    height: i32,
    stride: i64,
) {
    let (token, column) = (program_id(0), program_id(1) * BLOCK + arange(0, BLOCK));
    let mut total = zeros::<f32>([BLOCK]);
    for choice in 0..chosen {
        let pair = token * chosen + choice;
        let row = load(rows + pair);
        let mask = (column < columns) & (row >= 0) & (row < height);
        total += load(weights + pair) * load(y + (row as i64 * stride + column as i64), mask = mask) as f32;
    }
    store(out + (token as i64 * columns as i64 + column as i64), total as T, mask = column < columns);
}

/// What the experts of each token say, weighted: `out[t] = sum over c of weights[t, c] * y[row of pair (t, c)]`.
///
/// # Shapes
///
/// `y` is `[groups.height(), n]`, `weights` is `[tokens, k]`, the result is `[tokens, n]`. Sums are in f32.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit or tensors have gaps, [`Error::OutOfMemory`], those of a launch.
pub fn combine<'a, 'b, T: Float>(
    cx: &Context,
    y: impl Into<TensorView<'a, T, 2>>,
    weights: impl Into<TensorView<'b, f32, 2>>,
    groups: &Groups,
) -> Result<Tensor<T, 2>> {
    let (y, weights) = (y.into(), weights.into());
    let columns = y.shape()[1];
    check::shape("y", y.shape(), [groups.height(), columns])?;
    check::shape("weights", weights.shape(), [groups.tokens, groups.chosen])?;
    if !weights.is_contiguous() {
        return Err(check::invalid("weights", "is not contiguous", "copy it with `general::contiguous` first"));
    }
    let stride = y.rows("y")?.stride;
    if groups.chosen == 0 {
        return Tensor::zeros(cx.device(), [groups.tokens, columns]);
    }
    let mut out = Tensor::empty(cx.device(), [groups.tokens, columns])?;
    if out.is_empty() {
        return Ok(out);
    }
    let block = columns.next_power_of_two().min(1024);
    CombineRowsConsts { BLOCK: block }
        .call(
            y.elements(),
            weights.elements(),
            &groups.rows,
            out.buffer_mut(),
            check::size("y", columns)?,
            groups.chosen as i32,
            groups.height() as i32,
            stride as i64,
        )
        .grid((groups.tokens, columns.div_ceil(block)))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())?;
    Ok(out)
}

/// `activation(left half of a row) * right half`, of used blocks.
#[kernel]
fn gate_rows<T: Float, const ROWS: usize, const BLOCK: usize, const ACTIVATION: usize>(
    both: Ptr<T>,
    used: Ptr<i32>,
    out: PtrMut<T>,
    block: i32,
    inner: i32,
) {
    let blocks = cdiv(inner, BLOCK);
    let row = program_id(0) / blocks * ROWS + arange(0, ROWS)[(.., None)];
    let column = program_id(0) % blocks * BLOCK + arange(0, BLOCK);
    let mask = (row < load(used) * block) & (column < inner);
    let from = both + (row as i64 * (2 * inner) as i64 + column as i64);
    let left = load(from, mask = mask) as f32;
    let right = load(from + inner, mask = mask) as f32;
    let value = activate::<_, _, _, ACTIVATION>(left) * right;
    store(out + (row as i64 * inner as i64 + column as i64), value as T, mask = mask);
}

/// `activation(left half of a row) * right half`, of the rows of all blocks that are used.
pub(super) fn gated<F: Float>(
    cx: &Context,
    both: &Tensor<F, 2>,
    groups: &Groups,
    activation: Activation,
) -> Result<Tensor<F, 2>> {
    let [height, columns] = both.shape();
    let inner = columns / 2;
    let mut out = Tensor::zeros(cx.device(), [height, inner])?;
    if out.is_empty() {
        return Ok(out);
    }
    let block = inner.next_power_of_two().min(1024);
    let rows = 1024 / block.max(128);
    GateRowsConsts { ROWS: rows, BLOCK: block, ACTIVATION: activation.code() }
        .call(both.buffer(), &groups.used, out.buffer_mut(), groups.block as i32, check::size("x", inner)?)
        .grid(height.div_ceil(rows) * inner.div_ceil(block))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())?;
    Ok(out)
}
