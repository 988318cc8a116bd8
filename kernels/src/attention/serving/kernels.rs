//! The kernels that read caches.

use crate::attention::device::{Scores, absorb, bend, finish, hide_outside, sequence_at, unseen};
use tilewright::prelude::*;

/// Rows whose elements stand where `mma.sync` wants them from the thread that read them: of each `RUN`, which are 64, the 16
/// neighbours of 8 bits that a lane reads at once become its two pairs of factors in each of four products.
///
/// The order of what is multiplied and added does not matter as long as both factors have the same. So queries and keys are
/// rearranged alike, and keys are multiplied by the threads that read them, 16 bytes at a time.
#[device]
fn in_order_of_lanes<T: Num, const N: usize, const D: usize, const RUN: usize>(
    rows: Tile<T, { [N, D] }>,
) -> Tile<T, { [N, D] }> {
    let lanes = reshape(rows, [N, D / RUN, 4, RUN / 16, 2, 2]);
    reshape(permute(lanes, [0, 1, 3, 4, 2, 5]), [N, D])
}

/// Attention of queries over keys in a cache, or over a part of them. Rows of a tile are the heads of a group, for one query
/// after the other, since all of them read the same keys.
///
/// The grid is `[blocks of rows times parts, key heads, sequences]`. Keys lie in pages of `PAGE` that `table` numbers, or, if
/// there is none, sequence after sequence. Where `k_blocks` and `v_blocks` describe the pages too, blocks of them come by
/// tensor copies.
///
/// `RUN` is 64, or 16 where `D` is not a multiple of 64.
#[kernel(flush = true)]
pub(in crate::attention) fn attention_cached<
    T: Float,
    K: Float,
    O: Float,
    const BM: usize,
    const BN: usize,
    const D: usize,
    const DV: usize,
    const PAGE: usize,
    const RUN: usize,
