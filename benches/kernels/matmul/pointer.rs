//! The plainest form: tiles of pointers, nothing else. What makes it fast is the compiler's.

use tilewright::prelude::*;
use tilewright_bench::Submit;
use tilewright_bench::product::{Contender, Factor, Product};

use super::tile::Tile;

/// `c = a @ b`, all row-major. Programs go down `GROUP` rows of tiles before they go on to the next column, so that
/// those that run at the same time share what they read.
#[kernel]
pub fn matmul<T: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<R>,
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
    store(c + i[(.., None)] * n + j, acc as R, mask = (i < m)[(.., None)] & (j < n));
}

/// The same with the transpose of `b` row-major, so that both operands are contiguous along `k`.
#[kernel]
pub fn matmul_k_major<T: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<R>,
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
        let y = load(b + along[(.., None)] + j * k, mask = (along < k)[(.., None)] & (j < n));
        acc = dot(x, y, acc = acc);
    }
    store(c + i[(.., None)] * n + j, acc as R, mask = (i < m)[(.., None)] & (j < n));
}

/// Several products, one after the other in memory: axis 1 of the grid counts them.
#[kernel]
pub fn matmul_batched<T: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<R>,
    m: i32,
    n: i32,
    k: i32,
) {
    let (tile, wide) = (program_id(0), GROUP * cdiv(n, BN));
    let first = tile / wide * GROUP;
    let height = minimum(cdiv(m, BM) - first, GROUP);
    let i = (first + tile % wide % height) * BM + arange(0, BM);
    let j = tile % wide / height * BN + arange(0, BN);
    let matrix = program_id(1) as i64;
    let (a, b, c) = (a + matrix * (m * k) as i64, b + matrix * (k * n) as i64, c + matrix * (m * n) as i64);
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (0..k).step_by(BK) {
        let along = t + arange(0, BK);
        let x = load(a + i[(.., None)] * k + along, mask = (i < m)[(.., None)] & (along < k));
        let y = load(b + along[(.., None)] * n + j, mask = (along < k)[(.., None)] & (j < n));
        acc = dot(x, y, acc = acc);
    }
    store(c + i[(.., None)] * n + j, acc as R, mask = (i < m)[(.., None)] & (j < n));
}

/// The pointer form as a contender, with these tiles.
pub fn contender<'a, T>(product: &Product, tiles: &[Tile]) -> Contender<'a, T>
where
    T: Factor + Float,
{
    let Product { batch, m, n, k, .. } = *product;
    let mut contender = Contender::new("tilewright pointer");
    for tile in tiles.iter().copied() {
        contender.config(tile.to_string(), move |how, operands| {
            let Tile { bm, bn, bk, stages, warps, group, .. } = tile;
            let (a, b, c) = (operands.a, operands.b, operands.c.reborrow());
            let [mi, ni, ki] = [m, n, k].map(|size| size as i32);
            let programs = m.div_ceil(bm) * n.div_ceil(bn);
            if batch > 1 {
                let consts = MatmulBatchedConsts { BM: bm, BN: bn, BK: bk, GROUP: group };
                let call = consts.call(a, b, c, mi, ni, ki).grid((programs, batch));
                call.num_warps(warps).num_stages(stages).submit(how)
            } else if T::B_K_MAJOR {
                let consts = MatmulKMajorConsts { BM: bm, BN: bn, BK: bk, GROUP: group };
                let call = consts.call(a, b, c, mi, ni, ki).grid(programs);
                call.num_warps(warps).num_stages(stages).submit(how)
            } else {
                let consts = MatmulConsts { BM: bm, BN: bn, BK: bk, GROUP: group };
                let call = consts.call(a, b, c, mi, ni, ki).grid(programs);
                call.num_warps(warps).num_stages(stages).submit(how)
            }
        });
    }
    contender
}
