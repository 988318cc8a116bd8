//! What a function takes that is no value: descriptors, and what may be without an argument.
//!
//! Both are passed on by name. Of what may be missing a call may also say whether it is there, by `Some(value)` and `None`. The
//! body is inlined with what the names stand for:
//!
//! ```text
//! fn biased<..>(x: Tile<..>, bias: Option<Ptr<f32>>) { if let Some(bias) = bias { .. } else { .. } }
//!
//! biased(x, bias)         the branches, of which the launch keeps one
//! biased(x, Some(b))      the first branch
//! biased(x, None)         the second branch
//! ```

use kernel_core::ir::{DType, Dim, Dt, ParamId, ParamKind, Passing};
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{Expr, Pat, Token, Type};

use super::annotation::Annotation;
use super::generics::Generics;
use super::named::{Arg, Callable, closure_type};
use super::parameters::Given;
use super::tensor_desc::Descriptor;
use super::{Binding, Checker, Operand, Val};
use crate::device::function::{Function, FunctionParam};
use crate::device::text;
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::signature::{descriptor_of, generic_name, option_of};
use crate::source_range::{SourceRange, bare};
use crate::types::{VElem, dt_name};

impl Checker<'_> {
    /// The arguments of a function. All are checked, also after a mistake; those too many as any value.
    pub(super) fn arguments_of(
        &mut self,
        params: &[FunctionParam],
        args: &Punctuated<Expr, Token![,]>,
    ) -> Checked<Vec<Arg>> {
        let types = params.iter().map(|param| Some(&param.ty)).chain(std::iter::repeat(None));
        let args: Vec<Checked<Arg>> = args.iter().zip(types).map(|(arg, ty)| self.argument_of(ty, arg)).collect();
        args.into_iter().collect()
    }

    fn argument_of(&mut self, ty: Option<&Type>, arg: &Expr) -> Checked<Arg> {
        match ty {
            Some(ty) if descriptor_of(ty).is_some() => self.descriptor_argument(arg),
            Some(ty) if option_of(ty).is_some() => self.optional_argument(ty, arg),
            Some(ty) => self.no_option(ty, arg).and_then(|()| self.argument(arg)),
            None => self.argument(arg),
        }
    }

    /// Refuses `Some(value)` and `None` for a parameter that always has an argument.
    fn no_option(&mut self, ty: &Type, arg: &Expr) -> Checked<()> {
        let place = SourceRange::of(arg);
        let message = "this parameter is no `Option`: there always is an argument";
        match bare(arg) {
            Expr::Call(call) if is_some(&call.func) && call.args.len() == 1 => {
                let help: Help = match self.source.text(SourceRange::of(&call.args[0])) {
                    Some(text) => Help::write(place, text),
                    None => "write what `Some` holds".into(),
                };
                Err(self.report_help(place, message, help))
            }
            Expr::Path(path) if path.path.is_ident("None") => {
                let help = format!("declare it as `Option<{}>`", text(&ty.to_token_stream()));
                Err(self.report_help(place, message, help))
            }
            _ => Ok(()),
        }
    }

    /// The name of a descriptor.
    fn descriptor_argument(&mut self, arg: &Expr) -> Checked<Arg> {
        let place = SourceRange::of(arg);
        if let Some(descriptor) = self.descriptor(arg) {
            return Ok(Arg::Desc(descriptor, place));
        }
        let found = self.expr(arg)?;
        let message = format!("this must be a tensor descriptor, found {}", self.show_val(&found));
        let help = "pass the name of a parameter that is one, or of what `let a = tensor_desc(..);` has made";
        Err(self.report_help(place, message, help))
    }

    /// The name of what may be without an argument, `Some(value)` or `None`.
    fn optional_argument(&mut self, ty: &Type, arg: &Expr) -> Checked<Arg> {
        let place = SourceRange::of(arg);
        let held = option_of(ty).ok_or_else(Reported::earlier)?;
        if let Some(option) = self.option(arg) {
            let held = match option.held {
                // Nobody asks what is not there.
                _ if option.given == Given::Known(false) => None,
                Binding::Desc(descriptor) => Some(Arg::Desc(descriptor, place)),
                held => Some(Arg::Val(self.held_value(&held, &option.name, place)?)),
            };
            return Ok(Arg::Option(option.given, held.map(Box::new), place));
        }
        match bare(arg) {
            Expr::Path(path) if path.path.is_ident("None") => Ok(Arg::Option(Given::Known(false), None, place)),
            Expr::Call(call) if is_some(&call.func) && call.args.len() == 1 => {
                let value = self.argument_of(Some(held), &call.args[0])?;
                Ok(Arg::Option(Given::Known(true), Some(Box::new(value)), place))
            }
            _ => {
                let descriptor = descriptor_of(held).and_then(|_| self.descriptor(arg));
                let (found, fits) = match descriptor {
                    Some(_) => ("a tensor descriptor".to_string(), true),
                    None => {
                        let found = self.expr(arg)?;
                        (self.show_val(&found), self.is_kind(&found, held))
                    }
                };
                let message = format!("this must be an `{}`, found {found}", text(&ty.to_token_stream()));
                let help = match self.source.text(place) {
                    Some(text) if fits => Help::write(place, format!("Some({text})")),
                    Some(_) | None => "write `Some(..)`, `None`, or the name of an optional parameter".into(),
                };
                Err(self.report_help(place, message, help))
            }
        }
    }

    /// Learns generic parameters from an argument. What does not fit is found when it is bound.
    pub(super) fn infer_from(&self, function: &Function, ty: &Type, arg: &Arg, generics: &mut Generics) {
        match arg {
            Arg::Val(val) | Arg::Variable(_, val) => self.infer(function, ty, val, generics),
            Arg::Desc(descriptor, place) => {
                let Some(args) = descriptor_of(ty).and_then(|says| says.args) else { return };
                let Ok(own) = self.described(descriptor) else { return };
                let found = format!("a `{}`", self.show_descriptor(own.dt, &own.block, own.mutable));
                self.learn_type(function, (ty, args), own.dt.into(), &own.block, (*place, &found), generics);
            }
            Arg::Option(_, held, _) => {
                if let (Some(ty), Some(held)) = (option_of(ty), held) {
                    self.infer_from(function, ty, held, generics);
                }
            }
            Arg::Closure(..) => {}
        }
    }

    /// The argument as a parameter of this type takes it.
    pub(super) fn fit_argument(&mut self, arg: Arg, ty: &Type) -> Checked<Arg> {
        if let Some(types) = closure_type(ty) {
            return match arg {
                Arg::Closure(callable, place) => {
                    callable.wants(matches!(types.output, syn::ReturnType::Type(..)));
                    self.fitting(callable, types.inputs.len(), place)
                }
                Arg::Val(_) | Arg::Variable(..) | Arg::Desc(..) | Arg::Option(..) => {
                    Err(self.report_help(arg.place(), "this must be a closure", "write `|a| ..`"))
                }
            };
        }
        match arg {
            Arg::Val(val) => {
                let says = self.annotation(ty)?;
                let says = self.lent(&val, says)?;
                self.have_type(val, &says, "the parameter takes").map(Arg::Val)
            }
            Arg::Variable(variable, val) => {
                let says = self.annotation(ty)?;
                self.have_type(val.clone(), &says, "the method takes")?;
                Ok(Arg::Variable(variable, val))
            }
            Arg::Closure(_, place) => Err(self.report(place, "this must be a value, not a closure")),
            Arg::Desc(descriptor, place) => {
                self.fit_descriptor(&descriptor, ty, place)?;
                Ok(Arg::Desc(descriptor, place))
            }
            Arg::Option(given, held, place) => {
                let inner = option_of(ty).ok_or_else(Reported::earlier)?;
                let held = held.map(|held| self.fit_argument(*held, inner)).transpose()?;
                Ok(Arg::Option(given, held.map(Box::new), place))
            }
        }
    }

    /// Whether a value and a type are both pointers, or both none.
    fn is_kind(&self, val: &Val, ty: &Type) -> bool {
        let pointer = matches!(generic_name(ty).as_deref(), Some("Ptr" | "PtrMut"));
        match val {
            Val::One(operand) => matches!(self.ty(*operand).elem, VElem::Ptr(_)) == pointer,
            Val::Tuple(..) => !pointer,
            Val::Unit(_) => false,
        }
    }

    /// What a parameter says of a value that it takes: a function may be lent what it only reads, though it could be written.
    fn lent(&mut self, val: &Val, says: Annotation) -> Checked<Annotation> {
        let (Val::One(operand), Annotation::Pointer(dt, mutable)) = (val, &says) else { return Ok(says) };
        let VElem::Ptr(param) = self.ty(*operand).elem else { return Ok(says) };
        let own = ParamKind::Ptr { dt: *dt, mutable: !mutable };
        match (self.func.param(param).kind == own, mutable) {
            (true, false) => Ok(Annotation::Pointer(*dt, true)),
            (true, true) => Err(self.read_only(param, *dt, operand.place)),
            (false, _) => Ok(says),
        }
    }

    fn fit_descriptor(&mut self, descriptor: &Descriptor, ty: &Type, place: SourceRange) -> Checked<()> {
        let (dt, block, mutable) = self.descriptor_type(ty)?;
        let own = self.described(descriptor)?;
        if own.dt != dt || !self.same_shape(&own.block, &block) {
            let (takes, found) =
                (self.show_descriptor(dt, &block, mutable), self.show_descriptor(own.dt, &own.block, own.mutable));
            let message = format!("the parameter takes a `{takes}`, but this is a `{found}`");
            return Err(self.report(place, message));
        }
        if mutable { self.writable(&own, place) } else { Ok(()) }
    }

    /// What the type of a descriptor says: its dtype, the shape of its blocks, and whether they are written.
    fn descriptor_type(&mut self, ty: &Type) -> Checked<(Dt, Vec<Dim>, bool)> {
        let says = descriptor_of(ty).ok_or_else(Reported::earlier)?;
        let (inner, shape, _) = says.parts(self.errors)?;
        let dt = self.dtype(inner);
        let block = self.shape_arg(shape);
        Ok((dt?, block?, says.mutable))
    }

    fn show_descriptor(&self, dt: Dt, block: &[Dim], mutable: bool) -> String {
        let name = if mutable { "TensorDescMut" } else { "TensorDesc" };
        format!("{name}<{}, {{ {} }}>", dt_name(&self.func, dt), self.shape_source(block))
    }

    /// Some argument of a parameter: what the body of a function is checked with where it is declared.
    pub(super) fn any_argument(&mut self, ty: &Type, name: &str, place: SourceRange) -> Checked<Arg> {
        if let Some(types) = closure_type(ty) {
            return Ok(Arg::Closure(Callable::Parameter(std::rc::Rc::new(types.clone())), place));
        }
        if descriptor_of(ty).is_some() {
            let (dt, block, mutable) = self.descriptor_type(ty)?;
            let id = self.func.add_param(name, ParamKind::Desc { dt, block, mutable }, place.ir_span());
            return Ok(Arg::Desc(Descriptor::Param(id), place));
        }
        let Some(inner) = option_of(ty) else { return self.any_value(ty, name, place).map(Arg::Val) };
        let before = self.func.params.len();
        let held = self.any_argument(inner, name, place)?;
        if self.func.params.len() == before {
            // What it holds is no parameter: another one says whether there is an argument.
            self.func.add_param(name, ParamKind::Scalar(Dt::Known(DType::Bool)), place.ir_span());
        }
        self.func.params[before].passing = Passing::Optional;
        let given = Given::Param(ParamId::new(before as u32));
        Ok(Arg::Option(given, Some(Box::new(held)), place))
    }

    /// Binds what is no value to the name of a parameter.
    pub(super) fn bind_named(&mut self, pat: &Pat, binding: Binding, place: SourceRange) {
        match pat {
            Pat::Ident(name) => self.bind(&name.ident.to_string(), binding),
            Pat::Wild(_) => {}
            _ => {
                let reported = self.report(place, "this cannot be taken apart");
                self.bind_pattern(pat, Err(reported));
            }
        }
    }

    /// What an argument is for the name of its parameter.
    pub(super) fn named_binding(&self, arg: &Arg) -> Option<Binding> {
        match arg {
            Arg::Val(_) => None,
            Arg::Closure(callable, _) => Some(Binding::Closure(callable.clone())),
            Arg::Variable(variable, _) => Some(variable.clone()),
            Arg::Desc(descriptor, _) => Some(Binding::Desc(descriptor.clone())),
            Arg::Option(given, held, _) => {
                let held = held.as_ref().map_or(Binding::Poison, |held| match &**held {
                    Arg::Val(val) => self.binding_of(val),
                    other => self.named_binding(other).unwrap_or(Binding::Poison),
                });
                Some(Binding::Option(*given, Box::new(held)))
            }
        }
    }

    /// What an optional parameter holds, where it is a value.
    pub(super) fn held_value(&mut self, held: &Binding, name: &str, place: SourceRange) -> Checked<Val> {
        match held {
            Binding::Value(node) => Ok(Val::One(Operand { node: *node, place })),
            held => self.use_binding(held, name, false, place),
        }
    }
}

impl Arg {
    /// Where it stands.
    pub(super) fn place(&self) -> SourceRange {
        match self {
            Arg::Val(val) | Arg::Variable(_, val) => val.place(),
            Arg::Closure(_, place) | Arg::Desc(_, place) | Arg::Option(_, _, place) => *place,
        }
    }
}

/// Whether this is the `Some` of `Some(value)`.
fn is_some(function: &Expr) -> bool {
    matches!(bare(function), Expr::Path(path) if path.path.is_ident("Some"))
}
