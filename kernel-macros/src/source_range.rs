//! Where an expression starts and ends in the source.
//!
//! Stable Rust cannot join spans, so a range is its first and its last token's span. They are found by walking
//! down the expression's edge, which is much cheaper than turning the expression back into tokens.

use kernel_core::ir;
use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{Expr, Pat, Path, PathArguments, Type};

/// A range of tokens in the user's source.
#[derive(Clone, Copy, Debug)]
pub struct SourceRange {
    /// The first token.
    pub start: Span,
    /// The last token.
    pub end: Span,
    /// The call in whose place this has been inlined, once that is known.
    pub call: CallRef,
}

/// A call that has been inlined: a number of [`crate::typeck::Tree::calls`], from 1; 0 for the kernel's own code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallRef(pub usize);

impl SourceRange {
    /// From a token to another.
    pub fn between(start: Span, end: Span) -> SourceRange {
        SourceRange { start, end, call: CallRef::default() }
    }

    /// Whether these are the same tokens, wherever they have been inlined.
    pub fn covers(self, other: SourceRange) -> bool {
        self.start.start() == other.start.start() && self.end.end() == other.end.end()
    }

    /// The place in what a call has inlined, unless that is known already.
    #[must_use]
    pub fn in_call(self, call: CallRef) -> SourceRange {
        SourceRange { call: if self.call == CallRef::default() { call } else { self.call }, ..self }
    }

    /// The place of one token.
    pub fn at(span: Span) -> SourceRange {
        SourceRange::between(span, span)
    }

    /// The place of any syntax, through its tokens.
    pub fn of_tokens(tokens: &impl ToTokens) -> SourceRange {
        let mut tokens = tokens.to_token_stream().into_iter();
        let Some(first) = tokens.next() else { return SourceRange::at(Span::call_site()) };
        let start = first.span();
        let end = tokens.last().map_or(start, |t| t.span());
        SourceRange::between(start, end)
    }

    /// The place of an expression.
    pub fn of(expr: &Expr) -> SourceRange {
        SourceRange::between(start_of(expr), end_of(expr))
    }

    /// The place of a pattern.
    pub fn of_pat(pat: &Pat) -> SourceRange {
        match pat {
            Pat::Ident(p) => SourceRange::at(p.ident.span()),
            other => SourceRange::of_tokens(other),
        }
    }

    /// The place of a type.
    pub fn of_type(ty: &Type) -> SourceRange {
        SourceRange::of_tokens(ty)
    }

    /// The place of a path.
    pub fn of_path(path: &Path) -> SourceRange {
        let start = path.leading_colon.map(|c| c.spans[0]).or(path.segments.first().map(|s| s.ident.span()));
        SourceRange::between(start.unwrap_or_else(Span::call_site), path_end(path))
    }

    /// The place as the IR keeps it: a line, a column and a length within that line.
    pub fn ir_span(self) -> ir::Span {
        let (start, end) = (self.start.start(), self.end.end());
        if start.line == 0 {
            return ir::Span::UNKNOWN;
        }
        let same_line = end.line == start.line && end.column > start.column;
        // Of an expression over several lines only the beginning is underlined: its first token.
        let own = self.start.end();
        let len = if same_line { end.column - start.column } else { own.column.saturating_sub(start.column).max(1) };
        ir::Span::new(start.line as u32, start.column as u32 + 1, len as u32)
    }
}

/// The expression inside invisible groups, which fragments of a `macro_rules!` arrive in.
pub fn bare(mut expr: &Expr) -> &Expr {
    while let Expr::Group(group) = expr {
        expr = &group.expr;
    }
    expr
}

fn path_end(path: &Path) -> Span {
    let Some(last) = path.segments.last() else { return Span::call_site() };
    match &last.arguments {
        PathArguments::None => last.ident.span(),
        PathArguments::AngleBracketed(args) => args.gt_token.span,
        PathArguments::Parenthesized(args) => args.span(),
    }
}

fn start_of(mut expr: &Expr) -> Span {
    loop {
        expr = match expr {
            Expr::Binary(e) => &e.left,
            Expr::Call(e) => &e.func,
            Expr::MethodCall(e) => &e.receiver,
            Expr::Index(e) => &e.expr,
            Expr::Cast(e) => &e.expr,
            Expr::Field(e) => &e.base,
            Expr::Assign(e) => &e.left,
            Expr::Group(e) => &e.expr,
            Expr::Path(e) if e.qself.is_none() => return SourceRange::of_path(&e.path).start,
            Expr::Lit(e) => return e.lit.span(),
            Expr::Paren(e) => return e.paren_token.span.open(),
            Expr::Tuple(e) => return e.paren_token.span.open(),
            Expr::Array(e) => return e.bracket_token.span.open(),
            Expr::Block(e) if e.label.is_none() => return e.block.brace_token.span.open(),
            Expr::If(e) => return e.if_token.span,
            Expr::Unsafe(e) => return e.unsafe_token.span,
            other => return SourceRange::of_tokens(other).start,
        };
    }
}

fn end_of(mut expr: &Expr) -> Span {
    loop {
        expr = match expr {
            Expr::Binary(e) => &e.right,
            Expr::Assign(e) => &e.right,
            Expr::Unary(e) => &e.expr,
            Expr::Reference(e) => &e.expr,
            Expr::Group(e) => &e.expr,
            Expr::Closure(e) => &e.body,
            Expr::Call(e) => return e.paren_token.span.close(),
            Expr::MethodCall(e) => return e.paren_token.span.close(),
            Expr::Index(e) => return e.bracket_token.span.close(),
            Expr::Path(e) if e.qself.is_none() => return path_end(&e.path),
            Expr::Lit(e) => return e.lit.span(),
            Expr::Paren(e) => return e.paren_token.span.close(),
            Expr::Tuple(e) => return e.paren_token.span.close(),
            Expr::Array(e) => return e.bracket_token.span.close(),
            Expr::Block(e) => return e.block.brace_token.span.close(),
            Expr::Unsafe(e) => return e.block.brace_token.span.close(),
            Expr::If(e) => match &e.else_branch {
                Some((_, branch)) => branch,
                None => return e.then_branch.brace_token.span.close(),
            },
            other => return SourceRange::of_tokens(other).end,
        };
    }
}
