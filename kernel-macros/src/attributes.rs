//! Attributes inside a kernel: each must mean something where it stands.
//!
//! The tokens that a kernel consists of never reach rustc as they are, so rustc evaluates no `#[cfg]` in them and
//! refuses no unknown attribute. An attribute that nobody looks at would be ignored in silence:
//!
//! ```text
//! #[cfg(any())] store(out, x);      would run
//! ```
//!
//! So one walk visits every attribute of the syntax tree and demands that it belongs where it stands. What the tree
//! does not hold is found by counting: each `#[..]` among the tokens must have been visited.

use proc_macro2::{Delimiter, LineColumn, TokenStream, TokenTree};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::Visit;
use syn::{Attribute, Expr, ExprForLoop, FnArg, Macro, Meta, Stmt, Token};

use crate::error::Errors;
use crate::names::closest;
use crate::signature::IN_PLACE;
use crate::source_range::SourceRange;

/// Attributes of loops.
const LOOPS: [&str; 3] = ["stages", "unroll", "warp_specialize"];
/// Attributes that set the level of lints.
pub const LEVELS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];
/// Tools whose attributes rustc passes over.
const TOOLS: [&str; 4] = ["rustfmt", "clippy", "diagnostic", "rust_analyzer"];

/// What an attribute stands on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Loop,
    Parameter,
    Other,
}

struct Walk<'e> {
    errors: &'e mut Errors,
    /// Where the attributes that have been visited start.
    visited: Vec<LineColumn>,
}

/// Refuses the attributes of a signature that mean nothing where they stand.
pub fn check_signature(signature: &syn::Signature, errors: &mut Errors) {
    let mut walk = Walk { errors, visited: Vec::new() };
    walk.visit_signature(signature);
    walk.finish(quote::ToTokens::to_token_stream(signature));
}

/// Attributes that rustc has for the code of a function, of which a function that is always inlined has none.
const OF_CODE: [&str; 9] = [
    "inline",
    "cold",
    "no_mangle",
    "export_name",
    "link_section",
    "track_caller",
    "target_feature",
    "optimize",
    "test",
];

/// Refuses the attributes in front of a `#[device]` function that would do nothing.
pub fn check_function(attrs: &[Attribute], errors: &mut Errors) {
    for attr in attrs {
        if let Some(name) = OF_CODE.into_iter().find(|name| attr.path().is_ident(name)) {
            let message = format!("`#[{name}]` does nothing for a `#[device]` function, which has no code of its own");
            let help = "remove it: functions are always inlined where they are called";
            errors.report_help(SourceRange::of_tokens(attr), message, help);
        }
    }
}

/// Refuses the attributes of a body that mean nothing where they stand. `inner` are those at its beginning.
pub fn check_body(inner: &[Attribute], stmts: &[Stmt], tokens: TokenStream, errors: &mut Errors) {
    let mut walk = Walk { errors, visited: Vec::new() };
    for attr in inner {
        walk.visit_attribute(attr);
    }
    for stmt in stmts {
        walk.visit_stmt(stmt);
    }
    walk.finish(tokens);
}

impl<'ast> Visit<'ast> for Walk<'_> {
    fn visit_attribute(&mut self, attr: &'ast Attribute) {
        self.judge(attr, Owner::Other);
    }

    fn visit_expr_for_loop(&mut self, stmt: &'ast ExprForLoop) {
        for attr in &stmt.attrs {
            self.judge(attr, Owner::Loop);
        }
        if let Some(label) = &stmt.label {
            self.visit_label(label);
        }
        self.visit_pat(&stmt.pat);
        self.visit_expr(&stmt.expr);
        self.visit_block(&stmt.body);
    }

    fn visit_fn_arg(&mut self, arg: &'ast FnArg) {
        let attrs = match arg {
            FnArg::Receiver(receiver) => &receiver.attrs,
            FnArg::Typed(typed) => {
                self.visit_pat(&typed.pat);
                self.visit_type(&typed.ty);
                &typed.attrs
            }
        };
        for attr in attrs {
            self.judge(attr, Owner::Parameter);
        }
    }

    /// The arguments of an assertion are expressions.
    fn visit_macro(&mut self, mac: &'ast Macro) {
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        for expr in parser.parse2(mac.tokens.clone()).iter().flatten() {
            <Walk<'_> as Visit<'_>>::visit_expr(self, expr);
        }
    }
}

