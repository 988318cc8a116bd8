//! Closures with names, `let silu = |x| x * sigmoid(x);`, and those that functions are given: inlined at each call.
//!
//! A closure sees what is visible where it stands, except mutable variables, which may have changed when it is called.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use proc_macro2::Ident;
use syn::punctuated::Punctuated;
use syn::{
    Expr, ExprClosure, Local, ParenthesizedGenericArguments, Pat, PatIdent, ReturnType, Token, Type, TypeParamBound,
    parse_quote_spanned,
};

use super::block::{ends_in_statement, gives_nothing};
use super::function::Frame;
use super::jump::Gives;
use super::parameters::Given;
use super::tensor_desc::Descriptor;
use super::{Binding, Checker, Context, Scope, Val};
use crate::device::collect::path_text;
use crate::error::{Checked, Reported};
use crate::names::is_screaming;
use crate::ops;
use crate::signature::strip;
use crate::source::Source;
use crate::source_range::{SourceRange, bare};

/// What can be called besides operations and functions.
#[derive(Clone)]
pub(super) enum Callable {
    /// A closure, where it stands.
    Closure(Rc<Closure>),
    /// The parameter `f: impl Fn(A, B) -> C` of a function that is checked by itself.
    Parameter(Rc<ParenthesizedGenericArguments>),
}

impl Callable {
    /// Notes whether a value is wanted of it.
    pub(super) fn wants(&self, value: bool) {
        if let Callable::Closure(closure) = self {
            closure.wanted.set(Some(value));
        }
    }
}

impl fmt::Debug for Callable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closure")
    }
}

/// A closure, where it stands.
pub(super) struct Closure {
    closure: ExprClosure,
    /// What is visible there.
    around: Rc<Vec<Scope>>,
    frame: Rc<Frame>,
    source: Rc<Source>,
    /// How many closures of `reduce` and scans surround it.
    combines: usize,
    /// Whether its body has been found wrong, which is said once.
    is_wrong: Cell<bool>,
    /// Whether it must give a value, where a parameter that takes it says so.
    wanted: Cell<Option<bool>>,
}

impl Closure {
    /// How many arguments it takes.
    pub(super) fn takes(&self) -> usize {
        self.closure.inputs.len()
    }

    /// Whether its body is a statement, which gives nothing.
    fn gives_nothing(&self) -> bool {
        let body = &self.closure.body;
        match (&self.closure.output, self.wanted.get()) {
            (ReturnType::Type(..), _) | (_, Some(true)) => false,
            (ReturnType::Default, Some(false)) => gives_nothing(body) || ends_in_statement(body),
            (ReturnType::Default, None) => gives_nothing(body),
        }
    }
}

/// An argument: closures and descriptors are no values.
pub(super) enum Arg {
    /// A value.
    Val(Val),
    /// A closure.
    Closure(Callable, SourceRange),
    /// The variable that `&mut self` stands for, and its value.
    Variable(Binding, Val),
    /// A descriptor.
    Desc(Descriptor, SourceRange),
    /// What may be without an argument, and what it holds, unless that is known to be missing.
    Option(Given, Option<Box<Arg>>, SourceRange),
}

