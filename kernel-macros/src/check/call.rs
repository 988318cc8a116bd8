//! Calls: finds the operation and hands its arguments to the code for its kind.

use syn::punctuated::Punctuated;
use syn::{AngleBracketedGenericArguments, Expr, ExprCall, ExprMethodCall, PathArguments, PathSegment, Token};

use super::args::Args;
use super::{Checker, Operand, Val};
use crate::error::{Checked, Reported};
use crate::names::closest;
use crate::ops::{self, Call, ROWS, Row};
use crate::place::{Place, bare};

impl Checker<'_> {
    /// `name(arguments)`
    pub(super) fn call(&mut self, call: &ExprCall, place: Place) -> Checked<Val> {
        let Expr::Path(path) = bare(&call.func) else {
            let help = "call an operation by its name";
            return Err(self.report_help(Place::of(&call.func), "this cannot be called in a kernel", help));
        };
        let Some(last) = path.path.segments.last() else { return Err(Reported::earlier()) };
        let name = last.ident.to_string();
        let name_place = Place::of_path(&path.path);
        // Operations are no items, so that no path leads to one: what `tl::load` names may be anything.
        let own = path.path.segments.len() == 1 && path.path.leading_colon.is_none();
        let descriptor = call.args.first().and_then(|first| self.descriptor(first));
        if let (true, Some(param)) = (own, descriptor)
            && ops::find_desc(&name).is_some()
        {
            let rest: Punctuated<Expr, Token![,]> = call.args.iter().skip(1).cloned().collect();
            return self.desc_call(param, (&name, name_place), &rest, turbofish_of(last), place);
        }
        let row = ops::find(&name).filter(|_| own);
        if row.is_none()
            && own
            && let Some(row) = ops::find_desc(&name)
        {
            let message = format!("`{name}` needs a tensor descriptor");
            self.check_values(&call.args);
            return Err(self.report_help(name_place, message, format!("write `{}`", row.usage())));
        }
        let Some(row) = row else {
            return Err(self.unknown_function(&name, call, name_place));
        };
        if matches!(row.call, Call::Fold(_)) && name != "sum" && call.args.len() == 2 && !named_second(call) {
            let other = if name == "max" { "maximum" } else { "minimum" };
            let message = format!("`{name}` reduces a tile along an axis");
            return Err(self.report_help(name_place, message, format!("of two values write `{other}(a, b)`")));
        }
        let args = self.args(row, None, &call.args, turbofish_of(last), place)?;
        self.dispatch(&args)
    }

    /// `receiver.name(arguments)`
    pub(super) fn method(&mut self, call: &ExprMethodCall, place: Place) -> Checked<Val> {
        let name = call.method.to_string();
        let name_place = Place::at(call.method.span());
        if let Some(param) = self.descriptor(&call.receiver) {
            return self.desc_call(param, (&name, name_place), &call.args, call.turbofish.as_ref(), place);
        }
        let receiver = self.expr(&call.receiver);
        let Some(row) = self.method_row(&name, call) else {
            return Err(self.unknown_method(&name, name_place));
        };
        let turbofish: Option<&AngleBracketedGenericArguments> = call.turbofish.as_ref();
        let receiver = match (receiver, row.call) {
            (Ok(Val::Tuple(parts, _)), Call::Reduce | Call::Scan) => {
                let parts: Vec<Operand> = parts.into_iter().map(|p| self.one(p)).collect::<Checked<_>>()?;
                return self.tuple_method(row, &parts, call, place);
            }
            (receiver, _) => {
                let receiver = receiver?;
                self.one(receiver)?
            }
        };
        let args = self.args(row, Some(receiver), &call.args, turbofish, place)?;
        self.dispatch(&args)
    }

    /// The operation of a method. `a.max(b)` is the larger of two, `x.max(axis = 0)` a reduction.
    fn method_row(&self, name: &str, call: &ExprMethodCall) -> Option<&'static Row> {
        let positional = call.args.iter().any(|a| !matches!(bare(a), Expr::Assign(_)));
        let name = match name {
            "max" if positional => "maximum",
            "min" if positional => "minimum",
            other => other,
        };
        ops::find(name).filter(|row| row.method)
    }

    fn unknown_function(&mut self, name: &str, call: &ExprCall, place: Place) -> Reported {
        let path: Vec<String> = match bare(&call.func) {
            Expr::Path(path) => {
                let root = path.path.leading_colon.map(|_| String::new());
                root.into_iter().chain(path.path.segments.iter().map(|s| s.ident.to_string())).collect()
            }
            _ => vec![name.to_string()],
        };
        let message = format!("`{}` is not an operation; a kernel can call nothing else", path.join("::"));
        let help = match ops::other_spelling(name) {
            None if path.len() > 1 && matches!(name, "max" | "min") && call.args.len() == 2 && !named_second(call) => {
                format!("write `{name}imum(a, b)`")
            }
            None if ops::find(name).is_some() || path.len() > 1 && ops::find_desc(name).is_some() => {
                format!("write it without the path: `{name}(..)`")
            }
            Some(ours) => format!("write `{ours}`"),
            None if self.dtype_by_name(name).is_some() => format!("for a conversion write `x as {name}`"),
            None if self.lookup(name).is_some() => "this is a value, which cannot be called".to_string(),
            None => match closest(name, ROWS.iter().map(|r| r.name)) {
                Some(close) => format!("did you mean `{close}`?"),
                None => "write the code of the function here".to_string(),
            },
        };
        // Mistakes in the arguments are reported too.
        self.check_values(&call.args);
        self.report_help(place, message, help)
    }

    fn unknown_method(&mut self, name: &str, place: Place) -> Reported {
        let message = format!("values in a kernel have no method `{name}`");
        let help = match (ops::other_spelling(name), ops::find(name)) {
            (None, None) if let Some(row) = ops::find_desc(name) => {
                format!("it is a method of tensor descriptors: `{}`", row.usage())
            }
            (Some(ours), _) => format!("write `{ours}`"),
            (None, Some(row)) => format!("it is a function: write `{}`", row.usage()),
            (None, None) => {
                let methods = ROWS.iter().filter(|r| r.method).map(|r| r.name);
                match closest(name, methods) {
                    Some(close) => format!("did you mean `{close}`?"),
                    None => "the operations of kernels are listed in the documentation of `#[kernel]`".to_string(),
                }
            }
        };
        self.report_help(place, message, help)
    }

    pub(super) fn dispatch(&mut self, args: &Args<'_>) -> Checked<Val> {
        let one = match args.row.call {
            Call::Store => return self.store(args).map(|()| Val::Unit(args.place)),
            Call::Assume => return self.assume(args).map(|()| Val::Unit(args.place)),
            Call::Reduce | Call::Scan => return self.closure_call(args),
            Call::ProgramId => self.program_id(args, true),
            Call::NumPrograms => self.program_id(args, false),
            Call::Arange => self.arange(args),
            Call::Full => self.full(args),
            Call::Zeros => self.zeros(args),
            Call::Load => self.load(args),
            Call::Unary(op) => self.unary_op(args, op),
            Call::Binary(op) => self.binary_op(args, op),
            Call::Extreme(op, nan) => self.extreme(args, op, nan),
            Call::Select => self.select(args),
            Call::Clamp => self.clamp(args),
            Call::Fma => self.fma(args),
            Call::Cdiv => self.cdiv(args),
            Call::To => self.to(args),
            Call::Bitcast => self.bitcast(args),
            Call::ExpandDims => self.expand_dims(args),
            Call::BroadcastTo => self.broadcast_to(args),
            Call::Reshape => self.reshape(args),
            Call::Trans => self.trans(args),
            Call::Permute => self.permute(args),
            Call::Fold(op) => self.fold(args, op),
            Call::ArgExtreme(largest) => self.arg_extreme(args, largest),
            Call::Running(op) => self.running(args, op),
            Call::Atomic(op) => self.atomic(args, op),
            Call::AtomicCas => self.atomic_cas(args),
            Call::MultipleOf => self.multiple_of(args),
            Call::Runs(kind) => self.runs(args, kind),
            Call::Dot => self.dot(args),
            Call::Desc(op) => return self.descriptor_op(args, op),
        };
        one.map(Val::One)
    }
}

fn turbofish_of(last: &PathSegment) -> Option<&AngleBracketedGenericArguments> {
    match &last.arguments {
        PathArguments::AngleBracketed(args) => Some(args),
        PathArguments::None | PathArguments::Parenthesized(_) => None,
    }
}

fn named_second(call: &ExprCall) -> bool {
    matches!(call.args.iter().nth(1).map(bare), Some(Expr::Assign(_)))
}
