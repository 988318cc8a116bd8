//! What each kernel may be told. Wider than what is ever best: what does not fit a GPU is pruned without being compiled, and
//! the cost model says where to begin.

use super::Asked;
use super::visit::Tunable;
use crate::products::grouped::{GroupedConfig, Kind};
use crate::products::{GatedMatmulConfig, MatmulConfig, fp8::Fp8BlocksConfig, quantised::QuantisedConfig};
use crate::{attention, general, rows};
use tilewright::launch::Constexprs;
use tilewright::tune::Space;

/// A space of a configuration, with values for every field: one that is missing, or that there is not, does not compile.
macro_rules! space {
    ($config:ty { $($field:ident: $values:expr),+ $(,)? }) => {{
        // Never called: it names the fields.
        let _every = |config: $config| {
            type Named = $config;
            let Named { $($field: _),+ } = config;
        };
        let mut space = Space::<$config>::new();
        $(if let Some(index) = <$config>::NAMES.iter().position(|name| *name == stringify!($field)) {
            space = space.constexpr(index, ($values).into_iter().map(|value: usize| value as i64));
        })+
        space
    }};
}

/// Powers of two from one to another.
fn powers(from: usize, to: usize) -> Vec<usize> {
    std::iter::successors(Some(from), |size| size.checked_mul(2)).take_while(|size| *size <= to.max(from)).collect()
}

/// The size with this number, 1 if there is none.
fn size(asked: &Asked, index: usize) -> usize {
    asked.sizes.get(index).copied().unwrap_or(1).max(1)
}

/// Blocks of something that there is so much of: no more than one that holds all.
fn blocks(from: usize, to: usize, of: usize) -> Vec<usize> {
    powers(from, to.min(of.next_power_of_two()))
}

/// Elements of a tile that a program of so many warps has registers for.
fn fits(elements: usize, warps: usize) -> bool {
    elements <= warps * 32 * 256
}

impl Tunable for MatmulConfig {
    fn space(asked: &Asked) -> Space<Self> {
        let [m, n, k] = [1, 2, 3].map(|index| size(asked, index));
        let tiles = size(asked, 0) * m.div_ceil(128) * n.div_ceil(128);
        let few = m <= 32;
        let space = space!(MatmulConfig {
            bm: if few { vec![16, 32] } else { blocks(64, 256, m) },
            bn: blocks(if few { 32 } else { 64 }, 256, n),
            bk: blocks(32, if few { 256 } else { 128 }, k),
            // Of one row of tiles there are no groups.
            group: if m <= 256 { vec![8] } else { vec![4, 8, 16] },
            splits: if tiles < 128 { vec![1, 2, 3, 4, 6, 8, 16] } else { vec![1] },
            resident: [0, 1],
            num_warps: [4, 8],
            num_stages: [2, 3, 4, 5, 6],
        });
        space.where_(|c| fits(c.bm * c.bn, c.num_warps)).where_(|c| c.splits == 1 || c.resident == 0)
    }
}

impl Tunable for GatedMatmulConfig {
    fn space(asked: &Asked) -> Space<Self> {
        let [m, n, k] = [0, 1, 2].map(|index| size(asked, index));
        let few = m <= 32;
        let space = space!(GatedMatmulConfig {
            bm: if few { vec![16, 32] } else { blocks(64, 256, m) },
            bn: blocks(32, 128, n),
            bk: blocks(32, if few { 256 } else { 128 }, k),
            group: if m <= 256 { vec![8] } else { vec![4, 8, 16] },
            num_warps: [4, 8],
            num_stages: [2, 3, 4, 5, 6],
        });
        // Both products.
        space.where_(|c| fits(c.bm * c.bn * 2, c.num_warps))
    }
}

impl Tunable for Fp8BlocksConfig {
    fn space(asked: &Asked) -> Space<Self> {
        let space = space!(Fp8BlocksConfig {
            bm: blocks(16, 256, size(asked, 0)),
            bn: blocks(32, 128, size(asked, 1)),
            group: [4, 8, 16],
            num_warps: [4, 8],
            num_stages: [2, 3, 4, 5, 6],
        });
        space.where_(|c| fits(c.bm * c.bn, c.num_warps))
    }
}

