//! One form for every address: a parameter's pointer plus one tile of element offsets.
//!
//! ```text
//! before                                  after
//! %1: *x = add_ptr %x, %row               %1: i64 = cast %row
//! %2: *x[64] = splat %1                   %2: i64[64] = splat %1
//!                                         %3: i64[64] = cast %cols
//!                                         %4: i64[64] = add %2, %3
//! %5: *x[64] = add_ptr %2, %cols          %6: *x[64] = splat %x
//!                                         %5: *x[64] = add_ptr %6, %4
//! ```
//!
//! Afterwards pointers occur only as parameters, as splats of one, and as the result of an `add_ptr` right before
//! the access that uses it; loops and branches carry offsets. An offset that was added to nothing else keeps its
//! own width, so the common `x + i32 tile` stays in 32 bits. Sums of offsets wrap in 64 bits, as pointers do.

use kernel_core::edit::{Cursor, Result};
use kernel_core::ir::{BinaryOp, Bound, DType, Func, Literal, MemoryOp, Op, OpId, ParamId, RegionId, Span, ValueId};

use crate::error::CodegenError;
use crate::passes::pass::Unit;

/// What stands for a pointer value.
#[derive(Clone, Copy)]
enum Offset {
    /// The start of the buffer.
    Zero,
    /// The value with the offset in elements.
    At(ValueId),
}

/// The kernel on its way to canonical addresses.
struct Canonical<'f> {
    func: &'f mut Func,
    /// By value: the buffer that it pointed into before it was rewritten.
    params: Vec<Option<ParamId>>,
    /// By value: what stands for it, if it was a pointer.
    offsets: Vec<Offset>,
    /// The region being rebuilt.
    out: Vec<OpId>,
}

/// Rewrites every address of the kernel into the form that the module describes.
///
/// # Errors
/// If an operation that is put in breaks a type rule, which is a mistake in this module.
pub(crate) fn run(kernel: &mut Bound, _: &mut Unit) -> std::result::Result<(), CodegenError> {
    let func = kernel.func_mut();
    let params: Vec<Option<ParamId>> = func.values.iter().map(|v| v.ty.pointee()).collect();
    let offsets = vec![Offset::Zero; params.len()];
    let body = func.body;
    Ok(Canonical { func, params, offsets, out: Vec::new() }.region(body)?)
}

impl Canonical<'_> {
    fn region(&mut self, region: RegionId) -> Result<()> {
        for index in 0..self.func.region(region).args.len() {
            let arg = self.func.region(region).args[index];
            self.becomes_offset(arg, DType::I64);
        }
        let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        let outer = std::mem::take(&mut self.out);
        for op in ops {
            self.operation(op)?;
        }
        self.func.regions[region.index()].ops = std::mem::replace(&mut self.out, outer);
        Ok(())
    }

    /// The buffer that a value of the original kernel points into. Values that this pass makes have none.
    fn param(&self, value: ValueId) -> Option<ParamId> {
        self.params.get(value.index()).copied().flatten()
    }

    /// If `value` is a pointer: makes it its own offset, of that dtype.
    fn becomes_offset(&mut self, value: ValueId, dtype: DType) {
        if self.param(value).is_some() {
            let ty = self.func.ty(value).with_dt(dtype);
            self.func.values[value.index()].ty = ty;
            self.offsets[value.index()] = Offset::At(value);
        }
    }

    fn cursor(&mut self, span: Span) -> Cursor<'_> {
        Cursor::new(&mut *self.func, &mut self.out, "pointers").at(span)
    }

    /// The offset of a pointer value as a value of dtype i64.
    fn force(&mut self, value: ValueId, span: Span) -> Result<ValueId> {
        match self.offsets[value.index()] {
            Offset::At(offset) => self.cursor(span).cast(offset, DType::I64),
            Offset::Zero => {
                let mut cursor = self.cursor(span);
                let zero = cursor.constant(Literal::Int(0), DType::I64)?;
                cursor.splat_like(zero, value)
            }
        }
    }

    /// Replaces the pointers among the operands by their i64 offsets.
    fn force_operands(&mut self, id: OpId) -> Result<()> {
        let operands = self.func.op(id).operands.clone();
        let span = self.func.op(id).span;
        for (index, value) in operands.into_iter().enumerate() {
            if self.param(value).is_some() {
                let forced = self.force(value, span)?;
                self.func.ops[id.index()].operands[index] = forced;
            }
        }
        Ok(())
    }

    /// The pointer of an access, in canonical form.
    fn address(&mut self, pointer: ValueId, param: ParamId, span: Span) -> Result<ValueId> {
        let start = self.func.param(param).value;
        let start = self.cursor(span).splat_like(start, pointer)?;
        match self.offsets[pointer.index()] {
            Offset::At(offset) => self.cursor(span).value(MemoryOp::AddPtr, &[start, offset]),
            Offset::Zero => Ok(start),
        }
    }

    fn operation(&mut self, id: OpId) -> Result<()> {
        let operation = self.func.op(id).clone();
        let touches_pointer = operation.operands.iter().chain(&operation.results).any(|&v| self.param(v).is_some());
        for &region in &operation.regions {
            self.region(region)?;
        }
        if !touches_pointer {
            self.out.push(id);
            return Ok(());
        }
        let op = &operation.op;
        if let Op::Memory(MemoryOp::AddPtr) = op {
            self.add_ptr(&operation.operands, operation.results[0], operation.span)?;
        } else if op.touches_memory() || matches!(op, Op::Memory(MemoryOp::CheckBounds { .. })) {
            self.access(id)?;
        } else if operation.element_sources().len() == 1 {
            self.moved(id);
        } else {
            // What compares, selects or carries pointers does it with addresses.
            self.force_operands(id)?;
            for &result in &operation.results {
                self.becomes_offset(result, DType::I64);
            }
            self.out.push(id);
        }
        Ok(())
    }

    fn add_ptr(&mut self, operands: &[ValueId], result: ValueId, span: Span) -> Result<()> {
        let sum = match self.offsets[operands[0].index()] {
            Offset::At(before) => {
                let mut cursor = self.cursor(span);
                let (before, more) = (cursor.cast(before, DType::I64)?, cursor.cast(operands[1], DType::I64)?);
                cursor.binary(BinaryOp::Add, before, more)?
            }
            Offset::Zero => operands[1],
        };
        self.offsets[result.index()] = Offset::At(sum);
        Ok(())
    }

    /// An access through pointers: gives them their addresses in canonical form.
    fn access(&mut self, id: OpId) -> Result<()> {
        let operation = self.func.op(id).clone();
        for (index, &value) in operation.operands.iter().enumerate() {
            if let Some(param) = self.param(value) {
                let address = self.address(value, param, operation.span)?;
                self.func.ops[id.index()].operands[index] = address;
            }
        }
        self.out.push(id);
        Ok(())
    }

    /// A splat, broadcast, expand_dims, reshape or permute of a pointer: the same of its offset.
    fn moved(&mut self, id: OpId) {
        let operation = self.func.op(id).clone();
        let result = operation.results[0];
        match self.offsets[operation.operands[0].index()] {
            Offset::At(offset) => {
                let dtype = self.func.ty(offset).dtype().unwrap_or(DType::I64);
                self.func.ops[id.index()].operands[0] = offset;
                self.becomes_offset(result, dtype);
                self.out.push(id);
            }
            Offset::Zero => self.offsets[result.index()] = Offset::Zero,
        }
    }
}
