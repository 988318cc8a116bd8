//! Atomic read-modify-write operations and compare-and-swap.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{AtomicOp, DTypeBound, Dt, MemOrder, MemScope, MemoryOp, Op};

use super::args::Args;
use super::{Checker, Operand};
use crate::error::Checked;
use crate::source_range::{SourceRange, bare};
use crate::types::{DtRef, VElem, may_be};

/// Dtypes narrower than this have no atomics in hardware.
const MIN_BITS: u32 = 16;

impl Checker<'_> {
    /// `atomic_add(pointer, value, mask = .., order = .., scope = ..)` and its kind: gives what was there before.
    pub(super) fn atomic(&mut self, args: &Args<'_>, op: AtomicOp) -> Checked<Operand> {
        let name = args.row.name;
        let pointer = self.mutable_pointer(args, name);
        let value = self.arg(args, 1);
        let mask = self.named_value(args, "mask");
        let (order, scope) = (self.order(args), self.scope(args));
        let (pointer, dt) = pointer?;
        self.atomic_dtype(dt, needs(op), name, pointer.place)?;
        let operands = self.access(pointer, dt, &[("the value", value?)], mask?, name)?;
        let op = MemoryOp::AtomicRmw { op, order: order?, scope: scope? };
        Ok(self.atomic_result(op.into(), pointer, dt, operands, args.place))
    }

    /// `atomic_cas(pointer, expected, value, ..)`
    pub(super) fn atomic_cas(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let name = args.row.name;
        let pointer = self.mutable_pointer(args, name);
        let (expected, value) = (self.arg(args, 1), self.arg(args, 2));
        let mask = self.named_value(args, "mask");
        let (order, scope) = (self.order(args), self.scope(args));
        let (pointer, dt) = pointer?;
        self.atomic_dtype(dt, Needs::Any, name, pointer.place)?;
        let values = [("the expected value", expected?), ("the value", value?)];
        let operands = self.access(pointer, dt, &values, mask?, name)?;
        let op = MemoryOp::AtomicCas { order: order?, scope: scope? };
        Ok(self.atomic_result(op.into(), pointer, dt, operands, args.place))
    }

    fn atomic_result(
        &mut self,
        op: Op,
        pointer: Operand,
        dt: Dt,
        operands: Vec<crate::tree::NodeId>,
        place: SourceRange,
    ) -> Operand {
        let ty = self.ty(pointer).with_dt(DtRef::Fixed(dt));
        debug_assert!(matches!(ty.elem, VElem::Data(_)));
        Operand { node: self.op(op, operands, ty, place), place }
    }

    /// Refuses buffers of dtypes on which the operation is not defined.
    pub(super) fn atomic_dtype(&mut self, dt: Dt, needs: Needs, name: &str, place: SourceRange) -> Checked<()> {
        let (wide, fits) = (!matches!(dt, Dt::Known(d) if d.bits() < MIN_BITS), needs.admits(&self.func, dt));
        if wide && fits {
            return Ok(());
        }
        let (kind, bound) = match needs {
            Needs::Bound(DTypeBound::Int) | Needs::Bits => ("integers", DTypeBound::Int),
            Needs::Bound(_) => ("numbers", DTypeBound::Num),
            Needs::Any => ("dtypes", DTypeBound::DType),
        };
        let message =
            format!("`{name}` works on {kind} of at least {MIN_BITS} bits, this points to {}", self.show_fixed(dt));
        let help = match dt {
            Dt::Param(p) if may_be(&self.func, dt, bound) => {
                format!("bound the dtype: `{}: {}`", self.func.dtype_params[p.index()].name, bound.name())
            }
            Dt::Known(d) if d.is_float() && bound == DTypeBound::Num => "use a buffer of `f32` or `f16`".to_string(),
            Dt::Param(_) | Dt::Known(_) => "use a buffer of `i32`".to_string(),
        };
        Err(self.report_help(place, message, help))
    }

    fn order(&mut self, args: &Args<'_>) -> Checked<MemOrder> {
        let Some(expr) = args.named("order") else { return Ok(MemOrder::AcqRel) };
        let orders = [MemOrder::Relaxed, MemOrder::Acquire, MemOrder::Release, MemOrder::AcqRel];
        self.keyword(bare(expr), "order", &orders.map(|order| (order.name(), order)))
    }

    fn scope(&mut self, args: &Args<'_>) -> Checked<MemScope> {
        let Some(expr) = args.named("scope") else { return Ok(MemScope::Device) };
        let scopes = [MemScope::Block, MemScope::Device, MemScope::System];
        self.keyword(bare(expr), "scope", &scopes.map(|scope| (scope.name(), scope)))
    }
}

/// What the dtype must be.
pub(super) fn needs(op: AtomicOp) -> Needs {
    match op {
        AtomicOp::Add | AtomicOp::Min | AtomicOp::Max => Needs::Bound(DTypeBound::Num),
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => Needs::Bound(DTypeBound::Int),
        AtomicOp::Exchange => Needs::Any,
    }
}
