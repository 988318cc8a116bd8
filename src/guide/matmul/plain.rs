use tilewright::prelude::*;

/// `c = a @ b` on tensor cores.
#[kernel]
pub fn plain<T: Float, const BM: usize, const BN: usize, const BK: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<T>,
    m: i32,
    n: i32,
    k: i32,
) {
    let i = program_id(0) * BM + arange(0, BM);
    let j = program_id(1) * BN + arange(0, BN);
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (0..k).step_by(BK) {
        let along = t + arange(0, BK);
        let x = load(a + i[(.., None)] * k + along, mask = (i < m)[(.., None)] & (along < k));
        let y = load(b + along[(.., None)] * n + j, mask = (along < k)[(.., None)] & (j < n));
        acc = dot(x, y, acc = acc);
    }
    store(c + i[(.., None)] * n + j, acc as T, mask = (i < m)[(.., None)] & (j < n));
}
