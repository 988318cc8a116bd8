//! Which tiles a product with a gate is made of.

use crate::config::config;
use crate::products::tiles::filled;
use tilewright::ElementType;

config! {
    /// How [`GatedMatmul`](super::GatedMatmul) runs; sizes are rows, columns of the result, the length of sums, and 2 where
    /// products are kept, else 1.
    "gated_matmul": pub struct GatedMatmulConfig {
        /// Rows of a tile of the result.
        pub bm,
        /// Columns of a tile: of the gate, and as many of what it multiplies.
        pub bn,
        /// Elements of each sum in a step.
        pub bk,
        /// Rows of tiles that neighbouring programs go down before the next column begins.
        pub group,
        /// Warps of a program.
        pub num_warps,
        /// Steps in flight.
        pub num_stages,
    }
}

const fn of(bm: usize, bn: usize, bk: usize, num_stages: usize, num_warps: usize) -> GatedMatmulConfig {
    GatedMatmulConfig { bm, bn, bk, group: 8, num_warps, num_stages }
}

impl GatedMatmulConfig {
    /// Of so many rows, columns and multiprocessors; the compute capability of a CPU is none.
    pub(super) fn choose(
        dtype: ElementType,
        [m, n]: [usize; 2],
        capability: Option<(u32, u32)>,
        processors: usize,
    ) -> Self {
        let bk = 128 / dtype.size();
        let tiles = |bm: usize, bn: usize| m.div_ceil(bm) * n.div_ceil(bn);
        let filled = |bm: usize, bn: usize| filled(tiles(bm, bn), processors);
        match capability {
            None => of(32, 32, 32, 2, 4),
            _ if dtype == ElementType::F64 => of(32, 32, 16, 3, 4),
            _ if dtype == ElementType::F32 => of(if m <= 32 { 32 } else { 64 }, 32, 32, 3, 4),
            Some(capability) if capability < (9, 0) && m <= 32 => of(16, 64, bk, 3, 4),
            Some(capability) if capability < (9, 0) => of(64, 64, bk / 2, 3, 4),
            // Few rows or columns: memory's latency is most of the time.
            Some(_) if m <= 16 => of(16, 32, 2 * bk, 4, 4),
            Some(_) if m <= 64 || tiles(128, 128) < processors * 3 / 4 => of(64, 64, bk, 6, 4),
            Some(_) if filled(128, 64) * 0.95 > filled(128, 128) => of(128, 64, bk, 6, 4),
            Some(_) => GatedMatmulConfig { group: 16, ..of(128, 128, bk, 4, 8) },
        }
    }
}
