//! How many programs a multiprocessor runs at once, and how many ptxas is asked to make room for.
//!
//! A multiprocessor has so many registers, so much shared memory, and room for so many warps and programs; what a
//! program takes of each decides how many fit, and so how much latency they hide for each other.
//!
//! ```
//! use kernel_codegen::Target;
//! use kernel_codegen::occupancy::{Occupancy, Resource};
//! // 512 threads with 76 registers each: a second program would need more registers than there are.
//! let occupancy = Occupancy::new(Target::sm_90a(), 16, 0, Some(76));
//! assert_eq!((occupancy.programs(), occupancy.limits()), (1, vec![Resource::Registers]));
//! // With 64, two fit.
//! assert_eq!(Occupancy::new(Target::sm_90a(), 16, 0, Some(64)).programs(), 2);
//! ```
//!
//! ptxas chooses the number of registers, and without advice it takes few: of eight loads that could be in flight
//! it lets the second wait for the first, to save a register. What is asked for is advice, `.minnctapersm` in
//! PTX: room for 1024 threads, which leaves 64 registers to each, but for two programs at least, where 32 registers are
//! enough for those of 1024 threads. Programs that each reduce a row of their own wait for it together, so of
//! short rows more are asked for, until 40 KB are on their way; as long as what stays in registers over
//! the reductions does. Kernels without loops, reductions and barriers
//! get none, as nothing in them waits and they gain from every further program; unless they do little but load much.
//!
//! Room that costs spilled registers is worth nothing. So for no more programs is asked than have the registers that
//! are alive at once (`analysis::pressure`), which matters for what loops carry and for rows that are kept over
//! reductions and scans: a norm's gradient of 4096 columns in 8 warps spilled with room for three, and has room for
//! two. Kernels of matrix products are not asked about: they keep accumulators in most of the registers that there
//! are. But more may be alive than a thread can have, ptxas 13.0 gives up, takes 32 registers and spills kilobytes;
//! asked for room for one program it takes all that there are. And where one program more would have room with a few
//! registers less than are alive, ptxas spills these few; so it is asked for room for those that have them. And ptxas
//! does not know of shared memory: where that has room for three programs, it takes as few registers as leave room for four or
//! five. So where threads hold the factors, it is asked for room for as many programs as have shared memory, or for one in four
//! less. The loop of a product of 16 rows by 4-bit weights then takes 103 registers in place of 94, and its instructions wait
//! for each other 520 cycles in place of 693; that of 256 columns takes 138 for 128, and waits 913 cycles for 1340. Elsewhere the
//! question would only make it take more than it needs.

use std::fmt;

use kernel_core::edit::walk;
use kernel_core::ir::{
    ControlOp, CreateOp, DotInstruction, DotOp, ElementwiseOp, Func, GpuOp, MemoryOp, Op, RegionId, Span, ValueId,
};
use kernel_core::layout::{LayoutDim, WARP_SIZE};

use crate::analysis::control::operands_before_carried;
use crate::analysis::pressure::{Pressure, pressure};
use kernel_core::target::Target;

/// Quarters of a multiprocessor: each has its share of the warps and of the registers.
const QUARTERS: u32 = 4;

/// A warp gets registers in units of so many.
const REGISTER_UNIT: u32 = 256;

/// A program gets shared memory in units of so many bytes.
const SHARED_UNIT: u32 = 128;

/// Bytes of shared memory that the system takes of each program.
const SHARED_RESERVED: u32 = 1024;

/// Threads that ptxas is asked to make room for.
const ASKED_THREADS: u32 = 1024;

/// Registers of a thread beside the tiles that stay in them: addresses, bounds, and what is being computed.
const BESIDE_TILES: u32 = 24;

/// The same while the loads of an iteration are in flight, before anything is computed.
const BESIDE_LOADS: u32 = 16;

/// From so many loaded registers per thread on, a kernel of plain arithmetic is about its loads.
const MANY_LOADS: u32 = 32;

