//! Barriers between accesses to global memory.
//!
//! Within a program, memory operations happen in program order whatever thread holds a lane. Threads run ahead of
//! each other, so a barrier separates two accesses through one `PtrMut` of which one writes, unless every element
//! provably stays in its thread:
//!
//! - both use the same pointers, which are all different, in the same layout without copies
//!   (`x = load(p); store(p, f(x))`), or
//! - both are contiguous blocks that lie at multiples of their length from one place, in the same layout: an address
//!   then belongs to the thread that its position in the block says, in every iteration of a loop
//!   (`store(out + row * columns + (k * BLOCK + arange(0, BLOCK)), ..)`: from `row * columns`).
//!
//! A barrier settles all accesses before it. What may be pending at the start of a loop's body is what was pending
//! before the loop and every access in the body itself.
//!
//! `Ptr` memory does not change and has no part in this, and atomics of one kind whose results are not used
//! may happen in any order.

use std::collections::BTreeSet;

use kernel_core::edit::{walk, walk_region};
use kernel_core::ir::{AtomicOp, Func, LayoutId, MemOrder, MemoryOp, Op, OpId, ParamId, ParamKind, RegionId, ValueId};
use kernel_core::layout::{Dim, LinearLayout};

use super::block::{Block, block};
use super::intrinsics::Intrinsic;
use super::{Lower, Value};
use crate::analysis::axis::AxisAnalysis;

/// What an access does to its buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Touch {
    param: ParamId,
    writes: bool,
    /// An atomic whose result nobody uses: it commutes with its like.
    commutes: Option<AtomicOp>,
}

impl Touch {
    pub(super) fn read(param: ParamId) -> Touch {
        Touch { param, writes: false, commutes: None }
    }

    pub(super) fn write(param: ParamId) -> Touch {
        Touch { param, writes: true, commutes: None }
    }

    pub(super) fn atomic(param: ParamId, commutes: Option<AtomicOp>) -> Touch {
        Touch { param, writes: true, commutes }
    }
}

/// An access that other threads may not have done yet.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Pending {
    touch: Touch,
    /// The pointers and their layout, if they are all different and no other thread has copies.
    same: Option<(ValueId, LayoutId)>,
    /// Where the block lies and its layout, if the access is one.
    block: Option<(Block, LayoutId)>,
}

impl Pending {
    fn new(func: &Func, axis: &AxisAnalysis, touch: Touch, pointer: ValueId) -> Pending {
        let nothing = Pending { touch, same: None, block: None };
        let Some(id) = func.value(pointer).layout else { return nothing };
        let layout = &func.layouts[id.index()];
        if has_copies(layout) {
            return nothing;
        }
        let info = axis.of(func, pointer);
        let sizes = layout.tile_shape();
        // A tile with one dimension that counts, along which the pointers are consecutive.
        let mut long = sizes.iter().enumerate().filter(|(_, size)| **size > 1);
        let (size, dim) = match (long.next(), long.next()) {
            (None, _) => (1, info.dims.first()),
            (Some((axis, &size)), None) => (u64::from(size), info.dims.get(axis)),
            (Some(_), Some(_)) => return nothing,
        };
        let consecutive = dim.is_some_and(|dim| dim.contiguity >= size);
        let block = block(func, axis, pointer, size).map(|block| (block, id));
        Pending { touch, same: consecutive.then_some((pointer, id)), block }
    }

    fn conflicts(&self, other: &Pending) -> bool {
        let (a, b) = (self.touch, other.touch);
        let ordered = a.param == b.param && (a.writes || b.writes);
        let commute = a.commutes.is_some() && a.commutes == b.commutes;
        let in_thread =
            (self.same.is_some() && self.same == other.same) || (self.block.is_some() && self.block == other.block);
        ordered && !commute && !in_thread
    }
}

/// Whether several threads hold the same element.
fn has_copies(layout: &LinearLayout) -> bool {
    layout.free_variable_mask(Dim::Lane) != 0 || layout.free_variable_mask(Dim::Warp) != 0
}

/// The accesses that are not settled by a barrier.
#[derive(Clone, Default, Debug)]
pub(super) struct Barriers {
    pending: Vec<Pending>,
}

impl Barriers {
    fn add(&mut self, access: Pending) {
        if !self.pending.contains(&access) {
            self.pending.push(access);
        }
    }

    /// What is pending where two ways meet.
    pub(super) fn join(&mut self, other: &Barriers) {
        for access in &other.pending {
            self.add(access.clone());
        }
    }
}

