//! Arguments that say which of several forms of an operation is meant, where constexprs decide it.
//!
//! The forms become branches, of which binding keeps one:
//!
//! ```text
//! sort(x, descending = D)      if D { sort(x, descending = true) } else { sort(x) }
//! cumsum(x, axis = A)          if A == 0 { cumsum(x, axis = 0) } else { cumsum(x, axis = 1) }
//! ```
//!
//! All must have one type: what decides the shape of the result is a literal.

use kernel_core::ir::{BinaryOp, CmpOp, ControlOp, Dim, Op};
use syn::{Expr, ExprLit, Lit};

use super::args::Args;
use super::binary::Operator;
use super::macros::bool_scalar;
use super::{Checker, Context, Operand, Val};
use crate::error::Checked;
use crate::source_range::{SourceRange, bare};
use crate::tree::{IfStmt, Kind, Stmt};
use crate::types::{BOOL, VElem};

/// An argument that is `true` or `false`.
#[derive(Clone, Copy)]
pub(super) enum Flag {
    /// It is known here.
    Known(bool),
    /// A constexpr says it.
    Decided(Operand),
}

/// An axis of a tile.
#[derive(Clone, Copy)]
pub(super) enum Axis {
    /// It is known here.
    Known(u8),
    /// A constexpr says it, counted from the end if it is negative.
    Decided(Operand),
}

impl Checker<'_> {
    /// A named argument that is `true`, `false` or a constexpr; `false` if it is not there.
    pub(super) fn choice(&mut self, args: &Args<'_>, name: &str) -> Checked<Flag> {
        let Some(expr) = args.named(name) else { return Ok(Flag::Known(false)) };
        if let Expr::Lit(ExprLit { lit: Lit::Bool(value), .. }) = bare(expr) {
            return Ok(Flag::Known(value.value));
        }
        let operand = self.operand(expr)?;
        let truth = matches!(self.ty(operand).elem, VElem::Data(dt) if self.types.resolve(dt) == BOOL);
        let node = self.node(operand.node);
        match node.kind {
            Kind::Bool(value) => Ok(Flag::Known(value)),
            _ if truth && node.constexpr => Ok(Flag::Decided(operand)),
            _ => {
                let message = format!("`{name}` is `true`, `false` or a constexpr");
                let help = "what only the launch knows decides in an `if`, of which each branch calls the operation";
                Err(if truth {
                    self.report_help(operand.place, message, help)
                } else {
                    self.report(operand.place, message)
                })
            }
        }
    }

    /// A named argument that is `true` or `false`, and decides what the result is.
    pub(super) fn flag(&mut self, args: &Args<'_>, name: &str) -> Checked<bool> {
        match self.choice(args, name)? {
            Flag::Known(value) => Ok(value),
            Flag::Decided(operand) => {
                let message =
                    format!("`{name}` decides what the result is, which must be known before the constexprs are");
                let source = self.source(operand);
                let help =
                    format!("write `true` or `false`, in the branches of an `if {source} {{ .. }} else {{ .. }}`");
                Err(self.report_help(operand.place, message, help))
            }
        }
    }

    /// The form of an operation that a flag chooses.
    pub(super) fn either(
        &mut self,
        flag: Flag,
        place: SourceRange,
        form: &mut dyn FnMut(&mut Self, bool) -> Checked<Val>,
    ) -> Checked<Val> {
        let condition = match flag {
            Flag::Known(value) => return form(self, value),
            Flag::Decided(operand) => operand.node,
        };
        // Who is wrong in one form is wrong in both, and reads it once.
        let (first, then) = self.nested(Context::ValueBranch, |c| form(c, true));
        let first = first?;
        let (second, otherwise) = self.nested(Context::ValueBranch, |c| form(c, false));
        let mut results = Vec::new();
        let val = self.merge(Some(&first), Some(&second?), &mut results, place)?;
        self.stmts.push(Stmt::If(Box::new(IfStmt { condition, then, otherwise, results, place })));
        Ok(val)
    }

    /// An axis of an operation whose result has one shape whatever the axis is.
    pub(super) fn axis_choice(&mut self, expr: &Expr, rank: usize) -> Checked<Axis> {
        match self.axis_constexpr(expr)? {
            Some(operand) => Ok(Axis::Decided(operand)),
            None => self.axis(expr, rank, "the tile").map(Axis::Known),
        }
    }

    /// The constexpr that names an axis, if it is no number yet.
    pub(super) fn axis_constexpr(&mut self, expr: &Expr) -> Checked<Option<Operand>> {
        if self.is_number(expr) || matches!(bare(expr), Expr::Array(_) | Expr::Tuple(_)) {
            return Ok(None);
        }
        let (operand, _) = self.nested(Context::Branch, |c| c.operand(expr));
        let operand = operand?;
        let dim = self.node(operand.node).dim.clone();
        Ok(dim.filter(|dim| dim.as_const().is_none()).map(|_| operand))
    }

    /// The form of an operation for the axis.
    pub(super) fn for_axis(
        &mut self,
        axis: Axis,
        rank: usize,
        place: SourceRange,
        form: &mut dyn FnMut(&mut Self, u8) -> Checked<Val>,
    ) -> Checked<Val> {
        let named = match axis {
            Axis::Known(axis) => return form(self, axis),
            Axis::Decided(operand) => operand,
        };
        let rank = rank as i64;
        let least = Operand { node: self.int(Dim::Const(-rank), named.place), place: named.place };
        let most = Operand { node: self.int(Dim::Const(rank - 1), named.place), place: named.place };
        for (a, b) in [(least, named), (named, most)] {
            let holds = self.binary(Operator::Compare(CmpOp::Le, "`axis`"), a, b, named.place, named.place)?;
            let message = format!("the axes of the tile are 0 to {}", rank - 1);
            self.stmts.push(Stmt::Effect(Op::from(ControlOp::StaticAssert { message }), vec![holds.node], named.place));
        }
        self.axis_from(0, rank, named, place, form)
    }

    /// One form for each axis from this one on.
    fn axis_from(
        &mut self,
        axis: i64,
        rank: i64,
        named: Operand,
        place: SourceRange,
        form: &mut dyn FnMut(&mut Self, u8) -> Checked<Val>,
    ) -> Checked<Val> {
        if axis == rank - 1 {
            return form(self, axis as u8);
        }
        let mut is = Vec::new();
        for number in [axis, axis - rank] {
            let number = Operand { node: self.int(Dim::Const(number), named.place), place: named.place };
            is.push(self.binary(Operator::Compare(CmpOp::Eq, "`axis`"), named, number, named.place, named.place)?.node);
        }
        let node = self.op(Op::binary(BinaryOp::Or), is, bool_scalar(), named.place);
        let here = Flag::Decided(Operand { node, place: named.place });
        self.either(here, place, &mut |c, here| match here {
            true => form(c, axis as u8),
            false => c.axis_from(axis + 1, rank, named, place, form),
        })
    }
}
