//! For how many programs per multiprocessor ptxas shall make room.
//!
//! ```text
//! programs 4      .minnctapersm 4: no thread takes more than a fourth of the registers that a program's have
//! ```
//!
//! Programs that wait hide that behind others, if these fit; [`crate::occupancy`] says how many that takes. Groups of
//! warps that change their number of registers have a multiprocessor for themselves.

use kernel_core::ir::Func;
use kernel_core::target::Target;

use crate::analysis::exchange::Threads;
use crate::analysis::exchange::{meetings, shared_bytes};
use crate::analysis::warp_groups::{block_warps, sets_registers};
use crate::occupancy::{Need, asked_programs};

/// Runs the pass over a kernel with tiles in so many warps; gives what the kernel needs, where that makes a difference.
pub(crate) fn run(func: &mut Func, target: Target, num_warps: u32) -> Option<Need> {
    let warps = block_warps(func, num_warps);
    let barriers = meetings(func, func.body, Threads::Program(warps));
    let (programs, need) = match sets_registers(func) {
        true => (Some(1), None),
        false => asked_programs(func, target, warps, shared_bytes(func), barriers),
    };
    func.programs = programs;
    need
}