/// Bytes that the programs of a multiprocessor should have on their way together while they wait for their rows. The
/// memory of an H100 delivers 25 bytes per nanosecond to each of its multiprocessors, about 700 nanoseconds after it
/// was asked, and programs ask during less than half of their time. Measured on layer norms: rows of 8 KB were fastest
/// with 5 programs, of 16 KB with 3, of 32 KB with 2.
const BYTES_ON_THEIR_WAY: u64 = 40 << 10;

/// Registers of a thread beside a row that waits for a reduction.
const BESIDE_ROWS: u32 = 8;

/// Registers of a thread beside those that are alive at once: addresses, bounds, and what is being computed.
const BESIDE_ALIVE: u32 = 8;

/// The same beside what is alive around matrix products: parts of their factors, and the addresses that copies ahead
/// need. Single products of large tiles leave 59 and are not spilled; of two products in turns, those that leave 32
/// are.
pub(crate) const BESIDE_PRODUCTS: u32 = 40;

/// The same where threads hold the factors themselves, and make them of what they load. Products of 16 rows by 4-bit weights, of
/// which 71 registers are alive at once, take 138 to 148 if they may.
const BESIDE_FACTORS: u32 = 80;

/// Warps for which ptxas, left alone, is expected to make room rather than not spill a little. An estimate that rests on one
/// kernel, as nothing documents ptxas's own rule: two products of 64 x 128 x 64 in four warps took the 168 registers with which
/// three programs have room, which are 12 warps, and spilled six. Where else it does so is not known; that no other advice spills
/// less by more than 5 % is tested for products of many sizes (`tests/suites/codegen/room.rs`).
const WARPS_ALONE: u32 = 12;

/// The most registers that an instruction can name.
const MOST_REGISTERS: u32 = 255;

/// Registers are given to threads in units of so many.
const THREAD_UNIT: u32 = REGISTER_UNIT / WARP_SIZE;

/// What a program takes of a multiprocessor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Registers, as many as each thread has.
    Registers,
    /// Shared memory.
    SharedMemory,
    /// Room for its threads.
    Threads,
    /// Room for a program, however small.
    Programs,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Registers => "registers",
            Resource::SharedMemory => "shared memory",
            Resource::Threads => "threads",
            Resource::Programs => "programs",
        })
    }
}

/// How many programs of a kernel a multiprocessor holds at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Occupancy {
    warps: u32,
    all_warps: u32,
    fitting: Vec<(Resource, u32)>,
}

impl Occupancy {
    /// For programs of so many warps with so many bytes of shared memory; `registers` per thread are known once
    /// the driver has compiled the kernel.
    pub fn new(target: Target, warps: u32, shared_bytes: u32, registers: Option<u32>) -> Occupancy {
        let has = target.multiprocessor();
        let warps = warps.max(1);
        let shared = (shared_bytes + SHARED_RESERVED).next_multiple_of(SHARED_UNIT);
        let mut fitting = vec![
            (Resource::SharedMemory, has.shared_bytes / shared),
            (Resource::Threads, has.warps / warps),
            (Resource::Programs, has.programs),
        ];
        if let Some(registers) = registers.filter(|&registers| registers > 0) {
            let per_warp = (registers * WARP_SIZE).next_multiple_of(REGISTER_UNIT);
            let warps_with_registers = has.registers / QUARTERS / per_warp * QUARTERS;
            fitting.insert(0, (Resource::Registers, warps_with_registers / warps));
        }
        Occupancy { warps, all_warps: has.warps, fitting }
    }

    /// How many fit by each resource.
    pub fn fitting(&self) -> &[(Resource, u32)] {
        &self.fitting
    }

    /// How many fit.
    pub fn programs(&self) -> u32 {
        self.fitting.iter().map(|&(_, programs)| programs).min().unwrap_or(0)
    }

    /// What keeps a further program out.
    pub fn limits(&self) -> Vec<Resource> {
        let programs = self.programs();
        self.fitting.iter().filter(|(_, fitting)| *fitting == programs).map(|&(resource, _)| resource).collect()
    }
}

