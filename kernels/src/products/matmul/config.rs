//! Which tiles a product is made of.

use super::problem::Problem;
use crate::config::config;
use crate::products::Precision;
use crate::products::tiles::filled;
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
        pub splits or 0,
        /// 1 if programs stay and take tile after tile, where blocks come by descriptors.
        pub resident or 0,
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

/// What decides about tiles besides sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) dtype: ElementType,
    pub(super) precision: Precision,
    pub(super) ends: EndLoad,
}

impl Work {
    /// Whether blocks of factors must be turned in shared memory: tensor cores take those of 8-bit and 32-bit factors as they
    /// lie only if sums run along their rows.
    fn turns(&self, problem: &Problem) -> bool {
        self.dtype.size() != 2 && (problem.a[2] != 1 || problem.b[1] != 1)
    }

    /// What the rule looks at besides sizes, as tables call it.
    pub(super) fn name(&self, problem: &Problem) -> &'static str {
        match (self.dtype, self.precision, self.turns(problem), self.ends) {
            (ElementType::F32, Precision::Ieee, ..) => "ieee",
            (ElementType::F32, Precision::Tf32x3, ..) => "tf32x3",
            (ElementType::F32, Precision::Bf16x6, ..) => "bf16x6",
            (_, _, false, EndLoad::Light) => "",
            (_, _, false, EndLoad::Several) => "two ends",
            (_, _, false, EndLoad::Heavy) => "many ends",
            (_, _, true, EndLoad::Light) => "turned",
            (_, _, true, EndLoad::Several) => "turned, two ends",
            (_, _, true, EndLoad::Heavy) => "turned, many ends",
        }
    }
}

/// What the end of a product takes of the registers that large tiles leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndLoad {
    /// One operation on the sums at most.
    Light,
    /// Two: warps that take tiles in turns have no registers for them.
    Several,
    /// More, or a residual, of which a whole tile is read at once: the widest tiles have none either, and no shared memory.
    Heavy,
}

impl EndLoad {
    /// Of so many operations on the sums, and a residual or none.
    pub(super) fn of(operations: usize, residual: bool) -> EndLoad {
        match operations {
            _ if residual => EndLoad::Heavy,
            0..=1 => EndLoad::Light,
            2 => EndLoad::Several,
            _ => EndLoad::Heavy,
        }
    }
}

/// The GPU that decides about tiles: its compute capability, none of a CPU, and its multiprocessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) capability: Option<(u32, u32)>,
    pub(super) processors: usize,
}

impl Machine {
    /// Whether blocks of tensors can be copied by the hardware: the CPU does as if.
    pub(super) fn has_copies(&self) -> bool {
        self.capability.is_none_or(|capability| capability >= (9, 0))
    }

    pub(super) fn of(device: &Device) -> Machine {
        Machine { capability: device.compute_capability(), processors: device.multiprocessor_count() }
    }
}

impl MatmulConfig {
    /// The tiles of a result.
    pub(super) fn tiles(&self, problem: &Problem) -> usize {
        problem.m.div_ceil(self.bm) * problem.n.div_ceil(self.bn) * problem.batch
    }

    /// What was fastest on an H100 for sizes like these (`benches/results/matmul.md`); of smaller GPUs what fits.
    pub(super) fn choose(problem: &Problem, work: Work, machine: Machine) -> Self {
        let Work { dtype, precision, ends } = work;
        let bytes = dtype.size();
        let chosen = match machine.capability {
            None => once(32, 32, 32, 2, 4),
            _ if dtype == ElementType::F64 => once(64, 64, 16, 3, 4),
            _ if dtype == ElementType::F32 && precision != Precision::Tf32 => Self::exact(problem, precision),
            Some(capability) if capability < (9, 0) => Self::older(problem, 64 / bytes),
            // What is turned leaves less shared memory for steps in flight.
            Some(_) if work.turns(problem) => {
                let config = Self::hopper_heavy(problem, 128 / bytes, machine);
                MatmulConfig { num_stages: config.num_stages.min(3), ..config }
            }
            Some(_) if ends == EndLoad::Heavy => Self::hopper_heavy(problem, 128 / bytes, machine),
            Some(_) => Self::hopper(problem, 128 / bytes, ends, machine),
        };
        let splits = if dtype == ElementType::F64 { 1 } else { chosen.most_splits(problem, machine) };
        MatmulConfig { splits, ..chosen }
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

    /// Few rows or columns: memory's latency is most of the time. `bk` is 128 bytes, which a row of a block in shared
    /// memory has.
    fn hopper_few(problem: &Problem, bk: usize, processors: usize) -> Option<Self> {
        let &Problem { m, n, .. } = problem;
        if m <= 16 {
            Some(staying(16, 64, 2 * bk, 4, 4))
        } else if m <= 64 {
            Some(once(64, if n <= 64 { 64 } else { 128 }, bk, 6, 4))
        } else if n <= 64 {
            Some(once(128, 64, bk, 6, 4))
        } else if m <= 128 || once(128, 128, bk, 1, 4).tiles(problem) < processors * 3 / 4 {
            Some(once(64, 128, 2 * bk, 4, 4))
        } else {
            None
        }
    }

    fn hopper_heavy(problem: &Problem, bk: usize, machine: Machine) -> Self {
        Self::hopper_few(problem, bk, machine.processors).unwrap_or(staying(128, 128, bk, 4, 8))
    }

    fn hopper(problem: &Problem, bk: usize, ends: EndLoad, machine: Machine) -> Self {
        if let Some(few) = Self::hopper_few(problem, bk, machine.processors) {
            return few;
        }
        // Two groups of warps that take tiles in turns hide how results are written, which is much of the time of short
        // sums; larger tiles read less.
        let turns = ends == EndLoad::Light;
        let square = if turns { staying(128, 128, bk, 6, 4) } else { staying(128, 128, bk, 4, 8) };
        let wide = MatmulConfig { group: 16, ..staying(128, 256, bk, if bk == 128 { 3 } else { 4 }, 8) };
        let gain = if problem.k <= 1024 { 1.05 } else { 0.95 };
        let share = |config: &Self| filled(config.tiles(problem), machine.processors);
        if share(&square) * gain > share(&wide) { square } else { wide }
    }

    /// How many programs share a tile: as many as find a multiprocessor, if each then has some steps to take. Sharing
    /// writes and reads sums once more, which does not pay where a third of the multiprocessors works anyway.
    fn most_splits(&self, problem: &Problem, machine: Machine) -> usize {
        let (tiles, steps) = (self.tiles(problem).max(1), problem.k.div_ceil(self.bk));
        if tiles * 3 > machine.processors || machine.capability.is_none() {
            return 1;
        }
        (machine.processors / tiles).min(steps / 4).clamp(1, 16)
    }
}
