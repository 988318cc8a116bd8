//! How functions travel: as tokens that a `macro_rules!` of their name hands on.
//!
//! A bundle is a function with all functions that it calls, directly or not, so that whoever inlines it needs no name of
//! the module that it comes from:
//!
//! ```text
//! { silu_5f3a { fn silu<..>(..) -> .. { .. } } { { (math::half) half_81c0 } .. } }     the function
//! { half_81c0 { fn half<..>(..) -> .. { .. } } { } }                                   one that it calls
//! ```
//!
//! The body of a function with mistakes, which have been reported, is left out.

use std::collections::BTreeMap;
use std::rc::Rc;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::Path;

use super::collect::path_text;
use super::function::{self, Calls, Function};

/// The functions that a kernel or a function inlines.
#[derive(Default)]
pub struct Functions {
    entries: BTreeMap<String, Rc<Function>>,
    /// What the body itself calls.
    pub calls: Rc<Calls>,
    /// Whether one of them has mistakes.
    pub is_broken: bool,
}

/// One function of a bundle, as tokens.
struct Entry {
    key: String,
    item: TokenStream,
    calls: Calls,
}

impl Functions {
    /// Reads what has been collected: the path of each call and its bundle.
    pub fn read(found: &[(Path, TokenStream)]) -> Functions {
        let mut functions = Functions::default();
        let mut calls = Calls::new();
        for (path, bundle) in found {
            for (index, entry) in entries(bundle.clone()).into_iter().enumerate() {
                if index == 0 {
                    calls.insert(path_text(path), entry.key.clone());
                }
                functions.add(entry);
            }
        }
        functions.calls = Rc::new(calls);
        functions
    }

    fn add(&mut self, Entry { key, item, calls }: Entry) {
        match function::read_inlined(&key, item, calls) {
            Some(function) => drop(self.entries.insert(key, Rc::new(function))),
            None => self.is_broken = true,
        }
    }

    /// The function that a path calls, in a body with those calls.
    pub fn find(&self, calls: &Calls, path: &str) -> Option<Rc<Function>> {
        calls.get(path).and_then(|key| self.entries.get(key)).cloned()
    }

    /// Whether nothing is called.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All functions.
    pub fn all(&self) -> impl Iterator<Item = &Function> {
        self.entries.values().map(Rc::as_ref)
    }
}

/// The bundle of a function that calls those that have been collected. `item` is empty after a mistake.
pub fn write(key: &Ident, item: &TokenStream, found: &[(Path, TokenStream)]) -> TokenStream {
    let mut calls = TokenStream::new();
    let mut others: BTreeMap<String, TokenTree> = BTreeMap::new();
    for (path, bundle) in found {
        for (index, token) in bundle.clone().into_iter().enumerate() {
            let TokenTree::Group(group) = &token else { continue };
            let Some(TokenTree::Ident(callee)) = group.stream().into_iter().next() else { continue };
            if index == 0 {
                calls.extend(quote!({ (#path) #callee }));
            }
            others.entry(callee.to_string()).or_insert(token);
        }
    }
    let others = others.into_values();
    quote!({ #key { #item } { #calls } } #(#others)*)
}

fn entries(bundle: TokenStream) -> Vec<Entry> {
    let entry = |token| {
        let mut tokens = group(token)?.stream().into_iter();
        let key = tokens.next()?.to_string();
        let (item, calls) = (group(tokens.next()?)?.stream(), group(tokens.next()?)?.stream());
        let call = |token| {
            let mut tokens = group(token)?.stream().into_iter();
            let path = syn::parse2::<Path>(group(tokens.next()?)?.stream()).ok()?;
            Some((path_text(&path), tokens.next()?.to_string()))
        };
        Some(Entry { key, item, calls: calls.into_iter().filter_map(call).collect() })
    };
    bundle.into_iter().filter_map(entry).collect()
}

/// The group that a token is.
pub fn group(token: TokenTree) -> Option<Group> {
    match token {
        TokenTree::Group(group) => Some(group),
        TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    }
}

/// The name that a path calls, without generic arguments: what stands in front of `!`.
pub fn macro_path(path: &Path) -> TokenStream {
    let mut path = path.clone();
    for segment in &mut path.segments {
        segment.arguments = syn::PathArguments::None;
    }
    path.to_token_stream()
}

/// Tokens in braces.
pub fn braced(tokens: TokenStream) -> TokenTree {
    TokenTree::Group(Group::new(Delimiter::Brace, tokens))
}
