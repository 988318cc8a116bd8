//! What is computed while products are in flight, and has to be computed before they are waited for.
//!
//! ```text
//! %s = wgmma ..; %o = wgmma ..                       two products
//! %s1 = wgmma_wait %s {pending = 1}
//! %p = exp2 %s1; %l = reduce %p                      beside the second one
//! %o1 = wgmma_wait %o {pending = 0}                  behind `%l`
//! ```
//!
//! To LLVM and ptxas arithmetic may pass a wait, and ptxas moves a wait up to where it finds something else to do: right
//! behind the first shuffle of attention, with all exponentials behind it, where no product runs beside them. It keeps a
//! wait behind a store that depends on them, which need not be carried out. So a wait for older products names what is
//! to be there before: what is computed since the wait before, and not used before this one. Numbers of few registers
//! will do where there are any, as the sums of rows: with them comes what they are made of.

use kernel_core::ir::{DType, Def, Elem, Func, GpuOp, Op, OpId, RegionId, ValueId};

use crate::occupancy::words;

/// The registers of a value that costs nothing to name.
const FEW: u32 = 4;
/// The most registers that a wait names: a store of four takes one instruction.
const MOST: u32 = 64;

/// The values that the wait `wait` of a region comes behind.
pub(crate) fn computed_beside(func: &Func, region: RegionId, wait: OpId) -> Vec<ValueId> {
    let ops = &func.region(region).ops;
    let is_wait = |id: OpId| matches!(func.op(id).op, Op::Gpu(GpuOp::WgmmaWait { .. }));
    let Some(at) = ops.iter().position(|&id| id == wait) else { return Vec::new() };
    let Some(before) = ops[..at].iter().rposition(|&id| is_wait(id)) else { return Vec::new() };
    let begun_before = |value: &ValueId| match func.value(*value).def {
        Def::Result(id, _) => ops.iter().position(|&op| op == id).is_some_and(|began| began < before),
        Def::Param(_) | Def::Arg(..) => false,
    };
    if !func.op(wait).operands.iter().any(begun_before) {
        return Vec::new();
    }
    let inner: Vec<OpId> = ops[before + 1..at].to_vec();
    let needed = |value: ValueId| {
        let uses = |id: &OpId| func.op(*id).operands.contains(&value);
        !inner.iter().any(uses)
    };
    // What a product makes is there behind its own wait only.
    let computed = inner.iter().filter(|&&id| !func.op(id).op.multiplies());
    let values = computed.flat_map(|&id| func.op(id).results.iter().copied());
    let values: Vec<ValueId> = values.filter(|&value| is_float(func, value) && needed(value)).collect();
    let few: Vec<ValueId> = values.iter().copied().filter(|&value| words(func, value) <= FEW).collect();
    match few.is_empty() && values.iter().map(|&value| words(func, value)).sum::<u32>() <= MOST {
        true => values,
        false => few,
    }
}

/// Whether a value is made of floats of 32 bits.
fn is_float(func: &Func, value: ValueId) -> bool {
    matches!(func.ty(value).elem, Elem::Data(_)) && func.ty(value).dtype() == Some(DType::F32)
}
