//! Copies of operations and regions.

use std::collections::HashMap;

use crate::ir::{Func, OpId, Operation, Region, RegionId, ValueId};

/// Copies an operation with its regions. Values in `map` are replaced by what they map to, all others stay;
/// the results and everything defined inside are added to the map. The copy is in no region yet.
pub fn clone_op(func: &mut Func, id: OpId, map: &mut HashMap<ValueId, ValueId>) -> OpId {
    copy_op(func, None, id, map)
}

/// Copies a region with everything in it; see [`clone_op`].
pub fn clone_region(func: &mut Func, id: RegionId, map: &mut HashMap<ValueId, ValueId>) -> RegionId {
    copy_region(func, None, id, map)
}

/// Copies a region of another version of the kernel with everything in it: what the versions have in common, parameters
/// and what stands outside of the region, has the same numbers in both. What is defined inside is added to the map.
pub fn import_region(func: &mut Func, from: &Func, id: RegionId, map: &mut HashMap<ValueId, ValueId>) -> RegionId {
    copy_region(func, Some(from), id, map)
}

/// Copies an operation, from another version of the kernel if one is given.
fn copy_op(func: &mut Func, from: Option<&Func>, id: OpId, map: &mut HashMap<ValueId, ValueId>) -> OpId {
    let Operation { op, operands, results, regions, flags, shared, span } = from.unwrap_or(func).op(id).clone();
    let operands = operands.iter().map(|v| map.get(v).copied().unwrap_or(*v)).collect();
    let regions = regions.into_iter().map(|region| copy_region(func, from, region, map)).collect();
    let tys = results.iter().map(|&v| from.unwrap_or(func).ty(v).clone()).collect();
    let copy = func.new_op(op, operands, tys, regions, flags, span);
    func.ops[copy.index()].shared = shared;
    for (index, old) in results.into_iter().enumerate() {
        let new = func.op(copy).results[index];
        place_as(func, from, old, new);
        map.insert(old, new);
    }
    copy
}

fn copy_region(func: &mut Func, from: Option<&Func>, id: RegionId, map: &mut HashMap<ValueId, ValueId>) -> RegionId {
    let Region { args, ops } = from.unwrap_or(func).region(id).clone();
    let copy = func.new_region([]);
    for old in args {
        let ty = from.unwrap_or(func).ty(old).clone();
        let new = func.add_region_arg(copy, ty);
        place_as(func, from, old, new);
        map.insert(old, new);
    }
    for op in ops {
        let op = copy_op(func, from, op, map);
        func.regions[copy.index()].ops.push(op);
    }
    copy
}

/// Gives a value the place of the one that it is a copy of.
fn place_as(func: &mut Func, from: Option<&Func>, old: ValueId, new: ValueId) {
    let mut like = from.unwrap_or(func).value(old).clone();
    if let Some(from) = from {
        like.layout = like.layout.map(|id| func.intern(&from.layouts[id.index()]));
    }
    func.values[new.index()].lie_as(&like);
}
