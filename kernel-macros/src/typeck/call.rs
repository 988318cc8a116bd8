//! Calls: finds the operation and hands its arguments to the code for its kind.

use kernel_core::ir::{BinaryOp, ConstOrigin, DTypeBound, Dt};
use syn::punctuated::Punctuated;
use syn::{AngleBracketedGenericArguments, Expr, ExprCall, ExprMethodCall, PathArguments, PathSegment, Token};

use super::args::Args;
use super::{Binding, Checker, Operand, Val};
use crate::device::collect::path_text;
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::names::{closest, dtype_of_other_languages};
use crate::ops::{self, Call, Row};
use crate::source_range::{SourceRange, bare};
use crate::spellings::{self, Spelling, without_parentheses};
use crate::types::{Class, VElem, admits};

impl Checker<'_> {
    /// `name(arguments)`
    pub(super) fn call(&mut self, call: &ExprCall, place: SourceRange) -> Checked<Val> {
        let Expr::Path(path) = bare(&call.func) else {
            let help = "call an operation by its name";
            return Err(self.report_help(SourceRange::of(&call.func), "this cannot be called in a kernel", help));
        };
        let Some(last) = path.path.segments.last() else { return Err(Reported::earlier()) };
        let name = last.ident.to_string();
        let name_place = SourceRange::of_path(&path.path);
        // Operations are no items, so that no path leads to one: what `tl::load` names may be anything.
        let own = path.path.segments.len() == 1 && path.path.leading_colon.is_none();
        let descriptor = call.args.first().and_then(|first| self.descriptor(first));
        if let (true, Some(descriptor)) = (own, descriptor)
            && ops::find_desc(&name).is_some()
        {
            let rest: Punctuated<Expr, Token![,]> = call.args.iter().skip(1).cloned().collect();
            return self.desc_call(descriptor, (&name, name_place), &rest, turbofish_of(last), place);
        }
        if let Some(val) = self.inlined_call(call, &path.path, place) {
            return val;
        }
        let row = ops::find(&name).filter(|_| own);
        let Some(row) = row else {
            return Err(self.unknown_function(&name, call, name_place));
        };
        if matches!(row.call, Call::Fold(BinaryOp::Max | BinaryOp::Min)) && call.args.len() == 2 && !named_second(call)
        {
            return Err(self.extreme_of_two(&name, call, name_place));
        }
        if matches!(row.call, Call::Map | Call::InlinePtx) {
            if self.on_an_element() {
                return Err(self.more_than_arithmetic(row.name, name_place));
            }
            let args = self.elements(row, &call.args, turbofish_of(last), place)?;
            return if row.call == Call::Map { self.map_elementwise(&args) } else { self.inline_ptx(&args) };
        }
        let args = self.args(row, None, &call.args, turbofish_of(last), place)?;
        self.dispatch(&args)
    }

    /// A call of a closure or a `#[device]` function.
    fn inlined_call(&mut self, call: &ExprCall, path: &syn::Path, place: SourceRange) -> Option<Checked<Val>> {
        if let Some(ident) = path.get_ident() {
            let name = ident.to_string();
            if let Some((Binding::Closure(callable), _)) = self.lookup(&name) {
                return Some(self.call_closure(&callable, &name, &call.args, place));
            }
        }
        if self.frame.calls.is_empty() {
            return None;
        }
        if let Some(val) = self.associated_call(call, path, place) {
            return Some(val);
        }
        let function = self.functions.find(&self.frame.calls, &path_text(path)).filter(|found| !found.is_struct)?;
        Some(self.call_function(&function, &call.args, path, place))
    }

    /// `name.method(arguments)` of a parameter that may be absent or a descriptor.
    pub(super) fn method_of_parameter(&mut self, call: &ExprMethodCall, place: SourceRange) -> Option<Checked<Val>> {
        if let Some(option) = self.option(&call.receiver) {
            return Some(self.option_method(&option, call, place).map(Val::One));
        }
        let descriptor = self.descriptor(&call.receiver)?;
        let (name, name_place) = (call.method.to_string(), SourceRange::at(call.method.span()));
        Some(self.desc_call(descriptor, (&name, name_place), &call.args, call.turbofish.as_ref(), place))
    }

    /// `receiver.name(arguments)`
    pub(super) fn method(&mut self, call: &ExprMethodCall, receiver: Checked<Val>, place: SourceRange) -> Checked<Val> {
        let name = call.method.to_string();
        if let Ok(val) = &receiver
            && let Some(val) = self.record_method(call, val, place)
        {
            return val;
        }
        if let Err(reported) = receiver
            && self.functions.has_method(&name)
        {
            return Err(reported);
        }
        let Some(row) = self.method_row(&name, call) else {
            return Err(self.unknown_method(&name, call, receiver));
        };
        let turbofish: Option<&AngleBracketedGenericArguments> = call.turbofish.as_ref();
        let receiver = match (receiver, row.call) {
            (Ok(Val::Tuple(parts, _)), Call::Reduce | Call::Scan) if parts.record.is_none() => {
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

    fn unknown_function(&mut self, name: &str, call: &ExprCall, place: SourceRange) -> Reported {
        if let Some((Binding::Poison, _)) = self.lookup(name) {
            return Reported::earlier();
        }
        let path: Vec<String> = match bare(&call.func) {
            Expr::Path(path) => {
                let root = path.path.leading_colon.map(|_| String::new());
                root.into_iter().chain(path.path.segments.iter().map(|s| s.ident.to_string())).collect()
            }
            _ => vec![name.to_string()],
        };
        let message = match path.as_slice() {
            [name] if name == "Some" => {
                let help = "it stands where a `#[device]` function takes an `Option`, and holds one value; \
                            the launch of a kernel says what its own parameters hold";
                return self.report_help(place, "`Some` is no value", help);
            }
            [name] if self.frame.name.as_deref() == Some(name) => {
                let message = format!("`{name}` calls itself, and a function is inlined where it is called");
                return self.report_help(place, message, "write a loop, or a second function");
            }
            [name] if self.lookup(name).is_none() && self.dtype_by_name(name).is_none() => {
                format!("`{name}` is not an operation; a function of that name is called as `self::{name}(..)`")
            }
            _ => format!("`{}` is not an operation", path.join("::")),
        };
        let whole = SourceRange::between(place.start, call.paren_token.span.close());
        if let Some(help) = self.foreign_conversion(&path, call, whole) {
            return self.report_help(place, message, help);
        }
        if let Some(reported) = self.no_function(&path, call, whole) {
            return reported;
        }
        // Mistakes in the arguments are reported too.
        let first = self.check_values(&call.args);
        let help = match self.spelling(name, first.as_ref()) {
            None if path.len() > 1 && matches!(name, "max" | "min") && call.args.len() == 2 && !named_second(call) => {
                format!("write `{name}imum(a, b)`").into()
            }
            None if ops::find(name).is_some() || path.len() > 1 && ops::find_desc(name).is_some() => {
                Help::write(place, name).said(format!("write it without the path: `{name}(..)`"))
            }
            Some(row) => {
                let args: Vec<String> = call.args.iter().map(|arg| self.source.operand(SourceRange::of(arg))).collect();
                row.help(&args, whole, self.source.is_operand(whole))
            }
            None if self.lookup(name).is_some() => "this is a value, which cannot be called".into(),
            None if name == "isqrt" => spellings::ROOT.into(),
            None => match closest(name, ops::rows().map(|r| r.name)) {
                Some(close) => Help::meant(place, close),
                None => format!("declare the function: `#[device] fn {name}(..) -> .. {{ .. }}`").into(),
            },
        };
        self.report_help(place, message, help)
    }

    /// `float("inf")`, `float(x)`, `f32(x)` and `f32::from(x)`.
    fn foreign_conversion(&self, path: &[String], call: &ExprCall, whole: SourceRange) -> Option<Help> {
        let name = match path {
            [name] => name,
            [dtype, method] if method == "from" => dtype,
            _ => return None,
        };
        let dtype = match self.dtype_by_name(name) {
            Some(_) => name.as_str(),
            None => dtype_of_other_languages(name)?,
        };
        let [arg] = call.args.iter().collect::<Vec<_>>()[..] else {
            return Some(format!("for a conversion write `x as {dtype}`").into());
        };
        if let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = bare(arg) {
            let limit = match text.value().trim_start_matches('+').to_lowercase().as_str() {
                "inf" | "infinity" => "INFINITY",
                "-inf" | "-infinity" => "NEG_INFINITY",
                "nan" => "NAN",
                _ => return None,
            };
            let help = Help::write(whole, format!("{dtype}::{limit}"));
            return Some(if limit == "INFINITY" {
                help.and(&format!("; below zero `{dtype}::NEG_INFINITY`"))
            } else {
                help
            });
        }
        let code = format!("{} as {dtype}", self.source.operand(SourceRange::of(arg)));
        let code = if self.source.binds_tighter(whole) { format!("({code})") } else { code };
        Some(Help::write(whole, code.clone()).said(format!("for a conversion write `{code}`")))
    }

    /// The dtype of an integer.
    fn integer(&self, val: &Val) -> Option<Dt> {
        let Val::One(operand) = val else { return None };
        let VElem::Data(dt) = self.ty(*operand).elem else { return None };
        let integer = |dt: &Dt| admits(&self.func, *dt, DTypeBound::Int);
        match self.types.class(dt) {
            Some(Class::Int) => Some(self.types.settled(dt)),
            Some(Class::Float | Class::Any) => None,
            None => self.types.known(dt).filter(integer),
        }
    }

    /// What to write instead of a name from elsewhere, which may depend on the first argument.
    fn spelling(&self, name: &str, first: Option<&Val>) -> Option<&'static Spelling> {
        let integer = match first.and_then(|val| self.integer(val)) {
            Some(Dt::Known(dtype)) => spellings::of_integers(name, Some(dtype.int_min() < 0)),
            Some(Dt::Param(_)) => spellings::of_integers(name, None),
            None => None,
        };
        integer.or_else(|| spellings::find(name))
    }

    fn unknown_method(&mut self, name: &str, call: &ExprMethodCall, receiver: Checked<Val>) -> Reported {
        let place = SourceRange::at(call.method.span());
        let message = format!("values in a kernel have no method `{name}`");
        let whole = SourceRange::between(SourceRange::of(&call.receiver).start, call.paren_token.span.close());
        let source = self.source.operand(SourceRange::of(&call.receiver));
        let target = name.strip_prefix("to_").filter(|target| self.dtype_by_name(target).is_some());
        let help = match (self.spelling(name, receiver.as_ref().ok()), ops::find(name), target) {
            (None, ..) if name == "ilog2" => match receiver.as_ref().ok().and_then(|val| self.integer(val)) {
                Some(dt) => {
                    let last = match dt {
                        Dt::Known(dtype) => (dtype.bits() - 1).to_string(),
                        Dt::Param(_) => format!("{}::BITS - 1", self.show_fixed(dt).replace('`', "")),
                    };
                    let code = format!("{last} - leading_zeros({})", without_parentheses(&source));
                    let code = if self.source.is_operand(whole) { format!("({code})") } else { code };
                    Help::write(whole, code).and(", a `u32`")
                }
                None => "write `log2(x)`; of an integer it is `31 - leading_zeros(n)`".into(),
            },
            _ if name == "len" || name == "size" => self.length(receiver),
            (.., Some(target)) => {
                let code = format!("{source} as {target}");
                let code = if self.source.binds_tighter(whole) { format!("({code})") } else { code };
                Help::write(whole, code)
            }
            (Some(row), ..) => {
                let args = call.args.iter().map(|arg| self.source.operand(SourceRange::of(arg)));
                let args: Vec<String> = [source].into_iter().chain(args).collect();
                row.help(&args, whole, self.source.is_operand(whole))
            }
            (None, Some(row), _) => format!("it is a function: write `{}`", row.usage()).into(),
            (None, None, _) if let Some(row) = spellings::of_methods(name) => {
                let args = call.args.iter().map(|arg| self.source.operand(SourceRange::of(arg)));
                let args: Vec<String> = [source].into_iter().chain(args).collect();
                row.help(&args, whole, self.source.is_operand(whole))
            }
            (None, None, _) => {
                let methods = ops::rows().filter(|r| r.method).map(|r| r.name);
                match closest(name, methods) {
                    Some(close) => Help::meant(place, close),
                    None => "the operations of kernels are listed in the documentation of `#[kernel]`".into(),
                }
            }
        };
        self.report_help(place, message, help)
    }

    /// Of a tile the constexprs say how long it is, of a buffer a parameter does.
    fn length(&self, receiver: Checked<Val>) -> Help {
        let Ok(Val::One(operand)) = receiver else { return "lengths are constexprs or parameters".into() };
        let ty = self.ty(operand);
        match (ty.elem, ty.shape.as_slice()) {
            (VElem::Data(_), []) => "this is a scalar".into(),
            (VElem::Ptr(_), []) => "pass the length as a parameter: `n: i32`".into(),
            (VElem::Data(_) | VElem::Ptr(_), shape) => {
                let dims: Vec<String> = shape.iter().map(|dim| format!("`{}`", self.dim_source(dim))).collect();
                format!("the shape is known: {}", dims.join(" by ")).into()
            }
        }
    }

    pub(super) fn dispatch(&mut self, args: &Args<'_>) -> Checked<Val> {
        self.fits_element(args)?;
        let one = match args.row.call {
            // These take any number of tiles, and have no method.
            Call::Map | Call::InlinePtx => return Err(Reported::earlier()),
            Call::Store => return self.store(args).map(|()| Val::Unit(args.place)),
            Call::AtomicStore => return self.atomic_store(args).map(|()| Val::Unit(args.place)),
            Call::Assume => return self.assume(args).map(|()| Val::Unit(args.place)),
            Call::Reduce | Call::Scan => return self.closure_call(args),
            Call::ProgramId => self.program_id(args, true),
            Call::NumPrograms => self.program_id(args, false),
            Call::NumWarps => Ok(self.machine("num_warps()", ConstOrigin::NumWarps, args.place)),
            Call::Capability => Ok(self.machine("capability()", ConstOrigin::Capability, args.place)),
            Call::Counter(which) => self.counter(args, which),
            Call::Arange => self.arange(args),
            Call::Full => self.full(args),
            Call::Zeros => self.zeros(args),
            Call::Load => self.load(args),
            Call::Unary(op) => self.unary_op(args, op),
            Call::Count(op) => self.count(args, op),
            Call::Binary(op) => self.binary_op(args, op),
            Call::Extreme(op, nan) => self.extreme(args, op, nan),
            Call::FloatInt(function) => self.float_int(args, function),
            Call::Select => self.select(args),
            Call::Composed(which) => self.composed(args, which),
            Call::Fma => self.fma(args),
            Call::To => self.to(args),
            Call::Bitcast => self.bitcast(args),
            Call::Shape(op) => self.shape_call(args, op),
            Call::Tile(op) => return self.tile_call(args, op),
            Call::Fold(op) => return self.fold(args, op),
            Call::Overflowing(op) => return self.overflowing(args, op),
            Call::Mean => self.mean(args),
            Call::Var => self.var(args),
            Call::Softmax => self.softmax(args),
            Call::ArgExtreme(largest) => self.arg_extreme(args, largest),
            Call::Running(op) => self.running(args, op),
            Call::Atomic(op) => self.atomic(args, op),
            Call::AtomicCas => self.atomic_cas(args),
            Call::AtomicLoad => self.atomic_load(args),
            Call::AtomicPoll => self.atomic_poll(args),
            Call::MultipleOf => self.multiple_of(args),
            Call::Runs(kind) => self.runs(args, kind),
            Call::Dot => self.dot(args),
            Call::DotScaled => self.dot_scaled(args),
            Call::Random(random) => return self.random(args, random),
            Call::Desc(op) => return self.descriptor_op(args, op),
            Call::TensorDesc => return Err(self.unnamed_descriptor(args)),
        };
        one.map(Val::One)
    }
}

pub(super) fn turbofish_of(last: &PathSegment) -> Option<&AngleBracketedGenericArguments> {
    match &last.arguments {
        PathArguments::AngleBracketed(args) => Some(args),
        PathArguments::None | PathArguments::Parenthesized(_) => None,
    }
}

fn named_second(call: &ExprCall) -> bool {
    matches!(call.args.iter().nth(1).map(bare), Some(Expr::Assign(_)))
}
