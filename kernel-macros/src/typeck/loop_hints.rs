//! Attributes of loops: `#[unroll]`, `#[unroll(4)]`, `#[stages(3)]`, `#[warp_specialize]`.
//!
//! A number may be a literal or made of constexprs, whose value binding puts in its place.

use kernel_core::ir::{Dim, MAX_STAGES, Unroll};
use syn::{Attribute, Expr, ExprForLoop, ExprLit, Lit, Meta};

use super::{Checker, Context};
use crate::error::Checked;
use crate::source_range::{SourceRange, bare};
use crate::tree::LoopHints;

impl Checker<'_> {
    /// What the attributes of a loop say. A mistake is reported, and its attribute left out.
    pub(super) fn loop_hints(&mut self, attrs: &[Attribute]) -> LoopHints {
        let mut hints = LoopHints::default();
        for attr in attrs {
            let name = attr.path().get_ident().map(ToString::to_string).unwrap_or_default();
            let plain = matches!(attr.meta, Meta::Path(_));
            match (name.as_str(), plain) {
                ("unroll", true) => (hints.unroll, hints.unroll_by) = (Unroll::Full, None),
                ("unroll", false) => {
                    let _ = self.unroll_factor(attr, &mut hints);
                }
                ("warp_specialize", true) => hints.warp_specialize = true,
                ("warp_specialize", false) => {
                    let place = SourceRange::of_tokens(attr);
                    self.report_help(place, format!("`{name}` takes no arguments"), format!("write `#[{name}]`"));
                }
                ("stages", _) => {
                    let _ = self.stages(attr, &mut hints);
                }
                // What else may stand on a loop has been checked.
                _ => {}
            }
        }
        if matches!(hints.unroll, Unroll::By(_) | Unroll::Never) || hints.unroll_by.is_some() {
            self.joined_alone(attrs);
        }
        hints
    }

    /// `#[stages(3)]`: how many iterations are under way.
    fn stages(&mut self, attr: &Attribute, hints: &mut LoopHints) -> Checked<()> {
        let said = self.hint_number(attr, "stages")?;
        let literal = said.as_ref().and_then(Dim::as_const);
        match literal.and_then(|number| u8::try_from(number).ok()) {
            Some(number @ 1..=MAX_STAGES) => (hints.stages, hints.stages_by) = (number, None),
            None if said.is_some() && literal.is_none() => (hints.stages, hints.stages_by) = (0, said),
            Some(_) | None => {
                let message = format!("`stages` takes a number from 1 to {MAX_STAGES}");
                return Err(self.report_help(SourceRange::of_tokens(attr), message, "write `#[stages(3)]`"));
            }
        }
        Ok(())
    }

    /// `#[unroll(4)]`: how many iterations are joined.
    fn unroll_factor(&mut self, attr: &Attribute, hints: &mut LoopHints) -> Checked<()> {
        let said = self.hint_number(attr, "unroll")?;
        let literal = said.as_ref().and_then(Dim::as_const);
        match (literal.and_then(Unroll::joining), said) {
            (Some(joined), _) => (hints.unroll, hints.unroll_by) = (joined, None),
            (None, said @ Some(_)) if literal.is_none() => (hints.unroll, hints.unroll_by) = (Unroll::Auto, said),
            (None, _) => {
                let place = match &attr.meta {
                    Meta::List(list) if !list.tokens.is_empty() => SourceRange::of_tokens(&list.tokens),
                    _ => SourceRange::of_tokens(attr),
                };
                let message = format!("`unroll` takes a number of iterations to join, from 1 to {}", Unroll::MOST);
                let help = "write `#[unroll(4)]`, or `#[unroll]` to unroll the loop completely";
                return Err(self.report_help(place, message, help));
            }
        }
        Ok(())
    }

    /// The number that an attribute is given, if it is an integer; it is made of literals and constexprs.
    fn hint_number(&mut self, attr: &Attribute, name: &str) -> Checked<Option<Dim>> {
        let Ok(expr) = attr.parse_args::<Expr>() else { return Ok(None) };
        if let Expr::Lit(ExprLit { lit, .. }) = bare(&expr) {
            let number = match lit {
                Lit::Int(int) => int.base10_parse::<i64>().ok(),
                _ => None,
            };
            return Ok(number.map(Dim::Const));
        }
        let (operand, _) = self.nested(Context::Branch, |c| c.operand(&expr));
        let operand = operand?;
        match &self.node(operand.node).dim {
            Some(dim) => Ok(Some(dim.clone())),
            None => {
                let (message, help) = self.no_dim(operand, Some(&expr), &format!("the number of `#[{name}(..)]`"));
                Err(self.report_help(operand.place, message, help))
            }
        }
    }

    /// Refuses attributes that divide a loop's work in another way than a factor of `#[unroll]` does.
    fn joined_alone(&mut self, attrs: &[Attribute]) {
        for attr in attrs {
            if let Some(name) = ["stages", "warp_specialize"].into_iter().find(|name| attr.path().is_ident(name)) {
                let message = format!("`#[{name}]` and a factor of `#[unroll]` do not go together");
                self.report_help(SourceRange::of_tokens(attr), message, "remove one of them");
            }
        }
    }

    /// Refuses attributes that do nothing for a loop that is left early.
    pub(super) fn unpipelined(&mut self, stmt: &ExprForLoop, hints: &LoopHints) {
        if hints.unroll == Unroll::Full {
            return;
        }
        for attr in &stmt.attrs {
            if let Some(name) =
                ["stages", "unroll", "warp_specialize"].into_iter().find(|name| attr.path().is_ident(name))
            {
                let message = format!("`#[{name}]` does nothing for a loop that is left early");
                let help = "remove it, or run all iterations and mask what they do";
                self.report_help(SourceRange::of_tokens(attr), message, help);
            }
        }
    }
}
