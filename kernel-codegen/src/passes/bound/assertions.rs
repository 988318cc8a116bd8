//! Assertions that the host decides.
//!
//! What an `assert!`, an `assume` or the check of a hint says of arguments and of the grid alone is the same for every
//! program of a launch, so the host evaluates it once, with the conditions that replace bounds checks. If it holds, the
//! variant without the check runs; if not, the one that checks everything, whose programs end where they come to it.
//!
//! ```text
//! %4: i32 = rem %n, %sixteen
//! %6: bool = cmp.eq %4, %zero
//! assert %6
//! ```
//! becomes the condition that `n` is a multiple of 16, and `hint %6 {kind = holds, believed = true}`.
//!
//! Only what the host evaluates exactly is decided by it: of a range (`program_id(0) < n`) it could say no where every
//! program says yes, and each such launch would run the slow variant. Multiples are the exception, because ranges do not
//! blur them.

use kernel_core::backend::conditions::{Condition, NodeId};
use kernel_core::ir::{
    BinaryOp, Bound, CmpOp, ControlOp, DType, Def, Dim, ElementwiseOp, Func, HintKind, Op, OpId, ShapeOp, UnaryOp,
    ValueId,
};

use crate::analysis::intervals::{Describer, Source};
use crate::analysis::lanes::{Lanes, MAX_DEPTH, constant, strip};
use crate::checks::Kept;
use crate::error::CodegenError;
use crate::passes::pass::Unit;

/// Leaves assertions to the host, of a kernel whose launches it decides about.
///
/// # Errors
/// None.
pub(crate) fn run(kernel: &mut Bound, unit: &mut Unit) -> Result<(), CodegenError> {
    let func = kernel.func_mut();
    let is_assertion = |op: &Op| matches!(op, Op::Control(ControlOp::Assert { .. }));
    if !unit.decides_at_launch(func) || !func.ops.iter().any(|operation| is_assertion(&operation.op)) {
        return Ok(());
    }
    let mut decided = Vec::new();
    Describer::new(func, &mut unit.plan.conditions).visit(&mut |describer, id| {
        let operation = describer.func.op(id);
        if is_assertion(&operation.op)
            && let Some(conditions) = conditions(describer, operation.operands[0])
        {
            conditions.into_iter().for_each(|condition| describer.require(condition));
            decided.push(id);
        }
    });
    for promise in &mut unit.plan.promises {
        if promise.assertion.is_some_and(|assertion| decided.contains(&assertion)) {
            promise.kept = Kept::AtLaunch;
        }
    }
    decided.into_iter().for_each(|assertion| believe(func, assertion));
    Ok(())
}

/// Makes a hint of an assertion that holds: what it says remains known.
fn believe(func: &mut Func, assertion: OpId) {
    let one = Dim::Const(1);
    let hint = ShapeOp::Hint { kind: HintKind::Holds, n: one.clone(), multiple: one, axis: 0, believed: true };
    let condition = func.op(assertion).operands[0];
    let result = func.new_value(func.ty(condition).clone(), Def::Result(assertion, 0));
    let operation = &mut func.ops[assertion.index()];
    operation.op = hint.into();
    operation.results = vec![result];
}

/// Conditions on the launch under which a truth value, or every element of a tile of them, is true; `None` if the host
/// cannot tell.
fn conditions(describer: &mut Describer<'_>, value: ValueId) -> Option<Vec<Condition>> {
    let func = describer.func;
    let mut decider = Decider { func, describer, found: Vec::new() };
    decider.decide(Lanes::of(func, value), true, 0)?;
    Some(decider.found)
}

struct Decider<'d, 'f> {
    func: &'f Func,
    describer: &'d mut Describer<'f>,
    found: Vec<Condition>,
}

