//! The registers that the tiles of a loop take.

use std::collections::BTreeMap;

use kernel_core::edit::{Uses, walk_region};
use kernel_core::ir::{Cost, DType, DescOp, Elem, ElementwiseOp, Func, GpuOp, MemoryOp, Op, OpId, Operation, ValueId};

use super::Applied;
use crate::occupancy::words;

/// The most registers that floats and sums take in an iteration, where all elements of a thread have to be there:
/// behind products, waits, loads, which are all on their way before the first is used, and what threads pass each
/// other. Operations on elements are computed one after the other.
pub(super) fn registers(func: &Func, owner: OpId, applied: &Applied) -> u32 {
    let operation = func.op(owner);
    let body = operation.regions[0];
    let ops = &func.region(body).ops;
    let end = ops.len();
    // Where each value is used last; what comes from outside stays throughout.
    let mut until: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut since: BTreeMap<ValueId, usize> = BTreeMap::new();
    let mut inside: Vec<ValueId> = Vec::new();
    for (at, &id) in ops.iter().enumerate() {
        since.extend(func.op(id).results.iter().map(|&value| (value, at)));
        let mut look = |inner: OpId| until.extend(func.op(inner).operands.iter().map(|&value| (root(func, value), at)));
        look(id);
        for &region in &func.op(id).regions {
            walk_region(func, region, &mut look);
            walk_region(func, region, &mut |inner| inside.extend(&func.op(inner).results));
        }
    }
    since.extend(func.region(body).args.iter().map(|&value| (value, 0)));
    // What is read in registers stays there until the product is over.
    let mut across = Vec::new();
    for (product, wait) in &applied.over {
        let factor = root(func, func.op(*product).operands[0]);
        let Some(at) = ops.iter().position(|id| id == wait) else { continue };
        if applied.last.contains(product) {
            until.insert(factor, end);
            across.push((factor, at));
        } else if let Some(until) = until.get_mut(&factor) {
            *until = (*until).max(at);
        }
    }
    let users = Uses::new(func);
    let size = |value: &ValueId| match counts(func, *value) && !is_fetched(func, &users, *value) {
        true => packed(func, *value),
        false => 0,
    };
    let alive = |at: usize| -> u32 {
        let values = until.iter().filter(|(value, last)| {
            !inside.contains(value)
                && match since.get(value) {
                    Some(&since) => since <= at && at < **last,
                    None => true,
                }
        });
        let factors = across.iter().filter(|(_, over)| at < *over);
        values.map(|(value, _)| size(value)).sum::<u32>() + factors.map(|(value, _)| size(value)).sum::<u32>()
    };
    let meets = |&at: &usize| {
        let op = &func.op(ops[at]).op;
        matches!(op, Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::WgmmaWait { .. }) | Op::Memory(MemoryOp::Load { .. }))
            || op.cost() == Cost::Exchange
    };
    (0..end).filter(meets).map(alive).max().unwrap_or_default()
}

/// The value whose registers a value has, where an operation only gives them other names.
fn root(func: &Func, mut value: ValueId) -> ValueId {
    while let Some(operation) = func.def_op(value)
        && operation.op.cost() == Cost::Free
        && let &[source] = operation.element_sources()
    {
        value = source;
    }
    value
}

/// Whether a value is a tile of floats or sums: others are constants, masks and coordinates, which are computed where
/// they are used.
fn counts(func: &Func, value: ValueId) -> bool {
    let floats = func.ty(value).dtype().is_some_and(DType::is_float);
    let made = func.def_op(value);
    let sums = made.is_some_and(|operation| operation.op.multiplies());
    // Made of scalars alone.
    let is_constant = made.is_some_and(|operation| {
        operation.op.is_pure() && operation.operands.iter().all(|&operand| func.value(operand).layout.is_none())
    });
    matches!(func.ty(value).elem, Elem::Data(_))
        && func.value(value).layout.is_some()
        && (floats || sums)
        && !is_constant
}

