//! Moves loads of memory that does not change before reductions, so that their latency overlaps.
//!
//! ```text
//! before:  x = load ..; m = reduce x; w = load ..; out = (x - m) * w
//! after:   x = load ..; w = load ..; m = reduce x; out = (x - m) * w
//! ```
//!
//! A reduction between warps is a barrier, which neither LLVM nor ptxas moves loads across; a kernel that waits for
//! memory, reduces, and waits for memory again takes as long as both. What a load needs (offsets, masks, checks)
//! moves along, if it does not depend on the reduction itself.
//!
//! Only loads through `Ptr` move: nobody writes that memory. They do not move over loops, conditions and asserts,
//! and only as long as what is then in flight fits the registers.

use std::collections::BTreeSet;

use kernel_core::ir::{Does, Func, MemoryOp, Op, OpId, ParamKind, RegionId, Regions, ValueId};
use kernel_core::layout::WARP_SIZE;

/// The most registers of 32 bits per thread that may be waiting for moved loads: a quarter of what a thread has.
const MAX_REGISTERS: i64 = 64;

/// Runs the pass on all regions; returns whether anything moved.
pub(crate) fn run(func: &mut Func, num_warps: u32) -> bool {
    let threads = i64::from(num_warps * WARP_SIZE);
    let mut changed = false;
    for index in 0..func.regions.len() {
        changed |= region(func, RegionId::new(index as u32), threads);
    }
    changed
}

fn region(func: &mut Func, region: RegionId, threads: i64) -> bool {
    let ops = func.region(region).ops.clone();
    let mut moved = false;
    let (mut barrier, mut budget) = (None, MAX_REGISTERS);
    let mut order: Vec<OpId> = Vec::with_capacity(ops.len());
    // Values defined after the insertion point by operations that stay there.
    let mut late: BTreeSet<ValueId> = BTreeSet::new();
    for &id in &ops {
        let operation = func.op(id);
        match role(&operation.op) {
            Role::Meets if barrier.is_none() => barrier = Some(order.len()),
            Role::Bars => {
                barrier = None;
                late.clear();
            }
            Role::Meets | Role::Other => {}
        }
        let place = barrier.filter(|_| is_constant_load(func, id));
        let registers = registers(func, id, threads);
        match place {
            Some(at) if registers <= budget && can_move(func, id, &late) => {
                let needed = needed(func, id, &order[at..]);
                order.retain(|op| !needed.contains(op));
                let group: Vec<OpId> = needed.iter().copied().chain([id]).collect();
                // Operations keep their order among themselves.
                for (offset, op) in group.iter().enumerate() {
                    order.insert(at + offset, *op);
                }
                barrier = Some(at + group.len());
                moved = true;
                budget -= registers;
            }
            _ => {
                if barrier.is_some() && !is_movable(func, id, &late) {
                    late.extend(&func.op(id).results);
                }
                order.push(id);
            }
        }
    }
    func.regions[region.index()].ops = order;
    moved
}

/// What an operation means for loads behind it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Threads meet there: loads should be before it.
    Meets,
    /// Loads stay behind it.
    Bars,
    /// Nothing.
    Other,
}

fn role(op: &Op) -> Role {
    match op.regions() {
        Regions::Combine(_) => Role::Meets,
        Regions::Loop(_) | Regions::Branch(_) | Regions::Concurrent => Role::Bars,
        Regions::Apply(_) if !op.does().is_empty() => Role::Bars,
        Regions::Apply(_) => Role::Other,
        Regions::Straight if op.is_together() || op.does().contains(&Does::Ends) => Role::Bars,
        Regions::Straight => Role::Other,
    }
}

/// Registers of 32 bits per thread that hold the result.
fn registers(func: &Func, id: OpId, threads: i64) -> i64 {
    let bits = |value: &ValueId| {
        let bits = func.ty(*value).dtype().map_or(64, |dtype| i64::from(dtype.bits().max(8)));
        func.ty(*value).numel().unwrap_or(i64::MAX / 64).saturating_mul(bits)
    };
    func.op(id).results.iter().map(bits).sum::<i64>() / (threads * 32)
}

fn is_constant_load(func: &Func, id: OpId) -> bool {
    let operation = func.op(id);
    let is_load = matches!(operation.op, Op::Memory(MemoryOp::Load { .. }));
    let param = operation.operands.first().and_then(|&pointer| func.ty(pointer).pointee());
    is_load && param.is_some_and(|param| matches!(func.param(param).kind, ParamKind::Ptr { mutable: false, .. }))
}

/// Whether none of the operands is computed after the insertion point by something that stays there.
fn can_move(func: &Func, id: OpId, late: &BTreeSet<ValueId>) -> bool {
    func.op(id).operands.iter().all(|value| !late.contains(value))
}

/// Whether an operation may move along with a load.
fn is_movable(func: &Func, id: OpId, late: &BTreeSet<ValueId>) -> bool {
    let op = &func.op(id).op;
    // Where a check sits is unobservable.
    let moves = op.is_arithmetic() || matches!(op, Op::Memory(MemoryOp::CheckBounds { .. }));
    moves && can_move(func, id, late)
}

/// The operations among `after` that a load depends on, in their order.
fn needed(func: &Func, load: OpId, after: &[OpId]) -> Vec<OpId> {
    let mut wanted: BTreeSet<ValueId> = func.op(load).operands.iter().copied().collect();
    let mut needed = Vec::new();
    for &id in after.iter().rev() {
        if func.op(id).results.iter().any(|result| wanted.contains(result)) {
            wanted.extend(&func.op(id).operands);
            needed.push(id);
        }
    }
    needed.reverse();
    needed
}
