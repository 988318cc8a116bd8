//! In which layout an operation needs its operands, so that its result comes out in a given one without moving data.

use kernel_core::ir::{Func, LayoutId, Op, OpId, ShapeOp};
use kernel_core::layout::{LayoutDim, LayoutError, LinearLayout};

use super::Table;

/// Per operand, the layout wanted; `None` for scalars.
pub(super) fn operand_layouts(
    func: &Func,
    table: &mut Table,
    id: OpId,
    result: LayoutId,
) -> Result<Vec<Option<LayoutId>>, LayoutError> {
    let operation = func.op(id);
    let same = |table: &mut Table| {
        let tile = |&value| (!func.ty(value).is_scalar()).then_some(result);
        let _ = &table;
        operation.operands.iter().map(tile).collect()
    };
    let Op::Shape(shape) = &operation.op else { return Ok(same(table)) };
    let source = operation.operands[0];
    if func.ty(source).is_scalar() {
        return Ok(vec![None; operation.operands.len()]);
    }
    let layout = table.get(result).clone();
    let wanted = match shape {
        ShapeOp::ExpandDims { axis } => layout.slice(*axis)?,
        ShapeOp::Broadcast { .. } => project(&layout, &func.tile_shape(source))?,
        ShapeOp::Permute { perm } => layout.permute(&inverse(perm))?,
        ShapeOp::Reshape { .. } => layout.reshape(&func.tile_shape(source))?,
        ShapeOp::Hint { .. } | ShapeOp::ConvertLayout => return Ok(same(table)),
        ShapeOp::Join => {
            let Some((half, _)) = layout.split() else {
                let message = "the last axis is not in the registers".to_string();
                return Err(LayoutError::BadParameters { constructor: "join", message });
            };
            return Ok(vec![Some(table.intern(&half)); operation.operands.len()]);
        }
        ShapeOp::Half { .. } => layout.join()?,
        // Later passes take parts of tiles that have a layout.
        ShapeOp::Slice { .. } => return Ok(vec![None]),
    };
    Ok(vec![Some(table.intern(&wanted))])
}

/// The same of a kernel that has its layouts already.
pub(crate) fn operand_layouts_of(
    func: &mut Func,
    id: OpId,
    result: LayoutId,
) -> Result<Vec<Option<LayoutId>>, LayoutError> {
    let mut table = Table { layouts: std::mem::take(&mut func.layouts) };
    let wanted = operand_layouts(func, &mut table, id, result);
    func.layouts = table.layouts;
    wanted
}

/// The layout of a shape operation's result whose operand stays in `source`; `None` for a broadcast,
/// which would have to invent places for the copies, and for the half of a tile whose halves are in other threads.
pub(super) fn result_layout(func: &Func, id: OpId, source: &LinearLayout) -> Result<Option<LinearLayout>, LayoutError> {
    let operation = func.op(id);
    let Op::Shape(shape) = &operation.op else { return Ok(Some(source.clone())) };
    Ok(Some(match shape {
        ShapeOp::Slice { .. } => return Ok(source.part(&func.tile_shape(operation.results[0]))),
        ShapeOp::ExpandDims { axis } => source.expand_dims(*axis),
        ShapeOp::Broadcast { .. } => return Ok(None),
        ShapeOp::Permute { perm } => source.permute(perm)?,
        ShapeOp::Reshape { .. } => source.reshape(&func.tile_shape(operation.results[0]))?,
        ShapeOp::Join => source.join()?,
        // Both halves are wanted in one thread.
        ShapeOp::Half { .. } => return Ok(source.split().map(|(half, _)| half)),
        ShapeOp::Hint { .. } | ShapeOp::ConvertLayout => source.clone(),
    }))
}

/// The layout with the coordinates dropped along dimensions where `shape` is 1.
fn project(layout: &LinearLayout, shape: &[u32]) -> Result<LinearLayout, LayoutError> {
    let mut projected = layout.clone();
    for (axis, &size) in shape.iter().enumerate() {
        let dim = LayoutDim::Axis(axis as u8);
        if size == 1 && projected.out_size(dim) != 1 {
            projected = projected.resize_out(dim, 1)?;
        }
    }
    Ok(projected)
}

/// The permutation that undoes `perm`.
pub(crate) fn inverse(perm: &[u8]) -> Vec<u8> {
    let mut inverse = vec![0; perm.len()];
    for (to, &from) in perm.iter().enumerate() {
        inverse[usize::from(from)] = to as u8;
    }
    inverse
}
