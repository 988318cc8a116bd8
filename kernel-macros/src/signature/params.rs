//! The parameters of a kernel.

use kernel_core::ir::{DType, Dt, DtypeId, MAX_TENSOR_RANK};
use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::{AngleBracketedGenericArguments, Expr, FnArg, GenericArgument, Pat, PathArguments, Type};

use super::{KernelParam, ParamTy, Passing, Signature, braced, generic_name, strip, type_name};
use crate::device;
use crate::error::{Checked, Errors};
use crate::help::Help;
use crate::names::{closest, dtype_of_other_languages, foreign_float8};
use crate::source_range::SourceRange;

/// Reads a parameter.
pub(super) fn read(arg: &FnArg, signature: &Signature, errors: &mut Errors) -> Option<KernelParam> {
    let arg = match arg {
        // Refused before.
        FnArg::Receiver(_) => return None,
        FnArg::Typed(arg) => arg,
    };
    let place = SourceRange::of_type(&arg.ty);
    let (ident, mutable) = match &*arg.pat {
        Pat::Ident(p) if p.by_ref.is_none() && p.subpat.is_none() => (p.ident.clone(), p.mutability),
        other => {
            errors.report_help(
                SourceRange::of_pat(other),
                "a parameter of a kernel needs a name",
                "write `name: type`",
            );
            let ident = Ident::new(&format!("argument_{}", signature.params.len()), Span::mixed_site());
            let (attrs, passing) = (Vec::new(), Passing::Always);
            return Some(KernelParam { ident, attrs, mutable: None, ty: None, passing, block: None, place });
        }
    };
    let inner = option_of(&arg.ty);
    let ty = match inner {
        _ if type_name(&arg.ty).is_some_and(|name| name == "constexpr") => {
            let message = format!("`{ident}` is a constexpr, which is a const generic and no parameter");
            let help = format!("write `fn {}<const {ident}: usize>(..)`", signature.ident);
            errors.report_help(SourceRange::between(ident.span(), place.end), message, help);
            None
        }
        Some(inner) => read_optional(inner, signature, errors).ok(),
        None => read_param_ty(&arg.ty, signature, errors).ok(),
    };
    let in_place = in_place(arg, errors);
    let passing = match (inner, in_place) {
        (Some(_), Some(of)) => {
            let message = "an optional parameter cannot be in place of another";
            errors.report_help(SourceRange::at(of.span()), message, "declare it as a `Ptr`");
            Passing::Optional
        }
        (Some(_), None) => Passing::Optional,
        (None, Some(of)) => Passing::InPlace(of),
        (None, None) => Passing::Always,
    };
    if let (Some(_), Some(_)) = (mutable, inner) {
        let message = "an optional parameter cannot be `mut`";
        let help = "make what it holds mutable: `if let Some(mut value) = parameter`";
        errors.report_help(SourceRange::of_pat(&arg.pat), message, help);
    }
    let block = block_of(inner.unwrap_or(&arg.ty)).map(ToTokens::into_token_stream);
    if let (Some(_), Some(ParamTy::Desc(..) | ParamTy::DescMut(..))) = (mutable, ty) {
        let message = "a descriptor cannot be `mut`: it always describes the tensor that the launch passes";
        errors.report_help(SourceRange::of_pat(&arg.pat), message, "remove `mut`");
    }
    let attrs = arg.attrs.iter().filter(|attr| !attr.path().is_ident(IN_PLACE)).cloned().collect();
    Some(KernelParam { ident, attrs, mutable, ty, passing, block, place })
}

/// The attribute of a parameter that may be read from the buffer of another.
pub const IN_PLACE: &str = "in_place";

/// `out` of `#[in_place(out)]`.
fn in_place(arg: &syn::PatType, errors: &mut Errors) -> Option<Ident> {
    let attr = arg.attrs.iter().find(|attr| attr.path().is_ident(IN_PLACE))?;
    let named = attr.parse_args::<Ident>();
    if named.is_err() {
        let help = "write `#[in_place(out)]`, with the name of a `PtrMut<T>` parameter";
        errors.report_help(SourceRange::of_tokens(attr), "`in_place` names one parameter", help);
    }
    named.ok()
}

