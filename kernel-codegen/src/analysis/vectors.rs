//! How threads access tiles of global memory: which registers go together in one instruction.
//!
//! A thread's registers are gathered into vectors that are contiguous in memory, as wide as the pointers' contiguity,
//! their alignment and the constancy of the mask allow, up to 16 bytes. Elements of atomics go one by one, but for floats that
//! are added where nobody asks what was there.

use kernel_core::ir::{AtomicOp, DType, Func, MemOrder, MemoryOp, Op, Operation, ValueId};
use kernel_core::layout::{LayoutDim, LayoutError, LinearLayout, SharedAccess, shared_access};
use kernel_core::target::Target;

use super::axis::AxisAnalysis;
use super::control::is_used;
use crate::report::Narrow;

/// Bits of the widest access of a thread.
const MAX_ACCESS_BITS: u32 = 128;

/// How a thread accesses a tile.
pub(crate) struct Vectors {
    /// Elements per access.
    pub(crate) width: u32,
    /// The registers of each access, in order of their address.
    pub(crate) groups: Vec<Vec<u32>>,
    /// What keeps an access from being wider, if anything does.
    pub(crate) narrow: Option<Narrow>,
}

/// The dtype of a data value, or that which a pointer points to.
pub(crate) fn element_dtype(func: &Func, value: ValueId) -> Option<DType> {
    let ty = func.ty(value);
    let pointee = || ty.pointee().and_then(|param| func.pointee_dt(param)).and_then(|dt| dt.known());
    ty.dtype().or_else(pointee)
}

/// The layout of a tile; `None` for a scalar.
fn layout_of(func: &Func, value: ValueId) -> Option<&LinearLayout> {
    func.value(value).layout.map(|layout| &func.layouts[layout.index()])
}

impl Vectors {
    /// Each of these registers alone.
    fn single(registers: impl Iterator<Item = u32>, narrow: Option<Narrow>) -> Vectors {
        Vectors { width: 1, groups: registers.map(|register| vec![register]).collect(), narrow }
    }

    /// Those of a load or store at `pointer`.
    pub(crate) fn at(func: &Func, axis: &AxisAnalysis, pointer: ValueId, mask: Option<ValueId>) -> Vectors {
        let Some(layout) = layout_of(func, pointer) else { return Vectors::single(0..1, None) };
        let along = axis.order(func, pointer).first().copied().unwrap_or(0);
        let (run, why) = axis.limited_run(func, pointer, along);
        let equal = mask.map_or(u64::MAX, |mask| axis.mask_run(func, mask, along));
        let bytes = element_dtype(func, pointer).map_or(MAX_ACCESS_BITS / 8, DType::bytes);
        let limit = u64::from(MAX_ACCESS_BITS / (8 * bytes));
        let most = run.min(equal).min(limit) as u32;
        let vectors = layout.vectors(LayoutDim::Axis(along), most);
        let narrow = match vectors.width {
            width if u64::from(width) >= limit => None,
            width if width < most && vectors.groups.len() == 1 => Some(Narrow::Share(width)),
            width if width < most => Some(Narrow::Layout(width)),
            _ if equal < run => Some(Narrow::Mask(equal)),
            _ => Some(why),
        };
        Vectors { width: vectors.width, groups: vectors.groups, narrow }
    }

    /// Those of an asynchronous copy from tiles of one layout to a view of another, as wide as both memories allow.
    ///
    /// # Errors
    /// If the view and the tile have different shapes.
    pub(crate) fn of_copy(
        func: &Func,
        axis: &AxisAnalysis,
        operation: &Operation,
        (layout, shared): (&LinearLayout, &LinearLayout),
    ) -> Result<Copy, LayoutError> {
        let (pointer, mask) = (operation.operands[1], operation.operands.get(2).copied());
        let bits = element_dtype(func, pointer).map_or(MAX_ACCESS_BITS, |dtype| 8 * dtype.bytes());
        let access = shared_access(layout, shared, bits)?;
        let place = layout.invert_and_compose(shared)?;
        let offset_of = |register: u32| place.apply_to(&[(LayoutDim::Register, register)], LayoutDim::Offset);
        let mut vectors = Vectors::at(func, axis, pointer, mask);
        let contiguous = |group: &Vec<u32>| {
            let first = offset_of(group[0]);
            (first..).zip(group).all(|(offset, &register)| offset_of(register) == offset)
        };
        if vectors.width > access.width || !vectors.groups.iter().all(contiguous) {
            vectors = Vectors::single(vectors.groups.concat().into_iter(), Some(Narrow::Shared));
        }
        let offsets = vectors.groups.iter().map(|group| offset_of(group[0])).collect();
        Ok(Copy { vectors, access, offsets })
    }

    /// Those of a read-modify-write: vectors of floats, where the target adds them, else elements.
    pub(crate) fn of_rmw(func: &Func, axis: &AxisAnalysis, operation: &Operation, target: Target) -> Vectors {
        let (pointer, mask) = (operation.operands[0], operation.operands.get(2).copied());
        if adds_floats(func, operation, target) {
            let vectors = Vectors::at(func, axis, pointer, mask);
            let held_once = |layout: &LinearLayout| layout.remove_broadcast_registers().remove.is_identity();
            if vectors.width == 1 {
                return Vectors { narrow: vectors.narrow, ..Vectors::of_atomic(func, pointer) };
            } else if layout_of(func, pointer).is_some_and(held_once) {
                return vectors;
            }
        }
        Vectors::of_atomic(func, pointer)
    }

    /// Those of an atomic operation at `pointer`: an element that several registers hold changes
    /// once.
    pub(crate) fn of_atomic(func: &Func, pointer: ValueId) -> Vectors {
        match layout_of(func, pointer).map(LinearLayout::remove_broadcast_registers) {
            Some(copies) => {
                let kept = 0..copies.remove.result_len();
                Vectors::single(kept.map(|element| copies.remove.source_of(element) as u32), Some(Narrow::Atomic))
            }
            None => Vectors::single(0..1, None),
        }
    }
}

/// Whether an operation adds floats to memory that the target can add in vectors: those of up to 32 bits, where nobody asks
/// what was there, and nothing that follows waits for the addition.
pub(crate) fn adds_floats(func: &Func, operation: &Operation, target: Target) -> bool {
    let Op::Memory(MemoryOp::AtomicRmw { op: AtomicOp::Add, order, .. }) = operation.op else { return false };
    let is_float = matches!(element_dtype(func, operation.operands[0]), Some(DType::F32 | DType::F16 | DType::BF16));
    target.has_vector_atomics()
        && is_float
        && matches!(order, MemOrder::Relaxed | MemOrder::Release)
        && operation.results.iter().all(|&old| !is_used(func, old))
}

/// Whether a kernel adds vectors of floats to memory.
pub(crate) fn adds_vectors(func: &Func, axis: &AxisAnalysis, target: Target) -> bool {
    let adds = |operation: &Operation| adds_floats(func, operation, target);
    func.ops.iter().any(|operation| adds(operation) && Vectors::of_rmw(func, axis, operation, target).width > 1)
}

/// How a thread copies a tile to shared memory.
pub(crate) struct Copy {
    pub(crate) vectors: Vectors,
    /// How it would write the tile from registers.
    pub(crate) access: SharedAccess,
    /// Per vector, the element of the view at which it begins, in the first thread.
    pub(crate) offsets: Vec<u32>,
}
