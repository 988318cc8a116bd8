//! The signature of a kernel: dtype parameters, constexprs and parameters.

mod params;

pub use params::{IN_PLACE, descriptor_of, option_of};

use kernel_core::ir::{ConstTy, DType, DTypeBound, Dt, DtypeId, IntTy};
use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, GenericArgument, GenericParam, Ident, PathArguments, Type, TypeParamBound, Visibility};

use crate::error::{Checked, Errors, Reported};
use crate::help::Help;
use crate::names::closest;
use crate::source_range::SourceRange;

/// A kernel's tokens, split into the signature and an unread body.
pub struct KernelItem {
    /// Attributes other than `#[kernel]`.
    pub attrs: Vec<Attribute>,
    /// Visibility.
    pub vis: Visibility,
    /// `fn name<..>(..)`.
    pub sig: syn::Signature,
    /// The braces.
    pub body: Group,
}

impl Parse for KernelItem {
    fn parse(input: ParseStream<'_>) -> syn::Result<KernelItem> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let sig = input.parse()?;
        let body = braces(input.parse::<TokenTree>()?)?;
        Ok(KernelItem { attrs, vis, sig, body })
    }
}

/// The group in braces. A block that a `macro_rules!` has captured arrives in an invisible group.
fn braces(mut tree: TokenTree) -> syn::Result<Group> {
    loop {
        let mut inner = match &tree {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => group.stream().into_iter(),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return Ok(group.clone()),
            other => return Err(syn::Error::new(other.span(), "expected the kernel's body in braces")),
        };
        match (inner.next(), inner.next()) {
            (Some(only), None) => tree = only,
            _ => return Err(syn::Error::new(tree.span(), "expected the kernel's body in braces")),
        }
    }
}

/// A generic parameter, in the order of the source.
pub enum Generic {
    /// `T: Num`, with the place of the bound.
    Dtype(Ident, DTypeBound, SourceRange),
    /// `const N: usize = 16`, with the type's tokens and the default.
    Const(Ident, ConstTy, TokenStream, Option<Box<Expr>>),
}

impl Generic {
    /// Its name.
    pub fn ident(&self) -> &Ident {
        match self {
            Generic::Dtype(ident, ..) | Generic::Const(ident, ..) => ident,
        }
    }
}

/// What a parameter is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamTy {
    /// `Ptr<T>`
    Ptr(Dt),
    /// `PtrMut<T>`
    PtrMut(Dt),
    /// `T`
    Scalar(Dt),
    /// `Const<T>`
    Const(Dt),
    /// `TensorDesc<T, { [..] }>` with blocks of that many dimensions.
    Desc(Dt, usize),
    /// `TensorDescMut<T, { [..] }>`
    DescMut(Dt, usize),
}

/// Whether the caller passes an argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Passing {
    /// Always.
    Always,
    /// `Option<Ptr<T>>` and its kind.
    Optional,
    /// `#[in_place(out)]`: that, or nothing where that parameter's buffer is read.
    InPlace(Ident),
}

/// A parameter of the kernel.
pub struct KernelParam {
    /// Its name.
    pub ident: Ident,
    /// Its attributes.
    pub attrs: Vec<Attribute>,
    /// `mut`, if it is declared so.
    pub mutable: Option<syn::Token![mut]>,
    /// What it is; `None` after a mistake.
    pub ty: Option<ParamTy>,
    /// Whether there is an argument.
    pub passing: Passing,
    /// The blocks of a descriptor: an array in brackets.
    pub block: Option<TokenStream>,
    /// The place of its type.
    pub place: SourceRange,
}

/// The signature of a kernel.
pub struct Signature {
    /// Attributes other than `#[kernel]`.
    pub attrs: Vec<Attribute>,
    /// Visibility.
    pub vis: Visibility,
    /// Whether it is an `unsafe fn`.
    pub is_unsafe: bool,
    /// Its name.
    pub ident: Ident,
    /// Generic parameters in order.
    pub generics: Vec<Generic>,
    /// Parameters in order.
    pub params: Vec<KernelParam>,
    /// Whether it wrongly declares a return type: then a value at the end of the body is no second mistake.
    pub returns: bool,
    /// Names of generic parameters with a mistake in their declaration, whose uses stay without message.
    pub broken: Vec<String>,
}

