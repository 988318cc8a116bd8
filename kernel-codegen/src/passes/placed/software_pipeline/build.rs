//! The operations that the pass puts in, with their types and layouts.

use std::collections::HashMap;

use kernel_core::edit::{Cursor, Result};
use kernel_core::ir::{BinaryOp, GpuOp, Literal, MemoryOp, Op, OpId, ValueId};

use super::emit::Emit;
use super::find::{self, Candidate, Feed};

impl Emit<'_> {
    /// Appends operations for the line that is being written.
    pub(super) fn cursor(&mut self) -> Cursor<'_> {
        Cursor::new(&mut *self.func, &mut self.out, "software_pipeline").at(self.span)
    }

    /// The mask of a copy: where the load's holds, if the iteration exists.
    pub(super) fn mask(&mut self, pointer: ValueId, mask: Option<ValueId>, exists: ValueId) -> Result<ValueId> {
        masked(&mut self.cursor(), pointer, mask, exists)
    }

    /// Makes a comparison with a bound fail in an iteration that does not exist: nothing is below the least number,
    /// wherever the counter has got to. One selection of a scalar that way stands for an `and` per copy.
    pub(super) fn end_with(
        &mut self,
        compare: OpId,
        exists: ValueId,
        bounds: &mut HashMap<ValueId, ValueId>,
    ) -> Result<()> {
        let Some((position, bound)) = find::bound(self.func, compare) else { return Ok(()) };
        let Some(dtype) = self.func.ty(bound).dtype() else { return Ok(()) };
        let old = self.func.op(compare).operands[position];
        let mut cursor = self.cursor();
        let bound = match bounds.get(&bound) {
            Some(&known) => known,
            None => {
                let least = cursor.constant(Literal::Int(dtype.int_min()), dtype)?;
                let selected = cursor.select(exists, bound, least)?;
                bounds.insert(bound, selected);
                selected
            }
        };
        let operand = cursor.splat_like(bound, old)?;
        self.func.ops[compare.index()].operands[position] = operand;
        Ok(())
    }

    /// A bounds check or a load of an iteration that may not exist: then it checks and loads nothing.
    pub(super) fn restrict(&mut self, id: OpId, exists: ValueId) -> Result<()> {
        restrict(&mut self.cursor(), id, exists)
    }

    /// The view of a slot.
    pub(super) fn slot(&mut self, candidate: &Candidate, slots: ValueId, index: ValueId) -> Result<ValueId> {
        let layout = self.func.intern(&candidate.layout);
        self.cursor().placed(GpuOp::SharedIndex, &[slots, index], Some(layout))
    }

    /// A slot as what it feeds sees it: without leading dimensions of one element, and permuted.
    pub(super) fn seen(&mut self, feed: &Feed, slot: ValueId) -> Result<ValueId> {
        let alloc = self.func.op(feed.alloc).results[0];
        let layouts = self.func.layout(alloc).and_then(|held| feed.axes.layouts(held)).unwrap_or_default();
        let mut cursor = self.cursor();
        let mut view = slot;
        for layout in layouts.iter().skip(1) {
            let (layout, first) = (cursor.func.intern(layout), cursor.i32(0)?);
            view = cursor.placed(GpuOp::SharedIndex, &[view, first], Some(layout))?;
        }
        match feed.axes.order() {
            Some(perm) => cursor.like(GpuOp::SharedPermute { perm }, &[view], alloc),
            None => Ok(view),
        }
    }
}

/// A mask in the shape of a tile: where another one holds, if an iteration exists.
fn masked(cursor: &mut Cursor<'_>, like: ValueId, mask: Option<ValueId>, exists: ValueId) -> Result<ValueId> {
    let exists = cursor.splat_like(exists, like)?;
    match mask {
        Some(mask) => cursor.binary(BinaryOp::And, mask, exists),
        None => Ok(exists),
    }
}

/// Makes a bounds check check, and a load load, nothing unless an iteration exists; other operations stay as they are.
pub(super) fn restrict(cursor: &mut Cursor<'_>, id: OpId, exists: ValueId) -> Result<()> {
    let operation = cursor.func.op(id);
    let position = match operation.op {
        Op::Memory(MemoryOp::CheckBounds { .. }) => 2,
        Op::Memory(MemoryOp::Load { .. }) => 1,
        _ => return Ok(()),
    };
    let (like, mask) = (operation.operands[0], operation.operands.get(position).copied());
    let mask = masked(cursor, like, mask, exists)?;
    let operands = &mut cursor.func.ops[id.index()].operands;
    match operands.get_mut(position) {
        Some(operand) => *operand = mask,
        None => operands.push(mask),
    }
    Ok(())
}
