//! What passes share: walks, uses, replacement of values, cloning, compaction, questions about constants.
//!
//! A pass that rewrites values should do it in one walk in program order with a [`Rewriter`], which forwards operands
//! as it goes: replacing a thousand values then costs one walk, where a thousand calls of [`replace_all_uses`] would
//! cost a thousand.

use std::collections::HashMap;

use crate::ir::{
    CreateOp, DType, FloatFlags, Func, Literal, Op, OpId, Operation, Region, RegionId, Span, TypeError, ValueId,
    result_types, view,
};

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

/// How often each value is an operand of an operation that is alive, by index of the value.
pub fn use_counts(func: &Func) -> Vec<u32> {
    let mut counts = vec![0; func.values.len()];
    walk(func, &mut |op| {
        for operand in &func.op(op).operands {
            counts[operand.index()] += 1;
        }
    });
    counts
}

/// Makes every operand that is `old` be `new`. For one replacement; a pass uses [`Rewriter`].
pub fn replace_all_uses(func: &mut Func, old: ValueId, new: ValueId) {
    for operand in func.ops.iter_mut().flat_map(|op| &mut op.operands) {
        if *operand == old {
            *operand = new;
        }
    }
}

/// What a [`Rewriter`] does with an operation after the visit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// It stays, and its regions are walked.
    Keep,
    /// It goes. Its results have been replaced, or have no uses.
    Remove,
    /// The operations of one of its regions take its place, and what the region yields replaces its results.
    /// Arguments of the region have been replaced.
    Inline(RegionId),
    /// These operations, which are in no region, take its place and are visited. Its results have been replaced.
    Splice(Vec<OpId>),
}

/// Walks a kernel in program order and rewrites it on the way.
///
/// At the visit of an operation its operands are already replaced. The visitor may insert operations before it,
/// replace its results, change it in place, and says what becomes of it.
pub struct Rewriter<'f> {
    /// The kernel.
    pub func: &'f mut Func,
    forward: HashMap<ValueId, ValueId>,
    out: Vec<OpId>,
    changed: bool,
}

type Visitor<'v> = dyn FnMut(&mut Rewriter<'_>, OpId) -> Action + 'v;

impl Rewriter<'_> {
    /// Rewrites the whole kernel; returns whether anything changed.
    pub fn run(func: &mut Func, visit: &mut Visitor<'_>) -> bool {
        let body = func.body;
        let mut rewriter = Rewriter { func, forward: HashMap::new(), out: Vec::new(), changed: false };
        rewriter.region(body, visit);
        rewriter.changed
    }

    /// Notes that the visitor changed something in place.
    pub fn set_changed(&mut self) {
        self.changed = true;
    }

    /// The value that stands for `value` now.
    pub fn resolve(&self, mut value: ValueId) -> ValueId {
        while let Some(&next) = self.forward.get(&value) {
            value = next;
        }
        value
    }

    /// Makes `new` stand for `old` in everything that is yet to be visited.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        let new = self.resolve(new);
        if old != new {
            self.forward.insert(old, new);
            self.changed = true;
        }
    }

    /// Inserts an operation with one result before the one that is visited.
    ///
    /// # Errors
    /// If the operands do not fit the operation.
    pub fn insert(
        &mut self,
        op: impl Into<Op>,
        operands: &[ValueId],
        flags: FloatFlags,
        span: Span,
    ) -> Result<ValueId, TypeError> {
        let op = op.into();
        let tys = result_types(self.func, &op, operands, &[])?;
        let id = self.func.new_op(op, operands.to_vec(), tys, Vec::new(), flags, span);
        self.out.push(id);
        self.changed = true;
        match self.func.op(id).results.as_slice() {
            [value] => Ok(*value),
            _ => Err(TypeError { message: "expected an operation with one result".to_string() }),
        }
    }

    /// Inserts a constant before the operation that is visited.
    pub fn constant(&mut self, value: Literal, dtype: DType, span: Span) -> Result<ValueId, TypeError> {
        self.insert(Op::constant(value, dtype), &[], FloatFlags::default(), span)
    }

    fn region(&mut self, region: RegionId, visit: &mut Visitor<'_>) {
        let outer = std::mem::take(&mut self.out);
        let ops = std::mem::take(&mut self.func.regions[region.index()].ops);
        for op in ops {
            self.operation(op, visit);
        }
        self.func.regions[region.index()].ops = std::mem::replace(&mut self.out, outer);
    }

    fn operation(&mut self, id: OpId, visit: &mut Visitor<'_>) {
        let mut operands = std::mem::take(&mut self.func.ops[id.index()].operands);
        operands.iter_mut().for_each(|operand| *operand = self.resolve(*operand));
        self.func.ops[id.index()].operands = operands;
        match visit(self, id) {
            Action::Keep => {
                self.out.push(id);
                for region in self.func.op(id).regions.clone() {
                    self.region(region, visit);
                }
            }
            Action::Remove => self.changed = true,
            Action::Splice(ops) => {
                self.changed = true;
                for op in ops {
                    self.operation(op, visit);
                }
            }
            Action::Inline(region) => {
                self.changed = true;
                let mut ops = std::mem::take(&mut self.func.regions[region.index()].ops);
                let Some(last) = ops.pop() else { return };
                for op in ops {
                    self.operation(op, visit);
                }
                let yielded = self.func.op(last).operands.clone();
                for (result, value) in self.func.op(id).results.clone().into_iter().zip(yielded) {
                    self.replace(result, value);
                }
            }
        }
    }
}

