//! Arithmetic on what factors of products are made of, two elements of 16 bits at a time.
//!
//! ```text
//! %b: i16 = or (and %n, 15), 0x4300      lop3 of the word that holds both
//! %w: bf16 = mul (add (bitcast %b), %z), %s      add.bf16x2, mul.bf16x2
//! ```
//!
//! A product takes its factors as words of two elements. LLVM searches for pairs among values that it stores, and finds none
//! in the operands of a matrix instruction or of a store of whole vectors; so neighbours are computed together here, as
//! 4-bit weights are where they are unpacked: 3 instructions for each take the place of 5.

use kernel_core::edit::ops_in_order;
use kernel_core::ir::{BinaryOp, DType, Func, GpuOp, Op, ShapeOp};
use kernel_llvm::inkwell::values::{BasicValueEnum, FastMathFlags};
use kernel_llvm::set_fast_math;

use super::ir::Value;
use super::{Lower, Registers};

/// Per value, whether factors of products are computed from it, element by element.
pub(super) fn factors(func: &Func) -> Vec<bool> {
    let mut factors = vec![false; func.values.len()];
    for id in ops_in_order(func).into_iter().rev() {
        let operation = func.op(id);
        let moves = operation.op.is_arithmetic() || operation.op == Op::Shape(ShapeOp::ConvertLayout);
        let wanted = match operation.op {
            Op::Gpu(GpuOp::SharedStore) => &operation.operands[1..],
            // Left factors of `wgmma` that are in registers are left as they are.
            Op::Gpu(GpuOp::Wgmma { .. }) => &[],
            _ if operation.op.multiplies() => &operation.operands[..2],
            _ if moves && operation.results.iter().any(|result| factors[result.index()]) => &operation.operands[..],
            _ => &[],
        };
        wanted.iter().for_each(|operand| factors[operand.index()] = true);
    }
    factors
}

impl<'ctx> Lower<'_, 'ctx> {
    /// An operation on two tiles in pairs of neighbours, if there are any and an instruction takes them.
    pub(super) fn in_words(
        &self,
        op: BinaryOp,
        dtype: DType,
        contract: bool,
        operands: &[Registers<'ctx>],
    ) -> Option<Vec<Value<'ctx>>> {
        let [a, b] = operands else { return None };
        if dtype.bits() != 16 || a.len() != b.len() || a.is_empty() || !a.len().is_multiple_of(2) {
            return None;
        }
        let bits = matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor) && !dtype.is_float();
        let floats = matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul) && dtype.is_float();
        let pairs = a.chunks(2).zip(b.chunks(2));
        if bits {
            Some(pairs.flat_map(|(a, b)| self.bits_of_pair(op, a, b)).collect())
        } else if floats {
            Some(pairs.flat_map(|(a, b)| self.floats_of_pair(op, contract, a, b)).collect())
        } else {
            None
        }
    }

    fn bits_of_pair(&self, op: BinaryOp, a: &[Value<'ctx>], b: &[Value<'ctx>]) -> Vec<Value<'ctx>> {
        let ir = &self.ir;
        let word = |pair: &[Value<'ctx>]| ir.bitcast(ir.vector(pair), ir.int_type(32));
        let word = self.binary(op, DType::U32, word(a), word(b));
        ir.elements(ir.bitcast(ir.int(word), ir.int_type(16).vec_type(2)), 2)
    }

    /// What is added, subtracted or multiplied in 16 bits is what f32 gives that are rounded once: f32 have more than twice
    /// their bits.
    fn floats_of_pair(&self, op: BinaryOp, contract: bool, a: &[Value<'ctx>], b: &[Value<'ctx>]) -> Vec<Value<'ctx>> {
        let ir = &self.ir;
        let (BasicValueEnum::VectorValue(x), BasicValueEnum::VectorValue(y)) = (ir.vector(a), ir.vector(b)) else {
            ir.bug("a pair is no vector");
            return a.to_vec();
        };
        let built = match op {
            BinaryOp::Add => ir.builder.build_float_add(x, y, ""),
            BinaryOp::Sub => ir.builder.build_float_sub(x, y, ""),
            _ => ir.builder.build_float_mul(x, y, ""),
        };
        let result = ir.ok(built, || x);
        if contract {
            set_fast_math(result, FastMathFlags::AllowContract);
        }
        ir.elements(result.into(), 2)
    }
}
