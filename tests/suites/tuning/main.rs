//! Tuning as users meet it: plans for a GPU without one, launches by tables.

mod plans;
mod tables;

use tilewright::prelude::*;

/// `c = a @ b`, by programs that stay.
#[kernel]
pub fn persistent<T: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: TensorDesc<T, { [BM, BK] }>,
    b: TensorDesc<T, { [BK, BN] }>,
    c: TensorDescMut<T, { [BM, BN] }>,
    m: i32,
    n: i32,
    k: i32,
) {
    let wide = GROUP * cdiv(n, BN);
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, BM) * cdiv(n, BN)).step_by(num_programs(0)) {
        let first = tile / wide * GROUP;
        let height = minimum(cdiv(m, BM) - first, GROUP);
        let i = (first + tile % wide % height) * BM;
        let j = tile % wide / height * BN;
        let mut acc = zeros::<f32>([BM, BN]);
        for t in (0..k).step_by(BK) {
            acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
        }
        c.store([i, j], acc as T);
    }
}

/// `out[row] = exp(x[row]) / sum(exp(x[row]))`
#[kernel]
pub fn softmax<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, columns: i32) {
    static_assert!(BLOCK % 64 == 0);
    let (row, i) = (program_id(0) as i64 * columns as i64, arange(0, BLOCK));
    let values = load(x + (row + i as i64), mask = i < columns, other = T::NEG_INFINITY) as f32;
    let numerator = exp(values - max(values));
    store(out + (row + i as i64), (numerator / sum(numerator)) as T, mask = i < columns);
}
