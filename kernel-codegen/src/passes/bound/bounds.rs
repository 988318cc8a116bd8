//! Keeps every access of a safe kernel inside its buffer, at no cost where that can be proved.
//!
//! An access is decided by the host at launch where [`intervals`](crate::analysis::intervals) bound its offsets:
//! ```text
//! %9: f32[BLOCK] = load %p, %m            ; %m = %off < %n
//! ```
//! stays as it is with the launch condition `0 <= %off <= n - 1 < len(x)`, evaluated without wrapping. Offsets that come
//! from memory are checked lane by lane, by a `check_bounds` that joins the access's mask. In the variant for launches
//! that do not meet the conditions ([`Checks::EveryAccess`]) all accesses are:
//! ```text
//! %m2: bool[BLOCK] = check_bounds %off, %len, %m {param = 0, store = false}
//! %9: f32[BLOCK] = load %p, %m2
//! ```
//! So afterwards an access of a safe kernel without a `check_bounds` is one that the host has decided.
//!
//! A lane that the bounds refuse reads zero, in a load with `other` too, which is what a lane reads that the kernel's
//! own mask leaves out: there `load %p, %m, %other` becomes `load %p, %m2, (select %m, zeros, %other)`.
//!
//! Addresses are in the form that [`super::pointers`] gives them. Unsafe kernels are left alone.

use kernel_core::backend::Checks;
use kernel_core::backend::conditions::{Condition, Node};
use kernel_core::edit::{Action, Cursor, Result, Rewriter};
use kernel_core::ir::{
    BinaryOp, Bound, ControlOp, CreateOp, DType, Def, ElementwiseOp, Func, Literal, MemoryOp, Op, OpId, Operation,
    ParamId, ParamKind, Safety, Span, ValueId, view,
};

use crate::analysis::intervals::{Described, Describer};
use crate::analysis::lanes::{Lanes, strip};
use crate::checks::{Access, AccessKind, Class, Open, Origin, Unbounded};
use crate::error::CodegenError;
use crate::passes::pass::Unit;

/// Classifies every access, and inserts the checks that the variant needs.
///
/// # Errors
/// If an operation that is put in breaks a type rule, which is a mistake in this module.
pub(crate) fn run(kernel: &mut Bound, unit: &mut Unit) -> std::result::Result<(), CodegenError> {
    let func = kernel.func_mut();
    if func.safety == Safety::Unsafe {
        return Ok(());
    }
    let mut residual = vec![false; func.ops.len()];
    let (checks, plan) = (unit.options.checks, &mut unit.plan);
    let accesses = &mut plan.accesses;
    Describer::new(func, &mut plan.conditions).visit(&mut |describer, id| {
        let operation = describer.func.op(id);
        let Some(kind) = access_kind(&operation.op) else { return };
        let Some(param) = describer.func.ty(operation.operands[0]).pointee() else { return };
        let class = match checks {
            Checks::AtLaunch => classify(describer, id, param),
            Checks::EveryAccess => Class::Residual(Open::Asked),
        };
        residual[id.index()] = matches!(class, Class::Residual(_));
        accesses.push(Access { span: operation.span, kind, param, class });
    });
    let mut lengths = Lengths::default();
    Rewriter::run(func, "bounds", &mut |rewriter, id| {
        if residual.get(id.index()) == Some(&true) {
            check(rewriter, id, &mut lengths)?;
        }
        Ok(Action::Keep)
    })?;
    Ok(())
}

fn access_kind(op: &Op) -> Option<AccessKind> {
    let Op::Memory(op) = op else { return None };
    match op {
        MemoryOp::Load { .. } => Some(AccessKind::Load),
        MemoryOp::Store { .. } => Some(AccessKind::Store),
        MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. } => Some(AccessKind::Atomic),
        MemoryOp::AddPtr | MemoryOp::CheckBounds { .. } => None,
    }
}

/// The offsets of a canonical address; `None` for the buffer's first element.
fn offset_of(func: &Func, pointer: ValueId) -> Option<ValueId> {
    match func.def_op(pointer) {
        Some(op) if op.op == Op::Memory(MemoryOp::AddPtr) => op.operands.get(1).copied(),
        Some(_) | None => None,
    }
}

/// The offsets of an access that the host has decided, in a kernel that has gone through this pass. An access to a
/// buffer's first element has none.
pub(super) fn decided_offset(func: &Func, id: OpId) -> Option<ValueId> {
    let operation = func.op(id);
    access_kind(&operation.op)?;
    let mask = operation.op.mask().and_then(|index| operation.operands.get(index));
    let is_check = |mask: &ValueId| {
        matches!(func.def_op(*mask).map(|mask| &mask.op), Some(Op::Memory(MemoryOp::CheckBounds { .. })))
    };
    if mask.is_some_and(is_check) { None } else { offset_of(func, operation.operands[0]) }
}

