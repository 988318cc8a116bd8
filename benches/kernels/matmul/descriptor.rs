//! Tensor descriptors: on Hopper the hardware copies the blocks. One tile per program, or a program per
//! multiprocessor that goes on to the next tile.

use tilewright::prelude::*;
use tilewright_bench::product::{Contender, Factor, Operands, Product};
use tilewright_bench::{Failure, How, Submit};

use super::tile::Tile;

/// `c = a @ b`, all row-major, one tile per program.
#[kernel]
pub fn blocks<T: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: TensorDesc<T, { [BM, BK] }>,
    b: TensorDesc<T, { [BK, BN] }>,
    c: TensorDescMut<R, { [BM, BN] }>,
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
    c.store([i, j], acc as R);
}

/// The same with the transpose of `b` row-major.
#[kernel]
pub fn blocks_k_major<T: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: TensorDesc<T, { [BM, BK] }>,
    b: TensorDesc<T, { [BN, BK] }>,
    c: TensorDescMut<R, { [BM, BN] }>,
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
        acc = dot(a.load([i, t]), trans(b.load([j, t])), acc = acc);
    }
    c.store([i, j], acc as R);
}

/// Several products: axis 1 of the grid counts them.
#[kernel]
pub fn blocks_batched<T: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: TensorDesc<T, { [1, BM, BK] }>,
    b: TensorDesc<T, { [1, BK, BN] }>,
    c: TensorDescMut<R, { [1, BM, BN] }>,
    m: i32,
    n: i32,
    k: i32,
) {
    let (tile, wide) = (program_id(0), GROUP * cdiv(n, BN));
    let first = tile / wide * GROUP;
    let height = minimum(cdiv(m, BM) - first, GROUP);
    let i = (first + tile % wide % height) * BM;
    let j = tile % wide / height * BN;
    let matrix = program_id(1);
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (0..k).step_by(BK) {
        let x = reshape(a.load([matrix, i, t]), [BM, BK]);
        let y = reshape(b.load([matrix, t, j]), [BK, BN]);
        acc = dot(x, y, acc = acc);
    }
    c.store([matrix, i, j], reshape(acc as R, [1, BM, BN]));
}

/// `c = a @ b` by as many programs as fit on the device, each with a stride of tiles.
#[kernel]
pub fn persistent<T: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: TensorDesc<T, { [BM, BK] }>,
    b: TensorDesc<T, { [BK, BN] }>,
    c: TensorDescMut<R, { [BM, BN] }>,
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
        c.store([i, j], acc as R);
    }
}

/// The same with the transpose of `b` row-major.
#[kernel]
pub fn persistent_k_major<T: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: TensorDesc<T, { [BM, BK] }>,
    b: TensorDesc<T, { [BN, BK] }>,
    c: TensorDescMut<R, { [BM, BN] }>,
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
            acc = dot(a.load([i, t]), trans(b.load([j, t])), acc = acc);
        }
        c.store([i, j], acc as R);
    }
}

/// Several products by as many programs as fit on the device: a stride of tiles runs on from one product to the next.
#[kernel]
pub fn persistent_batched<T: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: TensorDesc<T, { [1, BM, BK] }>,
    b: TensorDesc<T, { [1, BK, BN] }>,
    c: TensorDescMut<R, { [1, BM, BN] }>,
    batch: i32,
    m: i32,
    n: i32,
    k: i32,
) {
    let (wide, all) = (GROUP * cdiv(n, BN), cdiv(m, BM) * cdiv(n, BN));
    #[warp_specialize]
    for which in (program_id(0)..batch * all).step_by(num_programs(0)) {
        let (matrix, tile) = (which / all, which % all);
        let first = tile / wide * GROUP;
        let height = minimum(cdiv(m, BM) - first, GROUP);
        let i = (first + tile % wide % height) * BM;
        let j = tile % wide / height * BN;
        let mut acc = zeros::<f32>([BM, BN]);
        for t in (0..k).step_by(BK) {
            let x = reshape(a.load([matrix, i, t]), [BM, BK]);
            let y = reshape(b.load([matrix, t, j]), [BK, BN]);
            acc = dot(x, y, acc = acc);
        }
        c.store([matrix, i, j], reshape(acc as R, [1, BM, BN]));
    }
}

