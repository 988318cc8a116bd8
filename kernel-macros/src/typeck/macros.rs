//! `assert!`, `static_assert!` and `println!`.

use kernel_core::ir::format::{self, Digits};
use kernel_core::ir::infer::Needs;
use kernel_core::ir::{Atom, ConstId, ControlOp, DTypeBound, Dim, Op};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{BinOp, Expr, ExprLit, Lit, LitStr, Macro, Token};

use super::{Checker, Context, Operand};
use crate::error::{Checked, Reported};
use crate::source_range::{SourceRange, bare};
use crate::tree::{Kind, Stmt};
use crate::types::{BOOL, VTy};

/// The most values in one text: C's `printf` takes 32 on a GPU, the program and the index among them.
const MAX_PRINTED: usize = 16;

impl Checker<'_> {
    /// A macro call as a statement.
    pub(super) fn macro_stmt(&mut self, mac: &Macro) {
        let name = mac.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        let place = SourceRange::of_path(&mac.path);
        // Rust's own may be written with its path; what another module calls so may be anything.
        let path: Vec<String> = mac.path.segments.iter().map(|s| s.ident.to_string()).collect();
        let own =
            path.len() == 1 || matches!(path.join("::").as_str(), "std::assert" | "core::assert" | "std::println");
        let help = match name.as_str() {
            "assert" | "static_assert" | "println" if !own => "write it without the path",
            "assert" | "static_assert" | "println" => {
                // A mistake inside has been reported.
                let _ = match name.as_str() {
                    "assert" => self.assertion(mac, place),
                    "println" => self.printing(mac, place),
                    _ => self.static_assertion(mac, place),
                };
                return;
            }
            "assert_eq" => "write `assert!(a == b, \"..\")`",
            "assert_ne" => "write `assert!(a != b, \"..\")`",
            "debug_assert" => "write `assert!(condition, \"..\")`",
            "panic" | "unreachable" | "todo" | "unimplemented" => "write `assert!(condition, \"..\")`",
            "print" | "eprint" | "eprintln" | "dbg" => "write `println!(\"x = {}\", x)`",
            "vec" => "make a tile: `full([N], value)`",
            _ => "kernels have `assert!`, `static_assert!` and `println!`",
        };
        self.report_help(place, format!("`{name}!` is not supported in kernels"), help);
    }

    /// The condition and the message of an assertion.
    fn assert_parts(&mut self, mac: &Macro, place: SourceRange, name: &str) -> Checked<(Expr, String)> {
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        let args = match parser.parse2(mac.tokens.clone()) {
            Ok(args) => args,
            Err(error) => return Err(self.errors.report_syn(&mac.tokens, &error)),
        };
        let mut args = args.into_iter();
        let Some(condition) = args.next() else {
            let help = format!("write `{name}!(condition, \"message\")`");
            return Err(self.report_help(place, format!("`{name}!` needs a condition"), help));
        };
        let message = match args.next() {
            None => {
                let text = self.source.text(SourceRange::of(&condition));
                text.unwrap_or_else(|| quote::ToTokens::to_token_stream(&condition).to_string())
            }
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => {
                if let Some(extra) = args.next() {
                    let message = "the message of an assertion is a literal text without arguments";
                    return Err(self.report(SourceRange::of(&extra), message));
                }
                self.plain_text(&text)?
            }
            Some(other) => {
                return Err(self.report(SourceRange::of(&other), "the message of an assertion is a literal text"));
            }
        };
        Ok((condition, message))
    }

    /// A text without placeholders. Two braces stand for one, as Rust's `assert!` has it.
    fn plain_text(&mut self, text: &LitStr) -> Checked<String> {
        let (value, place) = (text.value(), SourceRange::at(text.span()));
        let mut out = String::with_capacity(value.len());
        let mut chars = value.chars().peekable();
        while let Some(c) = chars.next() {
            if matches!(c, '{' | '}') && chars.next_if_eq(&c).is_none() {
                let message = match c {
                    '{' => "the message of an assertion is a literal text without arguments",
                    _ => "unmatched `}` in the message of an assertion",
                };
                return Err(self.report_help(place, message, format!("for a brace write `{c}{c}`")));
            }
            out.push(c);
        }
        Ok(out)
    }

    /// Refuses a statement for its effect in a closure that operations call.
    fn no_macro_in_closure(&mut self, name: &str, place: SourceRange) -> Reported {
        let (of, why) = match self.on_an_element() {
            true => ("for single elements", "it computes, and has no other effect"),
            false => ("that combines elements", "which elements meet, and how often, is open"),
        };
        let help = match name {
            "static_assert" => "write it in front of the call",
            "assert" if self.on_an_element() => {
                "give a `bool` as well, `|a| (f(a), a < 3)`, and assert it behind the call"
            }
            "assert" => "assert it of the tile in front of the call, `assert!(x < 3)`, or of the result behind it",
            _ => "print the tile, `println!(\"{}\", x)`, in front of the call or behind it: that is a line per element",
        };
        self.report_help(place, format!("`{name}!` in a closure {of} is not supported: {why}"), help)
    }

    fn assertion(&mut self, mac: &Macro, place: SourceRange) -> Checked<()> {
        if self.in_closure() {
            return Err(self.no_macro_in_closure("assert", place));
        }
        let (condition, message) = self.assert_parts(mac, place, "assert")?;
        let operand = self.operand(&condition)?;
        self.expect(operand, BOOL, "the condition of `assert!`")?;
        self.stmts.push(Stmt::Effect(ControlOp::Assert { message }.into(), vec![operand.node], operand.place));
        Ok(())
    }

    fn static_assertion(&mut self, mac: &Macro, place: SourceRange) -> Checked<()> {
        if self.in_closure() {
            return Err(self.no_macro_in_closure("static_assert", place));
        }
        let (condition, message) = self.assert_parts(mac, place, "static_assert")?;
        let operand = self.operand(&condition)?;
        self.condition(operand, "the condition of `static_assert!`")?;
        if !self.node(operand.node).constexpr {
            let help = "what is known at launch only is checked by `assert!(condition, \"..\")`";
            return Err(self.report_help(operand.place, "this is not made of constexprs and literals", help));
        }
        if self.node(operand.node).kind == Kind::Bool(false) {
            return Err(self.report(operand.place, format!("this never holds: {message}")));
        }
        let op = Op::from(ControlOp::StaticAssert { message });
        self.stmts.push(Stmt::Effect(op, vec![operand.node], operand.place));
        // What holds in a branch only, or only if the kernel has not returned, says nothing about the rest.
        if self.contexts.is_empty() && !self.may_return && !self.may_have_ended() {
            self.learn(&condition);
        } else {
            self.learn_here(&condition);
        }
        Ok(())
    }

    /// `println!("x = {}", x)`
    fn printing(&mut self, mac: &Macro, place: SourceRange) -> Checked<()> {
        if self.in_closure() {
            return Err(self.no_macro_in_closure("println", place));
        }
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        let args = match parser.parse2(mac.tokens.clone()) {
            Ok(args) => args,
            Err(error) => return Err(self.errors.report_syn(&mac.tokens, &error)),
        };
        let mut args = args.iter();
        let Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) = args.next() else {
            let help = "write `println!(\"x = {}\", x)`";
            return Err(self.report_help(place, "`println!` begins with a literal text", help));
        };
        let at = SourceRange::at(text.span());
        let pieces = format::pieces(&text.value()).map_err(|error| {
            let (message, help) = error.explain();
            self.report_help(at, message, help)
        })?;
        let digits = format::values(&pieces);
        let (places, given) = (digits.len(), args.len());
        if places != given {
            let message = format!("the text has {places} `{{}}`, and {given} values follow it");
            return Err(self.report(at, message));
        }
        if given > MAX_PRINTED {
            return Err(self.report(at, format!("`println!` takes at most {MAX_PRINTED} values")));
        }
        let operands: Vec<Operand> = args.map(|arg| self.operand(arg)).collect::<Checked<_>>()?;
        for (&operand, digits) in operands.iter().zip(digits) {
            match digits {
                Digits::Hex => self.need(operand, Needs::Bound(DTypeBound::Int), "`{:x}`")?,
                Digits::Six | Digits::All => self.need(operand, Needs::Any, "`println!`")?,
            };
        }
        let shape = self.common_shape(&operands, "`println!`", place)?;
        let values = operands.iter().map(|operand| self.expand(operand.node, &shape, operand.place)).collect();
        self.stmts.push(Stmt::Effect(ControlOp::Print { text: text.value() }.into(), values, place));
        Ok(())
    }

    /// Remembers the equations of a condition that holds.
    fn learn(&mut self, condition: &Expr) {
        match bare(condition) {
            Expr::Paren(paren) => self.learn(&paren.expr),
            Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
                self.learn(&binary.left);
                self.learn(&binary.right);
            }
            Expr::Binary(binary) if matches!(binary.op, BinOp::Eq(_)) => {
                if self.dtype_comparison(binary).is_some() {
                    return;
                }
                let (left, right) = (self.quiet_dim(&binary.left), self.quiet_dim(&binary.right));
                if let (Some(left), Some(right)) = (left, right) {
                    self.learn_equal(&left, &right);
                }
            }
            _ => {}
        }
    }

    /// Remembers the equations of a condition that holds in this branch or loop.
    pub(super) fn learn_here(&mut self, condition: &Expr) {
        let outside = self.facts.borrow().clone();
        self.facts.borrow_mut().extend(std::mem::take(&mut self.facts_here));
        self.learn(condition);
        let both = self.facts.replace(outside);
        let outside = self.facts.borrow();
        self.facts_here = both.into_iter().filter(|(id, _)| !outside.contains_key(id)).collect();
    }

    /// A dimension in the normal form of this branch or loop.
    pub(super) fn norm_here(&self, dim: &Dim) -> Dim {
        let value = |id| self.facts_here.get(&id).cloned().unwrap_or_else(|| Dim::param(id));
        let known = self.norm(dim);
        known.substitute(&value).unwrap_or(known)
    }

    /// The constexpr that an expression is. Its mistakes have been reported before.
    fn quiet_dim(&mut self, expr: &Expr) -> Option<Dim> {
        let (operand, _) = self.nested(Context::Branch, |c| c.operand(expr));
        let dim = self.node(operand.ok()?.node).dim.clone()?;
        Some(self.norm(&dim))
    }

    pub(super) fn learn_equal(&self, a: &Dim, b: &Dim) {
        // What holds in an iteration of an unrolled loop is no fact of the kernel.
        if self.mentions_counter(a) || self.mentions_counter(b) {
            return;
        }
        // N % 4 == 0 makes N the same as 4 * (N / 4).
        let (a, b) = match (remainder(a), b) {
            (Some((dividend, divisor)), Dim::Const(0)) => {
                let Ok(multiple) = dividend.div(&divisor).and_then(|q| q.mul(&divisor)) else { return };
                (dividend, multiple)
            }
            _ => (a.clone(), b.clone()),
        };
        for (name, value) in [(&a, &b), (&b, &a)] {
            let Some(id) = single(name) else { continue };
            if a == b || self.facts.borrow().contains_key(&id) {
                continue;
            }
            let facts = self.facts.borrow().clone();
            self.facts.borrow_mut().insert(id, value.clone());
            let updated: Vec<(ConstId, Dim)> = self.facts.borrow().iter().map(|(k, v)| (*k, self.norm(v))).collect();
            // The normal form must be reached in one step, or two spellings of one dimension could differ.
            let settled = updated.iter().all(|(_, v)| self.norm(v) == *v) && self.norm(value) == *value;
            if settled {
                self.facts.replace(updated.into_iter().collect());
                return;
            }
            self.facts.replace(facts);
        }
    }
}

/// The constexpr that a dimension consists of.
pub(super) fn single(dim: &Dim) -> Option<ConstId> {
    match dim.terms().as_slice() {
        [(atoms, 1)] => match atoms.as_slice() {
            [Atom::Const(id)] => Some(*id),
            _ => None,
        },
        _ => None,
    }
}

/// Dividend and divisor, if a dimension is a remainder.
fn remainder(dim: &Dim) -> Option<(Dim, Dim)> {
    match dim.terms().as_slice() {
        [(atoms, 1)] => match atoms.as_slice() {
            [Atom::Rem(a, b)] => Some((a.clone(), b.clone())),
            _ => None,
        },
        _ => None,
    }
}

/// The type of a condition, for code that the checker writes itself.
pub(super) fn bool_scalar() -> VTy {
    VTy::scalar(BOOL)
}
