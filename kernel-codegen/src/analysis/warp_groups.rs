//! The warp groups of a kernel, and the registers that their threads have.

use kernel_core::ir::{Func, GpuOp, Op, Operation};
use kernel_core::layout::WARP_SIZE;

use kernel_core::target::Target;

/// Numbers of registers of a thread are multiples of this.
pub(crate) const REGISTER_UNIT: u32 = 8;

/// The most registers that an instruction can name.
const MOST_REGISTERS: u32 = 255;

/// The `warp_groups` of a kernel, if it has one.
pub(crate) fn warp_groups_of(func: &Func) -> Option<&Operation> {
    let ops = &func.region(func.body).ops;
    ops.iter().map(|&id| func.op(id)).find(|operation| matches!(operation.op, Op::Gpu(GpuOp::WarpGroups { .. })))
}

/// Whether a group changes its number of registers, which ptxas honours in blocks that have a multiprocessor alone.
pub(crate) fn sets_registers(func: &Func) -> bool {
    let op = warp_groups_of(func).map(|operation| &operation.op);
    matches!(op, Some(Op::Gpu(GpuOp::WarpGroups { registers, .. })) if registers.iter().any(|&count| count > 0))
}

/// Registers of each thread when a block of so many warps starts, if it has a multiprocessor alone.
pub(crate) fn registers_at_start(target: Target, warps: u32) -> u32 {
    let all = target.multiprocessor().registers / (warps.max(1) * WARP_SIZE);
    all.min(MOST_REGISTERS) / REGISTER_UNIT * REGISTER_UNIT
}
