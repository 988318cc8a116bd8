//! The kernels of [`matmul`](super::matmul).
//!
//! All have the same end, `activation(sums * scales + bias) + residual`, and may share a product: of `splits` programs each
//! sums a part of `k`, leaves the sums as they are, and [`finish`] adds them up, always in the same order.

use crate::products::activation::activate;
use crate::products::tiles::corner;
use tilewright::prelude::*;

/// Through pointers: any strides. Offsets are `I`, which has room for all of them.
#[kernel]
pub(super) fn pointers<
    T: Float,
    R: Float,
    I: Int,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const GROUP: usize,
    const ACTIVATION: usize,
    const PRECISION: usize,
>(
    a: Ptr<T>,
    b: Ptr<T>,
    c: PtrMut<R>,
    a_scale: Option<Ptr<f32>>,
    b_scale: Option<Ptr<f32>>,
    bias: Option<Ptr<R>>,
    residual: Option<Ptr<R>>,
    m: i32,
    n: i32,
    k: i32,
    splits: i32,
    a_strides: i64,
    a_row: I,
    a_column: I,
    b_strides: i64,
    b_row: I,
    b_column: I,
    c_strides: i64,
    c_row: I,
    c_column: I,
    residual_strides: i64,
    residual_row: I,
    residual_column: I,
    a_scale_step: i32,
    b_scale_step: i32,
) {
    let tiles = cdiv(m, BM) * cdiv(n, BN);
    let part = program_id(0) / tiles;
    let matrix = (part / splits) as i64;
    let (row, column) = corner::<BM, BN, GROUP>(program_id(0) % tiles, m, n);
    let (i, j) = (row + arange(0, BM)[(.., None)], column + arange(0, BN));
    let share = cdiv(cdiv(k, BK), splits) * BK;
    let first = part % splits * share;
    let (a, b) = (a + matrix * a_strides, b + matrix * b_strides);
    let mut acc = zeros::<T::Acc>([BM, BN]);
    for t in (first..minimum(first + share, k)).step_by(BK) {
        let along = t + arange(0, BK);
        let x = load(a + (i as I * a_row + along as I * a_column), mask = (i < m) & (along < k));
        let down = along[(.., None)];
        let y = load(b + (down as I * b_row + j as I * b_column), mask = (down < k) & (j < n));
        acc = if PRECISION == 0 {
            dot(x, y, acc = acc)
        } else if PRECISION == 1 {
            dot(x, y, acc = acc, precision = tf32x3)
        } else if PRECISION == 2 {
            dot(x, y, acc = acc, precision = bf16x6)
        } else {
            dot(x, y, acc = acc, precision = ieee)
        };
    }
    if let Some(scale) = a_scale {
        acc = acc * load(scale + i * a_scale_step, mask = i < m) as T::Acc;
    }
    if let Some(scale) = b_scale {
        acc = acc * load(scale + j * b_scale_step, mask = j < n) as T::Acc;
    }
    if let Some(bias) = bias {
        acc = acc + load(bias + j, mask = j < n) as T::Acc;
    }
    acc = activate::<_, _, _, ACTIVATION>(acc);
    let mask = (i < m) & (j < n);
    if let Some(residual) = residual {
        let at = residual + matrix * residual_strides;
        acc = acc + load(at + (i as I * residual_row + j as I * residual_column), mask = mask) as T::Acc;
    }
    store(c + part as i64 * c_strides + (i as I * c_row + j as I * c_column), acc as R, mask = mask);
}

