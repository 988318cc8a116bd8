use tilewright::prelude::*;

const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// `out = softmax(q k^T * scale) v` of matrices `[len, D]`, one for each head, in warps that fetch and warps that compute.
#[kernel(flush = true)]
pub fn divided<T: Float, const BM: usize, const BN: usize, const D: usize, const CAUSAL: bool>(
    q: TensorDesc<T, { [1, BM, D] }>,
    k: TensorDesc<T, { [1, BN, D] }>,
    v: TensorDesc<T, { [1, BN, D] }>,
    out: TensorDescMut<T, { [1, BM, D] }>,
    len: i32,
    scale: f32,
) {
    let (first, head) = (program_id(0) * BM, program_id(1));
    let i = first + arange(0, BM);
    let query = reshape(q.load([head, first, 0]), [BM, D]);
    let factor = scale * LOG2_E;
    let mut peak = full([BM], f32::MIN);
    let mut total = zeros::<f32>([BM]);
    let mut acc = zeros::<f32>([BM, D]);
    #[warp_specialize]
    for start in (0..len).step_by(BN) {
        let j = start + arange(0, BN);
        let keys = reshape(k.load([head, start, 0]), [BN, D]);
        let mut s = dot(query, keys.trans());
        if start + BN > len {
            s = select(j < len, s, f32::NEG_INFINITY);
        }
        if CAUSAL {
            if start + BN > first {
                s = select(j <= i[(.., None)], s, f32::NEG_INFINITY);
            }
        }
        let higher = maximum(peak, max(s, axis = 1) * factor);
        let old = exp2(peak - higher);
        let weights = exp2(s * factor - higher[(.., None)]);
        total = total * old + sum(weights, axis = 1);
        let values = reshape(v.load([head, start, 0]), [BN, D]);
        acc = dot(weights as T, values, acc = acc * old[(.., None)]);
        peak = higher;
    }
    let result = acc / total[(.., None)];
    out.store([head, first, 0], reshape(result as T, [1, BM, D]));
}
