//! What operations do to shared memory.

use std::collections::BTreeMap;

use kernel_core::edit::walk;
use kernel_core::ir::known::constant;
use kernel_core::ir::{
    BinaryOp, CmpOp, ControlOp, Def, ElementwiseOp, Func, GpuOp, LayoutId, Literal, Op, OpId, ValueId,
};
use kernel_core::layout::{LayoutDim, matrix_access};

use crate::analysis::allocation::{Allocation, root, slots};

/// Groups older than this are as old as this.
const OLDEST: u8 = 16;

/// Which slot of an allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Slot {
    /// Nobody knows.
    Any,
    /// That one.
    At(u32),
    /// In iteration `i` of the loop, slot `(i + offset) % of`.
    Turn {
        /// The loop.
        turns: OpId,
        /// The slot of its first iteration.
        offset: u32,
        /// The number of slots.
        of: u32,
    },
}

impl Slot {
    /// Whether two slots are certainly different ones.
    pub(super) fn differs(&self, other: &Slot) -> bool {
        match (self, other) {
            (Slot::At(a), Slot::At(b)) => a != b,
            (Slot::Turn { turns: l, offset: a, of: n }, Slot::Turn { turns: m, offset: b, of: k }) => {
                l == m && n == k && a != b
            }
            _ => false,
        }
    }

    /// The slot behind a loop.
    pub(super) fn left(self, id: OpId) -> Slot {
        match self {
            Slot::Turn { turns, .. } if turns == id => Slot::Any,
            slot => slot,
        }
    }
}

/// How far an access is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    /// The thread has done it; others know after a barrier.
    Done,
    /// An asynchronous copy, so many groups old; in no group yet.
    Copying(Option<u8>),
    /// A product reads, so many groups old.
    Multiplying(u8),
    /// A tensor copy that a slot of these barriers counts.
    Arriving(ValueId, Slot),
    /// A tensor copy reads, so many groups old.
    Storing(u8),
}

impl Stage {
    /// The stage when an operation has begun, or closed, another group.
    pub(super) fn older(self, op: &GpuOp) -> Stage {
        let next = |age: u8| (age + 1).min(OLDEST);
        match (self, op) {
            (Stage::Multiplying(age), GpuOp::Wgmma { .. }) => Stage::Multiplying(next(age)),
            (Stage::Storing(age), GpuOp::TmaStore { .. }) => Stage::Storing(next(age)),
            (Stage::Copying(Some(age)), GpuOp::AsyncCommit) => Stage::Copying(Some(next(age))),
            (Stage::Copying(None), GpuOp::AsyncCommit) => Stage::Copying(Some(0)),
            (stage, _) => stage,
        }
    }

    /// Whether a wait ends it.
    pub(super) fn is_over(&self, op: &GpuOp) -> bool {
        match (self, op) {
            (Stage::Copying(Some(age)), GpuOp::AsyncWait { pending })
            | (Stage::Multiplying(age), GpuOp::WgmmaWait { pending })
            | (Stage::Storing(age), GpuOp::TmaStoreWait { pending }) => age >= pending,
            _ => false,
        }
    }

    /// What ends it for certain.
    pub(super) fn waits(&self) -> Vec<GpuOp> {
        match self {
            // Whoever reads what a tensor copy brings has waited for its phase, in a way that is not seen here.
            Stage::Done | Stage::Arriving(..) => Vec::new(),
            Stage::Copying(_) => vec![GpuOp::AsyncCommit, GpuOp::AsyncWait { pending: 0 }],
            Stage::Multiplying(_) => vec![GpuOp::WgmmaWait { pending: 0 }],
            Stage::Storing(_) => vec![GpuOp::TmaStoreWait { pending: 0 }],
        }
    }

    /// The stage behind a loop.
    pub(super) fn left(self, id: OpId) -> Stage {
        match self {
            Stage::Arriving(barrier, slot) => Stage::Arriving(barrier, slot.left(id)),
            stage => stage,
        }
    }
}

/// One access.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SharedUse {
    /// The allocation.
    pub(super) alloc: OpId,
    pub(super) slot: Slot,
    pub(super) writes: bool,
    /// Which thread accesses which element: the layouts of the tile and of the view, if no two threads access the same.
    pub(super) threads: Option<(LayoutId, LayoutId)>,
    pub(super) stage: Stage,
    /// Whether threads do it, by ordinary loads and stores; products and tensor copies reach memory by another way.
    pub(super) ordinary: bool,
    /// Whether its threads have passed a fence since, which tells asynchronous operations behind the next barrier.
    pub(super) fenced: bool,
}

