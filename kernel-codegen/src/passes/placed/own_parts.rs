//! Has warp groups multiply what they hold before they meet for what others hold.
//!
//! ```text
//! %p = ..                                  each warp group holds some elements along K, of all rows
//! shared_store %v, %p                      %o = wgmma %p, %b, %acc {part = own}
//! fence; barrier                           shared_store %v, %p
//! %c = wgmma %v, %b, %acc                  fence; barrier
//!                                          %c = wgmma %v, %b, %o {part = others}
//! ```
//!
//! Where a tile of 64 rows is computed by several warp groups, each has columns of it. Is the tile a factor then, each needs
//! all of it: it goes through shared memory, and the tensor cores stand still until all have stored their columns and have
//! met. But each group holds a part of the elements along K already, as the instruction reads it from registers. With it, it
//! can begin at once.
//!
//! The barrier in front of the store, which waits for readers of what was there, is left where it is if an exchange of threads
//! stands before it: it is dropped then (`exchanges`). Else the product goes before it.
//!
//! The pass leaves a product alone
//! - if others are in flight where it would begin: ptxas runs products one after the other if a factor in registers is
//!   computed while they are (C7513);
//! - if what it multiplies by is not there before the store: if threads store that too, or wait for copies in between.

use std::collections::BTreeMap;

use kernel_core::edit::{Cursor, Result, Uses, walk, walk_region};
use kernel_core::ir::{Func, GpuOp, GroupPart, Op, OpId, RegionId, ShapeOp, ValueId};
use kernel_core::layout::{group_parts, is_wgmma_left};

use crate::analysis::allocation::root;
use crate::dot::product_kind;

const PASS: &str = "own_parts";

/// A product to divide.
struct Divided {
    product: OpId,
    /// What that of own parts goes before.
    before: OpId,
    /// The left factor.
    tile: ValueId,
}

/// Runs the pass.
///
/// # Errors
/// If it breaks a type rule, which is a mistake in it.
pub(crate) fn run(func: &mut Func) -> Result<()> {
    let uses = Uses::new(func);
    let mut regions: Vec<RegionId> = vec![func.body];
    walk(func, &mut |id| regions.extend(&func.op(id).regions));
    for region in regions {
        for divided in products(func, &uses, region) {
            divide(func, region, &divided)?;
        }
    }
    Ok(())
}

fn products(func: &Func, uses: &Uses, region: RegionId) -> Vec<Divided> {
    let ops = &func.region(region).ops;
    let place_of: BTreeMap<OpId, usize> = ops.iter().copied().zip(0..).collect();
    ops.iter().filter_map(|&id| divided(func, uses, region, &place_of, id)).collect()
}

/// The product of an operation, if warp groups can begin with what they hold.
fn divided(
    func: &Func,
    uses: &Uses,
    region: RegionId,
    place_of: &BTreeMap<OpId, usize>,
    product: OpId,
) -> Option<Divided> {
    let ops = &func.region(region).ops;
    let operation = func.op(product);
    let Op::Gpu(GpuOp::Wgmma { part: GroupPart::Whole, .. }) = operation.op else { return None };
    let &[view, b, acc, ..] = operation.operands.as_slice() else { return None };
    let alloc = func.defining_op(view)?;
    let Op::Gpu(GpuOp::SharedAlloc { .. }) = func.op(alloc).op else { return None };
    let &[one, other] = uses.of(view) else { return None };
    let store = if one == product { other } else { one };
    let &[_, tile] = func.op(store).operands.as_slice() else { return None };
    if func.op(store).op != Op::Gpu(GpuOp::SharedStore) {
        return None;
    }
    // Each group holds its own part.
    let dtypes = func.ty(tile).dtype().zip(func.ty(b).dtype());
    let (kind, k) = (dtypes.and_then(|(a, b)| product_kind(a, b))?, *func.tile_shape(tile).last()?);
    let layout = func.layout(acc)?;
    let parts = group_parts(layout, k).filter(|parts| parts.extent >= kind.k_tile())?;
    if !is_wgmma_left(func.layout(tile)?, layout, kind.k_width(), Some(&parts)) {
        return None;
    }
    // Nothing between store and product makes the other factor, or waits for it.
    let (from, to) = (*place_of.get(&store)?, *place_of.get(&product)?);
    let passes = |id: &OpId| match &func.op(*id).op {
        Op::Gpu(op) => {
            let waits = matches!(op, GpuOp::Fence { .. } | GpuOp::Barrier | GpuOp::WarpgroupBarrier);
            waits || matches!(op, GpuOp::SharedIndex | GpuOp::SharedPermute { .. })
        }
        op => op.is_arithmetic(),
    };
    let between = ops.get(from + 1..to)?;
    let made_before = |value: ValueId| {
        let made = func.defining_op(value).and_then(|id| place_of.get(&id));
        made.is_none_or(|&at| at < from)
    };
    if !between.iter().all(passes) || !operation.operands[1..].iter().all(|&value| made_before(value)) {
        return None;
    }
    let copied = root(func, b)?;
    let mut by_threads = false;
    walk_region(func, region, &mut |id| {
        let stores = matches!(func.op(id).op, Op::Gpu(GpuOp::SharedStore | GpuOp::AsyncCopy));
        by_threads |= stores && root(func, func.op(id).operands[0]) == Some(copied);
    });
    if by_threads {
        return None;
    }
    // Nothing is in flight.
    let is_asynchronous = |id: &OpId| {
        let is = |op: &Op| matches!(op, Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::WgmmaWait { .. }));
        let mut found = is(&func.op(*id).op);
        func.op(*id).regions.iter().for_each(|&inner| walk_region(func, inner, &mut |id| found |= is(&func.op(id).op)));
        found
    };
    let last = ops[..from].iter().rposition(is_asynchronous)?;
    let settled = func.op(ops[last]).op == Op::Gpu(GpuOp::WgmmaWait { pending: 0 });
    // Threads meet where they combine something, and where elements change threads.
    let exchanges = |id: &OpId| {
        let operation = func.op(*id);
        !operation.regions.is_empty() || operation.op == Op::Shape(ShapeOp::ConvertLayout)
    };
    let passive = |id: &OpId| {
        let op = &func.op(*id).op;
        matches!(
            op,
            Op::Gpu(GpuOp::Barrier | GpuOp::WarpgroupBarrier | GpuOp::Fence { .. } | GpuOp::SharedAlloc { .. })
        )
    };
    let before = match ops[last..from].iter().any(exchanges) {
        true => from,
        false => ops[..from].iter().rposition(|id| !passive(id)).map_or(0, |at| at + 1),
    };
    settled.then(|| Divided { product, before: ops[before], tile })
}

fn divide(func: &mut Func, region: RegionId, divided: &Divided) -> Result<()> {
    let product = func.op(divided.product);
    let Op::Gpu(GpuOp::Wgmma { precision, .. }) = product.op else { return Ok(()) };
    let (mut operands, span) = (product.operands.clone(), product.span);
    operands[0] = divided.tile;
    let acc = operands[2];
    let mut out = Vec::new();
    let mut cursor = Cursor::new(func, &mut out, PASS).at(span);
    let own = cursor.like(GpuOp::Wgmma { precision, part: GroupPart::Own }, &operands, acc)?;
    let others = &mut func.ops[divided.product.index()];
    others.op = GpuOp::Wgmma { precision, part: GroupPart::Others }.into();
    others.operands.truncate(3);
    others.operands[2] = own;
    let ops = &mut func.regions[region.index()].ops;
    let at = ops.iter().position(|&id| id == divided.before).unwrap_or(0);
    ops.splice(at..at, out);
    Ok(())
}
