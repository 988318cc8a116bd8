//! Barriers between accesses to shared memory, as few as are needed.
//!
//! ```text
//! shared_store %v, %a                  shared_store %v, %a
//! shared_load %v           becomes     barrier
//! shared_store %v, %b                  shared_load %v
//!                                      barrier
//!                                      shared_store %v, %b
//! ```
//!
//! Barriers that stand in the kernel are dropped, and one is put before every access that may meet one of another
//! thread that is not ordered before it: a read after a write, a write after a read, a write after a write.
//!
//! # What is known
//!
//! - **Which bytes.** Two accesses meet if they are of one allocation, or of two that share memory, and not provably of
//!   different slots. A slot is known if its index is a constant, or a loop's rotating counter
//!   (`next = select(i + 1 == S, 0, i + 1)`): accesses of earlier iterations are then known to be of slots before it.
//! - **Which thread.** A thread that reads or copies what it wrote or copied itself, in the same layout, waits for
//!   nobody.
//! - **When it is over.** An asynchronous copy, product or tensor copy goes on until its wait, and a barrier before
//!   that does not end it. A tensor copy that a barrier with phases counts is there for all who have waited for that.
//! - **Which way it takes.** Products and tensor copies reach memory by another way (proxy) than loads and stores do. A
//!   barrier alone does not order the two: a load may still be on its way when its thread has passed the barrier, and
//!   a tensor copy behind it writes over what is read. So those who load and store pass a fence before the barrier.
//!
//! What is pending at a loop's start is what was pending before it and what its own iterations leave; at a join, what
//! either way leaves. Kernels whose warps run different code synchronise otherwise and are left alone.

mod access;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use kernel_core::edit::{Cursor, Result, walk, walk_region};
use kernel_core::ir::{ControlOp, FenceKind, Func, GpuOp, GroupPart, Op, OpId, RegionId, Span};

use crate::analysis::allocation::Allocation;

use access::{SharedUse, Slot, Stage, Views};

/// The pass's name in errors.
const PASS: &str = "membar";

/// Accesses that something may still have to wait for.
type Pending = BTreeSet<SharedUse>;

/// Runs the pass; returns the number of barriers.
///
/// # Errors
/// If the pass makes a mistake.
pub(crate) fn run(func: &mut Func) -> Result<usize> {
    let mut groups = false;
    walk(func, &mut |id| groups |= matches!(func.op(id).op, Op::Gpu(GpuOp::WarpGroups { .. })));
    if !groups {
        for region in &mut func.regions {
            let ops = std::mem::take(&mut region.ops);
            region.ops = ops.into_iter().filter(|id| func.ops[id.index()].op != Op::Gpu(GpuOp::Barrier)).collect();
        }
        let plan = Allocation::new(func);
        let views = Views::new(func);
        let body = func.body;
        let mut asynchronous = Vec::new();
        walk_region(func, body, &mut |id| {
            asynchronous.extend(views.accesses(func, id).into_iter().filter(|access| !access.ordinary));
        });
        let mut pass = Membar { func, plan, views, asynchronous, inserts: true };
        pass.region(body, &mut Pending::new())?;
    }
    let mut count = 0;
    walk(func, &mut |id| {
        count += usize::from(matches!(func.op(id).op, Op::Gpu(GpuOp::Barrier | GpuOp::WarpgroupBarrier)));
    });
    Ok(count)
}

struct Membar<'f> {
    func: &'f mut Func,
    plan: Allocation,
    views: Views,
    /// What products and tensor copies access.
    asynchronous: Vec<SharedUse>,
    /// Whether barriers are put in, or only their effect is looked at.
    inserts: bool,
}

