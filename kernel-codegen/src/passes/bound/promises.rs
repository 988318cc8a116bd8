//! Hints and assertions of safe kernels: each is checked, or needs no check.
//!
//! The compiler relies on a `hint`: it makes one access of what could be several. A safe kernel may not lie. A hint
//! that follows from what is known anyway (the stride is divisible by 16 in this variant of the kernel) needs no
//! check. Every other comes behind an `assert` of what it promises, which ends the program before anything relies on
//! it:
//!
//! ```text
//! %2: i32 = hint %1 {kind = contiguous, multiple = 16, axis = 0}
//! ```
//! becomes
//! ```text
//! %3: i32 = const 16
//! %4: i32 = rem %1, %3
//! %5: i32 = const 0
//! %6: bool = cmp.eq %4, %5
//! assert %6 {message = "the hint `multiple_of(.., 16)` does not hold"}
//! %2: i32 = hint %1 {kind = contiguous, multiple = 16, axis = 0}
//! ```
//!
//! The host then decides as many of those as it can ([`super::assertions`]). What is left costs, on a scalar, an
//! instruction and a branch. On a tile the threads must agree, which is a vote; where groups of elements are promised
//! something together, the smallest and the largest of each are compared.
//!
//! Hints in an `unsafe` block are believed, and so are all of an unsafe kernel, which the pass leaves alone.

use kernel_core::edit::{Action, Cursor, Result, Rewriter};
use kernel_core::ir::hint::{broken, call};
use kernel_core::ir::{
    BinaryOp, Bound, CmpOp, ControlOp, CreateOp, DType, Dim, Func, HintKind, Literal, Op, OpId, Operation, Safety,
    ShapeOp, ValueId,
};

use crate::analysis::axis::AxisAnalysis;
use crate::checks::{Kept, Promise};
use crate::error::CodegenError;
use crate::passes::pass::Unit;

/// Puts a check before every hint that needs one, and lists all hints and assertions.
///
/// # Errors
/// If an operation that is put in breaks a type rule, which is a mistake in this module.
pub(crate) fn run(kernel: &mut Bound, unit: &mut Unit) -> std::result::Result<(), CodegenError> {
    let func = kernel.func_mut();
    if func.safety == Safety::Unsafe {
        return Ok(());
    }
    let is_hint = |op: &Op| matches!(op, Op::Shape(ShapeOp::Hint { .. }));
    let mut proved = Vec::new();
    if func.ops.iter().any(|operation| is_hint(&operation.op)) {
        let axis = AxisAnalysis::new(func);
        proved = func.ops.iter().map(|operation| is_proved(func, operation, &axis)).collect();
    }
    let promises = &mut unit.plan.promises;
    Rewriter::run(func, "promises", &mut |rewriter, id| {
        promises.extend(promise(rewriter, id, &proved)?);
        Ok(Action::Keep)
    })?;
    promises.sort_by_key(|promise| (promise.span.file, promise.span.line, promise.span.column));
    Ok(())
}

/// What an operation promises, with a check before it if it is a hint that needs one.
fn promise(rewriter: &mut Rewriter<'_>, id: OpId, proved: &[bool]) -> Result<Option<Promise>> {
    let operation = rewriter.func.op(id);
    let (span, operand) = (operation.span, operation.operands.first().copied());
    if let Op::Control(ControlOp::Assert { message }) = &operation.op {
        let what = format!("assertion {message:?}");
        return Ok(Some(Promise { span, what, kept: Kept::Checked, assertion: Some(id) }));
    }
    let (Op::Shape(ShapeOp::Hint { kind, n, multiple, axis, believed }), Some(x)) = (&operation.op, operand) else {
        return Ok(None);
    };
    let (kind, n, multiple, axis, believed) = (*kind, n.clone(), multiple.clone(), usize::from(*axis), *believed);
    let (kept, assertion) = match proved.get(id.index()) {
        _ if believed => (Kept::Believed, None),
        Some(true) => (Kept::Proved, None),
        Some(false) | None => {
            let mut emit = Emit { cursor: rewriter.before(span) };
            let holds = emit.holds(x, kind, &n, &multiple, axis)?;
            let message = broken(kind, &n, &multiple);
            (Kept::Checked, Some(emit.cursor.effect(ControlOp::Assert { message }, &[holds])?))
        }
    };
    Ok(Some(Promise { span, what: format!("`{}`", call(kind, &n, &multiple)), kept, assertion }))
}

/// Whether a hint follows from what is known of its operand. That may rest on other hints, each of which is checked
/// before it is relied on, and on the hint itself one iteration of a loop earlier, where it held.
fn is_proved(func: &Func, operation: &Operation, axis: &AxisAnalysis) -> bool {
    let Op::Shape(ShapeOp::Hint { kind, n, multiple, axis: dim, believed: _ }) = &operation.op else { return false };
    let info = axis.of(func, operation.operands[0]);
    let (multiple, n) = (multiple.as_const().unwrap_or(1).unsigned_abs(), n.as_const().unwrap_or(1).unsigned_abs());
    let size = func.ty(operation.operands[0]).shape.get(usize::from(*dim)).and_then(Dim::as_const).unwrap_or(1);
    let n = n.min(size.unsigned_abs());
    let Some(along) = info.dims.get(usize::from(*dim)) else { return false };
    match kind {
        HintKind::Holds => info.constant == Some(1),
        HintKind::Constant => along.constancy.is_multiple_of(n),
        HintKind::Contiguous if n == 1 => {
            let known = info.constant.map(i64::unsigned_abs);
            known.is_some_and(|value| value.is_multiple_of(multiple)) || info.divisor_of_all().is_multiple_of(multiple)
        }
        HintKind::Contiguous => along.contiguity.is_multiple_of(n) && along.divisibility_at(n).is_multiple_of(multiple),
    }
}

