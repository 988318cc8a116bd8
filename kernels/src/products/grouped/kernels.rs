//! Products of the rows of each expert with a matrix of its own.
//!
//! How many blocks of rows there are is known on the device only: the loop over tiles ends there, and what the host has room
//! for beyond is not touched. Tiles go down blocks before they go on to the next columns, so that the blocks of an expert read
//! its weights at about the same time.

use crate::products::activation::activate;
use crate::products::tiles::corner;
use tilewright::prelude::*;

/// `out[i] = x[i] @ weights[expert of i]`. With scales, those of `x` are one for each row and step, those of `weights` one for
/// each expert, step and `BK` columns.
///
/// Weights are given once: as they are, or as the matrices whose transposes they are.
#[kernel]
pub(super) fn experts<F: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    x: TensorDesc<F, { [BM, BK] }>,
    weights: Option<TensorDesc<F, { [1, BK, BN] }>>,
    weights_down: Option<TensorDesc<F, { [1, BN, BK] }>>,
    x_scale: Option<Ptr<f32>>,
    weights_scale: Option<Ptr<f32>>,
    owners: Ptr<i32>,
    used: Ptr<i32>,
    out: TensorDescMut<R, { [BM, BN] }>,
    n: i32,
    k: i32,
    height: i32,
    x_scale_row: i32,
    scale_expert: i32,
    scale_row: i32,
    scale_column: i32,
) {
    let rows = minimum(load(used) * BM, height);
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(rows, BM) * cdiv(n, BN)).step_by(num_programs(0)) {
        let (row, column) = corner::<BM, BN, GROUP>(tile, rows, n);
        let expert = load(owners + row / BM);
        let i = row + arange(0, BM);
        let mut acc = zeros::<f32>([BM, BN]);
        for step in 0..cdiv(k, BK) {
            let left = x.load([row, step * BK]);
            let right = if let Some(weights) = weights {
                reshape(weights.load([expert, step * BK, column]), [BK, BN])
            } else if let Some(weights) = weights_down {
                reshape(weights.load([expert, column, step * BK]), [BN, BK]).trans()
            } else {
                zeros([BK, BN])
            };
            if let Some(x_scale) = x_scale {
                static_assert!(BN <= BK, "a tile lies in one block of scales");
                let mut scale = load(x_scale + (i * x_scale_row + step), mask = i < height);
                if let Some(weights_scale) = weights_scale {
                    let at = expert * scale_expert + step * scale_row + column / BK * scale_column;
                    scale = scale * load(weights_scale + at);
                }
                acc += dot(left, right) * scale[(.., None)];
            } else {
                acc = dot(left, right, acc = acc);
            }
        }
        out.store([row, column], acc as R);
    }
}

/// `out[i] = activation(x[i] @ gate[expert of i]) * (x[i] @ up[expert of i])`, where `up` begins `inner` columns behind `gate`.
#[kernel]
pub(super) fn gated_experts<
    F: Float,
    R: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const GROUP: usize,
    const ACTIVATION: usize,
>(
    x: TensorDesc<F, { [BM, BK] }>,
    weights: Option<TensorDesc<F, { [1, BK, BN] }>>,
    weights_down: Option<TensorDesc<F, { [1, BN, BK] }>>,
    owners: Ptr<i32>,
    used: Ptr<i32>,
    out: TensorDescMut<R, { [BM, BN] }>,
    inner: i32,
    k: i32,
    height: i32,
) {
    let rows = minimum(load(used) * BM, height);
    #[warp_specialize]
    for tile in (program_id(0)..cdiv(rows, BM) * cdiv(inner, BN)).step_by(num_programs(0)) {
        let (row, column) = corner::<BM, BN, GROUP>(tile, rows, inner);
        let expert = load(owners + row / BM);
        let mut gate = zeros::<f32>([BM, BN]);
        let mut up = zeros::<f32>([BM, BN]);
        for step in 0..cdiv(k, BK) {
            let left = x.load([row, step * BK]);
            let (first, second) = if let Some(weights) = weights {
                let first = reshape(weights.load([expert, step * BK, column]), [BK, BN]);
                (first, reshape(weights.load([expert, step * BK, inner + column]), [BK, BN]))
            } else if let Some(weights) = weights_down {
                let first = reshape(weights.load([expert, column, step * BK]), [BN, BK]).trans();
                (first, reshape(weights.load([expert, inner + column, step * BK]), [BN, BK]).trans())
            } else {
                (zeros([BK, BN]), zeros([BK, BN]))
            };
            gate = dot(left, first, acc = gate);
            up = dot(left, second, acc = up);
        }
        out.store([row, column], (activate::<_, _, _, ACTIVATION>(gate) * up) as R);
    }
}

/// `out[e] = x^T @ dy` over the rows of expert `e`, which are whole blocks: those of its padding are zero in `x`.
#[kernel]
pub(super) fn experts_gradient<
    F: Float,
    R: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const GROUP: usize,
>(
    x: TensorDesc<F, { [BK, BM] }>,
    dy: TensorDesc<F, { [BK, BN] }>,
    ends: Ptr<i32>,
    out: TensorDescMut<R, { [1, BM, BN] }>,
    experts: i32,
    k: i32,
    n: i32,
    block: i32,
) {
    let tiles = cdiv(k, BM) * cdiv(n, BN);
    #[warp_specialize]
    for which in (program_id(0)..experts * tiles).step_by(num_programs(0)) {
        let expert = which / tiles;
        let (row, column) = corner::<BM, BN, GROUP>(which % tiles, k, n);
        let before = load(ends + maximum(expert - 1, 0));
        let first = select(expert > 0, before, 0) * block;
        let mut acc = zeros::<f32>([BM, BN]);
        for t in (first..load(ends + expert) * block).step_by(BK) {
            acc = dot(x.load([t, row]).trans(), dy.load([t, column]), acc = acc);
        }
        out.store([expert, row, column], reshape(acc as R, [1, BM, BN]));
    }
}
