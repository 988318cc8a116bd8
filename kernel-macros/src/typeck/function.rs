//! `#[device]` functions: checked where they are declared, for all dtypes and shapes, and inlined where they are called.
//!
//! The types of the arguments say what the generic parameters are; then the body is checked once more, as statements of
//! the caller, with these dtypes and dimensions in their places.

use std::rc::Rc;

use kernel_core::ir::{ConstTy, Dt, DtypeId, ParamKind};
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::punctuated::Punctuated;
use syn::{Expr, Path, Token, Type};

use super::annotation::Annotation;
use super::call::turbofish_of;
use super::generics::Generics;
use super::jump::Gives;
use super::named::{Arg, Callable, closure_type};
use super::record::Parts;
use super::{Binding, Checker, Operand, Scope, UnsafeBlock, Val};
use crate::device::bundle::{Functions, macro_path};
use crate::device::function::{Calls, Function, FunctionParam};
use crate::device::text;
use crate::error::{Checked, Errors};
use crate::signature::type_name;
use crate::source::Source;
use crate::source_range::{CallRef, SourceRange, bare};
use crate::tree::Constant;
use crate::types::{Types, VElem};

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
    /// What tells it from all others.
    pub(super) key: String,
    /// The path by which the kernel, or the function that is checked by itself, calls what has led here; `None` there, and
    /// in methods that call each other.
    pub(super) via: Option<TokenStream>,
    /// What its dtype parameters stand for; `None` for the kernel.
    pub(super) dtypes: Option<Vec<(String, Dt)>>,
    /// The functions whose bodies this stands in, itself included.
    pub(super) callers: Vec<String>,
    /// Whether the checker has written what is checked.
    pub(super) is_written: bool,
}

impl Frame {
    /// Code that the checker has written, in a body of `self`: it calls nothing but operations.
    fn written(&self) -> Frame {
        let (name, key, via, callers) = (self.name.clone(), self.key.clone(), self.via.clone(), self.callers.clone());
        Frame { name, calls: Rc::default(), key, via, dtypes: Some(Vec::new()), callers, is_written: true }
    }

    /// The kernel.
    pub(super) fn outermost(functions: &Functions) -> Frame {
        let (calls, callers) = (Rc::clone(&functions.calls), Vec::new());
        Frame { name: None, calls, key: String::new(), via: None, dtypes: None, callers, is_written: false }
    }
}

/// What follows from a function that has been checked where it is declared.
pub struct Checks {
    /// Its `unsafe` blocks.
    pub unsafe_blocks: Vec<UnsafeBlock>,
    /// The constants that it names, and those that it calls.
    pub constants: Vec<Constant>,
    /// The dtypes of these.
    pub types: Types,
    /// What rustc is asked about them, as items.
    pub asked: TokenStream,
}

/// Checks a function where it is declared: whatever its parameters are.
pub fn check_function(function: &Function, functions: &Functions, source: Source, errors: &mut Errors) -> Checks {
    let mut checker = Checker::new(&function.signature, functions, source, errors);
    let dtypes = function.signature.dtypes().enumerate();
    let dtypes = dtypes.map(|(i, (ident, _))| (ident.to_string(), Dt::Param(DtypeId::new(i as u32)))).collect();
    let name = Some(function.ident().to_string());
    let (calls, key) = (Rc::clone(&function.calls), function.key.clone());
    let callers = vec![key.clone()];
    checker.frame = Rc::new(Frame { name, calls, key, via: None, dtypes: Some(dtypes), callers, is_written: false });
    checker.shape_constants.clone_from(&function.shape_constants);
    checker.open_calls = 1;
    checker.calls.push((0, 0));
    checker.bind_constexprs();
    if function.is_struct {
        for param in &function.params {
            let _ = checker.any_value(&param.ty, "", SourceRange::of_type(&param.ty));
        }
        return checker.checks();
    }
    let pats: Vec<&syn::Pat> = function.params.iter().map(|param| &param.pat).collect();
    checker.unique(&pats);
    for param in &function.params {
        let (place, name) = (SourceRange::of_pat(&param.pat), param.pat.to_token_stream().to_string());
        match checker.any_argument(&param.ty, &name, place) {
            Ok(arg) => checker.bind_argument(&param.pat, arg),
            Err(reported) => checker.bind_pattern(&param.pat, Err(reported)),
        }
    }
    // What it gives has been checked with it.
    let _ = checker.function_body(function);
    checker.checks()
}

