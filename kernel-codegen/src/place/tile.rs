//! Operations on whole tiles, which take their operands where they are.

use kernel_core::ir::{LayoutId, OpId, TileOp};
use kernel_core::layout::sort;

use super::{Home, Placement, coalesce, home};
use crate::error::CodegenError;

type Result<T> = std::result::Result<T, CodegenError>;

/// Forwards: where the operands are taken, and where that leaves the result.
pub(super) fn home(p: &mut Placement<'_>, id: OpId, op: &TileOp) -> Result<()> {
    let operation = p.func.op(id);
    let (tile, result) = (operation.operands[0], operation.results[0]);
    let (operands, result_layout) = match op {
        // The result is where the index is; the tile goes through shared memory from anywhere.
        TileOp::Gather { .. } => {
            let index = home::settled(p, id, operation.operands[1])?;
            (vec![home::settled(p, id, tile)?, index], index)
        }
        TileOp::Scatter { .. } => {
            let (tile, index) = (home::settled(p, id, tile)?, home::settled(p, id, operation.operands[1])?);
            (vec![tile, index, index], tile)
        }
        TileOp::Histogram { .. } => {
            let tile = home::settled(p, id, tile)?;
            (vec![tile; operation.operands.len()], coalesce::default_layout(p, id, result)?)
        }
        TileOp::Sort { axis, .. } => {
            let keep = p.shape(result).get(usize::from(*axis)).copied().unwrap_or_default();
            let source = sortable(p, id, *axis, keep)?;
            let plan = p.layout(id, sort(p.table.get(source), *axis, keep))?;
            (vec![source], p.table.intern(&plan.result))
        }
    };
    p.products.insert(id, operands);
    p.homes[result.index()] = Home::At(result_layout);
    Ok(())
}

/// Where a tile is sorted: where it is, unless its layout mixes the axis with others.
fn sortable(p: &mut Placement<'_>, id: OpId, axis: u8, keep: u32) -> Result<LayoutId> {
    let tile = p.func.op(id).operands[0];
    if let Home::At(layout) = p.home(tile)
        && sort(p.table.get(layout), axis, keep).is_ok()
    {
        return Ok(layout);
    }
    coalesce::default_layout(p, id, tile)
}

/// Backwards: wants the operands where they were decided to be.
pub(super) fn demand(p: &mut Placement<'_>, id: OpId) {
    let operation = p.func.op(id);
    let Some(layouts) = p.products.get(&id).cloned() else { return };
    if p.demands[operation.results[0].index()].is_empty() {
        return;
    }
    for (&value, layout) in operation.operands.iter().zip(layouts) {
        p.want(value, layout);
    }
}
