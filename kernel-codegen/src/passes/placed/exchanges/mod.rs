//! Places for what threads pass each other, and the barriers that this and global memory take.
//!
//! ```text
//! %b = convert_layout %a                  %b = convert_layout %a in shared [0..8192]
//! %s = reduce %b ..            becomes    %s = reduce %b .. in shared [8192..8208]
//! store %p, %s                            store %p, %s
//! %c = load %p                            barrier
//!                                         %c = load %p
//! ```
//!
//! Allocations and exchanges get their bytes of shared memory; [`crate::analysis::exchange`] says what exchanges.
//! Barriers between the kernel's own accesses to shared memory are there already ([`super::membar`]), and go again where an
//! exchange does for them: behind one at which all threads meet, with nothing between, not even a fence, but what they compute
//! alone. This pass walks
//! through the kernel once and puts barriers where an access to global memory has to wait for another thread's
//! ([`global`]), and where bytes are written that may still be read ([`scratch`]). Each barrier settles both.

mod block;
mod global;
mod scratch;

use std::collections::BTreeSet;

use kernel_core::ir::{
    ControlOp, Cost, FenceKind, Func, GpuOp, MemOrder, MemoryOp, Op, OpId, Operation, RegionId, SharedRange, Span,
};
use kernel_core::layout::SyncScope;

use super::stored_blocks;
use crate::analysis::allocation::{Allocation, root};
use crate::analysis::axis::AxisAnalysis;
use crate::analysis::exchange::{Exchanges, Threads, shared_bytes};
use crate::analysis::warp_groups::{block_warps, groups_of};
use crate::error::CodegenError;
use global::Global;
use kernel_core::edit::{self, Cursor, Place, splice, walk};
use kernel_core::target::Target;
use scratch::Scratch;

/// The pass's name in errors.
const PASS: &str = "exchanges";

/// Runs the pass over a kernel with tiles in so many warps.
///
/// # Errors
/// If the layouts of an operation do not allow what it does.
pub(crate) fn run(func: &mut Func, axis: &AxisAnalysis, target: Target, num_warps: u32) -> Result<(), CodegenError> {
    let plan = Allocation::new(func);
    let exchanges = Exchanges::new(func, target, num_warps);
    let filled = filled_by_copies(func);
    let (body, threads) = (func.body, Threads::Program(block_warps(func, num_warps)));
    let scratch = Scratch::beside(plan.bytes(), target.max_shared_bytes());
    let mut pass =
        Pass { func, axis, exchanges, plan, filled, scratch, global: Global::default(), threads, met: false };
    pass.region(body)?;
    pass.begin()?;
    fits(func, target)
}

/// An error if a kernel takes more shared memory than there is.
fn fits(func: &Func, target: Target) -> Result<(), CodegenError> {
    let needed = shared_bytes(func);
    if needed <= target.max_shared_bytes() {
        return Ok(());
    }
    let mut last: Option<(u32, Span)> = None;
    walk(func, &mut |id| {
        let operation = func.op(id);
        let end = operation.shared.iter().map(|range| range.end).max();
        if let Some(end) = end.filter(|&end| last.is_none_or(|(most, _)| end > most)) {
            last = Some((end, operation.span));
        }
    });
    let span = last.map_or(Span::UNKNOWN, |(_, span)| span);
    let error = CodegenError::refuse(func, span, format!("bytes of shared memory on {}", target.name()));
    let error = error.amounts(u64::from(needed), u64::from(target.max_shared_bytes()));
    Err(error.help(stored_blocks::help(func, target).unwrap_or_else(|| "use smaller tiles".to_string())))
}

/// The allocations that a tensor copy brings something into.
fn filled_by_copies(func: &Func) -> BTreeSet<OpId> {
    let mut filled = BTreeSet::new();
    walk(func, &mut |id| {
        let operation = func.op(id);
        if operation.op == Op::Gpu(GpuOp::TmaLoad) {
            filled.extend(root(func, operation.operands[1]));
        }
    });
    filled
}

struct Pass<'f> {
    func: &'f mut Func,
    axis: &'f AxisAnalysis,
    exchanges: Exchanges,
    plan: Allocation,
    filled: BTreeSet<OpId>,
    scratch: Scratch,
    global: Global,
    /// Who runs the code.
    threads: Threads,
    /// Whether all threads have met in an exchange, and have only computed since.
    met: bool,
}

