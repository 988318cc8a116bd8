//! Matrix products, blocks of tensors, and their asynchronous forms.

use crate::ir::{
    AtomicOp, DType, DescOp, DotOp, DotPrecision, FactorFormat, GroupPart, Operation, ParamId, ScaledFactors,
    StoreMode, ValueId,
};

use crate::layout::group_parts;

use super::super::instructions::{Block, BlockAccess, Dot, DotScaled, Inst, Rows, Wgmma};
use super::super::lanes::Fn2;
use super::super::product::Product;
use super::super::registers::{Parts, RegId};
use super::super::scaled::{ScaledProduct, Sizes};
use super::{Compiler, Result, unsupported};

impl Compiler<'_> {
    /// The product of two factors, tiles or views, onto an accumulator.
    fn product(&self, precision: DotPrecision, operation: &Operation) -> Result<Product> {
        let [a, b, acc, ..] = operation.operands.as_slice() else {
            return unsupported("a product has two factors and an accumulator", self.span);
        };
        let [a, b, acc] = [a, b, acc].map(|&v| self.func.ty(v));
        let (Some(a_dtype), Some(b_dtype), Some(acc_dtype)) = (a.dtype(), b.dtype(), acc.dtype()) else {
            return unsupported("a dtype is not known: the kernel is not bound", self.span);
        };
        let (dims, n) = (self.dims(a)?, self.dims(b)?.last().copied().unwrap_or(1));
        match Product::new((a_dtype, b_dtype, acc_dtype), precision, &dims, n) {
            Some(product) => Ok(product),
            None => unsupported(format!("there is no product of {a_dtype} in {acc_dtype}"), self.span),
        }
    }

    pub(super) fn dot(&mut self, op: &DotOp, operation: &Operation) -> Result<()> {
        match op {
            // Every instruction computes the same product.
            DotOp::Dot { precision, by: _ } => self.plain_dot(*precision, operation),
            DotOp::DotScaled { a_format, b_format, scaled } => {
                self.scaled_dot([*a_format, *b_format], *scaled, operation)
            }
        }
    }

    fn plain_dot(&mut self, precision: DotPrecision, operation: &Operation) -> Result<()> {
        let product = self.product(precision, operation)?;
        let room = self.storage.alloc(product.room());
        let (a, b) = (self.operand(operation, 0)?, self.operand(operation, 1)?);
        let acc = self.operand(operation, 2)?;
        let out = self.result(operation)?;
        self.emit(Inst::Dot(Box::new(Dot { product, a, b, acc, out, room: room.offset })));
        self.storage.free(room);
        Ok(())
    }

    fn scaled_dot(&mut self, formats: [FactorFormat; 2], scaled: ScaledFactors, operation: &Operation) -> Result<()> {
        let [a, b, acc, scales @ ..] = operation.operands.as_slice() else {
            return unsupported("a product has two factors and an accumulator", self.span);
        };
        let dims = [a, b, acc].map(|&v| self.dims(self.func.ty(v)));
        let [a_dims, b_dims, acc_dims] = dims;
        let ([.., k_elements], [batch @ .., m, n]) = (&*a_dims?, &*acc_dims?) else {
            return unsupported("factors are matrices", self.span);
        };
        let dtypes = [a, b].map(|&v| self.func.ty(v).dtype());
        let sizes = Sizes { batch: batch.iter().product(), m: *m, n: *n, k: k_elements * formats[0].pack() as usize };
        debug_assert_eq!(b_dims?.last(), Some(n));
        let [Some(a), Some(b)] = dtypes else {
            return unsupported("a dtype is not known: the kernel is not bound", self.span);
        };
        let Some(product) = ScaledProduct::new([a, b], formats, sizes) else {
            return unsupported(format!("there is no scaled product of {a} and {b}"), self.span);
        };
        let scales: Vec<RegId> = (3..3 + scales.len()).map(|i| self.operand(operation, i)).collect::<Result<_>>()?;
        let room = self.storage.alloc(product.room());
        let factors = [self.operand(operation, 0)?, self.operand(operation, 1)?];
        let acc = self.operand(operation, 2)?;
        let out = self.result(operation)?;
        let scales = scaled.pair(&scales);
        self.emit(Inst::DotScaled(Box::new(DotScaled { product, factors, scales, acc, out, room: room.offset })));
        self.storage.free(room);
        Ok(())
    }

    /// The parameter of a descriptor, the dtype and the shape of its blocks.
    fn described(&self, operation: &Operation) -> Result<(ParamId, DType, Box<[usize]>)> {
        let first: Option<&ValueId> = operation.operands.first();
        let Some(param) = first.and_then(|&v| self.func.ty(v).descriptor()) else {
            return unsupported("an access to a block needs a descriptor", self.span);
        };
        let crate::ir::ParamKind::Desc { dt, block, .. } = &self.func.param(param).kind else {
            return unsupported("a descriptor's parameter is not a tensor", self.span);
        };
        let ty = crate::ir::Ty::tile(*dt, block.clone());
        match dt.known() {
            Some(dtype) => Ok((param, dtype, self.dims(&ty)?)),
            None => unsupported("a dtype is not known: the kernel is not bound", self.span),
        }
    }

    /// The block whose coordinates begin at operand number `first`.
    fn block(&self, operation: &Operation, first: usize) -> Result<Box<Block>> {
        let (param, dtype, dims) = self.described(operation)?;
        let coordinates = self.regs(operation.operands.get(first..).unwrap_or_default())?.into();
        Ok(Box::new(Block { param, dtype, dims, coordinates }))
    }

    fn reduction(&self, op: AtomicOp, dtype: DType) -> Result<Fn2> {
        match self.combination(op, dtype)? {
            Some(f) => Ok(f),
            None => unsupported("an exchange is no reduction", self.span),
        }
    }

    pub(super) fn desc(&mut self, op: &DescOp, operation: &Operation) -> Result<()> {
        match op {
            DescOp::MakeDesc { .. } => {
                return unsupported("`make_desc` has no place in a bound kernel", self.span);
            }
            DescOp::DescLoad => {
                let block = self.block(operation, 1)?;
                let out = self.result(operation)?;
                self.emit(Inst::Block { block, access: BlockAccess::Load { out } });
            }
            DescOp::DescStore => {
                let (block, value) = (self.block(operation, 2)?, self.operand(operation, 1)?);
                self.emit(Inst::Block { block, access: BlockAccess::Store { value } });
            }
            DescOp::DescReduce { op } => {
                let (block, value) = (self.block(operation, 2)?, self.operand(operation, 1)?);
                let f = self.reduction(*op, block.dtype)?;
                self.emit(Inst::Block { block, access: BlockAccess::Reduce { value, f } });
            }
            DescOp::DescGather => {
                let (rows, column) = (self.operand(operation, 1)?, self.operand(operation, 2)?);
                let value = self.result(operation)?;
                self.rows(operation, (rows, column), true, value)?;
            }
            DescOp::DescScatter => {
                let (value, rows) = (self.operand(operation, 1)?, self.operand(operation, 2)?);
                let column = self.operand(operation, 3)?;
                self.rows(operation, (rows, column), false, value)?;
            }
        }
        Ok(())
    }

    fn rows(&mut self, operation: &Operation, at: (RegId, RegId), load: bool, value: RegId) -> Result<()> {
        let (param, dtype, dims) = self.described(operation)?;
        let columns = dims.last().copied().unwrap_or(1);
        let (rows, column) = at;
        self.emit(Inst::Rows(Box::new(Rows { param, dtype, rows, column, columns, load, value })));
        Ok(())
    }

    pub(super) fn wgmma(&mut self, precision: DotPrecision, part: GroupPart, operation: &Operation) -> Result<()> {
        let product = self.product(precision, operation)?;
        let parts = match part {
            GroupPart::Whole => None,
            GroupPart::Own | GroupPart::Others => {
                let layout = self.func.layout(operation.operands[2]);
                let Some(parts) = layout.and_then(|acc| group_parts(acc, product.k as u32)) else {
                    return unsupported("warp groups have no parts of a product", self.span);
                };
                Some(parts)
            }
        };
        let a_shared = matches!(self.func.ty(operation.operands[0]).elem, crate::ir::Elem::Shared(_));
        let (a, b) = (self.operand(operation, 0)?, self.operand(operation, 1)?);
        let acc = self.operand(operation, 2)?;
        let adds = self.optional(operation, 3)?;
        let out = self.result(operation)?;
        self.emit(Inst::Wgmma(Box::new(Wgmma { product, part, parts, a, a_shared, b, acc, adds, out })));
        Ok(())
    }

    pub(super) fn wgmma_wait(&mut self, pending: u8, operation: &Operation) -> Result<()> {
        let from = self.regs(&operation.operands)?;
        let mut tiles = Vec::with_capacity(from.len());
        for (from, &result) in from.into_iter().zip(&operation.results) {
            tiles.push((from, self.define(result)?));
        }
        self.emit(Inst::WgmmaWait { tiles: tiles.into(), pending });
        Ok(())
    }

    pub(super) fn tma_load(&mut self, operation: &Operation) -> Result<()> {
        let block = self.block(operation, 4)?;
        let (view, barrier) = (self.operand(operation, 1)?, self.operand(operation, 2)?);
        let slot = self.operand(operation, 3)?;
        self.emit(Inst::TmaLoad { block, view, barrier, slot });
        Ok(())
    }

    pub(super) fn tma_store(&mut self, mode: StoreMode, parts: &[u8], operation: &Operation) -> Result<()> {
        let mut block = self.block(operation, 2)?;
        // A view may hold a part of a block.
        block.dims = self.dims(self.func.ty(operation.operands[1]))?;
        let view = self.operand(operation, 1)?;
        let reduce = mode.atomic().map(|op| self.reduction(op, block.dtype)).transpose()?;
        let parts = Parts::new(Some(parts).filter(|parts| !parts.is_empty()));
        self.emit(Inst::TmaStore { block, view, reduce, parts });
        Ok(())
    }
}
