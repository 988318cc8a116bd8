//! For how many programs per multiprocessor ptxas shall make room.
//!
//! ```text
//! programs 4      .minnctapersm 4: no thread takes more than a fourth of the registers that a program's have
//! ```
//!
//! Programs that wait hide that behind others, if these fit; [`crate::occupancy`] says how many that takes. Groups of
//! warps that change their number of registers have a multiprocessor for themselves, but for one group of consumers:
//!
//! ```text
//! warp_groups {warps = [4, 4], .., registers = [216, 40]}        programs 2
//! ```
//!
//! Its threads have all registers that instructions can name, if the multiprocessor runs one program. Four warps that
//! compute with each of their products leave the tensor cores alone meanwhile; a second program fills that gap, if both
//! have room. So where shared memory has it, and what is alive takes more than half of the registers shared evenly, the
//! threads that fetch give theirs to those that multiply: attention of 128 rows and 64 keys of 64 halves takes 179
//! registers, spills 564 bytes with room for two programs, and nothing with 216. Loops that only multiply keep
//! the tensor cores busy by themselves.

use kernel_core::edit::Uses;
use kernel_core::ir::{Func, GpuOp, Op, OpId, Region};
use kernel_core::target::{GROUP_WARPS, Target};

use crate::analysis::exchange::Threads;
use crate::analysis::exchange::{meetings, shared_bytes};
use crate::analysis::pressure::pressure;
use crate::analysis::warp_groups::{Group, block_warps, groups_of, registers_at_start, sets_registers, shared_out};
use crate::occupancy::{BESIDE_PRODUCTS, Need, Occupancy, asked_programs};

/// Programs that share a multiprocessor if one group of warps multiplies in each.
const SHARING: u32 = 2;

/// Runs the pass over a kernel with tiles in so many warps; gives what the kernel needs, where that makes a difference.
pub(crate) fn run(func: &mut Func, target: Target, num_warps: u32) -> Option<Need> {
    let warps = block_warps(func, num_warps);
    let barriers = meetings(func, func.body, Threads::Program(warps));
    let (programs, need) = if sets_registers(func) {
        (Some(1), None)
    } else if share_out(func, target).is_some() {
        (Some(SHARING), None)
    } else {
        asked_programs(func, target, warps, shared_bytes(func), barriers)
    };
    func.programs = programs;
    need
}

/// Has the warps that fetch give registers to those that multiply, if two programs then have room that have none without
/// that.
fn share_out(func: &mut Func, target: Target) -> Option<()> {
    let body = func.region(func.body).ops.clone();
    let id = body.into_iter().find(|&id| matches!(func.op(id).op, Op::Gpu(GpuOp::WarpGroups { .. })))?;
    let groups = groups_of(func.op(id));
    let &[(consumers, _), (producer, _)] = groups.as_slice() else { return None };
    let four = |group: Group| group.warps == GROUP_WARPS;
    if consumers.single || !producer.single || !four(consumers) || !four(producer) || !computes(func) {
        return None;
    }
    let warps = 2 * GROUP_WARPS;
    if Occupancy::new(target, warps, shared_bytes(func), None).programs() < SHARING {
        return None;
    }
    let (many, few) = shared_out(target, 1, SHARING)?;
    let needed = pressure(func).registers + BESIDE_PRODUCTS;
    if needed <= registers_at_start(target, warps, SHARING) || needed > u32::from(many) {
        return None;
    }
    if let Op::Gpu(GpuOp::WarpGroups { registers, .. }) = &mut func.ops[id.index()].op {
        *registers = vec![many, few];
    }
    Some(())
}

/// Whether something in the loops of the products looks at what they give: others only multiply, with products in flight.
fn computes(func: &Func) -> bool {
    let users = Uses::new(func);
    let of_kind = |id: OpId, wanted: &dyn Fn(&GpuOp) -> bool| matches!(&func.op(id).op, Op::Gpu(op) if wanted(op));
    let in_flight = |region: &Region| {
        region.ops.iter().any(|&id| of_kind(id, &|op| matches!(op, GpuOp::WgmmaWait { pending: 1.. })))
    };
    let goes_on = |user: OpId| {
        func.op(user).op.is_terminator()
            || of_kind(user, &|op| matches!(op, GpuOp::Wgmma { .. } | GpuOp::WgmmaWait { .. }))
    };
    let looks = |region: &Region| {
        let waits = region.ops.iter().filter(|&&id| of_kind(id, &|op| matches!(op, GpuOp::WgmmaWait { .. })));
        waits.flat_map(|&id| &func.op(id).results).any(|&value| users.of(value).iter().any(|&user| !goes_on(user)))
    };
    let multiplies =
        |region: &Region| region.ops.iter().any(|&id| of_kind(id, &|op| matches!(op, GpuOp::Wgmma { .. })));
    func.regions.iter().all(|region| !in_flight(region) || (multiplies(region) && looks(region)))
}
