//! L16: kernels that begin before the launch before them has ended wait for it before they touch what others see.

use super::Errors;
use crate::ir::{Func, GpuOp, Op, OpId, RegionId};

pub(super) fn check(func: &Func, errors: &mut Errors<'_>) {
    let mut found = Vec::new();
    find(func, func.body, &mut found);
    let Some(&first) = found.first() else { return };
    let waits: Vec<OpId> = found.into_iter().filter(|&id| func.op(id).op == Op::Gpu(GpuOp::GridWait)).collect();
    let body = &func.region(func.body).ops;
    let &[wait] = waits.as_slice() else {
        let span = waits.get(1).map_or(func.op(first).span, |&second| func.op(second).span);
        return errors.push(span, "a kernel that may begin early waits once for the launches before it");
    };
    let Some(place) = body.iter().position(|&id| id == wait) else {
        return errors.push(func.op(wait).span, "`grid_wait` stands where every program comes: in the kernel's body");
    };
    for &id in &body[..place] {
        if func.reaches_out(id) {
            let name = func.op(id).op.name();
            errors.push(func.op(id).span, format!("`{name}` may touch what the launches before this one still write"));
        }
    }
}

/// All operations about the launches around this one.
fn find(func: &Func, region: RegionId, found: &mut Vec<OpId>) {
    for (id, operation) in func.region_ops(region) {
        if matches!(operation.op, Op::Gpu(GpuOp::GridWait | GpuOp::LaunchDependents)) {
            found.push(id);
        }
        operation.regions.iter().for_each(|&inner| find(func, inner, found));
    }
}