/// Lets the host decide about an access, if its offsets are bounded.
fn classify(describer: &mut Describer<'_>, id: OpId, buffer: ParamId) -> Class {
    let operation = describer.func.op(id);
    let Some(offset) = offset_of(describer.func, operation.operands[0]) else {
        // The first element: in bounds unless the buffer is empty.
        let offset = describer.node(Node::Fixed(0, 0));
        describer.require(Condition::Inside { offset, buffer });
        return Class::LaunchCondition;
    };
    let described = describer.attempt(|describer| {
        describer.under_mask(operation, |describer| {
            let described = describer.describe_value(offset);
            match described.is_bounded() {
                // The condition would hold in no launch.
                true if described.signed_by_data => Err(Open::Sign),
                true => Ok(described),
                false => Err(Open::Unbounded(unbounded(describer, offset, described))),
            }
        })
    });
    let described = match described {
        Ok(described) => described,
        Err(open) => return Class::Residual(open),
    };
    describer.require(Condition::Inside { offset: described.node, buffer });
    Class::LaunchCondition
}

/// What has no bounds, of all that unbounded offsets are made from: follows operands that have none to a value whose own
/// operands have some. What is said to be missing is what all values on the way lack: `maximum(id, 0) + 1` may wrap, and has
/// no bounds, because `id` has none above.
fn unbounded(describer: &mut Describer<'_>, offsets: ValueId, described: Described) -> Unbounded {
    let func = describer.func;
    let (mut lanes, mut lacks) = (strip(func, Lanes::of(func, offsets)), described.lacks());
    loop {
        let (operation, argument) = match func.value(lanes.value).def {
            Def::Result(op, _) => (func.op(op), None),
            Def::Arg(region, index) => match describer.structure.owner(region) {
                Some(owner) => (func.op(owner), Some(index)),
                None => return Unbounded { lacks, origin: Origin::Computed, span: Span::UNKNOWN },
            },
            Def::Param(_) => return Unbounded { lacks, origin: Origin::Computed, span: Span::UNKNOWN },
        };
        let of =
            |origin: fn(ParamId) -> Origin| func.ty(operation.operands[0]).pointee().map_or(Origin::Computed, origin);
        let origin = match (&operation.op, access_kind(&operation.op)) {
            (_, Some(AccessKind::Load)) => of(Origin::Loaded),
            (_, Some(AccessKind::Atomic)) => of(Origin::Exchanged),
            (Op::Control(ControlOp::For { .. } | ControlOp::While), _) => Origin::Carried,
            _ => Origin::Computed,
        };
        let mut open: Vec<(Part, Described)> = Vec::new();
        for part in parts(func, &lanes, operation, argument) {
            let described = match part.condition.clone() {
                Some((condition, holds)) => describer.describe_where(condition, holds, part.lanes.clone()),
                None => describer.describe(part.lanes.clone()),
            };
            if !described.is_bounded() {
                open.push((part, described));
            }
        }
        // What lacks the other bound alone does so behind a subtraction, or where another operand has it.
        let shared = open.iter().position(|(_, described)| described.lacks().meets(lacks)).unwrap_or(0);
        if shared >= open.len() {
            return Unbounded { lacks, origin, span: operation.span };
        }
        let (part, described) = open.swap_remove(shared);
        if let Some((condition, holds)) = part.condition {
            describer.assume_in(condition, holds);
        }
        lacks = if described.lacks().meets(lacks) { lacks.and(described.lacks()) } else { described.lacks() };
        lanes = strip(func, part.lanes);
    }
}

/// An integer that a value is made from.
struct Part {
    lanes: Lanes,
    /// What holds where it is chosen, or does not.
    condition: Option<(Lanes, bool)>,
}

