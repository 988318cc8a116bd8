//! Turns: of two groups of four warps that compute with their products, one multiplies while the other computes.
//!
//! ```text
//! for {                                  turn_begin
//!   %s = wgmma %q, %k, ..                for {
//!   %t = wgmma_wait %s                     %s = wgmma %q, %k, ..; turn_end
//!   %p = exp2 %t ..                        %t = wgmma_wait %s
//!   %c = wgmma %p, %v, %acc                %p = exp2 %t ..
//!   %d = wgmma_wait %c                     turn_begin; %c = wgmma %p, %v, %acc
//! }                                        %d = wgmma_wait %c
//!                                        }
//!                                        turn_end
//! ```
//!
//! Both groups run the same code on their own rows, and a multiprocessor has one set of tensor cores. Where both
//! multiply at the same time, both compute at the same time too, and the tensor cores stand still. With turns, a group
//! issues the last product of an iteration and the first one of the next while the other computes. That is what
//! FlashAttention-3 does with named barriers (Shah et al., 2024).
//!
//! A turn is about time alone: a group that has it waits for nobody but the copies of its own factors. So the loop may
//! have no other barriers between its warps, and two slots, so that these copies need nothing of the other group.

use kernel_core::edit::{Cursor, Place, Result, Structure, splice, walk_region};
use kernel_core::ir::{ControlOp, Elem, Func, GpuOp, Op, OpId, RegionId};
use kernel_core::target::GROUP_WARPS;

use crate::analysis::exchange::{Threads, meetings};
use crate::analysis::warp_groups::{groups_of, warp_groups_of};

const PASS: &str = "turns";

/// Runs the pass.
///
/// # Errors
/// If it breaks a type rule, which is a mistake in it.
pub(crate) fn run(func: &mut Func) -> Result<()> {
    let Some(operation) = warp_groups_of(func) else { return Ok(()) };
    let consumers: Vec<RegionId> = groups_of(operation)
        .into_iter()
        .filter(|(group, _)| !group.single && group.warps == 2 * GROUP_WARPS)
        .map(|(_, region)| region)
        .collect();
    // Two groups that run code of their own take turns by tiles already.
    let &[region] = consumers.as_slice() else { return Ok(()) };
    let mut loops = Vec::new();
    walk_region(func, region, &mut |id| {
        if matches!(func.op(id).op, Op::Control(ControlOp::For { .. })) {
            loops.push(id);
        }
    });
    let structure = Structure::new(func);
    for owner in loops {
        let Some(products) = products(func, owner) else { continue };
        let Some(around) = structure.region_of(owner) else { continue };
        take_turns(func, around, owner, products)?;
    }
    Ok(())
}

/// The two products of an iteration, the second of which reads from registers what is computed of the first.
fn products(func: &Func, owner: OpId) -> Option<[OpId; 2]> {
    let body = func.op(owner).regions[0];
    let (mut all, mut top) = (0, Vec::new());
    walk_region(func, body, &mut |id| all += usize::from(is_product(func, id)));
    top.extend(func.region(body).ops.iter().copied().filter(|&id| is_product(func, id)));
    let &[first, second] = top.as_slice() else { return None };
    let computes = !matches!(func.ty(func.op(second).operands[0]).elem, Elem::Shared(_));
    let meets = meetings(func, body, Threads::Group(2 * GROUP_WARPS)) > 0;
    (all == 2 && computes && !meets && is_fed_ahead(func, body)).then_some([first, second])
}

fn is_product(func: &Func, id: OpId) -> bool {
    matches!(func.op(id).op, Op::Gpu(GpuOp::Wgmma { .. }))
}

/// Whether the loop waits for copies into at least two slots, and makes none itself.
fn is_fed_ahead(func: &Func, body: RegionId) -> bool {
    let (mut waits, mut fine) = (false, true);
    walk_region(func, body, &mut |id| {
        let operation = func.op(id);
        let Op::Gpu(op) = &operation.op else { return };
        if let GpuOp::MbarrierWait = op {
            let slots = func.def_op(operation.operands[0]).map(|alloc| &alloc.op);
            fine &= matches!(slots, Some(Op::Gpu(GpuOp::MbarrierAlloc { slots: 2.., .. })));
            waits = true;
        }
        fine &= !matches!(op, GpuOp::AsyncCopy | GpuOp::TmaLoad | GpuOp::TmaStore { .. } | GpuOp::SharedStore);
    });
    waits && fine
}

fn take_turns(func: &mut Func, around: RegionId, owner: OpId, [first, second]: [OpId; 2]) -> Result<()> {
    let body = func.op(owner).regions[0];
    let mut places = vec![
        (around, owner, [GpuOp::TurnBegin, GpuOp::TurnEnd].map(Some)),
        (body, first, [None, Some(GpuOp::TurnEnd)]),
        (body, second, [Some(GpuOp::TurnBegin), None]),
    ];
    for (region, at, [before, behind]) in places.drain(..) {
        let span = func.op(at).span;
        let mut ops = Vec::new();
        if let Some(op) = before {
            Cursor::new(func, &mut ops, PASS).at(span).effect(op, &[])?;
        }
        ops.push(at);
        if let Some(op) = behind {
            Cursor::new(func, &mut ops, PASS).at(span).effect(op, &[])?;
        }
        splice(func, Place::Instead(region, at), ops);
    }
    Ok(())
}
