//! The language of `out(..)`: dtypes and shapes of outputs, as expressions over those of the inputs.
//!
//! ```text
//! output := name ':' ( 'like' '(' tensor ')' | dtype '[' dims ']' )
//! dtype  := tensor '.' 'dtype' | 'f32' | ..
//! dims   := ( '..' tensor '.' 'shape' ( '[' from? '..' to? ']' )? | size ) ,*
//! size   := integer | attribute | tensor '.' 'shape' '[' axis ']' | size ('+' | '-' | '*' | '/' | '%') size
//!         | ('min' | 'max') '(' size ',' size ')' | '(' size ')'
//! ```

use crate::params::{Kind, Of, Param};
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, Lit, Result, Token, bracketed, parenthesized};

const DTYPES: [(&str, &str); 15] = [
    ("bool", "Bool"),
    ("i8", "I8"),
    ("i16", "I16"),
    ("i32", "I32"),
    ("i64", "I64"),
    ("u8", "U8"),
    ("u16", "U16"),
    ("u32", "U32"),
    ("u64", "U64"),
    ("f8e4m3", "F8E4M3"),
    ("f8e5m2", "F8E5M2"),
    ("f16", "F16"),
    ("bf16", "BF16"),
    ("f32", "F32"),
    ("f64", "F64"),
];

/// One output as it is written.
pub struct OutputSpec {
    pub name: Ident,
    form: Form,
}

enum Form {
    Like(Ident),
    Made { dtype: DType, dims: Vec<Dim> },
}

enum DType {
    Fixed(&'static str),
    Same(Ident),
}

enum Dim {
    Size(Expr),
    Part { tensor: Ident, from: Option<i64>, to: Option<i64> },
}

impl Parse for OutputSpec {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name: Ident = input.call(Ident::parse_any)?;
        input.parse::<Token![:]>()?;
        let first: Ident = input.parse()?;
        if first == "like" {
            let content;
            parenthesized!(content in input);
            let form = Form::Like(content.parse()?);
            if !content.is_empty() {
                return Err(content.error("`like(..)` takes the name of one tensor"));
            }
            return Ok(OutputSpec { name, form });
        }
        let dtype = if input.peek(Token![.]) {
            input.parse::<Token![.]>()?;
            keyword(input, "dtype")?;
            DType::Same(first)
        } else {
            let Some((_, variant)) = DTYPES.iter().find(|(known, _)| first == known) else {
                let known = DTYPES.map(|(name, _)| format!("`{name}`")).join(", ");
                let message =
                    format!("`{first}` is no dtype; write `like(tensor)`, `tensor.dtype[..]`, or one of {known}");
                return Err(Error::new(first.span(), message));
            };
            DType::Fixed(variant)
        };
        let content;
        bracketed!(content in input);
        let dims = Punctuated::<Dim, Token![,]>::parse_terminated(&content)?.into_iter().collect();
        Ok(OutputSpec { name, form: Form::Made { dtype, dims } })
    }
}

impl Parse for Dim {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if !input.peek(Token![..]) {
            return Ok(Dim::Size(input.parse()?));
        }
        input.parse::<Token![..]>()?;
        let tensor = input.parse()?;
        input.parse::<Token![.]>()?;
        keyword(input, "shape")?;
        if !input.peek(syn::token::Bracket) {
            return Ok(Dim::Part { tensor, from: None, to: None });
        }
        let content;
        bracketed!(content in input);
        let from = if content.peek(Token![..]) { None } else { Some(integer(&content)?) };
        content.parse::<Token![..]>()?;
        let to = if content.is_empty() { None } else { Some(integer(&content)?) };
        if !content.is_empty() {
            return Err(content.error("a range of dimensions is `from..to`"));
        }
        Ok(Dim::Part { tensor, from, to })
    }
}

fn keyword(input: ParseStream<'_>, expected: &str) -> Result<()> {
    let found: Ident = input.call(Ident::parse_any)?;
    if found == expected {
        return Ok(());
    }
    Err(Error::new(found.span(), format!("expected `{expected}`, as in `x.{expected}`")))
}

fn integer(input: ParseStream<'_>) -> Result<i64> {
    let minus = input.parse::<Option<Token![-]>>()?;
    let value: i64 = input.parse::<syn::LitInt>()?.base10_parse()?;
    Ok(if minus.is_some() { -value } else { value })
}

