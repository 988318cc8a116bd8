//! Tensor copies between global and shared memory (TMA).
//!
//! One thread asks for them, box by box; the copies run beside the threads. What a copy needs to know of the tensor
//! is in its tensor map, a parameter of the kernel that the host has encoded.

use kernel_core::ir::{DType, Func, GpuOp, Op, OpId, ParamId, ValueId};

use crate::analysis::control::for_each_op;
use crate::boxes::{Boxes, boxes_of};
use crate::compiled::TensorMap;

/// The map that the copies of a tensor use; `None` if none copies it.
pub(super) fn map_of(func: &Func, param: ParamId) -> Option<TensorMap> {
    let mut view = None;
    for_each_op(func, func.body, &mut |id| {
        if let Some((tensor, place)) = copied(func, id)
            && tensor == param
        {
            view.get_or_insert(place);
        }
    });
    let boxes = view_boxes(func, view?)?;
    let side: Vec<i64> = boxes.side.iter().map(|&side| i64::from(side)).collect();
    TensorMap::new(param, &side, boxes.swizzle)
}

/// The tensor and the view of a copy.
fn copied(func: &Func, id: OpId) -> Option<(ParamId, ValueId)> {
    let operation = func.op(id);
    match &operation.op {
        Op::Gpu(GpuOp::TmaLoad | GpuOp::TmaStore { .. }) => {
            let tensor = func.ty(*operation.operands.first()?).descriptor()?;
            Some((tensor, *operation.operands.get(1)?))
        }
        _ => None,
    }
}

/// The boxes of a view.
pub(super) fn view_boxes(func: &Func, view: ValueId) -> Option<Boxes> {
    let layout = &func.layouts[func.value(view).layout?.index()];
    let bits = func.ty(view).dtype().map_or(8, DType::bytes) * 8;
    boxes_of(layout, bits)
}
