//! PTX that the kernel has written: inline assembly for the registers of `pack` elements.
//!
//! ```text
//! i8, pack = 4:   four elements of a thread in one register of 32 bits, the first in the lowest bits
//! ```
//!
//! A thread with fewer elements left repeats the last one, and drops what it gives. The text begins with a comment that
//! says where in the source it stands: should the driver refuse it, the error names that place
//! ([`kernel_core::backend::nvidia::refused_text`]).

use kernel_core::backend::nvidia::text_marker;
use kernel_core::ir::ptx::{PtxRegister, PtxRegisters};
use kernel_core::ir::{DType, InlinePtx, Operation};
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::types::BasicTypeEnum;

use super::ir::Value;
use super::{Lower, Result};

impl<'ctx> Lower<'_, 'ctx> {
    /// Of each result, `pack` elements.
    pub(super) fn inline_ptx(
        &mut self,
        operation: &Operation,
        ptx: &InlinePtx,
        arguments: &[&[Value<'ctx>]],
    ) -> Result<Vec<Vec<Value<'ctx>>>> {
        let pack = usize::from(ptx.pack);
        let (mut constraints, mut types, mut given) = (Vec::new(), Vec::new(), Vec::new());
        let mut results = Vec::new();
        for &result in &operation.results {
            let dtype = self.dtype(result);
            let Some(registers) = ptx.registers(dtype) else { return Err(self.malformed(operation)) };
            constraints.extend(vec![format!("={}", registers.register.letter()); registers.count]);
            types.extend(vec![self.register_type(registers.register); registers.count]);
            results.push((dtype, registers));
        }
        for (&operand, &elements) in operation.operands.iter().zip(arguments) {
            let dtype = self.dtype(operand);
            let Some(registers) = ptx.registers(dtype) else { return Err(self.malformed(operation)) };
            constraints.extend(vec![registers.register.letter().to_string(); registers.count]);
            let last = elements.last().copied();
            let padded: Vec<Value> = elements.iter().copied().chain(last.into_iter().cycle()).take(pack).collect();
            given.extend(padded.chunks(registers.elements).map(|chunk| self.in_register(chunk, dtype, registers)));
        }
        // What is not pure may make threads meet, and touch any memory.
        let effects = if ptx.pure { AsmEffects::Pure } else { AsmEffects::ConvergentMemory };
        let text = format!("{}\n\t{}", text_marker(self.func, operation.span), ptx.text);
        let mut words = self.ir.asm(&types, &text, &constraints.join(","), &given, effects).into_iter();
        let mut all = Vec::with_capacity(results.len());
        for (dtype, registers) in results {
            let own: Vec<Value> = words.by_ref().take(registers.count).collect();
            all.push(own.into_iter().flat_map(|word| self.out_of_register(word, dtype, registers)).collect());
        }
        Ok(all)
    }

    fn register_type(&self, register: PtxRegister) -> BasicTypeEnum<'ctx> {
        match register {
            PtxRegister::Half => self.ir.int_type(16).into(),
            PtxRegister::Word => self.ir.int_type(32).into(),
            PtxRegister::Wide => self.ir.int_type(64).into(),
            PtxRegister::Single => self.ir.dtype(DType::F32),
            PtxRegister::Double => self.ir.dtype(DType::F64),
        }
    }

    /// Elements as one register: as they are, or side by side in its bits.
    fn in_register(&self, elements: &[Value<'ctx>], dtype: DType, registers: PtxRegisters) -> Value<'ctx> {
        let BasicTypeEnum::IntType(word) = self.register_type(registers.register) else { return elements[0] };
        let alone = elements.len() == 1;
        let mut all = word.const_zero();
        for (place, &element) in elements.iter().enumerate() {
            let bits = self.ir.resize(self.ir.to_bits(element), word, alone && dtype.is_signed_int());
            let moved = match place as u64 * u64::from(dtype.bits()) {
                0 => bits,
                distance => self.ir.shl(bits, word.const_int(distance, false)),
            };
            all = if place == 0 { moved } else { self.ir.or(all, moved) };
        }
        all.into()
    }

    /// The elements of a register.
    fn out_of_register(&self, word: Value<'ctx>, dtype: DType, registers: PtxRegisters) -> Vec<Value<'ctx>> {
        let BasicTypeEnum::IntType(ty) = self.register_type(registers.register) else { return vec![word] };
        let (word, element) = (self.ir.int(word), self.ir.int_type(dtype.bits()));
        let part = |place: usize| {
            let moved = match place as u64 * u64::from(dtype.bits()) {
                0 => word,
                distance => self.ir.lshr(word, ty.const_int(distance, false)),
            };
            self.ir.value_of_bits(self.ir.resize(moved, element, false), self.ir.dtype(dtype))
        };
        (0..registers.elements).map(part).collect()
    }
}
