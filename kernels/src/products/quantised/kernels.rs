//! Products with weights that are unpacked on the way: of a step's weights a program loads the packed words, 16 bytes at a
//! time, and multiplies what they stand for in the dtype of `x`.
//!
//! Programs may share a tile: each sums a part of `k` and leaves its sums in a matrix of its own.

use super::unpack::{int4_halves, int4_pairs, nf4_number};
use crate::products::tiles::corner;
use tilewright::prelude::*;

/// 4-bit weights with a scale and a zero for each `GROUP` rows. `AWQ` words hold 8 columns of a row, others 8 rows of a column.
///
/// With `FEW` rows the time is that of reading the weights, and each instruction counts. Then the order of the sums and that
/// of the columns are those in which a thread unpacks what it multiplies: a factor of `mma.sync` has pairs of rows in its
/// words, and a thread has one column in 8. So it reads whole words, and vectors of them. Differences to zeros are multiplied,
/// which are exact, and scales multiply the sums of a step: for 128 weights of a column there are 16 sums, of as many rows.
/// `AHEAD` steps are on their way at once; the loop says so, as else scales of sums would not be. Otherwise factors go to shared
/// memory for warp groups, in pairs of neighbouring columns.
#[kernel]
pub(super) fn int4_product<
    F: Float,
    R: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const TALL: usize,
    const AWQ: bool,
    const GROUP: usize,
    const FEW: bool,
    const AHEAD: usize,
>(
    x: Ptr<F>,
    words: Ptr<i32>,
    scales: Ptr<F>,
    zeros: Option<Ptr<i32>>,
    out: PtrMut<R>,
    m: i32,
    n: i32,
    k: i32,
    splits: i32,
    eights: i32,
    x_row: i64,
    out_row: i64,
    out_part: i64,
) {
    static_assert!(BK % 8 == 0);
    static_assert!(BN % 8 == 0);
    static_assert!(!FEW || BK % 32 == 0);
    let tiles = cdiv(m, BM) * cdiv(n, BN);
    let part = program_id(0) / tiles;
    let (row, column) = corner::<BM, BN, TALL>(program_id(0) % tiles, m, n);
    let (i, j) = (row + arange(0, BM), column + arange(0, BN));
    let share = cdiv(cdiv(k, BK), splits);
    let in_word = column / 8 + arange(0, BN / 8);
    let mut acc = zeros::<f32>([BM, BN]);
    #[stages(AHEAD)]
    for step in part * share..minimum(part * share + share, cdiv(k, BK)) {
        let along = step * BK + arange(0, BK);
        let left = load(x + (i[(.., None)] as i64 * x_row + along as i64), mask = (i < m)[(.., None)] & (along < k));
        let of = step * BK / GROUP;
        let scale = load(scales + of * n + j, mask = j < n);
        let zero = if let Some(zeros) = zeros {
            let word = load(zeros + of * eights + in_word, mask = in_word < eights);
            let each = word[(.., None)] >> (if AWQ { awq_shift() } else { arange(0, 8) * 4 });
            // What GPTQ stores is one less.
            (reshape(each, [BN]) & 15) + (if AWQ { 0 } else { 1 })
        } else {
            full([BN], 8)
        };
        if AWQ {
            let word =
                load(words + along[(.., None)] * eights + in_word, mask = (along < k)[(.., None)] & (in_word < eights));
            if FEW {
                acc += dot(left, awq_few::<F, BK, BN>(word, zero)) * in_order::<F, BN, 8>(scale) as f32;
            } else {
                acc = dot(left, awq_pairs::<F, BK, BN>(word, zero, scale), acc = acc);
            }
        } else {
            let down = step * (BK / 8) + arange(0, BK / 8);
            let word = load(words + down[(.., None)] * n + j, mask = (down < k / 8)[(.., None)] & (j < n));
            if FEW {
                let left = gptq_order::<F, BM, BK>(left);
                acc += dot(left, gptq_few::<F, BK, BN>(word, zero)) * in_order::<F, BN, 4>(scale) as f32;
            } else {
                acc = dot(left, gptq_pairs::<F, BK, BN>(word, zero, scale), acc = acc);
            }
        }
    }
    // Columns were in the order in which a thread has all of a word, or 4 neighbours.
    if FEW && AWQ {
        acc = reshape(permute(reshape(acc, [BM, 8, BN / 8]), [0, 2, 1]), [BM, BN]);
    } else if FEW {
        acc = reshape(permute(reshape(acc, [BM, 4, BN / 4]), [0, 2, 1]), [BM, BN]);
    }
    let mask = (i < m)[(.., None)] & (j < n);
    store(out + part as i64 * out_part + (i[(.., None)] as i64 * out_row + j as i64), acc as R, mask = mask);
}

