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

use std::collections::BTreeSet;

use kernel_core::edit::Structure;
use kernel_core::ir::{
    BinaryOp, CreateOp, DType, Def, ElementwiseOp, Func, Literal, Op, OpId, ParamKind, ShapeOp, ValueId,
};

use super::describe::Describer;
use super::lanes::{Lanes, MAX_DEPTH};
use crate::analysis::control::sources;
use kernel_core::backend::conditions::{Condition, LaunchConditions, NodeId};

/// A division, and the numbers that must not be negative.
#[derive(Clone, Debug)]
struct Division {
    op: OpId,
    operands: [NodeId; 2],
}

/// The divisions of a kernel that may do without signs.
#[derive(Clone, Debug, Default)]
pub(super) struct Divisions {
    found: Vec<Division>,
    /// Offsets of accesses that are decided at launch.
    decided: Vec<ValueId>,
}

impl Divisions {
    /// Looks at an operation, under the hypotheses of its region.
    pub(super) fn visit(&mut self, func: &Func, id: OpId, describer: &mut Describer<'_>, p: &mut LaunchConditions) {
        let operation = func.op(id);
        let Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::Rem | BinaryOp::Div }) = operation.op else { return };
        let ty = func.ty(operation.results[0]);
        let is_signed_tile = !ty.is_scalar() && ty.dtype().and_then(unsigned).is_some();
        if !is_signed_tile || !operation.operands.iter().all(|&operand| is_natural(func, operand, 0)) {
            return;
        }
        let [a, b] = [0, 1].map(|i| describer.describe(Lanes::of(func, operation.operands[i]), p));
        if a.is_bounded() && b.is_bounded() {
            self.found.push(Division { op: id, operands: [a.node, b.node] });
        }
    }

    /// Notes the offsets of an access that is decided at launch.
    pub(super) fn decided(&mut self, offset: ValueId) {
        self.decided.push(offset);
    }

    /// Demands of the launch what the divisions need that offsets of decided accesses come from; returns these.
    pub(super) fn require(self, func: &Func, program: &mut LaunchConditions) -> BTreeSet<OpId> {
        let mut chosen = BTreeSet::new();
        if self.found.is_empty() {
            return chosen;
        }
        let structure = Structure::new(func);
        let (mut seen, mut work) = (vec![false; func.values.len()], self.decided);
        while let Some(value) = work.pop() {
            if std::mem::replace(&mut seen[value.index()], true) {
                continue;
            }
            sources(func, &structure, value, &mut work);
        }
        for Division { op, operands } in self.found {
            if seen[func.op(op).results[0].index()] {
                operands.iter().for_each(|&operand| program.require(Condition::NotNegative(operand)));
                chosen.insert(op);
            }
        }
        chosen
    }
}

/// The integers of the same width without a sign, of those that have one.
pub(super) fn unsigned(dtype: DType) -> Option<DType> {
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
            CreateOp::Const { .. } | CreateOp::ConstExpr { .. } | CreateOp::Limit { .. } => false,
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
        | BinaryOp::Umulhi => false,
    }
}
