//! Which operations pass values between threads through shared memory, and how much each exchange takes.
//!
//! ```text
//! convert_layout ..     writes, meets, reads; larger tiles in several passes
//! reduce ..             each warp writes its partial result, all meet, all read those of others; whether any or all of a
//!                       tile's truth values hold takes no bytes: the barrier counts
//! scan ..               an exchange per bit of the coordinate that warps hold
//! gather, histogram     the whole tile, counters
//! scatter               the tile, and the values behind it
//! sort                  half of the elements, for each swap between warps
//! dot by fma            both factors
//! load, atomics         what one thread read for all
//! counter               what one thread sees, where control depends on it
//! reshape               the one element of a tile, where control depends on it and threads may have read others
//! ```
//!
//! The pass `exchanges` gives each its bytes; lowering asks here again for the plan that fits them.

mod convert;
mod reduce;
mod scan;
mod tiles;

use kernel_core::edit::walk;
use kernel_core::ir::{
    ControlOp, CreateOp, DotInstruction, DotOp, Func, GpuOp, MemoryOp, Op, OpId, Operation, RegionId, ShapeOp, ValueId,
};
use kernel_core::layout::{LayoutDim, LinearLayout, SyncScope, reduction};

use super::control::{is_read_once, is_used, may_differ, steering_values, writes_memory};
use super::warp_groups::{Group, groups_of};
use crate::dot::Problem;
use crate::error::CodegenError;
use kernel_core::target::{GROUP_WARPS, Target};

pub(crate) use convert::{MAX_BYTES, MatrixPlan, Route, conversion_bytes};
pub(crate) use reduce::{WarpExchange, combination, row_major_shared, shared_in_order, vote};
pub(crate) use scan::{Holders, holders, slots_of};

pub(crate) use tiles::{Counters, KeyWords, sort_plan, tile_bytes, tile_exchange};

use scan::warp_exchanges;

/// The pass that this is for.
const PASS: &str = "exchanges";

/// One exchange: what it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    pub(crate) bytes: u32,
    /// Who meets between writes and reads.
    pub(crate) scope: SyncScope,
    /// Into how many parts it is cut.
    pub(crate) passes: u32,
}

impl Step {
    /// All threads write, meet and read once.
    fn once(bytes: u32) -> Step {
        Step { bytes: bytes.max(1), scope: SyncScope::Block, passes: 1 }
    }
}

/// Exchanges begin at multiples of so many bytes, the widest access.
pub(crate) const ALIGNMENT: u32 = 16;

/// The threads that run an operation together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Threads {
    /// Those of so many warps, which are the whole program.
    Program(u32),
    /// Those of a warp group with so many warps.
    Group(u32),
    /// One.
    One,
}

impl Threads {
    /// How often they meet at a barrier of several warps, where the kernel has `operation`, without what is in its
    /// regions.
    pub(crate) fn meetings(self, func: &Func, operation: &Operation) -> u32 {
        let apart = match self {
            Threads::One | Threads::Program(1) => return 0,
            Threads::Program(_) => false,
            Threads::Group(_) => true,
        };
        if let Op::Gpu(GpuOp::Barrier | GpuOp::WarpgroupBarrier) = operation.op {
            return 1;
        }
        if let Op::Control(ControlOp::Assert { .. }) = operation.op {
            let tile = operation.operands.iter().any(|&value| !func.ty(value).is_scalar());
            return u32::from(tile && !apart);
        }
        if operation.op.allocates_shared() {
            return 0;
        }
        operation.shared.iter().map(|range| range.meetings()).sum()
    }

    /// Whether the threads of each four warps have a barrier of their own.
    pub(crate) fn has_group_barriers(self) -> bool {
        match self {
            Threads::One => false,
            Threads::Program(warps) | Threads::Group(warps) => warps > GROUP_WARPS,
        }
    }
}

impl From<Group> for Threads {
    fn from(group: Group) -> Threads {
        if group.single { Threads::One } else { Threads::Group(group.warps) }
    }
}

/// What decides which operations of a kernel pass something on.
pub(crate) struct Exchanges {
    target: Target,
    num_warps: u32,
    /// Per value, whether control depends on it.
    steering: Vec<bool>,
    writes_memory: bool,
}

