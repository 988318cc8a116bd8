//! Which tiles a product is made of.

use super::problem::Problem;
use crate::config::config;
use crate::products::Precision;
use tilewright::{Device, ElementType};

config! {
    /// How [`matmul`](super::matmul) runs; sizes are the number of products, rows, columns and the length of sums.
    "matmul": pub struct MatmulConfig {
        /// Rows of a tile of the result.
        pub bm,
        /// Columns of a tile.
        pub bn,
        /// Elements of each sum in a step.
        pub bk,
        /// Rows of tiles that neighbouring programs go down before the next column begins.
        pub group,
        /// Programs that share a tile, each with a part of the sums.
        pub splits,
        /// 1 if programs stay and take tile after tile, where blocks come by descriptors.
        pub resident,
        /// Warps of a program.
        pub num_warps,
        /// Steps in flight.
        pub num_stages,
    }
}

/// One tile per program.
const fn once(bm: usize, bn: usize, bk: usize, num_stages: usize, num_warps: usize) -> MatmulConfig {
    MatmulConfig { bm, bn, bk, group: 8, splits: 1, resident: 0, num_warps, num_stages }
}

/// Programs that stay.
const fn staying(bm: usize, bn: usize, bk: usize, num_stages: usize, num_warps: usize) -> MatmulConfig {
    MatmulConfig { resident: 1, ..once(bm, bn, bk, num_stages, num_warps) }
}

/// The share of a device's time that tiles fill, when each multiprocessor takes one at a time.
fn filled(tiles: usize, processors: usize) -> f64 {
    tiles as f64 / (tiles.div_ceil(processors).max(1) * processors) as f64
}

impl MatmulConfig {
    /// The tiles of a result.
    pub(super) fn tiles(&self, problem: &Problem) -> usize {
        problem.m.div_ceil(self.bm) * problem.n.div_ceil(self.bn) * problem.batch
    }

    /// What was fastest on an H100 for sizes like these (`benches/results/matmul.md`); of smaller GPUs what fits.
    pub(super) fn choose(problem: &Problem, dtype: ElementType, precision: Precision, device: &Device) -> Self {
        let chosen = match device.compute_capability() {
            None => once(32, 32, 32, 2, 4),
            _ if dtype == ElementType::F64 => once(64, 64, 16, 3, 4),
            _ if dtype == ElementType::F32 && precision != Precision::Tf32 => Self::exact(problem, precision),
            Some(capability) if capability < (9, 0) => Self::older(problem, 64 / dtype.size()),
            Some(_) => Self::hopper(problem, 128 / dtype.size(), device.multiprocessor_count()),
        };
        let most = if dtype == ElementType::F64 { 1 } else { chosen.most_splits(problem, device) };
        MatmulConfig { splits: most, ..chosen }
    }

    /// Factors of f32 that are split into terms, or multiplied as they are.
    fn exact(problem: &Problem, precision: Precision) -> Self {
        let height = if problem.m <= 32 { 32 } else { 64 };
        if precision == Precision::Ieee { once(height, 64, 16, 3, 4) } else { once(height, 64, 32, 3, 4) }
    }

    /// GPUs with as little as 99 KiB of shared memory.
    fn older(problem: &Problem, bk: usize) -> Self {
        if problem.m <= 32 {
            once(16, 64, 2 * bk, 4, 4)
        } else if problem.m <= 64 || problem.n <= 64 {
            once(64, 64, bk, 4, 4)
        } else {
            once(128, 128, bk, 3, 8)
        }
    }

    /// `bk` is 128 bytes, which is what a row of a block in shared memory has.
    fn hopper(problem: &Problem, bk: usize, processors: usize) -> Self {
        let &Problem { m, n, k, .. } = problem;
        if m <= 16 {
            return staying(16, 64, 2 * bk, 4, 4);
        }
        if m <= 64 {
            return once(64, if n <= 64 { 64 } else { 128 }, bk, 6, 4);
        }
        if n <= 64 {
            return once(128, 64, bk, 6, 4);
        }
        let square = staying(128, 128, bk, 6, 4);
        let tiles = square.tiles(problem);
        if tiles < processors * 3 / 4 || m <= 128 {
            return once(64, 128, 2 * bk, 4, 4);
        }
        // Two groups of warps that take tiles in turns hide how results are written, which is much of the time of short
        // sums; larger tiles read less.
        let wide = MatmulConfig { group: 16, ..staying(128, 256, bk, if bk == 128 { 3 } else { 4 }, 8) };
        let gain = if k <= 1024 { 1.05 } else { 0.95 };
        let better = filled(tiles, processors) * gain > filled(wide.tiles(problem), processors);
        if better { square } else { wide }
    }

    /// How many programs share a tile: as many as find a multiprocessor, if each then has some steps to take. Sharing
    /// writes and reads sums once more, which does not pay where a third of the multiprocessors works anyway.
    fn most_splits(&self, problem: &Problem, device: &Device) -> usize {
        let (tiles, steps) = (self.tiles(problem).max(1), problem.k.div_ceil(self.bk));
        let processors = device.multiprocessor_count();
        if tiles * 3 > processors || !device.is_cuda() {
            return 1;
        }
        (processors / tiles).min(steps / 4).clamp(1, 16)
    }
}
