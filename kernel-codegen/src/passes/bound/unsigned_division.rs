//! Divisions of tiles that need no sign.
//!
//! Many kernels wrap what lies beyond a matrix around, `(program_id(0) * 128 + arange(0, 128)) % n`, instead of masking
//! it. A run of consecutive numbers stays one under `% n` only if it is not negative, and the product with a program's
//! number may wrap to something that is. A launch knows that it does not. So where an access is decided at launch
//! anyway, the same conditions say `0 <= dividend` and `0 <= divisor`, and the division is done without signs:
//!
//! ```text
//! %3: i32[128] = rem %1, %2
//! ```
//! becomes
//! ```text
//! %4: u32[128] = bitcast %1
//! %5: u32[128] = bitcast %2
//! %6: u32[128] = rem %4, %5
//! %3: i32[128] = bitcast %6
//! ```
//! which axis analysis can follow, and which the hardware does in fewer instructions.
//!
//! Only numbers that one expects not to be negative are put to the test, those made of program ids, ranges and arguments
//! without a difference: an inequality that fails would cost the launch its fast variant.
//!
//! Runs behind `bounds`, which says what accesses the host decides about, and behind `no_wrap`, because intervals are not
//! followed through the new form.

use std::collections::BTreeSet;

use kernel_core::backend::conditions::Condition;
use kernel_core::edit::{Action, Result, Rewriter, Structure};
use kernel_core::ir::{
    BinaryOp, Bound, CreateOp, DType, Def, ElementwiseOp, Func, Literal, Op, OpId, Operation, ParamKind, ShapeOp,
    ValueId,
};

use super::bounds::decided_offset;
use crate::analysis::control::sources;
use crate::analysis::intervals::Describer;
use crate::analysis::lanes::MAX_DEPTH;
use crate::error::CodegenError;
use crate::passes::pass::Unit;

/// Divides without signs where addresses gain by it, in a kernel whose launches the host decides about.
///
/// # Errors
/// If an operation that is put in breaks a type rule, which is a mistake in this module.
pub(crate) fn run(kernel: &mut Bound, unit: &mut Unit) -> std::result::Result<(), CodegenError> {
    let func = kernel.func_mut();
    if !unit.decides_at_launch(func) || !func.ops.iter().any(|operation| is_division(&operation.op)) {
        return Ok(());
    }
    let mut found = BTreeSet::new();
    let mut describer = Describer::new(func, &mut unit.plan.conditions);
    let of_offsets = values_of_offsets(func, &describer.structure);
    describer.visit(&mut |describer, id| {
        let operation = describer.func.op(id);
        if !is_candidate(describer.func, operation) || !of_offsets[operation.results[0].index()] {
            return;
        }
        let operands = [0, 1].map(|i| describer.describe_value(operation.operands[i]));
        // Of numbers whose sign data decides, the condition would hold in no launch.
        if operands.iter().all(|operand| operand.is_bounded() && !operand.signed_by_data) {
            operands.iter().for_each(|operand| describer.require(Condition::NotNegative(operand.node)));
            found.insert(id);
        }
    });
    Rewriter::run(func, "unsigned_division", &mut |rewriter, id| {
        if found.contains(&id) { drop_signs(rewriter, id) } else { Ok(Action::Keep) }
    })?;
    Ok(())
}

fn is_division(op: &Op) -> bool {
    matches!(op, Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::Rem | BinaryOp::Div }))
}

/// Whether an operation divides tiles with signs, of numbers that one expects not to be negative.
fn is_candidate(func: &Func, operation: &Operation) -> bool {
    if !is_division(&operation.op) {
        return false;
    }
    let ty = func.ty(operation.results[0]);
    let is_signed_tile = !ty.is_scalar() && ty.dtype().and_then(unsigned).is_some();
    is_signed_tile && operation.operands.iter().all(|&operand| is_natural(func, operand, 0))
}

