//! Slots take the place of what a loop loads: `shared_store %va, (load ..)` goes, and `%va` becomes a view of the
//! slot that the iteration reads.

use std::collections::{HashMap, HashSet};

use kernel_core::edit::{Result, replace_all_uses, walk_region};
use kernel_core::ir::{GpuOp, Op, OpId, RegionId, ValueId};

use super::emit::{Args, Buffers, Emit};
use super::find::Candidate;
use super::flight::Flight;
use crate::analysis::allocation::root;

impl Emit<'_> {
    /// Whether a `wgmma` reads what `cp.async` has written.
    pub(super) fn feeds_products(&self, body: RegionId) -> bool {
        let mut feeds = false;
        walk_region(self.func, body, &mut |id| {
            let operation = self.func.op(id);
            if let Op::Gpu(GpuOp::Wgmma { .. }) = operation.op {
                feeds |= operation.operands[..2].iter().any(|&factor| {
                    let alloc = root(self.func, factor);
                    let of = |candidate: &&Candidate| !candidate.is_tensor();
                    let feeding = self.found.candidates.iter().filter(of).flat_map(|candidate| &candidate.feeds);
                    alloc.is_some_and(|alloc| feeding.into_iter().any(|feed| feed.alloc == alloc))
                });
            }
        });
        feeds
    }

    /// Views of the slot take the place of allocations, and what is used in registers is read from it. Returns the
    /// operations that go.
    pub(super) fn replace_loads(
        &mut self,
        old: &[OpId],
        end: OpId,
        args: &Args,
        buffers: &Buffers,
        flight: Option<&Flight>,
    ) -> Result<HashSet<OpId>> {
        let mut gone = HashSet::new();
        for (candidate, &slots) in self.found.candidates.iter().zip(&buffers.slots) {
            let view = self.slot(candidate, slots, args.read)?;
            for feed in &candidate.feeds {
                let alloc = self.func.op(feed.alloc).results[0];
                let seen = self.seen(feed, view)?;
                replace_all_uses(self.func, alloc, seen);
                gone.extend([feed.alloc, feed.store]);
            }
            if candidate.in_registers {
                let load = &mut self.func.ops[candidate.op.index()];
                load.op = GpuOp::SharedLoad.into();
                load.operands = vec![view];
            } else {
                gone.insert(candidate.op);
            }
        }
        self.drop_unused(end, old, &mut gone);
        if !old.iter().any(|&id| !gone.contains(&id) && self.func.op(id).op == Op::Gpu(GpuOp::SharedStore)) {
            let fences = |id: &&OpId| matches!(self.func.op(**id).op, Op::Gpu(GpuOp::Fence { .. } | GpuOp::Barrier));
            gone.extend(old.iter().filter(fences));
        }
        for &wait in flight.iter().flat_map(|flight| &flight.waits) {
            let (from, to) = (self.func.op(wait).results[0], self.func.op(wait).operands[0]);
            replace_all_uses(self.func, from, to);
            gone.insert(wait);
        }
        Ok(gone)
    }

    /// What only led to operations that went goes too: rearrangements, and what is computed ahead now. Checks are among
    /// that; each iteration is checked once, ahead.
    fn drop_unused(&self, end: OpId, old: &[OpId], gone: &mut HashSet<OpId>) {
        let mut uses: HashMap<ValueId, usize> = HashMap::new();
        let mut count = |id: OpId| {
            self.func.op(id).operands.iter().for_each(|&value| *uses.entry(value).or_default() += 1);
        };
        count(end);
        for &id in old.iter().filter(|id| !gone.contains(id)) {
            count(id);
            for &region in &self.func.op(id).regions {
                walk_region(self.func, region, &mut count);
            }
        }
        for &id in old.iter().rev() {
            let operation = self.func.op(id);
            let may_go = operation.moved_operand().is_some() || self.found.slice.contains(&id);
            let unused = |value: &ValueId| uses.get(value).is_none_or(|&count| count == 0);
            if !gone.contains(&id) && may_go && operation.results.iter().all(unused) {
                gone.insert(id);
                for operand in &operation.operands {
                    uses.entry(*operand).and_modify(|count| *count -= 1);
                }
            }
        }
    }
}
