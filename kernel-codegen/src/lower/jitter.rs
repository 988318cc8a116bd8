//! Random delays around everything that is asynchronous, for tests: [`Options::jitter`](crate::Options::jitter).
//!
//! ```text
//! nanosleep   cp.async.commit_group   nanosleep   ..   nanosleep   mbarrier.try_wait   nanosleep
//! ```
//!
//! A kernel whose barriers order all that they must computes the same bits however long anything takes. One that lacks
//! some may still do so on idle hardware, where copies and warps keep step; delays put them out of step, differently
//! with each seed.
//!
//! All lanes of a warp sleep equally long, so that they stay together for what warps do together. Half of the delays
//! are none: warps then meet both those that hurry and those that lag.

use std::cell::Cell;

use kernel_core::ir::GpuOp;
use kernel_llvm::AsmEffects;

use super::{Lower, Result};

/// The longest delay in nanoseconds, a power of two less one.
const LONGEST: u32 = 2047;

/// Where delays come from.
pub(super) struct Jitter {
    seed: Option<u64>,
    /// How many places have got one.
    sites: Cell<u64>,
}

impl Jitter {
    pub(super) fn new(seed: Option<u64>) -> Jitter {
        Jitter { seed, sites: Cell::new(0) }
    }

    /// The number of the next place, mixed with the seed (SplitMix64); `None` where there are no delays.
    fn next(&self) -> Option<u32> {
        let seed = self.seed?;
        let site = self.sites.get() + 1;
        self.sites.set(site);
        let mut mixed = seed.wrapping_add(site.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some((mixed >> 32) as u32)
    }
}

impl Lower<'_, '_> {
    /// Emits an operation between two delays, if it is asynchronous or waits for something. Barriers of threads have
    /// their own, as the lowering adds some.
    pub(super) fn jittered(&mut self, op: &GpuOp, emit: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let is_around = is_asynchronous(op);
        if is_around {
            self.jitter();
        }
        emit(self)?;
        if is_around {
            self.jitter();
        }
        Ok(())
    }

    /// A delay, in builds that have them: a hash of the seed and the place, of the warp's number and of the clock, which
    /// differs from trip to trip of a loop.
    pub(super) fn jitter(&self) {
        let Some(site) = self.jitter.next() else { return };
        let assembly = format!(
            "{{\n\t.reg .b32 mixed, time;\n\
             \tmov.u32 mixed, %tid.x;\n\tshr.u32 mixed, mixed, 5;\n\
             \tmov.u32 time, %clock;\n\txor.b32 time, time, {site};\n\
             \tmad.lo.u32 time, mixed, 0x9e3779b1, time;\n\tmul.lo.u32 time, time, 0x85ebca6b;\n\
             \tshr.u32 mixed, time, 13;\n\txor.b32 time, time, mixed;\n\tmul.lo.u32 time, time, 0xc2b2ae35;\n\
             \tshr.u32 mixed, time, 16;\n\txor.b32 time, time, mixed;\n\
             \tshr.s32 mixed, time, 31;\n\tand.b32 time, time, mixed;\n\tand.b32 time, time, {LONGEST};\n\
             \tnanosleep.u32 time;\n}}"
        );
        self.ir.asm(&[], &assembly, "", &[], AsmEffects::ConvergentMemory);
    }
}

/// Whether an operation begins, announces or awaits work that runs beside the threads.
///
/// The instructions of one `wgmma` stay together, between the delays: other code among them makes ptxas run them one
/// after the other.
fn is_asynchronous(op: &GpuOp) -> bool {
    match op {
        GpuOp::AsyncCopy
        | GpuOp::AsyncCommit
        | GpuOp::AsyncWait { .. }
        | GpuOp::Fence { .. }
        | GpuOp::Wgmma { .. }
        | GpuOp::WgmmaWait { .. }
        | GpuOp::BarrierArrive
        | GpuOp::BarrierWait
        | GpuOp::TmaLoad
        | GpuOp::TmaStore { .. }
        | GpuOp::TmaStoreWait { .. } => true,
        GpuOp::SharedAlloc { .. }
        | GpuOp::SharedIndex
        | GpuOp::SharedPermute { .. }
        | GpuOp::SharedLoad
        | GpuOp::SharedStore
        | GpuOp::Barrier
        | GpuOp::GroupBarrier
        | GpuOp::BarrierAlloc { .. }
        | GpuOp::WarpGroups { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::Jitter;

    #[test]
    fn places_and_seeds_differ() {
        let first = |seed| {
            let jitter = Jitter::new(Some(seed));
            [jitter.next(), jitter.next(), jitter.next()]
        };
        let (one, two) = (first(1), first(2));
        let mut all: Vec<_> = one.into_iter().chain(two).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
        assert!(all.iter().all(Option::is_some));
        assert_eq!(one, first(1));
        assert_eq!(Jitter::new(None).next(), None);
    }
}
