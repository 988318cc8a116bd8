//! The kernels of the backward pass in one go.

use crate::attention::device::{
    BiasStrides, Scores, bend, biased, biases, hide, place_of_sequence, rotate_back, sequence_at,
};
use tilewright::prelude::*;

/// All gradients that a block of keys and values has part in: its own, which a program sums over the queries that see it, of
/// all heads of its group, and what it adds to those of each block of queries.
///
/// Scores are computed with keys as rows: weights and their gradients are left factors of what is summed over queries, as they
/// lie in registers. Only the gradients of scores go through shared memory too, where those of queries read them
/// transposed. Products are begun in the order in which their results are needed: the last one runs beside the addition to
/// `sums`, which `scale` is left out of.
///
/// Without `dv` gradients of values are `dv_apart` elements behind those of keys, in the same memory.
///
/// With tables of cosines and sines, a row for each key, gradients of keys are rotated back. Heads have `D` elements then, and
/// sequences are not packed.
///
/// The grid is `[blocks of keys, key heads, batches]`.
#[kernel(flush = true)]
pub(in crate::attention) fn attention_fused_backward<
    T: Float,
    C: Float,
    const BM: usize,
    const BN: usize,
    const D: usize,
    const DV: usize,
>(
    q: TensorDesc<T, { [1, 1, BM, D] }>,
    k: TensorDesc<T, { [1, 1, BN, D] }>,
    v: TensorDesc<T, { [1, 1, BN, DV] }>,
    dout: TensorDesc<T, { [1, 1, BM, DV] }>,
    logs: TensorDesc<f32, { [1, 1, BM] }>,
    deltas: TensorDesc<f32, { [1, 1, BM] }>,
    bias: Option<Ptr<T>>,
    q_starts: Option<Ptr<i32>>,
    k_starts: Option<Ptr<i32>>,
    cos: Option<Ptr<C>>,
    sin: Option<Ptr<C>>,
    sums: TensorDescMut<f32, { [1, 1, BM, D] }>,
    dk: PtrMut<T>,
    dv: Option<PtrMut<T>>,
    dv_apart: Option<i64>,
    queries: i32,
    keys: i32,
    key_columns: i32,
    columns: i32,
    group: i32,
    scale: f64,
    soft_cap: Option<f64>,
    left: Option<i32>,
    right: i32,
    bias_batch: i64,
    bias_head: i64,
    bias_row: i64,
    dk_batch: i64,
    dk_head: i64,
    dk_row: i64,
    dv_batch: i64,
    dv_head: i64,
    dv_row: i64,
) {
    let first = program_id(0) * BN;
    let (key_head, batch) = (program_id(1), program_id(2));
    let (q_start, queries) = sequence_at(q_starts, batch, queries);
    let (k_start, keys) = sequence_at(k_starts, batch, keys);
    let (page, vectors) = if q_starts.is_some() { (0, place_of_sequence(q_start, batch)) } else { (batch, 0) };
    let key = first + arange(0, BN);
    // Queries that see a key of the block, and those that see all of it.
    let place = first + queries - keys;
    let begin = maximum(place - right, 0) / BM * BM;
    let (seeing, seeing_all) = if let Some(left) = left {
        (minimum(queries, place + BN + left), minimum(queries, place + left + 1))
    } else {
        (queries, queries)
    };
    let end = select(first < keys, seeing, 0);
    let whole_from = place + BN - 1 - right;
    let whole_to = select(first + BN <= keys, seeing_all, 0);

    let scale = scale as T::Acc;
    let block = reshape(k.load([page, key_head, k_start + first, 0]), [BN, D]);
    let values = reshape(v.load([page, key_head, k_start + first, 0]), [BN, DV]);
    let mut dk_sum = zeros::<T::Acc>([BN, D]);
    let mut dv_sum = zeros::<T::Acc>([BN, DV]);
    for head in key_head * group..(key_head + 1) * group {
        #[warp_specialize]
        for start in (begin..end).step_by(BM) {
            let row = start + arange(0, BM);
            let inside = row < queries;
            let query = reshape(q.load([page, head, q_start + start, 0]), [BM, D]);
            let gradient = reshape(dout.load([page, head, q_start + start, 0]), [BM, DV]);
            let products = dot(block, query.trans(), out = T::Acc, precision = tf32x3);
            let dweights = dot(values, gradient.trans(), out = T::Acc, precision = tf32x3);
            let mut bent = bend(products, scale, soft_cap);
            if let Some(bias) = bias {
                let strides = BiasStrides { batch: bias_batch, head: bias_head, row: bias_row };
                let added = biases(bias, strides, (batch, head), (row, key), (queries, keys));
                bent = biased(bent, scale, soft_cap, added.trans());
            }
            let Scores { mut scores, factor, slope } = bent;
            if start < whole_from || start + BM > whole_to {
                let at = row + (keys - queries);
                let upto = select(inside, minimum(at + (right + 1), keys), 0);
                scores = hide(scores.trans(), key, at, left, upto).trans();
            }
            let log = reshape(logs.load([page, head, vectors + start]), [BM]) as T::Acc;
            let weights = exp2(scores * factor - log);
            dv_sum = dot(weights as T, gradient, acc = dv_sum, precision = tf32x3);
            let delta = reshape(deltas.load([page, head, vectors + start]), [BM]) as T::Acc;
            let mut dscores = weights * (dweights - delta);
            if soft_cap.is_some() {
                dscores *= slope;
            }
            let dscores = dscores as T;
            let change = dot(dscores.trans(), block, out = T::Acc, precision = tf32x3);
            dk_sum = dot(dscores, query, acc = dk_sum, precision = tf32x3);
            sums.atomic_add([page, head, q_start + start, 0], reshape(change as f32, [1, 1, BM, D]));
        }
    }
    let rows = (k_start + key)[(.., None)] as i64;
    let inside = (key < keys)[(.., None)];
    let (column, key_column) = (arange(0, DV), arange(0, D));
    let dv_first = page as i64 * dv_batch + key_head as i64 * dv_head;
    if let Some(dv) = dv {
        store(dv + dv_first + rows * dv_row + column, dv_sum as T, mask = inside & (column < columns));
    }
    if let Some(apart) = dv_apart {
        store(dk + (apart + dv_first) + rows * dv_row + column, dv_sum as T, mask = inside & (column < columns));
    }
    let dk = dk + (page as i64 * dk_batch + key_head as i64 * dk_head);
    if let Some(cos) = cos {
        if let Some(sin) = sin {
            static_assert!(D % 2 == 0);
            let angle = arange(0, D / 2);
            let place = key[(.., None)] as i64 * (D / 2) as i64 + angle as i64;
            let cosine = load(cos + place, mask = inside) as T::Acc;
            let sine = load(sin + place, mask = inside) as T::Acc;
            let (a, b) = split(permute(reshape(dk_sum * scale, [BN, 2, D / 2]), [0, 2, 1]));
            let (a, b) = rotate_back(a, b, cosine, sine);
            let rotated = reshape(permute(join(a as T, b as T), [0, 2, 1]), [BN, D]);
            store(dk + rows * dk_row + key_column, rotated, mask = inside & (key_column < key_columns));
        }
    } else {
        store(dk + rows * dk_row + key_column, (dk_sum * scale) as T, mask = inside & (key_column < key_columns));
    }
}

