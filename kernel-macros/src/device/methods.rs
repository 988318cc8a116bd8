//! Methods: `#[device(methods)] struct S` and `#[device] impl S`, in one module.
//!
//! What a struct exports is all that a kernel elsewhere gets of it, so its methods have to be in there. The struct exports
//! its tokens for the `impl` only, through a macro of another name, and the `impl` exports both under the struct's name:
//!
//! ```text
//! #[device(methods)] struct S { .. }     =>  struct S, macro_rules! device_methods_of_S     its fields
//! #[device] impl S { fn new() .. }       =>  macro_rules! S                                 its fields and methods
//! ```
//!
//! A method is a function of the struct's namespace that has the generic parameters of the `impl` before its own. Its
//! receiver is its first parameter, `self`. `Self` is written out when the `impl` is read.

use std::collections::BTreeMap;

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{
    Attribute, FnArg, GenericArgument, Generics, Pat, PatIdent, PatType, Path, PathArguments, PathSegment, Signature,
    Token, Type, Visibility, parse_quote,
};

use super::bundle::{self, Entry, Functions};
use super::export::{self, ConstantField};
use super::function::{self, Calls, Function};
use super::{Exported, Found, Owner, collect, krate, record};
use crate::error::Errors;
use crate::launcher::{self, Body};
use crate::signature::{KernelItem, strip};
use crate::source::Source;
use crate::source_range::SourceRange;
use crate::typeck::Checks;
use crate::{lints, parse_errors, typeck};

/// How a method takes its struct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    /// `self` or `&self`: a copy.
    Value,
    /// `&mut self`: the caller's variable.
    Mutable,
}

/// What makes a function a method.
#[derive(Clone)]
pub struct Method {
    /// The struct's name.
    pub of: Ident,
    /// The generic arguments of the struct in the head of the `impl`.
    pub arguments: Vec<GenericArgument>,
    /// How many generic parameters are the `impl`'s.
    pub generics: usize,
    /// `self`, if it has one.
    pub receiver: Option<Receiver>,
}

/// `impl<..> S<..> { fn ..  fn .. }`
pub struct Impl {
    attrs: Vec<Attribute>,
    generics: Generics,
    /// The struct.
    of: Path,
    /// `for`, if the methods are a trait's.
    of_trait: Option<Token![for]>,
    methods: Vec<KernelItem>,
}

impl Parse for Impl {
    fn parse(input: ParseStream<'_>) -> syn::Result<Impl> {
        let attrs = input.call(Attribute::parse_outer)?;
        input.parse::<Token![impl]>()?;
        let mut generics: Generics = input.parse()?;
        let mut ty: Type = input.parse()?;
        let of_trait: Option<Token![for]> = input.parse()?;
        if of_trait.is_some() {
            ty = input.parse()?;
        }
        generics.where_clause = input.parse()?;
        let of = match strip(&ty) {
            Type::Path(path) if path.qself.is_none() => path.path.clone(),
            other => return Err(syn::Error::new_spanned(other, "expected the name of a `#[device]` struct")),
        };
        let (mut methods, content);
        syn::braced!(content in input);
        methods = Vec::new();
        let itself = written_out(&of);
        let tokens: TokenStream = content.parse()?;
        let read = |input: ParseStream<'_>| {
            while !input.is_empty() {
                methods.push(input.parse::<KernelItem>()?);
            }
            Ok(())
        };
        syn::parse::Parser::parse2(read, without_self(tokens, &itself))?;
        Ok(Impl { attrs, generics, of, of_trait, methods })
    }
}

/// `S::<T, N>`, which may stand among types and values.
fn written_out(path: &Path) -> Path {
    let mut path = path.clone();
    for segment in &mut path.segments {
        if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
            arguments.colon2_token = Some(Token![::](arguments.lt_token.span));
        }
    }
    path
}

/// Writes `Self` out.
fn without_self(tokens: TokenStream, itself: &Path) -> TokenStream {
    let written = |token| match token {
        TokenTree::Ident(word) if word == "Self" => respanned(itself.to_token_stream(), &word),
        TokenTree::Group(group) => {
            let mut inner = Group::new(group.delimiter(), without_self(group.stream(), itself));
            inner.set_span(group.span());
            TokenTree::Group(inner).into()
        }
        other => other.into(),
    };
    tokens.into_iter().flat_map(|token| -> TokenStream { written(token) }).collect()
}

