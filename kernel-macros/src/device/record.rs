//! A `#[device]` struct: values with names that are passed on as one.
//!
//! To type checking it is the function that makes one of its fields, so that it travels, is generic and infers its
//! parameters as functions do. A value of it is a tuple whose parts have names.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Fields, ItemStruct, Pat, PatIdent};

use super::function::{self, Calls, Function, FunctionParam};
use crate::attributes::LEVELS;
use crate::error::Errors;
use crate::signature::{self, KernelItem};
use crate::source_range::SourceRange;
use crate::typeck::collect_shape_constants;

/// Whether an item is a struct, though one that may not be readable.
pub fn is_struct(item: &TokenStream) -> bool {
    let word = |token: &TokenTree| match token {
        TokenTree::Ident(word) => Some(word.to_string()),
        TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    };
    item.clone().into_iter().filter_map(|token| word(&token)).find(|word| word != "pub").is_some_and(|w| w == "struct")
}

/// Its signature, as a function's without parameters.
pub fn head(item: &ItemStruct) -> syn::Signature {
    let (ident, generics, clause) = (&item.ident, &item.generics, &item.generics.where_clause);
    syn::parse_quote!(fn #ident #generics () #clause)
}

/// Reads a struct; nothing if its fields have no names.
pub fn read(key: &str, item: ItemStruct, calls: Calls, errors: &mut Errors) -> Option<Function> {
    let Fields::Named(fields) = &item.fields else {
        let help = "name them: `struct Stats { max: f32, sum: f32 }`; values without names are a tuple";
        let place = SourceRange::at(item.ident.span());
        errors.report_help(place, "the fields of a `#[device]` struct have names", help);
        return None;
    };
    if fields.named.is_empty() {
        let place = SourceRange::at(item.ident.span());
        errors.report_help(place, "a `#[device]` struct has at least one field", "give it a field");
        return None;
    }
    // rustc evaluates the conditions of the whole struct only.
    item.attrs
        .iter()
        .filter(|attr| !attr.path().is_ident("cfg"))
        .for_each(|attr| check_attribute(attr, "struct", errors));
    fields.named.iter().flat_map(|field| &field.attrs).for_each(|attr| check_attribute(attr, "struct", errors));
    let mut params: Vec<FunctionParam> = Vec::new();
    for field in &fields.named {
        let Some(ident) = &field.ident else { continue };
        let named = |param: &FunctionParam| matches!(&param.pat, Pat::Ident(before) if before.ident == *ident);
        if params.iter().any(named) {
            let message = format!("the field `{ident}` is declared twice");
            errors.report_help(SourceRange::at(ident.span()), message, "give each a name of its own");
            continue;
        }
        let (attrs, ident) = (Vec::new(), ident.clone());
        let pat = Pat::Ident(PatIdent { attrs, by_ref: None, mutability: None, ident, subpat: None });
        params.extend(function::value_type(&field.ty, "field", errors).map(|ty| FunctionParam { pat, ty: ty.clone() }));
    }
    let mut braces = Group::new(Delimiter::Brace, fields.named.to_token_stream());
    braces.set_span(fields.brace_token.span.join());
    let (sig, tokens) = (head(&item), item.to_token_stream());
    let head = KernelItem { attrs: item.attrs.clone(), vis: item.vis.clone(), sig, body: braces.clone() };
    let signature = signature::read_function(head, "a `#[device]` struct", errors);
    let (inner, stmts, calls) = (Vec::new(), Vec::new(), std::rc::Rc::new(calls));
    let shape_constants = collect_shape_constants(&[], &[], params.iter().map(|param| &param.ty));
    let key = key.to_string();
    Some(Function {
        signature,
        params,
        output: None,
        inner,
        stmts,
        braces,
        tokens,
        calls,
        key,
        shape_constants,
        is_struct: true,
        methods: BTreeMap::new(),
        method: None,
    })
}

/// Refuses an attribute that means nothing on a `#[device]` struct or `impl`.
pub fn check_attribute(attr: &Attribute, what: &str, errors: &mut Errors) {
    let path = attr.path();
    if path.is_ident("doc") || LEVELS.iter().any(|level| path.is_ident(level)) {
        return;
    }
    let help = match path.is_ident("derive") {
        true => "remove it: values of kernels are copied anyway, and exist nowhere else",
        false => "remove it",
    };
    let message = format!("`#[{}]` is not supported on a `#[device]` {what}", path.to_token_stream());
    errors.report_help(SourceRange::of_tokens(attr), message, help);
}
