//! Blocks of memory at multiples of their length from some place.
//!
//! ```text
//! out + row * columns + (k * 1024 + arange(0, 1024))      a block of 1024 elements, from row * columns
//! ```
//!
//! Modulo 1024, the element at position `i` of the tile has the offset `row * columns + i`, whatever `k` is. So two
//! such accesses from the same place meet only in elements at the same position. That holds although offsets wrap:
//! lengths are powers of two, and a wrapped offset is the same modulo each.

use kernel_core::ir::{BinaryOp, CreateOp, Def, ElementwiseOp, Func, MemoryOp, Op, ShapeOp, ValueId};

use crate::analysis::axis::{AxisAnalysis, AxisInfo};

/// The most terms of an address that are looked at.
const MAX_TERMS: usize = 16;

/// Where a block lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Block {
    /// The numbers whose sum it lies at multiples of its length from, in the order of the values.
    pub(super) from: Vec<ValueId>,
}

/// The block that a tile of `size` pointers is, if it is one.
pub(super) fn block(func: &Func, axis: &AxisAnalysis, pointer: ValueId, size: u64) -> Option<Block> {
    let mut from = Vec::new();
    let mut positions = 0;
    let mut terms = vec![pointer];
    let mut seen = 0;
    while let Some(term) = terms.pop() {
        seen += 1;
        if seen > MAX_TERMS {
            return None;
        }
        match role(func, axis, term, size) {
            Role::Multiple => {}
            Role::Position => positions += 1,
            Role::Other { uniform } => match parts(func, term) {
                Some(parts) => terms.extend(parts),
                None if uniform => from.push(term),
                None => return None,
            },
        }
    }
    from.sort();
    (positions == 1 || size == 1).then_some(Block { from })
}

/// What a term of an address is, modulo the length.
enum Role {
    /// Zero.
    Multiple,
    /// The position in the tile.
    Position,
    /// Something else.
    Other {
        /// The same for all elements.
        uniform: bool,
    },
}

fn role(func: &Func, axis: &AxisAnalysis, term: ValueId, size: u64) -> Role {
    let info = axis.of(func, term);
    if info.divisor_of_all() >= size {
        return Role::Multiple;
    }
    let uniform = func.ty(term).is_scalar() || func.ty(term).numel() == Some(1);
    match long_dim(func, &info, term) {
        Some(dim) if dim.contiguity >= size && dim.divisibility_at(size) >= size => Role::Position,
        Some(dim) => Role::Other { uniform: uniform || dim.constancy >= size },
        None => Role::Other { uniform },
    }
}

/// What is known along the one dimension of a tile that has more than one element.
fn long_dim(func: &Func, info: &AxisInfo, term: ValueId) -> Option<crate::analysis::axis::DimInfo> {
    let mut long = info.dims.iter().zip(&func.ty(term).shape).filter(|(_, size)| size.as_const() != Some(1));
    let (dim, _) = long.next()?;
    long.next().is_none().then_some(*dim)
}

/// The terms whose sum a term is, modulo every length; of one dimension that counts, as the tile is.
fn parts(func: &Func, term: ValueId) -> Option<Vec<ValueId>> {
    let Def::Result(op, _) = func.value(term).def else { return None };
    let operation = func.op(op);
    let wide = |value: ValueId| func.ty(value).dtype().is_some_and(|dtype| dtype.is_int() && dtype.bits() >= 32);
    let adds = match &operation.op {
        Op::Memory(MemoryOp::AddPtr) => wide(operation.operands[1]),
        Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::Add }) => wide(term),
        // Widening keeps the lower bits, and so does narrowing.
        Op::Elementwise(ElementwiseOp::Cast { .. }) => wide(term) && wide(operation.operands[0]),
        op => matches!(
            op,
            Op::Create(CreateOp::Splat { .. }) | Op::Shape(ShapeOp::ConvertLayout | ShapeOp::ExpandDims { .. })
        ),
    };
    adds.then(|| operation.operands.clone())
}
