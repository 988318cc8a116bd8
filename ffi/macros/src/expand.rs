//! From a function under `#[op(..)]` to the function, a constant that describes it, and a way to call it.

use crate::attribute::Options;
use crate::params::{self, Kind, Param};
use crate::shapes::Scope;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, GenericParam, ItemFn, ReturnType};

/// Expands the attribute.
pub fn expand(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let mut function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let error =
                Error::new(error.span(), format!("`#[op]` stands in front of a function: {error}")).to_compile_error();
            return quote!(#error #item);
        }
    };
    let mut errors = Errors::default();
    let options = errors.note(syn::parse2::<Options>(attribute)).unwrap_or_default();
    check_signature(&function, &mut errors);
    let params: Vec<Param> = function.sig.inputs.iter_mut().filter_map(|arg| errors.note(Param::read(arg))).collect();
    let made = if errors.0.is_none() { describe(&function, &options, params, &mut errors) } else { TokenStream::new() };
    match errors.0 {
        None => quote!(#function #made),
        Some(error) => {
            let (error, stand_in) = (error.to_compile_error(), stand_in(&function));
            quote!(#function #error #stand_in)
        }
    }
}

/// An operator without parameters, so that whoever names one that has a mistake gets no further message.
fn stand_in(function: &ItemFn) -> TokenStream {
    let (name, visibility) = (&function.sig.ident, &function.vis);
    quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        #visibility enum #name {}

        impl ::tilewright_ffi::Exported for #name {
            const OP: &'static ::tilewright_ffi::op::Op = ::tilewright_ffi::op::Op::MISTAKEN;

            fn call(_: ::tilewright_ffi::call::Args<'_>) -> ::tilewright_ffi::Result<()> {
                ::core::result::Result::Ok(())
            }
        }
    }
}

/// The mistakes so far.
#[derive(Default)]
struct Errors(Option<Error>);

impl Errors {
    fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn report(&mut self, span: Span, message: impl std::fmt::Display) {
        self.add(Error::new(span, message));
    }

    fn note<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }
}

fn check_signature(function: &ItemFn, errors: &mut Errors) {
    let signature = &function.sig;
    let name = signature.ident.unraw().to_string();
    errors.note(params::check_name(&name, signature.ident.span()));
    for param in &signature.generics.params {
        if !matches!(param, GenericParam::Lifetime(_)) {
            errors.report(param.span(), "an operator has no type parameters; use `dispatch!` on the dtype of a tensor");
        }
    }
    if let Some(token) = &signature.asyncness {
        errors.report(token.span(), "an operator is an ordinary function: what it launches runs later by itself");
    }
    if let Some(token) = &signature.unsafety {
        errors.report(token.span(), "an operator is called by anybody, and cannot be `unsafe`");
    }
    if matches!(signature.output, ReturnType::Default) {
        errors.report(signature.ident.span(), "an operator returns `Result<()>`");
    }
}

