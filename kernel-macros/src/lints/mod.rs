//! The body once more as Rust, so that rustc's lints speak about it.
//!
//! A kernel's body is no Rust, so rustc cannot warn of variables that nobody reads. It can of a function that nobody
//! calls, which declares, assigns and reads the same variables in the same order, on the user's tokens, all as numbers:
//!
//! ```text
//! let mut v = load(x + i, mask = m);         let mut v: Value = any(&[x, i, m]);
//! if n > 0 {                           =>    if any(&[n]) {
//!     v += 1.0;                                  v += any(&[]);
//! }                                          }
//! ```
//!
//! So the names and levels of the lints are rustc's own (`unused_variables`, `unused_mut`, `unreachable_code` and others),
//! `#[allow]` on the kernel or around it silences them, and `#![deny(warnings)]` makes them errors.
//!
//! It is written for kernels without mistakes only. A name counts as read wherever it stands among tokens that this
//! module does not know, so that what is in doubt gives no warning.

mod uses;

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::{Attribute, Block, Expr, ExprIf, ExprLet, ExprLoop, Meta, Pat, Stmt, Token};

use crate::attributes::LEVELS;
use crate::device::bundle::Functions;
use crate::device::function::Function;
use crate::signature::Signature;
use crate::source_range::{SourceRange, bare};
use crate::typeck::assigns;

/// The lints that speak about bodies, and the groups that they are in.
const LINTS: [&str; 7] =
    ["unused_variables", "unused_mut", "unused_assignments", "unused_labels", "unreachable_code", "unused", "warnings"];