/// Gradients of queries of sums in rows of `width`, of which those of a head begin `length` rows apart. With tables of cosines and
/// sines, a row for each query, they are rotated back.
///
/// The grid is `[blocks of queries, heads, batches]`; packed sequences are one batch here.
#[kernel]
pub(in crate::attention) fn attention_queries_scale<T: Float, C: Float, const BM: usize, const D: usize>(
    sums: Ptr<f32>,
    cos: Option<Ptr<C>>,
    sin: Option<Ptr<C>>,
    dq: PtrMut<T>,
    queries: i32,
    length: i32,
    columns: i32,
    width: i32,
    scale: f64,
    dq_batch: i64,
    dq_head: i64,
    dq_row: i64,
) {
    let (head, batch) = (program_id(1) as i64, program_id(2) as i64);
    let row = program_id(0) * BM + arange(0, BM);
    let column = arange(0, D);
    let mask = (row < queries)[(.., None)] & (column < columns);
    let at = (batch * num_programs(1) as i64 + head) * length as i64;
    if let Some(cos) = cos {
        if let Some(sin) = sin {
            let (half, angle) = (columns / 2, arange(0, D / 2));
            let mask = (row < queries)[(.., None)] & (angle < half);
            let table = (row as i64 * half as i64)[(.., None)] + angle as i64;
            let cosine = load(cos + table, mask = mask) as f32;
            let sine = load(sin + table, mask = mask) as f32;
            let sums = sums + (at + row as i64)[(.., None)] * width as i64 + angle;
            let (a, b) = (load(sums, mask = mask) * scale as f32, load(sums + half, mask = mask) * scale as f32);
            let (a, b) = rotate_back(a, b, cosine, sine);
            let dq = dq + (batch * dq_batch + head * dq_head) + row[(.., None)] as i64 * dq_row + angle;
            store(dq, a as T, mask = mask);
            store(dq + half, b as T, mask = mask);
        }
    } else {
        let sum = load(sums + (at + row as i64)[(.., None)] * width as i64 + column, mask = mask);
        let dq = dq + (batch * dq_batch + head * dq_head);
        store(dq + row[(.., None)] as i64 * dq_row + column, (sum * scale as f32) as T, mask = mask);
    }
}