/// Refuses `#[in_place(out)]` where `out` is not of the parameter's kind.
pub(super) fn check_in_place(signature: &Signature, errors: &mut Errors) {
    for param in &signature.params {
        let (Passing::InPlace(of), Some(ty)) = (&param.passing, param.ty) else { continue };
        let place = SourceRange::at(of.span());
        let ParamTy::Ptr(dt) = ty else {
            let message = "only a `Ptr<T>` can be in place of another parameter";
            errors.report_help(place, message, "remove the attribute; a `PtrMut` is read as well");
            continue;
        };
        let Some(other) = signature.params.iter().find(|other| other.ident == *of) else {
            let message = format!("`{of}` is no parameter of this kernel");
            errors.report_help(place, message, "name the `PtrMut<T>` that the results are stored to");
            continue;
        };
        let fits = other.ty == Some(ParamTy::PtrMut(dt)) && other.passing == Passing::Always;
        if !fits && other.ty.is_some() {
            let message = format!("`{}` can be in place of a `PtrMut` of its dtype only", param.ident);
            errors.report_help(place, message, "name the parameter that the results are stored to");
        }
    }
}

/// `T` of `Option<T>`.
pub fn option_of(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = strip(ty) else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(args) = &last.arguments else { return None };
    match args.args.iter().collect::<Vec<_>>()[..] {
        [GenericArgument::Type(inner)] => Some(inner),
        _ => None,
    }
}

/// What a parameter holds that may be without an argument.
fn read_optional(ty: &Type, signature: &Signature, errors: &mut Errors) -> Checked<ParamTy> {
    let read = read_param_ty(ty, signature, errors)?;
    if let ParamTy::Const(_) = read {
        let help = "whether there is an argument is part of what is compiled anyway: write `Option<f32>`";
        return Err(errors.report_help(SourceRange::of_type(ty), "an optional scalar is not folded", help));
    }
    Ok(read)
}

/// `[BM, BK]` of `TensorDesc<T, { [BM, BK] }>`.
fn block_of(ty: &Type) -> Option<&Expr> {
    descriptor_of(ty)?.args?.args.iter().nth(1).and_then(braced).filter(|block| matches!(block, Expr::Array(_)))
}

/// The type `TensorDesc<T, { [BM, BK] }>` or `TensorDescMut<..>`.
pub struct DescriptorType<'t> {
    ty: &'t Type,
    /// Whether its tensor is written.
    pub mutable: bool,
    /// What stands in `<..>`.
    pub args: Option<&'t AngleBracketedGenericArguments>,
}

/// The type of a descriptor, if it is that.
pub fn descriptor_of(ty: &Type) -> Option<DescriptorType<'_>> {
    let Type::Path(path) = strip(ty) else { return None };
    let last = path.path.segments.last()?;
    let mutable = last.ident == "TensorDescMut";
    let args = match &last.arguments {
        PathArguments::AngleBracketed(args) => Some(args),
        PathArguments::None | PathArguments::Parenthesized(_) => None,
    };
    (mutable || last.ident == "TensorDesc").then_some(DescriptorType { ty, mutable, args })
}

impl<'t> DescriptorType<'t> {
    /// The dtype, the shape of the blocks, and how many dimensions that has.
    pub fn parts(&self, errors: &mut Errors) -> Checked<(&'t Type, &'t Expr, usize)> {
        let name = if self.mutable { "TensorDescMut" } else { "TensorDesc" };
        let help = format!("write `{name}<f32, {{ [BLOCK_M, BLOCK_N] }}>`");
        let args: Vec<&'t GenericArgument> = self.args.iter().flat_map(|args| &args.args).collect();
        let [GenericArgument::Type(inner), shape] = args[..] else {
            let message = format!("a `{name}` has a dtype and the shape of its blocks");
            return Err(errors.report_help(SourceRange::of_type(self.ty), message, help));
        };
        let Some(block @ Expr::Array(array)) = braced(shape) else {
            let message = "the blocks of a descriptor have a shape in braces";
            return Err(errors.report_help(SourceRange::of_tokens(shape), message, help));
        };
        let rank = array.elems.len();
        if !(1..=MAX_TENSOR_RANK).contains(&rank) {
            let message = format!("a tensor has 1 to {MAX_TENSOR_RANK} dimensions, these blocks have {rank}");
            let help = "merge dimensions that are adjacent in memory";
            return Err(errors.report_help(SourceRange::of_tokens(block), message, help));
        }
        Ok((inner, block, rank))
    }
}

