//! Operations on whole tiles.

use crate::ir::{DType, Operation, TileOp};

use super::super::cast::cast;
use super::super::instructions::Inst;
use super::super::registers::RegId;
use super::super::tiles::{Along, ByIndex, Histogram, Sort};
use super::{Compiler, Result, unsupported};

impl Compiler<'_> {
    pub(super) fn tile(&mut self, op: &TileOp, operation: &Operation) -> Result<()> {
        match op {
            TileOp::Gather { axis } => self.by_index(operation, usize::from(*axis), None),
            TileOp::Scatter { axis } => {
                let value = self.operand(operation, 2)?;
                self.by_index(operation, usize::from(*axis), Some(value))
            }
            TileOp::Histogram { .. } => {
                let tile = self.operand(operation, 0)?;
                let (n, widen) = (self.info(tile).n, cast(self.dtype(tile)?, DType::I64));
                let (mask, out) = (self.optional(operation, 1)?, self.result(operation)?);
                let (room, bins) = (self.room(n, 8), self.info(out).n);
                let histogram = Histogram { tile, widen, room: room.offset, mask, bins, out };
                self.emit(Inst::Histogram(Box::new(histogram)));
                self.storage.free(room);
                Ok(())
            }
            TileOp::Sort { axis, descending, keep: _, indices } => {
                let tile = self.operand(operation, 0)?;
                let along = self.along(tile, usize::from(*axis))?;
                let (dtype, out) = (self.dtype(tile)?, self.result(operation)?);
                let keep = self.info(out).dims.get(usize::from(*axis)).copied().unwrap_or(1);
                let sort = Sort { tile, dtype, along, descending: *descending, keep, indices: *indices, out };
                self.emit(Inst::Sort(Box::new(sort)));
                Ok(())
            }
        }
    }

    fn by_index(&mut self, operation: &Operation, axis: usize, value: Option<RegId>) -> Result<()> {
        let (tile, index) = (self.operand(operation, 0)?, self.operand(operation, 1)?);
        let along = self.along(tile, axis)?;
        let indices = self.along(index, axis)?.len;
        let widen = cast(self.dtype(index)?, DType::I64);
        let out = self.result(operation)?;
        let room = self.room(self.info(index).n, 8);
        let by_index = ByIndex { tile, along, index, indices, widen, room: room.offset, value, out };
        self.emit(Inst::ByIndex(Box::new(by_index)));
        self.storage.free(room);
        Ok(())
    }

    fn along(&self, tile: RegId, axis: usize) -> Result<Along> {
        let dims = &self.info(tile).dims;
        match dims.get(axis) {
            Some(&len) => {
                Ok(Along { outer: dims[..axis].iter().product(), len, inner: dims[axis + 1..].iter().product() })
            }
            None => unsupported("an operation along an axis that the tile lacks", self.span),
        }
    }
}
