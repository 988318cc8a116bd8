//! What a `#[device]` function or struct becomes: a macro of its name that hands its tokens on, and an item of that name for
//! imports, editors and documentation.

use std::hash::{DefaultHasher, Hash, Hasher};

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Attribute, Fields, FnArg, ItemStruct, Pat, Signature, Visibility};

use super::bundle::braced;

/// What is exported.
pub struct Export<'a> {
    /// Its attributes other than `#[device]`.
    pub attrs: &'a [Attribute],
    /// Its visibility.
    pub vis: &'a Visibility,
    /// Its name.
    pub ident: &'a Ident,
    /// Its declaration, for the documentation.
    pub written: String,
    /// What rustc knows of it.
    pub item: TokenStream,
    /// Where the facade lives.
    pub krate: &'a TokenStream,
}

/// A field, and the type and value of the constant in it.
pub type ConstantField = (Ident, (TokenStream, TokenStream));

impl Export<'_> {
    /// The item, and the macro that hands on the bundle.
    pub fn tokens(&self, key: &Ident, bundle: &TokenStream, constants: &[ConstantField]) -> TokenStream {
        let Export { written, item, .. } = self;
        let (fields, with_constants) = self.constants(key, constants);
        // rustc knows a function with constants as what gives those.
        let item = if constants.is_empty() { item } else { &with_constants };
        let fields = (!constants.is_empty()).then_some(fields);
        let (declared, rules) =
            (Export { item: item.clone(), written: written.clone(), ..*self }.declared(), self.rules(key, bundle));
        quote!(#fields #declared #rules)
    }

    /// The item that rustc knows, with its documentation.
    pub fn declared(&self) -> TokenStream {
        let Export { attrs, written, item, .. } = self;
        let written = format!("```text\n{written}\n```");
        quote! {
            #(#attrs)*
            ///
            /// Inside kernels and `#[device]` functions:
            #[doc = #written]
            #[allow(dead_code, unused_variables)]
            #item
        }
    }

    /// The macro that hands on the bundle, under the name of the item.
    pub fn rules(&self, key: &Ident, bundle: &TokenStream) -> TokenStream {
        let Export { attrs, vis, ident, .. } = self;
        let is_public = matches!(vis, Visibility::Public(_));
        let exported = is_public.then(|| quote!(#[macro_export]));
        // The macros of all public functions of a crate share its root.
        let name = if is_public { key.clone() } else { format_ident!("{}_device_function", ident.unraw()) };
        let cfgs = cfgs(attrs);
        let bundle = braced(bundle.clone());
        // On the user's tokens, so that rustc's notes about it point there.
        let span = ident.span();
        let rules = quote_spanned! {span=>
            macro_rules! #name {
                ({ $($next:tt)* } $($state:tt)*) => { $($next)* ! { #bundle $($state)* } };
            }
        };
        quote! {
            #(#cfgs)*
            #[doc(hidden)]
            #[allow(unused_macros)]
            #exported
            #rules

            #(#cfgs)*
            #[doc(hidden)]
            #[allow(unused_imports)]
            #vis use #name as #ident;
        }
    }

    /// A struct with a field for each constant that kernels need of the module, and the function that gives it.
    ///
    /// The function is imported as the macro is. The constants may be private: these are copies, whose types rustc checks
    /// here.
    pub fn constants(&self, key: &Ident, constants: &[ConstantField]) -> (TokenStream, TokenStream) {
        let (vis, ident, krate) = (self.vis, self.ident, self.krate);
        let (cfgs, carrier) = (cfgs(self.attrs), format_ident!("{key}_constants"));
        let declared = constants.iter().map(|(field, (ty, _))| quote!(pub #field: #ty));
        let values = constants.iter().map(|(field, (_, value))| quote!(#field: #value));
        let fields = quote! {
            #(#cfgs)*
            #[doc(hidden)]
            #[allow(non_camel_case_types, non_snake_case, missing_docs, unreachable_pub, dead_code)]
            #vis struct #carrier { #(#declared),* }
        };
        // `LIMIT as f32` is right in a kernel also where rustc would know the constant to be one.
        let function = quote! {
            #[allow(clippy::all, clippy::nursery, clippy::pedantic, clippy::restriction)]
            #vis const fn #ident(only_kernels_call_this: ::core::marker::PhantomData<#krate::KernelOnly>) -> #carrier {
                #carrier { #(#values),* }
            }
        };
        (fields, function)
    }
}

/// The conditions among attributes.
pub fn cfgs(attrs: &[Attribute]) -> Vec<&Attribute> {
    attrs.iter().filter(|a| a.path().is_ident("cfg")).collect()
}

/// A function, as rustc knows it.
pub fn function(vis: &Visibility, ident: &Ident, krate: &TokenStream) -> TokenStream {
    quote!(#vis fn #ident(only_kernels_call_this: #krate::KernelOnly) {})
}

/// A struct, as rustc knows it.
pub fn record(vis: &Visibility, ident: &Ident, krate: &TokenStream) -> TokenStream {
    quote!(#vis struct #ident { only_kernels_make_this: #krate::KernelOnly })
}

/// What tells the function from all others.
pub fn key(ident: &Ident, item: &TokenStream) -> Ident {
    let (start, mut hasher) = (ident.span().start(), DefaultHasher::new());
    (ident.span().file(), start.line, start.column, item.to_string()).hash(&mut hasher);
    format_ident!("{}_device_function_{:016x}", ident.unraw(), hasher.finish())
}

/// The declaration as the user wrote it, for the documentation.
pub fn declaration(sig: &Signature) -> String {
    let inputs = sig.inputs.iter().map(|input| match input {
        FnArg::Typed(typed) => {
            let name = match &*typed.pat {
                Pat::Ident(name) => name.ident.to_string(),
                _ => "_".to_string(),
            };
            format!("{name}: {}", text(&typed.ty.to_token_stream()))
        }
        FnArg::Receiver(receiver) => text(&receiver.to_token_stream()).replace("& ", "&"),
    });
    let inputs: Vec<String> = inputs.collect();
    let (generics, output) = (text(&sig.generics.to_token_stream()), text(&sig.output.to_token_stream()));
    let space = if output.is_empty() { "" } else { " " };
    format!("fn {}{generics}({}){space}{output}", sig.ident, inputs.join(", "))
}

/// The declaration of a struct.
pub fn declaration_of_struct(item: &ItemStruct) -> String {
    let fields = match &item.fields {
        Fields::Named(fields) => fields.named.iter().collect(),
        Fields::Unnamed(_) | Fields::Unit => Vec::new(),
    };
    let field = |field: &syn::Field| {
        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        format!("    {name}: {},\n", text(&field.ty.to_token_stream()))
    };
    let fields: String = fields.into_iter().map(field).collect();
    format!("struct {}{} {{\n{fields}}}", item.ident, text(&item.generics.to_token_stream()))
}

/// Tokens with the spaces of rustfmt.
pub fn text(tokens: &TokenStream) -> String {
    let text = tokens.to_string();
    [
        (" < ", "<"),
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        (" :", ":"),
        ("- >", "->"),
        ("[ ", "["),
        (" ]", "]"),
    ]
    .iter()
    .fold(text, |text, (from, to)| text.replace(from, to))
}
