//! Random delays around everything that is asynchronous or waits for others, for tests:
//! [`Options::delays`](crate::Options::delays).
//!
//! ```text
//!                                    delay {seed = 2433363437, longest = 2047}
//! %w = async_wait {pending = 1}      %w = async_wait {pending = 1}
//! barrier                   becomes  delay {seed = 3203108256, longest = 2047}
//!                                    delay {seed = 4170425071, longest = 2047}
//!                                    barrier
//!                                    delay {seed = 1908508304, longest = 2047}
//! ```
//!
//! A kernel whose barriers order all that they must computes the same bits however long anything takes. One that lacks
//! some may still do so on idle hardware, where copies and warps keep step; delays put them out of step, differently
//! with each seed and at each place.
//!
//! Needs a kernel in which every barrier and every exchange has its place; nothing that is decided depends on delays.
//! They stand around whole operations: not between the messages of one tensor copy, nor inside an exchange.

use kernel_core::edit::{Cursor, Result};
use kernel_core::ir::{ControlOp, Func, GpuOp, Op, OpId, Operation, RegionId, Span};

/// The pass's name in errors.
const PASS: &str = "delays";

/// The longest delay in nanoseconds, a power of two less one.
const LONGEST: u32 = 2047;

/// Runs the pass.
///
/// # Errors
/// If the pass makes a mistake.
pub(crate) fn run(func: &mut Func, seed: u64) -> Result<()> {
    let body = func.body;
    Delays { func, seed, places: 0 }.region(body)
}

struct Delays<'f> {
    func: &'f mut Func,
    seed: u64,
    /// How many places have got one.
    places: u64,
}

impl Delays<'_> {
    fn region(&mut self, region: RegionId) -> Result<()> {
        let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        let mut out = Vec::with_capacity(ops.len());
        for id in ops {
            let operation = self.func.op(id);
            let (waits, span) = (takes_time(self.func, operation), operation.span);
            let regions = operation.regions.clone();
            if waits {
                self.delay(span, &mut out)?;
            }
            out.push(id);
            for inner in regions {
                self.region(inner)?;
            }
            if waits {
                self.delay(span, &mut out)?;
            }
        }
        self.func.regions[region.index()].ops = out;
        Ok(())
    }

    fn delay(&mut self, span: Span, out: &mut Vec<OpId>) -> Result<()> {
        self.places += 1;
        let delay = GpuOp::Delay { seed: mixed(self.seed, self.places), longest: LONGEST };
        Cursor::new(self.func, out, PASS).at(span).effect(delay, &[]).map(|_| ())
    }
}

/// The number of a place, mixed with the seed (SplitMix64).
fn mixed(seed: u64, place: u64) -> u32 {
    let mut mixed = seed.wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 32) as u32
}

/// Whether an operation begins, announces or awaits work that runs beside the threads, or makes threads meet.
fn takes_time(func: &Func, operation: &Operation) -> bool {
    let op = &operation.op;
    if let Op::Control(ControlOp::Assert { .. }) = op {
        // Threads tell each other whether it holds for their elements of a tile.
        return operation.operands.iter().any(|&value| !func.ty(value).is_scalar());
    }
    let exchanges = !operation.shared.is_empty() && !op.allocates_shared();
    exchanges || matches!(op, Op::Gpu(op) if is_asynchronous(op))
}

/// Whether an operation is asynchronous, or is there to wait.
///
/// The instructions of one `wgmma` stay together, between the delays: other code among them makes ptxas run them one
/// after the other.
fn is_asynchronous(op: &GpuOp) -> bool {
    match op {
        GpuOp::AsyncCopy
        | GpuOp::AsyncCommit
        | GpuOp::AsyncWait { .. }
        | GpuOp::Barrier
        | GpuOp::WarpgroupBarrier
        | GpuOp::TurnBegin
        | GpuOp::TurnEnd
        | GpuOp::Fence { .. }
        | GpuOp::Wgmma { .. }
        | GpuOp::WgmmaWait { .. }
        | GpuOp::MbarrierArrive
        | GpuOp::MbarrierWait
        | GpuOp::TmaLoad
        | GpuOp::TmaStore { .. }
        | GpuOp::TmaStoreWait { .. }
        | GpuOp::LaunchDependents
        | GpuOp::GridWait => true,
        GpuOp::SharedAlloc { .. }
        | GpuOp::SharedIndex
        | GpuOp::SharedPermute { .. }
        | GpuOp::SharedLoad
        | GpuOp::SharedStore
        | GpuOp::MbarrierAlloc { .. }
        | GpuOp::WarpGroups { .. }
        | GpuOp::Delay { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::mixed;

    #[test]
    fn places_and_seeds_differ() {
        let first = |seed| [1, 2, 3].map(|place| mixed(seed, place));
        let mut all = [first(1), first(2)].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
    }
}