impl Exchanges {
    /// For a placed kernel with tiles in so many warps.
    pub(crate) fn new(func: &Func, target: Target, num_warps: u32) -> Exchanges {
        Exchanges { target, num_warps, steering: steering_values(func), writes_memory: writes_memory(func) }
    }

    /// The exchanges of an operation in turn. A conversion may take `allowed` bytes, if that is more than usual.
    ///
    /// # Errors
    /// If the layouts do not allow the operation.
    pub(crate) fn of(&self, func: &Func, id: OpId, threads: Threads, allowed: u32) -> Result<Vec<Step>, CodegenError> {
        let operation = func.op(id);
        let op = &operation.op;
        if let Op::Shape(ShapeOp::ConvertLayout) = op {
            return self.conversion(func, operation, allowed);
        }
        if let Op::Control(ControlOp::Reduce { axis }) = op {
            return self.reduction(func, operation, *axis, threads);
        }
        if let Op::Control(ControlOp::Scan { axis, .. }) = op {
            return self.scan(func, operation, *axis);
        }
        if let Op::Tile(op) = op {
            let step = tile_exchange(func, operation, op, self.num_warps)
                .map_err(|error| CodegenError::internal(func, operation.span, PASS, error.to_string()))?;
            return Ok(step.into_iter().collect());
        }
        let mut bytes = None;
        if let Op::Dot(DotOp::Dot { by: Some(DotInstruction::Fma), .. }) = op {
            bytes = factors(func, operation).map(|(left, right)| left.next_multiple_of(16) + right);
        } else if let Op::Memory(MemoryOp::Load { .. }) = op {
            let passed = threads != Threads::One && is_read_once(func, &self.steering, operation);
            bytes = passed.then(|| bits(func, operation.results[0]) / 8);
        } else if let Op::Create(CreateOp::Counter { .. }) = op {
            // Each thread has another time, and a program that is interrupted may go on elsewhere; where it decides, what
            // one has seen is everyone's.
            let result = operation.results[0];
            let passed = threads != Threads::One && self.steering[result.index()];
            bytes = passed.then(|| bits(func, result) / 8);
        } else if let Op::Shape(ShapeOp::Reshape { .. }) = op {
            let (tile, result) = (operation.operands[0], operation.results[0]);
            let decides = func.layout(result).is_none() && self.steering[result.index()];
            let copies = threads != Threads::One && func.layout(tile).is_some_and(has_copies);
            bytes = (decides && copies && may_differ(func, tile)).then(|| bits(func, result) / 8);
        } else if let Op::Memory(MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. }) = op {
            let result = operation.results[0];
            let elements = func.layout(result).map_or(1, |layout| 1u32 << layout.total_out_bits());
            bytes = passes_result_on(func, operation, threads).then(|| elements * bits(func, result) / 8);
        }
        Ok(bytes.map(Step::once).into_iter().collect())
    }

    fn conversion(&self, func: &Func, operation: &Operation, allowed: u32) -> Result<Vec<Step>, CodegenError> {
        let (source, result) = (operation.operands[0], operation.results[0]);
        let (Some(from), Some(to)) = (func.layout(source), func.layout(result)) else { return Ok(Vec::new()) };
        let route = Route::new(self.target, from, to, bits(func, source), allowed.max(MAX_BYTES)).map_err(|error| {
            let what = format!("a conversion of layouts that cannot be done: {error}");
            CodegenError::refuse(func, operation.span, what)
        })?;
        Ok(route.step().into_iter().collect())
    }

    fn reduction(
        &self,
        func: &Func,
        operation: &Operation,
        axis: u8,
        threads: Threads,
    ) -> Result<Vec<Step>, CodegenError> {
        let wrong =
            |error: &dyn std::fmt::Display| CodegenError::internal(func, operation.span, PASS, error.to_string());
        let Some(layout) = func.layout(operation.operands[0]) else {
            return Err(wrong(&"a reduction without a layout"));
        };
        if vote(func, operation).is_some() && threads != Threads::One {
            let several = threads != Threads::Program(1);
            return Ok(several.then_some(Step { bytes: 0, scope: SyncScope::Block, passes: 1 }).into_iter().collect());
        }
        let plan = reduction(layout, axis).map_err(|error| wrong(&error))?;
        let mut steps = Vec::new();
        if plan.crosses_warps() {
            let widths: Vec<u32> = operation.operands.iter().map(|&operand| bits(func, operand)).collect();
            steps.push(Step::once(WarpExchange::new(&plan, &widths).map_err(|error| wrong(&error))?.bytes));
        }
        // What decides and what belongs to it come from one thread.
        let passed = operation.results.iter().any(|&value| self.is_passed_on(func, layout, value));
        if passed && threads != Threads::One {
            steps.extend(operation.results.iter().map(|&value| Step::once(bits(func, value) / 8)));
        }
        Ok(steps)
    }

    /// Whether the first thread's number stands for all: copies that other programs may have changed in between need
    /// not agree.
    fn is_passed_on(&self, func: &Func, reduced: &LinearLayout, value: ValueId) -> bool {
        func.layout(value).is_none() && self.steering[value.index()] && self.writes_memory && has_copies(reduced)
    }

    fn scan(&self, func: &Func, operation: &Operation, axis: u8) -> Result<Vec<Step>, CodegenError> {
        let Some(layout) = func.layout(operation.operands[0]) else { return Ok(Vec::new()) };
        let Some(holders) = holders(layout, axis) else {
            let what = format!("a scan in the layout {layout}, which mixes axis {axis} with others");
            return Err(CodegenError::refuse(func, operation.span, what));
        };
        let sizes: Vec<u32> = operation.operands.iter().map(|&operand| bits(func, operand) / 8).collect();
        let exchanges = warp_exchanges(&holders, layout.in_size(LayoutDim::Register), &sizes, self.num_warps);
        Ok(exchanges.into_iter().map(Step::once).collect())
    }
}

