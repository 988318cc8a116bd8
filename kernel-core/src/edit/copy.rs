//! Copies of operations and regions.

use std::collections::HashMap;

use crate::ir::{Func, OpId, Operation, Region, RegionId, ValueId};

/// Copies an operation with its regions. Values in `map` are replaced by what they map to, all others stay;
/// the results and everything defined inside are added to the map. The copy is in no region yet.
pub fn clone_op(func: &mut Func, id: OpId, map: &mut HashMap<ValueId, ValueId>) -> OpId {
    let Operation { op, operands, results, regions, flags, shared, span } = func.op(id).clone();
    let operands = operands.iter().map(|v| map.get(v).copied().unwrap_or(*v)).collect();
    let regions = regions.into_iter().map(|region| clone_region(func, region, map)).collect();
    let tys = results.iter().map(|&v| func.ty(v).clone()).collect();
    let copy = func.new_op(op, operands, tys, regions, flags, span);
    func.ops[copy.index()].shared = shared;
    for (index, old) in results.into_iter().enumerate() {
        let new = func.op(copy).results[index];
        let from = func.value(old).clone();
        func.values[new.index()].lie_as(&from);
        map.insert(old, new);
    }
    copy
}

/// Copies a region with everything in it; see [`clone_op`].
pub fn clone_region(func: &mut Func, id: RegionId, map: &mut HashMap<ValueId, ValueId>) -> RegionId {
    let Region { args, ops } = func.region(id).clone();
    let copy = func.new_region([]);
    for old in args {
        let ty = func.ty(old).clone();
        let new = func.add_region_arg(copy, ty);
        let from = func.value(old).clone();
        func.values[new.index()].lie_as(&from);
        map.insert(old, new);
    }
    for op in ops {
        let op = clone_op(func, op, map);
        func.regions[copy.index()].ops.push(op);
    }
    copy
}
