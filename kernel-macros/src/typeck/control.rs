//! `if`, and agreement of what its branches give.

use syn::{Expr, ExprIf};

use super::block::Flow;
use super::{Checker, Context, Operand, Val};
use crate::error::Checked;
use crate::help::Help;
use crate::source_range::{SourceRange, bare};
use crate::tree::{IfStmt, NodeId, Stmt};
use crate::types::{VElem, VTy};

/// How messages speak of places that must give values of one type.
pub(super) struct Givers {
    /// The value.
    pub value: &'static str,
    /// All of the places.
    pub all: &'static str,
    /// Two of them.
    pub both: &'static str,
    /// In each.
    pub inside: &'static str,
}

const BRANCHES: Givers =
    Givers { value: "the value of an `if`", all: "the branches", both: "both branches", inside: "in the branches" };

impl Checker<'_> {
    /// An `if`; `want` says whether its value is used.
    pub(super) fn if_expr(&mut self, stmt: &ExprIf, want: bool) -> Flow {
        let mut place = SourceRange::of(&stmt.cond);
        place.start = stmt.if_token.span;
        let condition = match bare(&stmt.cond) {
            Expr::Assign(assign) => {
                let sign = SourceRange::at(assign.eq_token.span);
                Err(self.report_help(sign, "an assignment is no condition", Help::write(sign, "==")))
            }
            Expr::Let(given) => return self.if_given(stmt, given, want, place),
            condition => self.operand(condition),
        };
        let condition = condition.and_then(|c| self.condition(c, "the condition of `if`").map(|()| c));
        if let Ok(condition) = condition
            && let Some(holds) = self.known_in_function(condition)
        {
            return self.taken(stmt, holds, |_| {}, want, place);
        }
        let constexpr = condition.is_ok_and(|condition| self.node(condition.node).constexpr);
        let before = |c: &mut Self| {
            c.bind_refused(&stmt.cond);
            if constexpr {
                c.learn_here(&stmt.cond);
            }
        };
        self.branches(stmt, condition, before, want, place)
    }

    /// Both branches of an `if`, the first of them behind what `before` binds.
    pub(super) fn branches(
        &mut self,
        stmt: &ExprIf,
        condition: Checked<Operand>,
        before: impl FnOnce(&mut Self),
        want: bool,
        place: SourceRange,
    ) -> Flow {
        let context = if want { Context::ValueBranch } else { Context::Branch };
        let end = stmt.then_branch.brace_token.span.close();
        let (then_flow, then) = self.nested(context, |c| {
            before(c);
            c.block(&stmt.then_branch.stmts, want, end)
        });
        let (else_flow, otherwise) = match &stmt.else_branch {
            Some((_, branch)) => self.nested(context, |c| c.else_branch(branch, want)),
            None if want => {
                let message = "an `if` without `else` has no value";
                let reported = self.report_help(place, message, "add an `else` branch");
                (Flow::Value(Err(reported)), Vec::new())
            }
            None => (Flow::Value(Ok(Val::Unit(place))), Vec::new()),
        };
        let condition = match condition {
            Ok(condition) => condition,
            Err(reported) => return Flow::Value(Err(reported)),
        };
        let mut results = Vec::new();
        let flow = match (then_flow, else_flow) {
            (Flow::Diverges, Flow::Diverges) => Flow::Diverges,
            (Flow::Value(a), Flow::Value(b)) => Flow::Value(match (a, b) {
                (Ok(a), Ok(b)) => self.merge(Some(&a), Some(&b), &mut results, place),
                (Err(reported), _) | (_, Err(reported)) => Err(reported),
            }),
            (Flow::Value(a), Flow::Diverges) => {
                Flow::Value(a.and_then(|a| self.merge(Some(&a), None, &mut results, place)))
            }
            (Flow::Diverges, Flow::Value(b)) => {
                Flow::Value(b.and_then(|b| self.merge(None, Some(&b), &mut results, place)))
            }
        };
        let condition = condition.node;
        self.note_results(condition, &results);
        self.stmts.push(Stmt::If(Box::new(IfStmt { condition, then, otherwise, results, place })));
        flow
    }

    /// The branch of an `if` whose condition is known; the first one behind what `before` binds.
    pub(super) fn taken(
        &mut self,
        stmt: &ExprIf,
        holds: bool,
        before: impl FnOnce(&mut Self),
        want: bool,
        place: SourceRange,
    ) -> Flow {
        let flow = match &stmt.else_branch {
            _ if holds => {
                let end = stmt.then_branch.brace_token.span.close();
                self.scoped(|c| {
                    before(c);
                    c.block(&stmt.then_branch.stmts, want, end)
                })
            }
            Some((_, branch)) => self.scoped(|c| c.else_branch(branch, want)),
            None => Flow::Value(Ok(Val::Unit(place))),
        };
        if let Flow::Diverges = flow {
            self.unreached += 1;
        }
        flow
    }

    fn else_branch(&mut self, branch: &Expr, want: bool) -> Flow {
        match bare(branch) {
            Expr::If(stmt) => self.if_expr(stmt, want),
            Expr::Block(block) => self.block(&block.block.stmts, want, block.block.brace_token.span.close()),
            other => Flow::Value(self.expr(other)),
        }
    }

    /// The value of an `if` from those of its branches; a branch that leaves the block has none.
    pub(super) fn merge(
        &mut self,
        a: Option<&Val>,
        b: Option<&Val>,
        results: &mut Vec<(NodeId, Option<NodeId>, Option<NodeId>)>,
        place: SourceRange,
    ) -> Checked<Val> {
        match (a, b) {
            (Some(Val::Unit(_)), Some(Val::Unit(_)) | None) | (None, Some(Val::Unit(_)) | None) => Ok(Val::Unit(place)),
            (Some(Val::One(x)), Some(Val::One(y))) => {
                let (x, y) = (*x, *y);
                let ty = self.same_type(x, y, &BRANCHES)?;
                let slot = self.slot(ty, place);
                results.push((slot, Some(x.node), Some(y.node)));
                Ok(Val::One(Operand { node: slot, place }))
            }
            (Some(Val::One(one)), None) | (None, Some(Val::One(one))) => {
                let slot = self.slot(self.ty(*one).clone(), place);
                results.push((slot, a.is_some().then_some(one.node), b.is_some().then_some(one.node)));
                Ok(Val::One(Operand { node: slot, place }))
            }
            (Some(Val::Tuple(xs, _)), Some(Val::Tuple(ys, _))) if xs.has_form_of(ys) => {
                let parts: Vec<_> =
                    xs.iter().zip(ys.iter()).map(|(x, y)| self.merge(Some(x), Some(y), results, place)).collect();
                Ok(Val::Tuple(xs.with(parts.into_iter().collect::<Checked<_>>()?), place))
            }
            (Some(Val::Tuple(xs, _)), None) => {
                let parts: Vec<_> = xs.iter().map(|x| self.merge(Some(x), None, results, place)).collect();
                Ok(Val::Tuple(xs.with(parts.into_iter().collect::<Checked<_>>()?), place))
            }
            (None, Some(Val::Tuple(ys, _))) => {
                let parts: Vec<_> = ys.iter().map(|y| self.merge(None, Some(y), results, place)).collect();
                Ok(Val::Tuple(ys.with(parts.into_iter().collect::<Checked<_>>()?), place))
            }
            (Some(one), Some(other)) => {
                let message = one.forms_differ(other, BRANCHES.all);
                Err(self.report_help(other.place(), message, "both branches must give the same"))
            }
        }
    }

    /// The type that two of these places give.
    pub(super) fn same_type(&mut self, x: Operand, y: Operand, of: &Givers) -> Checked<VTy> {
        let (a, b) = (self.ty(x).clone(), self.ty(y).clone());
        let agrees = self.same_shape(&a.shape, &b.shape)
            && match (a.elem, b.elem) {
                (VElem::Ptr(p), VElem::Ptr(q)) => p == q,
                (VElem::Data(_), VElem::Data(_)) => true,
                (VElem::Ptr(_), VElem::Data(_)) | (VElem::Data(_), VElem::Ptr(_)) => false,
            };
        if let (VElem::Ptr(p), VElem::Ptr(q)) = (a.elem, b.elem)
            && p != q
        {
            let (p, q) = (self.func.param(p).name.clone(), self.func.param(q).name.clone());
            let message = format!("{} give pointers into two buffers, `{p}` and `{q}`", of.all);
            return Err(self.report_help(y.place, message, format!("load {}, and give the loaded values", of.inside)));
        }
        if !agrees {
            let message = format!("{} give {} and {}", of.all, self.show_ty(&a), self.show_ty(&b));
            let help = if a.is_scalar() != b.is_scalar() {
                "make both tiles: `full([N], value)`".to_string()
            } else {
                format!("{} must give one type", of.both)
            };
            return Err(self.report_help(y.place, message, help));
        }
        if matches!(a.elem, VElem::Data(_)) {
            self.unify(x, y, of.value, y.place)?;
        }
        Ok(a)
    }
}
