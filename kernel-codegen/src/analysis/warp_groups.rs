//! The warp groups of a kernel, and the registers that their threads have.

use kernel_core::ir::{Func, GpuOp, GroupRole, Op, Operation, RegionId};
use kernel_core::layout::WARP_SIZE;
use kernel_core::target::{GROUP_WARPS, Target};

/// Numbers of registers of a thread are multiples of this.
pub(crate) const REGISTER_UNIT: u32 = 8;

/// Registers of a thread that only fetches.
const PRODUCER_REGISTERS: u32 = 40;

/// The most registers of a thread that multiplies.
pub(crate) const MAX_REGISTERS: u32 = 240;

/// The most registers that an instruction can name.
const MOST_REGISTERS: u32 = 255;

/// The `warp_groups` of a kernel, if it has one.
pub(crate) fn warp_groups_of(func: &Func) -> Option<&Operation> {
    let ops = &func.region(func.body).ops;
    ops.iter().map(|&id| func.op(id)).find(|operation| matches!(operation.op, Op::Gpu(GpuOp::WarpGroups { .. })))
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    /// The number of the barrier at which its threads meet.
    pub(crate) barrier: u32,
    pub(crate) first_warp: u32,
    pub(crate) warps: u32,
    /// Whether one thread runs it.
    pub(crate) single: bool,
}

impl Group {
    pub(crate) fn threads(self) -> u32 {
        self.warps * WARP_SIZE
    }

    /// How often the group arrives at a barrier with phases where the kernel says once: one thread per four warps does.
    pub(crate) fn arrivals(self) -> u32 {
        if self.single { 1 } else { self.warps.div_ceil(GROUP_WARPS) }
    }
}

/// The groups of a `warp_groups` in order, and the regions that they run; none of another operation.
pub(crate) fn groups_of(operation: &Operation) -> Vec<(Group, RegionId)> {
    let Op::Gpu(GpuOp::WarpGroups { warps, roles, .. }) = &operation.op else { return Vec::new() };
    let mut first_warp = 0;
    let mut groups = Vec::new();
    for (((&warps, &role), &region), barrier) in warps.iter().zip(roles).zip(&operation.regions).zip(1..) {
        let warps = u32::from(warps);
        groups.push((Group { barrier, first_warp, warps, single: role == GroupRole::Producer }, region));
        first_warp += warps;
    }
    groups
}

/// Whether groups that compute have different numbers of registers, as they do different things.
pub(crate) fn shares_registers(operation: &Operation) -> bool {
    let Op::Gpu(GpuOp::WarpGroups { roles, registers, .. }) = &operation.op else { return false };
    let mut computing = roles.iter().zip(registers).filter(|(role, _)| **role == GroupRole::Consumer);
    let first = computing.next().map(|(_, count)| *count);
    computing.any(|(_, count)| Some(*count) != first)
}

/// The warps of a block: those of the layouts, or of all warp groups.
pub(crate) fn block_warps(func: &Func, num_warps: u32) -> u32 {
    match warp_groups_of(func) {
        Some(operation) => groups_of(operation).iter().map(|(group, _)| group.warps).sum(),
        None => num_warps,
    }
}

/// Whether a group changes its number of registers, which ptxas honours in blocks that have a multiprocessor alone.
pub(crate) fn sets_registers(func: &Func) -> bool {
    let op = warp_groups_of(func).map(|operation| &operation.op);
    matches!(op, Some(Op::Gpu(GpuOp::WarpGroups { registers, .. })) if registers.iter().any(|&count| count > 0))
}

/// Registers of each thread when a block of so many warps starts, if a multiprocessor runs so many of them.
pub(crate) fn registers_at_start(target: Target, warps: u32, programs: u32) -> u32 {
    let all = target.multiprocessor().registers / (warps.max(1) * programs.max(1) * WARP_SIZE);
    all.min(MOST_REGISTERS) / REGISTER_UNIT * REGISTER_UNIT
}

/// Registers per thread of so many groups of four warps that multiply and of one that fetches, if a multiprocessor runs so
/// many programs: what the producer gives back, the consumers take. `None` if there is nothing to give.
pub(crate) fn shared_out(target: Target, groups: u32, programs: u32) -> Option<(u8, u8)> {
    let at_start = registers_at_start(target, (groups + 1) * GROUP_WARPS, programs);
    let left = (at_start * (groups + 1)).saturating_sub(PRODUCER_REGISTERS) / groups;
    let consumer = left.min(MAX_REGISTERS) / REGISTER_UNIT * REGISTER_UNIT;
    (consumer > at_start && at_start > PRODUCER_REGISTERS).then_some((consumer as u8, PRODUCER_REGISTERS as u8))
}
