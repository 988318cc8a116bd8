//! Vectors that threads compute with beside products, as the sums of rows that attention's gradients need: they come with
//! the factors.
//!
//! ```text
//! for .. {                                           for .. {
//!   %l: f32[1, 64] = desc_load %logs, ..               %l = desc_load %logs, ..
//!   .. %l ..                                           %v = shared_alloc; shared_store %v, %l; %x = shared_load %v
//! }                                                    .. %x ..
//!                                                    }
//! ```
//!
//! So written, a vector is a block in shared memory like a factor, and the producer fetches it. Otherwise all threads would
//! wait in each iteration for a copy that is asked for where it is needed.
//!
//! A slot is released by one thread of four warps, and all of them have to have read it by then. Those that multiply have
//! met in a product that reads what a vector has become: the wait for such a product releases the vector too
//! ([`depends`]). Where there is none, they meet at a barrier.

use std::collections::BTreeSet;

use kernel_core::edit::{Cursor, Result, Uses, walk_region};
use kernel_core::ir::{DescOp, Func, GpuOp, Op, OpId, RegionId, ValueId};
use kernel_core::layout::LinearLayout;

use super::PASS;
use crate::boxes::box_layout;

/// Bytes of a vector that a copy moves are a multiple of this, and lie at one.
const UNIT: u32 = 128;
/// The longest vector, in bytes: longer blocks take the room of factors.
const LONGEST: u32 = 2048;

/// Has vectors that iterations of these loops load by descriptors go through shared memory. Gives how many there are.
///
/// # Errors
/// If the kernel it writes breaks a type rule, which is a mistake in this module.
pub(super) fn store(func: &mut Func, loops: &[OpId]) -> Result<usize> {
    let mut count = 0;
    for &owner in loops {
        let body = func.op(owner).regions[0];
        let found: Vec<(OpId, LinearLayout)> =
            func.region(body).ops.iter().filter_map(|&id| Some((id, layout(func, id)?))).collect();
        for (id, layout) in &found {
            through_shared(func, body, *id, layout)?;
        }
        count += found.len();
    }
    Ok(count)
}

/// How a vector lies in shared memory; `None` for other operations and blocks.
fn layout(func: &Func, id: OpId) -> Option<LinearLayout> {
    let operation = func.op(id);
    if operation.op != Op::Desc(DescOp::DescLoad) {
        return None;
    }
    let block = operation.results[0];
    let shape = func.tile_shape(block);
    let dtype = func.ty(block).dtype()?;
    let bytes = shape.iter().product::<u32>() * dtype.bytes();
    let is_vector = shape.iter().filter(|&&size| size > 1).count() == 1 && shape.last().is_some_and(|&size| size > 1);
    let stays = Uses::new(func).of(block).iter().any(|&user| matches!(func.op(user).op, Op::Gpu(GpuOp::SharedStore)));
    let fits = is_vector && !stays && bytes.is_multiple_of(UNIT) && bytes <= LONGEST;
    if fits { box_layout(&shape, dtype.bytes() * 8) } else { None }
}

fn through_shared(func: &mut Func, body: RegionId, load: OpId, layout: &LinearLayout) -> Result<()> {
    let (block, span) = (func.op(load).results[0], func.op(load).span);
    let (shape, own) = (func.ty(block).shape.clone(), func.value(block).layout);
    let Some(dtype) = func.ty(block).dt() else { return Ok(()) };
    let layout = func.intern(layout);
    let mut out = Vec::new();
    let mut cursor = Cursor::new(func, &mut out, PASS).at(span);
    let view = cursor.placed(GpuOp::SharedAlloc { shape, dtype }, &[], Some(layout))?;
    let read = cursor.placed(GpuOp::SharedLoad, &[view], own)?;
    // Everything that reads the block reads what comes back instead.
    for operation in &mut func.ops {
        for operand in operation.operands.iter_mut().filter(|operand| **operand == block) {
            *operand = read;
        }
    }
    let back = out.pop();
    Cursor::new(func, &mut out, PASS).at(span).effect(GpuOp::SharedStore, &[view, block])?;
    out.extend(back);
    let ops = &mut func.regions[body.index()].ops;
    let at = ops.iter().position(|&id| id == load).map_or(ops.len(), |at| at + 1);
    ops.splice(at..at, out);
    Ok(())
}

/// The load by which threads read a vector, if an allocation is one's.
pub(super) fn read_of(func: &Func, users: &Uses, alloc: OpId) -> Option<OpId> {
    let readers = users.of(func.op(alloc).results[0]).iter().copied();
    readers.into_iter().find(|&id| matches!(func.op(id).op, Op::Gpu(GpuOp::SharedLoad)))
}

/// Whether an operation of a loop's body computes with what another one of the same iteration gives.
pub(super) fn depends(func: &Func, body: RegionId, product: OpId, on: OpId) -> bool {
    let mut known: BTreeSet<ValueId> = func.op(on).results.iter().copied().collect();
    for &id in &func.region(body).ops {
        let mut reads = func.op(id).operands.iter().any(|operand| known.contains(operand));
        for &inner in &func.op(id).regions {
            walk_region(func, inner, &mut |id| {
                reads |= func.op(id).operands.iter().any(|operand| known.contains(operand));
            });
        }
        if id == product {
            return func.op(id).operands.iter().any(|operand| known.contains(operand));
        }
        if reads {
            known.extend(&func.op(id).results);
        }
    }
    false
}
