//! A `#[device]` function: its signature and body.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Group, TokenStream};
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Block, FnArg, Ident, Pat, ReturnType, Stmt, Type};

use super::methods::{self, Method};
use super::record;
use crate::error::Errors;
use crate::signature::{self, Generic, KernelItem, Signature, strip};
use crate::source_range::SourceRange;
use crate::typeck::collect_shape_constants;
use crate::{attributes, parse_errors};

/// The functions that are called by each path in a body: their keys.
pub type Calls = BTreeMap<String, String>;

/// A parameter of a function.
pub struct FunctionParam {
    /// Its pattern.
    pub pat: Pat,
    /// Its type.
    pub ty: Type,
}

/// A function that is inlined where it is called.
pub struct Function {
    /// Its name and generic parameters; those of the function are not among its parameters.
    pub signature: Signature,
    /// Its parameters.
    pub params: Vec<FunctionParam>,
    /// What it gives.
    pub output: Option<Type>,
    /// Attributes at the beginning of its body.
    pub inner: Vec<Attribute>,
    /// Its body.
    pub stmts: Vec<Stmt>,
    /// The braces around it.
    pub braces: Group,
    /// The tokens of its signature.
    pub tokens: TokenStream,
    /// The functions that it calls.
    pub calls: std::rc::Rc<Calls>,
    /// What tells it from all others.
    pub key: String,
    /// Paths of constants that its shapes need.
    pub shape_constants: BTreeSet<String>,
    /// Whether it is a struct, whose fields are its parameters.
    pub is_struct: bool,
    /// The keys of the methods of a struct, by their names.
    pub methods: BTreeMap<String, String>,
    /// Of which struct it is a method, and what it takes that as.
    pub method: Option<Method>,
}

impl Function {
    /// Its name.
    pub fn ident(&self) -> &Ident {
        &self.signature.ident
    }

    /// What messages call it.
    pub fn name(&self) -> String {
        match &self.method {
            Some(method) => format!("{}::{}", method.of, self.ident()),
            None => self.ident().to_string(),
        }
    }

    /// The generic parameters that a turbofish behind its name gives.
    pub fn own_generics(&self) -> &[Generic] {
        let outer = self.method.as_ref().map_or(0, |method| method.generics);
        self.signature.generics.get(outer..).unwrap_or_default()
    }
}

/// Reads a function that was read without mistakes where it is declared.
pub fn read_inlined(key: &str, item: TokenStream, calls: Calls, methods: BTreeMap<String, String>) -> Option<Function> {
    let mut errors = Errors::default();
    let function = if record::is_struct(&item) {
        record::read(key, syn::parse2(item).ok()?, calls, &mut errors)?
    } else if methods::is_impl(&item) {
        methods::read_inlined(key, item, calls, &mut errors)?
    } else {
        read(key, syn::parse2(item).ok()?, calls, &mut errors)?
    };
    errors.is_empty().then_some(Function { methods, ..function })
}

/// Reads a function; nothing if its body cannot be parsed.
pub fn read(key: &str, item: KernelItem, calls: Calls, errors: &mut Errors) -> Option<Function> {
    let tokens = quote::ToTokens::to_token_stream(&item.sig);
    attributes::check_signature(&item.sig, errors);
    let (inputs, braces) = (item.sig.inputs.clone(), item.body.clone());
    let attrs = inputs.iter().filter_map(|arg| match arg {
        FnArg::Typed(arg) => Some(&arg.attrs),
        FnArg::Receiver(_) => None,
    });
    if let Some(attr) = attrs.flatten().find(|attr| attr.path().is_ident(signature::IN_PLACE)) {
        let help = "remove it: the kernel that calls the function declares it";
        let message = "a `#[device]` function takes no argument in place of another";
        errors.report_help(SourceRange::of_tokens(attr), message, help);
    }
    let output = match &item.sig.output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some((**ty).clone()),
    };
    if let Some(token) = &item.sig.unsafety {
        let help = "remove it; hints stand in an `unsafe` block in its body";
        errors.report_help(SourceRange::at(token.span), "a `#[device]` function cannot be `unsafe`", help);
    }
    let (inner, stmts) = match body(&braces) {
        Ok(body) => body,
        Err(error) => {
            parse_errors::report(braces.stream(), &error, errors);
            return None;
        }
    };
    attributes::check_body(&inner, &stmts, braces.stream(), errors);
    let params: Vec<FunctionParam> = inputs.iter().filter_map(|input| parameter(input, errors)).collect();
    let types = params.iter().map(|param| &param.ty).chain(&output);
    let shape_constants = collect_shape_constants(&stmts, &[], types);
    let signature = signature::read_function(item, "a `#[device]` function", errors);
    let calls = std::rc::Rc::new(calls);
    let key = key.to_string();
    Some(Function {
        signature,
        params,
        output,
        inner,
        stmts,
        braces,
        tokens,
        calls,
        key,
        shape_constants,
        is_struct: false,
        methods: BTreeMap::new(),
        method: None,
    })
}