/// Makes the three descriptors of matrices and launches a kernel on them.
macro_rules! launch {
    ($consts:ident, $tile:expr, $operands:expr, $product:expr, $b:expr, $grid:expr, $how:expr) => {{
        let (Product { m, n, k, .. }, Tile { bm, bn, bk, stages, warps, group, .. }) = ($product, $tile);
        let (a, b) = (TensorDesc::new($operands.a, [m, k])?, TensorDesc::new($operands.b, $b)?);
        let mut c = TensorDescMut::new($operands.c.reborrow(), [m, n])?;
        let consts = $consts { BM: bm, BN: bn, BK: bk, GROUP: group };
        let call = consts.call(&a, &b, &mut c, m as i32, n as i32, k as i32).grid($grid);
        call.num_warps(warps).num_stages(stages).submit($how)
    }};
}

/// Makes the three descriptors of several matrices each and launches a kernel on them: the persistent one if it is told
/// how many programs run at the same time.
fn batched<T: Factor + Float>(
    tile: Tile,
    product: Product,
    processors: Option<usize>,
    how: &How<'_>,
    operands: &mut Operands<'_, T>,
) -> Result<(), Failure> {
    let (Product { batch, m, n, k, .. }, Tile { bm, bn, bk, stages, warps, group, .. }) = (product, tile);
    let a = TensorDesc::new(operands.a, [batch, m, k])?;
    let b = TensorDesc::new(operands.b, [batch, k, n])?;
    let mut c = TensorDescMut::new(operands.c.reborrow(), [batch, m, n])?;
    let (tiles, [mi, ni, ki]) = (tile.programs(&product), [m, n, k].map(|size| size as i32));
    match processors {
        Some(processors) => {
            let consts = PersistentBatchedConsts { BM: bm, BN: bn, BK: bk, GROUP: group };
            let call = consts.call(&a, &b, &mut c, batch as i32, mi, ni, ki).grid(balanced(batch * tiles, processors));
            call.num_warps(warps).num_stages(stages).submit(how)
        }
        None => {
            let consts = BlocksBatchedConsts { BM: bm, BN: bn, BK: bk, GROUP: group };
            let call = consts.call(&a, &b, &mut c, mi, ni, ki).grid((tiles, batch));
            call.num_warps(warps).num_stages(stages).submit(how)
        }
    }
}

/// One tile per program, as a contender.
pub fn contender<'a, T: Factor + Float>(product: &Product, tiles: &[Tile]) -> Contender<'a, T> {
    let product = *product;
    let mut contender = Contender::new("tilewright descriptor");
    for tile in tiles.iter().copied() {
        contender.config(tile.to_string(), move |how, operands| {
            let (Product { n, k, .. }, programs) = (product, tile.programs(&product));
            if product.batch > 1 {
                batched(tile, product, None, how, operands)
            } else if T::B_K_MAJOR {
                launch!(BlocksKMajorConsts, tile, operands, product, [n, k], programs, how)
            } else {
                launch!(BlocksConsts, tile, operands, product, [k, n], programs, how)
            }
        });
    }
    contender
}

/// As few programs as take no longer than one per multiprocessor: each then has as many tiles as the others.
fn balanced(tiles: usize, processors: usize) -> usize {
    tiles.div_ceil(tiles.div_ceil(processors).max(1))
}

/// A program per multiprocessor, or a few less, as a contender.
pub fn persistent_contender<'a, T>(product: &Product, tiles: &[Tile], processors: usize) -> Contender<'a, T>
where
    T: Factor + Float,
{
    let product = *product;
    let mut contender = Contender::new("tilewright persistent");
    for tile in tiles.iter().copied() {
        contender.config(tile.to_string(), move |how, operands| {
            let (Product { n, k, .. }, programs) = (product, balanced(tile.programs(&product), processors));
            if product.batch > 1 {
                batched(tile, product, Some(processors), how, operands)
            } else if T::B_K_MAJOR {
                launch!(PersistentKMajorConsts, tile, operands, product, [n, k], programs, how)
            } else {
                launch!(PersistentConsts, tile, operands, product, [k, n], programs, how)
            }
        });
    }
    contender
}
