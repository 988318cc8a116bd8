//! Products with few rows, whose tiles are too few for the device: several programs share a tile, each with a part of
//! `k`.

use std::cell::RefCell;
use std::rc::Rc;

use tilewright::prelude::*;
use tilewright_bench::product::{Contender, Factor, Product};
use tilewright_bench::{Failure, Submit};

use super::tile::Tile;

/// `c = a @ b`, all row-major; axis 0 of the grid counts tiles, axis 1 the `SPLITS` parts of `k`.
///
/// Each program leaves its sums in `parts`, and the last one of a tile adds them up, always in the same order, and
/// leaves the count at zero for the next launch. `parts` has room for the tiles of all parts, `counts` for the tiles.
#[kernel]
pub fn split<T: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const SPLITS: usize>(
    a: TensorDesc<T, { [BM, BK] }>,
    b: TensorDesc<T, { [BK, BN] }>,
    c: TensorDescMut<R, { [BM, BN] }>,
    parts: PtrMut<f32>,
    counts: PtrMut<i32>,
    n: i32,
    k: i32,
) {
    let (tile, part) = (program_id(0), program_id(1));
    let i = tile / cdiv(n, BN) * BM;
    let j = tile % cdiv(n, BN) * BN;
    let share = cdiv(cdiv(k, BK), SPLITS) * BK;
    let mut acc = zeros::<f32>([BM, BN]);
    for t in (part * share..minimum(part * share + share, k)).step_by(BK) {
        acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
    }
    let within = arange(0, BM)[(.., None)] * BN + arange(0, BN);
    let (all, size) = (num_programs(0), BM * BN);
    store(parts + (part * all + tile) * size + within, acc);
    if atomic_add(counts + tile, 1) == SPLITS as i32 - 1 {
        let mut sum = zeros::<f32>([BM, BN]);
        for other in 0..SPLITS as i32 {
            sum += load(parts + (other * all + tile) * size + within);
        }
        c.store([i, j], sum as R);
        store(counts + tile, 0);
    }
}

/// What the programs of a launch share.
pub struct Shared {
    parts: Buffer<f32>,
    counts: Buffer<i32>,
}

/// Programs that share tiles, as a contender.
///
/// # Errors
/// If there is no memory.
pub fn contender<T: Factor + Float>(
    device: &Device,
    product: &Product,
    tiles: &[Tile],
) -> Result<Contender<'static, T>, Failure> {
    let product = *product;
    let room = |tile: &Tile| tile.splits * tile.programs(&product) * tile.bm * tile.bn;
    let parts = device.zeros(tiles.iter().map(room).max().unwrap_or(1))?;
    let counts = device.zeros(tiles.iter().map(|tile| tile.programs(&product)).max().unwrap_or(1))?;
    let shared = Rc::new(RefCell::new(Shared { parts, counts }));
    let mut contender = Contender::new("tilewright split");
    for tile in tiles.iter().copied() {
        let shared = shared.clone();
        contender.config(tile.to_string(), move |how, operands| {
            let (Product { m, n, k, .. }, Tile { bm, bn, bk, stages, warps, splits, .. }) = (product, tile);
            let (a, b) = (TensorDesc::new(operands.a, [m, k])?, TensorDesc::new(operands.b, [k, n])?);
            let mut c = TensorDescMut::new(operands.c.reborrow(), [m, n])?;
            let Shared { parts, counts } = &mut *shared.borrow_mut();
            let consts = SplitConsts { BM: bm, BN: bn, BK: bk, SPLITS: splits };
            let call = consts.call(&a, &b, &mut c, parts, counts, n as i32, k as i32);
            call.grid((tile.programs(&product), splits)).num_warps(warps).num_stages(stages).submit(how)
        });
    }
    Ok(contender)
}