impl SharedUse {
    /// Whether `later` has to wait for this access.
    pub(super) fn conflicts(&self, later: &SharedUse, plan: &Allocation) -> bool {
        let meets = if self.alloc == later.alloc {
            let same_thread = self.threads.is_some() && self.threads == later.threads && self.stage == Stage::Done;
            !self.slot.differs(&later.slot) && !same_thread
        } else {
            // Who does not know where an allocation is waits for it.
            let places = plan.place(self.alloc).zip(plan.place(later.alloc));
            places.is_none_or(|(a, b)| a.start < b.end && b.start < a.end)
        };
        meets && (self.writes || later.writes)
    }

    /// Whether a barrier is what it lacks.
    pub(super) fn needs_barrier(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Whether `later` is an asynchronous operation that has to wait for a fence of those who do this.
    pub(super) fn wants_fence(&self, later: &SharedUse, plan: &Allocation) -> bool {
        let whole = SharedUse { slot: Slot::Any, threads: None, ..self.clone() };
        self.ordinary && !self.fenced && !later.ordinary && whole.conflicts(later, plan)
    }
}

/// The rotating counters of a kernel.
pub(super) struct Views {
    /// The slot that a counter is, and the number of slots.
    turns: BTreeMap<ValueId, Slot>,
}

impl Views {
    pub(super) fn new(func: &Func) -> Views {
        let mut turns = BTreeMap::new();
        walk(func, &mut |id| {
            let operation = func.op(id);
            if !matches!(operation.op, Op::Control(ControlOp::For { .. })) {
                return;
            }
            let body = operation.regions[0];
            let carried = func.region(body).args.iter().skip(1).zip(&operation.operands[3..]);
            for ((&arg, &init), &next) in carried.zip(func.yielded(body)) {
                if let (Some(offset), Some(of)) = (number(func, init), turning(func, arg, next))
                    && offset < of
                {
                    turns.insert(arg, Slot::Turn { turns: id, offset, of });
                }
            }
        });
        Views { turns }
    }

    /// The slot that an index names.
    pub(super) fn slot(&self, func: &Func, index: ValueId) -> Slot {
        match (number(func, index), self.turns.get(&index)) {
            (Some(number), _) => Slot::At(number),
            (None, Some(slot)) => slot.clone(),
            (None, None) => Slot::Any,
        }
    }

    /// A slot as the first iteration of a loop sees it, if the loop turns.
    pub(super) fn enter(&self, id: OpId, slot: &Slot) -> Slot {
        let own = self.turns.values().find_map(|slot| match slot {
            Slot::Turn { turns, of, .. } if *turns == id => Some(*of),
            _ => None,
        });
        match (slot, own) {
            (Slot::At(offset), Some(of)) if *offset < of => Slot::Turn { turns: id, offset: *offset, of },
            _ => slot.clone(),
        }
    }

    /// A slot as the next iteration of a loop sees it.
    pub(super) fn turned(&self, id: OpId, slot: Slot) -> Slot {
        match slot {
            Slot::Turn { turns, offset, of } if turns == id => Slot::Turn { turns, offset: (offset + of - 1) % of, of },
            slot => slot,
        }
    }

    /// The slot of a view.
    fn view_slot(&self, func: &Func, view: ValueId) -> Slot {
        let Def::Result(id, _) = func.value(view).def else { return Slot::Any };
        let operation = func.op(id);
        let Op::Gpu(op) = &operation.op else { return Slot::Any };
        if matches!(op, GpuOp::SharedAlloc { .. }) {
            return if slots(func, view).0.is_empty() { Slot::At(0) } else { Slot::Any };
        }
        if matches!(op, GpuOp::SharedPermute { .. }) {
            return self.view_slot(func, operation.operands[0]);
        }
        if !matches!(op, GpuOp::SharedIndex) {
            return Slot::Any;
        }
        let outer = operation.operands[0];
        let whole = func.def_op(outer).is_some_and(|op| matches!(op.op, Op::Gpu(GpuOp::SharedAlloc { .. })));
        if whole { self.slot(func, operation.operands[1]) } else { self.view_slot(func, outer) }
    }