/// The parameters that shapes may speak of.
pub struct Scope<'a> {
    /// Without scratch memory.
    pub params: &'a [Param],
    /// The names of the outputs.
    pub outputs: &'a [String],
}

impl OutputSpec {
    /// The expression of type `Output`.
    ///
    /// # Errors
    ///
    /// Names that are no tensors or attributes, and expressions that are no sizes.
    pub fn lower(&self, scope: &Scope<'_>, is_optional: bool) -> Result<TokenStream> {
        let mut with = Vec::new();
        let (dtype, shape) = match &self.form {
            Form::Like(of) => {
                let tensor = scope.tensor(of, &mut with)?;
                (quote!(DTypeOf::Same(#tensor)), quote!(ShapeOf::Like(#tensor)))
            }
            Form::Made { dtype, dims } => {
                let dtype = match dtype {
                    DType::Fixed(variant) => {
                        let variant = Ident::new(variant, Span::call_site());
                        quote!(DTypeOf::Fixed(::tilewright_ffi::ElementType::#variant))
                    }
                    DType::Same(of) => {
                        let tensor = scope.tensor(of, &mut with)?;
                        quote!(DTypeOf::Same(#tensor))
                    }
                };
                let dims = dims.iter().map(|dim| scope.dim(dim, &mut with)).collect::<Result<Vec<_>>>()?;
                (dtype, quote!(ShapeOf::Dims(::std::borrow::Cow::Borrowed(&[#(#dims),*]))))
            }
        };
        let with = self.given_with(scope, &with, is_optional)?;
        Ok(quote!(Output { dtype: #dtype, shape: #shape, with: #with }))
    }

    /// The optional input that this output goes with.
    fn given_with(&self, scope: &Scope<'_>, with: &[usize], is_optional: bool) -> Result<TokenStream> {
        let (name, at) = (&self.name, with.first());
        match (is_optional, at) {
            (false, None) => Ok(quote!(::core::option::Option::None)),
            (true, Some(at)) if with.iter().all(|other| other == at) => Ok(quote!(::core::option::Option::Some(#at))),
            (true, Some(_)) => {
                Err(Error::new(name.span(), format!("`{name}` depends on several optional tensors; it can on one")))
            }
            (true, None) => Err(Error::new(
                name.span(),
                format!(
                    "`{name}` is an `Option`, so its shape must be that of an optional tensor, without which it is missing"
                ),
            )),
            (false, Some(at)) => Err(Error::new(
                name.span(),
                format!(
                    "`{name}` has the shape of `{}`, which may be missing; make it an `Option<TensorMut<'_>>`",
                    scope.params[*at].name
                ),
            )),
        }
    }
}

impl Scope<'_> {
    /// The place of a tensor. Optional ones are noted in `with`.
    fn tensor(&self, name: &Ident, with: &mut Vec<usize>) -> Result<usize> {
        let found = self.params.iter().position(|param| name.unraw() == param.name);
        match found.map(|at| (at, &self.params[at].kind)) {
            Some((at, Kind::Input { optional })) => {
                if *optional {
                    with.push(at);
                }
                Ok(at)
            }
            Some((at, Kind::Written { .. })) if !self.outputs.contains(&self.params[at].name) => Ok(at),
            Some((_, Kind::Written { .. })) => {
                Err(Error::new(name.span(), format!("`{name}` is an output itself; shapes are those of inputs")))
            }
            Some(_) => Err(Error::new(name.span(), format!("`{name}` is no tensor"))),
            None => Err(Error::new(
                name.span(),
                format!("there is no parameter `{name}`; the tensors are {}", self.tensors()),
            )),
        }
    }

    fn tensors(&self) -> String {
        let is_given = |param: &&Param| {
            matches!(param.kind, Kind::Input { .. } | Kind::Written { .. }) && !self.outputs.contains(&param.name)
        };
        let names: Vec<String> = self.params.iter().filter(is_given).map(|param| format!("`{}`", param.name)).collect();
        names.join(", ")
    }

    fn dim(&self, dim: &Dim, with: &mut Vec<usize>) -> Result<TokenStream> {
        match dim {
            Dim::Size(expr) => {
                let size = self.size(expr, with)?;
                Ok(quote!(Dim::Size(#size)))
            }
            Dim::Part { tensor, from, to } => {
                let tensor = self.tensor(tensor, with)?;
                let (from, to) = (option(*from), option(*to));
                Ok(quote!(Dim::Part { tensor: #tensor, from: #from, to: #to }))
            }
        }
    }

    fn size(&self, expr: &Expr, with: &mut Vec<usize>) -> Result<TokenStream> {
        let both = |function: &str, a: &Expr, b: &Expr, with: &mut Vec<usize>| {
            let function = Ident::new(function, Span::call_site());
            let (a, b) = (self.size(a, with)?, self.size(b, with)?);
            Ok(quote!(Expr::Apply(Function::#function, ::std::borrow::Cow::Borrowed(&[#a, #b]))))
        };
        match expr {
            Expr::Paren(inner) => self.size(&inner.expr, with),
            Expr::Group(inner) => self.size(&inner.expr, with),
            Expr::Lit(_) | Expr::Unary(_) => {
                let value = signed(expr).ok_or_else(|| no_size(expr))?;
                Ok(quote!(Expr::Int(#value)))
            }
            Expr::Path(path) if path.path.get_ident().is_some() => self.attribute(&path.path),
            Expr::Index(index) => {
                let Expr::Field(field) = &*index.expr else { return Err(no_size(expr)) };
                let (Expr::Path(tensor), syn::Member::Named(member)) = (&*field.base, &field.member) else {
                    return Err(no_size(expr));
                };
                let (Some(tensor), true) = (tensor.path.get_ident(), member == "shape") else {
                    return Err(no_size(expr));
                };
                let tensor = self.tensor(tensor, with)?;
                let axis = signed(&index.index)
                    .ok_or_else(|| Error::new(index.index.span(), "a dimension is a number, negative from the end"))?;
                Ok(quote!(Expr::Size { tensor: #tensor, axis: #axis }))
            }
            Expr::Binary(binary) => {
                let function = match binary.op {
                    syn::BinOp::Add(_) => "Add",
                    syn::BinOp::Sub(_) => "Sub",
                    syn::BinOp::Mul(_) => "Mul",
                    syn::BinOp::Div(_) => "Div",
                    syn::BinOp::Rem(_) => "Rem",
                    _ => return Err(no_size(expr)),
                };
                both(function, &binary.left, &binary.right, with)
            }
            Expr::Call(call) => {
                let Expr::Path(path) = &*call.func else { return Err(no_size(expr)) };
                let function = match path.path.get_ident().map(Ident::to_string).as_deref() {
                    Some("min") => "Min",
                    Some("max") => "Max",
                    _ => return Err(no_size(expr)),
                };
                let (2, [a, b]) = (call.args.len(), [call.args.first(), call.args.last()]) else {
                    return Err(no_size(expr));
                };
                let (Some(a), Some(b)) = (a, b) else { return Err(no_size(expr)) };
                both(function, a, b, with)
            }
            _ => Err(no_size(expr)),
        }
    }

    fn attribute(&self, path: &syn::Path) -> Result<TokenStream> {
        let name = path.get_ident().map(|name| name.unraw().to_string()).unwrap_or_default();
        let found = self.params.iter().position(|param| param.name == name);
        match found.map(|at| (at, &self.params[at].kind)) {
            Some((at, Kind::Attribute { of: Of::Int, .. })) => Ok(quote!(Expr::Attribute(#at))),
            Some(_) => {
                Err(Error::new(path.span(), format!("`{name}` is no `i64`; of a tensor write `{name}.shape[0]`")))
            }
            None => Err(Error::new(path.span(), format!("there is no parameter `{name}`"))),
        }
    }
}

fn no_size(expr: &Expr) -> Error {
    let message = "this is no size; sizes are integers, attributes of type `i64`, `x.shape[0]`, and `+ - * / %`, `min(a, b)`, \
                   `max(a, b)` of them";
    Error::new(expr.span(), message)
}

fn signed(expr: &Expr) -> Option<i64> {
    match expr {
        Expr::Lit(syn::ExprLit { lit: Lit::Int(value), .. }) => value.base10_parse().ok(),
        Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => signed(expr)?.checked_neg(),
        _ => None,
    }
}

fn option(value: Option<i64>) -> TokenStream {
    match value {
        Some(value) => quote!(::core::option::Option::Some(#value)),
        None => quote!(::core::option::Option::None),
    }
}
