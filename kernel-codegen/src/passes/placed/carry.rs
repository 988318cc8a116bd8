//! A number that runs on through the loops around a place: which phases of barriers are over.
//!
//! Barriers are made once per program, so their phases go on where the last visit of the place left them. Loops around
//! carry the number, and branches yield it, changed or not.

use kernel_core::ir::{ControlOp, DType, Def, Func, GpuOp, Op, OpId, RegionId, Ty, ValueId};

/// A region that something is in: the operation that owns it, and which of its regions it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EnclosingRegion {
    pub(crate) owner: OpId,
    pub(crate) region: usize,
}

/// Whether a region is repeated.
pub(crate) fn is_loop(func: &Func, site: EnclosingRegion) -> bool {
    matches!(func.op(site.owner).op, Op::Control(ControlOp::For { .. } | ControlOp::While))
}

/// The innermost of the regions, or the kernel's body.
pub(crate) fn innermost(func: &Func, around: &[EnclosingRegion]) -> RegionId {
    around.last().map_or(func.body, |site| func.op(site.owner).regions[site.region])
}

/// Makes the regions from the outermost to the innermost see a number that is `first` at first; returns what each sees,
/// after `first` itself.
pub(crate) fn enter(func: &mut Func, around: &[EnclosingRegion], first: ValueId) -> Vec<ValueId> {
    let mut seen = vec![first];
    for &site in around {
        let outer = seen[seen.len() - 1];
        if !is_loop(func, site) {
            seen.push(outer);
            continue;
        }
        func.ops[site.owner.index()].operands.push(outer);
        let mut inner = outer;
        for (index, region) in func.op(site.owner).regions.clone().into_iter().enumerate() {
            let arg = func.add_region_arg(region, Ty::scalar(DType::I32));
            if index == site.region {
                inner = arg;
            }
        }
        seen.push(inner);
    }
    seen
}

/// Makes the same regions leave the number as it is after the place. Each warp group runs once, and what is around it
/// does not see the number.
pub(crate) fn leave(func: &mut Func, around: &[EnclosingRegion], seen: &[ValueId], mut left: ValueId) {
    for (&site, &outer) in around.iter().zip(seen).rev() {
        if matches!(func.op(site.owner).op, Op::Gpu(GpuOp::WarpGroups { .. })) {
            break;
        }
        let branches = !is_loop(func, site);
        for (index, region) in func.op(site.owner).regions.clone().into_iter().enumerate() {
            let Some(&end) = func.region(region).ops.last() else { continue };
            if index == site.region {
                func.ops[end.index()].operands.push(left);
            } else if branches {
                // The other branch leaves it as it is.
                func.ops[end.index()].operands.push(outer);
            }
        }
        let index = func.op(site.owner).results.len() as u32;
        left = func.new_value(Ty::scalar(DType::I32), Def::Result(site.owner, index));
        func.ops[site.owner.index()].results.push(left);
    }
}
