//! The rule L10. Types and levels are known to hold.

use super::Errors;
use crate::ir::{
    DType, DotInstruction, DotOp, DotPrecision, Elem, Func, GpuOp, GroupPart, Level, Op, Operation, RegionId, ValueId,
};
use crate::layout::{LinearLayout, group_parts, is_mma_v2, is_wgmma_left, wgmma_columns};

/// Bytes of a word of a factor, of which an instruction takes eight along K.
const WORD_BYTES: u32 = 4;
/// Words along K of one instruction.
const K_WORDS: u32 = 8;
/// Rows of a `wgmma`.
const GROUP_ROWS: i64 = 64;

pub(super) fn check<'f>(func: &'f Func, errors: &mut Errors<'f>) {
    region(func, func.body, errors);
}

fn region<'f>(func: &'f Func, id: RegionId, errors: &mut Errors<'f>) {
    for (_, operation) in func.region_ops(id) {
        operation.regions.iter().for_each(|&inner| region(func, inner, errors));
        if let Op::Gpu(GpuOp::Wgmma { part: part @ (GroupPart::Own | GroupPart::Others), .. }) = operation.op
            && let Err(message) = of_part(func, id, operation, part)
        {
            errors.push(operation.span, format!("`{}`: {message}", operation.op.name()));
        }
        let Op::Dot(DotOp::Dot { precision, by }) = operation.op else { continue };
        let broken = match (func.level, by) {
            (Level::Generic, Some(_)) => Err("the instruction of a generic product cannot be chosen".to_string()),
            (Level::Placed, None) => Err("no instruction is chosen for a placed product".to_string()),
            (Level::Generic | Level::Bound, None) => Ok(()),
            (Level::Bound | Level::Placed, Some(instruction)) => chosen(func, operation, instruction, precision),
        };
        if let Err(message) = broken {
            errors.push(operation.span, format!("`{}`: {message}", operation.op.name()));
        }
    }
}

/// Whether an instruction computes a product.
fn chosen(
    func: &Func,
    operation: &Operation,
    instruction: DotInstruction,
    precision: DotPrecision,
) -> Result<(), String> {
    let &[a, b, acc] = operation.operands.as_slice() else { return Ok(()) };
    let Some((dtype, sums)) = func.ty(a).dtype().zip(func.ty(acc).dtype()) else { return Ok(()) };
    let width = (WORD_BYTES / dtype.bytes()).max(1);
    let name = instruction.name();
    if !has_form(instruction, dtype, sums, precision) {
        return Err(format!("`{name}` has no form of this precision for factors of {dtype} and sums of {sums}"));
    }
    let steps = i64::from(K_WORDS * width);
    let k = func.ty(a).dims().and_then(|dims| dims.last().copied()).unwrap_or(0);
    if instruction != DotInstruction::Fma && k < steps {
        return Err(format!("`{name}` goes along K in steps of {steps}, which is {k}"));
    }
    if let DotInstruction::Wgmma { columns } = instruction {
        let dims = func.ty(acc).dims().unwrap_or_default();
        if !columns.is_power_of_two() || !(8..=256).contains(&columns) {
            return Err(format!("`{name}` has a power of two of columns from 8 to 256, not {columns}"));
        }
        if dims.len() != 2 || dims[0] < GROUP_ROWS || dims[1] < i64::from(columns) {
            return Err(format!("`{name}` computes {GROUP_ROWS} rows of {columns} columns of a matrix, not {dims:?}"));
        }
    }
    if func.level == Level::Placed { lies(func, instruction, [a, b, acc, operation.results[0]], width) } else { Ok(()) }
}

