//! Products whose tiles are a little more than a multiple of the multiprocessors: the few that are over are shared, each by
//! several programs, which would have nothing to do otherwise. A second launch adds up their parts.
//!
//! Shared tiles go another way out than whole ones, so that both leave by tensor copies and nothing of the sums is kept
//! for later: adding them up in the same kernel takes registers and shared memory from all tiles, which cost more than
//! the sharing gained.
//!
//! Parts along `k` are equal for all tiles. Giving each program as many steps, wherever in the shared tiles these begin and
//! end ("stream-K"), took 1.02 to 1.08 times as long with a few tiles over, and 1.4 to 1.5 times with 96 of 132.

use std::cell::RefCell;
use std::rc::Rc;

use tilewright::prelude::*;
use tilewright_bench::product::{Contender, Factor, Product};
use tilewright_bench::{Failure, Submit};

use super::tile::Tile;

/// `c = a @ b`, all row-major, by as many programs as run at the same time.
///
/// Each takes as many whole tiles as all have, like in `persistent`. Before these, the tiles that are over are shared, each by
/// `splits` programs with equal parts of `k`; programs with the same part go through it at the same time, so that they
/// find each other's factors in the cache. Their sums go to `parts`, which has room for a tile of each program, one below
/// the other.
#[kernel]
pub fn even<T: Float, R: Float, const BM: usize, const BN: usize, const BK: usize, const GROUP: usize>(
    a: TensorDesc<T, { [BM, BK] }>,
    b: TensorDesc<T, { [BK, BN] }>,
    c: TensorDescMut<R, { [BM, BN] }>,
    parts: TensorDescMut<f32, { [BM, BN] }>,
    m: i32,
    n: i32,
    k: i32,
    splits: i32,
) {
    let (own, programs) = (program_id(0), num_programs(0));
    let (tiles, steps, wide) = (cdiv(m, BM) * cdiv(n, BN), cdiv(k, BK), GROUP * cdiv(n, BN));
    let over = tiles % programs;
    let first = select(own < over * splits, 0, 1);
    #[warp_specialize]
    for round in first..tiles / programs + 1 {
        let is_part = round == 0;
        let share = select(is_part, cdiv(steps, splits), steps);
        let from = select(is_part, own / maximum(over, 1) * share, 0);
        let tile = select(is_part, own % maximum(over, 1), over + own + (round - 1) * programs);
        let band = tile / wide * GROUP;
        let height = minimum(cdiv(m, BM) - band, GROUP);
        let i = (band + tile % wide % height) * BM;
        let j = tile % wide / height * BN;
        let mut acc = zeros::<f32>([BM, BN]);
        for t in (from * BK..minimum(from + share, steps) * BK).step_by(BK) {
            acc = dot(a.load([i, t]), b.load([t, j]), acc = acc);
        }
        if is_part && splits > 1 {
            parts.store([(tile * splits + own / maximum(over, 1)) * BM, 0], acc);
        } else {
            c.store([i, j], acc as R);
        }
    }
}

/// Adds up the parts of the first tiles of `c`, `ROWS` rows for each program of axis 0, those of a tile on axis 1.
#[kernel]
pub fn add_up<R: Float, const BM: usize, const BN: usize, const GROUP: usize, const ROWS: usize>(
    parts: Ptr<f32>,
    c: PtrMut<R>,
    m: i32,
    n: i32,
    splits: i32,
) {
    let (tile, wide) = (program_id(0), GROUP * cdiv(n, BN));
    let band = tile / wide * GROUP;
    let height = minimum(cdiv(m, BM) - band, GROUP);
    let rows = program_id(1) * ROWS + arange(0, ROWS)[(.., None)];
    let columns = arange(0, BN);
    let mut sum = zeros::<f32>([ROWS, BN]);
    for part in 0..splits {
        sum += load(parts + (tile * splits + part) * (BM * BN) + (rows * BN + columns));
    }
    let (i, j) = ((band + tile % wide % height) * BM + rows, tile % wide / height * BN + columns);
    store(c + (i * n + j), sum as R, mask = (i < m) & (j < n));
}

/// Programs that share a tile at most: each writes sums for all of it.
const MOST: usize = 8;

/// Rows that a program adds up.
const ROWS: usize = 8;

/// Programs that share the last tiles, as a contender.
///
/// # Errors
/// If there is no memory.
pub fn contender<T: Factor + Float>(
    device: &Device,
    product: &Product,
    tiles: &[Tile],
    processors: usize,
) -> Result<Contender<'static, T>, Failure> {
    let product = *product;
    let parts = device.zeros(tiles.iter().map(|tile| processors * tile.bm * tile.bn).max().unwrap_or(1))?;
    let parts = Rc::new(RefCell::new(parts));
    let mut contender = Contender::new("tilewright even");
    for tile in tiles.iter().copied() {
        let parts = parts.clone();
        contender.config(tile.to_string(), move |how, operands| {
            let (Product { m, n, k, .. }, Tile { bm, bn, bk, stages, warps, group, .. }) = (product, tile);
            let (a, b) = (TensorDesc::new(operands.a, [m, k])?, TensorDesc::new(operands.b, [k, n])?);
            let over = tile.programs(&product) % processors;
            let splits = processors.checked_div(over).unwrap_or(1).min(MOST);
            let [mi, ni, ki, si] = [m, n, k, splits].map(|size| size as i32);
            let parts = &mut *parts.borrow_mut();
            {
                let mut c = TensorDescMut::new(operands.c.reborrow(), [m, n])?;
                let consts = EvenConsts { BM: bm, BN: bn, BK: bk, GROUP: group };
                let height = parts.len() / bn;
                let mut parts = TensorDescMut::new(&mut *parts, [height, bn])?;
                let call = consts.call(&a, &b, &mut c, &mut parts, mi, ni, ki, si);
                call.grid(processors).num_warps(warps).num_stages(stages).submit(how)?;
            }
            if splits == 1 {
                return Ok(());
            }
            let consts = AddUpConsts { BM: bm, BN: bn, GROUP: group, ROWS };
            consts.call(&*parts, operands.c.reborrow(), mi, ni, si).grid((over, bm.div_ceil(ROWS))).submit(how)
        });
    }
    Ok(contender)
}