impl Signature {
    /// The dtype parameters in order.
    pub fn dtypes(&self) -> impl Iterator<Item = (&Ident, DTypeBound)> {
        self.generics.iter().filter_map(|g| match g {
            Generic::Dtype(ident, bound, _) => Some((ident, *bound)),
            Generic::Const(..) => None,
        })
    }

    /// The constexprs in order.
    pub fn consts(&self) -> impl Iterator<Item = (&Ident, ConstTy, &TokenStream)> {
        self.generics.iter().filter_map(|g| match g {
            Generic::Dtype(..) => None,
            Generic::Const(ident, ty, tokens, _) => Some((ident, *ty, tokens)),
        })
    }

    /// The constexprs that have defaults, with those.
    pub fn defaults(&self) -> impl Iterator<Item = (&Ident, &TokenStream, &Expr)> {
        self.generics.iter().filter_map(|g| match g {
            Generic::Const(ident, _, tokens, Some(default)) => Some((ident, tokens, &**default)),
            Generic::Dtype(..) | Generic::Const(.., None) => None,
        })
    }

    /// The name of a dtype parameter.
    pub fn dtype_ident(&self, id: DtypeId) -> Option<&Ident> {
        self.dtypes().nth(id.index()).map(|(ident, _)| ident)
    }
}

/// Reads the signature; each mistake is reported and left out.
pub fn read(item: KernelItem, errors: &mut Errors) -> Signature {
    let inputs = item.sig.inputs.clone();
    if let syn::ReturnType::Type(_, ty) = &item.sig.output {
        let help = "store results through a `PtrMut<T>` parameter";
        errors.report_help(SourceRange::of_type(ty), "a kernel cannot be given a return type", help);
    }
    let mut signature = read_head(item, "a kernel", errors);
    for arg in &inputs {
        if let Some(param) = params::read(arg, &signature, errors) {
            signature.params.push(param);
        }
    }
    params::check_in_place(&signature, errors);
    duplicates(&mut signature, errors);
    signature
}

/// Reads the name and the generic parameters of a `#[device]` function or struct, which is `what`.
pub fn read_function(item: KernelItem, what: &str, errors: &mut Errors) -> Signature {
    let mut signature = read_head(item, what, errors);
    for (_, _, default) in signature.defaults() {
        let help = "remove it: constexprs follow from the arguments, or are said at the call, `name::<16>(..)`";
        let message = format!("a constexpr of {what} has no default");
        errors.report_help(SourceRange::of(default), message, help);
    }
    duplicates(&mut signature, errors);
    signature
}

/// What stands around the parameters.
fn read_head(item: KernelItem, what: &str, errors: &mut Errors) -> Signature {
    let KernelItem { attrs, vis, sig, body: _ } = item;
    let mut refuse = |place: SourceRange, word: &str, help: &str| {
        errors.report_help(place, format!("{what} cannot be {word}"), help);
    };
    if let Some(token) = &sig.constness {
        refuse(SourceRange::at(token.span), "`const`", "remove `const`");
    }
    if let Some(token) = &sig.asyncness {
        refuse(SourceRange::at(token.span), "`async`", "remove `async`; launches are asynchronous anyway");
    }
    if let Some(abi) = &sig.abi {
        refuse(SourceRange::of_tokens(abi), "`extern`", "remove it");
    }
    if let Some(variadic) = &sig.variadic {
        refuse(SourceRange::of_tokens(variadic), "variadic", "name every parameter");
    }
    if let Some(clause) = &sig.generics.where_clause {
        refuse(
            SourceRange::of_tokens(clause),
            "given a `where` clause",
            "write the bound at the parameter: `<T: Num>`",
        );
    }
    let mut signature = Signature {
        attrs,
        vis,
        is_unsafe: sig.unsafety.is_some(),
        ident: sig.ident,
        generics: Vec::new(),
        params: Vec::new(),
        returns: matches!(sig.output, syn::ReturnType::Type(..)),
        broken: Vec::new(),
    };
    read_generics(&sig.generics, what, &mut signature, errors);
    signature
}