/// By value: whether offsets of accesses that the host decides about come from it.
fn values_of_offsets(func: &Func, structure: &Structure) -> Vec<bool> {
    let mut seen = vec![false; func.values.len()];
    let mut work: Vec<ValueId> = structure.order().iter().filter_map(|&id| decided_offset(func, id)).collect();
    while let Some(value) = work.pop() {
        if !std::mem::replace(&mut seen[value.index()], true) {
            sources(func, structure, value, &mut work);
        }
    }
    seen
}

fn drop_signs(rewriter: &mut Rewriter<'_>, id: OpId) -> Result<Action> {
    let Operation { op, operands, results, span, .. } = rewriter.func.op(id).clone();
    let dtype = rewriter.func.ty(results[0]).dtype();
    let Some((dtype, without)) = dtype.and_then(|dtype| Some((dtype, unsigned(dtype)?))) else {
        return Ok(Action::Keep);
    };
    let mut cursor = rewriter.before(span);
    let operands: Vec<ValueId> = operands.iter().map(|&v| cursor.bitcast(v, without)).collect::<Result<_>>()?;
    let result = cursor.value(op, &operands)?;
    let result = cursor.bitcast(result, dtype)?;
    rewriter.replace(results[0], result);
    Ok(Action::Remove)
}

/// The integers of the same width without a sign, of those that have one.
pub(crate) fn unsigned(dtype: DType) -> Option<DType> {
    match dtype {
        DType::I8 => Some(DType::U8),
        DType::I16 => Some(DType::U16),
        DType::I32 => Some(DType::U32),
        DType::I64 => Some(DType::U64),
        _ => None,
    }
}

/// Whether a number is made of what is not negative in a sensible launch: counts, places and sizes, their sums, products
/// and quotients.
fn is_natural(func: &Func, value: ValueId, depth: usize) -> bool {
    let operation = match func.value(value).def {
        Def::Param(param) => return matches!(func.param(param).kind, ParamKind::Scalar(_) | ParamKind::Length(_)),
        // Counters of loops are left out: they begin anywhere.
        Def::Arg(..) => return false,
        Def::Result(op, _) => func.op(op),
    };
    let of = |index: usize| is_natural(func, operation.operands[index], depth + 1);
    if depth > MAX_DEPTH {
        return false;
    }
    if let Op::Create(op) = &operation.op {
        return match op {
            CreateOp::Const { value: Literal::Int(number), .. } => *number >= 0,
            CreateOp::ProgramId { .. } | CreateOp::NumPrograms { .. } => true,
            CreateOp::Arange { lo, .. } => lo.as_const().is_some_and(|lo| lo >= 0),
            CreateOp::Splat { .. } => of(0),
            CreateOp::Const { .. } | CreateOp::ConstExpr { .. } | CreateOp::Limit { .. } | CreateOp::Counter { .. } => {
                false
            }
        };
    }
    if let Op::Elementwise(ElementwiseOp::Binary { op }) = &operation.op {
        return binary_is_natural(*op, &of);
    }
    // Everything else is data, or is not followed.
    let keeps = matches!(
        operation.op,
        Op::Elementwise(ElementwiseOp::Cast { .. })
            | Op::Shape(ShapeOp::ExpandDims { .. } | ShapeOp::Broadcast { .. } | ShapeOp::Hint { .. })
    );
    keeps && of(0)
}

fn binary_is_natural(op: BinaryOp, of: &dyn Fn(usize) -> bool) -> bool {
    match op {
        BinaryOp::Add | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max => of(0) && of(1),
        // Their sign is that of the dividend, in a sensible launch.
        BinaryOp::Div | BinaryOp::Rem | BinaryOp::Shr => of(0),
        BinaryOp::Sub
        | BinaryOp::DivRn
        | BinaryOp::MinNan
        | BinaryOp::MaxNan
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Umulhi
        | BinaryOp::Mulhi
        | BinaryOp::RotateLeft
        | BinaryOp::RotateRight
        | BinaryOp::SaturatingAdd
        | BinaryOp::SaturatingSub
        | BinaryOp::SaturatingMul
        | BinaryOp::CopySign
        | BinaryOp::NextAfter
        | BinaryOp::Math(_) => false,
    }
}