>(
    q: Ptr<T>,
    k: Ptr<K>,
    v: Ptr<K>,
    k_blocks: Option<TensorDesc<K, { [1, 1, BN, D] }>>,
    v_blocks: Option<TensorDesc<K, { [1, 1, BN, DV] }>>,
    table: Option<Ptr<i32>>,
    lengths: Option<Ptr<i32>>,
    q_starts: Option<Ptr<i32>>,
    k_scale: Option<Ptr<f32>>,
    v_scale: Option<Ptr<f32>>,
    out: PtrMut<O>,
    lse: Option<PtrMut<f32>>,
    parts: i32,
    queries: i32,
    keys: i32,
    pages: i32,
    key_columns: i32,
    columns: i32,
    group: i32,
    scale: f64,
    soft_cap: Option<f64>,
    left: i32,
    right: i32,
    k_scale_head: i32,
    v_scale_head: i32,
    q_sequence: i64,
    q_head: i64,
    q_row: i64,
    k_page: i64,
    k_head: i64,
    k_row: i64,
    v_page: i64,
    v_head: i64,
    v_row: i64,
    table_sequence: i64,
    out_part: i64,
    out_sequence: i64,
    out_head: i64,
    out_row: i64,
    lse_part: i64,
    lse_sequence: i64,
    lse_head: i64,
) {
    static_assert!(RUN % 16 == 0);
    static_assert!(D % RUN == 0);
    // More rows are multiplied by warp groups, which read keys from shared memory at the queries' width.
    let ordered = K::BITS == 8 && T::BITS == 16 && BM < 64 && RUN == 64;
    let (part, key_head, sequence) = (program_id(0) % parts, program_id(1), program_id(2));
    let (q_start, queries) = sequence_at(q_starts, sequence, queries);
    // Not more than the table has pages for.
    let keys = if let Some(lengths) = lengths { clamp(load(lengths + sequence), 0, keys) } else { keys };
    let first = program_id(0) / parts * BM;
    let row = first + arange(0, BM);
    let (query, head) = (row / group, key_head * group + row % group);
    let inside = query < queries;
    // Queries are the last of their sequence.
    let at = query + (keys - queries);
    let (first_at, last_at) = (first / group + keys - queries, (first + BM - 1) / group + keys - queries);
    let begin = maximum(first_at - left, 0) / BN * BN;
    let end = select(first < queries * group, minimum(keys, last_at + right + 1), 0);
    let blocks = cdiv(maximum(end - begin, 0), BN);
    let each = cdiv(blocks, parts) * BN;
    let (from, to) = (begin + part * each, minimum(end, begin + (part + 1) * each));

    let scale = scale as T::Acc;
    let factor = if let Some(k_scale) = k_scale {
        let factor = scale * load(k_scale + key_head * k_scale_head) as T::Acc;
        // Hidden scores are minus infinity, which no factor of 0 may multiply.
        maximum(factor, T::Acc::MIN_POSITIVE, propagate_nan = true)
    } else {
        scale
    };
    let (key_column, column) = (arange(0, D), arange(0, DV));
    let q_rows = sequence as i64 * q_sequence + (q_start + query) as i64 * q_row + head as i64 * q_head;
    let mask = inside[(.., None)] & (key_column < key_columns);
    let x = load(q + q_rows[(.., None)] + key_column, mask = mask);
    let x = if ordered { in_order_of_lanes::<T, BM, D, RUN>(x) } else { x };
    let (k, v) = (k + key_head as i64 * k_head, v + key_head as i64 * v_head);
    let fetch = |start| {
        let key = start + arange(0, BN);
        let there = key < to;
        let (page, slot) = if let Some(table) = table {
            let table = table + sequence as i64 * table_sequence;
            // A block in one page has one number.
            let page = if PAGE % BN == 0 {
                broadcast_to(load(table + start / PAGE, mask = start < to), [BN])
            } else {
                load(table + key / PAGE, mask = there)
            };
            (clamp(page, 0, pages - 1), key % PAGE)
        } else {
            (full([BN], sequence), key)
        };
        let k_rows = page as i64 * k_page + slot as i64 * k_row;
        let v_rows = page as i64 * v_page + slot as i64 * v_row;
        let block = load(k + k_rows[(.., None)] + key_column, mask = there[(.., None)] & (key_column < key_columns));
        let values = load(v + v_rows[(.., None)] + column, mask = there[(.., None)] & (column < columns));
        (block, values)
    };
    let step = |rows, start, block, values| {
        let block = if ordered { in_order_of_lanes::<K, BN, D, RUN>(block) } else { block };
        let products = dot(x, (block as T).trans(), out = T::Acc, precision = tf32x3);
        let Scores { mut scores, factor: unit, .. } = bend(products, factor, soft_cap);
        if start < last_at - left || start + BN > minimum(to, first_at + right + 1) {
            scores = hide_outside(scores, start + arange(0, BN), at - left, minimum(at + (right + 1), to));
        }
        absorb(rows, scores, values as T, unit)
    };
    let mut rows = unseen::<T::Acc, BM, DV>();
    if let Some(k_blocks) = k_blocks {
        let whole = maximum(from, to / BN * BN);
        if let Some(v_blocks) = v_blocks {
            if let Some(table) = table {
                let table = table + sequence as i64 * table_sequence;
                #[warp_specialize]
                for start in (from..whole).step_by(BN) {
                    let page = load(table + start / PAGE);
                    let block = reshape(k_blocks.load([page, key_head, start % PAGE, 0]), [BN, D]);
                    let values = reshape(v_blocks.load([page, key_head, start % PAGE, 0]), [BN, DV]);
                    rows = step(rows, start, block, values);
                }
            }
        }
        // Behind the last key of a page may be anything, NaN too: there a mask is needed.
        if whole < to {
            let (block, values) = fetch(whole);
            rows = step(rows, whole, block, values);
        }
    } else {
        for start in (from..to).step_by(BN) {
            let (block, values) = fetch(start);
            rows = step(rows, start, block, values);
        }
    }
    let (mut result, log) = finish(rows);
    if let Some(v_scale) = v_scale {
        result *= load(v_scale + key_head * v_scale_head) as T::Acc;
    }
    let to = part as i64 * out_part + sequence as i64 * out_sequence;
    let out_rows = to + (q_start + query) as i64 * out_row + head as i64 * out_head;
    store(out + out_rows[(.., None)] + column, result as O, mask = inside[(.., None)] & (column < columns));
    if let Some(lse) = lse {
        let to = part as i64 * lse_part + sequence as i64 * lse_sequence;
        store(lse + (to + (q_start + query) as i64 + head as i64 * lse_head), log as f32, mask = inside);
    }
}