impl Checker<'_> {
    /// `let name = |..| ..;`, if it is that.
    pub(super) fn named_closure(&mut self, local: &Local) -> bool {
        let init = local.init.as_ref().map(|init| bare(&init.expr));
        let (Pat::Ident(name), Some(Expr::Closure(closure))) = (&local.pat, init) else { return false };
        self.bind_closure(name, closure);
        true
    }

    fn bind_closure(&mut self, name: &PatIdent, closure: &ExprClosure) {
        if let Some(token) = &name.mutability {
            self.report_help(SourceRange::at(token.span), "a closure is not mutable", "remove `mut`");
        }
        let callable = self.callable(closure);
        let ident = name.ident.to_string();
        self.bind(&ident, Binding::Closure(callable));
        let line = name.ident.span().start().line;
        self.scopes.last_mut().into_iter().for_each(|scope| scope.declared.push((ident.clone(), line)));
    }

    fn callable(&mut self, closure: &ExprClosure) -> Callable {
        self.plain_closure(closure);
        let pats: Vec<&Pat> = closure.inputs.iter().collect();
        self.unique(&pats);
        Callable::Closure(Rc::new(Closure {
            closure: closure.clone(),
            around: Rc::new(self.scopes.clone()),
            frame: Rc::clone(&self.frame),
            source: Rc::clone(&self.source),
            combines: self.combines(),
            is_wrong: Cell::new(false),
            wanted: Cell::new(None),
        }))
    }

    /// How many closures of `reduce` and scans surround this place.
    fn combines(&self) -> usize {
        self.contexts.iter().filter(|context| **context == Context::Closure).count()
    }

    /// The arguments of a call. All are checked, also after a mistake.
    pub(super) fn arguments(&mut self, args: &Punctuated<Expr, Token![,]>) -> Checked<Vec<Arg>> {
        let args: Vec<Checked<Arg>> = args.iter().map(|arg| self.argument(arg)).collect();
        args.into_iter().collect()
    }

    /// The name of what can be called where a closure is written: another closure, or what may be a function.
    pub(super) fn name_to_call(&self, expr: &Expr) -> Option<String> {
        let Expr::Path(path) = expr else { return None };
        let of_closure = |name: &str| match self.lookup(name) {
            Some((Binding::Closure(_), _)) => true,
            Some(_) => false,
            // A macro knows the functions that a body calls only.
            None => !is_screaming(name) && ops::find(name).is_none(),
        };
        let name = path_text(&path.path);
        (path.path.get_ident().is_none() || of_closure(&name)).then_some(name)
    }

    /// `|a, b| name(a, b)` of a name where a closure of as many arguments is wanted.
    pub(super) fn closure_of_name(&mut self, expr: &Expr, takes: usize) -> Option<ExprClosure> {
        let Expr::Path(path) = expr else { return None };
        let (name, place) = (self.name_to_call(expr)?, SourceRange::of(expr));
        let letters: Vec<String> = ('a'..='z').cycle().take(takes).map(String::from).collect();
        let letters = letters.join(", ");
        self.names_for_closures.push((place, format!("|{letters}| {name}({letters})")));
        let span = place.start;
        let names: Vec<Ident> = (0..takes).map(|at| Ident::new(&format!("element_{at}"), span)).collect();
        Some(parse_quote_spanned!(span=> |#(#names),*| #path(#(#names),*)))
    }

    /// What is called where a closure is wanted, and what of the source gives its answer.
    pub(super) fn callable_of(&mut self, expr: &Expr, takes: usize) -> Option<(Callable, SourceRange)> {
        if let Expr::Closure(closure) = expr {
            return Some((self.callable(closure), SourceRange::of(&closure.body)));
        }
        let name = self.name_to_call(expr)?;
        let callable = match self.lookup(&name) {
            Some((Binding::Closure(callable), _)) => callable,
            _ => {
                let closure = self.closure_of_name(expr, takes)?;
                self.callable(&closure)
            }
        };
        Some((callable, SourceRange::of(expr)))
    }

    pub(super) fn argument(&mut self, arg: &Expr) -> Checked<Arg> {
        let place = SourceRange::of(arg);
        match bare(arg) {
            Expr::Closure(closure) => Ok(Arg::Closure(self.callable(closure), place)),
            Expr::Path(path) if let Some(ident) = path.path.get_ident() => match self.lookup(&ident.to_string()) {
                Some((Binding::Closure(callable), _)) => Ok(Arg::Closure(callable, place)),
                _ => self.expr(arg).map(Arg::Val),
            },
            Expr::Assign(_) => {
                Err(self.report_help(place, "only operations have named arguments", "write the value alone"))
            }
            _ => self.expr(arg).map(Arg::Val),
        }
    }

    /// `name(arguments)` where the name is a closure's.
    pub(super) fn call_closure(
        &mut self,
        callable: &Callable,
        name: &str,
        args: &Punctuated<Expr, Token![,]>,
        place: SourceRange,
    ) -> Checked<Val> {
        let args = self.arguments(args)?;
        let takes = match callable {
            Callable::Closure(closure) => closure.takes(),
            Callable::Parameter(types) => types.inputs.len(),
        };
        if args.len() != takes {
            let s = if takes == 1 { "" } else { "s" };
            return Err(self.report(place, format!("`{name}` takes {takes} argument{s}, found {}", args.len())));
        }
        match callable {
            Callable::Closure(closure) => self.inline_closure(closure, args, place),
            Callable::Parameter(types) => self.assume_closure(types, args, place),
        }
    }

    fn inline_closure(&mut self, named: &Closure, args: Vec<Arg>, place: SourceRange) -> Checked<Val> {
        if named.is_wrong.get() {
            return Err(Reported::earlier());
        }
        self.enter_call(place)?;
        // What a combination of two elements calls sees no values from outside either.
        let closure = self.combines() > named.combines;
        let inside = Scope { closure, around: Some(Rc::clone(&named.around)), ..Scope::default() };
        let scopes = std::mem::replace(&mut self.scopes, vec![inside]);
        let frame = std::mem::replace(&mut self.frame, Rc::clone(&named.frame));
        let source = std::mem::replace(&mut self.source, Rc::clone(&named.source));
        let (in_offset, compared) = (std::mem::take(&mut self.in_offset), self.compared.take());
        let before = self.errors.list().len();
        for (pat, arg) in named.closure.inputs.iter().zip(args) {
            self.bind_argument(pat, arg);
        }
        let nothing = named.gives_nothing();
        let body = &named.closure.body;
        let mut val =
            self.inlined_body(Gives::Anything, place, |c| if nothing { c.statement(body) } else { c.tail(body) });
        if nothing && self.errors.list().len() > before {
            val = Err(Reported::earlier());
        }
        if let (true, Ok(_)) = (nothing, &val) {
            self.given_nothing.push(place);
        }
        if let (Ok(found), ReturnType::Type(_, ty)) = (&val, &named.closure.output) {
            let found = found.clone();
            val = self.annotation(ty).and_then(|annotation| self.annotate(found, &annotation));
        }
        if self.frame.name.is_none() {
            self.errors.since(before).iter_mut().for_each(|mistake| mistake.is_own = true);
        }
        (self.scopes, self.frame, self.source) = (scopes, frame, source);
        (self.in_offset, self.compared) = (in_offset, compared);
        self.leave_call();
        named.is_wrong.set(val.is_err());
        val.map(|val| val.at(place))
    }

    /// Binds the parameter of a closure or function.
    pub(super) fn bind_argument(&mut self, pat: &Pat, arg: Arg) {
        match (self.named_binding(&arg), arg) {
            (None, Arg::Val(val)) => self.bind_pattern(pat, Ok(val)),
            (Some(_), Arg::Variable(_, val)) if !matches!(pat, Pat::Ident(_)) => self.bind_pattern(pat, Ok(val)),
            (binding, arg) => self.bind_named(pat, binding.unwrap_or(Binding::Poison), arg.place()),
        }
    }

    /// What a function's own parameter gives is what its type says.
    fn assume_closure(
        &mut self,
        types: &ParenthesizedGenericArguments,
        args: Vec<Arg>,
        place: SourceRange,
    ) -> Checked<Val> {
        for (ty, arg) in types.inputs.iter().zip(args) {
            if let Arg::Val(val) = arg {
                let annotation = self.annotation(ty)?;
                self.annotate(val, &annotation)?;
            }
        }
        match &types.output {
            ReturnType::Default => Ok(Val::Unit(place)),
            ReturnType::Type(_, ty) => self.any_value(ty, "", place),
        }
    }
}

/// `(A, B) -> C` of `impl Fn(A, B) -> C`.
pub(super) fn closure_type(ty: &Type) -> Option<&ParenthesizedGenericArguments> {
    let Type::ImplTrait(bounds) = strip(ty) else { return None };
    let mut bounds = bounds.bounds.iter();
    match (bounds.next(), bounds.next()) {
        (Some(TypeParamBound::Trait(bound)), None) => {
            let last = bound.path.segments.last().filter(|segment| segment.ident == "Fn")?;
            match &last.arguments {
                syn::PathArguments::Parenthesized(types) => Some(types),
                _ => None,
            }
        }
        _ => None,
    }
}
