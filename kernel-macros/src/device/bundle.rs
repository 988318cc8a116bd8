//! How functions travel: as tokens that a `macro_rules!` of their name hands on.
//!
//! A bundle is a function with all functions that it calls, directly or not, so that whoever inlines it needs no name of
//! the module that it comes from:
//!
//! ```text
//! { silu_5f3a { fn silu<..>(..) -> .. { .. } } { { (math::half) half_81c0 } .. } }     the function
//! { half_81c0 { fn half<..>(..) -> .. { .. } } { } }                                   one that it calls
//! { S_17ab { struct S { .. } } { } { (new) new_5d20 } }                                a struct with a method
//! ```
//!
//! The body of a function with mistakes, which have been reported, is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::Path;

use super::collect::path_text;
use super::function::{self, Calls, Function};
use super::methods::Receiver;

/// The functions that a kernel or a function inlines.
#[derive(Default)]
pub struct Functions {
    entries: BTreeMap<String, Rc<Function>>,
    /// How the body itself names what it calls, by its key.
    paths: BTreeMap<String, TokenStream>,
    /// The key of the struct whose methods these are for: its constants are at hand.
    pub own: Option<String>,
    /// What the body itself calls.
    pub calls: Rc<Calls>,
    /// Whether one of them has mistakes.
    pub is_broken: bool,
}

/// One function of a bundle, as tokens.
pub struct Entry {
    /// What tells it from all others.
    pub key: String,
    /// Its tokens.
    pub item: TokenStream,
    /// What it calls, as keys, with the paths by which it does.
    calls: Calls,
    /// The calls as tokens.
    pub written: TokenStream,
    /// The keys of its methods, by their names.
    methods: BTreeMap<String, String>,
    /// All of it.
    pub whole: TokenTree,
}

/// A struct that is exported with its methods.
pub struct Joint<'j> {
    /// The struct's key.
    pub key: &'j Ident,
    /// Its name.
    pub ident: &'j Ident,
    /// Its tokens.
    pub fields: &'j TokenStream,
    /// What its fields name.
    pub calls: &'j TokenStream,
    /// The keys of its methods, by their names.
    pub methods: &'j BTreeMap<String, String>,
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
                    functions.paths.entry(entry.key.clone()).or_insert_with(|| macro_path(path));
                }
                functions.add(entry);
            }
        }
        functions.calls = Rc::new(calls);
        functions
    }

    fn add(&mut self, Entry { key, item, calls, methods, .. }: Entry) {
        match function::read_inlined(&key, item, calls, methods) {
            Some(function) => drop(self.entries.insert(key, Rc::new(function))),
            None => self.is_broken = true,
        }
    }

    /// The function that a path calls, in a body with those calls.
    pub fn find(&self, calls: &Calls, path: &str) -> Option<Rc<Function>> {
        calls.get(path).and_then(|key| self.entries.get(key)).cloned()
    }

    /// The function with that key.
    pub fn of_key(&self, key: &str) -> Option<Rc<Function>> {
        self.entries.get(key).cloned()
    }

    /// Whether a struct has a method of that name.
    pub fn has_method(&self, name: &str) -> bool {
        self.entries.values().any(|entry| entry.methods.contains_key(name))
    }

    /// The names of the methods that take `&mut self`.
    pub fn changing(&self) -> BTreeSet<String> {
        let changes = |function: &&Rc<Function>| {
            function.method.as_ref().is_some_and(|method| method.receiver == Some(Receiver::Mutable))
        };
        self.entries.values().filter(changes).map(|function| function.ident().to_string()).collect()
    }

    /// How the body itself names a function or struct, if it does.
    pub fn path_of(&self, key: &str) -> Option<&TokenStream> {
        self.paths.get(key)
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

/// The bundle of a struct with its methods, which are left out after a mistake, and all that these and its fields name.
pub fn write_joint(
    of: &Joint<'_>,
    methods: &[(Ident, TokenStream)],
    fields: &[Entry],
    found: &[(Path, TokenStream)],
    is_right: bool,
) -> TokenStream {
    let Joint { key, ident, fields: item, calls, methods: named } = of;
    let item = is_right.then_some(item);
    // What the methods call and what travels with that, as of a function that calls all of it.
    let mut tokens = write(key, &TokenStream::new(), found).into_iter();
    let head: Vec<TokenTree> =
        tokens.next().and_then(group).map(|g| g.stream().into_iter().collect()).unwrap_or_default();
    let called = head.into_iter().nth(2).and_then(group).map(|group| group.stream()).unwrap_or_default();
    let names = named.iter().map(|(name, key)| {
        let (name, key) = (Ident::new(name, ident.span()), Ident::new(key, ident.span()));
        quote!({ (#name) #key })
    });
    let methods = methods.iter().map(|(method, item)| quote!({ #method { #item } { { (#ident) #key } #called } }));
    let fields = fields.iter().map(|entry| &entry.whole);
    quote!({ #key { #item } { #calls } { #(#names)* } } #(#methods)* #(#fields)* #(#tokens)*)
}

/// The functions of a bundle.
pub fn entries(bundle: TokenStream) -> Vec<Entry> {
    let entry = |whole: TokenTree| {
        let mut tokens = group(whole.clone())?.stream().into_iter();
        let key = tokens.next()?.to_string();
        let (item, calls) = (group(tokens.next()?)?.stream(), group(tokens.next()?)?.stream());
        let call = |token| {
            let mut tokens = group(token)?.stream().into_iter();
            let path = syn::parse2::<Path>(group(tokens.next()?)?.stream()).ok()?;
            Some((path_text(&path), tokens.next()?.to_string()))
        };
        let methods = tokens.next().and_then(group).map(|group| group.stream()).unwrap_or_default();
        let [read, methods] = [calls.clone(), methods].map(|calls| calls.into_iter().filter_map(call).collect());
        Some(Entry { key, item, calls: read, written: calls, methods, whole })
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
