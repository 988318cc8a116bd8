//! Slots take the place of what a loop loads: `shared_store %va, (load ..)` goes, and `%va` becomes a view of the
//! slot that the iteration reads.

use std::collections::HashSet;

use kernel_core::edit::{Result, Uses, replace_all_uses, walk_region};
use kernel_core::ir::{Def, Func, GpuOp, Op, OpId, RegionId, ValueId};

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

    /// What only led to operations that went goes too: rearrangements, and what is computed ahead now, over the end of
    /// iterations too. Checks are among that; each iteration is checked once, ahead.
    fn drop_unused(&mut self, end: OpId, old: &[OpId], gone: &mut HashSet<OpId>) {
        let may_go =
            |this: &Self, id: OpId| this.func.op(id).moved_operand().is_some() || this.found.slice.contains(&id);
        let mut needed =
            Needed { func: self.func, body: old.iter().copied().collect(), ops: HashSet::new(), work: vec![] };
        old.iter().filter(|&&id| !gone.contains(&id) && !may_go(self, id)).for_each(|&id| needed.op(id));
        let yields = self.func.op(end).operands.clone();
        let results = &self.func.op(self.owner).results;
        let uses = Uses::new(self.func);
        let mut carried: Vec<bool> = results.iter().map(|&result| !uses.of(result).is_empty()).collect();
        needed.work.extend(yields.iter().zip(&carried).filter(|(_, used)| **used).map(|(&value, _)| value));
        let body = self.func.op(self.owner).regions[0];
        while let Some(value) = needed.work.pop() {
            match self.func.value(value).def {
                Def::Result(op, _) if needed.body.contains(&op) && !gone.contains(&op) => needed.op(op),
                Def::Arg(region, index) if region == body && index > 0 => {
                    if let Some(used) = carried.get_mut(index as usize - 1)
                        && !std::mem::replace(used, true)
                    {
                        needed.work.extend(yields.get(index as usize - 1));
                    }
                }
                Def::Param(_) | Def::Arg(..) | Def::Result(..) => {}
            }
        }
        let needed = needed.ops;
        gone.extend(old.iter().copied().filter(|&id| !needed.contains(&id) && may_go(self, id)));
        // What nobody needs any more is carried as it is, until dead code goes.
        for position in (0..yields.len()).filter(|&position| !carried.get(position).copied().unwrap_or(true)) {
            let same = self.func.region(body).args[1 + position];
            self.func.ops[end.index()].operands[position] = same;
        }
    }
}

/// Operations of a body that are needed, and values that they read.
struct Needed<'f> {
    func: &'f Func,
    body: HashSet<OpId>,
    ops: HashSet<OpId>,
    work: Vec<ValueId>,
}

impl Needed<'_> {
    fn op(&mut self, id: OpId) {
        if self.ops.insert(id) {
            let operation = self.func.op(id);
            self.work.extend(&operation.operands);
            for &region in &operation.regions {
                walk_region(self.func, region, &mut |inner| self.work.extend(&self.func.op(inner).operands));
            }
        }
    }
}
