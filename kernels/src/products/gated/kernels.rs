//! The kernels of [`GatedMatmul`](super::GatedMatmul).

use crate::products::activation::activate;
use crate::products::tiles::corner;
use tilewright::prelude::*;

/// Through tensor descriptors, by programs that stay. The columns of `weights` are those of the gate and, `n` behind them, of
/// what it multiplies; `weights` are given once: as they are, or as the matrix whose transpose they are. `products` are both
/// products, where they are kept.
#[kernel]
pub(super) fn gated_blocks<
    T: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const GROUP: usize,
    const ACTIVATION: usize,
>(
    x: TensorDesc<T, { [BM, BK] }>,
    weights: Option<TensorDesc<T, { [BK, BN] }>>,
    weights_down: Option<TensorDesc<T, { [BN, BK] }>>,
    products: Option<TensorDescMut<T, { [1, BM, BN] }>>,
    out: TensorDescMut<T, { [BM, BN] }>,
    m: i32,
    n: i32,
    k: i32,
) {
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(m, BM) * cdiv(n, BN)).step_by(num_programs(0)) {
        let (row, column) = corner::<BM, BN, GROUP>(tile, m, n);
        let mut gate = zeros::<T::Acc>([BM, BN]);
        let mut up = zeros::<T::Acc>([BM, BN]);
        for t in (0..k).step_by(BK) {
            let left = x.load([row, t]);
            let (first, second) = if let Some(weights) = weights {
                (weights.load([t, column]), weights.load([t, n + column]))
            } else if let Some(weights) = weights_down {
                (weights.load([column, t]).trans(), weights.load([n + column, t]).trans())
            } else {
                (zeros([BK, BN]), zeros([BK, BN]))
            };
            gate = dot(left, first, acc = gate, precision = bf16x6);
            up = dot(left, second, acc = up, precision = bf16x6);
        }
        if let Some(products) = products {
            products.store([0, row, column], reshape(gate as T, [1, BM, BN]));
            products.store([1, row, column], reshape(up as T, [1, BM, BN]));
        }
        out.store([row, column], (activate::<_, _, _, ACTIVATION>(gate) * up) as T);
    }
}

/// Through pointers: weights of any strides. Offsets are `I`, which has room for all of them.
#[kernel]
pub(super) fn gated_pointers<
    T: Float,
    I: Int,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const GROUP: usize,
    const ACTIVATION: usize,
>(
    x: Ptr<T>,
    weights: Ptr<T>,
    products: Option<PtrMut<T>>,
    out: PtrMut<T>,
    m: i32,
    n: i32,
    k: i32,
    x_row: I,
    weights_row: I,
    weights_column: I,
    products_row: I,
    out_row: I,
) {
    let (row, column) = corner::<BM, BN, GROUP>(program_id(0), m, n);
    let (i, j) = (row + arange(0, BM)[(.., None)], column + arange(0, BN));
    let mut gate = zeros::<T::Acc>([BM, BN]);
    let mut up = zeros::<T::Acc>([BM, BN]);
    for t in (0..k).step_by(BK) {
        let along = t + arange(0, BK);
        let left = load(x + (i as I * x_row + along as I), mask = (i < m) & (along < k));
        let down = along[(.., None)];
        let mask = (down < k) & (j < n);
        let first = load(weights + (down as I * weights_row + j as I * weights_column), mask = mask);
        let second = load(weights + (down as I * weights_row + (n + j) as I * weights_column), mask = mask);
        gate = dot(left, first, acc = gate, precision = bf16x6);
        up = dot(left, second, acc = up, precision = bf16x6);
    }
    let mask = (i < m) & (j < n);
    if let Some(products) = products {
        store(products + (i as I * products_row + j as I), gate as T, mask = mask);
        store(products + (i as I * products_row + (n + j) as I), up as T, mask = mask);
    }
    store(out + (i as I * out_row + j as I), (activate::<_, _, _, ACTIVATION>(gate) * up) as T, mask = mask);
}
