//! Accesses of threads to shared memory, and whether lanes of a warp meet in a bank.
//!
//! Those of the hardware's own readers and writers (`wgmma`, tensor copies) are not here: their layouts are the ones that it
//! asks for. Nor are single words that one thread tells the others.

use kernel_core::ir::{ControlOp, Func, GpuOp, Op, Operation, ShapeOp, Span, ValueId};
use kernel_core::layout::{
    Conversion, LinearLayout, MatrixAccess, SharedAccess, matrix_access, reduction, shared_access,
};
use kernel_core::target::Target;

use crate::analysis::exchange::{Route, WarpExchange, bits, vote};
use crate::analysis::vectors::element_dtype;
use crate::lower::view_bits;

/// Bytes that each lane has of a matrix of 8 rows.
const MATRIX_WORD: u32 = 4;

/// Which way a tile goes.
enum Direction {
    Load,
    Store,
}

/// One access of a tile in shared memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedReport {
    /// Where it is.
    pub span: Span,
    /// The operation, and which of its accesses: `shared_load`, `convert_layout, writes`.
    pub what: &'static str,
    /// Whether instructions for matrices move it (`ldmatrix`, `stmatrix`).
    pub by_matrices: bool,
    /// Bytes per instruction of a thread.
    pub bytes: u32,
    /// Instructions of a thread.
    pub instructions: u32,
    /// Extra wavefronts per wavefront because of bank conflicts: with 1, it takes twice as long.
    pub conflicts: u32,
}

/// The accesses of an operation.
pub(super) fn accesses(func: &Func, target: Target, operation: &Operation) -> Vec<SharedReport> {
    let found = if let Op::Gpu(GpuOp::SharedLoad) = operation.op {
        view(func, operation.operands[0], operation.results[0], target, Direction::Load)
    } else if let Op::Gpu(GpuOp::SharedStore) = operation.op {
        view(func, operation.operands[0], operation.operands[1], target, Direction::Store)
    } else if let Op::Gpu(GpuOp::AsyncCopy) = operation.op {
        copy(func, operation)
    } else if let Op::Shape(ShapeOp::ConvertLayout) = operation.op {
        conversion(func, target, operation)
    } else if let Op::Control(ControlOp::Reduce { axis }) = operation.op {
        exchange(func, operation, axis)
    } else {
        None
    };
    found.unwrap_or_default().into_iter().map(|one| SharedReport { span: operation.span, ..one }).collect()
}

/// Between a tile and a view of shared memory.
fn view(func: &Func, view: ValueId, tile: ValueId, target: Target, direction: Direction) -> Option<Vec<SharedReport>> {
    let (own, shared, bits) = (func.layout(tile)?, func.layout(view)?, view_bits(func, view));
    let (what, by_matrices) = match direction {
        Direction::Load => ("shared_load", true),
        Direction::Store => ("shared_store", target.has_stmatrix()),
    };
    // As lowering chooses.
    let ways = [false, true].into_iter().filter(|_| by_matrices);
    let plan = ways.filter_map(|transposed| matrix_access(own, shared, bits, transposed).ok().flatten()).next();
    if let Some(plan) = plan {
        return Some(vec![matrices(&plan, what)]);
    }
    let access = shared_access(own, shared, bits).ok()?;
    Some(vec![match direction {
        Direction::Load => vectors(&access, what),
        Direction::Store => written(&access, what),
    }])
}

/// From global memory into a view.
fn copy(func: &Func, operation: &Operation) -> Option<Vec<SharedReport>> {
    let (view, pointer) = (operation.operands[0], operation.operands[1]);
    let bits = 8 * element_dtype(func, pointer)?.bytes();
    let access = shared_access(func.layout(pointer)?, func.layout(view)?, bits).ok()?;
    Some(vec![vectors(&access, "async_copy")])
}

fn conversion(func: &Func, target: Target, operation: &Operation) -> Option<Vec<SharedReport>> {
    let layouts: Option<(&LinearLayout, &LinearLayout)> =
        func.layout(operation.operands[0]).zip(func.layout(operation.results[0]));
    let (from, to) = layouts?;
    let (store, load) = match Route::of(func, operation, target, from, to).ok()? {
        Route::Plain(Conversion::SharedMemory(plan)) => {
            (written(&plan.store, CONVERSION[0]), vectors(&plan.load, CONVERSION[1]))
        }
        Route::Matrices(plan) => (matrices(&plan.store, CONVERSION[0]), vectors(&plan.load, CONVERSION[1])),
        Route::Plain(Conversion::NoOp | Conversion::RegisterPermute(_) | Conversion::Shuffle(_)) => return None,
    };
    Some(vec![store, load])
}

const CONVERSION: [&str; 2] = ["convert_layout, writes", "convert_layout, reads"];

/// Of the partial results of warps.
fn exchange(func: &Func, operation: &Operation, axis: u8) -> Option<Vec<SharedReport>> {
    // A barrier counts votes.
    if vote(func, operation).is_some() {
        return None;
    }
    let plan = reduction(func.layout(operation.operands[0])?, axis).ok().filter(|plan| plan.crosses_warps())?;
    let widths: Vec<u32> = operation.operands.iter().map(|&operand| bits(func, operand)).collect();
    let all = WarpExchange::new(&plan, &widths).ok()?.exchanges;
    let both =
        all.iter().flat_map(|(_, one)| [written(&one.store, "reduce, writes"), vectors(&one.load, "reduce, reads")]);
    Some(both.collect())
}

fn vectors(access: &SharedAccess, what: &'static str) -> SharedReport {
    SharedReport {
        span: Span::UNKNOWN,
        what,
        by_matrices: false,
        bytes: access.access_bytes(),
        instructions: access.accesses.len() as u32,
        conflicts: access.conflicts,
    }
}

/// Vectors that are written, in the order in which fewest lanes meet in a bank.
fn written(access: &SharedAccess, what: &'static str) -> SharedReport {
    let conflicts = access.turned().map_or(access.conflicts, |turned| turned.conflicts);
    SharedReport { conflicts, ..vectors(access, what) }
}

fn matrices(access: &MatrixAccess, what: &'static str) -> SharedReport {
    SharedReport {
        span: Span::UNKNOWN,
        what,
        by_matrices: true,
        bytes: access.matrices * MATRIX_WORD,
        instructions: access.instructions.len() as u32,
        conflicts: access.conflicts,
    }
}