/// Tokens that stand where `Self` is.
fn respanned(tokens: TokenStream, at: &Ident) -> TokenStream {
    let mut place = |mut token: TokenTree| {
        if let TokenTree::Group(group) = &token {
            token = TokenTree::Group(Group::new(group.delimiter(), respanned(group.stream(), at)));
        }
        token.set_span(token.span().resolved_at(token.span()).located_at(at.span()));
        token
    };
    tokens.into_iter().map(&mut place).collect()
}

/// Whether an item is an `impl`, though one that may not be readable.
pub fn is_impl(item: &TokenStream) -> bool {
    let word = item.clone().into_iter().find_map(|token| match token {
        TokenTree::Ident(word) => Some(word.to_string()),
        TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
    });
    word.is_some_and(|word| word == "impl")
}

/// The macro by which a struct hands itself to the `impl` of its methods.
pub fn macro_of(ident: &Ident) -> Ident {
    format_ident!("device_methods_of_{}", ident.unraw(), span = ident.span())
}

/// What an `impl` that has been given says: that it is there.
fn proof_of(ident: &Ident) -> Ident {
    format_ident!("device_impl_of_{}", ident.unraw(), span = ident.span())
}

impl Impl {
    fn ident(&self) -> Option<&Ident> {
        self.of.segments.last().map(|segment| &segment.ident)
    }

