use tilewright::prelude::*;

const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// `out = softmax(q k^T * scale) v` of matrices `[len, D]`, one for each head, with powers of two.
#[kernel(flush = true)]
pub fn powers<T: Float, const BM: usize, const BN: usize, const D: usize, const CAUSAL: bool>(
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
    let factor = scale * LOG2_E;
    let mut peak = full([BM], f32::MIN);
    let mut total = zeros::<f32>([BM]);
    let mut acc = zeros::<f32>([BM, D]);
    for start in (0..len).step_by(BN) {
        let j = start + arange(0, BN);
        let inside = (j < len)[(.., None)];
        let keys = load(k + head + j[(.., None)] * D + d, mask = inside);
        let mut s = select(j < len, dot(query, keys.trans()), f32::NEG_INFINITY);
        if CAUSAL {
            s = select(j <= i[(.., None)], s, f32::NEG_INFINITY);
        }
        let higher = maximum(peak, max(s, axis = 1) * factor);
        let old = exp2(peak - higher);
        let weights = exp2(s * factor - higher[(.., None)]);
        total = total * old + sum(weights, axis = 1);
        let values = load(v + head + j[(.., None)] * D + d, mask = inside);
        acc = dot(weights as T, values, acc = acc * old[(.., None)]);
        peak = higher;
    }
    let result = acc / total[(.., None)];
    store(out + head + i[(.., None)] * D + d, result as T, mask = (i < len)[(.., None)]);
}
