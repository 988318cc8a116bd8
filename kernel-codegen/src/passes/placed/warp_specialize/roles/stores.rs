//! Sums that are stored by the threads that have them.

use std::collections::{BTreeMap, HashMap};

use kernel_core::edit::{Place, Structure, clone_op, splice, walk};
use kernel_core::ir::{Func, LayoutId, MemoryOp, Op, OpId, ShapeOp, ValueId};

use crate::place::transfer::operand_layouts_of;

/// Has a sum stored by the threads that have it: kernels that are shared mostly take all of shared memory, and there is no place
/// where they could pass it to others first, which would store wider vectors.
pub(super) fn store_as_they_are(func: &mut Func, product: OpId) {
    let sum = func.op(product).results[0];
    let (Some(layout), shape) = (func.value(sum).layout, func.tile_shape(sum)) else { return };
    let structure = Structure::new(func);
    let mut stores = Vec::new();
    walk(func, &mut |id| {
        let operation = func.op(id);
        let is_store = matches!(operation.op, Op::Memory(MemoryOp::Store { .. }));
        if is_store && func.tile_shape(operation.operands[0]) == shape {
            stores.push(id);
        }
    });
    for store in stores {
        let (Some(region), operands) = (structure.region_of(store), func.op(store).operands.clone()) else { continue };
        let mut again = Again { func: &mut *func, ops: Vec::new(), made: BTreeMap::new() };
        let Some(operands) = operands.iter().map(|&value| again.value(value, layout)).collect() else { continue };
        let ops = again.ops;
        func.ops[store.index()].operands = operands;
        splice(func, Place::Before(region, store), ops);
    }
}

/// Computes values again in other layouts.
struct Again<'f> {
    func: &'f mut Func,
    ops: Vec<OpId>,
    made: BTreeMap<(ValueId, LayoutId), ValueId>,
}

impl Again<'_> {
    /// The value in a layout; `None` if it comes from what is not computed twice.
    fn value(&mut self, value: ValueId, layout: LayoutId) -> Option<ValueId> {
        let known = self.func.value(value).layout;
        if known.is_none() || known == Some(layout) {
            return Some(value);
        }
        if let Some(&made) = self.made.get(&(value, layout)) {
            return Some(made);
        }
        let id = self.func.defining_op(value)?;
        if self.func.op(id).op == Op::Shape(ShapeOp::ConvertLayout) {
            let source = self.func.op(id).operands[0];
            return self.value(source, layout);
        }
        let op = &self.func.op(id).op;
        if !op.is_arithmetic() && !matches!(op, Op::Memory(MemoryOp::CheckBounds { .. })) {
            return None;
        }
        let wanted = operand_layouts_of(self.func, id, layout).ok()?;
        let operands = self.func.op(id).operands.clone();
        let mut map = HashMap::new();
        for (&operand, wanted) in operands.iter().zip(wanted) {
            let own = wanted.map_or(Some(operand), |wanted| self.value(operand, wanted))?;
            map.insert(operand, own);
        }
        let copy = clone_op(self.func, id, &mut map);
        self.ops.push(copy);
        let made = self.func.op(copy).results[0];
        self.func.values[made.index()].layout = Some(layout);
        self.made.insert((value, layout), made);
        Some(made)
    }
}
