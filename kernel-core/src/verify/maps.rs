//! The rules of operations that run a region for each element (T4, T5, L6).

use super::Errors;
use crate::ir::{ControlOp, Elements, Func, Level, Op, Operation, RegionId, Safety};

pub(super) fn check<'f>(func: &'f Func, errors: &mut Errors<'f>) {
    within(func, func.body, errors);
}

fn within<'f>(func: &'f Func, region: RegionId, errors: &mut Errors<'f>) {
    for (_, operation) in func.region_ops(region) {
        operation.regions.iter().for_each(|&inner| within(func, inner, errors));
        if !operation.op.applies() {
            continue;
        }
        operation.regions.iter().for_each(|&inner| computes(func, operation, inner, errors));
        let reaches = operation.op.ptx().and_then(|ptx| ptx.beyond_registers());
        if let (Safety::Safe, Some(what)) = (func.safety, reaches) {
            let name = operation.op.name();
            errors.push(operation.span, format!("`{name}`: {what} reaches beyond registers in a safe kernel"));
        }
        let values = || operation.operands.iter().chain(&operation.results);
        let layout = |value| func.layout(value);
        let first = operation.results.first().and_then(|&result| layout(result));
        if func.level == Level::Placed && !values().all(|&value| layout(value) == first) {
            errors.push(
                operation.span,
                format!("`{}`: operands and results have different layouts", operation.op.name()),
            );
        }
    }
}

/// T4: the region computes with scalars, and does nothing else.
fn computes<'f>(func: &'f Func, map: &Operation, region: RegionId, errors: &mut Errors<'f>) {
    for (_, operation) in func.region_ops(region) {
        let op = &operation.op;
        let scalar = |value: &_| func.ty(*value).is_scalar() && func.ty(*value).dt().is_some();
        let makes = matches!(op.elements(), Elements::Made | Elements::Each) && op.is_pure();
        let controls = matches!(
            op,
            Op::Control(
                ControlOp::If
                    | ControlOp::For { .. }
                    | ControlOp::While
                    | ControlOp::Yield
                    // Binding decides it.
                    | ControlOp::StaticAssert { .. }
            )
        );
        if !(makes || controls) || !operation.operands.iter().chain(&operation.results).all(scalar) {
            let message = format!("`{}`: `{}` is more than arithmetic on scalars", map.op.name(), op.name());
            errors.push(operation.span, message);
        }
        operation.regions.iter().for_each(|&inner| computes(func, map, inner, errors));
    }
}
