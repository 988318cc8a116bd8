use tilewright::prelude::*;

/// `c = a @ b`, with programs that go down `GROUP` rows of tiles before they go on to the next column.
#[kernel]
pub fn grouped<T: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<T>,
    m: i32,
    n: i32,
    k: i32,
) {
    let (tile, wide) = (program_id(0), GROUP * cdiv(n, BN));
    let first = tile / wide * GROUP;
    let height = minimum(cdiv(m, BM) - first, GROUP);
    let i = (first + tile % wide % height) * BM + arange(0, BM);
    let j = tile % wide / height * BN + arange(0, BN);
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (0..k).step_by(BK) {
        let along = t + arange(0, BK);
        let x = load(a + i[(.., None)] * k + along, mask = (i < m)[(.., None)] & (along < k));
        let y = load(b + along[(.., None)] * n + j, mask = (along < k)[(.., None)] & (j < n));
        acc = dot(x, y, acc = acc);
    }
    store(c + i[(.., None)] * n + j, acc as T, mask = (i < m)[(.., None)] & (j < n));
}
