//! Which kernels groups may share: those of which every effect on memory belongs to one of them.
//!
//! Each group runs its own version of the kernel, so what stands outside of the loop runs several times, at different times.
//! That changes nothing if it is arithmetic and loads of memory that does not change. Stores belong to the group that has what is
//! stored, and stand behind the loop. Everything else is left to kernels that are divided otherwise.

use std::collections::BTreeSet;

use kernel_core::edit::{Structure, walk};
use kernel_core::ir::{
    ControlOp, CreateOp, Def, Func, GpuOp, MemoryOp, Op, OpId, ParamId, RegionId, Resource, ValueId,
};

use super::share::Sum;
use crate::analysis::control::is_mutable;
use crate::passes::placed::warp_specialize::find::FedLoop;

/// Whether the kernel around a loop is such one. `scores` are the values that depend on products of scores.
pub(super) fn suits(
    func: &Func,
    structure: &Structure,
    fed: &FedLoop,
    sums: &[Sum],
    scores: &BTreeSet<ValueId>,
) -> bool {
    let body = func.op(fed.owner).regions[0];
    let is_inside = |id: OpId| structure.around(id).any(|around| around == fed.owner);
    let depends = |value: &ValueId| scores.contains(value) || sums.iter().any(|sum| sum.values.contains(value));
    let mut fine = fed.stages > 1 && fed.copies.iter().all(|copy| copy.read.is_none());
    walk(func, &mut |id| {
        let operation = func.op(id);
        let is_in_body = func.region(body).ops.contains(&id);
        fine &= match &operation.op {
            Op::Memory(MemoryOp::Store { .. }) => is_store_of_one(func, structure, fed.owner, sums, id),
            Op::Memory(MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. }) => false,
            Op::Create(CreateOp::Counter { .. }) => false,
            Op::Gpu(GpuOp::Wgmma { .. }) => is_in_body,
            Op::Gpu(GpuOp::SharedStore) => is_in_body || !operation.operands.iter().any(depends),
            // Each version has control flow of its own around what it keeps; in the loop, of what scores say alone.
            Op::Control(ControlOp::If) if is_inside(id) => {
                !sums.iter().any(|sum| sum.values.contains(&operation.operands[0]))
            }
            Op::Control(ControlOp::For { .. }) if id == fed.owner => true,
            Op::Control(ControlOp::For { .. } | ControlOp::While | ControlOp::If) => !holds(func, id, &depends),
            _ => true,
        };
        // Memory that changes may have changed when another group reads it.
        fine &= func.own_effects(id).iter().all(|effect| match effect.resource {
            Resource::Buffer(buffer) => !is_mutable(func, buffer) || effect.writes,
            Resource::Shared | Resource::Barriers | Resource::Control => true,
        });
    });
    fine
}

/// Whether an operation, or one in it, computes with such values.
fn holds(func: &Func, id: OpId, depends: &dyn Fn(&ValueId) -> bool) -> bool {
    let operation = func.op(id);
    let inner = |region: &RegionId| func.region(*region).ops.iter().any(|&inner| holds(func, inner, depends));
    operation.operands.iter().chain(&operation.results).any(depends) || operation.regions.iter().any(inner)
}

/// Whether a store stands behind the loop, with values of one sum at most.
fn is_store_of_one(func: &Func, structure: &Structure, owner: OpId, sums: &[Sum], id: OpId) -> bool {
    let ops = &func.region(func.body).ops;
    let place = |id: OpId| ops.iter().position(|&other| other == id);
    let is_behind = structure.region_of(id) == Some(func.body) && place(owner) < place(id);
    is_behind && sums.iter().filter(|sum| touches(func, sum, id)).count() <= 1
}

/// Whether an operation computes with a sum.
fn touches(func: &Func, sum: &Sum, id: OpId) -> bool {
    func.op(id).operands.iter().any(|value| sum.values.contains(value))
}

/// Where a value is made that a sum needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Made {
    /// In each iteration of the loop.
    Within,
    /// Once, behind it.
    Behind,
}

impl Made {
    /// `None` for a value that is made elsewhere.
    pub(super) fn of(func: &Func, structure: &Structure, owner: OpId, value: ValueId) -> Option<Made> {
        let region = match func.value(value).def {
            Def::Param(_) => return None,
            Def::Arg(region, _) => region,
            Def::Result(id, _) => structure.region_of(id)?,
        };
        if region == func.body {
            return Some(Made::Behind);
        }
        structure.encloses(func.op(owner).regions[0], region).then_some(Made::Within)
    }
}

/// A store to a buffer.
struct Store {
    /// The number of the sum that is stored; `None` for what scores are.
    sum: Option<usize>,
    buffer: ParamId,
}

/// The sums that are stored to one buffer, in the order of the program: their addresses may meet. `None` if groups cannot keep
/// the order.
pub(super) fn turns(func: &Func, sums: &[Sum]) -> Option<Vec<usize>> {
    let mut stores: Vec<Store> = Vec::new();
    for (id, operation) in func.region_ops(func.body) {
        if let Op::Memory(MemoryOp::Store { .. }) = operation.op {
            let buffer = func.ty(operation.operands[0]).pointee()?;
            stores.push(Store { sum: sums.iter().position(|sum| touches(func, sum, id)), buffer });
        }
    }
    let meets = |one: &Store| stores.iter().any(|other| other.buffer == one.buffer && other.sum != one.sum);
    let mut turns: Vec<usize> = Vec::new();
    for store in stores.iter().filter(|store| meets(store)) {
        let sum = store.sum?;
        if !turns.contains(&sum) {
            turns.push(sum);
        }
    }
    // A sum that has had its turn has no further store.
    let last = |sum: usize| stores.iter().rposition(|store| store.sum == Some(sum) && meets(store));
    let first = |sum: usize| stores.iter().position(|store| store.sum == Some(sum) && meets(store));
    turns.windows(2).all(|pair| last(pair[0]) < first(pair[1])).then_some(turns)
}
