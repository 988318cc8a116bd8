//! Sums and products of integers whose constants stay outermost.
//!
//! ```text
//! row:     thread, thread + 16, thread + 32, ..              the coordinates of a thread's registers
//! offset:  row * 64      thread * 64, thread * 64 + 1024, thread * 64 + 2048, ..      and not (thread + 16) * 64
//! ```
//!
//! What the registers of a thread address then differs by constants, which instructions contain: one register addresses
//! all of them. LLVM moves constants out as well, but only of sums that nobody else uses: two tiles that lie in the same
//! rows, one of them from before a loop, kept eight addresses of the other apart. Kernels of matrix products are lowered
//! like this: the addresses of what they copy ahead live beside their sums through a loop, where registers are few. Those
//! whose products warps of their own feed have no such addresses.

use kernel_core::ir::{Func, GpuOp, Op};
use kernel_llvm::inkwell::values::{BasicValue, BasicValueEnum, InstructionOpcode, IntValue};

use super::ir::Ir;

/// Whether the warps that multiply hold addresses of what is copied ahead.
pub(super) fn addresses_beside_sums(func: &Func) -> bool {
    let fed = |op: &Op| matches!(op, Op::Gpu(GpuOp::WarpGroups { .. }));
    func.ops.iter().any(|operation| operation.op.multiplies()) && !func.ops.iter().any(|operation| fed(&operation.op))
}

impl<'ctx> Ir<'ctx> {
    /// `a + b`, with the constants in them added last.
    pub(super) fn sum(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
        let with = |a, b, term| self.add(self.add(a, b), term);
        match (constant_term(a), constant_term(b)) {
            (None, None) => self.add(a, b),
            (Some((a, term)), None) => with(a, b, term),
            (None, Some((b, term))) => with(a, b, term),
            (Some((a, first)), Some((b, second))) => with(a, b, self.add(first, second)),
        }
    }

    /// `a * b`; a sum with a constant is multiplied by a constant term by term.
    pub(super) fn product(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
        match constant_term(a).filter(|_| b.is_const()) {
            Some((rest, term)) => self.add(self.mul(rest, b), self.mul(term, b)),
            None => self.mul(a, b),
        }
    }
}

/// A sum with a constant: the rest and the constant.
fn constant_term(sum: IntValue<'_>) -> Option<(IntValue<'_>, IntValue<'_>)> {
    let sum = sum.as_instruction_value().filter(|sum| sum.get_opcode() == InstructionOpcode::Add)?;
    let operand = |at| match sum.get_operand(at)?.value()? {
        BasicValueEnum::IntValue(value) => Some(value),
        _ => None,
    };
    let (rest, term) = (operand(0)?, operand(1)?);
    term.is_const().then_some((rest, term))
}
