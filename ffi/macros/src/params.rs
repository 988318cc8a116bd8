//! The parameters of an operator, by their types.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericArgument, Ident, Lit, Pat, PathArguments, Result, Type};

/// What may stand in an operator's signature.
const ACCEPTED: &str = "`TensorRef<'_>`, `Option<TensorRef<'_>>`, `TensorMut<'_>`, `Option<TensorMut<'_>>`, `i64`, `f64`, \
                        `bool`, `&str`, `Option<i64>`, `Option<f64>` and `&Scratch<'_>`";

/// Words that Python keeps for itself, the names of modules that a package imports, and `out`, which names the outputs of a
/// call.
const RESERVED: [&str; 42] = [
    "False",
    "None",
    "True",
    "and",
    "as",
    "assert",
    "async",
    "await",
    "break",
    "class",
    "continue",
    "def",
    "del",
    "elif",
    "else",
    "except",
    "finally",
    "for",
    "from",
    "global",
    "if",
    "import",
    "in",
    "is",
    "lambda",
    "nonlocal",
    "not",
    "or",
    "pass",
    "raise",
    "return",
    "try",
    "while",
    "with",
    "yield",
    "out",
    "torch",
    "jax",
    "jnp",
    "np",
    "functools",
    "tvm_ffi",
];

/// A parameter.
pub struct Param {
    /// Its name as Python has it.
    pub name: String,
    pub span: Span,
    pub kind: Kind,
}

/// What a parameter is.
pub enum Kind {
    Input {
        optional: bool,
    },
    /// Whether it is an output or written in place, `out(..)` says.
    Written {
        optional: bool,
    },
    Attribute {
        of: Of,
        default: Option<Default>,
    },
    OptionalAttribute {
        of: Of,
    },
    Scratch,
}

/// The type of an attribute.
#[derive(Clone, Copy, PartialEq)]
pub enum Of {
    Int,
    Float,
    Bool,
    Str,
}

/// `#[default(1e-5)]`
pub struct Default {
    tokens: TokenStream,
}

impl Of {
    /// The variant of `AttributeType` and `Value`.
    pub fn variant(self) -> Ident {
        let name = match self {
            Of::Int => "Int",
            Of::Float => "Float",
            Of::Bool => "Bool",
            Of::Str => "Str",
        };
        Ident::new(name, Span::call_site())
    }

    fn name(self) -> &'static str {
        match self {
            Of::Int => "an integer such as `1`",
            Of::Float => "a float such as `1.0`",
            Of::Bool => "`true` or `false`",
            Of::Str => "a string such as `\"none\"`",
        }
    }
}

impl Param {
    /// Reads a parameter, and takes the attribute `#[default(..)]` from it.
    pub fn read(arg: &mut FnArg) -> Result<Param> {
        let FnArg::Typed(arg) = arg else {
            return Err(Error::new(arg.span(), "an operator is a function of its own, and has no `self`"));
        };
        let mut defaults = Vec::new();
        arg.attrs.retain(|attribute| {
            let is_default = attribute.path().is_ident("default");
            if is_default {
                defaults.push(attribute.clone());
            }
            !is_default
        });
        let Pat::Ident(pattern) = &*arg.pat else {
            return Err(Error::new(arg.pat.span(), "a parameter of an operator is a name, which callers use too"));
        };
        let (name, span) = (pattern.ident.unraw().to_string(), pattern.ident.span());
        check_name(&name, span)?;
        let mut kind = kind_of(&arg.ty)?;
        for attribute in defaults {
            let Kind::Attribute { of, default } = &mut kind else {
                return Err(Error::new(
                    attribute.span(),
                    "only parameters of type `i64`, `f64`, `bool` and `&str` have a default",
                ));
            };
            *default = Some(default_of(*of, &attribute)?);
        }
        Ok(Param { name, span, kind })
    }

    /// The expression that takes the argument from `args`.
    pub fn taken(&self) -> TokenStream {
        let method = match &self.kind {
            Kind::Input { optional: false } => "tensor",
            Kind::Input { optional: true } => "optional_tensor",
            Kind::Written { optional: false } => "tensor_mut",
            Kind::Written { optional: true } => "optional_tensor_mut",
            Kind::Attribute { of: Of::Int, .. } => "int",
            Kind::Attribute { of: Of::Float, .. } => "float",
            Kind::Attribute { of: Of::Bool, .. } => "bool",
            Kind::Attribute { of: Of::Str, .. } => "str",
            Kind::OptionalAttribute { of: Of::Float } => "optional_float",
            Kind::OptionalAttribute { .. } => "optional_int",
            Kind::Scratch => "scratch",
        };
        let method = Ident::new(method, Span::call_site());
        quote!(args.#method())
    }
}

impl ToTokens for Default {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.tokens.to_tokens(tokens);
    }
}