impl Checker<'_> {
    fn checks(mut self) -> Checks {
        self.finish();
        let asked = self.asked();
        Checks { unsafe_blocks: self.unsafe_blocks, constants: self.constants, types: self.types, asked }
    }

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
            Annotation::Tuple(parts, record) => {
                let parts: Vec<_> = parts.iter().map(|part| self.value_like(part, name, place, ty)).collect();
                let mut parts = parts.into_iter().collect::<Checked<Parts>>()?;
                parts.record.clone_from(record);
                return Ok(Val::Tuple(parts, place));
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
        let gives = match &function.output {
            Some(ty) => Gives::Type(self.annotation(ty)),
            None => Gives::Nothing,
        };
        self.inlined_body(gives, SourceRange::at(function.ident().span()), |c| c.block(&function.stmts, want, end))
    }

    /// The path that leads to what a path names, from where the kernel stands.
    pub(super) fn via(&self, path: &Path) -> Option<TokenStream> {
        self.frame.via.clone().or_else(|| Some(macro_path(path)))
    }

    /// `name::<..>(arguments)` where the name is a function's.
    pub(super) fn call_function(
        &mut self,
        function: &Rc<Function>,
        args: &Punctuated<Expr, Token![,]>,
        path: &Path,
        place: SourceRange,
    ) -> Checked<Val> {
        let name_place = SourceRange::of_path(path);
        let turbofish = path.segments.last().and_then(turbofish_of);
        let args = self.with_closures(&function.params, args);
        let args = self.arguments_of(&function.params, &args)?;
        self.takes(function, args.len(), function.params.len(), place)?;
        let mut generics = Generics::default();
        if let Some(turbofish) = turbofish {
            self.read_turbofish(function, turbofish, &mut generics)?;
        }
        for (param, arg) in function.params.iter().zip(&args) {
            self.infer_from(function, &param.ty, arg, &mut generics);
        }
        let frame = self.settle(function, &generics, self.via(path), name_place)?;
        self.inline_function(function, frame, generics, args, place)
    }

    /// The arguments of a call, with closures for the names of functions where those are wanted.
    pub(super) fn with_closures(
        &mut self,
        params: &[FunctionParam],
        args: &Punctuated<Expr, Token![,]>,
    ) -> Punctuated<Expr, Token![,]> {
        let mut args = args.clone();
        for (param, arg) in params.iter().zip(&mut args) {
            let Some(types) = closure_type(&param.ty) else { continue };
            // Closures with names are passed as they are.
            if self.name_to_call(bare(arg)).is_none_or(|name| self.lookup(&name).is_some()) {
                continue;
            }
            if let Some(closure) = self.closure_of_name(bare(arg), types.inputs.len()) {
                *arg = Expr::Closure(closure);
            }
        }
        args
    }

    /// Checks the body of a function in the place of its call.
    pub(super) fn inline_function(
        &mut self,
        function: &Function,
        frame: Frame,
        generics: Generics,
        args: Vec<Arg>,
        place: SourceRange,
    ) -> Checked<Val> {
        if self.frame.callers.contains(&function.key) {
            let message = format!("`{}` calls itself, and a function is inlined where it is called", function.name());
            return Err(self.report_help(place, message, "write a loop, or a second function"));
        }
        let val = self.inside(function, frame, generics, place, |c| {
            let bound = c.bind_arguments(function, args);
            let source = std::mem::replace(&mut c.source, Rc::new(Source::new(&function.braces)));
            let before = c.errors.list().len();
            let val = bound.and_then(|()| c.function_body(function));
            c.blame_caller(function, before, place);
            c.source = source;
            val
        })?;
        Ok(val.at(place))
    }

    /// Checks something with the names that a function sees, in the place of its call.
    pub(super) fn inside<T>(
        &mut self,
        function: &Function,
        frame: Frame,
        generics: Generics,
        place: SourceRange,
        check: impl FnOnce(&mut Self) -> Checked<T>,
    ) -> Checked<T> {
        self.enter_call(place)?;
        let scopes = std::mem::replace(&mut self.scopes, vec![Scope::default()]);
        let outer_frame = std::mem::replace(&mut self.frame, Rc::new(frame));
        let shape_constants = std::mem::replace(&mut self.shape_constants, function.shape_constants.clone());
        let open_unsafe = std::mem::take(&mut self.open_unsafe);
        let (in_offset, compared) = (std::mem::take(&mut self.in_offset), self.compared.take());
        let (blocks, deferred, ended) = (self.unsafe_blocks.len(), self.deferred.len(), self.ended.len());
        for (name, mut binding) in generics.consts {
            let own = function.signature.consts().find(|(ident, ..)| **ident == name);
            if let (Binding::Dim(constexpr), Some((_, ConstTy::Int(ty), _))) = (&mut binding, own) {
                constexpr.declared = ty.into();
            }
            self.bind(&name, binding);
        }
        let before = self.errors.list().len();
        let result = check(self);
        if function.is_struct {
            self.blame_caller(function, before, place);
        }
        for deferred in &mut self.deferred[deferred..] {
            deferred.place = place;
        }
        // rustc has seen them where the function is declared.
        self.unsafe_blocks.truncate(blocks);
        self.ended.truncate(ended);
        (self.scopes, self.frame, self.open_unsafe) = (scopes, outer_frame, open_unsafe);
        (self.in_offset, self.compared, self.shape_constants) = (in_offset, compared, shape_constants);
        self.leave_call();
        result
    }

    /// Checks code that the checker has written: it sees what `check` binds, and no names of the kernel.
    pub(super) fn written<T>(&mut self, check: impl FnOnce(&mut Self) -> T) -> T {
        let scopes = std::mem::replace(&mut self.scopes, vec![Scope::default()]);
        let frame = Rc::new(self.frame.written());
        let frame = std::mem::replace(&mut self.frame, frame);
        let (in_offset, ended) = (std::mem::take(&mut self.in_offset), self.ended.len());
        let result = check(self);
        self.ended.truncate(ended);
        (self.scopes, self.frame, self.in_offset) = (scopes, frame, in_offset);
        result
    }

    /// Binds the parameters. A mistake is the argument's.
    fn bind_arguments(&mut self, function: &Function, args: Vec<Arg>) -> Checked<()> {
        let mut outcome = Ok(());
        let names: Vec<String> = args.iter().filter_map(|arg| self.value_source(arg)).collect();
        for (param, arg) in function.params.iter().zip(args) {
            let before = self.errors.list().len();
            let tile = matches!(&arg, Arg::Val(Val::One(operand)) if self.is_tile(*operand));
            let arg = self.fit_argument(arg, &param.ty);
            let at = SourceRange::of_pat(&param.pat).start;
            let (name, says) = (text(&param.pat.to_token_stream()), text(&param.ty.to_token_stream()));
            // A receiver's type is written out.
            let (name, says) = (name.replace("mut self", "self"), says.replace("::<", "<"));
            let note = format!("parameter `{name}: {says}` of `{}`, {}", function.name(), line_of(at));
            let scalar = || type_name(&param.ty).is_some_and(|name| self.dtype_by_name(&name).is_some());
            let mapped = tile && arg.is_err() && names.len() == function.params.len() && scalar();
            for mistake in self.errors.since(before) {
                mistake.message = format!("{}\nnote: {note}", mistake.message);
                if mapped {
                    let call = format!("map_elementwise({}, {})", names.join(", "), function.name());
                    mistake.help = Some(format!("of each element write `{call}`").into());
                }
            }
            match arg {
                Ok(arg) => self.bind_argument(&param.pat, arg),
                Err(reported) => outcome = Err(reported),
            }
        }
        outcome
    }

    /// The source of an argument that is a value.
    fn value_source(&self, arg: &Arg) -> Option<String> {
        match arg {
            Arg::Val(val) => self.source.text(val.place()),
            Arg::Closure(..) | Arg::Variable(..) | Arg::Desc(..) | Arg::Option(..) => None,
        }
    }

    fn is_tile(&self, operand: Operand) -> bool {
        let ty = self.ty(operand);
        !ty.is_scalar() && matches!(ty.elem, VElem::Data(_))
    }

    /// A closure of as many parameters as it is given arguments.
    pub(super) fn fitting(&mut self, callable: Callable, wanted: usize, place: SourceRange) -> Checked<Arg> {
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
        let name = function.name();
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
        if self.inlined.len() == MAX_CALLS {
            return Err(self.report(place, format!("a kernel inlines at most {MAX_CALLS} calls")));
        }
        self.open_calls += 1;
        self.inlined.push(place.in_call(self.call));
        self.call = CallRef(self.inlined.len());
        self.calls.push((self.contexts.len(), self.loops.len()));
        Ok(())
    }

    /// The call of the kernel that has led to what is being checked, if a function other than its own is.
    pub(super) fn outermost_call(&self) -> Option<SourceRange> {
        self.frame.via.as_ref()?;
        let of = |call: CallRef| call.0.checked_sub(1).map(|index| self.inlined[index]);
        std::iter::successors(of(self.call), |place| of(place.call)).last()
    }

    /// Ends such a call.
    pub(super) fn leave_call(&mut self) {
        self.open_calls -= 1;
        self.calls.pop();
        self.call = self.call.0.checked_sub(1).map_or(CallRef::default(), |index| self.inlined[index].call);
    }
}