/// The function, as an associated one. `inner` are the attributes at the beginning of the body.
pub fn function(signature: &Signature, inner: &[Attribute], stmts: &[Stmt], functions: &Functions) -> TokenStream {
    let mut writer = Writer { changing: functions.changing(), ..Writer::default() };
    let params: Vec<TokenStream> = signature
        .params
        .iter()
        .map(|param| {
            let ident = writer.declare(&param.ident, param.mutable.is_some());
            let (levels, mutable) = (param.attrs.iter().filter_map(about_bodies), &param.mutable);
            quote!(#(#levels)* #mutable #ident: ::core::primitive::u8)
        })
        .collect();
    writer.written(&signature.attrs, inner, &params, stmts)
}

/// The body of a `#[device]` function.
pub fn device_function(function: &Function, functions: &Functions) -> TokenStream {
    let mut writer = Writer { changing: functions.changing(), ..Writer::default() };
    let params: Vec<TokenStream> = function
        .params
        .iter()
        .map(|param| {
            let (pat, ty) = writer.pattern(&param.pat);
            quote!(#pat: #ty)
        })
        .collect();
    let written = writer.written(&function.signature.attrs, &function.inner, &params, &function.stmts);
    quote! {
        type __Value = ::core::primitive::u8;
        #written
    }
}

/// An attribute as far as it is about bodies: `#[allow(dead_code, unused_mut)]` as `#[allow(unused_mut)]`.
fn about_bodies(attr: &Attribute) -> Option<TokenStream> {
    restricted(attr, |lint| LINTS.contains(&lint))
}

/// An attribute of the kernel without what is expected of the body, where it is expected already.
pub fn about_launcher(attr: &Attribute) -> Option<TokenStream> {
    if attr.path().is_ident("expect") {
        restricted(attr, |lint| !LINTS.contains(&lint))
    } else {
        Some(attr.to_token_stream())
    }
}

/// The attribute with those of its lints that are wanted; `None` without any, or if it is not about lints.
fn restricted(attr: &Attribute, wanted: impl Fn(&str) -> bool) -> Option<TokenStream> {
    let Meta::List(list) = &attr.meta else { return None };
    if !LEVELS.iter().any(|level| list.path.is_ident(level)) {
        return None;
    }
    let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let is_wanted = |meta: &&Meta| match meta {
        Meta::Path(path) => wanted(&path.to_token_stream().to_string()),
        // `reason = ".."` belongs to whatever is left.
        Meta::NameValue(_) | Meta::List(_) => true,
    };
    let kept: Vec<&Meta> = parts.iter().filter(is_wanted).collect();
    let (pound, level) = (attr.pound_token, &list.path);
    let any = kept.iter().any(|meta| matches!(meta, Meta::Path(_)));
    any.then(|| quote!(#pound [#level(#(#kept),*)]))
}

#[derive(Default)]
struct Writer {
    /// Visible variables by name: the identifiers that declare them, the innermost last, and whether they are mutable.
    names: BTreeMap<String, Vec<(Ident, bool)>>,
    /// The names that each block declares.
    scopes: Vec<Vec<String>>,
    renamed: usize,
    /// Methods with `&mut self`.
    changing: BTreeSet<String>,
    /// Whether this is inside a closure.
    in_closure: bool,
}

impl Writer {
    /// The function with the parameters that have been declared.
    fn written(
        &mut self,
        attrs: &[Attribute],
        inner: &[Attribute],
        params: &[TokenStream],
        stmts: &[Stmt],
    ) -> TokenStream {
        let name = Ident::new("written", Span::mixed_site());
        let levels = attrs.iter().chain(inner).filter_map(about_bodies);
        let body = self.statements(stmts);
        quote! {
            #[allow(clippy::all, clippy::nursery, clippy::pedantic, clippy::restriction)]
            #(#levels)*
            fn #name(#(#params),*) {
                type __Value = ::core::primitive::u8;
                fn __any<R>(_: &[__Value]) -> R {
                    loop {}
                }
                #body
            }
        }
    }

    /// Declares a variable. Its uses are written with the identifier of its declaration: names in a kernel are matched
    /// by their text, also where rustc tells those of a `macro_rules!` from those of its caller.
    fn declare(&mut self, ident: &Ident, mutable: bool) -> Ident {
        let name = ident.to_string();
        // Such a name may be that of a constant, which a pattern of Rust would compare with.
        let own = if name.chars().any(char::is_uppercase) || name == "self" {
            self.renamed += 1;
            Ident::new(&format!("_v{}", self.renamed), Span::mixed_site())
        } else {
            ident.clone()
        };
        self.names.entry(name.clone()).or_default().push((own.clone(), mutable));
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(name);
        }
        own
    }

    /// The variable that an identifier names, where it stands.
    fn variable(&self, ident: &Ident) -> Option<Ident> {
        let (mut found, _) = self.names.get(&ident.to_string())?.last()?.clone();
        found.set_span(found.span().located_at(ident.span()));
        Some(found)
    }

    fn scoped<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(Vec::new());
        let result = f(self);
        for name in self.scopes.pop().into_iter().flatten() {
            self.names.entry(name).or_default().pop();
        }
        result
    }

    // Statements

    fn statements(&mut self, stmts: &[Stmt]) -> TokenStream {
        stmts.iter().map(|stmt| self.statement(stmt)).collect()
    }

    fn statement(&mut self, stmt: &Stmt) -> TokenStream {
        match stmt {
            Stmt::Local(local) => self.local(local),
            Stmt::Expr(expr, semi) => self.expr_statement(expr, semi.map(|s| s.spans[0])),
            Stmt::Macro(mac) => {
                let semi = mac.semi_token.map(|s| s.spans[0]);
                let mut uses = Vec::new();
                self.macro_uses(&mac.mac, &mut uses);
                effect(&uses, SourceRange::of_tokens(mac), semi)
            }
            // Refused.
            Stmt::Item(_) => TokenStream::new(),
        }
    }

    fn local(&mut self, local: &syn::Local) -> TokenStream {
        let levels: Vec<TokenStream> = local.attrs.iter().filter_map(about_bodies).collect();
        let mut uses = Vec::new();
        self.pattern_uses(&local.pat, &mut uses);
        let init = local.init.as_ref().map(|init| &*init.expr);
        let value = self.value_of(init, uses);
        let (pat, ty) = self.pattern(&local.pat);
        let (token, semi) = (local.let_token, local.semi_token);
        quote!(#(#levels)* #token #pat: #ty = #value #semi)
    }

    /// The body of a closure that gives nothing; what is written of it gives anything.
    fn statement_body(&mut self, body: &Expr) -> TokenStream {
        let body = self.expr_statement(body, None);
        quote!(#body __any(&[]))
    }

    fn expr_statement(&mut self, expr: &Expr, semi: Option<Span>) -> TokenStream {
        let levels: Vec<TokenStream> = attrs_of(expr).iter().filter_map(about_bodies).collect();
        let place = SourceRange::of(expr);
        let written = match bare(expr) {
            Expr::Assign(assign) => self.assignment(&assign.left, &assign.right, place, semi),
            Expr::Binary(binary) if assigns(&binary.op) => {
                let mut uses = Vec::new();
                self.uses(&binary.right, &mut uses);
                let (name, arguments) = call(&uses, SourceRange::of(&binary.right));
                // Numbers can be added to by more than numbers.
                let value = quote!(#name::<__Value> #arguments);
                let (target, op) = (self.base(&binary.left), &binary.op);
                let semi = semicolon(semi.unwrap_or(place.end));
                target.map_or_else(TokenStream::new, |target| quote!(#target #op #value #semi))
            }
            Expr::If(stmt) => self.if_expr(stmt, false),
            Expr::ForLoop(stmt) => {
                let mut bounds = Vec::new();
                self.uses(&stmt.expr, &mut bounds);
                for attr in
                    stmt.attrs.iter().filter(|attr| attr.path().is_ident("stages") || attr.path().is_ident("unroll"))
                {
                    attr.parse_args::<Expr>().iter().for_each(|number| self.uses(number, &mut bounds));
                }
                let (pat, body) = self.scoped(|w| {
                    let (pat, _) = w.pattern(&stmt.pat);
                    (pat, w.block(&stmt.body, false))
                });
                let (label, for_token, in_token) = (&stmt.label, stmt.for_token, stmt.in_token);
                quote!(#label #for_token #pat #in_token __any::<::core::ops::Range<__Value>>(&[#(#bounds),*]) #body)
            }
            Expr::While(stmt) => {
                let (label, token, condition) = (&stmt.label, stmt.while_token, self.condition(&stmt.cond));
                let body = self.block(&stmt.body, false);
                quote!(#label #token #condition #body)
            }
            Expr::Loop(stmt) => {
                let (written, semi) = (self.endless_loop(stmt), semi.map(semicolon));
                quote!(#written #semi)
            }
            Expr::Break(stmt) => {
                let (token, label, semi) = (stmt.break_token, &stmt.label, semicolon(semi.unwrap_or(place.end)));
                let value = stmt.expr.as_ref().map(|value| self.value_of(Some(value), Vec::new()));
                quote!(#token #label #value #semi)
            }
            Expr::Continue(stmt) => {
                let (token, label, semi) = (stmt.continue_token, &stmt.label, semicolon(semi.unwrap_or(place.end)));
                quote!(#token #label #semi)
            }
            Expr::Block(block) => self.block(&block.block, false),
            Expr::Unsafe(block) => self.block(&block.block, false),
            Expr::Return(stmt) => {
                let (token, semi) = (stmt.return_token, semicolon(semi.unwrap_or(place.end)));
                // A closure that returns gives something here, whatever that is.
                let value = stmt.expr.as_ref().map(|value| self.value_of(Some(value), Vec::new()));
                let value = value.or_else(|| self.in_closure.then(|| quote!(__any(&[]))));
                quote!(#token #value #semi)
            }
            Expr::Verbatim(_) => TokenStream::new(),
            other => {
                let mut uses = Vec::new();
                self.uses(other, &mut uses);
                effect(&uses, place, semi)
            }
        };
        if levels.is_empty() { written } else { quote!(#(#levels)* { #written }) }
    }

    /// `a = value;`, or `(a, b) = value;`, which assigns to one after the other.
    fn assignment(&mut self, left: &Expr, right: &Expr, place: SourceRange, semi: Option<Span>) -> TokenStream {
        let end = semi.unwrap_or(place.end);
        if let Expr::Field(field) = bare(left)
            && let Some(target) = self.base(&field.base)
        {
            // The other fields stay.
            let (value, semi) = (self.value_of(Some(right), vec![target.to_token_stream()]), semicolon(end));
            return quote_spanned!(end=> #target = #value #semi);
        }
        if let Some(target) = self.target(left) {
            let (value, semi) = (self.value_of(Some(right), Vec::new()), semicolon(end));
            return quote_spanned!(end=> #target = #value #semi);
        }
        let mut uses = Vec::new();
        self.uses(right, &mut uses);
        let mut out = effect(&uses, place, semi);
        let mut targets = vec![left];
        while let Some(target) = targets.pop() {
            match bare(target) {
                Expr::Tuple(tuple) => targets.extend(tuple.elems.iter().rev()),
                Expr::Paren(paren) => targets.push(&paren.expr),
                other => out.extend(self.target(other).map(|target| quote!(#target = __any(&[]);))),
            }
        }
        out
    }

    /// The variable whose field is assigned to.
    fn base(&self, expr: &Expr) -> Option<Ident> {
        match bare(expr) {
            Expr::Field(field) => self.base(&field.base),
            other => self.target(other),
        }
    }

    /// The variable that is assigned to.
    fn target(&self, expr: &Expr) -> Option<Ident> {
        match bare(expr) {
            Expr::Paren(paren) => self.target(&paren.expr),
            Expr::Path(path) => self.variable(path.path.get_ident()?),
            _ => None,
        }
    }

    // Patterns

    /// The pattern and its type; declares its names.
    fn pattern(&mut self, pat: &Pat) -> (TokenStream, TokenStream) {
        match pat {
            Pat::Ident(p) => {
                let (ident, mutable) = (self.declare(&p.ident, p.mutability.is_some()), &p.mutability);
                (quote!(#mutable #ident), quote!(__Value))
            }
            Pat::Paren(paren) => self.pattern(&paren.pat),
            Pat::Type(typed) => self.pattern(&typed.pat),
            Pat::Tuple(tuple) => {
                let (pats, types): (Vec<_>, Vec<_>) = tuple.elems.iter().map(|pat| self.pattern(pat)).unzip();
                (quote!((#(#pats,)*)), quote!((#(#types,)*)))
            }
            Pat::Struct(fields) => {
                let fields = fields.fields.iter().map(|field| self.pattern(&field.pat));
                let (pats, types): (Vec<_>, Vec<_>) = fields.unzip();
                (quote!((#(#pats,)*)), quote!((#(#types,)*)))
            }
            _ => (quote!(_), quote!(__Value)),
        }
    }

    /// What the types in a pattern read.
    fn pattern_uses(&self, pat: &Pat, out: &mut Vec<TokenStream>) {
        match pat {
            Pat::Type(typed) => {
                self.token_uses(typed.ty.to_token_stream(), out);
                self.pattern_uses(&typed.pat, out);
            }
            Pat::Paren(paren) => self.pattern_uses(&paren.pat, out),
            Pat::Tuple(tuple) => tuple.elems.iter().for_each(|pat| self.pattern_uses(pat, out)),
            _ => {}
        }
    }

    // Values

    /// The value of an expression that reads `uses` too.
    fn value_of(&mut self, expr: Option<&Expr>, mut uses: Vec<TokenStream>) -> TokenStream {
        let Some(expr) = expr else { return quote!(__any(&[#(#uses),*])) };
        self.uses(expr, &mut uses);
        let (name, arguments) = call(&uses, SourceRange::of(expr));
        quote!(#name #arguments)
    }

    fn condition(&mut self, expr: &Expr) -> TokenStream {
        let mut uses = Vec::new();
        self.uses(expr, &mut uses);
        quote!(__any::<::core::primitive::bool>(&[#(#uses),*]))
    }

    fn if_expr(&mut self, stmt: &ExprIf, want: bool) -> TokenStream {
        let token = stmt.if_token;
        let (condition, then) = match bare(&stmt.cond) {
            Expr::Let(given) => self.given(given, &stmt.then_branch, want),
            condition => (self.condition(condition), self.block(&stmt.then_branch, want)),
        };
        let otherwise = stmt.else_branch.as_ref().map(|(token, branch)| {
            let branch = match bare(branch) {
                Expr::If(stmt) => self.if_expr(stmt, want),
                Expr::Block(block) => self.block(&block.block, want),
                other => {
                    let value = self.value_of(Some(other), Vec::new());
                    quote!({ #value })
                }
            };
            quote!(#token #branch)
        });
        quote!(#token #condition #then #otherwise)
    }

    /// `let Some(value) = parameter` and the block behind it.
    fn given(&mut self, given: &ExprLet, block: &Block, want: bool) -> (TokenStream, TokenStream) {
        let mut uses = Vec::new();
        self.uses(&given.expr, &mut uses);
        self.scoped(|w| {
            let pat = match &*given.pat {
                Pat::TupleStruct(some) => some.elems.first().map(|pat| w.pattern(pat).0),
                _ => None,
            };
            let (token, pat) = (given.let_token, pat.unwrap_or_else(|| quote!(_)));
            let value = quote!(__any::<::core::option::Option<__Value>>(&[#(#uses),*]));
            (quote!(#token ::core::option::Option::Some(#pat) = #value), w.block(block, want))
        })
    }

    fn endless_loop(&mut self, stmt: &ExprLoop) -> TokenStream {
        let (label, token, body) = (&stmt.label, stmt.loop_token, self.block(&stmt.body, false));
        quote!(#label #token #body)
    }

    /// A block on the user's braces; `want` says whether it gives a value.
    fn block(&mut self, block: &Block, want: bool) -> TokenStream {
        let inside = self.scoped(|w| match block.stmts.split_last() {
            Some((Stmt::Expr(last, None), rest))
                if want && !matches!(bare(last), Expr::Return(_) | Expr::Break(_) | Expr::Continue(_)) =>
            {
                let stmts = w.statements(rest);
                let value = match bare(last) {
                    Expr::If(stmt) => w.if_expr(stmt, true),
                    Expr::Loop(stmt) => w.endless_loop(stmt),
                    other => w.value_of(Some(other), Vec::new()),
                };
                quote!(#stmts #value)
            }
            _ => w.statements(&block.stmts),
        });
        let mut group = Group::new(Delimiter::Brace, inside);
        group.set_span(block.brace_token.span.join());
        TokenTree::from(group).into()
    }
}

/// The function that gives anything, and its arguments, on the tokens of the user's.
fn call(uses: &[TokenStream], place: SourceRange) -> (Ident, Group) {
    let mut arguments = Group::new(Delimiter::Parenthesis, quote!(&[#(#uses),*]));
    arguments.set_span(place.end);
    (Ident::new("__any", place.start), arguments)
}

/// A statement that reads variables, on the tokens of the user's: rustc underlines what is never reached.
fn effect(uses: &[TokenStream], place: SourceRange, semi: Option<Span>) -> TokenStream {
    let (name, arguments) = call(uses, place);
    let semi = semicolon(semi.unwrap_or(place.end));
    quote!(#name::<()> #arguments #semi)
}

fn semicolon(span: Span) -> Token![;] {
    Token![;](span)
}

/// The attributes of an expression that can be a statement.
fn attrs_of(expr: &Expr) -> &[Attribute] {
    match bare(expr) {
        Expr::Assign(e) => &e.attrs,
        Expr::Binary(e) => &e.attrs,
        Expr::Block(e) => &e.attrs,
        Expr::Call(e) => &e.attrs,
        Expr::ForLoop(e) => &e.attrs,
        Expr::If(e) => &e.attrs,
        Expr::Loop(e) => &e.attrs,
        Expr::Macro(e) => &e.attrs,
        Expr::MethodCall(e) => &e.attrs,
        Expr::Return(e) => &e.attrs,
        Expr::Unsafe(e) => &e.attrs,
        Expr::While(e) => &e.attrs,
        _ => &[],
    }
}
