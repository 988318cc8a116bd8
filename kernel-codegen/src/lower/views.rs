//! Views of shared memory: where allocations are, and how tiles get in and out.
//!
//! A view is one number, the byte at which it begins, the same in every thread. Its layout covers the innermost
//! dimensions; outer ones are slots, each at a multiple of 1024 bytes, the period of the widest swizzle.
//!
//! A tile moves by `ldmatrix` or `stmatrix` where lanes hold what these give and take, else by vectors as wide as
//! the layouts allow.

use kernel_core::ir::{Elem, Func, Operation, ValueId};
use kernel_core::layout::{LinearLayout, MatrixAccess, matrix_access, shared_access};
use kernel_core::target::SWIZZLE_ALIGNMENT;
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::values::IntValue;

use super::ir::Value;
use super::packing::{Words, memory_bits};
use super::shared::SharedOffset;
use super::{Lower, Result};
use crate::analysis::allocation::slots;
use crate::error::CodegenError;

/// Bits of an element of a view, as shared memory holds it.
pub(crate) fn view_bits(func: &Func, view: ValueId) -> u32 {
    match func.ty(view).elem {
        Elem::Shared(dt) => dt.known().map_or(32, memory_bits),
        Elem::Data(_) | Elem::Ptr(_) | Elem::Desc(_) | Elem::Token | Elem::Barrier => 32,
    }
}

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn shared_alloc(&mut self, operation: &Operation) {
        let offset = self.offset_of(operation);
        self.set(operation.results[0], vec![self.ir.i32(offset as i32).into()]);
    }

    /// The first byte of an allocation.
    pub(super) fn offset_of(&self, alloc: &Operation) -> u32 {
        alloc.shared.first().map_or_else(
            || {
                self.ir.bug("an allocation that has no place in shared memory");
                0
            },
            |range| range.start,
        )
    }

    pub(super) fn shared_index(&mut self, operation: &Operation) -> Result<()> {
        let (view, index, result) = (operation.operands[0], operation.operands[1], operation.results[0]);
        let (outer, inner) = slots(self.func, view);
        if outer.is_empty() {
            if inner.first() == Some(&1) {
                // There is one place: the same view without that dimension.
                self.set(result, self.registers(view).to_vec());
                return Ok(());
            }
            let what = "an index into a dimension of shared memory that its layout covers";
            return Err(CodegenError::refuse(self.func, operation.span, what));
        }
        let own = inner.iter().product::<u32>() * view_bits(self.func, view) / 8;
        let distance = outer[1..].iter().product::<u32>() * own.next_multiple_of(SWIZZLE_ALIGNMENT);
        let moved = self.ir.mul(self.ir.int(self.scalar(index)), self.ir.i32(distance as i32));
        let start = self.ir.add(self.view(view), moved);
        self.set(result, vec![start.into()]);
        Ok(())
    }

    /// A view of the same memory.
    pub(super) fn shared_permute(&mut self, operation: &Operation) {
        self.set(operation.results[0], self.registers(operation.operands[0]).to_vec());
    }

    /// The byte at which a view begins.
    pub(super) fn view(&self, view: ValueId) -> IntValue<'ctx> {
        self.ir.int(self.scalar(view))
    }

    /// The layout of a view without slots.
    pub(super) fn view_layout(&self, operation: &Operation, view: ValueId) -> Result<&'_ LinearLayout> {
        match self.layout(view) {
            Some(layout) if slots(self.func, view).0.is_empty() => Ok(layout),
            _ => Err(CodegenError::refuse(self.func, operation.span, "an access to several slots of shared memory")),
        }
    }

    pub(super) fn shared_load(&mut self, operation: &Operation) -> Result<()> {
        let (view, result) = (operation.operands[0], operation.results[0]);
        let shared = self.view_layout(operation, view)?.clone();
        let Some(layout) = self.layout(result).cloned() else { return Err(self.malformed(operation)) };
        let bits = view_bits(self.func, view);
        let ty = self.element_type(result);
        let mut loaded = vec![ty.const_zero(); self.register_count(result)];
        for transposed in [false, true] {
            let plan = matrix_access(&layout, &shared, bits, transposed).map_err(|error| self.layout_error(&error))?;
            if let Some(plan) = plan {
                self.load_matrices(SharedOffset::moved(self.view(view)), &plan, bits, &mut loaded);
                let registers = plan.canonical.iter().map(|&register| loaded[register as usize]).collect();
                self.set(result, registers);
                return Ok(());
            }
        }
        let access = shared_access(&layout, &shared, bits).map_err(|error| self.layout_error(&error))?;
        let place = SharedOffset::moved(self.view(view));
        self.read_shared_at(place, &access, ty, &mut loaded, 0);
        let registers = access.canonical.apply(&loaded);
        self.set(result, registers);
        Ok(())
    }

    pub(super) fn shared_store(&mut self, operation: &Operation) -> Result<()> {
        let (view, value) = (operation.operands[0], operation.operands[1]);
        let shared = self.view_layout(operation, view)?.clone();
        let Some(layout) = self.layout(value).cloned() else { return Err(self.malformed(operation)) };
        let bits = view_bits(self.func, view);
        let registers = self.registers(value);
        if self.target.has_stmatrix() {
            for transposed in [false, true] {
                let plan =
                    matrix_access(&layout, &shared, bits, transposed).map_err(|error| self.layout_error(&error))?;
                // Vectors of 16 bytes need fewer instructions still.
                if let Some(plan) = plan {
                    self.store_matrices(SharedOffset::moved(self.view(view)), &plan, bits, &registers);
                    return Ok(());
                }
            }
        }
        let access = shared_access(&layout, &shared, bits).map_err(|error| self.layout_error(&error))?;
        let place = SharedOffset::moved(self.view(view));
        self.write_shared_at(place, &access, &registers, 0);
        Ok(())
    }

    fn load_matrices(&mut self, place: SharedOffset<'ctx>, plan: &MatrixAccess, bits: u32, loaded: &mut [Value<'ctx>]) {
        let row = self.form(&plan.row);
        let count = plan.matrices as usize;
        let word = self.ir.int_type(32).into();
        let names: Vec<String> = (0..count).map(|i| format!("${i}")).collect();
        let transposed = if plan.transposed { ".trans" } else { "" };
        let assembly =
            format!("ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {{{}}}, [${count}];", names.join(", "));
        let constraints = format!("{}r", "=r,".repeat(count));
        let words = Words { bits: 32, count: 1 };
        let ty = loaded.first().map_or(word, |value| value.get_type());
        for instruction in &plan.instructions {
            let address = self.access_address(row, place, instruction.xor_bytes, instruction.add_bytes);
            let address = self.ir.pointer_to_int(address, self.ir.int_type(32));
            let results = self.ir.asm(
                &vec![word; count],
                &assembly,
                &constraints,
                &[address.into()],
                AsmEffects::ConvergentMemory,
            );
            for (registers, result) in instruction.words.iter().zip(results) {
                for (&register, value) in registers.iter().zip(self.ir.unpack(&[result], words, ty, bits)) {
                    loaded[register as usize] = value;
                }
            }
        }
    }

    /// Writes a tile by `stmatrix`.
    pub(super) fn store_matrices(
        &mut self,
        place: SharedOffset<'ctx>,
        plan: &MatrixAccess,
        bits: u32,
        registers: &[Value<'ctx>],
    ) {
        let row = self.form(&plan.row);
        let count = plan.matrices as usize;
        let names: Vec<String> = (1..=count).map(|i| format!("${i}")).collect();
        let transposed = if plan.transposed { ".trans" } else { "" };
        let assembly =
            format!("stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [$0], {{{}}};", names.join(", "));
        let constraints = format!("r{}", ",r".repeat(count));
        let words = Words { bits: 32, count: 1 };
        debug_assert!(bits <= 32, "a word holds whole elements");
        for instruction in &plan.instructions {
            let address = self.access_address(row, place, instruction.xor_bytes, instruction.add_bytes);
            let mut arguments: Vec<Value> = vec![self.ir.pointer_to_int(address, self.ir.int_type(32)).into()];
            for elements in &instruction.words {
                let elements: Vec<Value> = elements.iter().map(|&register| registers[register as usize]).collect();
                arguments.push(self.ir.pack(&elements, words)[0].into());
            }
            self.ir.asm(&[], &assembly, &constraints, &arguments, AsmEffects::ConvergentMemory);
        }
    }
}
