//! Blocks: statements in order, and perhaps a value at the end.

use syn::{Expr, Stmt as SynStmt};

use super::{Checker, Context, Val};
use crate::error::{Checked, Reported};
use crate::source_range::{SourceRange, bare};
use crate::tree::Stmt;

/// How a block ends.
pub(super) enum Flow {
    /// It gives a value (nothing, if none was wanted).
    Value(Checked<Val>),
    /// It ends the kernel.
    Diverges,
}

impl Checker<'_> {
    /// The body of the kernel.
    pub(super) fn kernel_body(&mut self, stmts: &[SynStmt]) {
        let end = proc_macro2::Span::call_site();
        match stmts.split_last() {
            Some((SynStmt::Expr(last, None), rest)) if self.signature.returns && is_value(last) => {
                self.block(rest, false, end);
                // A return type has been refused, so that the value is no second mistake.
                let _ = self.expr(last);
            }
            _ => drop(self.block(stmts, false, end)),
        }
    }

    /// The statements of a block; `want` says whether its value is used. `end` is the closing brace.
    pub(super) fn block(&mut self, stmts: &[SynStmt], want: bool, end: proc_macro2::Span) -> Flow {
        let mut diverges = false;
        for (i, stmt) in stmts.iter().enumerate() {
            let last = i + 1 == stmts.len();
            match stmt {
                SynStmt::Expr(expr, None) if last && want && !is_statement(expr) => {
                    let val = self.tail(expr);
                    return if diverges { Flow::Diverges } else { val };
                }
                // `{ value; }` where the value is wanted.
                SynStmt::Expr(expr, Some(_)) if last && want && is_value(expr) => drop(self.expr(expr)),
                SynStmt::Expr(expr, _) => diverges |= self.expr_stmt(expr),
                SynStmt::Local(local) => self.local(local),
                SynStmt::Macro(mac) => self.macro_stmt(&mac.mac),
                SynStmt::Item(item) => {
                    let place = SourceRange::of_tokens(item);
                    let help = "move it out of the kernel; a `const` outside can be used inside";
                    self.report_help(place, "items inside a kernel are not supported", help);
                }
            }
        }
        match (diverges, want) {
            (true, _) => Flow::Diverges,
            (false, false) => Flow::Value(Ok(Val::Unit(SourceRange::at(end)))),
            (false, true) => {
                let ends_in_value = matches!(stmts.last(), Some(SynStmt::Expr(e, Some(_))) if is_value(e));
                let help = if ends_in_value { "remove the last `;`" } else { "end it with an expression" };
                Flow::Value(Err(self.report_help(SourceRange::at(end), "this block gives no value", help)))
            }
        }
    }

    /// The expression at the end of a block whose value is used.
    fn tail(&mut self, expr: &Expr) -> Flow {
        match bare(expr) {
            Expr::If(stmt) => self.if_expr(stmt, true),
            other => Flow::Value(self.expr(other)),
        }
    }

    /// Whether `return` may stand here.
    pub(super) fn return_stmt(&mut self, expr: &syn::ExprReturn) -> bool {
        let place = SourceRange::at(expr.return_token.span);
        if self.open_calls > 0 {
            let message = "`return` in a closure or `#[device]` function is not supported";
            self.report_help(place, message, "end it with an expression");
            return true;
        }
        if let Some(value) = expr.expr.as_ref().filter(|_| !self.signature.returns) {
            let help = "store results through a `PtrMut<T>` parameter";
            self.report_help(SourceRange::of(value), "a kernel returns nothing", help);
            return true;
        }
        let inside = self.contexts.iter().rev().find(|c| matches!(c, Context::Loop | Context::Head | Context::Closure));
        match inside {
            Some(Context::Closure) => {
                self.report_help(place, "`return` in a closure is not supported", "end it with an expression");
            }
            Some(Context::Loop | Context::Head | Context::Branch | Context::ValueBranch) => {
                let help = "loop with `while i < n && !done { .. }` and set `done`, or mask what follows";
                self.report_help(place, "`return` inside a loop is not supported", help);
            }
            None => {
                self.may_return = true;
                self.stmts.push(Stmt::Return(place));
            }
        }
        true
    }

    /// Says that an expression has no value because it returns, unless that `return` has been refused itself.
    pub(super) fn no_value(&mut self, place: SourceRange, message: &str) -> Reported {
        let refused = self.open_calls > 0
            || self.contexts.iter().any(|c| matches!(c, Context::Loop | Context::Head | Context::Closure));
        if refused { Reported::earlier() } else { self.report(place, message) }
    }
}

/// Expressions that are written for their value.
fn is_value(expr: &Expr) -> bool {
    !is_statement(expr) && !matches!(bare(expr), Expr::If(_) | Expr::Block(_) | Expr::Unsafe(_) | Expr::Macro(_))
}

/// Expressions that are statements by nature.
fn is_statement(expr: &Expr) -> bool {
    match bare(expr) {
        Expr::Return(_) | Expr::Assign(_) | Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_) => true,
        Expr::Break(_) | Expr::Continue(_) => true,
        Expr::Binary(binary) => super::binary::operator(&binary.op).is_some_and(|(_, assigns)| assigns),
        _ => false,
    }
}