/// Bytes of both factors of a product of plain arithmetic, which threads share.
pub(crate) fn factors(func: &Func, dot: &Operation) -> Option<(u32, u32)> {
    let problem = Problem::of(func, dot)?;
    let deep = problem.batch.iter().product::<u32>() * problem.k;
    Some((deep * problem.m * problem.a.bytes(), deep * problem.n * problem.b.bytes()))
}

/// Whether threads that hold copies of an atomic's result are told what was there by the one that has it.
fn passes_result_on(func: &Func, atomic: &Operation, threads: Threads) -> bool {
    let shared = func.layout(atomic.operands[0]).map_or(threads != Threads::One, has_copies);
    shared && is_used(func, atomic.results[0])
}

/// Whether several threads hold the same element.
pub(crate) fn has_copies(layout: &LinearLayout) -> bool {
    layout.free_variable_mask(LayoutDim::Lane) != 0 || layout.free_variable_mask(LayoutDim::Warp) != 0
}

/// Bits of an element in shared memory; an address has 64.
pub(crate) fn bits(func: &Func, value: ValueId) -> u32 {
    let ty = func.ty(value);
    if ty.pointee().is_some() { 64 } else { ty.dtype().map_or(32, |dtype| dtype.bytes() * 8) }
}

/// Bytes of shared memory that a kernel's operations take.
pub(crate) fn shared_bytes(func: &Func) -> u32 {
    let mut bytes = 0;
    walk(func, &mut |id| {
        let operation = func.op(id);
        let end = operation.shared.iter().map(|range| range.end).max().unwrap_or(0);
        let end = if operation.op.allocates_shared() { end } else { end.next_multiple_of(ALIGNMENT) };
        bytes = bytes.max(end);
    });
    bytes
}

/// How often several warps of a kernel meet, counted once per place, in a region and the regions in it.
pub(crate) fn meetings(func: &Func, region: RegionId, threads: Threads) -> u32 {
    let of = |(_, operation): (OpId, &Operation)| {
        let groups = groups_of(operation);
        let inside: u32 = match groups.is_empty() {
            false => groups.iter().map(|&(group, region)| meetings(func, region, group.into())).sum(),
            true => operation.regions.iter().map(|&inner| meetings(func, inner, threads)).sum(),
        };
        threads.meetings(func, operation) + inside
    };
    func.region_ops(region).map(of).sum()
}