/// `TensorDesc<T, { [BM, BK] }>`
fn read_descriptor(ty: &DescriptorType<'_>, signature: &Signature, errors: &mut Errors) -> Checked<ParamTy> {
    let (inner, _, rank) = ty.parts(errors)?;
    let of = if ty.mutable { ParamTy::DescMut } else { ParamTy::Desc };
    read_dt(inner, signature, errors).map(|dt| of(dt, rank))
}

fn read_param_ty(ty: &Type, signature: &Signature, errors: &mut Errors) -> Checked<ParamTy> {
    let place = SourceRange::of_type(ty);
    let refuse = |errors: &mut Errors, help: Help| {
        let message = "a parameter of a kernel is a `Ptr<T>`, a `PtrMut<T>`, a scalar or a `Const<T>`";
        Err(errors.report_help(place, message, help))
    };
    let path = match strip(ty) {
        Type::Path(path) if path.qself.is_none() => &path.path,
        Type::Reference(reference)
            if generic_name(&reference.elem).is_some_and(|name| name.starts_with("TensorDesc")) =>
        {
            return refuse(errors, "write it without `&`: the caller lends the descriptor".into());
        }
        Type::Reference(reference)
            if matches!(generic_name(&reference.elem).as_deref(), Some("Ptr" | "PtrMut" | "Const" | "Option")) =>
        {
            let code = device::text(&reference.elem.to_token_stream());
            return refuse(errors, Help::write(place, code).and(", without `&`"));
        }
        Type::Reference(reference) => {
            let inner = match &*reference.elem {
                Type::Slice(slice) => type_name(&slice.elem),
                other => type_name(other),
            };
            if inner.as_deref() == Some("str") {
                return refuse(errors, TEXTS.into());
            }
            let pointer = if reference.mutability.is_some() { "PtrMut" } else { "Ptr" };
            if let (Some(inner), false) = (&inner, matches!(&*reference.elem, Type::Slice(_))) {
                let help = format!("for a scalar write `{inner}`, for a buffer `{pointer}<{inner}>`");
                return refuse(errors, help.into());
            }
            return refuse(
                errors,
                Help::write(place, format!("{pointer}<{}>", inner.unwrap_or_else(|| "T".to_string()))),
            );
        }
        Type::Ptr(pointer) => {
            let name = if pointer.mutability.is_some() { "PtrMut" } else { "Ptr" };
            let inner = type_name(&pointer.elem).unwrap_or_else(|| "T".into());
            return refuse(errors, Help::write(place, format!("{name}<{inner}>")));
        }
        Type::Tuple(_) => {
            return refuse(errors, "give each part of the tuple a name: the caller passes them one by one".into());
        }
        _ => return refuse(errors, "for a buffer write `Ptr<T>`, for a scalar its dtype".into()),
    };
    if let Some(descriptor) = descriptor_of(ty) {
        return read_descriptor(&descriptor, signature, errors);
    }
    let Some(last) = path.segments.last() else { return refuse(errors, "write a dtype".into()) };
    let name = last.ident.to_string();
    let of = match name.as_str() {
        "Ptr" => ParamTy::Ptr,
        "PtrMut" => ParamTy::PtrMut,
        "Const" => ParamTy::Const,
        "usize" | "isize" => {
            let message = format!("a parameter of a kernel cannot be `{name}`, whose width depends on the host");
            let help = "write `i32`, `i64` or `u32`, and convert at the call: `n as i32`";
            return Err(errors.report_help(place, message, help));
        }
        "Tile" => return refuse(errors, "tiles exist inside kernels only: pass a `Ptr<T>` and `load` it".into()),
        _ => return read_dt(ty, signature, errors).map(ParamTy::Scalar),
    };
    let PathArguments::AngleBracketed(args) = &last.arguments else {
        return refuse(errors, Help::write(place, format!("{name}<f32>")));
    };
    let mut args = args.args.iter();
    match (args.next(), args.next()) {
        (Some(GenericArgument::Type(inner)), None) => read_dt(inner, signature, errors).map(of),
        _ => refuse(errors, Help::write(place, format!("{name}<f32>"))),
    }
}