/// Through tensor descriptors, whose blocks the hardware copies. Each factor is given once: as it is, or as the matrix whose
/// transpose it is. `c` has a matrix for each part. A residual is given once too: by blocks, or through a pointer.
macro_rules! by_blocks {
    ($(#[$docs:meta])* $name:ident, { $($tile:tt)* }) => {
        $(#[$docs])*
        #[kernel]
        pub(super) fn $name<
            T: Float,
            R: Float,
            const BM: usize,
            const BN: usize,
            const BK: usize,
            const GROUP: usize,
            const ACTIVATION: usize,
            const PRECISION: usize,
        >(
            a: Option<TensorDesc<T, { [1, BM, BK] }>>,
            a_down: Option<TensorDesc<T, { [1, BK, BM] }>>,
            b: Option<TensorDesc<T, { [1, BK, BN] }>>,
            b_down: Option<TensorDesc<T, { [1, BN, BK] }>>,
            c: TensorDescMut<R, { [1, BM, BN] }>,
            a_scale: Option<Ptr<f32>>,
            b_scale: Option<Ptr<f32>>,
            bias: Option<Ptr<R>>,
            residual: Option<TensorDesc<R, { [1, BM, BN] }>>,
            residual_at: Option<Ptr<R>>,
            parts: i32,
            m: i32,
            n: i32,
            k: i32,
            splits: i32,
            a_step: i32,
            b_step: i32,
            residual_step: i32,
            residual_strides: i64,
            residual_row: i64,
            residual_column: i64,
            a_scale_step: i32,
            b_scale_step: i32,
        ) {
            let tiles = cdiv(m, BM) * cdiv(n, BN);
            let share = cdiv(cdiv(k, BK), splits) * BK;
            $($tile)* {
                let (part, tile) = (which / tiles, which % tiles);
                let matrix = part / splits;
                let (row, column) = corner::<BM, BN, GROUP>(tile, m, n);
                let first = part % splits * share;
                // On its way beside the products.
                let beside = if let Some(residual) = residual {
                    reshape(residual.load([matrix * residual_step, row, column]), [BM, BN])
                } else {
                    zeros([BM, BN])
                };
                let mut acc = zeros::<T::Acc>([BM, BN]);
                for t in (first..minimum(first + share, k)).step_by(BK) {
                    let x = if let Some(a) = a {
                        reshape(a.load([matrix * a_step, row, t]), [BM, BK])
                    } else if let Some(a) = a_down {
                        reshape(a.load([matrix * a_step, t, row]), [BK, BM]).trans()
                    } else {
                        zeros([BM, BK])
                    };
                    let y = if let Some(b) = b {
                        reshape(b.load([matrix * b_step, t, column]), [BK, BN])
                    } else if let Some(b) = b_down {
                        reshape(b.load([matrix * b_step, column, t]), [BN, BK]).trans()
                    } else {
                        zeros([BK, BN])
                    };
                    acc = if PRECISION == 0 {
                        dot(x, y, acc = acc)
                    } else if PRECISION == 1 {
                        dot(x, y, acc = acc, precision = tf32x3)
                    } else if PRECISION == 2 {
                        dot(x, y, acc = acc, precision = bf16x6)
                    } else {
                        dot(x, y, acc = acc, precision = ieee)
                    };
                }
                let (i, j) = (row + arange(0, BM)[(.., None)], column + arange(0, BN));
                if let Some(scale) = a_scale {
                    acc = acc * load(scale + i * a_scale_step, mask = i < m) as T::Acc;
                }
                if let Some(scale) = b_scale {
                    acc = acc * load(scale + j * b_scale_step, mask = j < n) as T::Acc;
                }
                if let Some(bias) = bias {
                    acc = acc + load(bias + j, mask = j < n) as T::Acc;
                }
                acc = activate::<_, _, _, ACTIVATION>(acc);
                if let Some(_beside) = residual {
                    acc = acc + beside as T::Acc;
                }
                if let Some(residual) = residual_at {
                    let at = residual + matrix as i64 * residual_strides;
                    let from = at + (i as i64 * residual_row + j as i64 * residual_column);
                    acc = acc + load(from, mask = (i < m) & (j < n)) as T::Acc;
                }
                c.store([part, row, column], reshape(acc as R, [1, BM, BN]));
            }
        }
    };
}

by_blocks! {
    /// A tile for each program.
    #[allow(unused_variables)]
    blocks, { let which = program_id(0); if BM > 0 }
}

by_blocks! {
    /// As many programs as run at the same time, each with a stride of tiles.
    resident, {
        #[warp_specialize]
        for which in (program_id(0)..parts * tiles).step_by(num_programs(0))
    }
}

/// Adds up the sums of programs that shared a product, `parts[matrix * splits + part][i][j]`.
#[kernel]
pub(in crate::products) fn finish<R: Float, const BM: usize, const BN: usize, const ACTIVATION: usize>(
    parts: Ptr<f32>,
    c: PtrMut<R>,
    a_scale: Option<Ptr<f32>>,
    b_scale: Option<Ptr<f32>>,
    bias: Option<Ptr<R>>,
    residual: Option<Ptr<R>>,
    m: i32,
    n: i32,
    splits: i32,
    c_strides: i64,
    c_row: i64,
    c_column: i64,
    residual_strides: i64,
    residual_row: i64,
    residual_column: i64,
    a_scale_step: i32,
    b_scale_step: i32,
) {
    let (across, tiles) = (cdiv(n, BN), cdiv(m, BM) * cdiv(n, BN));
    let (matrix, tile) = ((program_id(0) / tiles) as i64, program_id(0) % tiles);
    let i = tile / across * BM + arange(0, BM)[(.., None)];
    let j = tile % across * BN + arange(0, BN);
    let mask = (i < m) & (j < n);
    let mut acc = zeros::<f32>([BM, BN]);
    // Their loads are on their way together.
    #[unroll(4)]
    for part in 0..splits {
        let before = (matrix * splits as i64 + part as i64) * (m as i64 * n as i64);
        acc += load(parts + before + (i as i64 * n as i64 + j as i64), mask = mask);
    }
    if let Some(scale) = a_scale {
        acc = acc * load(scale + i * a_scale_step, mask = i < m);
    }
    if let Some(scale) = b_scale {
        acc = acc * load(scale + j * b_scale_step, mask = j < n);
    }
    if let Some(bias) = bias {
        acc = acc + load(bias + j, mask = j < n) as f32;
    }
    acc = activate::<_, _, _, ACTIVATION>(acc);
    if let Some(residual) = residual {
        let at = residual + matrix * residual_strides;
        acc = acc + load(at + (i as i64 * residual_row + j as i64 * residual_column), mask = mask) as f32;
    }
    store(c + matrix * c_strides + (i as i64 * c_row + j as i64 * c_column), acc as R, mask = mask);
}
