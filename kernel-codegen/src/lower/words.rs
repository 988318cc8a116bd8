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
//!
//! What is unpacked by the word takes one instruction where LLVM and ptxas make two or three:
//!
//! ```text
//! or (and %w, 0x000f000f), 0x64006400      lop3, which ptxas does not make where both constants are immediate
//! or (and %w, 0xffff), (shl %v, 16)        the lower halves of two words: prmt
//! ```

use kernel_core::edit::ops_in_order;
use kernel_core::ir::known::uniform_constant;
use kernel_core::ir::{BinaryOp, DType, ElementwiseOp, Func, GpuOp, Literal, Op, Operation, ShapeOp, ValueId};
use kernel_llvm::AsmEffects;
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

    /// Words of 32 bits by one instruction, where an operation on bits and those before it are one.
    pub(super) fn in_one(&self, op: BinaryOp, operation: &Operation) -> Option<Vec<Value<'ctx>>> {
        let bits = |op| matches!(op, BinaryOp::And | BinaryOp::Or | BinaryOp::Xor);
        let &[a, b] = operation.operands.as_slice() else { return None };
        if !bits(op) || !matches!(self.dtype(a), DType::I32 | DType::U32) {
            return None;
        }
        if op == BinaryOp::Or
            && let Some((low, high)) = Half::lower(self.func, a).zip(Half::upper(self.func, b))
        {
            return Some(self.halves(low, high));
        }
        let (inner, x, first) = binary(self.func, a).filter(|(inner, ..)| bits(*inner))?;
        let (first, second) = (constant(self.func, first)?, constant(self.func, b)?);
        // The table of a function of three bits is what it makes of these.
        let table = combined(op, combined(inner, 0xf0, 0xcc), 0xaa);
        let assembly = format!("lop3.b32 $0, $1, {first}, {second}, {table};");
        let word = |&x: &Value<'ctx>| {
            let result = self.ir.asm(&[self.ir.int_type(32).into()], &assembly, "=r,r", &[x], AsmEffects::Pure);
            result.first().copied().unwrap_or(x)
        };
        Some(self.registers(x).iter().map(word).collect())
    }

    /// Words of halves of others.
    fn halves(&self, low: Half, high: Half) -> Vec<Value<'ctx>> {
        let ir = &self.ir;
        let half = |word: &Value<'ctx>, index: usize| {
            ir.elements(ir.bitcast(ir.int(*word), ir.int_type(16).vec_type(2)), 2).get(index).copied().unwrap_or(*word)
        };
        let (lows, highs) = (self.registers(low.word), self.registers(high.word));
        let joined = |(a, b)| ir.bitcast(ir.vector(&[half(a, low.index), half(b, high.index)]), ir.int_type(32));
        lows.iter().zip(highs.iter()).map(joined).collect()
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

/// Half of a word that an operation puts into half of another, whose other bits are zero.
#[derive(Clone, Copy)]
struct Half {
    word: ValueId,
    /// 0 for the lower one.
    index: usize,
}

impl Half {
    /// What is put into the lower half.
    fn lower(func: &Func, value: ValueId) -> Option<Half> {
        let (_, word, _) = binary(func, value).filter(|&(op, _, c)| is(func, op, BinaryOp::And, c, 0xffff))?;
        let shifted = binary(func, word).filter(|&(op, _, c)| is(func, op, BinaryOp::Shr, c, 16));
        Some(shifted.map_or(Half { word, index: 0 }, |(_, word, _)| Half { word, index: 1 }))
    }

    /// What is put into the upper half.
    fn upper(func: &Func, value: ValueId) -> Option<Half> {
        let (op, word, c) = binary(func, value)?;
        if is(func, op, BinaryOp::Shl, c, 16) {
            return Some(Half { word, index: 0 });
        }
        is(func, op, BinaryOp::And, c, 0xffff_0000).then_some(Half { word, index: 1 })
    }
}

/// Whether an operation is that one with that constant.
fn is(func: &Func, op: BinaryOp, wanted: BinaryOp, operand: ValueId, number: u32) -> bool {
    op == wanted && constant(func, operand) == Some(number)
}

/// The operation on two values that gives a value, with its operands.
fn binary(func: &Func, value: ValueId) -> Option<(BinaryOp, ValueId, ValueId)> {
    let operation = func.def_op(value)?;
    let (Op::Elementwise(ElementwiseOp::Binary { op }), &[a, b]) = (&operation.op, operation.operands.as_slice())
    else {
        return None;
    };
    Some((*op, a, b))
}

/// The bits of the integer that a value is everywhere.
fn constant(func: &Func, value: ValueId) -> Option<u32> {
    match uniform_constant(func, value)? {
        Literal::Int(value) => Some(value as u32),
        Literal::Bool(_) | Literal::Float(_) => None,
    }
}

fn combined(op: BinaryOp, a: u8, b: u8) -> u8 {
    match op {
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        _ => a ^ b,
    }
}