/// Whether a product of some elements along K is one that warp groups can compute, and whether both of its halves are there:
/// the one of own parts, in registers, and right behind it in the same group that of the others, in shared memory.
fn of_part(func: &Func, region: RegionId, operation: &Operation, part: GroupPart) -> Result<(), String> {
    let &[a, b, acc, ..] = operation.operands.as_slice() else { return Ok(()) };
    let products: Vec<&Operation> = func.region_ops(region).map(|(_, operation)| operation).collect();
    // What has regions may have others in it.
    let is_asynchronous = |other: &&&Operation| {
        matches!(other.op, Op::Gpu(GpuOp::Wgmma { .. } | GpuOp::WgmmaWait { .. })) || !other.regions.is_empty()
    };
    let of = |other: &Operation, wanted: GroupPart| {
        matches!(other.op, Op::Gpu(GpuOp::Wgmma { part, .. }) if part == wanted) && other.operands.get(1) == Some(&b)
    };
    let at = products.iter().position(|other| other.results == operation.results).unwrap_or(0);
    let result = operation.results.first();
    let whole = match part {
        GroupPart::Whole => true,
        GroupPart::Own => products[at + 1..]
            .iter()
            .find(is_asynchronous)
            .is_some_and(|next| of(next, GroupPart::Others) && next.operands.get(2) == result),
        GroupPart::Others => products[..at]
            .iter()
            .rfind(is_asynchronous)
            .is_some_and(|last| of(last, GroupPart::Own) && last.results.first() == Some(&acc)),
    };
    if !whole {
        return Err("the products of own parts and of the others go together".to_string());
    }
    let k = func.ty(a).dims().and_then(|dims| dims.last().copied()).and_then(|k| u32::try_from(k).ok()).unwrap_or(0);
    let (Some(layout), Some(dtype)) = (func.layout(acc), func.ty(a).dtype()) else { return Ok(()) };
    let width = (WORD_BYTES / dtype.bytes()).max(1);
    let Some(parts) = group_parts(layout, k).filter(|parts| parts.extent >= K_WORDS * width) else {
        return Err("no two warp groups have parts of the elements along K".to_string());
    };
    let in_registers = func.layout(a).filter(|_| !matches!(func.ty(a).elem, Elem::Shared(_)));
    match (part, in_registers) {
        (GroupPart::Others, Some(_)) => Err("what other groups hold is not in shared memory".to_string()),
        (GroupPart::Own, held) if !held.is_some_and(|held| is_wgmma_left(held, layout, width, Some(&parts))) => {
            Err("warp groups do not hold their own parts".to_string())
        }
        _ => Ok(()),
    }
}

/// Whether an instruction multiplies factors of a dtype, in a precision, into sums of another.
fn has_form(instruction: DotInstruction, dtype: DType, sums: DType, precision: DotPrecision) -> bool {
    let single = dtype == DType::F32;
    // These are products of bf16 by then.
    if single && precision.split().is_some() {
        return false;
    }
    match instruction {
        DotInstruction::Fma => true,
        DotInstruction::Mma => {
            let exact = single && precision == DotPrecision::Ieee;
            let short = dtype.is_fp8() && sums == DType::F16;
            !(exact || short)
        }
        DotInstruction::Wgmma { .. } => {
            let rounded = !single || precision == DotPrecision::Tf32;
            rounded && dtype != DType::F64 && sums != DType::F16
        }
    }
}

/// Whether factors, accumulator and result lie in threads as an instruction reads and writes them.
fn lies(func: &Func, instruction: DotInstruction, values: [ValueId; 4], width: u32) -> Result<(), String> {
    let layout = |value: ValueId| -> Option<&LinearLayout> {
        func.value(value).layout.and_then(|layout| func.layouts.get(layout.index()))
    };
    let [Some(a), Some(b), Some(acc), Some(result)] = values.map(layout) else { return Ok(()) };
    if acc != result {
        return Err("accumulator and result have different layouts".to_string());
    }
    match instruction {
        // Factors go through shared memory, from wherever they are.
        DotInstruction::Fma => Ok(()),
        DotInstruction::Mma if is_mma_v2(a, b, acc, width) => Ok(()),
        DotInstruction::Mma => Err("factors and accumulator do not lie as `mma` reads them".to_string()),
        DotInstruction::Wgmma { columns } => match wgmma_columns(acc) {
            Some(own) if own == columns => Ok(()),
            Some(own) => Err(format!("the accumulator lies as `wgmma({own})` reads it, not `wgmma({columns})`")),
            None => Err(format!("the accumulator does not lie as `wgmma({columns})` reads it")),
        },
    }
}
