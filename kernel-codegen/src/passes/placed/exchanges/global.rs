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

use kernel_core::ir::{AtomicOp, Func, GpuOp, LayoutId, MemOrder, MemoryOp, Op, OpId, ParamId, RegionId, ValueId};

use super::block::{Block, block};
use crate::analysis::axis::AxisAnalysis;
use crate::analysis::control::{is_mutable, is_used};
use crate::analysis::exchange::has_copies;
use kernel_core::edit::walk_region;

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

/// The accesses to global memory that no barrier has settled.
#[derive(Clone, Default, Debug)]
pub(super) struct Global {
    pending: Vec<Pending>,
}

impl Global {
    fn add(&mut self, access: Pending) {
        if !self.pending.contains(&access) {
            self.pending.push(access);
        }
    }

    /// What is pending where two ways meet.
    pub(super) fn join(&mut self, other: &Global) {
        for access in &other.pending {
            self.add(access.clone());
        }
    }

    /// All threads have met.
    pub(super) fn settled(&mut self) {
        self.pending.clear();
    }

    /// Whether an operation's access has to wait for another thread's; notes the access behind that.
    pub(super) fn touch(&mut self, func: &Func, axis: &AxisAnalysis, id: OpId) -> Option<Touched> {
        let (touch, pointer) = touch_of(func, id).filter(|(touch, _)| is_mutable(func, touch.param))?;
        let access = Pending::new(func, axis, touch, pointer);
        let waits = self.pending.iter().any(|pending| pending.conflicts(&access));
        Some(Touched { access, waits })
    }

    /// Notes an access.
    pub(super) fn note(&mut self, touched: Touched) {
        self.add(touched.access);
    }

    /// What may be pending at the start of a loop's body: every access in it, too.
    pub(super) fn enter_loop(&mut self, func: &Func, axis: &AxisAnalysis, regions: &[RegionId]) {
        let inside = values_in(func, regions);
        let mut ops: Vec<OpId> = Vec::new();
        for &region in regions {
            walk_region(func, region, &mut |id| ops.push(id));
        }
        for id in ops {
            if let Some((touch, pointer)) = touch_of(func, id)
                && is_mutable(func, touch.param)
            {
                let mut access = Pending::new(func, axis, touch, pointer);
                if inside.contains(&pointer) {
                    // In another iteration the value has other addresses.
                    access.same = None;
                }
                if access.block.as_ref().is_some_and(|(block, _)| block.from.iter().any(|term| inside.contains(term))) {
                    access.block = None;
                }
                self.add(access);
            }
        }
    }
}

/// An access that is about to be made.
pub(super) struct Touched {
    access: Pending,
    /// Whether it has to wait for what other threads do.
    pub(super) waits: bool,
}

/// What an operation does to global memory.
fn touch_of(func: &Func, id: OpId) -> Option<(Touch, ValueId)> {
    let operation = func.op(id);
    if operation.op == Op::Gpu(GpuOp::AsyncCopy) {
        let pointer = *operation.operands.get(1)?;
        return Some((Touch::read(func.ty(pointer).pointee()?), pointer));
    }
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
