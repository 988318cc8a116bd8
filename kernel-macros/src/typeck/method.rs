//! Methods of structs: `state.update(x)` and `State::new(..)`.

use proc_macro2::TokenStream;
use syn::{Expr, ExprCall, ExprMethodCall, Path, PathSegment};

use super::call::turbofish_of;
use super::function::declared;
use super::generics::Generics;
use super::named::Arg;
use super::record::Record;
use super::{Binding, Checker, Val};
use crate::device::bundle::macro_path;
use crate::device::function::Function;
use crate::device::methods::{Receiver, associated};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::names::closest;
use crate::source_range::{SourceRange, bare};

impl Checker<'_> {
    /// `State::new(..)`, if the path begins with a struct.
    pub(super) fn associated_call(&mut self, call: &ExprCall, path: &Path, place: SourceRange) -> Option<Checked<Val>> {
        let (of, last) = associated(path)?;
        let record = self.record(&of)?;
        Some(self.call_associated(call, (&of, &record), last, place))
    }

    fn call_associated(
        &mut self,
        call: &ExprCall,
        (of, record): (&Path, &Record),
        last: &PathSegment,
        place: SourceRange,
    ) -> Checked<Val> {
        let (name, at) = (last.ident.to_string(), SourceRange::at(last.ident.span()));
        let function = match record.method(&name).and_then(|key| self.functions.of_key(key)) {
            Some(function) => function,
            None => return Err(self.no_method(record, &name, at)),
        };
        if function.method.as_ref().is_some_and(|method| method.receiver.is_some()) {
            let message = format!("`{}` is called on a value", function.name());
            return Err(self.report_help(at, message, format!("write `value.{name}(..)`")));
        }
        let args = self.with_closures(&function.params, &call.args);
        let args = self.arguments_of(&function.params, &args)?;
        self.takes(&function, args.len(), function.params.len(), place)?;
        let mut generics = Generics::default();
        if let (Some(turbofish), Some(method)) = (of.segments.last().and_then(turbofish_of), &function.method) {
            let declares = &record.0.signature.generics;
            let mut own = Generics::default();
            self.read_turbofish(&record.0, turbofish, &mut own)?;
            self.learn_arguments(&function, declares.iter().zip(&method.arguments), &own, &mut generics);
        }
        if let Some(turbofish) = turbofish_of(last) {
            self.read_turbofish(&function, turbofish, &mut generics)?;
        }
        for (param, arg) in function.params.iter().zip(&args) {
            self.infer_from(&function, &param.ty, arg, &mut generics);
        }
        let frame = self.settle(&function, &generics, self.via_struct(record, Some(of)), at)?;
        self.inline_function(&function, frame, generics, args, place)
    }

    /// `state.update(x)`, if `state` is a struct.
    pub(super) fn record_method(
        &mut self,
        call: &ExprMethodCall,
        receiver: &Val,
        place: SourceRange,
    ) -> Option<Checked<Val>> {
        let Val::Tuple(parts, _) = receiver else { return None };
        let record = parts.record.clone()?;
        Some(self.call_method(call, receiver.clone(), &record, place))
    }

    fn call_method(
        &mut self,
        call: &ExprMethodCall,
        receiver: Val,
        record: &Record,
        place: SourceRange,
    ) -> Checked<Val> {
        let (name, at) = (call.method.to_string(), SourceRange::at(call.method.span()));
        let function = match record.method(&name).and_then(|key| self.functions.of_key(key)) {
            Some(function) => function,
            None => return Err(self.no_method(record, &name, at)),
        };
        let receiver = match function.method.as_ref().and_then(|method| method.receiver) {
            Some(Receiver::Value) => Arg::Val(receiver),
            Some(Receiver::Mutable) => {
                let variable = self.changed(&function, &call.receiver)?;
                Arg::Variable(variable, receiver)
            }
            None => {
                let message = format!("`{}` takes no `self`", function.name());
                return Err(self.report_help(at, message, format!("write `{}(..)`", function.name())));
            }
        };
        let params = function.params.get(1..).unwrap_or_default();
        let args = self.with_closures(params, &call.args);
        let args = self.arguments_of(params, &args)?;
        self.takes(&function, args.len(), function.params.len() - 1, place)?;
        let args: Vec<Arg> = std::iter::once(receiver).chain(args).collect();
        let mut generics = Generics::default();
        if let Some(turbofish) = &call.turbofish {
            self.read_turbofish(&function, turbofish, &mut generics)?;
        }
        for (param, arg) in function.params.iter().zip(&args) {
            self.infer_from(&function, &param.ty, arg, &mut generics);
        }
        let frame = self.settle(&function, &generics, self.via_struct(record, None), at)?;
        self.inline_function(&function, frame, generics, args, place)
    }

    /// The variable that a method with `&mut self` is called on.
    fn changed(&mut self, function: &Function, receiver: &Expr) -> Checked<Binding> {
        if !is_place(receiver) {
            let message =
                format!("`{}` changes the struct that it is called on, which no variable holds", function.name());
            let help = "give it a name: `let mut value = ..;`";
            return Err(self.report_help(SourceRange::of(receiver), message, help));
        }
        self.assignable(receiver)
    }

    /// The path that leads to the struct of a method from where the kernel stands; empty if the kernel does not name it,
    /// and none where that is the struct's own module.
    fn via_struct(&self, record: &Record, path: Option<&Path>) -> Option<TokenStream> {
        if let Some(via) = &self.frame.via {
            return Some(via.clone());
        }
        let key = &record.0.key;
        let named = || self.functions.path_of(key).cloned().unwrap_or_default();
        (self.functions.own.as_ref() != Some(key)).then(|| path.map_or_else(named, macro_path))
    }

    /// Refuses another number of arguments than a function takes.
    pub(super) fn takes(&mut self, function: &Function, found: usize, takes: usize, place: SourceRange) -> Checked<()> {
        if found == takes {
            return Ok(());
        }
        let s = if takes == 1 { "" } else { "s" };
        let message = format!("`{}` takes {takes} argument{s}, found {found}", function.name());
        Err(self.report_help(place, message, declared(function)))
    }

    fn no_method(&mut self, record: &Record, name: &str, place: SourceRange) -> Reported {
        let message = format!("the struct `{record:?}` has no method `{name}`");
        let methods: Vec<&str> = record.methods().collect();
        let help = match closest(name, methods.iter().copied()) {
            Some(close) => Help::meant(place, close),
            None if methods.is_empty() => {
                format!("it has none: they stand in a `#[device] impl {record:?}`, and it says `#[device(methods)]`")
                    .into()
            }
            None => format!("its methods are `{}`", methods.join("`, `")).into(),
        };
        self.report_help(place, message, help)
    }
}

/// Whether an expression is a variable or a field of one.
fn is_place(expr: &Expr) -> bool {
    match bare(expr) {
        Expr::Path(path) => path.path.get_ident().is_some(),
        Expr::Paren(paren) => is_place(&paren.expr),
        Expr::Field(field) => is_place(&field.base),
        _ => false,
    }
}
