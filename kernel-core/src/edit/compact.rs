//! Removal of what is dead in the arenas.

use crate::ir::{Func, RegionId, ValueId};

/// Drops everything that no region lists, and numbers values, operations and regions in program order:
/// equal kernels become equal as data, and the arena is no larger than what is in it.
pub fn compact(func: &mut Func) {
    let mut new = Func::new(&func.name, "", func.safety);
    new.files = func.files.clone();
    new.level = func.level;
    new.subnormals = func.subnormals;
    new.dtype_params = std::mem::take(&mut func.dtype_params);
    new.const_params = std::mem::take(&mut func.const_params);
    new.layouts = std::mem::take(&mut func.layouts);
    new.programs = func.programs;
    new.by_pointers = std::mem::take(&mut func.by_pointers);
    let mut map = vec![None; func.values.len()];
    for param in &func.params {
        let id = new.add_param(&param.name, param.kind.clone(), param.span);
        new.params[id.index()].facts = param.facts.clone();
        new.params[id.index()].passing = param.passing;
        new.params[id.index()].recipe = param.recipe.clone();
        let value = new.params[id.index()].value;
        new.values[value.index()].lie_as(func.value(param.value));
        map[param.value.index()] = Some(value);
    }
    let body = new.body;
    compact_region(func, func.body, &mut new, body, &mut map);
    *func = new;
}

fn compact_region(func: &Func, from: RegionId, new: &mut Func, to: RegionId, map: &mut [Option<ValueId>]) {
    for &arg in &func.region(from).args {
        let value = new.add_region_arg(to, func.ty(arg).clone());
        new.values[value.index()].lie_as(func.value(arg));
        map[arg.index()] = Some(value);
    }
    for (_, operation) in func.region_ops(from) {
        // An operand that nothing defines cannot be; if it is, the verifier shall see it.
        let operand = |v: &ValueId| map[v.index()].unwrap_or(ValueId::new(u32::MAX));
        let operands = operation.operands.iter().map(operand).collect();
        let tys = operation.results.iter().map(|&v| func.ty(v).clone()).collect();
        let id = new.new_op(operation.op.clone(), operands, tys, Vec::new(), operation.flags, operation.span);
        new.ops[id.index()].shared.clone_from(&operation.shared);
        for (index, old) in operation.results.iter().enumerate() {
            let value = new.op(id).results[index];
            new.values[value.index()].lie_as(func.value(*old));
            map[old.index()] = Some(value);
        }
        for &region in &operation.regions {
            let inner = new.new_region([]);
            new.ops[id.index()].regions.push(inner);
            compact_region(func, region, new, inner, map);
        }
        new.regions[to.index()].ops.push(id);
    }
}