impl Tunable for GroupedConfig {
    fn space(asked: &Asked) -> Space<Self> {
        // Gradients of weights are sums over rows, of which a step has those of a block at most.
        let (block, is_gradient) = (size(asked, 0), size(asked, 3) == Kind::Gradient as usize);
        let rows = powers(block.min(32), block.min(128));
        space!(GroupedConfig {
            bn: blocks(32, 256, size(asked, 1)),
            bk: if is_gradient { rows } else { blocks(32, 128, size(asked, 2)) },
            group: [1, 4, 8, 16],
            num_warps: [4, 8],
            num_stages: [2, 3, 4, 5, 6],
        })
    }
}

impl Tunable for QuantisedConfig {
    fn space(asked: &Asked) -> Space<Self> {
        let [m, n, k] = [0, 1, 2].map(|index| size(asked, index));
        let space = space!(QuantisedConfig {
            bm: blocks(16, 128, m),
            bn: blocks(32, 256, n),
            bk: blocks(32, 256, k),
            splits: if m <= 128 { vec![1, 2, 3, 4, 6, 8, 16] } else { vec![1] },
            num_warps: [4, 8],
            num_stages: [2, 3, 4, 5, 6],
        });
        space.where_(|c| fits(c.bm * c.bn, c.num_warps))
    }
}

impl Tunable for general::ConvConfig {
    fn space(asked: &Asked) -> Space<Self> {
        let space = space!(general::ConvConfig {
            block_m: blocks(32, 256, size(asked, 0)),
            block_n: blocks(16, 256, size(asked, 1)),
            block_k: blocks(16, 128, size(asked, 2)),
            num_warps: [4, 8],
            num_stages: [1, 2, 3, 4, 5, 6],
        });
        space.where_(|c| fits(c.block_m * c.block_n, c.num_warps))
    }
}

impl Tunable for general::ConvWeightConfig {
    fn space(asked: &Asked) -> Space<Self> {
        let space = space!(general::ConvWeightConfig {
            block_m: blocks(16, 128, size(asked, 1)),
            block_n: blocks(16, 128, size(asked, 2)),
            block_k: blocks(16, 128, size(asked, 0)),
            num_warps: [4, 8],
            num_stages: [1, 2, 3, 4, 5],
            programs: [132, 264, 528, 1056],
        });
        space.where_(|c| fits(c.block_m * c.block_n, c.num_warps))
    }
}

impl Tunable for general::SortDigitsConfig {
    fn space(_: &Asked) -> Space<Self> {
        let space = space!(general::SortDigitsConfig { block: powers(256, 1 << 13), num_warps: powers(1, 16) });
        space.where_(|c| fits(c.block, c.num_warps) && c.block >= 32 * c.num_warps)
    }
}

impl Tunable for attention::ForwardConfig {
    fn space(asked: &Asked) -> Space<Self> {
        space!(attention::ForwardConfig {
            block_q: blocks(32, 128, size(asked, 1)),
            block_k: blocks(32, 256, size(asked, 2)),
            num_warps: [4, 8],
            num_stages: [1, 2, 3, 4],
            programs: [0, 1, 2],
        })
    }
}

impl Tunable for attention::BackwardConfig {
    fn space(asked: &Asked) -> Space<Self> {
        let [queries, keys] = [1, 2].map(|index| size(asked, index));
        let space = space!(attention::BackwardConfig {
            keys_block_q: blocks(32, 128, queries),
            keys_block_k: blocks(32, 128, keys),
            queries_block_q: blocks(32, 128, queries),
            queries_block_k: blocks(32, 128, keys),
            num_warps: [4, 8],
            num_stages: [1, 2, 3],
            fused: [0, 1],
        });
        // One kernel has the blocks of that for keys alone.
        space.where_(|c| c.fused == 0 || (c.queries_block_q, c.queries_block_k) == (c.keys_block_q, c.keys_block_k))
    }
}

impl Tunable for attention::DecodeConfig {
    fn space(asked: &Asked) -> Space<Self> {
        space!(attention::DecodeConfig {
            block_rows: blocks(16, 64, size(asked, 1).max(16)),
            block_k: blocks(16, 256, size(asked, 2)),
            parts: [1, 2, 3, 4, 8, 16, 32],
            num_warps: [2, 4, 8],
            num_stages: [1, 2, 3, 4],
        })
    }
}

