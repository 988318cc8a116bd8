//! The shared memory that a loop needs beside the slots of its pipeline.

use kernel_core::edit::walk_region;
use kernel_core::ir::{
    Cost, DType, DescOp, DotInstruction, DotOp, Func, Op, OpId, Operation, RegionId, ShapeOp, ValueId,
};

use super::LoopNest;
use super::find::Found;
use crate::analysis::exchange::{conversion_bytes, tile_bytes};

/// Bytes that the default number of stages leaves at least for reductions and conversions.
pub(super) const MARGIN: u32 = 16 * 1024;

/// The bytes to leave for reductions, conversions and products of plain arithmetic in the loop, at least `margin` if
/// there are any.
pub(super) fn scratch_bytes(func: &Func, id: OpId, margin: u32) -> u32 {
    let mut most = 0;
    for &region in &func.op(id).regions {
        walk_region(func, region, &mut |id| most = most.max(needed(func, id, margin)));
    }
    most
}

fn needed(func: &Func, id: OpId, margin: u32) -> u32 {
    let operation = func.op(id);
    let op = &operation.op;
    match op.cost() {
        Cost::Exchange if *op == Op::Shape(ShapeOp::ConvertLayout) => margin.max(conversion(func, operation)),
        Cost::Exchange => margin.max(tile_bytes(func, operation)),
        Cost::Product => {
            // Asynchronous products read the views where they are.
            let Op::Dot(DotOp::Dot { by, .. }) = op else { return 0 };
            if *by == Some(DotInstruction::Fma) { margin.max(factors(func, operation)) } else { margin }
        }
        Cost::Free | Cost::Arithmetic | Cost::Memory | Cost::Wait | Cost::Control => 0,
    }
}

/// Bytes of the blocks of tensors that go through shared memory beside the pipelined loop: those that it loads
/// otherwise than through its slots, or a loop around it does, and those that any loop stores, whose place is theirs
/// throughout.
pub(super) fn block_bytes(func: &Func, place: &LoopNest, found: &Found) -> u32 {
    let blocks = Blocks { func, place, found };
    blocks.in_region(func.body, None)
}

struct Blocks<'f> {
    func: &'f Func,
    place: &'f LoopNest,
    found: &'f Found,
}

impl Blocks<'_> {
    /// Of the operations of a region in the loop `innermost`, if it is in one.
    fn in_region(&self, region: RegionId, innermost: Option<OpId>) -> u32 {
        let around = |id: OpId| id == self.place.id || self.place.around.iter().any(|site| site.owner == id);
        let mut total = 0;
        for (id, operation) in self.func.region_ops(region) {
            let op = &operation.op;
            let loads = *op == Op::Desc(DescOp::DescLoad) && innermost.is_some_and(around) && !self.has_slots(id);
            let stores = matches!(op, Op::Desc(DescOp::DescStore | DescOp::DescReduce { .. })) && innermost.is_some();
            let stored = operation.operands.get(1).filter(|_| stores);
            let block = operation.results.first().filter(|_| loads).or(stored);
            total +=
                block.map_or(0, |&block| self.func.ty(block).numel().unwrap_or(0) as u32 * bytes(self.func, block));
            let innermost = if op.is_loop() { Some(id) } else { innermost };
            total += operation.regions.iter().map(|&inner| self.in_region(inner, innermost)).sum::<u32>();
        }
        total
    }

    fn has_slots(&self, load: OpId) -> bool {
        self.found.candidates.iter().any(|candidate| candidate.op == load)
    }
}

fn conversion(func: &Func, operation: &Operation) -> u32 {
    let layout = |value: ValueId| func.value(value).layout.map(|id| &func.layouts[id.index()]);
    match (layout(operation.operands[0]), layout(operation.results[0])) {
        (Some(from), Some(to)) => conversion_bytes(from, to, bytes(func, operation.results[0]) * 8),
        _ => 0,
    }
}

/// Threads share both factors of a product of plain arithmetic.
fn factors(func: &Func, operation: &Operation) -> u32 {
    let tile = |value: &ValueId| func.ty(*value).numel().unwrap_or(0) as u32 * bytes(func, *value);
    operation.operands.iter().take(2).map(tile).sum()
}

/// Bytes of an element.
fn bytes(func: &Func, value: ValueId) -> u32 {
    func.ty(value).dtype().map_or(1, DType::bytes)
}