/// A step of weights from words of 8 columns, in pairs of neighbours: both halves of a word take the same instructions.
#[device]
fn awq_pairs<F: Float, const BK: usize, const BN: usize>(
    word: Tile<i32, { [BK, BN / 8] }>,
    zero: Tile<i32, { [BN] }>,
    scale: Tile<F, { [BN] }>,
) -> Tile<F, { [BK, BN] }> {
    static_assert!(BN % 8 == 0);
    let pair = reshape(word[(.., .., None)] >> (arange(0, 4) * 4), [BK, BN / 2]);
    int4_pairs::<F, BK, { BN / 2 }, BN>(pair, zero, scale)
}

/// A step of weights from words of 8 rows, in pairs of neighbouring columns.
#[device]
fn gptq_pairs<F: Float, const BK: usize, const BN: usize>(
    word: Tile<i32, { [BK / 8, BN] }>,
    zero: Tile<i32, { [BN] }>,
    scale: Tile<F, { [BN] }>,
) -> Tile<F, { [BK, BN] }> {
    static_assert!(BK % 8 == 0);
    static_assert!(BN % 2 == 0);
    let (even, odd) = split(reshape(word, [BK / 8, BN / 2, 2]));
    // Rows 0 to 3 of both columns, and 4 to 7.
    let low = (even & 0xffff) | (odd << 16);
    let high = ((even >> 16) & 0xffff) | (odd & -65_536);
    let halves = permute(join(low, high), [0, 2, 1]);
    let shift = arange(0, 4) * 4;
    let pair = reshape(halves[(.., .., None, ..)] >> shift[(.., None)], [BK, BN / 2]);
    int4_pairs::<F, BK, { BN / 2 }, BN>(pair, zero, scale)
}

/// A step of weights from words of 8 columns, in pairs of rows. Column `8 g + c` is at `c * (BN / 8) + g`.
#[device]
fn awq_few<F: Float, const BK: usize, const BN: usize>(
    word: Tile<i32, { [BK, BN / 8] }>,
    zero: Tile<i32, { [BN] }>,
) -> Tile<F, { [BK, BN] }> {
    static_assert!(BK % 2 == 0);
    static_assert!(BN % 8 == 0);
    let (even, odd) = split(permute(reshape(word, [BK / 2, 2, BN / 8]), [0, 2, 1]));
    // Even columns of both rows, and odd ones.
    let low = (even & 0xffff) | (odd << 16);
    let high = ((even >> 16) & 0xffff) | (odd & -65_536);
    let halves = reshape(join(low, high), [BK / 2, BN / 4]);
    // Column 8 g + 4 m + 2 h + f is number 2 m + h of half f.
    let zero = reshape(permute(reshape(zero, [BN / 8, 2, 2, 2]), [0, 3, 1, 2]), [BN / 4, 2, 2]);
    let number = int4_halves::<F, { BK / 2 }, { BN / 4 }>(halves, zero);
    let number = permute(reshape(number, [BK / 2, BN / 8, 2, 2, 2, 2]), [0, 5, 3, 4, 2, 1]);
    reshape(number, [BK, BN])
}

/// A step of weights from words of 8 rows, in pairs of rows. Column `4 g + c` is at `c * (BN / 4) + g`, and rows are in the
/// order of [`gptq_order`].
#[device]
fn gptq_few<F: Float, const BK: usize, const BN: usize>(
    word: Tile<i32, { [BK / 8, BN] }>,
    zero: Tile<i32, { [BN] }>,
) -> Tile<F, { [BK, BN] }> {
    static_assert!(BK % 32 == 0);
    static_assert!(BN % 4 == 0);
    let zero = broadcast_to(zero[(.., None, None)], [BN, 2, 2]);
    let number = int4_halves::<F, { BK / 8 }, BN>(word, zero);
    // From [b, t, g, c, m, h, e] to [b, m, h, t, e, c, g].
    let number = permute(reshape(number, [BK / 32, 4, BN / 4, 4, 2, 2, 2]), [0, 4, 5, 1, 6, 3, 2]);
    reshape(number, [BK, BN])
}

/// Scales in the order of columns that [`awq_few`] gives with 8 `EACH`, and [`gptq_few`] with 4: column `EACH g + c` is at
/// `c * (BN / EACH) + g`.
#[device]
fn in_order<F: Float, const BN: usize, const EACH: usize>(scale: Tile<F, { [BN] }>) -> Tile<F, { [BN] }> {
    static_assert!(BN % EACH == 0);
    reshape(permute(reshape(scale, [BN / EACH, EACH]), [1, 0]), [BN])
}

