use tilewright::prelude::*;

/// Scores of a block of queries with the keys from `start` on: minus infinity where a query does not see a key.
#[device]
fn scores<T: Float, const BM: usize, const BN: usize, const D: usize, const CAUSAL: bool>(
    query: Tile<T, { [BM, D] }>,
    k: Ptr<T>,
    i: Tile<i32, { [BM] }>,
    start: i32,
    len: i32,
    scale: f32,
) -> Tile<f32, { [BM, BN] }> {
    let (j, d) = (start + arange(0, BN), arange(0, D));
    let keys = load(k + j[(.., None)] * D + d, mask = (j < len)[(.., None)]);
    let s = select(j < len, dot(query, keys.trans()) * scale, f32::NEG_INFINITY);
    if CAUSAL { select(j <= i[(.., None)], s, f32::NEG_INFINITY) } else { s }
}

/// `out = softmax(q k^T * scale) v` of matrices `[len, D]`, one for each head.
#[kernel]
pub fn passes<T: Float, const BM: usize, const BN: usize, const D: usize, const CAUSAL: bool>(
    q: Ptr<T>,
    k: Ptr<T>,
    v: Ptr<T>,
    out: PtrMut<T>,
    len: i32,
    scale: f32,
) {
    let (i, d) = (program_id(0) * BM + arange(0, BM), arange(0, D));
    let head = program_id(1) * len * D;
    let query = load(q + head + i[(.., None)] * D + d, mask = (i < len)[(.., None)]);
    let mut peak = full([BM], f32::NEG_INFINITY);
    for start in (0..len).step_by(BN) {
        let s = scores::<T, BM, BN, D, CAUSAL>(query, k + head, i, start, len, scale);
        peak = maximum(peak, max(s, axis = 1));
    }
    let mut total = zeros::<f32>([BM]);
    for start in (0..len).step_by(BN) {
        let s = scores::<T, BM, BN, D, CAUSAL>(query, k + head, i, start, len, scale);
        total += sum(exp(s - peak[(.., None)]), axis = 1);
    }
    let mut acc = zeros::<f32>([BM, D]);
    for start in (0..len).step_by(BN) {
        let s = scores::<T, BM, BN, D, CAUSAL>(query, k + head, i, start, len, scale);
        let weights = exp(s - peak[(.., None)]) / total[(.., None)];
        let j = start + arange(0, BN);
        let values = load(v + head + j[(.., None)] * D + d, mask = (j < len)[(.., None)]);
        acc = dot(weights as T, values, acc = acc);
    }
    store(out + head + i[(.., None)] * D + d, acc as T, mask = (i < len)[(.., None)]);
}
