//! The kernels of the backward pass.

use crate::attention::device::{
    BiasStrides, LOG2_E, Scores, Seen, bend, biased, biases, hide, place_of_sequence, places_of_sequences, seen,
    sequence_at,
};
use tilewright::prelude::*;

/// What the backward pass needs of each query beside its scores: the sum of `out * dout`, and the logarithm of its sum to
/// the base 2, which is infinite for queries that see nothing, so that their weights are 0.
///
/// What is written lies in rows of `length`, those of packed sequences at [`places_of_sequences`].
///
/// The grid is `[blocks of queries, heads, batches]`; packed sequences are one batch here.
#[kernel]
pub(in crate::attention) fn attention_deltas<T: Float, const BM: usize, const D: usize, const DV: usize>(
    out: Ptr<T>,
    dout: Ptr<T>,
    lse: Ptr<f32>,
    dlse: Option<Ptr<f32>>,
    starts: Option<Ptr<i32>>,
    deltas: PtrMut<f32>,
    logs: PtrMut<f32>,
    sums: Option<PtrMut<f32>>,
    queries: i32,
    sequences: i32,
    halvings: i32,
    length: i32,
    columns: i32,
    width: i32,
    out_batch: i64,
    out_head: i64,
    out_row: i64,
    dout_batch: i64,
    dout_head: i64,
    dout_row: i64,
    lse_batch: i64,
    lse_head: i64,
    dlse_batch: i64,
    dlse_head: i64,
) {
    let (head, batch) = (program_id(1) as i64, program_id(2) as i64);
    let at = (batch * num_programs(1) as i64 + head) * length as i64;
    if let Some(sums) = sums {
        // A tile of its own shape, and so its own layout: `out` and `dout` are read 16 bytes at once, not 4 elements as f32 is.
        let place = arange(0, BM * D);
        let (row, column) = (program_id(0) * BM + place / D, place % D);
        let sums = sums + (at + row as i64) * width as i64 + column;
        store(sums, zeros([BM * D]), mask = (row < queries) & (column < width));
    }
    let row = program_id(0) * BM + arange(0, BM);
    let column = arange(0, DV);
    let mask = row < queries;
    let both = mask[(.., None)] & (column < columns);
    let x = load(out + (batch * out_batch + head * out_head) + row[(.., None)] as i64 * out_row + column, mask = both);
    let dx = dout + (batch * dout_batch + head * dout_head);
    let dx = load(dx + row[(.., None)] as i64 * dout_row + column, mask = both);
    let mut delta = sum(x as T::Acc * dx as T::Acc, axis = 1) as f32;
    if let Some(dlse) = dlse {
        delta -= load(dlse + (batch * dlse_batch + head * dlse_head) + row, mask = mask);
    }
    let log = load(lse + (batch * lse_batch + head * lse_head) + row, mask = mask);
    let log = select(log == f32::NEG_INFINITY, f32::INFINITY, log * (LOG2_E as f64 as f32));
    let (mut place, mut inside) = (row, mask);
    if let Some(starts) = starts {
        // The sequence of a token is the last that begins no later: how many have begun is between two numbers.
        let (mut begun, mut most) = (zeros::<i32>([BM]), full::<i32>([BM], sequences + 1));
        for _ in 0..halvings {
            let middle = (begun + most) / 2;
            let open = begun < most;
            let has_begun = load(starts + middle, mask = open) <= row;
            begun = select(open & has_begun, middle + 1, begun);
            most = select(open & !has_begun, middle, most);
        }
        inside = mask & (begun > 0) & (begun <= sequences);
        let start = load(starts + (begun - 1), mask = inside);
        place = places_of_sequences(start, begun - 1) + row - start;
    }
    store(deltas + at + place, delta, mask = inside);
    store(logs + at + place, log, mask = inside);
}