/// What bounds the value in these lanes, which an operation makes, or has as an argument of its region.
fn parts(func: &Func, lanes: &Lanes, operation: &Operation, argument: Option<u32>) -> Vec<Part> {
    let operands = match (&operation.op, argument) {
        // Numbers of iterations are bounded as the bounds of the loop are, whatever else it carries.
        (Op::Control(ControlOp::For { .. }), Some(0)) => &operation.operands[..3],
        (Op::Control(ControlOp::For { .. } | ControlOp::While), _) => &[],
        // A remainder is less than its divisor, whatever it is of.
        (Op::Elementwise(ElementwiseOp::Binary { op: BinaryOp::Rem }), _) => &operation.operands[1..],
        (op, _) if access_kind(op).is_some() => &[],
        _ => operation.operands.as_slice(),
    };
    let beside = |value: ValueId| match func.ty(value).rank() == lanes.along.len() {
        true => lanes.operand(value),
        false => Lanes::of(func, value),
    };
    let is_choice = operation.op == Op::Elementwise(ElementwiseOp::Select);
    let condition = |index: usize| is_choice.then(|| (beside(operation.operands[0]), index == 1));
    let integers = operands.iter().enumerate().filter(|(_, value)| func.ty(**value).dtype().is_some_and(DType::is_int));
    integers.map(|(index, &value)| Part { lanes: beside(value), condition: condition(index) }).collect()
}

/// The hidden length parameters made so far, by buffer.
#[derive(Default)]
struct Lengths(Vec<(ParamId, ValueId)>);

impl Lengths {
    fn of(&mut self, func: &mut Func, buffer: ParamId) -> ValueId {
        if let Some((_, value)) = self.0.iter().find(|(param, _)| *param == buffer) {
            return *value;
        }
        let name = format!("{}_len", func.param(buffer).name);
        let id = func.add_param(&name, ParamKind::Length(buffer), Span::UNKNOWN);
        let divisible = func.param(buffer).facts.len_divisible_by;
        func.params[id.index()].facts.divisible_by = divisible;
        let value = func.param(id).value;
        self.0.push((buffer, value));
        value
    }
}

/// Joins a bounds check to the mask of an access.
fn check(rewriter: &mut Rewriter<'_>, id: OpId, lengths: &mut Lengths) -> Result<()> {
    let operation = rewriter.func.op(id).clone();
    let (Op::Memory(op), Some(param)) = (&operation.op, rewriter.func.ty(operation.operands[0]).pointee()) else {
        return Ok(());
    };
    let Some(index) = operation.op.mask() else { return Ok(()) };
    let length = lengths.of(rewriter.func, param);
    let offset = offset_of(rewriter.func, operation.operands[0]);
    let mut cursor = rewriter.before(operation.span);
    let offset = match offset {
        Some(offset) => offset,
        None => zeros(&mut cursor, operation.operands[0], DType::I32)?,
    };
    let mut operands = vec![offset, length];
    operands.extend(operation.operands.get(index));
    let is_load = matches!(op, MemoryOp::Load { .. });
    let check = MemoryOp::CheckBounds { param: param.index() as u32, store: !is_load };
    let mask = cursor.value(check, &operands)?;
    if is_load {
        zero_refused(&mut cursor, id)?;
    }
    let access = &mut rewriter.func.ops[id.index()].operands;
    match access.get_mut(index) {
        Some(slot) => *slot = mask,
        None => access.push(mask),
    }
    Ok(())
}

/// A lane that the bounds refuse reads zero, not `other`: that is for lanes that the kernel itself masks. The checked
/// mask admits neither, so `other` becomes what each of the two reads.
fn zero_refused(cursor: &mut Cursor<'_>, load: OpId) -> Result<()> {
    let operation = cursor.func.op(load);
    let &[pointer, mask, other] = operation.operands.as_slice() else { return Ok(()) };
    let Some(dtype) = cursor.func.ty(operation.results[0]).dtype() else { return Ok(()) };
    if is_zero(cursor.func, other) {
        return Ok(());
    }
    let zeros = zeros(cursor, pointer, dtype)?;
    let other = cursor.select(mask, zeros, other)?;
    cursor.func.ops[load.index()].operands[2] = other;
    Ok(())
}

/// Whether all bits of all elements are known to be zero.
fn is_zero(func: &Func, value: ValueId) -> bool {
    let Some(op) = func.def_op(value) else { return false };
    if let Op::Create(CreateOp::Const { value, dtype }) = &op.op {
        return dtype.known().is_some_and(|dtype| *value == zero(dtype));
    }
    view::Splat::of(op).is_some_and(|splat| is_zero(func, splat.scalar))
}

/// Zeros in the shape of `like`.
fn zeros(cursor: &mut Cursor<'_>, like: ValueId, dtype: DType) -> Result<ValueId> {
    let zero = cursor.constant(zero(dtype), dtype)?;
    cursor.splat_like(zero, like)
}

/// The value whose bits are zero.
fn zero(dtype: DType) -> Literal {
    if dtype == DType::Bool {
        Literal::Bool(false)
    } else if dtype.is_float() {
        Literal::float(0.0)
    } else {
        Literal::Int(0)
    }
}