/// Copies an operation with its regions. Values in `map` are replaced by what they map to, all others stay;
/// the results and everything defined inside are added to the map. The copy is in no region yet.
pub fn clone_op(func: &mut Func, id: OpId, map: &mut HashMap<ValueId, ValueId>) -> OpId {
    let Operation { op, operands, results, regions, flags, span } = func.op(id).clone();
    let operands = operands.iter().map(|v| map.get(v).copied().unwrap_or(*v)).collect();
    let regions = regions.into_iter().map(|region| clone_region(func, region, map)).collect();
    let tys = results.iter().map(|&v| func.ty(v).clone()).collect();
    let copy = func.new_op(op, operands, tys, regions, flags, span);
    for (index, old) in results.into_iter().enumerate() {
        let new = func.op(copy).results[index];
        func.values[new.index()].layout = func.value(old).layout;
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
        func.values[new.index()].layout = func.value(old).layout;
        map.insert(old, new);
    }
    for op in ops {
        let op = clone_op(func, op, map);
        func.regions[copy.index()].ops.push(op);
    }
    copy
}

/// Drops everything that no region lists, and numbers values, operations and regions in program order:
/// equal kernels become equal as data, and the arena is no larger than what is in it.
pub fn compact(func: &mut Func) {
    let mut new = Func::new(&func.name, &func.file, func.safety);
    new.level = func.level;
    new.dtype_params = std::mem::take(&mut func.dtype_params);
    new.const_params = std::mem::take(&mut func.const_params);
    new.layouts = std::mem::take(&mut func.layouts);
    let mut map = vec![None; func.values.len()];
    for param in &func.params {
        let id = new.add_param(&param.name, param.kind.clone(), param.span);
        new.params[id.index()].facts = param.facts.clone();
        let value = new.params[id.index()].value;
        new.values[value.index()].layout = func.value(param.value).layout;
        map[param.value.index()] = Some(value);
    }
    let body = new.body;
    compact_region(func, func.body, &mut new, body, &mut map);
    *func = new;
}

fn compact_region(func: &Func, from: RegionId, new: &mut Func, to: RegionId, map: &mut [Option<ValueId>]) {
    for &arg in &func.region(from).args {
        let value = new.add_region_arg(to, func.ty(arg).clone());
        new.values[value.index()].layout = func.value(arg).layout;
        map[arg.index()] = Some(value);
    }
    for (_, operation) in func.region_ops(from) {
        // An operand that nothing defines cannot be; if it is, the verifier shall see it.
        let operand = |v: &ValueId| map[v.index()].unwrap_or(ValueId::new(u32::MAX));
        let operands = operation.operands.iter().map(operand).collect();
        let tys = operation.results.iter().map(|&v| func.ty(v).clone()).collect();
        let id = new.new_op(operation.op.clone(), operands, tys, Vec::new(), operation.flags, operation.span);
        for (index, old) in operation.results.iter().enumerate() {
            let value = new.op(id).results[index];
            new.values[value.index()].layout = func.value(*old).layout;
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

/// The value of a scalar constant.
pub fn constant(func: &Func, value: ValueId) -> Option<Literal> {
    let Op::Create(CreateOp::Const { value, .. }) = func.def_op(value)?.op else { return None };
    Some(value)
}

/// The scalar that a tile repeats, if the tile is a `splat`.
pub fn splat_source(func: &Func, value: ValueId) -> Option<ValueId> {
    Some(view::Splat::of(func.def_op(value)?)?.scalar)
}

/// The value of a scalar constant, or of the scalar constant that a tile repeats.
pub fn uniform_constant(func: &Func, value: ValueId) -> Option<Literal> {
    constant(func, value).or_else(|| constant(func, splat_source(func, value)?))
}

/// How often a loop with these constants runs: for `i = lo, lo + step, ..` while `i < hi`, never if `step <= 0`.
pub fn trip_count(lo: i128, hi: i128, step: i128) -> u128 {
    // The constants fit 64 bits, so the differences fit 128.
    if step <= 0 || lo >= hi { 0 } else { ((hi - lo + step - 1) / step) as u128 }
}

/// The trip count of a `for` whose bounds and step are constants.
pub fn known_trip_count(func: &Func, operation: &Operation) -> Option<u128> {
    let int = |index: usize| match constant(func, *operation.operands.get(index)?)? {
        Literal::Int(value) => Some(value),
        Literal::Bool(_) | Literal::Float(_) => None,
    };
    Some(trip_count(int(0)?, int(1)?, int(2)?))
}
