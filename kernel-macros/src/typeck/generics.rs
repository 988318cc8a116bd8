//! What the generic parameters of functions and structs stand for: inferred from arguments and fields, or said.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use kernel_core::ir::{ConstTy, Dim, Dt, IntTy, ParamKind};
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{AngleBracketedGenericArguments, Expr, GenericArgument, PathArguments, Type};

use super::function::{Frame, declared};
use super::{Binding, Checker, Constexpr, Val};
use crate::device::function::Function;
use crate::device::text;
use crate::error::Checked;
use crate::signature::{Generic, braced, strip, type_name};
use crate::source_range::{SourceRange, bare};
use crate::tree::Kind;
use crate::types::{BOOL, DtRef, VElem, admits, dt_name};

/// What the generic parameters of a function stand for in a call.
#[derive(Default)]
pub(super) struct Generics {
    pub(super) dtypes: BTreeMap<String, DtRef>,
    pub(super) consts: BTreeMap<String, Binding>,
    /// Those constexprs whose types are known to hold them.
    held: BTreeSet<String>,
    /// What cannot say what the parameters are.
    misfit: Option<Misfit>,
}

/// An argument whose shape has another number of axes than its type says.
struct Misfit {
    /// That type.
    takes: String,
    /// What the argument is.
    found: String,
    place: SourceRange,
}

