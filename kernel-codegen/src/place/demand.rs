//! Backwards: in which layouts each value is wanted.

use kernel_core::ir::{ControlOp, LayoutId, MemoryOp, Op, OpId, RegionId, ValueId};

use super::{Home, Placement, coalesce, product, tile, transfer};
use crate::analysis::control::operands_before_carried;
use crate::error::CodegenError;

type Result<T> = std::result::Result<T, CodegenError>;

/// Visits the operations of a region from the last to the first, so that all users of a value come before it.
pub(super) fn region(p: &mut Placement<'_>, region: RegionId) -> Result<()> {
    let func = p.func;
    for &op in func.region(region).ops.iter().rev() {
        operation(p, op)?;
    }
    Ok(())
}

fn operation(p: &mut Placement<'_>, id: OpId) -> Result<()> {
    let func = p.func;
    let operation = func.op(id);
    let op = &operation.op;
    if let Op::Control(op) = op {
        return control(p, id, op);
    }
    if op.is_arithmetic() {
        return pure(p, id);
    }
    if let Op::Memory(MemoryOp::CheckBounds { .. }) = op {
        let result = operation.results[0];
        if p.is_tile(result) && p.demands[result.index()].is_empty() {
            // Its report is wanted even where its result is not.
            let layout = coalesce::default_layout(p, id, result)?;
            p.want(result, layout);
        }
        return pure(p, id);
    }
    if op.multiplies() {
        product::demand(p, id);
        return Ok(());
    }
    if p.products.contains_key(&id) {
        tile::demand(p, id);
        return Ok(());
    }
    if let Op::Memory(MemoryOp::Load { .. }) = op {
        if let (Home::At(layout), true) = (p.home(operation.results[0]), p.is_tile(operation.results[0])) {
            p.chosen[id.index()] = Some(layout);
            if !p.demands[operation.results[0].index()].is_empty() {
                want_all(p, &operation.operands, layout);
            }
        }
        return Ok(());
    }
    // Other accesses have been given a layout.
    if let Some(layout) = p.chosen[id.index()] {
        want_all(p, &operation.operands, layout);
    }
    Ok(())
}

fn want_all(p: &mut Placement<'_>, values: &[ValueId], layout: LayoutId) {
    for &value in values {
        p.want(value, layout);
    }
}

/// An operation without effects: its operands are wanted for each layout in which it is computed.
fn pure(p: &mut Placement<'_>, id: OpId) -> Result<()> {
    let func = p.func;
    let operation = func.op(id);
    let Some(&result) = operation.results.first() else { return Ok(()) };
    if !p.is_tile(result) {
        if let Some(layout) = p.chosen[id.index()] {
            want_all(p, &operation.operands, layout);
        }
        return Ok(());
    }
    let computed_in = match p.home(result) {
        _ if p.demands[result.index()].is_empty() => Vec::new(),
        Home::At(layout) => vec![layout],
        Home::Rematerialise | Home::AnyOne => p.demands[result.index()].clone(),
    };
    for layout in computed_in {
        let wanted = transfer::operand_layouts(func, &mut p.table, id, layout);
        for (&operand, layout) in operation.operands.iter().zip(p.layout(id, wanted)?) {
            if let Some(layout) = layout {
                p.want(operand, layout);
            }
        }
    }
    Ok(())
}

/// Wants each of `values` in the layout of the value at the same place in `homes`.
fn want_at_home(p: &mut Placement<'_>, values: &[ValueId], homes: &[ValueId]) {
    for (&value, &home) in values.iter().zip(homes) {
        if let Home::At(layout) = p.home(home) {
            p.want(value, layout);
        }
    }
}

fn control(p: &mut Placement<'_>, id: OpId, op: &ControlOp) -> Result<()> {
    let func = p.func;
    let operation = func.op(id);
    match op {
        ControlOp::For { .. } | ControlOp::While | ControlOp::If => {
            for &inner in operation.regions.iter().rev() {
                if !matches!(op, ControlOp::While) || inner != operation.regions[0] {
                    want_at_home(p, func.yielded(inner), &operation.results);
                }
                region(p, inner)?;
            }
            want_at_home(p, &operation.operands[operands_before_carried(op)..], &operation.results);
        }
        ControlOp::Reduce { .. }
        | ControlOp::Scan { .. }
        | ControlOp::Map { .. }
        | ControlOp::Assert { .. }
        | ControlOp::Print { .. } => {
            if let Some(layout) = p.chosen[id.index()] {
                want_all(p, &operation.operands, layout);
            }
        }
        ControlOp::Yield | ControlOp::Return | ControlOp::StaticAssert { .. } => {}
    }
    Ok(())
}
