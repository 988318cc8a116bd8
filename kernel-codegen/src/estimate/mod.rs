//! What a kernel takes and what a launch of it costs, without generating code: for tuners, which drop and rank
//! candidates by it.
//!
//! The estimate reads the placed kernel. It evaluates the scalars that loops depend on, as far as they follow from the
//! launch (`count`), sums what the first program does, and takes the slowest of a multiprocessor's units, with what the
//! others cannot hide. The first program is the one that has most to do in kernels whose programs stay.
//!
//! Its numbers are those of no particular GPU: what matters is how candidates compare.

mod count;

use std::hash::{DefaultHasher, Hash, Hasher};

use kernel_core::backend::nvidia::{LaunchShape, Options, Placement, Work};
use kernel_core::ir::{Bound, Func};
use kernel_core::layout::WARP_SIZE;
use kernel_core::target::Target;

use crate::analysis::exchange::shared_bytes;
use crate::analysis::pressure::pressure;
use crate::analysis::warp_groups::{block_warps, sets_registers};
use crate::compile::place_watched;
use crate::error::CodegenError;
use crate::occupancy::Occupancy;

/// Bytes per cycle between a multiprocessor and the second-level cache. An H100 delivers 5.5 TB/s to 132 of them at
/// 1.7 GHz, less what many readers of one line cost.
const CACHE_BYTES: f64 = 24.0;

/// Bytes per cycle and multiprocessor of the memory behind it: 3.35 TB/s.
const MEMORY_BYTES: f64 = 15.0;

/// Bytes per cycle of shared memory: 32 banks of 4 bytes.
const SHARED_BYTES: f64 = 128.0;

/// Elements per cycle of plain arithmetic.
const ELEMENTS: f64 = 128.0;

/// Cycles until a load from memory arrives.
const LATENCY: f64 = 700.0;

/// Cycles of a barrier, or of a wait for what has mostly arrived.
const WAIT: f64 = 25.0;

/// Cycles from the launch of a program to its first load, and from its last store to its end.
const PROGRAM: f64 = 1500.0;

/// The share of the other units' time that the slowest unit does not hide.
const NOT_HIDDEN: f64 = 0.15;

/// What each register that has no room adds to a kernel's time, as a share.
const SPILLED: f64 = 0.01;

/// The most registers that an instruction can name.
const MOST_REGISTERS: u32 = 255;

/// Places a kernel and says what that takes, and what a launch costs.
///
/// # Errors
/// As [`crate::compile`], without those of LLVM.
pub fn estimate(
    kernel: &Bound,
    target: Target,
    options: &Options,
    launch: &LaunchShape,
) -> Result<Placement, CodegenError> {
    let (placed, _) = place_watched(kernel, &target, options, &mut |_, _, _| {})?;
    let func = placed.func();
    let warps = block_warps(func, options.num_warps);
    let shared = shared_bytes(func);
    let registers = pressure(func).registers;
    let limit = register_limit(func, target, warps, options);
    let programs = Occupancy::new(target, warps, shared, Some(registers.min(limit))).programs();
    let work = count::count(func, launch);
    let spills = f64::from(registers.saturating_sub(limit)) * SPILLED;
    let cycles = cycles(&work, launch, programs.max(1)) * (1.0 + spills);
    let digest = digest(func, warps, options);
    Ok(Placement {
        num_warps: warps,
        shared_bytes: shared,
        registers,
        register_limit: limit,
        programs,
        work,
        cycles,
        digest,
    })
}

/// The registers that a thread can have: as many as an instruction names, as the options allow, and as a multiprocessor
/// has for a program. Groups of warps divide those of a program among themselves.
fn register_limit(func: &Func, target: Target, warps: u32, options: &Options) -> u32 {
    let shared_out = target.multiprocessor().registers / (warps * WARP_SIZE);
    let each = if sets_registers(func) { MOST_REGISTERS } else { shared_out.min(MOST_REGISTERS) };
    each.min(options.max_registers.unwrap_or(MOST_REGISTERS))
}

/// The time of a launch. `programs` run on a multiprocessor at once.
fn cycles(work: &Work, launch: &LaunchShape, programs: u32) -> f64 {
    let grid: f64 = launch.grid.iter().map(|&count| f64::from(count)).product();
    let processors = f64::from(launch.processors.max(1));
    // Of the multiprocessor with the most programs.
    let each = (grid / processors).ceil();
    let units = [
        work.product_cycles * each,
        work.global_bytes * each / CACHE_BYTES,
        work.shared_bytes * each / SHARED_BYTES,
        work.elements * each / ELEMENTS,
        launch.bytes as f64 / (MEMORY_BYTES * processors),
    ];
    let slowest = units.iter().copied().fold(0.0, f64::max);
    let busy = slowest + NOT_HIDDEN * (units.iter().sum::<f64>() - slowest);
    // What a program waits for, its neighbours on the multiprocessor hide.
    let rounds = (grid / (processors * f64::from(programs))).ceil();
    let waiting = rounds * (PROGRAM + work.waits * WAIT + work.stalls * LATENCY);
    busy.max(waiting) + NOT_HIDDEN * busy.min(waiting)
}

/// Of everything that the code depends on.
fn digest(func: &Func, warps: u32, options: &Options) -> u64 {
    let mut hasher = DefaultHasher::new();
    kernel_core::text::print(func).hash(&mut hasher);
    (warps, options.num_warps, options.max_registers, options.checks).hash(&mut hasher);
    hasher.finish()
}
