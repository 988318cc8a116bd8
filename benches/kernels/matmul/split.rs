//! Products with few rows, whose tiles are too few for the device: several programs share a tile, each with a part of
//! `k`.

use std::cell::RefCell;
use std::rc::Rc;

use tilewright::prelude::*;
use tilewright_bench::product::{Contender, Factor, Product};
use tilewright_bench::{Failure, Submit};

use super::Tile;

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

/// Tiles and how many programs share each.
const CHECKED: [(Tile, usize); 2] = [(super::tile(32, 32, 16, 2, 4), 2), (super::tile(64, 32, 32, 3, 4), 3)];
#[rustfmt::skip]
const CONFIGS: [(Tile, usize); 14] = [
    (super::tile(16, 64, 128, 4, 4), 2), (super::tile(16, 128, 128, 4, 4), 2), (super::tile(16, 128, 64, 6, 4), 2),
    (super::tile(16, 128, 128, 4, 8), 4), (super::tile(64, 64, 128, 4, 4), 2), (super::tile(64, 128, 64, 6, 4), 2),
    (super::tile(64, 128, 128, 4, 4), 2), (super::tile(64, 256, 64, 4, 4), 4), (super::tile(64, 256, 64, 4, 8), 4),
    (super::tile(128, 128, 64, 5, 4), 2), (super::tile(128, 128, 64, 5, 8), 2), (super::tile(128, 128, 128, 3, 8), 2),
    (super::tile(128, 256, 64, 3, 8), 4), (super::tile(128, 128, 64, 5, 8), 4),
];

/// Programs that share tiles, as a contender.
///
/// # Errors
/// If there is no memory.
pub fn contender<T: Factor + Float>(
    device: &Device,
    product: &Product,
    check: bool,
) -> Result<Contender<'static, T>, Failure> {
    let product = *product;
    let all = if check { CHECKED.to_vec() } else { CONFIGS.to_vec() };
    let configs: Vec<(Tile, usize)> = all.into_iter().filter(|(tile, _)| tile.bm <= product.m.max(64)).collect();
    let room = |(tile, splits): &(Tile, usize)| splits * tile.programs(&product) * tile.bm * tile.bn;
    let parts = device.zeros(configs.iter().map(room).max().unwrap_or(1))?;
    let counts = device.zeros(configs.iter().map(|(tile, _)| tile.programs(&product)).max().unwrap_or(1))?;
    let shared = Rc::new(RefCell::new(Shared { parts, counts }));
    let mut contender = Contender::new("tilewright split");
    for (tile, splits) in configs {
        let shared = shared.clone();
        contender.config(format!("{tile} splits={splits}"), move |how, operands| {
            let (Product { m, n, k, .. }, Tile { bm, bn, bk, stages, warps }) = (product, tile);
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
