//! Atomic read-modify-write operations, element by element, as inline PTX with their order and scope (LLVM drops
//! the order of `atomicrmw`).
//!
//! A program's atomic orders the accesses of the whole program, not of one thread: a release is preceded by a barrier
//! of all threads, an acquire followed by one. Threads that hold copies of an element leave it to one of them;
//! if the old value is used, they get it from that one.

use kernel_core::ir::{AtomicOp, DType, MemOrder, MemScope, Operation, ValueId};
use kernel_llvm::AsmEffects;

use super::barrier::{Touch, commuting, is_used};
use super::ir::Value;
use super::words::{Words, memory_bits};
use super::{Lower, Result};
use crate::check::AccessKind;
use crate::error::CodegenError;

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn atomic_rmw(
        &mut self,
        operation: &Operation,
        op: AtomicOp,
        order: MemOrder,
        scope: MemScope,
    ) -> Result<()> {
        let dtype = self.dtype(operation.operands[0]);
        let Some(suffix) = self.rmw_suffix(op, dtype) else {
            let what = format!("an atomic `{}` on {dtype}, which {} does not have", op.name(), self.target.name());
            let error = CodegenError::refuse(self.func, operation.span, what);
            return Err(error.help("use i32, u32, i64, u64, or f32 and f64 with `add`"));
        };
        let instruction = format!("atom{}{}.global.{suffix}", order_suffix(order), scope_suffix(scope));
        let commutes = commuting(self.func, op, order, operation.results[0]);
        let (param, _) = self.buffer(operation.operands[0]);
        let mask = operation.operands.get(2).copied();
        self.atomic(operation, Touch::atomic(param, commutes), order, &instruction, &operation.operands[1..2], mask)
    }

    pub(super) fn atomic_cas(&mut self, operation: &Operation, order: MemOrder, scope: MemScope) -> Result<()> {
        let dtype = self.dtype(operation.operands[0]);
        let bits = memory_bits(dtype);
        if bits < 16 {
            let what = format!("a compare-and-swap on {dtype}, which has fewer than 16 bits");
            return Err(CodegenError::refuse(self.func, operation.span, what).help("use i32"));
        }
        let instruction = format!("atom{}{}.global.cas.b{bits}", order_suffix(order), scope_suffix(scope));
        let (param, _) = self.buffer(operation.operands[0]);
        let mask = operation.operands.get(3).copied();
        self.atomic(operation, Touch::atomic(param, None), order, &instruction, &operation.operands[1..3], mask)
    }

    /// The operation and type of a read-modify-write instruction, if there is one.
    fn rmw_suffix(&self, op: AtomicOp, dtype: DType) -> Option<String> {
        let bits = memory_bits(dtype);
        let is_word = matches!(bits, 32 | 64);
        let sign = if dtype.is_signed_int() { 's' } else { 'u' };
        match op {
            AtomicOp::Add => match dtype {
                // Two's complement addition is the same for both signs; there is no `add.s64`.
                DType::I32 | DType::U32 => Some("add.u32".to_string()),
                DType::I64 | DType::U64 => Some("add.u64".to_string()),
                DType::F32 => Some("add.f32".to_string()),
                DType::F64 => Some("add.f64".to_string()),
                DType::F16 => Some("add.noftz.f16".to_string()),
                DType::BF16 if self.target.has_bf16_atomics() => Some("add.noftz.bf16".to_string()),
                DType::BF16 | DType::Bool | DType::I8 | DType::I16 | DType::U8 | DType::U16 => None,
            },
            AtomicOp::Min if is_word && dtype.is_int() => Some(format!("min.{sign}{bits}")),
            AtomicOp::Max if is_word && dtype.is_int() => Some(format!("max.{sign}{bits}")),
            AtomicOp::And if is_word && dtype.is_int() => Some(format!("and.b{bits}")),
            AtomicOp::Or if is_word && dtype.is_int() => Some(format!("or.b{bits}")),
            AtomicOp::Xor if is_word && dtype.is_int() => Some(format!("xor.b{bits}")),
            AtomicOp::Exchange if is_word => Some(format!("exch.b{bits}")),
            AtomicOp::Min
            | AtomicOp::Max
            | AtomicOp::And
            | AtomicOp::Or
            | AtomicOp::Xor
            | AtomicOp::Exchange => None,
        }
    }

    /// One instruction per register, with `sources` as its operands.
    fn atomic(
        &mut self,
        operation: &Operation,
        touch: Touch,
        order: MemOrder,
        instruction: &str,
        sources: &[ValueId],
        mask: Option<ValueId>,
    ) -> Result<()> {
        let (pointer, result) = (operation.operands[0], operation.results[0]);
        self.touch(touch, pointer);
        if matches!(order, MemOrder::Release | MemOrder::AcqRel) {
            self.barrier();
        }
        let vectors = super::memory::Vectors {
            width: 1,
            groups: (0..self.register_count(result) as u32).map(|register| vec![register]).collect(),
        };
        self.report_access(operation, AccessKind::Atomic, &vectors, mask);
        let owner = self.owner(self.layout(pointer));
        let pointers = self.registers(pointer);
        let operands: Vec<_> = sources.iter().map(|&v| self.registers(v)).collect();
        let masks = mask.map(|mask| self.registers(mask));
        let bits = memory_bits(self.dtype(result));
        let words = Words::new(bits, 1);
        let ty = self.ir.int_type(words.register_bits());
        let mut registers = Vec::with_capacity(pointers.len());
        for (register, &address) in pointers.iter().enumerate() {
            let predicate = self.predicate(masks.as_ref().map(|masks| masks[register]), owner);
            let letter = words.constraint();
            let mut arguments: Vec<Value> = vec![address];
            for operand in &operands {
                arguments.extend(self.ir.pack(&[operand[register]], words).into_iter().map(Value::from));
            }
            let list: Vec<String> = (2..arguments.len() + 1).map(|i| format!("${i}")).collect();
            let mut constraints = format!("={letter},l{}", format!(",{letter}").repeat(operands.len()));
            let guard = predicate.map_or(String::new(), |predicate| {
                arguments.push(predicate.into());
                constraints.push_str(",b");
                format!("mov.b{} $0, 0;\n\t@${} ", words.register_bits(), arguments.len())
            });
            let assembly = format!("{guard}{instruction} $0, [$1], {};", list.join(", "));
            let old = self.ir.asm(&[ty.into()], &assembly, &constraints, &arguments, AsmEffects::Memory);
            registers.extend(self.ir.unpack(&old, words, self.element_type(result), bits));
        }
        // Passing on what was there takes a barrier itself.
        let passes_on = is_used(self.func, result) && owner.is_some();
        if passes_on {
            registers = match self.layout(result) {
                Some(layout) => self.broadcast_from_owners(layout, &registers, bits)?,
                None => vec![self.broadcast_from_first(registers[0])],
            };
        }
        if matches!(order, MemOrder::Acquire | MemOrder::AcqRel) && !passes_on {
            self.barrier();
        }
        self.set(result, registers);
        Ok(())
    }
}

fn order_suffix(order: MemOrder) -> &'static str {
    match order {
        MemOrder::Relaxed => ".relaxed",
        MemOrder::Acquire => ".acquire",
        MemOrder::Release => ".release",
        MemOrder::AcqRel => ".acq_rel",
    }
}

fn scope_suffix(scope: MemScope) -> &'static str {
    match scope {
        MemScope::Block => ".cta",
        MemScope::Device => ".gpu",
        MemScope::System => ".sys",
    }
}