/// What stands for a text.
const TEXTS: &str =
    "kernels have no texts: pass a number, or a `const MODE: i32` for what is decided when it is compiled";

/// What stands for a struct.
const STRUCTS: &str = "a struct exists inside kernels only: pass its values, and make it there";

/// The dtype or dtype parameter that a type names.
fn read_dt(ty: &Type, signature: &Signature, errors: &mut Errors) -> Checked<Dt> {
    let params: Vec<String> = signature.dtypes().map(|(ident, _)| ident.to_string()).collect();
    let name = type_name(ty).unwrap_or_default();
    if let Some(index) = params.iter().position(|p| *p == name) {
        return Ok(Dt::Param(DtypeId::new(index as u32)));
    }
    if let Some(dtype) = DType::from_name(&name) {
        return Ok(Dt::Known(dtype));
    }
    if name == "String" {
        return Err(errors.report_help(SourceRange::of_type(ty), "this is not a dtype", TEXTS));
    }
    if let Some(written) = generic_name(ty) {
        let message = "a parameter of a kernel is a `Ptr<T>`, a `PtrMut<T>`, a scalar or a `Const<T>`";
        if written == "Option" {
            let help = "an `Option` holds what a parameter can be: `Option<Ptr<f32>>`";
            return Err(errors.report_help(SourceRange::of_type(ty), message, help));
        }
        let help = match closest(&written, ["Ptr", "PtrMut", "Const", "TensorDesc", "TensorDescMut"]) {
            Some(close) if close != written => format!("did you mean `{close}`?"),
            Some(_) => {
                "a pointer points to a dtype, `Ptr<f32>`, and keeps its buffer: for several buffers pass one, and \
                        offsets into it"
                    .to_string()
            }
            None => format!("for a buffer write `Ptr<f32>`, or `PtrMut<f32>` if the kernel stores into it; {STRUCTS}"),
        };
        return Err(errors.report_help(SourceRange::of_type(ty), message, help));
    }
    if associated(ty) {
        let message = "a parameter has a dtype, or a dtype parameter of its own";
        let help = "declare one, `fn name<T: Num, A: Num>(..)`, and let the caller pass what fits";
        return Err(errors.report_help(SourceRange::of_type(ty), message, help));
    }
    if let Some(message) = foreign_float8(&name) {
        return Err(errors.report_help(SourceRange::of_type(ty), message, "8-bit floats are `f8e4m3` and `f8e5m2`"));
    }
    let names = DType::ALL.map(DType::name);
    let close = closest(&name, params.iter().map(String::as_str).chain(names).chain(["Ptr", "PtrMut", "Const"]));
    let message = format!("this is not a dtype; dtypes are {}", names.map(|n| format!("`{n}`")).join(", "));
    let place = SourceRange::of_type(ty);
    let help = match (close, name.as_str()) {
        (_, "usize" | "isize") => "write `i32`, `i64` or `u32`".into(),
        (_, alias) if let Some(ours) = dtype_of_other_languages(alias) => Help::write(place, ours),
        (Some(close), _) => Help::meant(place, close),
        (None, name) if name.starts_with(char::is_uppercase) && name.len() > 1 => {
            format!("{STRUCTS}; an alias is not seen: write the dtype that it is").into()
        }
        (None, _) => {
            "for any dtype, declare a parameter: `fn name<T: Num>(..)`; an alias is not seen: write the dtype that it is"
                .into()
        }
    };
    Err(errors.report_help(SourceRange::of_type(ty), message, help))
}

/// Whether a type is of the form `T::Acc`.
fn associated(ty: &Type) -> bool {
    matches!(strip(ty), Type::Path(path) if path.path.segments.len() == 2 && path.path.segments[1].ident == "Acc")
}
