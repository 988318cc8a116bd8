//! `#[device]` functions: checked where they are declared, for all dtypes and shapes, and inlined where they are called.
//!
//! The types of the arguments say what the generic parameters are; then the body is checked once more, as statements of
//! the caller, with these dtypes and dimensions in their places.

use std::collections::BTreeMap;
use std::rc::Rc;

use kernel_core::ir::{ConstTy, Dt, DtypeId, ParamKind};
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{AngleBracketedGenericArguments, Expr, GenericArgument, PathArguments, Token, Type};

use super::annotation::Annotation;
use super::block::Flow;
use super::named::{Arg, Callable, closure_type};
use super::{Binding, Checker, Operand, Scope, UnsafeBlock, Val};
use crate::device::bundle::Functions;
use crate::device::function::{Calls, Function};
use crate::device::text;
use crate::error::{Checked, Errors, Reported};
use crate::signature::{Generic, braced, strip, type_name};
use crate::source::Source;
use crate::source_range::{SourceRange, bare};
use crate::tree::Kind;
use crate::types::{DtRef, VElem, admits, dt_name};

/// How deep calls may nest: each takes room on the stack of the compiler.
const MAX_DEPTH: usize = 16;
/// Calls that a kernel inlines at most.
const MAX_CALLS: usize = 4096;

/// The function whose body is checked.
pub(super) struct Frame {
    /// Its name; `None` for the kernel.
    pub(super) name: Option<String>,
    /// What it calls.
    pub(super) calls: Rc<Calls>,
    /// What its dtype parameters stand for; `None` for the kernel.
    pub(super) dtypes: Option<Vec<(String, Dt)>>,
}

impl Frame {
    /// The kernel.
    pub(super) fn outermost(functions: &Functions) -> Frame {
        Frame { name: None, calls: Rc::clone(&functions.calls), dtypes: None }
    }
}

/// What the generic parameters of a function stand for in a call.
#[derive(Default)]
struct Generics {
    dtypes: BTreeMap<String, DtRef>,
    consts: BTreeMap<String, Binding>,
}

/// Checks a function where it is declared: whatever its parameters are. Gives its `unsafe` blocks.
pub fn check_function(
    function: &Function,
    functions: &Functions,
    source: Source,
    errors: &mut Errors,
) -> Vec<UnsafeBlock> {
    let mut checker = Checker::new(&function.signature, functions, source, errors);
    let dtypes = function.signature.dtypes().enumerate();
    let dtypes = dtypes.map(|(i, (ident, _))| (ident.to_string(), Dt::Param(DtypeId::new(i as u32)))).collect();
    let name = Some(function.ident().to_string());
    checker.frame = Rc::new(Frame { name, calls: Rc::clone(&function.calls), dtypes: Some(dtypes) });
    checker.open_calls = 1;
    checker.bind_constexprs();
    let pats: Vec<&syn::Pat> = function.params.iter().map(|param| &param.pat).collect();
    checker.unique(&pats);
    for param in &function.params {
        let place = SourceRange::of_pat(&param.pat);
        if let Some(types) = closure_type(&param.ty) {
            let callable = Callable::Parameter(Rc::new(types.clone()));
            checker.bind_argument(&param.pat, Arg::Closure(callable, place));
            continue;
        }
        let name = param.pat.to_token_stream().to_string();
        let val = checker.any_value(&param.ty, &name, place);
        checker.bind_pattern(&param.pat, val);
    }
    // What it gives has been checked with it.
    let _ = checker.function_body(function);
    checker.finish();
    checker.unsafe_blocks
}