impl Val {
    /// What is said of values of two forms that places give.
    pub(super) fn forms_differ(&self, other: &Val, places: &str) -> String {
        match (self, other) {
            (Val::Tuple(a, _), Val::Tuple(b, _)) if a.record.is_some() || b.record.is_some() => {
                format!("{places} give {} and {}", a.show(), b.show())
            }
            (Val::One(_) | Val::Tuple(..) | Val::Unit(_), _) => {
                format!("{places} give different numbers of values")
            }
        }
    }

    /// The value where it is used.
    pub(super) fn at(self, place: SourceRange) -> Val {
        match self {
            Val::One(operand) => Val::One(Operand { place, ..operand }),
            Val::Tuple(parts, _) => Val::Tuple(parts.with(parts.iter().map(|p| p.clone().at(place)).collect()), place),
            Val::Unit(_) => Val::Unit(place),
        }
    }
}

/// `src/math.rs:12`; the line alone where a macro has made the file.
pub(super) fn line_of(span: proc_macro2::Span) -> String {
    let (file, line) = (span.file(), span.start().line);
    if file.starts_with('<') { format!("line {line}") } else { format!("{file}:{line}") }
}

/// Where a function is declared.
pub(super) fn declared(function: &Function) -> String {
    format!("it is declared at {}", line_of(function.ident().span()))
}
