use tilewright::prelude::*;

/// `c = a @ b` through tensor descriptors.
#[kernel]
pub fn blocks<T: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: TensorDesc<T, { [BM, BK] }>,
    b: TensorDesc<T, { [BK, BN] }>,
    c: TensorDescMut<T, { [BM, BN] }>,
    m: i32,
    n: i32,
    k: i32,
) {
    let (tile, wide) = (program_id(0), GROUP * cdiv(n, BN));
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