impl Checker<'_> {
    /// Some value of a type.
    pub(super) fn any_value(&mut self, ty: &Type, name: &str, place: SourceRange) -> Checked<Val> {
        let annotation = self.annotation(ty)?;
        self.value_like(&annotation, name, place, SourceRange::of_type(ty))
    }

    fn value_like(&mut self, says: &Annotation, name: &str, place: SourceRange, ty: SourceRange) -> Checked<Val> {
        let node = match says {
            Annotation::Data(ty) => self.slot(ty.clone(), place),
            Annotation::Pointer(dt, mutable) => {
                let kind = ParamKind::Ptr { dt: *dt, mutable: *mutable };
                let id = self.func.add_param(name, kind.clone(), place.ir_span());
                self.param_node(id, &kind, place)
            }
            Annotation::Tuple(parts) => {
                let parts: Vec<_> = parts.iter().map(|part| self.value_like(part, name, place, ty)).collect();
                return Ok(Val::Tuple(parts.into_iter().collect::<Checked<_>>()?, place));
            }
            Annotation::Inferred | Annotation::Constexpr => {
                let help = "write a dtype as `f32`, or `Tile<f32, { [M, N] }>`";
                return Err(self.report_help(ty, "a function says what it takes and gives", help));
            }
        };
        Ok(Val::One(Operand { node, place }))
    }

    /// The statements of a function, and its value, which has the type that the function says.
    fn function_body(&mut self, function: &Function) -> Checked<Val> {
        let (end, want) = (function.braces.span_close(), function.output.is_some());
        let val = match self.block(&function.stmts, want, end) {
            Flow::Value(val) => val?,
            // `return` has been refused.
            Flow::Diverges => return Err(Reported::earlier()),
        };
        let Some(ty) = &function.output else { return Ok(val) };
        let annotation = self.annotation(ty)?;
        self.have_type(val, &annotation, "the function gives")
    }

    /// `name::<..>(arguments)` where the name is a function's.
    pub(super) fn call_function(
        &mut self,
        function: &Rc<Function>,
        args: &Punctuated<Expr, Token![,]>,
        turbofish: Option<&AngleBracketedGenericArguments>,
        name_place: SourceRange,
        place: SourceRange,
    ) -> Checked<Val> {
        let args = self.arguments(args)?;
        let (name, takes) = (function.ident().to_string(), function.params.len());
        if args.len() != takes {
            let s = if takes == 1 { "" } else { "s" };
            let message = format!("`{name}` takes {takes} argument{s}, found {}", args.len());
            return Err(self.report_help(place, message, declared(function)));
        }
        let mut generics = Generics::default();
        if let Some(turbofish) = turbofish {
            self.read_turbofish(function, turbofish, &mut generics)?;
        }
        for (param, arg) in function.params.iter().zip(&args) {
            if let Arg::Val(val) = arg {
                self.infer(function, &param.ty, val, &mut generics);
            }
        }
        let frame = self.settle(function, &generics, name_place)?;
        self.inline_function(function, frame, generics, args, place)
    }

    /// What a turbofish says; `_` says nothing.
    fn read_turbofish(
        &mut self,
        function: &Function,
        turbofish: &AngleBracketedGenericArguments,
        generics: &mut Generics,
    ) -> Checked<()> {
        let declares = &function.signature.generics;
        if turbofish.args.len() != declares.len() {
            let s = if declares.len() == 1 { "" } else { "s" };
            let message = format!("`{}` has {} generic parameter{s}", function.ident(), declares.len());
            return Err(self.report_help(SourceRange::of_tokens(turbofish), message, declared(function)));
        }
        for (generic, arg) in declares.iter().zip(&turbofish.args) {
            match (generic, arg) {
                (_, GenericArgument::Type(Type::Infer(_))) => {}
                (Generic::Dtype(name, ..), GenericArgument::Type(ty)) => {
                    let dt = self.dtype(ty)?;
                    generics.dtypes.insert(name.to_string(), DtRef::Fixed(dt));
                }
                (Generic::Const(name, ..), arg) => {
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
                        (_, Some(dim)) => Binding::Dim(dim.clone()),
                        (Kind::Bool(_), None) => Binding::Value(operand.node),
                        (Kind::ConstBool(id), None) => Binding::ConstBool(*id),
                        _ => {
                            let message = format!("`{name}` is a constexpr, and this is known only at launch");
                            return Err(self.report(operand.place, message));
                        }
                    };
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
    fn infer(&self, function: &Function, ty: &Type, val: &Val, generics: &mut Generics) {
        let path = match (strip(ty), val) {
            (Type::Tuple(types), Val::Tuple(vals, _)) => {
                let pairs = types.elems.iter().zip(vals);
                pairs.for_each(|(ty, val)| self.infer(function, ty, val, generics));
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
        if let (Some(GenericArgument::Type(inner)), Some(dt)) = (args.args.first(), dt) {
            self.learn_dtype(function, &type_name(inner).unwrap_or_default(), dt, generics);
        }
        let Some(Expr::Array(shape)) = args.args.iter().nth(1).and_then(braced) else { return };
        for (dim, own) in shape.elems.iter().zip(&own.shape).filter(|_| shape.elems.len() == own.shape.len()) {
            if let Expr::Path(path) = bare(dim)
                && let Some(name) = path.path.get_ident().map(ToString::to_string)
                && function.signature.consts().any(|(ident, ..)| *ident == name)
            {
                generics.consts.entry(name).or_insert_with(|| Binding::Dim(own.clone()));
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

    /// The dtypes of the function's parameters in this call.
    fn settle(&mut self, function: &Function, generics: &Generics, place: SourceRange) -> Checked<Frame> {
        let name = function.ident().to_string();
        let unknown = |c: &mut Self, generic: &str| {
            let each = function.signature.generics.iter().map(|g| match g {
                Generic::Dtype(ident, ..) => {
                    if ident == generic {
                        "f32"
                    } else {
                        "_"
                    }
                }
                Generic::Const(ident, ..) => {
                    if ident == generic {
                        "16"
                    } else {
                        "_"
                    }
                }
            });
            let help = format!("say what it is: `{name}::<{}>(..)`", each.collect::<Vec<_>>().join(", "));
            c.report_help(place, format!("the arguments of `{name}` do not say what `{generic}` is"), help)
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
                (Some(Binding::Dim(_)), ConstTy::Int(_)) | (Some(Binding::Poison), _) => {}
                (Some(Binding::Value(_) | Binding::ConstBool(_)), ConstTy::Bool) => {}
                (Some(_), _) => {
                    let message = format!("`{name}` takes another type of constexpr for `{ident}`");
                    return Err(self.report_help(place, message, declared(function)));
                }
            }
        }
        Ok(Frame { name: Some(name), calls: Rc::clone(&function.calls), dtypes: Some(dtypes) })
    }

    /// Checks the body of a function in the place of its call.
    fn inline_function(
        &mut self,
        function: &Function,
        frame: Frame,
        generics: Generics,
        args: Vec<Arg>,
        place: SourceRange,
    ) -> Checked<Val> {
        self.enter_call(place)?;
        let scopes = std::mem::replace(&mut self.scopes, vec![Scope::default()]);
        let outer_frame = std::mem::replace(&mut self.frame, Rc::new(frame));
        let open_unsafe = std::mem::take(&mut self.open_unsafe);
        let (in_offset, compared) = (std::mem::take(&mut self.in_offset), self.compared.take());
        let (blocks, deferred, ended) = (self.unsafe_blocks.len(), self.deferred.len(), self.ended.len());
        for (name, binding) in generics.consts {
            self.bind(&name, binding);
        }
        let bound = self.bind_arguments(function, args);
        let source = std::mem::replace(&mut self.source, Rc::new(Source::new(&function.braces)));
        let before = self.errors.list().len();
        let val = bound.and_then(|()| self.function_body(function));
        self.blame_caller(function, before, place);
        for deferred in &mut self.deferred[deferred..] {
            deferred.place = place;
        }
        // rustc has seen them where the function is declared.
        self.unsafe_blocks.truncate(blocks);
        self.ended.truncate(ended);
        (self.scopes, self.frame, self.source, self.open_unsafe) = (scopes, outer_frame, source, open_unsafe);
        (self.in_offset, self.compared) = (in_offset, compared);
        self.leave_call();
        val.map(|val| val.at(place))
    }

    /// Binds the parameters. A mistake is the argument's.
    fn bind_arguments(&mut self, function: &Function, args: Vec<Arg>) -> Checked<()> {
        let mut outcome = Ok(());
        for (param, arg) in function.params.iter().zip(args) {
            let before = self.errors.list().len();
            let arg = match (arg, closure_type(&param.ty)) {
                (Arg::Val(val), None) => {
                    let annotation = self.annotation(&param.ty);
                    annotation.and_then(|says| self.have_type(val, &says, "the parameter takes")).map(Arg::Val)
                }
                (Arg::Closure(callable, place), Some(types)) => self.fitting(callable, types.inputs.len(), place),
                (Arg::Val(val), Some(_)) => {
                    Err(self.report_help(val.place(), "this must be a closure", "write `|a| ..`"))
                }
                (Arg::Closure(_, place), None) => Err(self.report(place, "this must be a value, not a closure")),
            };
            let at = SourceRange::of_pat(&param.pat).start;
            let (name, says) = (text(&param.pat.to_token_stream()), text(&param.ty.to_token_stream()));
            let note = format!("parameter `{name}: {says}` of `{}`, {}", function.ident(), line_of(at));
            for mistake in self.errors.since(before) {
                mistake.message = format!("{}\nnote: {note}", mistake.message);
            }
            match arg {
                Ok(arg) => self.bind_argument(&param.pat, arg),
                Err(reported) => outcome = Err(reported),
            }
        }
        outcome
    }

    /// A closure of as many parameters as it is given arguments.
    fn fitting(&mut self, callable: Callable, wanted: usize, place: SourceRange) -> Checked<Arg> {
        let takes = match &callable {
            Callable::Closure(closure) => closure.takes(),
            Callable::Parameter(types) => types.inputs.len(),
        };
        if takes == wanted {
            return Ok(Arg::Closure(callable, place));
        }
        let s = if wanted == 1 { "" } else { "s" };
        Err(self.report(place, format!("this closure must take {wanted} argument{s}, and takes {takes}")))
    }

    /// A mistake that only this call's arguments bring about is the caller's, with a note where in the function it shows.
    fn blame_caller(&mut self, function: &Function, before: usize, place: SourceRange) {
        let name = function.ident();
        // One says enough: the others follow from the same arguments.
        self.errors.forget(before + 1);
        for mistake in self.errors.since(before).iter_mut().filter(|mistake| !mistake.is_own) {
            let at = line_of(mistake.place.start);
            mistake.message = format!("in this call of `{name}`: {}\nnote: in `{name}`, {at}", mistake.message);
            mistake.help = None;
            mistake.place = place;
        }
    }

    /// Begins a call in which another body is inlined.
    pub(super) fn enter_call(&mut self, place: SourceRange) -> Checked<()> {
        if self.open_calls == MAX_DEPTH {
            return Err(self.report(place, format!("calls nest at most {MAX_DEPTH} deep")));
        }
        if self.inlined == MAX_CALLS {
            return Err(self.report(place, format!("a kernel inlines at most {MAX_CALLS} calls")));
        }
        self.open_calls += 1;
        self.inlined += 1;
        self.calls.push((self.contexts.len(), self.loops.len()));
        Ok(())
    }

    /// Ends such a call.
    pub(super) fn leave_call(&mut self) {
        self.open_calls -= 1;
        self.calls.pop();
    }
}

impl Val {
    /// The value where it is used.
    pub(super) fn at(self, place: SourceRange) -> Val {
        match self {
            Val::One(operand) => Val::One(Operand { place, ..operand }),
            Val::Tuple(parts, _) => Val::Tuple(parts.into_iter().map(|part| part.at(place)).collect(), place),
            Val::Unit(_) => Val::Unit(place),
        }
    }
}

/// `src/math.rs:12`; the line alone where a macro has made the file.
fn line_of(span: proc_macro2::Span) -> String {
    let (file, line) = (span.file(), span.start().line);
    if file.starts_with('<') { format!("line {line}") } else { format!("{file}:{line}") }
}

/// Where a function is declared.
fn declared(function: &Function) -> String {
    format!("it is declared at {}", line_of(function.ident().span()))
}
