//! What expressions read: the variables, and the parts that run only sometimes.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{BinOp, Expr, ExprMethodCall, Macro, Token};

use super::Writer;
use crate::source_range::bare;
use crate::typeck::is_statement_body;

impl Writer {
    /// The variables that an expression reads, in order, and the parts of it that run only sometimes.
    pub(super) fn uses(&mut self, expr: &Expr, out: &mut Vec<TokenStream>) {
        match expr {
            Expr::Path(path) => {
                let variable = path.path.get_ident().and_then(|ident| self.variable(ident));
                out.extend(variable.map(|ident| ident.into_token_stream()));
            }
            Expr::Lit(_) => {}
            Expr::Group(group) => self.uses(&group.expr, out),
            Expr::Paren(paren) => self.uses(&paren.expr, out),
            Expr::Unary(unary) => self.uses(&unary.expr, out),
            Expr::Cast(cast) => self.uses(&cast.expr, out),
            Expr::Field(field) => self.uses(&field.base, out),
            Expr::Index(index) => {
                self.uses(&index.expr, out);
                self.uses(&index.index, out);
            }
            Expr::Binary(_) => self.chain(expr, out),
            Expr::Call(call) => {
                // A closure is read where it is called.
                self.uses(&call.func, out);
                if let Expr::Path(path) = bare(&call.func) {
                    // `f::<{ 1 << i }>(..)`
                    let arguments = path.path.segments.iter().map(|segment| &segment.arguments);
                    arguments.for_each(|arguments| self.token_uses(arguments.to_token_stream(), out));
                }
                call.args.iter().for_each(|arg| self.argument(arg, out));
            }
            Expr::MethodCall(call) => {
                self.uses(&call.receiver, out);
                self.token_uses(call.turbofish.to_token_stream(), out);
                call.args.iter().for_each(|arg| self.argument(arg, out));
                out.extend(self.changed(call));
            }
            Expr::Tuple(tuple) => tuple.elems.iter().for_each(|e| self.uses(e, out)),
            Expr::Struct(literal) => {
                literal.fields.iter().for_each(|field| self.uses(&field.expr, out));
                literal.rest.iter().for_each(|base| self.uses(base, out));
            }
            Expr::Array(array) => array.elems.iter().for_each(|e| self.uses(e, out)),
            Expr::Range(range) => {
                let ends = range.start.iter().chain(&range.end);
                ends.for_each(|end| self.uses(end, out));
            }
            Expr::If(stmt) => {
                let stmt = self.if_expr(stmt, true);
                out.push(stmt);
            }
            Expr::Loop(stmt) => out.push(self.endless_loop(stmt)),
            Expr::Block(block) => out.push(self.block(&block.block, true)),
            Expr::Unsafe(block) => out.push(self.block(&block.block, true)),
            Expr::Closure(closure) => out.push(self.closure(closure)),
            Expr::Macro(mac) => self.macro_uses(&mac.mac, out),
            other => self.token_uses(other.to_token_stream(), out),
        }
    }

    /// The variable that a method of a struct changes.
    pub(super) fn changed(&self, call: &ExprMethodCall) -> Option<TokenStream> {
        if !self.changing.contains(&call.method.to_string()) {
            return None;
        }
        let target = self.base(&call.receiver)?;
        let (_, mutable) = self.names.values().flatten().rev().find(|(ident, _)| *ident == target)?;
        mutable.then(|| quote!({ #target = __any(&[#target]); #target }))
    }

    /// An argument: of `mask = m` only the value is read.
    fn argument(&mut self, arg: &Expr, out: &mut Vec<TokenStream>) {
        match bare(arg) {
            Expr::Assign(assign) => self.uses(&assign.right, out),
            other => self.uses(other, out),
        }
    }

    /// Operators, of which there may be too many for one call each.
    fn chain(&mut self, expr: &Expr, out: &mut Vec<TokenStream>) {
        let (mut first, mut rights) = (expr, Vec::new());
        while let Expr::Binary(binary) = bare(first) {
            rights.push((&binary.op, &*binary.right));
            first = &binary.left;
        }
        let mut left = Vec::new();
        self.uses(first, &mut left);
        for (op, right) in rights.into_iter().rev() {
            let mut uses = Vec::new();
            self.uses(right, &mut uses);
            let plain = uses
                .iter()
                .all(|tokens| matches!(tokens.clone().into_iter().next(), Some(TokenTree::Ident(i)) if i != "if"));
            if plain || !matches!(op, BinOp::And(_) | BinOp::Or(_)) {
                left.append(&mut uses);
            } else {
                // What stands to the right of `&&` may assign, and may not run.
                left = vec![quote!(if __any(&[#(#left),*]) { __any(&[#(#uses),*]) } else { __any(&[]) })];
            }
        }
        out.append(&mut left);
    }

    fn closure(&mut self, closure: &syn::ExprClosure) -> TokenStream {
        let mut outside = Vec::new();
        closure.inputs.iter().for_each(|pat| self.pattern_uses(pat, &mut outside));
        let (params, body) = self.scoped(|w| {
            let params: Vec<TokenStream> = closure
                .inputs
                .iter()
                .map(|pat| {
                    let (pat, ty) = w.pattern(pat);
                    quote!(#pat: #ty)
                })
                .collect();
            let outer = std::mem::replace(&mut w.in_closure, true);
            let body = match is_statement_body(&closure.body) {
                true => w.statement_body(&closure.body),
                false => w.value_of(Some(&closure.body), Vec::new()),
            };
            w.in_closure = outer;
            (params, body)
        });
        quote!({ let _ = |#(#params),*| -> __Value { #body }; __any(&[#(#outside),*]) })
    }

    pub(super) fn macro_uses(&mut self, mac: &Macro, out: &mut Vec<TokenStream>) {
        match Punctuated::<Expr, Token![,]>::parse_terminated.parse2(mac.tokens.clone()) {
            Ok(args) => args.iter().for_each(|arg| self.uses(arg, out)),
            Err(_) => self.token_uses(mac.tokens.clone(), out),
        }
    }

    /// Every variable that is named among tokens.
    pub(super) fn token_uses(&self, tokens: TokenStream, out: &mut Vec<TokenStream>) {
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => out.extend(self.variable(&ident).map(|found| found.into_token_stream())),
                TokenTree::Group(group) => self.token_uses(group.stream(), out),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}