/// Whether a tile takes no registers because it comes from shared memory, or goes there: a tensor copy brings it, or it is
/// a vector, which is read where it is used.
fn is_fetched(func: &Func, users: &Uses, value: ValueId) -> bool {
    let mut source = value;
    let cast = |operation: &Operation| match operation.op {
        Op::Elementwise(ElementwiseOp::Cast { .. }) => operation.operands.first().copied(),
        _ => None,
    };
    while let Some(from) = func.def_op(source).and_then(|made| made.moved_operand().or_else(|| cast(made))) {
        source = from;
    }
    let is_vector = || func.tile_shape(source).iter().filter(|&&size| size > 1).count() <= 1;
    match func.def_op(source).map(|operation| &operation.op) {
        Some(Op::Desc(DescOp::DescLoad)) => goes_to_shared(func, users, value),
        Some(Op::Gpu(GpuOp::SharedLoad)) => is_vector(),
        _ => false,
    }
}

/// Whether nobody uses a tile but stores to shared memory, of it or of its elements in another order.
fn goes_to_shared(func: &Func, users: &Uses, value: ValueId) -> bool {
    users.of(value).iter().all(|&user| {
        let operation = func.op(user);
        operation.op == Op::Gpu(GpuOp::SharedStore)
            || (operation.moved_operand() == Some(value) && goes_to_shared(func, users, operation.results[0]))
    })
}

/// Registers of a tile; short elements lie side by side.
fn packed(func: &Func, value: ValueId) -> u32 {
    let bits = func.ty(value).dtype().map_or(32, DType::bits);
    if bits < 32 { (words(func, value) * bits).div_ceil(32) } else { words(func, value) }
}

#[cfg(test)]
mod tests {
    use kernel_core::edit::ops_in_order;
    use kernel_core::ir::ControlOp;
    use kernel_core::text::parse;

    use super::*;

    /// The registers of the loop in which a product of 64 registers a thread is multiplied by something of 16, beside a
    /// sum of 64.
    fn registers_of(factor: &str) -> u32 {
        let text = format!(
            "kernel loaded \"loaded.rs\" unsafe placed {{
  param %g g: ptr f32
  param %n n: i32
  layout #0 = register [0, 1] [0, 2] [0, 4] [0, 8] [0, 16] [0, 32], lane [1, 0] [2, 0] [4, 0] [8, 0] [16, 0] -> dim0 32, dim1 64
  layout #1 = register [0, 1] [0, 2] [0, 4] [0, 8], lane [1, 0] [2, 0] [4, 0] [8, 0] [16, 0] -> dim0 32, dim1 16
  %z: f32 = const 0.0
  %c: f32[32, 64] #0 = splat %z
  %k: f32[32, 16] #1 = splat %z
  %at: *g[32, 16] #1 = splat %g
  %s: shared f16[32, 32] = shared_alloc
  %b: shared f16[32, 64] = shared_alloc
  %o: f32[32, 64] #0, %p: f32[32, 16] #1 = for %n, %n, %n, %c, %k (%i: i32, %a: f32[32, 64] #0, %r: f32[32, 16] #1) {{
    %d: f32[32, 64] #0 = wgmma %s, %b, %c
    %d1: f32[32, 64] #0 = wgmma_wait %d {{pending = 0}}
    {factor}
    %q: f32[32, 16] #1 = add %f, %r
    %h: f32[32, 64] #0 = add %d1, %a
    yield %h, %q
  }}
  return
}}"
        );
        let func = parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let is_loop = |id: &OpId| matches!(func.op(*id).op, Op::Control(ControlOp::For { .. }));
        let owner = ops_in_order(&func).into_iter().find(is_loop).expect("a loop");
        registers(&func, owner, &Applied::default())
    }

    #[test]
    fn what_is_loaded_beside_products_counts_where_it_is_loaded() {
        // The sums, what is carried beside them, and the product.
        assert_eq!(registers_of("%f: f32[32, 16] #1 = add %r, %r"), 64 + 16 + 64);
        assert_eq!(registers_of("%f: f32[32, 16] #1 = load %at"), 64 + 16 + 64 + 16);
    }
}