impl Membar<'_> {
    fn region(&mut self, region: RegionId, pending: &mut Pending) -> Result<()> {
        let ops = self.func.region(region).ops.clone();
        let mut out = Vec::with_capacity(ops.len());
        for id in ops {
            self.operation(id, pending, &mut out)?;
            out.push(id);
        }
        if self.inserts {
            self.func.regions[region.index()].ops = out;
        }
        Ok(())
    }

    fn operation(&mut self, id: OpId, pending: &mut Pending, out: &mut Vec<OpId>) -> Result<()> {
        let operation = self.func.op(id).clone();
        match &operation.op {
            Op::Control(op) => {
                if *op == ControlOp::If {
                    self.settle_before(&operation.regions, pending, operation.span, out)?;
                }
                self.control(id, op, &operation.regions, pending)?;
            }
            Op::Gpu(op) => {
                for access in self.views.accesses(self.func, id) {
                    self.settle(&access, pending, operation.span, out)?;
                }
                // All of an operation's accesses are one: they do not wait for each other.
                Self::advance(op, pending);
                pending.extend(self.views.accesses(self.func, id));
                self.finish(id, op, pending);
            }
            Op::Create(_)
            | Op::Elementwise(_)
            | Op::Shape(_)
            | Op::Tile(_)
            | Op::Memory(_)
            | Op::Dot(_)
            | Op::Desc(_) => {}
        }
        Ok(())
    }

    /// Puts waits and a barrier before an access, where it meets something that is pending.
    fn settle(&mut self, access: &SharedUse, pending: &mut Pending, span: Span, out: &mut Vec<OpId>) -> Result<()> {
        let meets = |other: &SharedUse| other.conflicts(access, &self.plan);
        let flying: Vec<SharedUse> =
            pending.iter().filter(|other| !other.needs_barrier() && meets(other)).cloned().collect();
        for other in &flying {
            for wait in other.stage.waits() {
                self.emit(wait.clone(), span, out)?;
                Self::complete(&wait, pending);
            }
        }
        if pending.iter().any(|other| other.needs_barrier() && other.conflicts(access, &self.plan)) {
            self.barrier(pending, span, out)?;
        }
        Ok(())
    }

    /// Puts a barrier, and a fence before it where an asynchronous operation will meet what came before.
    fn barrier(&mut self, pending: &mut Pending, span: Span, out: &mut Vec<OpId>) -> Result<()> {
        if pending.iter().any(|access| access.needs_barrier() && self.wants_fence(access)) {
            let fence = GpuOp::Fence { kind: FenceKind::ProxyAsync };
            self.emit(fence, span, out)?;
            Self::fence(pending);
        }
        self.emit(GpuOp::Barrier, span, out)?;
        Self::pass_barrier(pending);
        Ok(())
    }

    /// Whether asynchronous operations of the kernel have to be told of an access.
    fn wants_fence(&self, access: &SharedUse) -> bool {
        self.asynchronous.iter().any(|later| access.wants_fence(later, &self.plan))
    }

    /// The threads pass a fence.
    fn fence(pending: &mut Pending) {
        let over = |access: SharedUse| match access.needs_barrier() {
            true => SharedUse { fenced: true, ..access },
            false => access,
        };
        *pending = std::mem::take(pending).into_iter().map(over).collect();
    }

    /// All threads meet: those who are done are done for all, and for asynchronous operations, too, as a fence was
    /// passed where one has to know.
    fn pass_barrier(pending: &mut Pending) {
        pending.retain(|access| !access.needs_barrier());
    }

    /// A barrier that a branch needs for what comes before it stands before both branches, so that both have it.
    fn settle_before(
        &mut self,
        regions: &[RegionId],
        pending: &mut Pending,
        span: Span,
        out: &mut Vec<OpId>,
    ) -> Result<()> {
        let mut inside = Vec::new();
        for &region in regions {
            walk_region(self.func, region, &mut |id| inside.extend(self.views.accesses(self.func, id)));
        }
        let meets = |other: &SharedUse| inside.iter().any(|access| other.conflicts(access, &self.plan));
        if pending.iter().filter(|other| other.needs_barrier()).any(meets) {
            self.barrier(pending, span, out)?;
        }
        Ok(())
    }

    fn emit(&mut self, op: GpuOp, span: Span, out: &mut Vec<OpId>) -> Result<()> {
        if self.inserts {
            Cursor::new(self.func, out, PASS).at(span).op(op, &[], &[])?;
        }
        Ok(())
    }

    /// Everything of the same kind is one group older.
    fn advance(op: &GpuOp, pending: &mut Pending) {
        let older = |access: SharedUse| SharedUse { stage: access.stage.older(op), ..access };
        // A product of own parts is in the group of the one that goes on with it. That reads the same right factor, so that it
        // does not matter whether the read of the first counts as older.
        let in_next_group = matches!(op, GpuOp::Wgmma { part: GroupPart::Own, .. });
        if !in_next_group && matches!(op, GpuOp::Wgmma { .. } | GpuOp::TmaStore { .. } | GpuOp::AsyncCommit) {
            *pending = std::mem::take(pending).into_iter().map(older).collect();
        }
    }

    /// What a wait ends is done, by the thread that waited for it.
    fn complete(op: &GpuOp, pending: &mut Pending) {
        let done = |access: SharedUse| match access.stage.is_over(op) {
            true => SharedUse { stage: Stage::Done, ..access },
            false => access,
        };
        *pending = std::mem::take(pending).into_iter().map(done).collect();
    }

    fn finish(&mut self, id: OpId, op: &GpuOp, pending: &mut Pending) {
        match op {
            GpuOp::WgmmaWait { .. } | GpuOp::AsyncWait { .. } | GpuOp::TmaStoreWait { .. } => {
                Self::complete(op, pending)
            }
            GpuOp::MbarrierWait => {
                let operands = &self.func.op(id).operands;
                let slot = self.views.slot(self.func, operands[1]);
                // All threads wait, so what has arrived is there for all.
                pending.retain(|access| match &access.stage {
                    Stage::Arriving(barrier, of) => *barrier != operands[0] || of.differs(&slot),
                    Stage::Done | Stage::Copying(_) | Stage::Multiplying(_) | Stage::Storing(_) => true,
                });
            }
            GpuOp::Barrier => Self::pass_barrier(pending),
            GpuOp::Fence { kind: FenceKind::ProxyAsync } => Self::fence(pending),
            GpuOp::SharedAlloc { .. }
            | GpuOp::SharedIndex
            | GpuOp::SharedPermute { .. }
            | GpuOp::SharedLoad
            | GpuOp::SharedStore
            | GpuOp::AsyncCopy
            | GpuOp::AsyncCommit
            | GpuOp::Fence { kind: FenceKind::BarrierInit }
            | GpuOp::WarpgroupBarrier
            | GpuOp::TurnBegin
            | GpuOp::TurnEnd
            | GpuOp::MbarrierAlloc { .. }
            | GpuOp::MbarrierArrive
            | GpuOp::Wgmma { .. }
            | GpuOp::TmaLoad
            | GpuOp::TmaStore { .. }
            | GpuOp::WarpGroups { .. }
            | GpuOp::Delay { .. }
            | GpuOp::LaunchDependents
            | GpuOp::GridWait => {}
        }
    }

    fn control(&mut self, id: OpId, op: &ControlOp, regions: &[RegionId], pending: &mut Pending) -> Result<()> {
        match op {
            ControlOp::For { .. } | ControlOp::While => self.repeat(id, regions, pending)?,
            ControlOp::If => {
                let mut after = Pending::new();
                for &region in regions {
                    let mut own = pending.clone();
                    self.region(region, &mut own)?;
                    after.extend(own);
                }
                *pending = after;
            }
            // Their regions deal in scalars.
            ControlOp::Reduce { .. }
            | ControlOp::Scan { .. }
            | ControlOp::Map { .. }
            | ControlOp::Yield
            | ControlOp::Return
            | ControlOp::Assert { .. }
            | ControlOp::Print { .. }
            | ControlOp::StaticAssert { .. } => {}
        }
        Ok(())
    }

    /// A loop, whose iterations meet what earlier ones left.
    fn repeat(&mut self, id: OpId, regions: &[RegionId], pending: &mut Pending) -> Result<()> {
        let before = pending.clone();
        let enter = |access: SharedUse| SharedUse { slot: self.views.enter(id, &access.slot), ..access };
        let mut entry: Pending = before.iter().cloned().map(enter).collect();
        let inserts = std::mem::replace(&mut self.inserts, false);
        loop {
            let mut end = entry.clone();
            self.iteration(regions, &mut end)?;
            let next: Pending = end.into_iter().map(|access| self.turned(id, access)).collect();
            if next.is_subset(&entry) {
                break;
            }
            entry.extend(next);
        }
        self.inserts = inserts;
        let mut end = entry.clone();
        self.iteration(regions, &mut end)?;
        // A `while` ends behind its condition.
        if let [condition, _] = regions {
            self.inserts = false;
            let mut left = entry.clone();
            self.region(*condition, &mut left)?;
            end.extend(left);
            self.inserts = inserts;
        }
        let leave =
            |access: SharedUse| SharedUse { slot: access.slot.left(id), stage: access.stage.left(id), ..access };
        *pending = before.into_iter().chain(end).map(leave).collect();
        Ok(())
    }

    fn iteration(&mut self, regions: &[RegionId], pending: &mut Pending) -> Result<()> {
        regions.iter().try_for_each(|&region| self.region(region, pending))
    }

    /// An access as the next iteration sees it.
    fn turned(&self, id: OpId, access: SharedUse) -> SharedUse {
        let turn = |slot: Slot| self.views.turned(id, slot);
        let stage = match access.stage {
            Stage::Arriving(barrier, slot) => Stage::Arriving(barrier, turn(slot)),
            stage @ (Stage::Done | Stage::Copying(_) | Stage::Multiplying(_) | Stage::Storing(_)) => stage,
        };
        SharedUse { slot: turn(access.slot), stage, ..access }
    }
}
