//! Writes the stores of blocks: in pieces through shared memory, as [`outgoing`](super::outgoing) has planned.

use kernel_core::edit::Result;
use kernel_core::ir::{BinaryOp, DescOp, Dim, FenceKind, GpuOp, Op, OpId, ShapeOp, Span, StoreMode, ValueId};

use super::outgoing::{Outgoing, Way};
use super::split::Split;

impl Split<'_> {
    /// A store of a block: in pieces through shared memory, once what went that way before has been read. The copies
    /// themselves are not waited for, so that they run beside the next tile.
    pub(super) fn send(&mut self, id: OpId) -> Result<()> {
        let operation = self.func.op(id).clone();
        let (span, way) = (operation.span, self.outgoing[&id].clone());
        let mut reduce = StoreMode::Store;
        if let Op::Desc(DescOp::DescReduce { op }) = operation.op {
            reduce = StoreMode::of(op).unwrap_or(reduce);
        }
        let Outgoing { starts, piece, slots, .. } = &way.outgoing;
        let meet = || if piece.parts.is_empty() { GpuOp::Barrier } else { GpuOp::WarpgroupBarrier };
        for (number, start) in (0u32..).zip(starts) {
            // At first nothing may be on its way, which it has not been for long; then only what is in other slots.
            if number == 0 || number >= *slots {
                let pending = if number == 0 { 0 } else { slots - 1 };
                self.cursor(span).effect(GpuOp::TmaStoreWait { pending: pending as u8 }, &[])?;
                self.cursor(span).effect(meet(), &[])?;
            }
            let slot = self.number((number % slots) as i32)?;
            let view = self.cursor(span).placed(GpuOp::SharedIndex, &[way.staging, slot], Some(way.layout))?;
            let value = self.piece(self.mapped(operation.operands[1]), start, &way, span)?;
            self.cursor(span).effect(GpuOp::SharedStore, &[view, value])?;
            self.cursor(span).effect(GpuOp::Fence { kind: FenceKind::ProxyAsync }, &[])?;
            self.cursor(span).effect(meet(), &[])?;
            let mut operands = vec![self.mapped(operation.operands[0]), view];
            for (&coordinate, &distance) in operation.operands[2..].iter().zip(start) {
                operands.push(self.moved(coordinate, distance, span)?);
            }
            self.cursor(span).effect(GpuOp::TmaStore { reduce, parts: piece.parts.clone() }, &operands)?;
        }
        Ok(())
    }

    /// The piece of a tile that begins there.
    fn piece(&mut self, tile: ValueId, start: &[u32], way: &Way, span: Span) -> Result<ValueId> {
        let Some(held) = way.held else { return Ok(tile) };
        let dims = |sizes: &[u32]| sizes.iter().map(|&size| Dim::Const(i64::from(size))).collect();
        let slice = ShapeOp::Slice { start: dims(start), shape: dims(&way.outgoing.piece.shape) };
        self.cursor(span).placed(slice, &[tile], Some(held))
    }

    /// A coordinate so much further.
    fn moved(&mut self, coordinate: ValueId, distance: u32, span: Span) -> Result<ValueId> {
        let coordinate = self.mapped(coordinate);
        if distance == 0 {
            return Ok(coordinate);
        }
        let distance = self.number(distance as i32)?;
        self.cursor(span).binary(BinaryOp::Add, coordinate, distance)
    }
}