impl fmt::Display for Occupancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let programs = self.programs();
        let warps = programs * self.warps;
        let plural = if programs == 1 { "" } else { "s" };
        write!(f, "{programs} program{plural} per multiprocessor, {warps} of {} warps", self.all_warps)?;
        let names: Vec<String> = self.limits().iter().map(ToString::to_string).collect();
        write!(f, ", limited by {}", names.join(" and "))?;
        let others: Vec<String> = self
            .fitting
            .iter()
            .filter(|(_, fitting)| *fitting != programs)
            .map(|(resource, fitting)| format!("{resource} {fitting}"))
            .collect();
        if !others.is_empty() {
            write!(f, " (by {})", others.join(", "))?;
        }
        Ok(())
    }
}

/// What a kernel needs, because of which ptxas is asked for less room than programs that wait would like, or is asked
/// though nothing waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Registers of 32 bits per thread that are alive at once.
    pub registers: u32,
    /// Where they are.
    pub span: Span,
    /// For how many programs there would be room otherwise; `None` if ptxas would decide alone.
    pub instead_of: Option<u32>,
}

/// For how many programs per multiprocessor ptxas shall make room in a placed kernel, or `None` if it decides alone;
/// and the kernel's need, where that makes a difference. `barriers` and `shared_bytes` are those of the lowered
/// kernel.
pub(crate) fn asked_programs(
    func: &Func,
    target: Target,
    num_warps: u32,
    shared_bytes: u32,
    barriers: u32,
) -> (Option<u32>, Option<Need>) {
    let wanted = wanted_programs(func, target, num_warps, shared_bytes, barriers);
    if wanted == Some(1) {
        return (wanted, None);
    }
    let Pressure { registers, span } = pressure(func);
    let available = target.multiprocessor().registers / (num_warps * WARP_SIZE);
    let need = Need { registers, span, instead_of: wanted };
    if let Some(programs) = wanted {
        let needed = (registers + BESIDE_ALIVE).next_multiple_of(THREAD_UNIT);
        let asked = Some(programs.min(available / needed).max(1));
        return (asked, (asked != wanted).then_some(need));
    }
    // ptxas is known to take 32 registers where it has found that all are too few.
    if registers + BESIDE_PRODUCTS > available.min(MOST_REGISTERS) {
        return (Some(1), Some(need));
    }
    let fitting = available / (registers + BESIDE_PRODUCTS).next_multiple_of(THREAD_UNIT);
    let occupancy = Occupancy::new(target, num_warps, shared_bytes, None);
    let by_others = occupancy.programs();
    let of_shared = |(resource, programs): &(Resource, u32)| (*resource == Resource::SharedMemory).then_some(*programs);
    let by_shared_memory = occupancy.fitting().iter().find_map(of_shared).unwrap_or(by_others);
    if (fitting + 1) * num_warps <= WARPS_ALONE {
        return (Some(fitting.min(by_others).max(1)), Some(need));
    }
    // ptxas does not know of shared memory, and leaves registers to programs that have no room there.
    let asked = by_shared_memory.min(WARPS_ALONE / num_warps);
    let loses_little = 4 * asked >= 3 * by_shared_memory;
    let has_room = asked > 0 && asked * (registers + BESIDE_FACTORS).next_multiple_of(THREAD_UNIT) <= available;
    ((loses_little && has_room && multiplies_by_threads(func)).then_some(asked), None)
}

/// Whether the products of a kernel are instructions of warps, which take their factors from registers.
fn multiplies_by_threads(func: &Func) -> bool {
    let (mut by_threads, mut by_groups) = (false, false);
    walk(func, &mut |id| match func.op(id).op {
        Op::Dot(DotOp::Dot { by: Some(DotInstruction::Mma), .. }) => by_threads = true,
        Op::Gpu(GpuOp::Wgmma { .. }) => by_groups = true,
        _ => {}
    });
    by_threads && !by_groups
}