/// The constant and the call.
fn describe(function: &ItemFn, options: &Options, params: Vec<Param>, errors: &mut Errors) -> TokenStream {
    let signature = &function.sig;
    check_params(signature, &params, options, errors);
    let taken: Vec<TokenStream> = params.iter().map(Param::taken).collect();
    let (scratch, params): (Vec<Param>, Vec<Param>) =
        params.into_iter().partition(|param| matches!(param.kind, Kind::Scratch));
    let outputs: Vec<String> = options.outputs.iter().map(|output| output.name.unraw().to_string()).collect();
    let scope = Scope { params: &params, outputs: &outputs };
    let described: Vec<TokenStream> =
        params.iter().filter_map(|param| errors.note(described(param, options, &scope))).collect();
    if errors.0.is_some() {
        return TokenStream::new();
    }

    let (name, visibility) = (&signature.ident, &function.vis);
    let text = name.unraw().to_string();
    let docs = docs(function);
    let has_scratch = !scratch.is_empty();
    let vmap = match options.vmap.as_ref().map(Ident::to_string).as_deref() {
        Some("expand_dims") => quote!(ExpandDims),
        Some("broadcast_all") => quote!(BroadcastAll),
        _ => quote!(Sequential),
    };
    let backward = match options.backward.as_ref().and_then(|path| path.segments.last()) {
        Some(last) => {
            let last = last.ident.unraw().to_string();
            quote!(::core::option::Option::Some(::std::borrow::Cow::Borrowed(#last)))
        }
        None => quote!(::core::option::Option::None),
    };
    let check = options.backward.as_ref().map(|path| {
        quote_spanned! {path.span()=>
            const _: () = ::tilewright_ffi::backward::check_backward(
                <#name as ::tilewright_ffi::Exported>::OP,
                <#path as ::tilewright_ffi::Exported>::OP,
            );
        }
    });
    let gradient = options.backward.as_ref().map(|path| {
        quote! {
            const BACKWARD: ::core::option::Option<&'static ::tilewright_ffi::native::Operator> =
                ::core::option::Option::Some(&<#path as ::tilewright_ffi::Exported>::OPERATOR);
        }
    });
    // What the function returns is judged where it says so.
    let returned = match &signature.output {
        ReturnType::Type(_, ty) => ty.span(),
        ReturnType::Default => signature.ident.span(),
    };
    let mut called = name.clone();
    called.set_span(returned);
    let called = quote_spanned! {returned=>
        let done: ::core::result::Result<(), _> = #called(#(#taken),*);
    };
    quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        #visibility enum #name {}

        impl ::tilewright_ffi::Exported for #name {
            const OP: &'static ::tilewright_ffi::op::Op = {
                #[allow(unused_imports)]
                use ::tilewright_ffi::op::{
                    AttributeType, DTypeOf, Dim, Expr, Function, Kind, Op, Output, Param, ShapeOf, Vmap,
                };
                &Op {
                    name: ::std::borrow::Cow::Borrowed(#text),
                    docs: ::std::borrow::Cow::Borrowed(#docs),
                    params: ::std::borrow::Cow::Borrowed(&[#(#described),*]),
                    backward: #backward,
                    vmap: Vmap::#vmap,
                    scratch: #has_scratch,
                }
            };

            #gradient

            fn call(mut args: ::tilewright_ffi::call::Args<'_>) -> ::tilewright_ffi::Result<()> {
                #called
                done.map_err(::core::convert::Into::into)
            }
        }

        #check
    }
}

/// What only all parameters together can have wrong.
fn check_params(signature: &syn::Signature, params: &[Param], options: &Options, errors: &mut Errors) {
    let written: Vec<&Param> = params.iter().filter(|param| matches!(param.kind, Kind::Written { .. })).collect();
    let mut seen: Vec<String> = Vec::new();
    for output in &options.outputs {
        let name = output.name.unraw().to_string();
        if !written.iter().any(|param| param.name == name) {
            let names: Vec<String> = written.iter().map(|param| format!("`{}`", param.name)).collect();
            let known =
                if names.is_empty() { "there is none".into() } else { format!("there is {}", names.join(", ")) };
            errors.report(output.name.span(), format!("an output is a parameter of type `TensorMut<'_>`; {known}"));
        } else if seen.contains(&name) {
            errors.report(output.name.span(), format!("`{name}` is given twice"));
        }
        seen.push(name);
    }
    let is_output = |param: &Param| seen.contains(&param.name);
    let is_given = |param: &Param| {
        matches!(param.kind, Kind::Input { optional: false } | Kind::Written { .. }) && !is_output(param)
    };
    if errors.0.is_none() && !params.iter().any(is_given) {
        let message = "an operator takes at least one tensor that is not optional, which tells the device";
        errors.report(signature.ident.span(), message);
    }
    let mut with_default: Option<&Param> = None;
    for param in params {
        match &param.kind {
            Kind::Attribute { default: Some(_), .. } => with_default = Some(param),
            Kind::Written { optional: true } if !is_output(param) => {
                errors.report(param.span, "a tensor that is written in place cannot be an `Option`");
            }
            Kind::Input { optional: false } | Kind::Attribute { default: None, .. } | Kind::Written { .. }
                if !is_output(param) =>
            {
                if let Some(earlier) = with_default {
                    let message = format!(
                        "`{}` stands behind `{}`, which has a default, and needs one too",
                        param.name, earlier.name
                    );
                    errors.report(param.span, message);
                }
            }
            _ => {}
        }
    }
}

/// The expression of type `Param`.
fn described(param: &Param, options: &Options, scope: &Scope<'_>) -> syn::Result<TokenStream> {
    let name = &param.name;
    let output = options.outputs.iter().find(|output| output.name.unraw() == name.as_str());
    let kind = match (&param.kind, output) {
        (Kind::Written { optional }, Some(output)) => {
            let output = output.lower(scope, *optional)?;
            quote!(Kind::Output(#output))
        }
        (Kind::Written { .. } | Kind::Scratch, _) => quote!(Kind::InPlace),
        (Kind::Input { optional }, _) => quote!(Kind::Input { optional: #optional }),
        (Kind::Attribute { of, default }, _) => {
            let of = of.variant();
            let default = match default {
                Some(default) => quote!(::core::option::Option::Some(#default)),
                None => quote!(::core::option::Option::None),
            };
            quote!(Kind::Attribute { of: AttributeType::#of, default: #default })
        }
        (Kind::OptionalAttribute { of }, _) => {
            let of = of.variant();
            quote!(Kind::OptionalAttribute { of: AttributeType::#of })
        }
    };
    Ok(quote!(Param { name: ::std::borrow::Cow::Borrowed(#name), kind: #kind }))
}

/// The documentation of a function, without the space that begins its lines.
fn docs(function: &ItemFn) -> String {
    let lines = function.attrs.iter().filter_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let lines: Vec<String> = lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).to_string()).collect();
    lines.join("\n").trim().to_string()
}