/// Gradients of a block of keys and values: a program takes the queries that see it, of all heads of its group. Without `dv` those
/// of values are `dv_apart` elements behind those of keys, in the same memory.
///
/// The grid is `[blocks of keys, key heads, batches]`.
#[kernel(flush = true)]
pub(in crate::attention) fn attention_keys_backward<
    T: Float,
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
            let log = reshape(logs.load([page, head, vectors + start]), [BM]) as T::Acc;
            let delta = reshape(deltas.load([page, head, vectors + start]), [BM]) as T::Acc;
            let query = reshape(q.load([page, head, q_start + start, 0]), [BM, D]);
            let mut bent = bend(dot(block, query.trans(), out = T::Acc, precision = tf32x3), scale, soft_cap);
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
            let weights = exp2(scores * factor - log);
            let gradient = reshape(dout.load([page, head, q_start + start, 0]), [BM, DV]);
            dv_sum = dot(weights as T, gradient, acc = dv_sum, precision = tf32x3);
            let dweights = dot(values, gradient.trans(), out = T::Acc, precision = tf32x3);
            let mut dscores = weights * (dweights - delta);
            if soft_cap.is_some() {
                dscores *= slope;
            }
            dk_sum = dot(dscores as T, query, acc = dk_sum, precision = tf32x3);
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
    store(dk + rows * dk_row + key_column, (dk_sum * scale) as T, mask = inside & (key_column < key_columns));
}

/// Gradients of a block of queries.
///
/// The grid is `[blocks of queries, heads, batches]`.
#[kernel(flush = true)]
pub(in crate::attention) fn attention_queries_backward<
    T: Float,
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
    dq: PtrMut<T>,
    queries: i32,
    keys: i32,
    key_columns: i32,
    group: i32,
    scale: f64,
    soft_cap: Option<f64>,
    left: Option<i32>,
    right: i32,
    bias_batch: i64,
    bias_head: i64,
    bias_row: i64,
    dq_batch: i64,
    dq_head: i64,
    dq_row: i64,
) {
    let first = (num_programs(0) - 1 - program_id(0)) * BM;
    let (head, batch) = (program_id(1), program_id(2));
    let (q_start, queries) = sequence_at(q_starts, batch, queries);
    let (k_start, keys) = sequence_at(k_starts, batch, keys);
    let (page, vectors) = if q_starts.is_some() { (0, place_of_sequence(q_start, batch)) } else { (batch, 0) };
    let row = first + arange(0, BM);
    let Seen { at, upto, begin, end, whole_from, whole_to } = seen::<BM, BN>(first, queries, keys, left, right);
    let end = select(first < queries, end, 0);

    let scale = scale as T::Acc;
    let query = reshape(q.load([page, head, q_start + first, 0]), [BM, D]);
    let gradient = reshape(dout.load([page, head, q_start + first, 0]), [BM, DV]);
    let inside = row < queries;
    let log = reshape(logs.load([page, head, vectors + first]), [BM]) as T::Acc;
    let delta = reshape(deltas.load([page, head, vectors + first]), [BM]) as T::Acc;
    let mut dq_sum = zeros::<T::Acc>([BM, D]);
    #[warp_specialize]
    for start in (begin..end).step_by(BN) {
        let key = start + arange(0, BN);
        let block = reshape(k.load([page, head / group, k_start + start, 0]), [BN, D]);
        let mut bent = bend(dot(query, block.trans(), out = T::Acc, precision = tf32x3), scale, soft_cap);
        if let Some(bias) = bias {
            let strides = BiasStrides { batch: bias_batch, head: bias_head, row: bias_row };
            let added = biases(bias, strides, (batch, head), (row, key), (queries, keys));
            bent = biased(bent, scale, soft_cap, added);
        }
        let Scores { mut scores, factor, slope } = bent;
        if start < whole_from || start + BN > whole_to {
            scores = hide(scores, key, at, left, upto);
        }
        let weights = exp2(scores * factor - log[(.., None)]);
        let values = reshape(v.load([page, head / group, k_start + start, 0]), [BN, DV]);
        let dweights = dot(gradient, values.trans(), out = T::Acc, precision = tf32x3);
        let mut dscores = weights * (dweights - delta[(.., None)]);
        if soft_cap.is_some() {
            dscores *= slope;
        }
        dq_sum = dot(dscores as T, block, acc = dq_sum, precision = tf32x3);
    }
    let column = arange(0, D);
    let dq = dq + (page as i64 * dq_batch + head as i64 * dq_head);
    let rows = (q_start + row)[(.., None)] as i64;
    store(dq + rows * dq_row + column, (dq_sum * scale) as T, mask = inside[(.., None)] & (column < key_columns));
}