/// For how many programs there should be room, if what is alive in between fits: in kernels that wait for something,
/// and kernels of plain arithmetic that load [`MANY_LOADS`] registers at once.
fn wanted_programs(func: &Func, target: Target, num_warps: u32, shared_bytes: u32, barriers: u32) -> Option<u32> {
    let (mut waits, mut multiplies, mut needed) = (barriers > 0, false, BESIDE_TILES);
    let (mut plain, at_once) = (true, loaded(func, func.body));
    walk(func, &mut |id| {
        let operation = func.op(id);
        plain &= !matches!(operation.op, Op::Elementwise(ElementwiseOp::Unary { .. }));
        // Matrix products keep accumulators in most of the registers that there are, and wait for nothing else.
        multiplies |= operation.op.multiplies();
        let Op::Control(op) = &operation.op else { return };
        match op {
            // What a loop carries, and the row that a reduction is about, stay in registers.
            ControlOp::For { .. } | ControlOp::While | ControlOp::Reduce { .. } | ControlOp::Scan { .. } => {
                waits = true;
                let tiles = &operation.operands[operands_before_carried(op)..];
                let tiles: u32 = tiles.iter().map(|&value| words(func, value)).sum();
                let loaded: u32 = operation.regions.iter().map(|&region| loaded(func, region)).sum();
                needed = needed.max(tiles + BESIDE_TILES).max(tiles + loaded + BESIDE_LOADS);
            }
            ControlOp::Map { .. } => plain = false,
            ControlOp::If
            | ControlOp::Yield
            | ControlOp::Return
            | ControlOp::Assert { .. }
            | ControlOp::Print { .. }
            | ControlOp::StaticAssert { .. } => {}
        }
    });
    let loads = plain && at_once >= MANY_LOADS;
    if multiplies || !(waits || loads) {
        return None;
    }
    if !waits {
        needed = needed.max(at_once + BESIDE_LOADS);
    }
    let has = target.multiprocessor();
    let threads = num_warps * WARP_SIZE;
    let by_registers = has.registers / needed / threads;
    let by_others = Occupancy::new(target, num_warps, shared_bytes, None).programs();
    // The largest programs have a second one beside them, so that one computes while the other loads.
    let asked = (ASKED_THREADS / threads).max(2).min(by_registers);
    let asked = asked.max(Rows::of(func).map_or(0, |rows| rows.programs(has.registers / threads)));
    Some(asked.min(by_others).max(1))
}

/// What a program without loops reads for itself, and what it keeps of that over its reductions.
struct Rows {
    /// Bytes that no other program reads.
    bytes: u64,
    /// Registers of 32 bits per thread that its own loads fill, or that hold what was loaded, or computed from it,
    /// over a reduction, if these are more.
    kept: u32,
}

impl Rows {
    /// Of a kernel that reduces what it loads, without loops: these have their loads in flight one iteration at a time.
    fn of(func: &Func) -> Option<Rows> {
        let (mut own, mut loaded) = (vec![false; func.values.len()], vec![false; func.values.len()]);
        let (mut bytes, mut kept, mut reductions, mut straight) = (0, 0, Vec::new(), true);
        let mut last_use = vec![0; func.values.len()];
        for (index, (_, operation)) in func.region_ops(func.body).enumerate() {
            let is_load = matches!(operation.op, Op::Memory(MemoryOp::Load { .. }));
            let is_program = matches!(operation.op, Op::Create(CreateOp::ProgramId { .. }));
            straight &= !operation.op.is_loop_or_branch();
            if operation.op.combines() {
                reductions.push(index);
            }
            let any = |of: &[bool]| operation.operands.iter().any(|value| of[value.index()]);
            let (is_own, is_loaded) = (is_program || any(&own), is_load || any(&loaded));
            for &value in &operation.results {
                (own[value.index()], loaded[value.index()]) = (is_own, is_loaded);
                if is_load && is_own {
                    let bits = u64::from(func.ty(value).dtype().map_or(0, |dtype| dtype.bits()));
                    kept += packed_words(func, value);
                    bytes += func.ty(value).numel().map_or(0, |numel| numel.unsigned_abs()) * bits / 8;
                }
            }
            for &value in &operation.operands {
                last_use[value.index()] = index;
            }
        }
        for &at in &reductions {
            let before = func.region_ops(func.body).take(at).flat_map(|(_, operation)| &operation.results);
            let live = before.filter(|value| loaded[value.index()] && last_use[value.index()] > at);
            kept = kept.max(live.map(|&value| packed_words(func, value)).sum());
        }
        (straight && bytes > 0 && !reductions.is_empty()).then_some(Rows { bytes, kept })
    }