impl Walk<'_> {
    /// Refuses an attribute that means nothing on its owner.
    fn judge(&mut self, attr: &Attribute, owner: Owner) {
        self.visited.push(attr.pound_token.spans[0].start());
        let path = attr.path();
        let (Some(first), Some(last)) = (path.segments.first(), path.segments.last()) else { return };
        let (first, name) = (first.ident.to_string(), last.ident.to_string());
        let place = SourceRange::of_tokens(attr);
        let alone = path.segments.len() == 1;
        if alone && LEVELS.contains(&name.as_str()) {
            if !matches!(attr.meta, Meta::List(_)) {
                let help = format!("write `#[{name}(unused_variables)]`");
                self.errors.report_help(place, format!("`{name}` takes the names of lints"), help);
            }
            return;
        }
        let written: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        let written = written.join("::");
        match (name.as_str(), owner) {
            _ if !alone && TOOLS.contains(&first.as_str()) => {}
            (hint, Owner::Loop) if alone && LOOPS.contains(&hint) => {}
            ("doc", Owner::Loop | Owner::Other) if alone => {}
            (IN_PLACE, Owner::Parameter) if alone => {}
            ("doc", Owner::Parameter) if alone => {
                let help = "describe it above the kernel";
                self.errors.report_help(place, "a parameter has no documentation of its own", help);
            }
            ("cfg" | "cfg_attr", _) => {
                let help = "write `if` on a `const FLAG: bool` parameter";
                self.errors.report_help(place, format!("`#[{written}]` is not supported here"), help);
            }
            (_, Owner::Loop) => {
                let help = match closest(&name, LOOPS) {
                    Some(close) => format!("did you mean `#[{close}]`?"),
                    // Triton's.
                    None if name == "loop_unroll_factor" => "write `#[unroll(4)]`".into(),
                    // Triton's, for persistent loops.
                    None if name == "flatten" => {
                        "remove it; on a loop over tiles, `#[warp_specialize]` lets the next one begin early".into()
                    }
                    None if name == "disable_licm" => {
                        "remove it: what does not change is always computed in front of the loop".into()
                    }
                    None if name == "disallow_acc_multi_buffer" => {
                        "remove it: the compiler decides how many accumulators a loop has".into()
                    }
                    None => "loops take `#[stages(3)]`, `#[unroll]`, `#[unroll(4)]` and `#[warp_specialize]`".into(),
                };
                self.errors.report_help(place, format!("`#[{written}]` is not an attribute of loops"), help);
            }
            (_, Owner::Parameter | Owner::Other) => {
                self.errors.report_help(place, format!("`#[{written}]` is not supported here"), purpose(&name));
            }
        }
    }

    /// Refuses attributes among the tokens that the tree does not hold. After another mistake they need no message.
    fn finish(self, tokens: TokenStream) {
        let mut all = Vec::new();
        collect(tokens, &mut all);
        if all.len() == self.visited.len() || !self.errors.is_empty() {
            return;
        }
        let unseen = all.iter().find(|place| !self.visited.contains(&place.start.start()));
        if let Some(place) = unseen.or(all.first()) {
            self.errors.report_help(*place, "an attribute is not supported here", "remove it");
        }
    }
}

/// What an attribute that stands on something else is for.
fn purpose(name: &str) -> &'static str {
    match name {
        "unroll" => "it belongs on a `for` loop, which it unrolls",
        "stages" => "it belongs on a `for` loop, whose loads it starts that many iterations ahead",
        IN_PLACE => "it belongs on a `Ptr<T>` parameter of a kernel, which may be read from an output",
        "warp_specialize" => "it belongs on a `for` loop, whose iterations it lets overlap",
        "do_not_specialize" => {
            "remove it: a kernel is compiled for integers that are 1, for multiples of 16 and for others"
        }
        _ => "remove it",
    }
}

/// The places of all `#[..]` and `#![..]` among tokens.
fn collect(tokens: TokenStream, out: &mut Vec<SourceRange>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |token: Option<&TokenTree>, c| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == c);
    for (at, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        collect(group.stream(), out);
        if group.delimiter() != Delimiter::Bracket {
            continue;
        }
        let before = |n: usize| at.checked_sub(n).and_then(|i| tokens.get(i));
        let pound = if is(before(1), '#') { before(1) } else { before(2).filter(|_| is(before(1), '!')) };
        if let Some(pound) = pound.filter(|p| is(Some(p), '#')) {
            out.push(SourceRange::between(pound.span(), group.span_close()));
        }
    }
}
