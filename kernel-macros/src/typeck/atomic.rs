//! Atomic read-modify-write operations, compare-and-swap, and what is written with them.
//!
//! ```text
//! atomic_load(p)             atomic_cas(p, 0, 0), which never changes anything: the code generator loads
//! atomic_store(p, v)         atomic_exchange(p, v)
//! atomic_poll(p, |v| c)      let mut v = atomic_load(p); while !c { v = atomic_load(p); } v
//! ```

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{AtomicOp, DTypeBound, Dt, MemOrder, MemScope, MemoryOp, Op};

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::Block;

use super::args::Args;
use super::block::Flow;
use super::{Binding, Checker, Operand};
use crate::error::{Checked, Reported};
use crate::source_range::{SourceRange, bare};
use crate::tree::VOp;
use crate::types::{DtRef, VElem, VTy, may_be};

/// Dtypes narrower than this have no atomics in hardware.
const MIN_BITS: u32 = 16;
/// The orders of an operation that reads and writes, the usual one last.
const ORDERS: [MemOrder; 4] = [MemOrder::Relaxed, MemOrder::Acquire, MemOrder::Release, MemOrder::AcqRel];
/// Those of one that reads.
const LOAD_ORDERS: [MemOrder; 2] = [MemOrder::Relaxed, MemOrder::Acquire];
/// Those of one that writes.
const STORE_ORDERS: [MemOrder; 2] = [MemOrder::Relaxed, MemOrder::Release];

impl Checker<'_> {
    /// `atomic_add(pointer, value, mask = .., order = .., scope = ..)` and its kind: gives what was there before.
    pub(super) fn atomic(&mut self, args: &Args<'_>, op: AtomicOp) -> Checked<Operand> {
        let name = args.row.name;
        let pointer = self.mutable_pointer(args, name);
        let value = self.arg(args, 1);
        let mask = self.named_value(args, "mask");
        let (order, scope) = (self.order(args, &ORDERS), self.scope(args));
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
        let (order, scope) = (self.order(args, &ORDERS), self.scope(args));
        let (pointer, dt) = pointer?;
        self.atomic_dtype(dt, Needs::Any, name, pointer.place)?;
        let values = [("the expected value", expected?), ("the value", value?)];
        let operands = self.access(pointer, dt, &values, mask?, name)?;
        let op = MemoryOp::AtomicCas { order: order?, scope: scope? };
        Ok(self.atomic_result(op.into(), pointer, dt, operands, args.place))
    }

    /// `atomic_load(pointer, mask = .., order = .., scope = ..)`
    pub(super) fn atomic_load(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let name = args.row.name;
        let pointer = self.mutable_pointer(args, name);
        let mask = self.named_value(args, "mask");
        let (order, scope) = (self.order(args, &LOAD_ORDERS), self.scope(args));
        let (pointer, dt) = pointer?;
        self.atomic_dtype(dt, Needs::Any, name, pointer.place)?;
        let zero = self.eval(VOp::Zero, Vec::new(), VTy::scalar(DtRef::Fixed(dt)), args.place);
        let zero = ("the value", Operand { node: zero, place: args.place });
        let operands = self.access(pointer, dt, &[zero, zero], mask?, name)?;
        let op = MemoryOp::AtomicCas { order: order?, scope: scope? };
        Ok(self.atomic_result(op.into(), pointer, dt, operands, args.place))
    }

    /// `atomic_store(pointer, value, mask = .., order = .., scope = ..)`
    pub(super) fn atomic_store(&mut self, args: &Args<'_>) -> Checked<()> {
        let name = args.row.name;
        let pointer = self.mutable_pointer(args, name);
        let value = self.arg(args, 1);
        let mask = self.named_value(args, "mask");
        let (order, scope) = (self.order(args, &STORE_ORDERS), self.scope(args));
        let (pointer, dt) = pointer?;
        self.atomic_dtype(dt, Needs::Any, name, pointer.place)?;
        let operands = self.access(pointer, dt, &[("the value", value?)], mask?, name)?;
        let op = MemoryOp::AtomicRmw { op: AtomicOp::Exchange, order: order?, scope: scope? };
        self.atomic_result(op.into(), pointer, dt, operands, args.place);
        Ok(())
    }

    /// `atomic_poll(pointer, |value| value >= 3, order = .., scope = ..)`: gives the value that was waited for.
    pub(super) fn atomic_poll(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let name = args.row.name;
        let (pointer, _) = self.mutable_pointer(args, name)?;
        if !self.ty(pointer).is_scalar() {
            let message = format!("`{name}` waits for one element, found {}", self.show(pointer));
            return Err(self.report_help(pointer.place, message, "load a tile in a `while` loop of your own"));
        }
        let (order, scope) = (self.order(args, &LOAD_ORDERS), self.scope(args));
        let Some(closure) = args.expr(1).map(bare) else { return Err(Reported::earlier()) };
        let Some((met, asked)) = self.callable_of(closure, 1) else {
            let help = "write what it waits for: `|v| v > 0`";
            return Err(self.report_help(SourceRange::of(closure), format!("`{name}` needs a closure"), help));
        };
        let Ok(block) = syn::parse2::<Block>(polling(order?, scope?, args.place.start, asked)) else {
            return Err(self.report(args.place, format!("internal error: the body of `{name}` cannot be read")));
        };
        met.wants(true);
        let value = self.written(|c| {
            c.bind("at", Binding::Value(pointer.node));
            c.bind("met", Binding::Closure(met));
            c.block(&block.stmts, true, args.place.end)
        });
        match value {
            Flow::Value(value) => {
                let value = value.and_then(|value| self.one(value))?;
                self.polled.push(value.node);
                Ok(value)
            }
            Flow::Diverges => Err(Reported::earlier()),
        }
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

    /// One of the orders, the last if none is named.
    fn order(&mut self, args: &Args<'_>, orders: &[MemOrder]) -> Checked<MemOrder> {
        let Some(expr) = args.named("order") else { return Ok(orders.last().copied().unwrap_or(MemOrder::AcqRel)) };
        let orders: Vec<_> = orders.iter().map(|order| (order.name(), *order)).collect();
        self.keyword(bare(expr), "order", &orders)
    }

    fn scope(&mut self, args: &Args<'_>) -> Checked<MemScope> {
        let Some(expr) = args.named("scope") else { return Ok(MemScope::Device) };
        let scopes = [MemScope::Block, MemScope::Device, MemScope::System];
        self.keyword(bare(expr), "scope", &scopes.map(|scope| (scope.name(), scope)))
    }
}

/// Loads from `at` until `met`. A message about the answer stands where the closure gives it, `asked`.
fn polling(order: MemOrder, scope: MemScope, span: Span, asked: SourceRange) -> TokenStream {
    let [order, scope] = [order.name(), scope.name()].map(|name| Ident::new(name, span));
    let load = quote_spanned!(span=> atomic_load(at, order = #order, scope = #scope));
    let mut polled = Group::new(Delimiter::Parenthesis, quote_spanned!(span=> polled));
    polled.set_span(asked.end);
    let waits = quote_spanned!(asked.start=> !met #polled);
    quote_spanned! {span=> {
        let mut polled = #load;
        while #waits {
            polled = #load;
        }
        polled
    }}
}

/// What the dtype must be.
pub(super) fn needs(op: AtomicOp) -> Needs {
    match op {
        AtomicOp::Add | AtomicOp::Min | AtomicOp::Max => Needs::Bound(DTypeBound::Num),
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => Needs::Bound(DTypeBound::Int),
        AtomicOp::Exchange => Needs::Any,
    }
}
