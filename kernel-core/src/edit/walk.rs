//! Visits of every operation.

use crate::ir::{Func, OpId, RegionId};

/// Calls `visit` for every operation in program order, an operation before those in its regions.
pub fn walk(func: &Func, visit: &mut dyn FnMut(OpId)) {
    walk_region(func, func.body, visit);
}

/// Calls `visit` for every operation of a region and of the regions in it, in program order.
pub fn walk_region(func: &Func, region: RegionId, visit: &mut dyn FnMut(OpId)) {
    for &op in &func.region(region).ops {
        visit(op);
        for &inner in &func.op(op).regions {
            walk_region(func, inner, visit);
        }
    }
}

/// All operations in program order, an operation before those in its regions.
pub fn ops_in_order(func: &Func) -> Vec<OpId> {
    let mut ops = Vec::new();
    walk(func, &mut |op| ops.push(op));
    ops
}

/// The number of operations in a region and in the regions in it.
pub fn count_ops(func: &Func, region: RegionId) -> usize {
    let mut count = 0;
    walk_region(func, region, &mut |_| count += 1);
    count
}
