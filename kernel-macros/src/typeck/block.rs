//! Blocks: statements in order, and perhaps a value at the end.

use syn::visit::{self, Visit};
use syn::{Expr, ExprLoop, Item, Lifetime, Stmt as SynStmt};

use super::{Checker, Val};
use crate::error::Checked;
use crate::help::Help;
use crate::source_range::{SourceRange, bare};

/// The names in an expression.
pub(super) struct Named(pub Vec<String>);

impl<'ast> Visit<'ast> for Named {
    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        self.0.extend(path.path.get_ident().map(ToString::to_string));
    }
}

/// How a block ends.
pub(super) enum Flow {
    /// It gives a value (nothing, if none was wanted).
    Value(Checked<Val>),
    /// Control never reaches its end.
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
        let (mut diverges, mut ends_in_value) = (false, false);
        for (i, stmt) in stmts.iter().enumerate() {
            // What is never reached has been checked where the function is declared, and may not fit this call.
            if diverges && self.frame.via.is_some() {
                return Flow::Diverges;
            }
            let last = i + 1 == stmts.len();
            match stmt {
                SynStmt::Expr(expr, None) if last && want && !is_statement(expr) => {
                    let val = self.tail(expr);
                    if diverges {
                        self.unreached += 1;
                        return Flow::Diverges;
                    }
                    return val;
                }
                // `{ value; }` where the value is wanted.
                SynStmt::Expr(expr, Some(_)) if last && want && is_value(expr) => {
                    ends_in_value = !matches!(self.expr(expr), Ok(Val::Unit(_)));
                }
                SynStmt::Expr(expr, _) => diverges |= self.expr_stmt(expr),
                SynStmt::Local(local) => {
                    if self.local(local) {
                        return Flow::Diverges;
                    }
                }
                SynStmt::Macro(mac) => self.macro_stmt(&mac.mac),
                SynStmt::Item(item) => {
                    let place = SourceRange::of_tokens(item);
                    let help = self.let_of_constexprs(item);
                    let help = help.unwrap_or("move it out of the kernel; a `const` outside can be used inside".into());
                    self.report_help(place, "items inside a kernel are not supported", help);
                }
            }
        }
        match (diverges, want) {
            (true, _) => Flow::Diverges,
            (false, false) => Flow::Value(Ok(Val::Unit(SourceRange::at(end)))),
            (false, true) => {
                let help = if ends_in_value { "remove the last `;`" } else { "end it with an expression" };
                Flow::Value(Err(self.report_help(SourceRange::at(end), "this block gives no value", help)))
            }
        }
    }

    /// `let half = N / 2;` for `const HALF: usize = N / 2;`, which names a constexpr.
    fn let_of_constexprs(&self, item: &Item) -> Option<Help> {
        let Item::Const(item) = item else { return None };
        let text = self.source.text(SourceRange::of(&item.expr))?;
        let mut names = Named(Vec::new());
        names.visit_expr(&item.expr);
        names.0.iter().find(|name| self.lookup(name).is_some())?;
        let name = item.ident.to_string().to_lowercase();
        Some(
            format!("a `const` sees no constexprs: write `let {name} = {text};`, and `{name}` for `{}`", item.ident)
                .into(),
        )
    }

    /// The body of a closure that gives nothing.
    pub(super) fn statement(&mut self, body: &Expr) -> Flow {
        let end = SourceRange::at(SourceRange::of(body).end);
        if self.expr_stmt(bare(body)) { Flow::Diverges } else { Flow::Value(Ok(Val::Unit(end))) }
    }

    /// The expression at the end of a block whose value is used.
    pub(super) fn tail(&mut self, expr: &Expr) -> Flow {
        match bare(expr) {
            Expr::If(stmt) => self.if_expr(stmt, true),
            Expr::Loop(stmt) => self.endless_loop(stmt),
            Expr::Block(block) if block.label.is_none() => {
                let end = block.block.brace_token.span.close();
                self.scoped(|c| c.block(&block.block.stmts, true, end))
            }
            Expr::Unsafe(block) => self.unsafe_block(block, true),
            other => Flow::Value(self.expr(other)),
        }
    }
}

/// What a body gives, as far as its last expression says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Nothing: it ends with a statement.
    Nothing,
    /// A value, or what a call gives.
    Value,
    /// It is left before its end.
    Jump,
}

/// Whether the body of a closure gives nothing, as Rust reads it.
///
/// `{ x + 1; }` gives nothing too, but computes what nobody uses: there the `;` is the mistake.
pub(super) fn gives_nothing(body: &Expr) -> bool {
    ending(body) == Ending::Nothing
}

/// Whether the body of a closure that has been accepted gives nothing: then `{ x + 1; }` is none.
pub fn is_statement_body(body: &Expr) -> bool {
    match ending(body) {
        Ending::Nothing => true,
        Ending::Value => ends_in_statement(body),
        Ending::Jump => false,
    }
}

