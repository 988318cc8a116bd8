//! Turns: of the two halves of a group of eight warps that compute with their products, one multiplies while the other
//! computes.
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
//! Both halves run the same code on their own rows, and a multiprocessor has one set of tensor cores. Where both
//! multiply at the same time, both compute at the same time too, and the tensor cores stand still. With turns, a half
//! issues the last product of an iteration and the first one of the next while the other computes. That is what
//! FlashAttention-3 does with named barriers (Shah et al., 2024).
//!
//! # Why nobody waits for ever
//!
//! A loop takes turns if it has two products, the second of which reads from registers, and if
//!
//! - *nothing in it makes all eight warps meet*: no barrier, no exchange between warps, no copy that they wait for;
//! - *its factors come through rings of two slots or more*, and an iteration releases no slots but those that it has waited
//!   for itself, and, before its turn begins, those of the iteration before, whose product was in flight over its end.
//!
//! Both halves run one program's code, whose conditions and bounds are scalars, the same for all of its threads. So both go
//! through the same turns, numbered 1, 2, .. through all loops and iterations: a loop of `n` iterations has `n + 1`, one that
//! does not run has one, and a way around a loop skips its turns for both. Begins and ends alternate on every way (the
//! verifier's rule L17), and the halves alternate too: turn `m` of the first half begins when turn `m - 1` of the second has
//! ended, and turn `m` of the second when turn `m` of the first has. The first turn of all is given where the group begins.
//! One arrival more than there are waits is left when the program ends, and nobody waits for it.
//!
//! It remains to show that a turn ends. The half that has it waits for nothing but copies, which wait for slots that both
//! halves release. Let it be in turn `m`, which it begins in iteration `j` (counted through all loops of a ring) and ends in
//! iteration `j + 1` at the latest. The copies up to iteration `j + 1` go into slots of iterations up to `j - 1`, as there are
//! two or more. The half itself has been through these. The other half has ended turn `m - 1`, and before its own turn `m`
//! waits for no turn: it gets to the turn that begins in iteration `j`, and has released what it read in the iterations
//! before. What it waits for on its way are copies for iterations up to `j`, so the same holds for these. The first turn of a loop is shorter: all loops
//! before it are behind both halves, or before the other one without a turn in between. Where neither half has a turn, both
//! may meet: neither waits for the other's turn without this one being on its way to it.

use kernel_core::edit::{Cursor, Place, Result, Structure, splice, walk_region};
use kernel_core::ir::{ControlOp, Elem, Func, GpuOp, Op, OpId, RegionId, Span, ValueId};
use kernel_core::target::GROUP_WARPS;

use crate::analysis::exchange::{Threads, meetings};
use crate::analysis::warp_groups::{groups_of, warp_groups_of};

const PASS: &str = "turns";

/// Runs the pass. Gives the lines of the loops whose halves take turns.
///
/// # Errors
/// If it breaks a type rule, which is a mistake in it.
pub(crate) fn run(func: &mut Func) -> Result<Vec<Span>> {
    let mut turned = Vec::new();
    let Some(operation) = warp_groups_of(func) else { return Ok(turned) };
    let consumers: Vec<RegionId> = groups_of(operation)
        .into_iter()
        .filter(|(group, _)| !group.single && group.warps == 2 * GROUP_WARPS)
        .map(|(_, region)| region)
        .collect();
    // Groups that run code of their own take turns by tiles already.
    let &[region] = consumers.as_slice() else { return Ok(turned) };
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
        turned.push(func.op(owner).span);
    }
    Ok(turned)
}

/// The two products of an iteration, the second of which reads from registers what is computed of the first.
fn products(func: &Func, owner: OpId) -> Option<[OpId; 2]> {
    let body = func.op(owner).regions[0];
    let products = of_iterations(func, body, &|op| matches!(op, GpuOp::Wgmma { .. }))?;
    let &[first, second] = products.as_slice() else { return None };
    let computes = !matches!(func.ty(func.op(second).operands[0]).elem, Elem::Shared(_));
    let meets = meetings(func, body, Threads::Group(2 * GROUP_WARPS)) > 0;
    (computes && !meets && is_fed_ahead(func, body, second)).then_some([first, second])
}

/// Operations that each iteration of a loop comes to, once; none if others of the kind are in other regions in it.
fn of_iterations(func: &Func, body: RegionId, kind: &dyn Fn(&GpuOp) -> bool) -> Option<Vec<OpId>> {
    let is_wanted = |id: OpId| matches!(&func.op(id).op, Op::Gpu(op) if kind(op));
    let mut all = 0;
    walk_region(func, body, &mut |id| all += usize::from(is_wanted(id)));
    let found: Vec<OpId> = func.region(body).ops.iter().copied().filter(|&id| is_wanted(id)).collect();
    (found.len() == all).then_some(found)
}

/// Whether all that an iteration waits for are copies into slots of two or more, and all that it releases are these and,
/// before the second product, those of the iteration before.
fn is_fed_ahead(func: &Func, body: RegionId, second: OpId) -> bool {
    let waits = of_iterations(func, body, &|op| *op == GpuOp::MbarrierWait).unwrap_or_default();
    let arrivals = of_iterations(func, body, &|op| *op == GpuOp::MbarrierArrive);
    let is_ring = |id: &OpId| {
        let slots = func.def_op(func.op(*id).operands[0]).map(|alloc| &alloc.op);
        matches!(slots, Some(Op::Gpu(GpuOp::MbarrierAlloc { slots: 2.., .. })))
    };
    let slot = |id: &OpId| func.op(*id).operands[1];
    let waited: Vec<ValueId> = waits.iter().map(slot).collect();
    let place = |id: OpId| func.region(body).ops.iter().position(|&op| op == id);
    let was_waited = |id: &OpId| {
        let at = func.region(body).args[1..].iter().position(|&arg| arg == slot(id));
        at.is_some_and(|at| waited.contains(&func.yielded(body)[at])) && place(*id) < place(second)
    };
    let releases_own = arrivals.is_some_and(|all| all.iter().all(|id| waited.contains(&slot(id)) || was_waited(id)));
    // One thread asks for a copy, and the half that it is not in would wait for it.
    let mut asks = false;
    walk_region(func, body, &mut |id| asks |= matches!(func.op(id).op, Op::Gpu(GpuOp::TmaLoad)));
    !waits.is_empty() && waits.iter().all(is_ring) && releases_own && !asks
}

fn take_turns(func: &mut Func, around: RegionId, owner: OpId, [first, second]: [OpId; 2]) -> Result<()> {
    let body = func.op(owner).regions[0];
    for (region, at, before, behind) in [
        (around, owner, Some(GpuOp::TurnBegin), Some(GpuOp::TurnEnd)),
        (body, first, None, Some(GpuOp::TurnEnd)),
        (body, second, Some(GpuOp::TurnBegin), None),
    ] {
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
