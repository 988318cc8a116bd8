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

/// Copies a region of another version of the kernel with everything in it: what the versions have in common, parameters
/// and what stands outside of the region, has the same numbers in both. What is defined inside is added to the map.
pub fn import_region(func: &mut Func, from: &Func, id: RegionId, map: &mut HashMap<ValueId, ValueId>) -> RegionId {
    let Region { args, ops } = from.region(id);
    let copy = func.new_region([]);
    for &old in args {
        let new = func.add_region_arg(copy, from.ty(old).clone());
        import_place(func, from, old, new);
        map.insert(old, new);
    }
    for &op in ops {
        let Operation { op, operands, results, regions, flags, shared, span } = from.op(op).clone();
        let operands = operands.iter().map(|v| map.get(v).copied().unwrap_or(*v)).collect();
        let regions = regions.into_iter().map(|region| import_region(func, from, region, map)).collect();
        let tys = results.iter().map(|&v| from.ty(v).clone()).collect();
        let id = func.new_op(op, operands, tys, regions, flags, span);
        func.ops[id.index()].shared = shared;
        for (index, old) in results.into_iter().enumerate() {
            let new = func.op(id).results[index];
            import_place(func, from, old, new);
            map.insert(old, new);
        }
        func.regions[copy.index()].ops.push(id);
    }
    copy
}

/// Gives a value the layout that it has in another version of the kernel.
fn import_place(func: &mut Func, from: &Func, old: ValueId, new: ValueId) {
    let layout = from.value(old).layout.map(|id| func.intern(&from.layouts[id.index()]));
    (func.values[new.index()].layout, func.values[new.index()].bank) = (layout, from.value(old).bank);
}