/// The statements of a body, and the attributes in front of them: `#![..]`.
pub fn body(braces: &Group) -> syn::Result<(Vec<Attribute>, Vec<Stmt>)> {
    let parse = |input: ParseStream<'_>| Ok((input.call(Attribute::parse_inner)?, input.call(Block::parse_within)?));
    parse.parse2(braces.stream())
}

fn parameter(input: &FnArg, errors: &mut Errors) -> Option<FunctionParam> {
    let FnArg::Typed(typed) = input else { return None };
    let held = signature::option_of(&typed.ty);
    let ty = value_type(held.unwrap_or(&typed.ty), "parameter", errors)?;
    let descriptor = signature::descriptor_of(ty);
    if let Some(descriptor) = &descriptor {
        descriptor.parts(errors).ok()?;
    }
    let what = match (held, descriptor) {
        (Some(inner), _) if matches!(strip(inner), Type::ImplTrait(_)) => {
            let help = "take the closure alone: one that does nothing gives what it is given, `|x| x`";
            errors.report_help(SourceRange::of_type(inner), "an optional parameter cannot be a closure", help);
            return None;
        }
        (Some(_), _) => "an optional parameter",
        (None, Some(_)) => "a descriptor",
        (None, None) => return Some(FunctionParam { pat: (*typed.pat).clone(), ty: (*typed.ty).clone() }),
    };
    match &*typed.pat {
        Pat::Ident(name) if name.mutability.is_none() && name.by_ref.is_none() && name.subpat.is_none() => {}
        Pat::Wild(_) => {}
        pat => {
            let help = match held {
                Some(_) => "write `name: type`; what it holds may be mutable: `if let Some(mut value) = name`",
                None => "write `name: type`",
            };
            errors.report_help(SourceRange::of_pat(pat), format!("{what} needs a name, and cannot be `mut`"), help);
            return None;
        }
    }
    Some(FunctionParam { pat: (*typed.pat).clone(), ty: (*typed.ty).clone() })
}

/// The type of a parameter or field, or of what a parameter holds if there is an argument, if they can have it.
pub fn value_type<'t>(ty: &'t Type, what: &str, errors: &mut Errors) -> Option<&'t Type> {
    let last = match strip(ty) {
        Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default(),
        Type::Reference(reference) => {
            let help = "values are copied: write the type without `&`";
            errors.report_help(SourceRange::of_tokens(reference), format!("a {what} cannot be a reference"), help);
            return None;
        }
        _ => String::new(),
    };
    let place = SourceRange::of_type(ty);
    match last.as_str() {
        "usize" | "isize" => {
            let help = "make it a const generic, `const N: usize`, or write `i32`";
            errors.report_help(place, format!("a {what} cannot be `{last}`"), help);
            None
        }
        "TensorDesc" | "TensorDescMut" if what == "parameter" => Some(ty),
        "Option" if what == "parameter" => {
            let help = "write `Option<Ptr<f32>>`, or another type of what is there or not";
            errors.report_help(place, "an `Option` holds a value or a descriptor", help);
            None
        }
        "TensorDesc" | "TensorDescMut" | "Const" | "Option" => {
            let help = match (what, last.as_str()) {
                ("field", "TensorDesc" | "TensorDescMut" | "Option") => "functions take it as a parameter of its own",
                _ => "pass what the kernel makes of it: a tile, a pointer or a scalar",
            };
            let a = if last == "Option" { "an" } else { "a" };
            errors.report_help(place, format!("a {what} cannot be {a} `{last}`"), help);
            None
        }
        _ => Some(ty),
    }
}
