//! Loads that feed matrix products, whose layouts are those of their own memory.
//!
//! ```text
//! %a: f8[128, 128] = load ..      dot %a, ..      store .., %c: f16[128, 128]
//! ```
//!
//! A factor goes to shared memory, and from there to the instruction: no other access gains where `%a` lies in the
//! threads as `%c` does. It would be copied 8 bytes at a time, because those are the 8 elements of an f16 vector of 16.

use std::collections::BTreeSet;

use kernel_core::edit::{Uses, walk};
use kernel_core::ir::{DotOp, ElementwiseOp, Func, MemoryOp, Op, OpId, Operation, ValueId};

/// The loads of a kernel that feed products.
#[derive(Default, Debug)]
pub(super) struct Factors {
    /// Those whose tiles are factors as they are, but for moves and conversions, and nothing else.
    pub(super) alone: BTreeSet<OpId>,
    /// Those that factors are computed from.
    pub(super) all: BTreeSet<OpId>,
}

impl Factors {
    pub(super) fn of(func: &Func) -> Factors {
        let mut work = Vec::new();
        walk(func, &mut |id| {
            if let Op::Dot(DotOp::Dot { .. }) = func.op(id).op {
                work.extend(&func.op(id).operands[..2]);
            }
        });
        let (uses, mut factors, mut seen) = (Uses::new(func), Factors::default(), BTreeSet::new());
        while let Some(value) = work.pop() {
            let Some(id) = func.defining_op(value).filter(|&id| seen.insert(id)) else { continue };
            let operation = func.op(id);
            if let Op::Memory(MemoryOp::Load { .. }) = operation.op {
                factors.all.insert(id);
                if feeds_alone(func, &uses, value) {
                    factors.alone.insert(id);
                }
            } else if operation.op.is_arithmetic() {
                work.extend(operation.operands.iter().filter(|&&operand| !func.ty(operand).is_scalar()));
            }
        }
        factors
    }
}

/// Whether a tile is nothing but factors of products, moved and converted.
fn feeds_alone(func: &Func, uses: &Uses, value: ValueId) -> bool {
    uses.of(value).iter().all(|&user| {
        let operation = func.op(user);
        match operation.op {
            Op::Dot(DotOp::Dot { .. }) => operation.operands[2] != value,
            _ => passes_on(operation) && operation.results.iter().all(|&result| feeds_alone(func, uses, result)),
        }
    })
}

/// Whether an operation moves or converts a tile.
fn passes_on(operation: &Operation) -> bool {
    operation.moved_operand().is_some() || matches!(operation.op, Op::Elementwise(ElementwiseOp::Cast { .. }))
}