impl Tunable for attention::PrefillConfig {
    fn space(asked: &Asked) -> Space<Self> {
        space!(attention::PrefillConfig {
            block_rows: blocks(16, 128, size(asked, 1).max(16)),
            block_k: blocks(16, 128, size(asked, 2)),
            num_warps: [4, 8],
        })
    }
}

impl Tunable for attention::MlaConfig {
    fn space(asked: &Asked) -> Space<Self> {
        space!(attention::MlaConfig {
            block_heads: blocks(16, 128, size(asked, 1).max(16)),
            block_k: powers(16, 128),
            parts: [1, 2, 3, 4, 8, 16],
            num_warps: [4, 8],
            num_stages: [1, 2, 3, 4],
        })
    }
}

/// Pieces of rows of so many columns, up to whole ones, and warps.
macro_rules! pieces {
    ($($config:ty),+) => {$(
        impl Tunable for $config {
            fn space(asked: &Asked) -> Space<Self> {
                let space = space!($config {
                    block: blocks(256, 1 << 16, size(asked, 1)),
                    num_warps: powers(1, 32),
                });
                space.where_(|c| fits(c.block, c.num_warps) && c.block >= 32 * c.num_warps)
            }
        }
    )+};
}

pieces!(rows::SoftmaxConfig, rows::LogSoftmaxConfig, rows::CrossEntropyConfig, rows::DivergenceConfig);

impl Tunable for rows::NormConfig {
    fn space(asked: &Asked) -> Space<Self> {
        let [rows, columns] = [0, 1].map(|index| size(asked, index));
        let space = space!(rows::NormConfig {
            rows: blocks(1, 32, rows),
            block: blocks(64, 1 << 14, columns),
            num_warps: powers(1, 32),
        });
        space
            .where_(move |c| c.rows == 1 || c.block >= columns)
            .where_(|c| fits(c.rows * c.block, c.num_warps) && c.rows * c.block >= 32 * c.num_warps)
    }
}

impl Tunable for rows::NormBackwardConfig {
    fn space(asked: &Asked) -> Space<Self> {
        let [rows, columns] = [0, 1].map(|index| size(asked, index));
        let space = space!(rows::NormBackwardConfig {
            rows: blocks(1, 32, rows),
            block: blocks(64, 1 << 14, columns),
            num_warps: powers(1, 32),
            programs: [1, 2, 3, 4, 6, 8],
        });
        space
            .where_(move |c| c.rows == 1 || c.block >= columns)
            .where_(|c| fits(c.rows * c.block, c.num_warps) && c.rows * c.block >= 32 * c.num_warps)
    }
}

impl Tunable for rows::GroupNormConfig {
    fn space(asked: &Asked) -> Space<Self> {
        let space = space!(rows::GroupNormConfig {
            channels: blocks(1, 32, size(asked, 1)),
            block: blocks(32, 1 << 13, size(asked, 2)),
            num_warps: powers(1, 32),
        });
        space.where_(|c| fits(c.channels * c.block, c.num_warps) && c.channels * c.block >= 32 * c.num_warps)
    }
}

/// Elements of a program, whatever the shape.
macro_rules! flat {
    ($($config:ty),+) => {$(
        impl Tunable for $config {
            fn space(_: &Asked) -> Space<Self> {
                let space = space!($config { block: powers(256, 1 << 14), num_warps: powers(1, 16) });
                space.where_(|c| fits(c.block, c.num_warps) && c.block >= 32 * c.num_warps)
            }
        }
    )+};
}

flat!(rows::GatedConfig, rows::DropoutConfig);

impl Tunable for rows::RotaryConfig {
    fn space(asked: &Asked) -> Space<Self> {
        space!(rows::RotaryConfig {
            tokens: blocks(1, 32, size(asked, 0)),
            heads: blocks(1, 64, size(asked, 1)),
            num_warps: powers(1, 8),
        })
    }
}

impl Tunable for rows::EmbeddingConfig {
    fn space(asked: &Asked) -> Space<Self> {
        let space = space!(rows::EmbeddingConfig {
            rows: blocks(1, 32, size(asked, 0)),
            block: blocks(64, 1 << 13, size(asked, 1)),
            num_warps: powers(1, 16),
        });
        space.where_(|c| fits(c.rows * c.block, c.num_warps))
    }
}