    /// How many programs have enough on their way, or as many as fit, if a multiprocessor has so many registers for
    /// each thread of one.
    fn programs(&self, registers: u32) -> u32 {
        let wanted = u32::try_from(BYTES_ON_THEIR_WAY.div_ceil(self.bytes)).unwrap_or(u32::MAX);
        wanted.min(registers / (self.kept + BESIDE_ROWS).next_multiple_of(THREAD_UNIT))
    }
}

/// Registers of 32 bits per thread that hold a tile as it was loaded: two elements of 16 bits to a register.
fn packed_words(func: &Func, value: ValueId) -> u32 {
    let count = func.value(value).layout.map_or(0, |layout| func.layouts[layout.index()].in_size(LayoutDim::Register));
    let bits = func.ty(value).dtype().map_or(64, |dtype| dtype.bits());
    count.saturating_mul(bits).div_ceil(32)
}

/// Registers of 32 bits per thread that the loads of a region fill, without those of regions in it.
pub(crate) fn loaded(func: &Func, region: RegionId) -> u32 {
    let loads = func.region_ops(region).filter(|(_, op)| matches!(op.op, Op::Memory(MemoryOp::Load { .. })));
    loads.flat_map(|(_, load)| &load.results).map(|&value| words(func, value)).sum()
}

/// Registers of 32 bits per thread that hold a value.
pub(crate) fn words(func: &Func, value: ValueId) -> u32 {
    let count = func.value(value).layout.map_or(1, |layout| func.layouts[layout.index()].in_size(LayoutDim::Register));
    // A pointer takes 64 bits; what is shorter than a register fills one, as it does once it is computed with.
    let bits = func.ty(value).dtype().map_or(64, |dtype| dtype.bits());
    count.saturating_mul(bits.div_ceil(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_occupancy_calculator_of_cuda_says() {
        let cases = [
            // (target, warps, shared memory, registers) -> programs, limits
            ((Target::sm_90a(), 4, 0, 32), 16, vec![Resource::Registers, Resource::Threads]),
            ((Target::sm_90a(), 4, 0, 33), 12, vec![Resource::Registers]),
            ((Target::sm_90a(), 1, 0, 16), 32, vec![Resource::Programs]),
            ((Target::sm_90a(), 32, 0, 64), 1, vec![Resource::Registers]),
            ((Target::sm_90a(), 8, 0, 255), 1, vec![Resource::Registers]),
            ((Target::sm_90a(), 4, 100 * 1024, 32), 2, vec![Resource::SharedMemory]),
            ((Target::sm_80(), 4, 163 * 1024, 32), 1, vec![Resource::SharedMemory]),
            ((Target::sm_89(), 8, 0, 40), 6, vec![Resource::Registers, Resource::Threads]),
            ((Target::sm_89(), 1, 0, 40), 24, vec![Resource::Programs]),
        ];
        for ((target, warps, shared, registers), programs, limits) in cases {
            let occupancy = Occupancy::new(target, warps, shared, Some(registers));
            assert_eq!((occupancy.programs(), occupancy.limits()), (programs, limits), "{occupancy:?}");
        }
    }

    #[test]
    fn it_reads_as_a_sentence() {
        let text = Occupancy::new(Target::sm_90a(), 16, 2048, Some(76)).to_string();
        let expected = "1 program per multiprocessor, 16 of 64 warps, limited by registers \
                        (by shared memory 76, threads 4, programs 32)";
        assert_eq!(text, expected);
        let text = Occupancy::new(Target::sm_90a(), 16, 2048, None).to_string();
        let expected = "4 programs per multiprocessor, 64 of 64 warps, limited by threads \
                        (by shared memory 76, programs 32)";
        assert_eq!(text, expected);
    }
}