/// Rows of `x` in the order in which four threads share 32 products of two rows of 16: thread `t` has the 8 of its word, of which
/// `2 m + h` and `2 m + h + 4` are neighbours at `16 m + 8 h + 2 t`.
#[device]
fn gptq_order<F: Float, const BM: usize, const BK: usize>(x: Tile<F, { [BM, BK] }>) -> Tile<F, { [BM, BK] }> {
    static_assert!(BK % 32 == 0);
    reshape(permute(reshape(x, [BM, BK / 32, 4, 2, 2, 2]), [0, 1, 4, 5, 2, 3]), [BM, BK])
}

/// Where the 8 columns of a word are: those of even numbers come first.
#[device]
pub(super) fn awq_shift() -> Tile<i32, { [8] }> {
    let column = arange(0, 8);
    (column % 2 * 4 + column / 2) * 4
}

/// 8-bit weights with a scale for each column, which multiplies the sums.
#[kernel]
pub(super) fn int8_product<F: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const TALL: usize>(
    x: Ptr<F>,
    weights: Ptr<i8>,
    scales: Ptr<f32>,
    out: PtrMut<R>,
    m: i32,
    n: i32,
    k: i32,
    splits: i32,
    x_row: i64,
    weights_row: i64,
    weights_column: i64,
    out_row: i64,
    out_part: i64,
) {
    let tiles = cdiv(m, BM) * cdiv(n, BN);
    let part = program_id(0) / tiles;
    let (row, column) = corner::<BM, BN, TALL>(program_id(0) % tiles, m, n);
    let (i, j) = (row + arange(0, BM), column + arange(0, BN));
    let share = cdiv(cdiv(k, BK), splits);
    let mut acc = zeros::<f32>([BM, BN]);
    for step in part * share..minimum(part * share + share, cdiv(k, BK)) {
        let along = step * BK + arange(0, BK);
        let left = load(x + (i[(.., None)] as i64 * x_row + along as i64), mask = (i < m)[(.., None)] & (along < k));
        let down = along[(.., None)];
        let right =
            load(weights + (down as i64 * weights_row + j as i64 * weights_column), mask = (down < k) & (j < n));
        acc = dot(left, right as F, acc = acc);
    }
    acc = acc * load(scales + j, mask = j < n);
    let mask = (i < m)[(.., None)] & (j < n);
    store(out + part as i64 * out_part + (i[(.., None)] as i64 * out_row + j as i64), acc as R, mask = mask);
}

/// NF4 weights: rows are outputs, bytes hold two neighbours of a row, the first in the upper half.
#[kernel]
pub(super) fn nf4_product<F: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const TALL: usize>(
    x: Ptr<F>,
    bytes: Ptr<u8>,
    largest: Ptr<f32>,
    out: PtrMut<R>,
    m: i32,
    n: i32,
    k: i32,
    splits: i32,
    x_row: i64,
    halves: i32,
    blocks: i32,
    out_row: i64,
    out_part: i64,
) {
    static_assert!(BK % 64 == 0);
    let tiles = cdiv(m, BM) * cdiv(n, BN);
    let part = program_id(0) / tiles;
    let (row, column) = corner::<BM, BN, TALL>(program_id(0) % tiles, m, n);
    let (i, j) = (row + arange(0, BM), column + arange(0, BN));
    let share = cdiv(cdiv(k, BK), splits);
    let mut acc = zeros::<f32>([BM, BN]);
    for step in part * share..minimum(part * share + share, cdiv(k, BK)) {
        let along = step * BK + arange(0, BK);
        let left = load(x + (i[(.., None)] as i64 * x_row + along as i64), mask = (i < m)[(.., None)] & (along < k));
        let half = step * (BK / 2) + arange(0, BK / 2);
        let mask = (j < n)[(.., None)] & (half < halves);
        let pair = load(bytes + (j[(.., None)] as i64 * halves as i64 + half as i64), mask = mask);
        let block = step * (BK / 64) + arange(0, BK / 64);
        let mask = (j < n)[(.., None)] & (block < blocks);
        let size = load(largest + (j[(.., None)] as i64 * blocks as i64 + block as i64), mask = mask);
        let size = broadcast_to(size[(.., .., None)], [BN, BK / 64, 64]);
        let number = nf4_number::<BN, BK>(interleave(pair >> 4, pair & 15));
        let right = (number * reshape(size, [BN, BK])) as F;
        acc = dot(left, right.trans(), acc = acc);
    }
    let mask = (i < m)[(.., None)] & (j < n);
    store(out + part as i64 * out_part + (i[(.., None)] as i64 * out_row + j as i64), acc as R, mask = mask);
}
