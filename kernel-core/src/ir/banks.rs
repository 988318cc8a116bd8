//! What becomes of accumulators without a copy.

use super::func::Func;
use super::ids::{OpId, ValueId};
use super::ops::{ControlOp, GpuOp, Op};

/// The value that an operand of an operation becomes, if it may become it where it lies: the accumulator of an
/// asynchronous product its result, what is waited for the result of the wait, what a loop begins or goes on with the
/// argument that carries it, and what a branch yields the result of the condition. `owner` is the operation around.
pub fn becomes(func: &Func, id: OpId, operand: usize, owner: Option<OpId>) -> Option<ValueId> {
    let operation = func.op(id);
    if !operation.op.takes_in_flight(operand) {
        return None;
    }
    let carried = |of: OpId, index: usize| {
        let body = func.op(of).regions.first()?;
        func.region(*body).args.get(1 + index).copied()
    };
    if let Op::Gpu(GpuOp::Wgmma { .. }) = operation.op {
        operation.results.first().copied()
    } else if let Op::Gpu(GpuOp::WgmmaWait { .. }) = operation.op {
        operation.results.get(operand).copied()
    } else if let Op::Control(ControlOp::For { .. }) = operation.op {
        carried(id, operand.checked_sub(operation.op.carried()?)?)
    } else if let Op::Control(ControlOp::Yield) = operation.op {
        let owner = owner?;
        match func.op(owner).op {
            Op::Control(ControlOp::For { .. }) => carried(owner, operand),
            Op::Control(ControlOp::If) => func.op(owner).results.get(operand).copied(),
            _ => None,
        }
    } else {
        None
    }
}

/// The same, if it does: if both live in one bank.
pub fn stays(func: &Func, id: OpId, operand: usize, owner: Option<OpId>) -> Option<ValueId> {
    let bank = func.value(*func.op(id).operands.get(operand)?).bank?;
    becomes(func, id, operand, owner).filter(|&to| func.value(to).bank == Some(bank))
}
