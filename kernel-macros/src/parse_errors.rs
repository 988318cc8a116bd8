//! What somebody meant whose kernel cannot be read.
//!
//! Rust's grammar wants braces around a shape in a type. Without them its parser stops inside the shape and talks of
//! array types, so that what is wrong has to be found in the tokens:
//!
//! ```text
//! a: TensorDesc<f32, [M, N]>
//!                    ^^^^^^ a shape in a type is written in braces: write `{ [M, N] }`
//! ```
//!
//! Behind `as u32` it takes a `<` for the beginning of arguments of the type, and stops somewhere after that:
//!
//! ```text
//! bit as u32 << place
//!            ^^ arguments of the type begin here: put the conversion in parentheses: `(bit as u32) <<`
//! ```
//!
//! A constexpr has a type, `<const BLOCK: usize>`, without which the parser expects a `:` at the `>`.

use proc_macro2::{Delimiter, Group, Punct, Spacing, TokenStream, TokenTree};

use crate::error::Errors;
use crate::help::Help;
use crate::source_range::SourceRange;

/// Types whose second argument is a shape.
const SHAPED: [&str; 3] = ["TensorDesc", "TensorDescMut", "Tile"];

/// Reports why tokens cannot be read: the shapes without braces in them, or else what the parser says.
pub fn report(tokens: TokenStream, error: &syn::Error, errors: &mut Errors) {
    let before = errors.list().len();
    shapes_without_braces(tokens.clone(), errors);
    conversions_before_signs(tokens.clone(), errors);
    constexprs_without_types(tokens.clone(), errors);
    constexprs_as_parameters(tokens.clone(), errors);
    if errors.list().len() == before {
        errors.report_syn(&tokens, error);
    }
}

/// Nesting is bounded, as `guard` has refused what is deeper.
fn shapes_without_braces(tokens: TokenStream, errors: &mut Errors) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => shapes_without_braces(group.stream(), errors),
            TokenTree::Ident(name) if SHAPED.iter().any(|shaped| name == shaped) => {
                if let Some(shape) = bare_shape(&tokens[at + 1..]) {
                    let message = "a shape in a type is written in braces, which are Rust's";
                    errors.report_help(
                        SourceRange::at(shape.span()),
                        message,
                        format!("write `{{ [{}] }}`", text(shape)),
                    );
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// `x as u32 << n`, `x as i32 < n`
fn conversions_before_signs(tokens: TokenStream, errors: &mut Errors) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for token in &tokens {
        if let TokenTree::Group(group) = token {
            conversions_before_signs(group.stream(), errors);
        }
    }
    for window in tokens.windows(4) {
        let [TokenTree::Ident(word), TokenTree::Ident(ty), TokenTree::Punct(sign), next] = window else { continue };
        if word != "as" || sign.as_char() != '<' {
            continue;
        }
        let second = match next {
            TokenTree::Punct(second) if sign.spacing() == Spacing::Joint => Some(second),
            _ => None,
        };
        let code = second.map_or_else(|| "<".to_string(), |second| format!("<{}", second.as_char()));
        let place = SourceRange::between(sign.span(), second.map_or(sign.span(), Punct::span));
        let message = format!("behind a conversion, `{code}` begins arguments of the type, in Rust too");
        let help = format!("put the conversion in parentheses: `(.. as {ty}) {code} ..`");
        errors.report_help(place, message, help);
    }
}

/// `<const BLOCK>`
fn constexprs_without_types(tokens: TokenStream, errors: &mut Errors) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for window in tokens.windows(4) {
        let [TokenTree::Punct(before), TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(after)] =
            window
        else {
            continue;
        };
        if word == "const" && matches!(before.as_char(), '<' | ',') && matches!(after.as_char(), '>' | ',' | '=') {
            let place = SourceRange::at(name.span());
            let help = Help::write(place, format!("{name}: usize")).said(format!("write `const {name}: usize`"));
            errors.report_help(place, format!("the constexpr `{name}` has no type"), help);
        }
    }
}

/// `(x: Ptr<f32>, BLOCK: tl.constexpr)`
fn constexprs_as_parameters(tokens: TokenStream, errors: &mut Errors) {
    for group in tokens {
        let TokenTree::Group(group) = group else { continue };
        let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
        let is = |at: Option<usize>, symbol| matches!(at.and_then(|at| tokens.get(at)), Some(TokenTree::Punct(punct)) if punct.as_char() == symbol);
        for (at, token) in tokens.iter().enumerate() {
            if group.delimiter() != Delimiter::Parenthesis
                || !matches!(token, TokenTree::Ident(word) if word == "constexpr")
            {
                continue;
            }
            let path = if is(at.checked_sub(1), '.') { 3 } else { 1 };
            let Some(TokenTree::Ident(name)) = at.checked_sub(path + 1).and_then(|at| tokens.get(at)) else { continue };
            if is(at.checked_sub(path), ':') {
                let message = format!("`{name}` is a constexpr, which is a const generic and no parameter");
                let help = format!("write `const {name}: usize` in the generics: `fn kernel<const {name}: usize>(..)`");
                errors.report_help(SourceRange::between(name.span(), token.span()), message, help);
            }
        }
    }
}

/// The group of brackets in `<T, [M, N]`.
fn bare_shape(tokens: &[TokenTree]) -> Option<&Group> {
    let is = |token: &TokenTree, symbol| matches!(token, TokenTree::Punct(punct) if punct.as_char() == symbol);
    let [open, _, comma, TokenTree::Group(shape), ..] = tokens else { return None };
    (is(open, '<') && is(comma, ',') && shape.delimiter() == Delimiter::Bracket).then_some(shape)
}

/// What is in the brackets, as it is written.
fn text(shape: &Group) -> String {
    let source = shape.span().source_text();
    let inner = source.as_deref().and_then(|text| text.strip_prefix('[')?.strip_suffix(']'));
    inner.map_or_else(|| shape.stream().to_string(), str::to_string)
}
