//! Helpers: expand a kernel from its source.

use std::str::FromStr;

use kernel_core::ir::Func;
use kernel_core::{text, verify};
use proc_macro2::{TokenStream, TokenTree};

use crate::error::Errors;
use crate::expand::expand_into;

/// Expands a kernel given as source and returns the tokens and the messages as `line:column: text`.
pub fn expand(attr: &str, source: &str) -> (TokenStream, Vec<String>) {
    let tokens = |text| TokenStream::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    // Positions count from the start of the item: the source is lexed first, so that it lies at the front of its file.
    let item = tokens(source);
    let mut errors = Errors::default();
    let expansion = expand_into(tokens(attr), item, &mut errors);
    let mut list: Vec<_> = errors.list().iter().map(|m| (m.place.start.start(), m.text())).collect();
    list.sort_by_key(|(at, _)| (at.line, at.column));
    (expansion, list.into_iter().map(|(at, text)| format!("{}:{}: {text}", at.line, at.column + 1)).collect())
}

/// The kernel's IR, verified.
pub fn func(source: &str) -> Func {
    func_with("", source)
}

/// The kernel's IR with arguments of the attribute.
pub fn func_with(attr: &str, source: &str) -> Func {
    let (tokens, messages) = expand(attr, source);
    assert!(messages.is_empty(), "{source}\n{}", messages.join("\n"));
    let ir = literal_after(tokens, "ir").unwrap_or_else(|| panic!("no IR for {source}"));
    let func = text::parse(&ir).unwrap_or_else(|e| panic!("{e}\n{ir}"));
    verify::verify(&func).unwrap_or_else(|e| panic!("{e:?}\n{ir}"));
    assert_eq!(text::print(&func), ir, "the text form round-trips");
    func
}

/// The text of the kernel's body, without spans.
pub fn body(source: &str) -> String {
    text::print_without_spans(&func(source))
}

/// The string literal after `name:`.
pub fn literal_after(tokens: TokenStream, name: &str) -> Option<String> {
    let mut found = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                if let Some(text) = literal_after(group.stream(), name) {
                    return Some(text);
                }
            }
            TokenTree::Ident(ident) => found = ident == name,
            TokenTree::Punct(punct) if punct.as_char() == ':' => {}
            TokenTree::Literal(literal) if found => {
                return syn::parse2::<syn::LitStr>(TokenTree::from(literal).into()).ok().map(|l| l.value());
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => found = false,
        }
    }
    None
}
