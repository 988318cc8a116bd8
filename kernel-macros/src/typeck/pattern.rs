//! Patterns of `let` and of closures: names, tuples and structs.

use std::collections::BTreeMap;

use syn::visit::Visit;
use syn::{Ident, Pat};

use super::{Binding, Checker, Val};
use crate::error::Checked;
use crate::help::Help;
use crate::source_range::SourceRange;

/// The names of a pattern.
struct Names(Vec<String>);

impl<'ast> Visit<'ast> for Names {
    fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
        self.0.push(pat.ident.to_string());
        syn::visit::visit_pat_ident(self, pat);
    }
}

impl Checker<'_> {
    /// Binds the names of a pattern to a value. After a mistake they are bound too, and stay silent.
    pub(super) fn bind_pattern(&mut self, pat: &Pat, val: Checked<Val>) {
        match pat {
            Pat::Ident(ident) if ident.by_ref.is_none() && ident.subpat.is_none() => {
                let name = ident.ident.to_string();
                let binding = match val {
                    Ok(Val::Unit(place)) => {
                        self.nothing(place);
                        Binding::Poison
                    }
                    Ok(val) if ident.mutability.is_some() => self.mutable(&name, val),
                    Ok(val) => self.binding_of(&val),
                    Err(_) => Binding::Poison,
                };
                self.bind(&name, binding);
                let line = ident.ident.span().start().line;
                self.scopes.last_mut().into_iter().for_each(|scope| scope.declared.push((name.clone(), line)));
            }
            Pat::Wild(_) => {}
            Pat::Paren(paren) => self.bind_pattern(&paren.pat, val),
            Pat::Type(typed) => {
                let annotation = self.annotation(&typed.ty);
                let val = match (val, annotation) {
                    (Ok(val), Ok(annotation)) => self.annotate(val, &annotation),
                    (Err(reported), _) | (_, Err(reported)) => Err(reported),
                };
                self.bind_pattern(&typed.pat, val);
            }
            Pat::Tuple(tuple) => match val {
                Ok(Val::Tuple(vals, _)) if vals.len() == tuple.elems.len() && vals.record.is_none() => {
                    for (pat, val) in tuple.elems.iter().zip(vals) {
                        self.bind_pattern(pat, Ok(val));
                    }
                }
                Ok(val) => {
                    let found = self.show_val(&val);
                    let message = format!("this pattern takes {} values, found {found}", tuple.elems.len());
                    let help = if tuple.elems.len() == 2 { self.with_indices(val.place()) } else { None };
                    let reported = match help {
                        Some(help) => self.report_help(SourceRange::of_pat(pat), message, help),
                        None => self.report(SourceRange::of_pat(pat), message),
                    };
                    self.poison_all(tuple.elems.iter(), reported);
                }
                Err(reported) => self.poison_all(tuple.elems.iter(), reported),
            },
            Pat::Struct(fields) => self.bind_struct(fields, val),
            other => {
                let help = "write a name or a tuple of names";
                self.report_help(SourceRange::of_pat(other), "this pattern is not supported in kernels", help);
                // Its names stay silent wherever they are used.
                self.bind_silent(other);
            }
        }
    }

    /// `max(x, return_indices = true)` for `argmax(x)`, where the value is wanted too.
    fn with_indices(&self, value: SourceRange) -> Option<Help> {
        let text = self.source.text(value)?;
        let args =
            |name: &str| Some(text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?.trim_end_matches(','));
        let (name, args) = ["max", "min"].into_iter().find_map(|name| Some((name, args(&format!("arg{name}"))?)))?;
        Some(Help::write(value, format!("{name}({args}, return_indices = true)")))
    }

    /// Refuses a name that patterns bind twice: those of a `let`, or of the parameters of a closure.
    pub(super) fn unique(&mut self, pats: &[&Pat]) {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for (index, pat) in pats.iter().enumerate() {
            let mut names = Vec::new();
            names_of(pat, &mut names);
            for ident in names {
                let Some(before) = seen.insert(ident.to_string(), index) else { continue };
                let whose = if before == index { "in the same pattern" } else { "in this parameter list" };
                let message = format!("identifier `{ident}` is bound more than once {whose}");
                self.report_help(SourceRange::at(ident.span()), message, "give each a name of its own");
            }
        }
    }

    /// Binds the names of a pattern that has been refused.
    pub(super) fn bind_silent(&mut self, pat: &Pat) {
        let mut names = Names(Vec::new());
        names.visit_pat(pat);
        names.0.iter().for_each(|name| self.bind(name, Binding::Poison));
    }

    fn poison_all<'p>(&mut self, pats: impl Iterator<Item = &'p Pat>, reported: crate::error::Reported) {
        for pat in pats {
            self.bind_pattern(pat, Err(reported));
        }
    }

    /// A mutable variable, or one for each part.
    pub(super) fn mutable(&mut self, name: &str, val: Val) -> Binding {
        match val {
            Val::One(operand) => {
                let ty = self.ty(operand).clone();
                Binding::Var(self.new_variable(name, ty, operand.node))
            }
            Val::Tuple(parts, _) => self.mutable_parts(name, parts),
            Val::Unit(place) => {
                self.nothing(place);
                Binding::Poison
            }
        }
    }
}

/// The names that a pattern binds, in order.
fn names_of<'p>(pat: &'p Pat, out: &mut Vec<&'p Ident>) {
    match pat {
        Pat::Ident(p) => out.push(&p.ident),
        Pat::Paren(p) => names_of(&p.pat, out),
        Pat::Type(p) => names_of(&p.pat, out),
        Pat::Tuple(p) => p.elems.iter().for_each(|pat| names_of(pat, out)),
        Pat::Struct(p) => p.fields.iter().for_each(|field| names_of(&field.pat, out)),
        // Refused when it is bound.
        _ => {}
    }
}