/// Checks that a name can be one of a function or parameter of the package.
pub fn check_name(name: &str, span: Span) -> Result<()> {
    if name.starts_with('_') || name.starts_with("tilewright_") {
        return Err(Error::new(
            span,
            format!("`{name}` is seen by callers, and cannot begin with `_` or `tilewright_`"),
        ));
    }
    if RESERVED.contains(&name) {
        return Err(Error::new(
            span,
            format!("`{name}` is a word that Python or the package needs; callers see the name, choose another"),
        ));
    }
    Ok(())
}

fn kind_of(ty: &Type) -> Result<Kind> {
    let attribute = |of| Kind::Attribute { of, default: None };
    match ty {
        Type::Paren(inner) => kind_of(&inner.elem),
        Type::Group(inner) => kind_of(&inner.elem),
        Type::Reference(reference) if reference.mutability.is_none() => match last_name(&reference.elem).as_deref() {
            Some("str") => Ok(attribute(Of::Str)),
            Some("Scratch") => Ok(Kind::Scratch),
            _ => Err(refused(ty)),
        },
        _ => match last_name(ty).as_deref() {
            Some("TensorRef") => Ok(Kind::Input { optional: false }),
            Some("TensorMut") => Ok(Kind::Written { optional: false }),
            Some("i64") => Ok(attribute(Of::Int)),
            Some("f64") => Ok(attribute(Of::Float)),
            Some("bool") => Ok(attribute(Of::Bool)),
            Some("Option") => match inner_of_option(ty).and_then(last_name).as_deref() {
                Some("TensorRef") => Ok(Kind::Input { optional: true }),
                Some("TensorMut") => Ok(Kind::Written { optional: true }),
                Some("i64") => Ok(Kind::OptionalAttribute { of: Of::Int }),
                Some("f64") => Ok(Kind::OptionalAttribute { of: Of::Float }),
                _ => Err(refused(ty)),
            },
            _ => Err(refused(ty)),
        },
    }
}

fn refused(ty: &Type) -> Error {
    let instead = match last_name(ty).as_deref() {
        Some("i8" | "i16" | "i32" | "i128" | "isize" | "u8" | "u16" | "u32" | "u64" | "u128" | "usize") => {
            "; Python's integers are `i64`".to_string()
        }
        Some("f32" | "f16" | "bf16") => "; Python's floats are `f64`".to_string(),
        Some("String") => "; write `&str`".to_string(),
        _ => String::new(),
    };
    let written =
        ty.to_token_stream().to_string().replace("& ", "&").replace(" < ", "<").replace(" >", ">").replace(" ,", ",");
    Error::new(ty.span(), format!("an operator cannot take `{written}`{instead}; its parameters are {ACCEPTED}"))
}

/// The last name of a path.
fn last_name(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) if path.qself.is_none() => path.path.segments.last().map(|segment| segment.ident.to_string()),
        _ => None,
    }
}

fn inner_of_option(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(inner) if arguments.args.len() == 1 => Some(inner),
        _ => None,
    }
}

fn default_of(of: Of, attribute: &syn::Attribute) -> Result<Default> {
    let value: syn::Expr = attribute.parse_args()?;
    let wrong = || Error::new(value.span(), format!("the default of this parameter is {}", of.name()));
    let (is_negative, literal) = match &value {
        syn::Expr::Lit(literal) => (false, &literal.lit),
        syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Neg(_), expr, .. }) => match &**expr {
            syn::Expr::Lit(literal) => (true, &literal.lit),
            _ => return Err(wrong()),
        },
        _ => return Err(wrong()),
    };
    let span = value.span();
    let tokens = match (of, literal) {
        (Of::Int, Lit::Int(literal)) => {
            let sign = if is_negative { "-" } else { "" };
            let number: i64 = format!("{sign}{}", literal.base10_digits()).parse().map_err(|_| wrong())?;
            quote_spanned!(span=> ::tilewright_ffi::op::Value::Int(#number))
        }
        (Of::Float, Lit::Float(literal)) => {
            let number: f64 = literal.base10_parse()?;
            if !number.is_finite() {
                return Err(Error::new(span, "the default of this parameter is not a finite number"));
            }
            let number = if is_negative { -number } else { number };
            quote_spanned!(span=> ::tilewright_ffi::op::Value::Float(#number))
        }
        (Of::Bool, Lit::Bool(literal)) if !is_negative => quote!(::tilewright_ffi::op::Value::Bool(#literal)),
        (Of::Str, Lit::Str(literal)) if !is_negative => {
            quote!(::tilewright_ffi::op::Value::Str(::std::borrow::Cow::Borrowed(#literal)))
        }
        _ => return Err(wrong()),
    };
    Ok(Default { tokens })
}
