//! Matrix products: the accumulator's layout, and where the factors are wanted.
//!
//! The accumulator has the layout of the instruction that stands on the product ([`crate::dot`]). Factors of
//! `mma.sync` are wanted in its operand layouts. Factors of `wgmma` and of scalar arithmetic go to shared memory from
//! wherever they were computed, except an A that was computed in the layout of an accumulator: in its threads it can
//! stay, as the left operand of `wgmma`, and of 8 bits in its warps, after exchanges between four lanes.

use kernel_core::edit::walk;
use kernel_core::ir::{Def, DotInstruction, DotOp, LayoutId, MemoryOp, Op, OpId, ValueId};
use kernel_core::layout::{Conversion, convert};

use super::{Home, Placement, coalesce};
use crate::dot::Problem;
use crate::error::CodegenError;

type Result<T> = std::result::Result<T, CodegenError>;

/// Forwards: chooses the layouts for the product's instruction.
pub(super) fn home(p: &mut Placement<'_>, id: OpId) -> Result<()> {
    let func = p.func;
    let operation = func.op(id);
    let &[a, b, _] = operation.operands.as_slice() else { return Ok(()) };
    let Op::Dot(DotOp::Dot { by, .. }) = operation.op else { return Ok(()) };
    let Some(problem) = Problem::of(func, operation) else {
        return Err(CodegenError::refuse(func, operation.span, "a matrix product of values that are no numbers"));
    };
    let unfit = |what: &str| CodegenError::internal(func, operation.span, "place", what);
    let instruction = by.ok_or_else(|| unfit("a matrix product has no instruction"))?;
    let kind = problem.kind().ok_or_else(|| unfit("no matrix instruction multiplies these factors"));
    let layouts = match instruction {
        DotInstruction::Mma => mma(p, id)?,
        DotInstruction::Wgmma { columns } => {
            let warps = problem.group_warps(p.num_warps);
            let sum = p.layout(id, problem.wgmma_layout(columns, warps))?;
            let sum = p.table.intern(&sum);
            let registers = p.layout(id, problem.wgmma_a_layout(kind?, warps))?;
            let registers = p.table.intern(&registers);
            let bits = problem.a.bytes() * 8;
            let left = match p.home(a) {
                Home::At(layout) if stays(p, layout, registers, bits) => registers,
                _ => settled(p, id, a)?,
            };
            [left, settled(p, id, b)?, sum]
        }
        DotInstruction::Fma => {
            let sum = p.layout(id, problem.fma_layout(p.num_warps))?;
            let sum = p.table.intern(&sum);
            [settled(p, id, a)?, settled(p, id, b)?, sum]
        }
    };
    p.products.insert(id, layouts.to_vec());
    p.homes[operation.results[0].index()] = Home::At(layouts[2]);
    Ok(())
}

/// The layouts of the factors and the sum of a product by `mma.sync`.
pub(super) fn mma(p: &mut Placement<'_>, id: OpId) -> Result<[LayoutId; 3]> {
    let operation = p.func.op(id);
    let problem = Problem::of(p.func, operation);
    let Some((kind, problem)) = problem.and_then(|problem| Some((problem.kind()?, problem))) else {
        let what = "no matrix instruction multiplies these factors";
        return Err(CodegenError::internal(p.func, operation.span, "place", what));
    };
    let rows = is_chained(p, id);
    let layouts = p.layout(id, problem.mma_layouts(kind, p.num_warps, rows))?;
    Ok(layouts.map(|layout| p.table.intern(&layout)))
}

/// Backwards: wants the operands where they were decided to be.
pub(super) fn demand(p: &mut Placement<'_>, id: OpId) {
    let operation = p.func.op(id);
    let Some(layouts) = p.products.get(&id).cloned() else { return };
    if p.demands[operation.results[0].index()].is_empty() {
        return;
    }
    for (&value, layout) in operation.operands.iter().zip(layouts) {
        // Loads of factors stay coalesced, however small: they can then run ahead, to shared memory.
        if let (Home::AnyOne, Def::Result(op, _)) = (p.home(value), p.func.value(value).def)
            && let Some(access) = p.access[op.index()]
        {
            p.homes[value.index()] = Home::At(access);
        }
        p.want(value, layout);
    }
}

/// The layout from which a factor goes to shared memory.
fn settled(p: &mut Placement<'_>, id: OpId, value: ValueId) -> Result<LayoutId> {
    if let Home::At(layout) = p.home(value) {
        return Ok(layout);
    }
    if let Def::Result(op, _) = p.func.value(value).def
        && matches!(p.func.op(op).op, Op::Memory(MemoryOp::Load { .. }))
        && let Some(access) = p.access[op.index()]
    {
        return Ok(access);
    }
    coalesce::default_layout(p, id, value)
}

/// Whether a tile gets from one layout to the other without leaving its threads, or, of 8 bits, its warps.
fn stays(p: &Placement<'_>, from: LayoutId, to: LayoutId, bits: u32) -> bool {
    let plan = convert(p.table.get(from), p.table.get(to), bits);
    match plan {
        Ok(Conversion::NoOp | Conversion::RegisterPermute(_)) => true,
        // Four elements move at once.
        Ok(Conversion::Shuffle(_)) => bits == 8,
        Ok(Conversion::SharedMemory(_)) | Err(_) => false,
    }
}

/// Whether the left factor of another product is computed from this one's result, or this one's left factor from
/// another product: then warps have whole rows, so that the tile between the two stays in its threads.
fn is_chained(p: &Placement<'_>, id: OpId) -> bool {
    let func = p.func;
    let mut products = Vec::new();
    walk(func, &mut |op| {
        if matches!(func.op(op).op, Op::Dot(DotOp::Dot { .. })) {
            products.push(op);
        }
    });
    products.iter().any(|&other| {
        other != id
            && (computed_from(p, func.op(other).operands[0], id) || computed_from(p, func.op(id).operands[0], other))
    })
}

/// Whether `value` is computed from the result of `product` by operations without regions.
fn computed_from(p: &Placement<'_>, value: ValueId, product: OpId) -> bool {
    let mut work = vec![value];
    let mut seen = Vec::new();
    while let Some(value) = work.pop() {
        let Def::Result(op, _) = p.func.value(value).def else { continue };
        if op == product {
            return true;
        }
        if p.is_tile(value) && !seen.contains(&op) {
            seen.push(op);
            work.extend(&p.func.op(op).operands);
        }
    }
    false
}