impl Decider<'_, '_> {
    /// Finds what makes a condition hold (or, if not `holds`, fail).
    fn decide(&mut self, condition: Lanes, holds: bool, depth: usize) -> Option<()> {
        let condition = strip(self.func, condition);
        let operation = self.func.def_op(condition.value)?;
        let operand = |i: usize| condition.operand(operation.operands[i]);
        let Op::Elementwise(op) = &operation.op else { return None };
        match op {
            _ if depth > MAX_DEPTH => None,
            ElementwiseOp::Binary { op: BinaryOp::And } if holds => self.both(operand(0), operand(1), true, depth),
            ElementwiseOp::Binary { op: BinaryOp::Or } if !holds => self.both(operand(0), operand(1), false, depth),
            ElementwiseOp::Unary { op: UnaryOp::Not } => self.decide(operand(0), !holds, depth + 1),
            ElementwiseOp::Compare { op } => match self.func.ty(operation.operands[0]).dtype() {
                Some(dtype) if dtype.is_int() => self.comparison(*op, holds, operand(0), operand(1)),
                Some(_) | None => None,
            },
            ElementwiseOp::Unary { .. }
            | ElementwiseOp::Binary { .. }
            | ElementwiseOp::FloatInt { .. }
            | ElementwiseOp::Select
            | ElementwiseOp::Fma
            | ElementwiseOp::Cast { .. }
            | ElementwiseOp::Bitcast { .. } => None,
        }
    }

    fn both(&mut self, a: Lanes, b: Lanes, holds: bool, depth: usize) -> Option<()> {
        self.decide(a, holds, depth + 1)?;
        self.decide(b, holds, depth + 1)
    }

    fn comparison(&mut self, op: CmpOp, holds: bool, a: Lanes, b: Lanes) -> Option<()> {
        if matches!((op, holds), (CmpOp::Eq, true) | (CmpOp::Ne, false))
            && let Some(condition) = self.multiple(&a, &b)
        {
            self.found.push(condition);
            return Some(());
        }
        let (a, b) = (self.number(a)?, self.number(b)?);
        match (op, holds) {
            (CmpOp::Lt, true) | (CmpOp::Ge, false) => self.found.push(Condition::AtMost(a, b, -1)),
            (CmpOp::Le, true) | (CmpOp::Gt, false) => self.found.push(Condition::AtMost(a, b, 0)),
            (CmpOp::Gt, true) | (CmpOp::Le, false) => self.found.push(Condition::AtMost(b, a, -1)),
            (CmpOp::Ge, true) | (CmpOp::Lt, false) => self.found.push(Condition::AtMost(b, a, 0)),
            (CmpOp::Eq, true) | (CmpOp::Ne, false) => {
                self.found.extend([Condition::AtMost(a, b, 0), Condition::AtMost(b, a, 0)]);
            }
            (CmpOp::Eq, false) | (CmpOp::Ne, true) => self.found.push(Condition::Apart(a, b)),
        }
        Some(())
    }

    /// A value that is one number in each launch.
    fn number(&mut self, value: Lanes) -> Option<NodeId> {
        let described = self.describer.describe(value);
        (described.source == Source::Launch).then_some(described.node)
    }

    /// `x % n == 0`, of values that memory has no part in.
    fn multiple(&mut self, a: &Lanes, b: &Lanes) -> Option<Condition> {
        let remainder = strip(self.func, a.clone());
        let operation = self.func.def_op(remainder.value)?;
        let Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::Rem }) = operation.op else { return None };
        let of = constant(self.func, operation.operands[1]).filter(|of| *of > 0)?;
        if constant(self.func, b.value) != Some(0) || !self.is_integer(operation.operands[0]) {
            return None;
        }
        let described = self.describer.describe(remainder.operand(operation.operands[0]));
        let known = described.source <= Source::Programs;
        known.then_some(Condition::Multiple(described.node, of as u64))
    }

    fn is_integer(&self, value: ValueId) -> bool {
        self.func.ty(value).dtype().is_some_and(DType::is_int)
    }
}