/// Looks for a `break;` that ends a loop.
struct Breaks<'l> {
    label: Option<&'l Lifetime>,
    /// How many loops lie between.
    inner: usize,
    found: bool,
}

impl<'ast> Visit<'ast> for Breaks<'_> {
    fn visit_expr_break(&mut self, stmt: &'ast syn::ExprBreak) {
        let ends = match &stmt.label {
            Some(label) => self.label.is_some_and(|own| own.ident == label.ident),
            None => self.inner == 0,
        };
        self.found |= ends && stmt.expr.is_none();
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        let repeats = matches!(expr, Expr::ForLoop(_) | Expr::While(_) | Expr::Loop(_));
        self.inner += usize::from(repeats);
        if !matches!(expr, Expr::Closure(_)) {
            visit::visit_expr(self, expr);
        }
        self.inner -= usize::from(repeats);
    }
}

fn ends_by_break(stmt: &ExprLoop) -> bool {
    let label = stmt.label.as_ref().map(|label| &label.name);
    let mut breaks = Breaks { label, inner: 0, found: false };
    breaks.visit_block(&stmt.body);
    breaks.found
}

/// Whether a body ends with `value;`.
pub(super) fn ends_in_statement(body: &Expr) -> bool {
    matches!(bare(body), Expr::Block(block) if matches!(block.block.stmts.last(), Some(SynStmt::Expr(_, Some(_)))))
}

fn ending(expr: &Expr) -> Ending {
    match bare(expr) {
        Expr::ForLoop(_) | Expr::While(_) | Expr::Assign(_) | Expr::Macro(_) => Ending::Nothing,
        Expr::Binary(binary) if super::binary::assigns(&binary.op) => Ending::Nothing,
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => Ending::Jump,
        Expr::Loop(stmt) if ends_by_break(stmt) => Ending::Nothing,
        Expr::Block(block) if block.label.is_none() => ending_of_block(&block.block.stmts),
        Expr::Unsafe(block) => ending_of_block(&block.block.stmts),
        Expr::If(stmt) => match (&stmt.else_branch, ending_of_block(&stmt.then_branch.stmts)) {
            (None, _) => Ending::Nothing,
            (Some((_, branch)), then) => match (then, ending(branch)) {
                (Ending::Jump, other) | (other, Ending::Jump) => other,
                // The other one ends with a call that gives nothing, or is wrong.
                (Ending::Nothing, other) if other == Ending::Nothing || is_call(last_of(branch)) => Ending::Nothing,
                (_, Ending::Nothing) if is_call(last_of_block(&stmt.then_branch.stmts)) => Ending::Nothing,
                (..) => Ending::Value,
            },
        },
        _ => Ending::Value,
    }
}

fn ending_of_block(stmts: &[SynStmt]) -> Ending {
    match stmts.last() {
        Some(SynStmt::Expr(expr, None)) => ending(expr),
        // Without its `;` it would be the value.
        Some(SynStmt::Expr(expr, Some(_))) if is_value(expr) && !is_call(Some(expr)) => Ending::Value,
        Some(SynStmt::Expr(expr, Some(_))) if ending(expr) == Ending::Jump => Ending::Jump,
        Some(SynStmt::Expr(..) | SynStmt::Local(_) | SynStmt::Macro(_) | SynStmt::Item(_)) | None => Ending::Nothing,
    }
}

/// The last expression of a branch.
fn last_of(branch: &Expr) -> Option<&Expr> {
    match bare(branch) {
        Expr::Block(block) => last_of_block(&block.block.stmts),
        Expr::If(stmt) => last_of_block(&stmt.then_branch.stmts),
        other => Some(other),
    }
}

fn last_of_block(stmts: &[SynStmt]) -> Option<&Expr> {
    match stmts.last() {
        Some(SynStmt::Expr(expr, None)) => Some(expr),
        _ => None,
    }
}

fn is_call(expr: Option<&Expr>) -> bool {
    matches!(expr.map(bare), Some(Expr::Call(_) | Expr::MethodCall(_)))
}

/// Expressions that are written for their value.
fn is_value(expr: &Expr) -> bool {
    !is_statement(expr)
        && !matches!(bare(expr), Expr::If(_) | Expr::Loop(_) | Expr::Block(_) | Expr::Unsafe(_) | Expr::Macro(_))
}

/// Expressions that are statements by nature.
fn is_statement(expr: &Expr) -> bool {
    match bare(expr) {
        Expr::Return(_) | Expr::Assign(_) | Expr::ForLoop(_) | Expr::While(_) => true,
        Expr::Break(_) | Expr::Continue(_) => true,
        Expr::Binary(binary) => super::binary::operator(&binary.op).is_some_and(|(_, assigns)| assigns),
        _ => false,
    }
}
