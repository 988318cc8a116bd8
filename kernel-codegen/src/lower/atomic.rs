//! Atomic read-modify-write operations, element by element, as inline PTX with their order and scope (LLVM drops
//! the order of `atomicrmw`). Floats that are added where nobody asks what was there go in vectors, where the target adds
//! them:
//!
//! ```text
//! @$5 red.relaxed.gpu.global.add.v4.f32 [$0], {$1,$2,$3,$4};
//! ```
//!
//! A program's atomic orders the accesses of the whole program, not of one thread: a release is preceded by a barrier
//! of all threads, an acquire followed by one. Threads that hold copies of an element leave it to one of them;
//! if the old value is used, they get it from that one.

use kernel_core::ir::{AtomicOp, BinaryOp, DType, MemOrder, MemScope, Operation, ValueId};
use kernel_core::layout::LinearLayout;
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::values::IntValue;

use super::ir::Value;
use super::packing::{Words, memory_bits};
use super::{Lower, Result};
use crate::analysis::vectors::Vectors;
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
        let (how, bits) = (format!("{}{}.global", order_suffix(order), scope_suffix(scope)), memory_bits(dtype));
        let method = match self.rmw_suffix(op, dtype) {
            Some(suffix) => Method::Instruction(format!("atom{how}.{suffix}")),
            None if bits >= 16 => Method::Loop(format!("atom{how}.cas.b{bits}"), op, dtype),
            None => {
                let what = format!("an atomic `{}` on {dtype}, which has fewer than 16 bits", op.name());
                return Err(CodegenError::refuse(self.func, operation.span, what).help("use i32"));
            }
        };
        let mask = operation.operands.get(2).copied();
        let vectors = Vectors::of_rmw(self.func, self.axis, operation, self.target);
        if vectors.width > 1 {
            self.add_vectors(operation, &vectors, &format!("red{how}.add"));
            return Ok(());
        }
        self.atomic(operation, &method, &operation.operands[1..2], mask)
    }

    /// Adds vectors of floats. Nobody uses the result.
    fn add_vectors(&mut self, operation: &Operation, vectors: &Vectors, instruction: &str) {
        let (pointer, value) = (operation.operands[0], operation.operands[1]);
        let dtype = self.dtype(pointer);
        let owner = self.owner(self.layout(pointer));
        let (pointers, values) = (self.registers(pointer), self.registers(value));
        let masks = operation.operands.get(2).map(|&mask| self.registers(mask));
        for group in &vectors.groups {
            let first = group[0] as usize;
            let predicate = self.predicate(masks.as_ref().map(|masks| masks[first]), owner);
            let elements: Vec<Value> = group.iter().map(|&register| values[register as usize]).collect();
            let words = Words::new(memory_bits(dtype), group.len() as u32);
            let kind = match (dtype, words.count) {
                (DType::F32, count) => format!(".v{count}.f32"),
                (_, 1) => format!(".noftz.{dtype}x2"),
                (_, count) => format!(".noftz.v{count}.{dtype}x2"),
            };
            self.store_vector(&format!("{instruction}{kind}"), "l", pointers[first], predicate, &elements, words);
        }
        let old = self.element_type(operation.results[0]).const_zero();
        self.set(operation.results[0], vec![old; self.register_count(operation.results[0])]);
    }

    pub(super) fn atomic_cas(&mut self, operation: &Operation, order: MemOrder, scope: MemScope) -> Result<()> {
        let dtype = self.dtype(operation.operands[0]);
        let bits = memory_bits(dtype);
        if bits < 16 {
            let what = format!("a compare-and-swap on {dtype}, which has fewer than 16 bits");
            return Err(CodegenError::refuse(self.func, operation.span, what).help("use i32"));
        }
        let how = format!("{}{}.global", order_suffix(order), scope_suffix(scope));
        let mask = operation.operands.get(3).copied();
        // A value that is exchanged for itself changes nothing.
        let reads = matches!(order, MemOrder::Relaxed | MemOrder::Acquire);
        if reads && operation.operands[1] == operation.operands[2] {
            let method = Method::Instruction(format!("ld{how}.b{bits}"));
            return self.atomic(operation, &method, &[], mask);
        }
        let method = Method::Instruction(format!("atom{how}.cas.b{bits}"));
        self.atomic(operation, &method, &operation.operands[1..3], mask)
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
                DType::BF16
                | DType::F8E4M3
                | DType::F8E5M2
                | DType::Bool
                | DType::I8
                | DType::I16
                | DType::U8
                | DType::U16 => None,
            },
            AtomicOp::Min if is_word && dtype.is_int() => Some(format!("min.{sign}{bits}")),
            AtomicOp::Max if is_word && dtype.is_int() => Some(format!("max.{sign}{bits}")),
            AtomicOp::And if is_word && dtype.is_int() => Some(format!("and.b{bits}")),
            AtomicOp::Or if is_word && dtype.is_int() => Some(format!("or.b{bits}")),
            AtomicOp::Xor if is_word && dtype.is_int() => Some(format!("xor.b{bits}")),
            AtomicOp::Exchange if is_word => Some(format!("exch.b{bits}")),
            AtomicOp::Min | AtomicOp::Max | AtomicOp::And | AtomicOp::Or | AtomicOp::Xor | AtomicOp::Exchange => None,
        }
    }

    /// One instruction; returns the word that was in memory, 0 where the predicate does not hold.
    fn atomic_instruction(
        &self,
        instruction: &str,
        mut arguments: Vec<Value<'ctx>>,
        predicate: Option<IntValue<'ctx>>,
        words: Words,
    ) -> Value<'ctx> {
        let letter = words.constraint();
        let list: String = (2..arguments.len() + 1).map(|i| format!(", ${i}")).collect();
        let mut constraints = format!("={letter},l{}", format!(",{letter}").repeat(arguments.len() - 1));
        let guard = predicate.map_or(String::new(), |predicate| {
            arguments.push(predicate.into());
            constraints.push_str(",b");
            format!("mov.b{} $0, 0;\n\t@${} ", words.register_bits(), arguments.len())
        });
        let assembly = format!("{guard}{instruction} $0, [$1]{list};");
        let ty = self.ir.int_type(words.register_bits());
        let old = self.ir.asm(&[ty.into()], &assembly, &constraints, &arguments, AsmEffects::Memory);
        old.first().copied().unwrap_or_else(|| ty.const_zero().into())
    }

    /// What the hardware has no instruction for: floats' minimum and maximum, 16-bit integers.
    fn atomic_loop(
        &self,
        instruction: &str,
        op: AtomicOp,
        dtype: DType,
        address: Value<'ctx>,
        operand: Value<'ctx>,
        predicate: Option<IntValue<'ctx>>,
    ) -> Value<'ctx> {
        let (ir, bits) = (&self.ir, memory_bits(dtype));
        let words = Words::new(bits, 1);
        let (ty, element) = (ir.int_type(bits), ir.dtype(dtype));
        let block = |name| ir.context.append_basic_block(self.blocks.function, name);
        let (first, again, done) = (block("atomic"), block("atomic.try"), block("atomic.end"));
        let Some(before) = ir.builder.get_insert_block() else { return ty.const_zero().into() };
        ir.branch_if(predicate.unwrap_or(ir.bool(true)), first, done);

        ir.builder.position_at_end(first);
        // Only a first guess: the exchange finds out whether it is right.
        let load = format!("ld.global.b{bits} $0, [$1];");
        let guess = ir.asm(&[ty.into()], &load, &format!("={},l", words.constraint()), &[address], AsmEffects::Memory);
        let guess = guess.first().map_or(ty.const_zero(), |&value| ir.int(value));
        ir.branch(again);

        ir.builder.position_at_end(again);
        let Some(expected) = ir.phi(ty.into()) else { return ty.const_zero().into() };
        let seen = ir.int(expected.as_basic_value());
        let new = self.combined(op, dtype, ir.value_of_bits(seen, element), operand);
        let arguments = vec![address, seen.into(), ir.to_bits(new).into()];
        let found = ir.int(self.atomic_instruction(instruction, arguments, None, words));
        expected.add_incoming(&[(&guess, first), (&found, again)]);
        ir.branch_if(ir.icmp(IntPredicate::EQ, found, seen), done, again);

        ir.builder.position_at_end(done);
        let Some(old) = ir.phi(ty.into()) else { return ty.const_zero().into() };
        old.add_incoming(&[(&ty.const_zero(), before), (&found, again)]);
        old.as_basic_value()
    }

    fn combined(&self, op: AtomicOp, dtype: DType, old: Value<'ctx>, operand: Value<'ctx>) -> Value<'ctx> {
        let binary = match op {
            AtomicOp::Exchange => return operand,
            AtomicOp::Add => BinaryOp::Add,
            AtomicOp::Min => BinaryOp::Min,
            AtomicOp::Max => BinaryOp::Max,
            AtomicOp::And => BinaryOp::And,
            AtomicOp::Or => BinaryOp::Or,
            AtomicOp::Xor => BinaryOp::Xor,
        };
        self.binary(binary, dtype, old, operand)
    }

    /// One instruction per element that a thread holds, with `sources` as its operands.
    fn atomic(
        &mut self,
        operation: &Operation,
        method: &Method,
        sources: &[ValueId],
        mask: Option<ValueId>,
    ) -> Result<()> {
        let (pointer, result) = (operation.operands[0], operation.results[0]);
        // An element that several registers hold changes once.
        let copies = self.layout(pointer).map(LinearLayout::remove_broadcast_registers);
        let kept = Vectors::of_atomic(self.func, pointer).groups.concat();
        let owner = self.owner(self.layout(pointer));
        let pointers = self.registers(pointer);
        let operands: Vec<_> = sources.iter().map(|&v| self.registers(v)).collect();
        let masks = mask.map(|mask| self.registers(mask));
        let bits = memory_bits(self.dtype(result));
        let words = Words::new(bits, 1);
        let mut registers = Vec::with_capacity(kept.len());
        for register in kept {
            let register = register as usize;
            let address = pointers[register];
            let predicate = self.predicate(masks.as_ref().map(|masks| masks[register]), owner);
            let mut arguments: Vec<Value> = vec![address];
            for operand in &operands {
                arguments.extend(self.ir.pack(&[operand[register]], words).into_iter().map(Value::from));
            }
            let old = match method {
                Method::Instruction(instruction) => self.atomic_instruction(instruction, arguments, predicate, words),
                Method::Loop(instruction, op, dtype) => {
                    self.atomic_loop(instruction, *op, *dtype, address, operands[0][register], predicate)
                }
            };
            let old = [old];
            registers.extend(self.ir.unpack(&old, words, self.element_type(result), bits));
        }
        if let Some(copies) = &copies {
            registers = copies.restore.apply(&registers);
        }
        if !operation.shared.is_empty() {
            registers = match self.layout(result) {
                Some(layout) => self.broadcast_from_owners(layout, &registers, bits)?,
                None => vec![self.broadcast_from_first(registers[0])],
            };
        }
        self.set(result, registers);
        Ok(())
    }
}

/// How a read-modify-write is done.
enum Method {
    /// By that instruction.
    Instruction(String),
    /// By computing the new value and trying to exchange it with that instruction, until nobody came between.
    Loop(String, AtomicOp, DType),
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