impl<'ctx> Lower<'_, 'ctx> {
    /// Puts a barrier before an access if one is needed, and notes the access.
    pub(super) fn touch(&mut self, touch: Touch, pointer: ValueId) {
        if !is_mutable(self.func, touch.param) {
            return;
        }
        let access = Pending::new(self.func, self.axis, touch, pointer);
        if self.barriers.pending.iter().any(|pending| pending.conflicts(&access)) {
            self.barrier();
        }
        self.barriers.add(access);
    }

    /// All threads of the program meet; what they wrote before is seen after.
    ///
    /// In a warp group it is the threads of the group that meet.
    pub(super) fn barrier(&mut self) {
        match (self.group, self.block_warps) {
            (Some(group), _) => self.group_barrier(group),
            (None, 1) => self.warp_barrier(),
            (None, _) => {
                self.jitter();
                self.ir.call(Intrinsic::BlockBarrier, &[], &[self.ir.i32(0).into()]);
                self.jitter();
                self.report.barriers += 1;
            }
        }
        self.settled();
    }

    /// The threads of each warp meet.
    pub(super) fn warp_barrier(&self) {
        self.jitter();
        self.ir.call(Intrinsic::WarpBarrier, &[], &[self.ir.i32(-1).into()]);
        self.jitter();
    }

    /// A barrier has just been passed.
    pub(super) fn settled(&mut self) {
        self.barriers.pending.clear();
        self.scratch.settled();
    }

    /// Notes what may be pending at the start of a loop's body; gives what [`Lower::leave_body`] is given.
    pub(super) fn enter_loop(&mut self, regions: &[RegionId]) -> Option<Vec<std::ops::Range<u32>>> {
        let inside = values_in(self.func, regions);
        let mut ops: Vec<OpId> = Vec::new();
        for &region in regions {
            walk_region(self.func, region, &mut |id| ops.push(id));
        }
        for id in ops {
            if let Some((touch, pointer)) = touch_of(self.func, id)
                && is_mutable(self.func, touch.param)
            {
                let mut access = Pending::new(self.func, self.axis, touch, pointer);
                if inside.contains(&pointer) {
                    // In another iteration the value has other addresses.
                    access.same = None;
                }
                if access.block.as_ref().is_some_and(|(block, _)| block.from.iter().any(|term| inside.contains(term))) {
                    access.block = None;
                }
                self.barriers.add(access);
            }
        }
        self.scratch.enter_loop()
    }

    /// Ends a trip of a loop, with a barrier if the next one needs it.
    pub(super) fn leave_body(&mut self, around: Option<Vec<std::ops::Range<u32>>>) {
        if self.scratch.blocks_next_trip() {
            self.barrier();
        }
        self.scratch.leave_body(around);
    }

    /// Whether any thread passes true; all of them meet.
    pub(super) fn any_thread(&mut self, condition: Value<'ctx>) -> Value<'ctx> {
        let condition = self.ir.int(condition);
        let result = match self.block_warps {
            1 => self.ir.call(Intrinsic::WarpAny, &[], &[self.ir.i32(-1).into(), condition.into()]),
            _ => {
                self.report.barriers += 1;
                self.jitter();
                let result = self.ir.call(Intrinsic::BlockBarrierOr, &[], &[self.ir.i32(0).into(), condition.into()]);
                self.jitter();
                self.settled();
                result
            }
        };
        result.unwrap_or(condition.into())
    }
}

fn is_mutable(func: &Func, param: ParamId) -> bool {
    matches!(func.param(param).kind, ParamKind::Ptr { mutable: true, .. })
}

/// What an operation does to global memory.
fn touch_of(func: &Func, id: OpId) -> Option<(Touch, ValueId)> {
    let operation = func.op(id);
    let Op::Memory(op) = &operation.op else { return None };
    let pointer = *operation.operands.first()?;
    let param = func.ty(pointer).pointee()?;
    let touch = match op {
        MemoryOp::Load { .. } => Touch::read(param),
        MemoryOp::Store { .. } => Touch::write(param),
        MemoryOp::AtomicRmw { op, order, .. } => {
            Touch::atomic(param, commuting(func, *op, *order, operation.results[0]))
        }
        MemoryOp::AtomicCas { .. } => Touch::atomic(param, None),
        MemoryOp::AddPtr | MemoryOp::CheckBounds { .. } => return None,
    };
    Some((touch, pointer))
}

/// The operation of an atomic that may change places with its like: relaxed, and nobody sees what was there.
pub(super) fn commuting(func: &Func, op: AtomicOp, order: MemOrder, result: ValueId) -> Option<AtomicOp> {
    let commutes = op != AtomicOp::Exchange && order == MemOrder::Relaxed;
    (commutes && !is_used(func, result)).then_some(op)
}

/// Whether any operation has the value as an operand.
pub(super) fn is_used(func: &Func, value: ValueId) -> bool {
    let mut used = false;
    walk(func, &mut |id| used |= func.op(id).operands.contains(&value));
    used
}

/// The values that are defined in the regions and below.
fn values_in(func: &Func, regions: &[RegionId]) -> BTreeSet<ValueId> {
    let mut inside = BTreeSet::new();
    for &region in regions {
        inside.extend(&func.region(region).args);
        walk_region(func, region, &mut |id| {
            inside.extend(&func.op(id).results);
            for &inner in &func.op(id).regions {
                inside.extend(&func.region(inner).args);
            }
        });
    }
    inside
}
