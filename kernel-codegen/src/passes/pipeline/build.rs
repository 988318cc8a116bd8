//! The operations that the pass puts in, with their types and layouts.

use std::collections::HashMap;

use kernel_core::ir::{
    BinaryOp, CmpOp, CreateOp, DType, ElementwiseOp, FloatFlags, GpuOp, LayoutId, Literal, Op, OpId, Ty, ValueId,
};
use kernel_core::layout::LinearLayout;

use super::emit::Emit;
use super::find::{self, Candidate, Feed};

impl Emit<'_> {
    pub(super) fn value(&mut self, op: Op, operands: Vec<ValueId>, ty: Ty, layout: Option<LayoutId>) -> ValueId {
        let id = self.func.new_op(op, operands, vec![ty], vec![], FloatFlags::default(), self.span);
        let value = self.func.op(id).results[0];
        self.func.values[value.index()].layout = layout;
        self.out.push(id);
        value
    }

    pub(super) fn effect(&mut self, op: GpuOp, operands: Vec<ValueId>) {
        let id = self.func.new_op(op.into(), operands, vec![], vec![], FloatFlags::default(), self.span);
        self.out.push(id);
    }

    pub(super) fn scalar(&mut self, op: Op, operands: Vec<ValueId>, dtype: DType) -> ValueId {
        self.value(op, operands, Ty::scalar(dtype), None)
    }

    pub(super) fn i32(&mut self, value: i32) -> ValueId {
        self.scalar(Op::i32(value), vec![], DType::I32)
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        let (ty, layout) = (self.func.ty(a).clone(), self.func.value(a).layout);
        self.value(Op::binary(op), vec![a, b], ty, layout)
    }

    pub(super) fn compare(&mut self, op: CmpOp, a: ValueId, b: ValueId) -> ValueId {
        self.scalar(Op::compare(op), vec![a, b], DType::Bool)
    }

    pub(super) fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> ValueId {
        let ty = self.func.ty(a).clone();
        self.value(Op::Elementwise(ElementwiseOp::Select), vec![condition, a, b], ty, None)
    }

    pub(super) fn as_unsigned(&mut self, value: ValueId, unsigned: DType) -> ValueId {
        if self.func.ty(value).dtype() == Some(unsigned) {
            return value;
        }
        let op = Op::Elementwise(ElementwiseOp::Bitcast { to: unsigned.into() });
        self.scalar(op, vec![value], unsigned)
    }

    /// A condition in the shape and layout of a tile.
    pub(super) fn spread(&mut self, condition: ValueId, like: ValueId) -> ValueId {
        let shape = self.func.ty(like).shape.clone();
        if shape.is_empty() {
            return condition;
        }
        let layout = self.func.value(like).layout;
        let ty = Ty::tile(DType::Bool, shape.clone());
        self.value(CreateOp::Splat { shape }.into(), vec![condition], ty, layout)
    }

    /// The mask of a copy: where the load's holds, if the trip exists.
    pub(super) fn mask(&mut self, pointer: ValueId, mask: Option<ValueId>, exists: ValueId) -> ValueId {
        let exists = self.spread(exists, pointer);
        match mask {
            Some(mask) => self.binary(BinaryOp::And, mask, exists),
            None => exists,
        }
    }

    /// Makes a comparison with a bound fail in a trip that does not exist: nothing is below the least number, wherever
    /// the counter has got to. One selection of a scalar that way stands for an `and` per copy.
    pub(super) fn end_with(&mut self, compare: OpId, exists: ValueId, bounds: &mut HashMap<ValueId, ValueId>) {
        let Some((position, bound)) = find::bound(self.func, compare) else { return };
        let Some(dtype) = self.func.ty(bound).dtype() else { return };
        let bound = match bounds.get(&bound) {
            Some(&known) => known,
            None => {
                let least = self.scalar(Op::constant(Literal::Int(dtype.int_min()), dtype), vec![], dtype);
                let selected = self.select(exists, bound, least);
                bounds.insert(bound, selected);
                selected
            }
        };
        let old = self.func.op(compare).operands[position];
        let (ty, layout) = (self.func.ty(old).clone(), self.func.value(old).layout);
        let operand = match ty.shape.clone() {
            shape if shape.is_empty() => bound,
            shape => self.value(CreateOp::Splat { shape }.into(), vec![bound], ty, layout),
        };
        self.func.ops[compare.index()].operands[position] = operand;
    }

    /// A bounds check of a trip that may not exist.
    pub(super) fn restrict(&mut self, check: OpId, exists: ValueId) {
        let operands = self.func.op(check).operands.clone();
        let mask = self.mask(operands[0], operands.get(2).copied(), exists);
        let operands = [operands[0], operands[1], mask];
        self.func.ops[check.index()].operands = operands.to_vec();
    }

    /// The view of a slot.
    pub(super) fn slot(&mut self, candidate: &Candidate, slots: ValueId, index: ValueId) -> ValueId {
        let layout = self.intern(&candidate.layout);
        let ty = self.func.ty(slots);
        let ty = ty.with_shape(ty.shape[1..].to_vec());
        self.value(GpuOp::SharedIndex.into(), vec![slots, index], ty, Some(layout))
    }

    /// A slot as what it feeds sees it: without leading dimensions of one element, and permuted.
    pub(super) fn seen(&mut self, feed: &Feed, slot: ValueId) -> ValueId {
        let alloc = self.func.op(feed.alloc).results[0];
        let (ty, held) = (self.func.ty(alloc).clone(), self.func.value(alloc).layout);
        let layouts = held.and_then(|held| feed.axes.layouts(&self.func.layouts[held.index()])).unwrap_or_default();
        let mut view = slot;
        for layout in layouts.iter().skip(1) {
            let (layout, first) = (self.intern(layout), self.i32(0));
            let ty = self.func.ty(view);
            let ty = ty.with_shape(ty.shape[1..].to_vec());
            view = self.value(GpuOp::SharedIndex.into(), vec![view, first], ty, Some(layout));
        }
        match feed.axes.order() {
            Some(perm) => self.value(GpuOp::SharedPermute { perm }.into(), vec![view], ty, held),
            None => view,
        }
    }

    pub(super) fn intern(&mut self, layout: &LinearLayout) -> LayoutId {
        let layouts = &mut self.func.layouts;
        let known = layouts.iter().position(|known| known == layout);
        let index = known.unwrap_or_else(|| {
            layouts.push(layout.clone());
            layouts.len() - 1
        });
        LayoutId::new(index as u32)
    }
}