    /// A method as a free function, whose receiver is its first parameter.
    fn function(&self, method: &KernelItem) -> (KernelItem, Method) {
        let (mut sig, mut generics) = (method.sig.clone(), self.generics.clone());
        let count = generics.params.len();
        generics.params.extend(std::mem::take(&mut sig.generics.params));
        if generics.where_clause.is_none() {
            generics.where_clause = sig.generics.where_clause.take();
        }
        sig.generics = generics;
        let mut receiver = None;
        if let Some(FnArg::Receiver(written)) = sig.inputs.first().cloned() {
            let changes = written.reference.is_some() && written.mutability.is_some();
            receiver = Some(if changes { Receiver::Mutable } else { Receiver::Value });
            let (attrs, ident) = (Vec::new(), Ident::new("self", written.self_token.span));
            let pat = Pat::Ident(PatIdent { attrs, by_ref: None, mutability: written.mutability, ident, subpat: None });
            let of = written_out(&self.of);
            let ty: Type = parse_quote!(#of);
            let colon_token = Token![:](written.self_token.span);
            let typed = PatType { attrs: written.attrs, pat: Box::new(pat), colon_token, ty: Box::new(ty) };
            sig.inputs[0] = FnArg::Typed(typed);
        }
        let arguments = match self.of.segments.last().map(|segment| &segment.arguments) {
            Some(PathArguments::AngleBracketed(arguments)) => arguments.args.iter().cloned().collect(),
            _ => Vec::new(),
        };
        let (attrs, vis) = (method.attrs.clone(), method.vis.clone());
        let of = self.ident().cloned().unwrap_or_else(|| method.sig.ident.clone());
        let method = KernelItem { attrs, vis, sig, body: method.body.clone() };
        (method, Method { of, arguments, generics: count, receiver })
    }

    /// The `impl` with one method only.
    fn alone(&self, method: &KernelItem) -> TokenStream {
        let (generics, of, clause) = (&self.generics, &self.of, &self.generics.where_clause);
        let KernelItem { attrs, vis, sig, body } = method;
        quote!(impl #generics #of #clause { #(#attrs)* #vis #sig #body })
    }
}

/// Reads the one method of an `impl` that travels.
pub fn read_inlined(key: &str, item: TokenStream, calls: Calls, errors: &mut Errors) -> Option<Function> {
    let read = syn::parse2::<Impl>(item).ok()?;
    let (item, method) = read.function(read.methods.first()?);
    let function = function::read(key, item, calls, errors)?;
    Some(Function { method: Some(method), ..function })
}

/// What says that there is an `impl`, whatever is wrong with it.
pub fn proof(item: &TokenStream) -> Option<TokenStream> {
    let read = syn::parse2::<Impl>(item.clone()).ok()?;
    let proof = proof_of(read.ident()?);
    Some(quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        struct #proof;
    })
}

/// The functions and structs that the methods name, behind the macro of the struct itself.
pub fn pending(item: &TokenStream) -> Option<Vec<Path>> {
    let read = syn::parse2::<Impl>(item.clone()).ok()?;
    let own = read.ident()?.clone();
    let mut paths = vec![Path::from(macro_of(&own))];
    for method in &read.methods {
        let (item, _) = read.function(method);
        let (_, stmts) = function::body(&item.body).ok()?;
        for path in collect::calls(Owner::Device, &item.sig, &stmts) {
            let text = collect::path_text(&path);
            let is_known = paths.iter().any(|known| collect::path_text(known) == text);
            if !is_known && own != text {
                paths.push(path);
            }
        }
    }
    Some(paths)
}

/// What a struct becomes that has methods: the macro that the `impl` asks, and the question whether there is one.
pub fn of_struct(head: &export::Export<'_>, bundle: &TokenStream) -> TokenStream {
    let (ident, written, cfgs) = (head.ident, head.declared(), export::cfgs(head.attrs));
    let (name, proof) = (macro_of(ident), proof_of(ident));
    let rules = format_ident!("{name}_rules");
    quote! {
        #written
        #(#cfgs)*
        #[doc(hidden)]
        #[allow(unused_macros)]
        macro_rules! #rules {
            ({ $($next:tt)* } $($state:tt)*) => { $($next)* ! { { #bundle } $($state)* } };
        }
        #(#cfgs)*
        #[doc(hidden)]
        #[allow(unused_imports)]
        use #rules as #name;
        #(#cfgs)*
        const _: ::core::marker::PhantomData<#proof> = ::core::marker::PhantomData;
    }
}

/// Checks and exports the methods of a struct together with it.
pub fn finish(attr: &TokenStream, item: TokenStream, found: &Found, errors: &mut Errors) -> Option<Exported> {
    let read = match syn::parse2::<Impl>(item.clone()) {
        Ok(read) => read,
        Err(error) => {
            parse_errors::report(item, &error, errors);
            return None;
        }
    };
    let (ident, before) = (read.ident()?.clone(), errors.list().len());
    read.attrs.iter().for_each(|attr| record::check_attribute(attr, "impl", errors));
    if let Some(token) = &read.of_trait {
        let help = "write `impl` and the struct alone";
        errors.report_help(SourceRange::at(token.span), "a `#[device]` impl has no methods of traits", help);
    }
    let own = macro_of(&ident);
    let (of_struct, found): (Found, Found) = found.iter().cloned().partition(|(path, _)| path.is_ident(&own));
    let entries = bundle::entries(of_struct.first()?.1.clone());
    let Entry { key, item: fields, written: calls, .. } = entries.first()?;
    let vis = syn::parse2::<syn::ItemStruct>(fields.clone()).map_or(Visibility::Inherited, |item| item.vis);
    let mut methods: BTreeMap<String, String> = BTreeMap::new();
    let mut travelling = Vec::new();
    for method in &read.methods {
        let (name, item) = (method.sig.ident.unraw(), read.alone(method));
        method.attrs.iter().for_each(|attr| record::check_attribute(attr, "method", errors));
        check_receiver(&method.sig, errors);
        let method_key = export::key(&name, &item);
        // What is wrong besides the body, before others call it.
        let _ = function::read(&method_key.to_string(), read.function(method).0, Calls::new(), errors);
        if methods.insert(name.to_string(), method_key.to_string()).is_some() {
            let message = format!("the method `{name}` is declared twice");
            errors.report_help(SourceRange::at(method.sig.ident.span()), message, "give each a name of its own");
        }
        travelling.push((method_key, item));
    }
    let (struct_key, others) = (Ident::new(key, ident.span()), entries.get(1..).unwrap_or_default());
    let joint = |inlined: bool| {
        let of = bundle::Joint { key: &struct_key, ident: &ident, fields, calls, methods: &methods };
        bundle::write_joint(&of, &travelling, others, &found, inlined)
    };
    let mut all: Found = vec![(Path::from(ident.clone()), joint(true))];
    all.extend(found.iter().cloned());
    let mut checked = Checked::default();
    let mut functions = Functions::read(&all);
    functions.own = Some(key.clone());
    if errors.list().len() == before && !functions.is_broken {
        checked = check(&read, &travelling, &functions, &krate(attr), errors);
    }
    let bundle = joint(errors.list().len() == before);
    let tokens = export_all(&read, (&vis, &ident), (&struct_key, &bundle), &checked, &krate(attr));
    Some(Exported { tokens, bundle })
}

/// What follows from the methods.
#[derive(Default)]
struct Checked {
    constants: Vec<ConstantField>,
    checks: TokenStream,
}

impl Checked {
    fn export(&mut self, found: &Checks, krate: &TokenStream) {
        for constant in &found.constants {
            let field = constant.field.clone();
            if !self.constants.iter().any(|(known, _)| *known == field) {
                self.constants.push((field, Body::constant(constant, &found.types, krate)));
            }
        }
    }
}

fn check(
    read: &Impl,
    travelling: &[(Ident, TokenStream)],
    functions: &Functions,
    krate: &TokenStream,
    errors: &mut Errors,
) -> Checked {
    let mut checked = Checked::default();
    // The constants in the shapes of its fields.
    if let Some(fields) = functions.own.as_ref().and_then(|key| functions.of_key(key)) {
        let found = typeck::check_function(&fields, functions, Source::new(&fields.braces), &mut Errors::default());
        checked.export(&found, krate);
    }
    for (method, (key, _)) in read.methods.iter().zip(travelling) {
        let before = errors.list().len();
        let (item, method) = read.function(method);
        let calls = functions.calls.as_ref().clone();
        let Some(function) = function::read(&key.to_string(), item, calls, &mut Errors::default()) else { continue };
        let function = Function { method: Some(method), ..function };
        let found = typeck::check_function(&function, functions, Source::new(&function.braces), errors);
        if errors.list().len() > before {
            continue;
        }
        checked.export(&found, krate);
        let blocks = launcher::unsafe_blocks(&found.unsafe_blocks);
        let lints = lints::device_function(&function, functions);
        let asked = &found.asked;
        checked.checks.extend(quote! {
            #[allow(dead_code, non_snake_case)]
            const _: () = { #blocks #lints #asked };
        });
    }
    checked
}

/// Refuses `self: T` and references with lifetimes.
fn check_receiver(sig: &Signature, errors: &mut Errors) {
    let Some(receiver) = sig.receiver() else { return };
    let lifetime = receiver.reference.as_ref().is_some_and(|(_, lifetime)| lifetime.is_some());
    if receiver.colon_token.is_some() || lifetime {
        let place = SourceRange::of_tokens(receiver);
        let message = "a method takes its struct as `self`, `&self` or `&mut self`";
        errors.report_help(place, message, "write one of these");
    }
}

/// The macro, and what rustc knows of the methods.
fn export_all(
    read: &Impl,
    (vis, ident): (&Visibility, &Ident),
    (key, bundle): (&Ident, &TokenStream),
    checked: &Checked,
    krate: &TokenStream,
) -> TokenStream {
    let attrs: [Attribute; 0] = [];
    let item = TokenStream::new();
    let head = export::Export { attrs: &attrs, vis, ident, written: String::new(), item, krate };
    let (rules, constants) = (head.rules(key, bundle), &checked.constants);
    let (fields, function) = head.constants(key, constants);
    let constants = (!constants.is_empty()).then(|| {
        quote! {
            #fields
            #[doc(hidden)]
            #[allow(dead_code, non_snake_case)]
            #function
        }
    });
    let known = read.methods.iter().map(|method| {
        let written = format!("```text\n{}\n```", export::declaration(&method.sig));
        let (vis, name) = (&method.vis, &method.sig.ident);
        let docs = method.attrs.iter().filter(|attr| attr.path().is_ident("doc"));
        quote! {
            #(#docs)*
            ///
            /// Inside kernels and `#[device]` functions:
            #[doc = #written]
            #vis fn #name(only_kernels_call_this: #krate::KernelOnly) {}
        }
    });
    let checks = &checked.checks;
    let known = quote_spanned! {ident.span()=>
        #[allow(dead_code, unused_variables, clippy::all, clippy::nursery, clippy::pedantic)]
        impl #ident { #(#known)* }
    };
    quote!(#constants #known #rules #checks)
}

/// The segments of a path in front of its last, which may name a struct, and the last.
pub fn associated(path: &Path) -> Option<(Path, &PathSegment)> {
    let last = path.segments.last()?;
    let mut prefix = path.clone();
    prefix.segments.pop()?;
    // What is left ends in `::`.
    let segments = prefix.segments.into_iter().collect::<Vec<PathSegment>>();
    let (leading_colon, segments) = (prefix.leading_colon, segments.into_iter().collect());
    let prefix = Path { leading_colon, segments };
    (!prefix.segments.is_empty()).then_some((prefix, last))
}