impl Pass<'_> {
    fn region(&mut self, region: RegionId) -> Result<(), CodegenError> {
        let ops = self.func.region(region).ops.clone();
        let mut out = Vec::with_capacity(ops.len());
        for id in ops {
            self.operation(id, &mut out)?;
        }
        self.func.regions[region.index()].ops = out;
        Ok(())
    }

    /// Barriers with phases are made where the kernel begins: copies have to know of them, and all threads.
    fn begin(&mut self) -> edit::Result<()> {
        let mut phases = false;
        walk(self.func, &mut |id| {
            phases |= matches!(self.func.op(id).op, Op::Gpu(GpuOp::MbarrierAlloc { .. }));
        });
        let fence = Op::Gpu(GpuOp::Fence { kind: FenceKind::BarrierInit });
        let first = self.func.region(self.func.body).ops.first();
        if phases && first.is_none_or(|&first| self.func.op(first).op != fence) {
            let mut ops = Vec::new();
            let mut cursor = Cursor::new(self.func, &mut ops, PASS);
            cursor.effect(fence, &[])?;
            cursor.effect(GpuOp::Barrier, &[])?;
            let body = self.func.body;
            splice(self.func, Place::Start(body), ops);
        }
        Ok(())
    }

    fn operation(&mut self, id: OpId, out: &mut Vec<OpId>) -> Result<(), CodegenError> {
        self.scratch.rebase(self.plan.free_above(id));
        let operation = self.func.op(id).clone();
        let op = &operation.op;
        if *op == Op::Gpu(GpuOp::Barrier) && self.met {
            return Ok(());
        }
        // A barrier behind a fence tells all threads that it is done.
        self.met &= match op {
            Op::Control(ControlOp::If | ControlOp::Yield) => true,
            Op::Gpu(GpuOp::Fence { .. }) => false,
            _ => matches!(op.cost(), Cost::Free | Cost::Arithmetic | Cost::Exchange),
        };
        if op.is_loop() {
            self.repeat(&operation.regions)?;
        } else if let Op::Control(ControlOp::If) = op {
            self.branch(&operation.regions)?;
        } else if let Op::Control(ControlOp::Assert { .. }) = op {
            if self.threads.meetings(self.func, &operation) > 0 {
                self.settled();
            }
        } else if let Op::Gpu(op) = op {
            self.gpu(id, op, &operation, out)?;
        } else if let Op::Memory(MemoryOp::AtomicRmw { order, .. } | MemoryOp::AtomicCas { order, .. }) = op {
            return self.atomic(id, *order, operation.span, out);
        }
        self.touch(id, operation.span, out)?;
        self.exchange(id)?;
        out.push(id);
        Ok(())
    }

    fn gpu(&mut self, id: OpId, op: &GpuOp, operation: &Operation, out: &mut Vec<OpId>) -> Result<(), CodegenError> {
        // All others use views, which `membar` sees to.
        if operation.op.allocates_shared() {
            self.allocate(id, operation.span, out)?;
        } else if let GpuOp::Barrier = op {
            self.settled();
        } else if let GpuOp::WarpgroupBarrier = op {
            if !self.threads.has_group_barriers() {
                self.settled();
            }
        } else if let GpuOp::Fence { kind: FenceKind::ProxyAsync } = op {
            self.scratch.fenced();
        } else if let GpuOp::WarpGroups { .. } = op {
            self.groups(operation)?;
        }
        Ok(())
    }

    /// Bytes for an allocation. What was passed through them may still be read, by loads that a tensor copy overtakes
    /// if only a barrier stands between.
    fn allocate(&mut self, id: OpId, span: Span, out: &mut Vec<OpId>) -> edit::Result<()> {
        let Some(place) = self.plan.place(id) else { return Ok(()) };
        self.func.ops[id.index()].shared = vec![SharedRange::new(place.start, place.end)];
        if matches!(self.func.op(id).op, Op::Gpu(GpuOp::MbarrierAlloc { .. })) {
            return Ok(());
        }
        if self.scratch.is_unfenced(&place) && self.filled.contains(&id) {
            self.emit(GpuOp::Fence { kind: FenceKind::ProxyAsync }, span, out)?;
            self.scratch.fenced();
            self.barrier(span, out)?;
        } else if self.scratch.is_read(&place) {
            self.barrier(span, out)?;
        }
        Ok(())
    }

    /// What other threads do to the memory that an operation accesses comes before it.
    fn touch(&mut self, id: OpId, span: Span, out: &mut Vec<OpId>) -> edit::Result<()> {
        if let Some(touched) = self.global.touch(self.func, self.axis, id) {
            if touched.waits {
                self.barrier(span, out)?;
            }
            self.global.note(touched);
        }
        Ok(())
    }

    /// Who releases has all threads' accesses behind it, who acquires has them before it.
    fn atomic(&mut self, id: OpId, order: MemOrder, span: Span, out: &mut Vec<OpId>) -> Result<(), CodegenError> {
        // Before the access is noted: a barrier settles what is noted, and this access comes behind it.
        if matches!(order, MemOrder::Release | MemOrder::AcqRel) {
            self.barrier(span, out)?;
        }
        self.touch(id, span, out)?;
        self.exchange(id)?;
        out.push(id);
        // Passing on what was there takes a barrier itself.
        let passes_on = !self.func.op(id).shared.is_empty();
        if matches!(order, MemOrder::Acquire | MemOrder::AcqRel) && !passes_on {
            self.barrier(span, out)?;
        }
        Ok(())
    }

    /// Bytes for what an operation passes on.
    fn exchange(&mut self, id: OpId) -> Result<(), CodegenError> {
        // What the program has anyway costs nothing.
        let steps = self.exchanges.of(self.func, id, self.threads, self.scratch.spare())?;
        let mut ranges = Vec::with_capacity(steps.len());
        for step in steps {
            // Votes are counted by the barrier: nothing is written that others may read.
            let (start, meets) = match step.bytes {
                0 => (0, false),
                bytes => self.scratch.take(bytes),
            };
            if meets || step.scope == SyncScope::Block {
                self.settled();
                self.met = true;
            }
            let end = start + step.bytes;
            if start < end {
                self.scratch.reading(start..end);
            }
            ranges.push(SharedRange { start, end, scope: step.scope, passes: step.passes, meets });
        }
        if !ranges.is_empty() || !self.func.op(id).op.allocates_shared() {
            self.func.ops[id.index()].shared = ranges;
        }
        Ok(())
    }

    /// A loop: what is pending before its body may be pending there in each iteration, and so may what the body does.
    fn repeat(&mut self, regions: &[RegionId]) -> Result<(), CodegenError> {
        let (global, scratch) = (self.global.clone(), self.scratch.clone());
        self.global.enter_loop(self.func, self.axis, regions);
        let around = self.scratch.enter_loop();
        let mut at_exit = None;
        // A `while` ends behind its condition.
        if let [condition, _] = regions {
            self.region(*condition)?;
            at_exit = Some((self.global.clone(), self.scratch.clone()));
        }
        if let Some(&body) = regions.last() {
            self.met = false;
            self.region(body)?;
            self.met = false;
            if self.scratch.blocks_next_iteration() {
                self.barrier_at_end(body)?;
            }
        }
        self.scratch.leave_body(around);
        if let Some((global, scratch)) = at_exit {
            self.global.join(&global);
            self.scratch.join(&scratch);
        }
        // It may not have run at all.
        self.global.join(&global);
        if self.scratch.uses() == scratch.uses() {
            self.scratch.rewind(&scratch);
        } else {
            self.scratch.join(&scratch);
        }
        Ok(())
    }

    fn branch(&mut self, regions: &[RegionId]) -> Result<(), CodegenError> {
        let (global, scratch, met) = (self.global.clone(), self.scratch.clone(), self.met);
        let mut first: Option<(Global, Scratch)> = None;
        // Whether all threads have met, and have only computed since, whichever way they came.
        let mut each = true;
        for &region in regions {
            self.global.clone_from(&global);
            self.scratch.rewind(&scratch);
            self.met = met;
            self.region(region)?;
            each &= self.met;
            if let Some((global, scratch)) = &first {
                self.global.join(global);
                self.scratch.join(scratch);
            }
            first = Some((self.global.clone(), self.scratch.clone()));
        }
        self.met = each;
        Ok(())
    }

    fn groups(&mut self, operation: &Operation) -> Result<(), CodegenError> {
        let (global, scratch) = (self.global.clone(), self.scratch.clone());
        let (mut global_after, mut scratch_after) = (global.clone(), scratch.clone());
        for (group, region) in groups_of(operation) {
            self.global.clone_from(&global);
            self.scratch.rewind(&scratch);
            let outer = std::mem::replace(&mut self.threads, group.into());
            self.met = false;
            self.region(region)?;
            self.met = false;
            self.threads = outer;
            self.scratch.beside_others();
            global_after.join(&self.global);
            scratch_after.join(&self.scratch);
        }
        self.global = global_after;
        self.scratch.rewind(&scratch_after);
        Ok(())
    }

    fn barrier(&mut self, span: Span, out: &mut Vec<OpId>) -> edit::Result<()> {
        self.emit(GpuOp::Barrier, span, out)?;
        self.settled();
        Ok(())
    }

    /// A barrier behind everything else in a region.
    fn barrier_at_end(&mut self, region: RegionId) -> edit::Result<()> {
        let mut ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        let end = ops.pop();
        let span = end.map_or(Span::UNKNOWN, |end| self.func.op(end).span);
        self.barrier(span, &mut ops)?;
        ops.extend(end);
        self.func.regions[region.index()].ops = ops;
        Ok(())
    }

    /// All threads have met.
    fn settled(&mut self) {
        self.global.settled();
        self.scratch.settled();
    }

    /// A thread that runs alone waits for nobody.
    fn emit(&mut self, op: GpuOp, span: Span, out: &mut Vec<OpId>) -> edit::Result<()> {
        if self.threads != Threads::One {
            Cursor::new(self.func, out, PASS).at(span).effect(op, &[])?;
        }
        Ok(())
    }
}