/// Refuses a name that two parameters have. The second is renamed, so that rustc does not refuse it again.
fn duplicates(signature: &mut Signature, errors: &mut Errors) {
    let generics = signature.generics.iter_mut().map(|g| match g {
        Generic::Dtype(ident, ..) | Generic::Const(ident, ..) => ident,
    });
    let mut seen: Vec<String> = Vec::new();
    for ident in generics.chain(signature.params.iter_mut().map(|p| &mut p.ident)) {
        let name = ident.to_string();
        if seen.contains(&name) {
            let message = format!("the name `{name}` is used for two parameters");
            errors.report_help(SourceRange::at(ident.span()), message, "give each a name of its own");
            *ident = Ident::new(&format!("{}_{}", ident.unraw(), seen.len()), Span::mixed_site());
        }
        seen.push(name);
    }
}

fn read_generics(generics: &syn::Generics, what: &str, signature: &mut Signature, errors: &mut Errors) {
    for param in &generics.params {
        let read = match param {
            GenericParam::Lifetime(lifetime) => {
                let place = SourceRange::of_tokens(lifetime);
                let help = "remove it; the launcher adds its own";
                errors.report_help(place, format!("{what} has no lifetime parameters"), help);
                continue;
            }
            GenericParam::Type(param) => {
                let bound = read_bound(param, generics.where_clause.is_some(), errors)
                    .map_err(|_| signature.broken.push(param.ident.to_string()));
                if let Some(default) = &param.default {
                    let help = "remove it: the arguments say what the dtype is, or the caller does";
                    errors.report_help(SourceRange::of_type(default), "a dtype parameter has no default", help);
                }
                let place =
                    param.bounds.first().map_or_else(|| SourceRange::at(param.ident.span()), SourceRange::of_tokens);
                Generic::Dtype(param.ident.clone(), bound.unwrap_or(DTypeBound::Num), place)
            }
            GenericParam::Const(param) => match read_const(param, errors) {
                Ok((ty, tokens)) => Generic::Const(param.ident.clone(), ty, tokens, default_of(param)),
                Err(_) => {
                    signature.broken.push(param.ident.to_string());
                    let ty = ConstTy::Int(IntTy::Usize);
                    // Calls leave it out, and its type is not what the default fits.
                    let default = param.default.as_ref().map(|_| Box::new(syn::parse_quote!(0)));
                    Generic::Const(param.ident.clone(), ty, quote::quote!(::core::primitive::usize), default)
                }
            },
        };
        signature.generics.push(read);
    }
}

fn bound_names() -> String {
    DTypeBound::ALL.map(|b| format!("`{}`", b.name())).join(", ")
}

