//! Hints: what the programmer promises of integers, and conditions that are assumed.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{ControlOp, DTypeBound, Dim, HintKind, Safety, ShapeOp};
use syn::Expr;

use super::args::Args;
use super::{Checker, Context, Operand};
use crate::error::{Checked, Reported};
use crate::source_range::SourceRange;
use crate::tree::Stmt;

/// The largest number that is worth promising multiples of.
const MAX_MULTIPLE: i64 = 1 << 30;

/// What a hint says of its operand, along an axis.
struct Promise {
    kind: HintKind,
    /// The length of the groups.
    n: Dim,
    /// What divides the first of each.
    multiple: Dim,
    axis: u8,
}

impl Checker<'_> {
    /// `multiple_of(x, n)`
    pub(super) fn multiple_of(&mut self, args: &Args<'_>) -> Checked<Operand> {
        let x = self.promised(args, Needs::Bound(DTypeBound::Int));
        let multiple = self.multiple(args.expr(1));
        let (x, multiple) = (x?, multiple?);
        Ok(self.hint(x, Promise { kind: HintKind::Contiguous, n: Dim::Const(1), multiple, axis: 0 }, args.place))
    }

    /// `max_contiguous(x, n, multiple_of = m, axis = 0)`, `max_constancy(x, n, axis = 0)`
    pub(super) fn runs(&mut self, args: &Args<'_>, kind: HintKind) -> Checked<Operand> {
        let needs = if kind == HintKind::Contiguous { Needs::Bound(DTypeBound::Int) } else { Needs::Bits };
        let x = self.promised(args, needs);
        let n = self.group(args);
        let multiple = match args.named("multiple_of") {
            Some(expr) => self.multiple(Some(expr)),
            None => Ok(Dim::Const(1)),
        };
        let (x, n, multiple) = (x?, n?, multiple?);
        let rank = self.ty(x).shape.len();
        if rank == 0 {
            let message = format!("`{}` is about the elements of a tile, found {}", args.row.name, self.show(x));
            return Err(self.report_help(x.place, message, "of a scalar you can promise `multiple_of(x, 16)`"));
        }
        let axis = match args.named("axis") {
            Some(expr) => self.axis(expr, rank, "the tile")?,
            None => (rank - 1) as u8,
        };
        Ok(self.hint(x, Promise { kind, n, multiple, axis }, args.place))
    }

    /// `assume(condition)`
    pub(super) fn assume(&mut self, args: &Args<'_>) -> Checked<()> {
        self.outside_closures(args)?;
        let [condition] = self.arg_values(args)?;
        self.condition(condition, "the condition of `assume`")?;
        match (self.func.safety, self.believes()) {
            (Safety::Safe, false) => {
                let text = args.expr(0).and_then(|expr| self.source.text(SourceRange::of(expr)));
                let message = match text {
                    Some(text) => format!("what was assumed does not hold: {text}"),
                    None => "what was assumed does not hold".to_string(),
                };
                let op = ControlOp::Assert { message };
                self.stmts.push(Stmt::Effect(op.into(), vec![condition.node], args.place));
            }
            (Safety::Safe, true) | (Safety::Unsafe, _) => {
                let one = Dim::Const(1);
                let promise = Promise { kind: HintKind::Holds, n: one.clone(), multiple: one, axis: 0 };
                self.hint(condition, promise, args.place);
            }
        }
        Ok(())
    }

    fn hint(&mut self, x: Operand, promise: Promise, place: SourceRange) -> Operand {
        let Promise { kind, n, multiple, axis } = promise;
        let ty = self.ty(x).clone();
        let hint = ShapeOp::Hint { kind, n, multiple, axis, believed: self.believes() };
        Operand { node: self.op(hint, vec![x.node], ty, place), place }
    }

    fn outside_closures(&mut self, args: &Args<'_>) -> Checked<()> {
        match self.in_closure() {
            true => Err(self.report(args.place, format!("`{}` in a closure is not supported", args.row.name))),
            false => Ok(()),
        }
    }

    /// The value of which something is promised.
    fn promised(&mut self, args: &Args<'_>, needs: Needs) -> Checked<Operand> {
        self.outside_closures(args)?;
        let x = self.arg(args, 0)?;
        self.need(x, needs, &format!("`{}`", args.row.name))?;
        Ok(x)
    }

    /// The length of the groups.
    fn group(&mut self, args: &Args<'_>) -> Checked<Dim> {
        let Some(expr) = args.expr(1) else { return Err(Reported::earlier()) };
        let n = self.number(expr)?;
        match n.as_const() {
            Some(n) if n < 1 || !(n as u64).is_power_of_two() => {
                let message = format!("groups have a power of two of elements, not {n}");
                Err(self.report(SourceRange::of(expr), message))
            }
            Some(_) | None => Ok(n),
        }
    }

    /// A number that divides.
    fn multiple(&mut self, expr: Option<&Expr>) -> Checked<Dim> {
        let Some(expr) = expr else { return Err(Reported::earlier()) };
        let multiple = self.number(expr)?;
        match multiple.as_const() {
            Some(m) if !(1..=MAX_MULTIPLE).contains(&m) => {
                let message = format!("multiples are of a number from 1 to 2^30, not of {m}");
                Err(self.report(SourceRange::of(expr), message))
            }
            Some(_) | None => Ok(multiple),
        }
    }

    /// An expression over constexprs and literals.
    fn number(&mut self, expr: &Expr) -> Checked<Dim> {
        let (operand, _) = self.nested(Context::Branch, |c| c.operand(expr));
        let operand = operand?;
        match &self.node(operand.node).dim {
            Some(dim) => Ok(dim.clone()),
            None => {
                let (message, help) = self.no_dim(operand, Some(expr), "a promise");
                Err(self.report_help(SourceRange::of(expr), message, help))
            }
        }
    }
}