    /// What an operation accesses.
    pub(super) fn accesses(&self, func: &Func, id: OpId) -> Vec<SharedUse> {
        let operation = func.op(id);
        let Op::Gpu(op) = &operation.op else { return Vec::new() };
        let operands = &operation.operands;
        let access = |view: ValueId, writes: bool, tile: Option<ValueId>, stage: Stage| {
            let alloc = root(func, view)?;
            let threads = tile.and_then(|tile| threads(func, tile, view));
            let ordinary = matches!(op, GpuOp::SharedLoad | GpuOp::SharedStore | GpuOp::AsyncCopy);
            Some(SharedUse { alloc, slot: self.view_slot(func, view), writes, threads, stage, ordinary, fenced: false })
        };
        let found = match op {
            GpuOp::SharedLoad => vec![access(operands[0], false, Some(operation.results[0]), Stage::Done)],
            GpuOp::SharedStore => vec![access(operands[0], true, Some(operands[1]), Stage::Done)],
            GpuOp::AsyncCopy => vec![access(operands[0], true, Some(operands[1]), Stage::Copying(None))],
            GpuOp::Wgmma { .. } => {
                let view = |&value: &ValueId| access(value, false, None, Stage::Multiplying(0));
                operands[..2].iter().map(view).collect()
            }
            GpuOp::TmaLoad => {
                let stage = Stage::Arriving(operands[2], self.slot(func, operands[3]));
                vec![access(operands[1], true, None, stage)]
            }
            GpuOp::TmaStore { .. } => vec![access(operands[1], false, None, Stage::Storing(0))],
            // Barriers with phases are made before everything else, and are there for all then.
            GpuOp::MbarrierAlloc { .. }
            | GpuOp::MbarrierArrive
            | GpuOp::MbarrierWait
            | GpuOp::SharedAlloc { .. }
            | GpuOp::SharedIndex
            | GpuOp::SharedPermute { .. }
            | GpuOp::AsyncCommit
            | GpuOp::AsyncWait { .. }
            | GpuOp::Barrier
            | GpuOp::WarpgroupBarrier
            | GpuOp::TurnBegin
            | GpuOp::TurnEnd
            | GpuOp::Fence { .. }
            | GpuOp::WgmmaWait { .. }
            | GpuOp::TmaStoreWait { .. }
            | GpuOp::WarpGroups { .. }
            | GpuOp::Delay { .. }
            | GpuOp::LaunchDependents
            | GpuOp::GridWait => Vec::new(),
        };
        found.into_iter().flatten().collect()
    }
}

/// Which thread accesses which element of a view, if each element is accessed by one thread itself.
fn threads(func: &Func, tile: ValueId, view: ValueId) -> Option<(LayoutId, LayoutId)> {
    let (own, shared) = (func.value(tile).layout?, func.value(view).layout?);
    let (layout, place) = (&func.layouts[own.index()], &func.layouts[shared.index()]);
    let copies = layout.free_variable_mask(LayoutDim::Lane) | layout.free_variable_mask(LayoutDim::Warp) != 0;
    let bits = func.ty(view).dtype()?.bytes() * 8;
    // Matrix instructions pass elements between the lanes of a warp.
    let by_matrices = [false, true].into_iter().any(|way| !matches!(matrix_access(layout, place, bits, way), Ok(None)));
    (!copies && !by_matrices).then_some((own, shared))
}

fn number(func: &Func, value: ValueId) -> Option<u32> {
    match constant(func, value)? {
        Literal::Int(value) => u32::try_from(value).ok(),
        Literal::Bool(_) | Literal::Float(_) => None,
    }
}

/// The number of slots, if `next` is the slot after `slot`: `select(slot + 1 == S, 0, slot + 1)`.
fn turning(func: &Func, slot: ValueId, next: ValueId) -> Option<u32> {
    let select = func.def_op(next)?;
    if select.op != Op::Elementwise(ElementwiseOp::Select) || number(func, select.operands[1]) != Some(0) {
        return None;
    }
    let (test, sum) = (func.def_op(select.operands[0])?, select.operands[2]);
    let add = func.def_op(sum)?;
    let is_next =
        add.op == Op::binary(BinaryOp::Add) && add.operands[0] == slot && number(func, add.operands[1]) == Some(1);
    let is_last = test.op == Op::compare(CmpOp::Eq) && test.operands[0] == sum;
    (is_next && is_last).then(|| number(func, test.operands[1])).flatten()
}