fn read_bound(param: &syn::TypeParam, has_where: bool, errors: &mut Errors) -> Checked<DTypeBound> {
    let name = param.ident.to_string();
    let place = SourceRange::at(param.ident.span());
    if DType::from_name(&name).is_some() || DTypeBound::from_name(&name).is_some() {
        return Err(errors.report_help(place, format!("`{name}` already names something in kernels"), "call it `T`"));
    }
    if param.bounds.is_empty() && has_where {
        // The bound stands there, which has been refused.
        return Err(Reported::earlier());
    }
    let mut bounds = param.bounds.iter();
    let (Some(bound), None) = (bounds.next(), bounds.next()) else {
        let message = format!("the dtype parameter `{name}` needs one bound: {}", bound_names());
        let known = param.bounds.iter().filter_map(|bound| match bound {
            TypeParamBound::Trait(bound) => DTypeBound::from_name(&bound.path.segments.last()?.ident.to_string()),
            _ => None,
        });
        // Of several the one that admits the fewest dtypes.
        let fewest = |bound: &DTypeBound| DType::ALL.iter().filter(|dtype| bound.admits(**dtype)).count();
        let help = match known.min_by_key(fewest) {
            Some(bound) => {
                let help = format!("write `{name}: {}`", bound.name());
                Help::write(SourceRange::of_tokens(&param.bounds), bound.name()).said(help)
            }
            None => format!("write `{name}: Num`").into(),
        };
        return Err(errors.report_help(place, message, help));
    };
    let TypeParamBound::Trait(bound) = bound else {
        let message = format!("a dtype parameter is bounded by {}", bound_names());
        return Err(errors.report(SourceRange::of_tokens(bound), message));
    };
    let Some(last) = bound.path.segments.last() else { return Ok(DTypeBound::DType) };
    let written = last.ident.to_string();
    DTypeBound::from_name(&written).ok_or_else(|| {
        let message = format!("a dtype parameter is bounded by {}, not by `{written}`", bound_names());
        let place = SourceRange::of_tokens(bound);
        if matches!(written.as_str(), "usize" | "isize" | "bool")
            || DType::from_name(&written).is_some_and(DType::is_int)
        {
            let place = SourceRange::of_tokens(param);
            return errors.report_help(place, message, Help::write(place, format!("const {name}: {written}")));
        }
        match closest(&written, DTypeBound::ALL.map(DTypeBound::name)) {
            Some(close) => errors.report_help(place, message, Help::meant(place, close)),
            None => errors.report(place, message),
        }
    })
}

fn read_const(param: &syn::ConstParam, errors: &mut Errors) -> Checked<(ConstTy, TokenStream)> {
    let place = SourceRange::of_type(&param.ty);
    let name = type_name(&param.ty).unwrap_or_default();
    let ty = match name.as_str() {
        "usize" => ConstTy::Int(IntTy::Usize),
        "isize" => ConstTy::Int(IntTy::Isize),
        "bool" => ConstTy::Bool,
        other => match DType::from_name(other) {
            Some(d) if d.is_int() => ConstTy::Int(IntTy::Fixed(d)),
            Some(_) => {
                let ident = &param.ident;
                let lower = ident.to_string().to_lowercase();
                let message = format!("a const generic cannot be `{other}`");
                let help = format!("make it a parameter that is folded: `{lower}: Const<{other}>`");
                return Err(errors.report_help(SourceRange::of_tokens(param), message, help));
            }
            None => {
                let message = "a constexpr is an integer or a `bool`";
                return Err(errors.report_help(place, message, format!("write `const {}: usize`", param.ident)));
            }
        },
    };
    let span = place.start;
    let ident = Ident::new(&name, span);
    Ok((ty, quote::quote_spanned!(span=> ::core::primitive::#ident)))
}

/// The default of a constexpr, without the braces that generic arguments need.
fn default_of(param: &syn::ConstParam) -> Option<Box<Expr>> {
    let default = param.default.as_ref()?;
    braced(&GenericArgument::Const(default.clone())).or(Some(default)).cloned().map(Box::new)
}

/// The expression of a const argument, without its braces.
pub fn braced(argument: &GenericArgument) -> Option<&syn::Expr> {
    match argument {
        GenericArgument::Const(syn::Expr::Block(block)) => match block.block.stmts.as_slice() {
            [syn::Stmt::Expr(expr, None)] => Some(expr),
            _ => None,
        },
        GenericArgument::Const(expr) => Some(expr),
        _ => None,
    }
}

/// The last segment of a type that is a path with generic arguments.
pub fn generic_name(ty: &Type) -> Option<String> {
    match strip(ty) {
        Type::Path(path) if path.qself.is_none() => {
            let last = path.path.segments.last()?;
            (!matches!(last.arguments, PathArguments::None)).then(|| last.ident.to_string())
        }
        _ => None,
    }
}

/// Removes invisible groups and parentheses around a type.
pub fn strip(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            _ => return ty,
        };
    }
}

/// The last segment of a type that is a plain path.
pub fn type_name(ty: &Type) -> Option<String> {
    match strip(ty) {
        Type::Path(path) if path.qself.is_none() => {
            let last = path.path.segments.last()?;
            matches!(last.arguments, PathArguments::None).then(|| last.ident.to_string())
        }
        _ => None,
    }
}