impl Checker<'_> {
    /// What a turbofish says; `_` says nothing.
    pub(super) fn read_turbofish(
        &mut self,
        function: &Function,
        turbofish: &AngleBracketedGenericArguments,
        generics: &mut Generics,
    ) -> Checked<()> {
        let declares = function.own_generics();
        if turbofish.args.len() != declares.len() {
            let s = if declares.len() == 1 { "" } else { "s" };
            let message = format!("`{}` has {} generic parameter{s}", function.name(), declares.len());
            return Err(self.report_help(SourceRange::of_tokens(turbofish), message, declared(function)));
        }
        for (generic, arg) in declares.iter().zip(&turbofish.args) {
            match (generic, arg) {
                (_, GenericArgument::Type(Type::Infer(_))) => {}
                (Generic::Dtype(name, ..), GenericArgument::Type(ty)) => {
                    let dt = self.dtype(ty)?;
                    generics.dtypes.insert(name.to_string(), DtRef::Fixed(dt));
                }
                (Generic::Const(name, ty, ..), arg) => {
                    let val = match (arg, braced(arg)) {
                        (_, Some(expr)) => self.expr(expr)?,
                        // The name of a constexpr looks like a type.
                        (GenericArgument::Type(Type::Path(path)), None) => self.path(&path.path)?,
                        (other, None) => {
                            let place = SourceRange::of_tokens(other);
                            return Err(self.report(place, format!("`{name}` is a constexpr")));
                        }
                    };
                    let operand = self.one(val)?;
                    let binding = match (&self.node(operand.node).kind, &self.node(operand.node).dim) {
                        (_, Some(dim)) => Binding::Dim(Constexpr::new(dim.clone(), IntTy::Usize)),
                        (Kind::Bool(_), None) => Binding::Value(operand.node),
                        (Kind::ConstBool(id), None) => Binding::ConstBool(*id),
                        _ if self.node(operand.node).constexpr => match self.ty(operand).elem == VElem::Data(BOOL) {
                            true => Binding::Value(operand.node),
                            false => {
                                let (message, help) = self.no_dim(operand, braced(arg), &format!("`{name}`"));
                                return Err(self.report_help(operand.place, message, help));
                            }
                        },
                        _ => {
                            let message = format!("`{name}` is a constexpr, and this is known only at launch");
                            return Err(self.report(operand.place, message));
                        }
                    };
                    if let (Binding::Dim(constexpr), ConstTy::Int(ty)) = (&binding, ty) {
                        self.holds(&name.to_string(), *ty, &constexpr.dim, operand.place)?;
                        generics.held.insert(name.to_string());
                    }
                    generics.consts.insert(name.to_string(), binding);
                }
                (Generic::Dtype(name, ..), other) => {
                    let place = SourceRange::of_tokens(other);
                    return Err(self.report_help(place, format!("`{name}` is a dtype"), "write a dtype as `f32`"));
                }
            }
        }
        Ok(())
    }

    /// Learns generic parameters from an argument. What does not fit is found when it is bound.
    pub(super) fn infer(&self, function: &Function, ty: &Type, val: &Val, generics: &mut Generics) {
        let path = match (strip(ty), val) {
            (Type::Tuple(types), Val::Tuple(vals, _)) => {
                let pairs = types.elems.iter().zip(vals.iter());
                pairs.for_each(|(ty, val)| self.infer(function, ty, val, generics));
                return;
            }
            (Type::Path(path), Val::Tuple(parts, _)) => {
                path.path.segments.iter().for_each(|last| self.infer_record(function, last, parts, generics));
                return;
            }
            (Type::Path(path), _) => &path.path,
            _ => return,
        };
        let (Val::One(operand), Some(last)) = (val, path.segments.last()) else { return };
        let own = self.ty(*operand);
        let PathArguments::AngleBracketed(args) = &last.arguments else {
            if let VElem::Data(dt) = own.elem {
                self.learn_dtype(function, &last.ident.to_string(), dt, generics);
            }
            return;
        };
        let dt = match own.elem {
            VElem::Data(dt) => Some(dt),
            VElem::Ptr(param) => match &self.func.param(param).kind {
                ParamKind::Ptr { dt, .. } => Some(DtRef::Fixed(*dt)),
                ParamKind::Scalar(_)
                | ParamKind::ConstScalar(_)
                | ParamKind::Desc { .. }
                | ParamKind::ReportSlot
                | ParamKind::Length(_)
                | ParamKind::DescShape { .. }
                | ParamKind::DescStride { .. } => None,
            },
        };
        let Some(dt) = dt else { return };
        let place = operand.place;
        self.learn_type(function, (ty, args), dt, &own.shape, (place, &self.show(*operand)), generics);
    }

    /// Learns generic parameters from a dtype and a shape, where the type has them as arguments.
    pub(super) fn learn_type(
        &self,
        function: &Function,
        (ty, args): (&Type, &AngleBracketedGenericArguments),
        dt: DtRef,
        shape: &[Dim],
        (place, found): (SourceRange, &str),
        generics: &mut Generics,
    ) {
        if let Some(GenericArgument::Type(inner)) = args.args.first() {
            self.learn_dtype(function, &type_name(inner).unwrap_or_default(), dt, generics);
        }
        let Some(Expr::Array(dims)) = args.args.iter().nth(1).and_then(braced) else { return };
        if dims.elems.len() != shape.len() {
            let takes = || text(&ty.to_token_stream());
            generics.misfit.get_or_insert_with(|| Misfit { takes: takes(), found: found.to_string(), place });
            return;
        }
        for (dim, own) in dims.elems.iter().zip(shape) {
            if let Expr::Path(path) = bare(dim)
                && let Some(name) = path.path.get_ident().map(ToString::to_string)
                && function.signature.consts().any(|(ident, ..)| *ident == name)
            {
                generics.consts.entry(name).or_insert_with(|| Binding::Dim(Constexpr::new(own.clone(), IntTy::Usize)));
            }
        }
    }

    /// Learns generic parameters from the arguments of a struct's type, and what those are for a value.
    pub(super) fn learn_arguments<'g>(
        &self,
        function: &Function,
        args: impl Iterator<Item = (&'g Generic, &'g GenericArgument)>,
        own: &Generics,
        generics: &mut Generics,
    ) {
        for (generic, arg) in args {
            let name = match (arg, braced(arg)) {
                (GenericArgument::Type(ty), _) => type_name(ty),
                (_, Some(Expr::Path(path))) => path.path.get_ident().map(ToString::to_string),
                _ => None,
            };
            let Some(name) = name else { continue };
            match generic {
                Generic::Dtype(ident, ..) => {
                    let dt = own.dtypes.get(&ident.to_string());
                    dt.into_iter().for_each(|dt| self.learn_dtype(function, &name, *dt, generics));
                }
                Generic::Const(ident, ..) if function.signature.consts().any(|(ident, ..)| *ident == name) => {
                    if let Some(binding) = own.consts.get(&ident.to_string()) {
                        generics.consts.entry(name).or_insert_with(|| binding.clone());
                    }
                }
                Generic::Const(..) => {}
            }
        }
    }

    /// A dtype that is known says more than that of a literal.
    fn learn_dtype(&self, function: &Function, name: &str, dt: DtRef, generics: &mut Generics) {
        if !function.signature.dtypes().any(|(ident, _)| ident == name) {
            return;
        }
        let known = generics.dtypes.get(name).is_some_and(|before| self.types.known(*before).is_some());
        if !known {
            generics.dtypes.insert(name.to_string(), dt);
        }
    }

    /// What a call may say for a generic parameter: of a dtype the caller's own dtype parameters, if it has any that fit.
    fn may_be_said(&self, function: &Function, generic: &str) -> Vec<String> {
        let Some((_, bound)) = function.signature.dtypes().find(|(ident, _)| *ident == generic) else {
            return vec!["16".to_string()];
        };
        let mut names: Vec<String> = match &self.frame.dtypes {
            Some(own) => own.iter().map(|(name, _)| name.clone()).collect(),
            None => self.signature.dtypes().map(|(ident, _)| ident.to_string()).collect(),
        };
        names.retain(|name| self.dtype_by_name(name).is_some_and(|dt| admits(&self.func, dt, bound)));
        if names.is_empty() { vec!["f32".to_string()] } else { names }
    }

    /// The dtypes of the function's parameters in this call.
    pub(super) fn settle(
        &mut self,
        function: &Function,
        generics: &Generics,
        via: Option<TokenStream>,
        place: SourceRange,
    ) -> Checked<Frame> {
        let name = function.name();
        let unknown = |c: &mut Self, generic: &str| {
            if let Some(Misfit { takes, found, place }) = &generics.misfit {
                let what = if function.is_struct { "field" } else { "parameter" };
                let message = format!("the {what} takes a `{takes}`, but this is {found}");
                return c.report_help(*place, message, declared(function));
            }
            let (of, rest) = if function.is_struct { ("fields", " { .. }") } else { ("arguments", "(..)") };
            let call = |said: &str| {
                let each = function.own_generics().iter().map(|own| if own.ident() == generic { said } else { "_" });
                format!("`{name}::<{}>{rest}`", each.collect::<Vec<_>>().join(", "))
            };
            let help = match &function.method {
                // Those of the `impl` are the struct's.
                Some(method) if function.own_generics().iter().all(|own| own.ident() != generic) => {
                    format!("say what it is: `{}::<..>::{}{rest}`", method.of, function.ident())
                }
                Some(_) | None => {
                    let calls: Vec<String> = c.may_be_said(function, generic).iter().map(|said| call(said)).collect();
                    format!("say what it is: {}", calls.join(" or "))
                }
            };
            c.report_help(place, format!("the {of} of `{name}` do not say what `{generic}` is"), help)
        };
        let mut dtypes = Vec::new();
        for (ident, bound) in function.signature.dtypes() {
            let generic = ident.to_string();
            let Some(&dt) = generics.dtypes.get(&generic).filter(|dt| !self.types.is_open(**dt)) else {
                return Err(unknown(self, &generic));
            };
            let dt = self.types.settled(dt);
            if !admits(&self.func, dt, bound) {
                let own = self.show_fixed(dt);
                let message = format!("`{name}` takes a `{generic}: {}`, and {own} is none", bound.name());
                let help = match dt {
                    Dt::Known(_) => declared(function),
                    Dt::Param(_) => {
                        let own = dt_name(&self.func, dt);
                        format!("declare the kernel's dtype parameter as `{own}: {}`", bound.name())
                    }
                };
                return Err(self.report_help(place, message, help));
            }
            dtypes.push((generic, dt));
        }
        for (ident, ty, _) in function.signature.consts() {
            match (generics.consts.get(&ident.to_string()), ty) {
                (None, _) => return Err(unknown(self, &ident.to_string())),
                // What is no argument of the call is a dimension, of at most 2^20 elements, or has been checked before.
                (Some(Binding::Dim(constexpr)), ConstTy::Int(ty @ IntTy::Fixed(dtype)))
                    if dtype.bits() < 32 && !generics.held.contains(&ident.to_string()) =>
                {
                    self.holds(&ident.to_string(), ty, &constexpr.dim, place)?;
                }
                (Some(Binding::Dim(_)), ConstTy::Int(_)) | (Some(Binding::Poison), _) => {}
                (Some(Binding::Value(_) | Binding::ConstBool(_)), ConstTy::Bool) => {}
                (Some(_), _) => {
                    let message = format!("`{name}` takes another type of constexpr for `{ident}`");
                    return Err(self.report_help(place, message, declared(function)));
                }
            }
        }
        let (calls, key) = (Rc::clone(&function.calls), function.key.clone());
        let mut callers = self.frame.callers.clone();
        callers.push(key.clone());
        Ok(Frame { name: Some(name), calls, key, via, dtypes: Some(dtypes), callers, is_written: false })
    }
}
