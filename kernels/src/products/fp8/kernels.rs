//! Products with a scale for each row of `a` and each block of `b` in each step of 128.

use crate::products::tiles::corner;
use tilewright::prelude::*;

/// Through tensor descriptors. The second factor is given once: as it is, or as the matrix whose transpose it is.
///
/// A tile is no wider than a block of scales, and begins with one: `b`'s scale is one number in each step.
#[kernel]
pub(super) fn scaled_blocks<
    F: Float,
    R: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const GROUP: usize,
>(
    a: TensorDesc<F, { [BM, BK] }>,
    b: Option<TensorDesc<F, { [BK, BN] }>>,
    b_down: Option<TensorDesc<F, { [BN, BK] }>>,
    c: TensorDescMut<R, { [BM, BN] }>,
    a_scale: Ptr<f32>,
    b_scale: Ptr<f32>,
    m: i32,
    n: i32,
    k: i32,
    a_scale_row: i32,
    a_scale_column: i32,
    b_scale_row: i32,
    b_scale_column: i32,
) {
    static_assert!(BN <= BK, "a tile lies in one block of scales");
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, BM) * cdiv(n, BN)).step_by(num_programs(0)) {
        let (row, column) = corner::<BM, BN, GROUP>(tile, m, n);
        let i = row + arange(0, BM);
        let across = b_scale + column / BK * b_scale_column;
        let mut acc = zeros::<f32>([BM, BN]);
        for step in 0..cdiv(k, BK) {
            let x = a.load([row, step * BK]);
            let y = if let Some(b) = b {
                b.load([step * BK, column])
            } else if let Some(b) = b_down {
                b.load([column, step * BK]).trans()
            } else {
                zeros([BK, BN])
            };
            let first = load(a_scale + (i * a_scale_row + step * a_scale_column), mask = i < m);
            let second = load(across + step * b_scale_row);
            acc += dot(x, y) * (first * second)[(.., None)];
        }
        c.store([row, column], acc as R);
    }
}

/// The same through pointers: any strides.
#[kernel]
pub(super) fn scaled_pointers<
    F: Float,
    R: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const GROUP: usize,
>(
    a: Ptr<F>,
    b: Ptr<F>,
    c: PtrMut<R>,
    a_scale: Ptr<f32>,
    b_scale: Ptr<f32>,
    m: i32,
    n: i32,
    k: i32,
    a_row: i64,
    a_column: i64,
    b_row: i64,
    b_column: i64,
    c_row: i64,
    c_column: i64,
    a_scale_row: i32,
    a_scale_column: i32,
    b_scale_row: i32,
    b_scale_column: i32,
) {
    static_assert!(BN <= BK, "a tile lies in one block of scales");
    let (row, column) = corner::<BM, BN, GROUP>(program_id(0), m, n);
    let (i, j) = (row + arange(0, BM), column + arange(0, BN));
    let (down, right) = (i[(.., None)] as i64, j as i64);
    let across = b_scale + column / BK * b_scale_column;
    let mut acc = zeros::<f32>([BM, BN]);
    for step in 0..cdiv(k, BK) {
        let along = step * BK + arange(0, BK);
        let x = load(a + (down * a_row + along as i64 * a_column), mask = (i < m)[(.., None)] & (along < k));
        let below = along[(.., None)];
        let y = load(b + (below as i64 * b_row + right * b_column), mask = (below < k) & (j < n));
        let first = load(a_scale + (i * a_scale_row + step * a_scale_column), mask = i < m);
        let second = load(across + step * b_scale_row);
        acc += dot(x, y) * (first * second)[(.., None)];
    }
    store(c + (down * c_row + right * c_column), acc as R, mask = (i < m)[(.., None)] & (j < n));
}
