//! Which `#[device]` functions a body calls.
//!
//! A macro sees no items but its own, so names that no operation has are taken for functions, and rustc looks them up.
//! An operation's name with a slip of the pen, or one that another language has for it, is a mistake far more often than
//! a function: such a function is called by a path, `self::laod(..)`.

use std::collections::BTreeSet;

use kernel_core::ir::DType;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprCall, ExprClosure, FnArg, Local, Macro, PatIdent, Path, Stmt, Token};

use crate::names::dtype_of_other_languages;
use crate::source_range::bare;
use crate::{ops, spellings};

/// Names that are spelled out for methods, but that functions of one's own usually have.
const FREE: [&str; 5] = ["relu", "silu", "swish", "gelu", "mean"];

/// Where paths lead that people write from habit.
const FOREIGN: [&str; 11] =
    ["tl", "triton", "libdevice", "torch", "np", "numpy", "math", "cuda", "std", "core", "tilewright"];

/// A path as text, by which the calls of a body are told apart.
pub fn path_text(path: &Path) -> String {
    let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
    format!("{}{}", if path.leading_colon.is_some() { "::" } else { "" }, names.join("::"))
}

/// The functions that a body calls, each once, in the order of their first calls.
pub fn calls(inputs: &Punctuated<FnArg, Token![,]>, stmts: &[Stmt]) -> Vec<Path> {
    let mut calls = Calls::default();
    inputs.iter().for_each(|input| calls.visit_fn_arg(input));
    stmts.iter().for_each(|stmt| calls.visit_stmt(stmt));
    calls.found
}

#[derive(Default)]
struct Calls {
    /// Visible variables: calls of these are no functions'.
    variables: BTreeSet<String>,
    seen: BTreeSet<String>,
    found: Vec<Path>,
}

impl<'ast> Visit<'ast> for Calls {
    fn visit_block(&mut self, block: &'ast Block) {
        let variables = self.variables.clone();
        visit::visit_block(self, block);
        self.variables = variables;
    }

    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        let variables = self.variables.clone();
        visit::visit_expr_closure(self, closure);
        self.variables = variables;
    }

    /// `let scale = scale(x);` calls a function.
    fn visit_local(&mut self, local: &'ast Local) {
        local.init.iter().for_each(|init| self.visit_local_init(init));
        self.visit_pat(&local.pat);
    }

    fn visit_pat_ident(&mut self, pat: &'ast PatIdent) {
        self.variables.insert(pat.ident.to_string());
    }

    fn visit_expr_call(&mut self, call: &'ast ExprCall) {
        if let Expr::Path(path) = bare(&call.func)
            && path.qself.is_none()
            && self.is_function(&path.path)
            && self.seen.insert(path_text(&path.path))
        {
            self.found.push(path.path.clone());
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_macro(&mut self, mac: &'ast Macro) {
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        for expr in parser.parse2(mac.tokens.clone()).iter().flatten() {
            <Calls as Visit<'_>>::visit_expr(self, expr);
        }
    }
}

impl Calls {
    fn is_function(&self, path: &Path) -> bool {
        let (Some(first), Some(last)) = (path.segments.first(), path.segments.last()) else { return false };
        let (first, last) = (first.ident.to_string(), last.ident.to_string());
        let capital = |name: &str| name.starts_with(char::is_uppercase);
        let dtype = DType::from_name(&first).is_some() || dtype_of_other_languages(&first).is_some();
        if dtype || capital(&first) || capital(&last) {
            return false;
        }
        // No function has such a name.
        if is_operation(&last) {
            return false;
        }
        if path.segments.len() > 1 || path.leading_colon.is_some() {
            return !FOREIGN.contains(&first.as_str());
        }
        let free = FREE.contains(&last.as_str());
        !self.variables.contains(&last) && (free || !is_reserved(&last))
    }
}

/// Whether an operation has that name.
pub fn is_operation(name: &str) -> bool {
    ops::find(name).is_some() || ops::find_desc(name).is_some()
}

/// Whether a name without a path is an operation's with a slip of the pen, or one of another language.
fn is_reserved(name: &str) -> bool {
    spellings::find(name).is_some() || ops::rows().any(|row| is_slip(name, row.name))
}

/// Whether a name has the letters of an operation in another order, or one too few, or one twice.
fn is_slip(name: &str, operation: &str) -> bool {
    let sorted = |name: &str| {
        let mut letters: Vec<char> = name.chars().collect();
        letters.sort_unstable();
        letters
    };
    let without = |name: &str, at: usize| -> String {
        name.chars().enumerate().filter(|(i, _)| *i != at).map(|(_, letter)| letter).collect()
    };
    let (own, other) = (name.chars().count(), operation.chars().count());
    let letters: Vec<char> = name.chars().collect();
    match own.cmp(&other) {
        std::cmp::Ordering::Equal => own > 2 && sorted(name) == sorted(operation),
        std::cmp::Ordering::Less => own > 2 && own + 1 == other && (0..other).any(|at| without(operation, at) == name),
        std::cmp::Ordering::Greater => {
            let doubled = |at: usize| letters[at] == letters[at - 1] && without(name, at) == operation;
            own == other + 1 && (1..own).any(doubled)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_slip;

    #[test]
    fn slips_are_told_from_names() {
        for (name, operation) in [("laod", "load"), ("stroe", "store"), ("lod", "load"), ("maxx", "max")] {
            assert!(is_slip(name, operation), "{name}");
        }
        for (name, operation) in
            [("fill", "full"), ("max3", "max"), ("mix", "max"), ("load", "load_row"), ("dot", "dots_")]
        {
            assert!(!is_slip(name, operation), "{name}");
        }
    }
}