/// Computes whether promises hold.
struct Emit<'e> {
    cursor: Cursor<'e>,
}

impl Emit<'_> {
    fn shape(&self, value: ValueId) -> Vec<Dim> {
        self.cursor.func.ty(value).shape.clone()
    }

    fn dtype(&self, value: ValueId) -> DType {
        self.cursor.func.ty(value).dtype().unwrap_or(DType::I32)
    }

    /// A number in the type of `like`.
    fn number(&mut self, number: i64, like: ValueId) -> Result<ValueId> {
        let scalar = self.cursor.constant(Literal::Int(number.into()), self.dtype(like))?;
        self.cursor.splat_like(scalar, like)
    }

    /// Whether the promise holds, as a truth value or a tile of them.
    fn holds(&mut self, x: ValueId, kind: HintKind, n: &Dim, multiple: &Dim, axis: usize) -> Result<ValueId> {
        let multiple = multiple.as_const().unwrap_or(1);
        if kind == HintKind::Holds {
            return Ok(x);
        }
        let size = self.shape(x).get(axis).and_then(Dim::as_const).unwrap_or(1);
        let n = n.as_const().unwrap_or(1).min(size);
        if n == 1 {
            let multiple = if kind == HintKind::Contiguous { multiple } else { 1 };
            return self.divides(x, multiple);
        }
        // Truth values have no order.
        let x = if self.dtype(x) == DType::Bool { self.cursor.cast(x, DType::I32)? } else { x };
        let (x, axis) = self.grouped(x, n, size, axis)?;
        let level = if kind == HintKind::Contiguous { self.levelled(x, n, axis)? } else { x };
        let smallest = self.extreme(level, BinaryOp::Min, axis)?;
        let largest = self.extreme(level, BinaryOp::Max, axis)?;
        let equal = self.cursor.compare(CmpOp::Eq, smallest, largest)?;
        if kind == HintKind::Constant || multiple == 1 {
            return Ok(equal);
        }
        let divides = self.divides(smallest, multiple)?;
        self.cursor.binary(BinaryOp::And, equal, divides)
    }

    fn divides(&mut self, x: ValueId, multiple: i64) -> Result<ValueId> {
        // Every divisor is a number of 32 bits.
        let x = if self.dtype(x).bits() < 32 { self.cursor.cast(x, DType::I32)? } else { x };
        let multiple = self.number(multiple, x)?;
        let rest = self.cursor.binary(BinaryOp::Rem, x, multiple)?;
        let zero = self.number(0, x)?;
        self.cursor.compare(CmpOp::Eq, rest, zero)
    }

    /// The tile with its groups along an axis of their own, and that axis.
    fn grouped(&mut self, x: ValueId, n: i64, size: i64, axis: usize) -> Result<(ValueId, usize)> {
        let mut shape = self.shape(x);
        shape[axis] = Dim::Const(size / n);
        shape.insert(axis + 1, Dim::Const(n));
        Ok((self.cursor.value(ShapeOp::Reshape { shape }, &[x])?, axis + 1))
    }

    /// Consecutive numbers, less their places: all equal.
    fn levelled(&mut self, x: ValueId, n: i64, axis: usize) -> Result<ValueId> {
        let shape = self.shape(x);
        let mut places = self.cursor.value(CreateOp::Arange { lo: Dim::Const(0), hi: Dim::Const(n) }, &[])?;
        places = self.cursor.cast(places, self.dtype(x))?;
        let line = (0..shape.len()).map(|d| Dim::Const(if d == axis { n } else { 1 })).collect();
        places = self.cursor.value(ShapeOp::Reshape { shape: line }, &[places])?;
        places = self.cursor.value(ShapeOp::Broadcast { shape }, &[places])?;
        self.cursor.binary(BinaryOp::Sub, x, places)
    }

    /// The smallest or the largest along an axis.
    fn extreme(&mut self, x: ValueId, op: BinaryOp, axis: usize) -> Result<ValueId> {
        let scalar = self.cursor.func.ty(x).with_shape(Vec::new());
        let body = self.cursor.func.new_region([scalar.clone(), scalar]);
        self.cursor.fill(body, |inner| {
            let &[a, b] = inner.func.region(body).args.as_slice() else { return Ok(Vec::new()) };
            Ok(vec![inner.binary(op, a, b)?])
        })?;
        let reduced = self.cursor.op(ControlOp::Reduce { axis: axis as u8 }, &[x], &[body])?;
        Ok(self.cursor.func.op(reduced).results[0])
    }
}
