//! Arguments of calls: positional ones, named ones (`mask = m`), a dtype in a turbofish.

use kernel_core::ir::{Dim, Dt};
use syn::punctuated::Punctuated;
use syn::{AngleBracketedGenericArguments, Expr, ExprLit, GenericArgument, Lit, Token, UnOp};

use super::tensor_desc::Descriptor;
use super::{Checker, Operand, Val};
use crate::error::{Checked, Reported};
use crate::help::Help;
use crate::names::closest;
use crate::ops::{Call, Row, Turbofish};
use crate::source_range::{SourceRange, bare};

/// The arguments of a call, matched with the operation's row.
pub(super) struct Args<'e> {
    /// The operation.
    pub row: &'static Row,
    /// The whole call.
    pub place: SourceRange,
    /// The receiver of a method, which is the first positional argument.
    pub receiver: Option<Operand>,
    /// The tensor of an operation of descriptors; it is not among the arguments.
    pub descriptor: Option<Descriptor>,
    positional: Vec<&'e Expr>,
    named: Vec<(&'static str, &'e Expr)>,
    /// The dtype in the turbofish.
    pub dtype: Option<Dt>,
}

impl<'e> Args<'e> {
    /// The expression of a positional argument; `None` for the receiver.
    pub fn expr(&self, index: usize) -> Option<&'e Expr> {
        let index = if self.receiver.is_some() { index.checked_sub(1)? } else { index };
        self.positional.get(index).copied()
    }

    /// The expression of a named argument.
    pub fn named(&self, name: &str) -> Option<&'e Expr> {
        self.named.iter().find(|(n, _)| *n == name).map(|(_, e)| *e)
    }
}

/// The arguments of an operation on each element: a text if it has one, any number of tiles, and a closure.
pub(super) struct Elements<'e> {
    /// The operation.
    pub row: &'static Row,
    /// The whole call.
    pub place: SourceRange,
    /// What stands in front of the tiles.
    pub text: Option<&'e Expr>,
    /// The tiles.
    pub inputs: Vec<&'e Expr>,
    /// What stands behind the tiles.
    pub closure: Option<&'e Expr>,
    named: Vec<(&'static str, &'e Expr)>,
}

impl<'e> Elements<'e> {
    /// The expression of a named argument.
    pub fn named(&self, name: &str) -> Option<&'e Expr> {
        self.named.iter().find(|(n, _)| *n == name).map(|(_, e)| *e)
    }
}

/// The name and the value of a named argument.
fn as_named(expr: &Expr) -> Option<(&syn::Ident, &Expr)> {
    match bare(expr) {
        Expr::Assign(assign) => match bare(&assign.left) {
            Expr::Path(path) => path.path.get_ident().map(|name| (name, &*assign.right)),
            _ => None,
        },
        _ => None,
    }
}

/// Arguments with names and without.
struct Split<'e> {
    positional: Vec<&'e Expr>,
    named: Vec<(&'static str, &'e Expr)>,
    wrong: Option<Reported>,
}

impl Checker<'_> {
    fn split_args<'e>(&mut self, row: &Row, exprs: &'e Punctuated<Expr, Token![,]>) -> Split<'e> {
        let (mut positional, mut named, mut wrong) = (Vec::new(), Vec::new(), None);
        for expr in exprs {
            let Some((name, value)) = as_named(expr) else {
                positional.push(expr);
                continue;
            };
            let place = SourceRange::at(name.span());
            let name = name.to_string();
            match row.options.iter().find(|o| **o == name) {
                Some(option) if named.iter().any(|(n, _)| n == option) => {
                    wrong = Some(self.report(place, format!("`{name}` is given twice")));
                }
                Some(option) => named.push((*option, value)),
                None => wrong = Some(self.unknown_option(row, &name, value, place)),
            }
        }
        Split { positional, named, wrong }
    }

    /// The arguments of an operation on each element, which takes any number of tiles.
    pub(super) fn elements<'e>(
        &mut self,
        row: &'static Row,
        exprs: &'e Punctuated<Expr, Token![,]>,
        turbofish: Option<&AngleBracketedGenericArguments>,
        place: SourceRange,
    ) -> Checked<Elements<'e>> {
        let Split { mut positional, named, wrong } = self.split_args(row, exprs);
        let turbofish = self.turbofish(row, turbofish, place);
        if let Some(reported) = wrong {
            drop(self.check_values(exprs));
            return Err(reported);
        }
        turbofish?;
        let text = (row.call == Call::InlinePtx && !positional.is_empty()).then(|| positional.remove(0));
        let closure = positional.pop();
        if closure.is_none() || (row.call == Call::Map && positional.is_empty()) {
            let message = format!("`{}` needs {}", row.name, if closure.is_none() { "a closure" } else { "a tile" });
            return Err(self.report_help(place, message, format!("write `{}`", row.usage())));
        }
        Ok(Elements { row, place, text, inputs: positional, closure, named })
    }

    /// Matches the arguments of a call with the operation's row.
    pub(super) fn args<'e>(
        &mut self,
        row: &'static Row,
        receiver: Option<Operand>,
        exprs: &'e Punctuated<Expr, Token![,]>,
        turbofish: Option<&AngleBracketedGenericArguments>,
        place: SourceRange,
    ) -> Checked<Args<'e>> {
        if let Some(reported) = self.logarithm_with_base(row, receiver, exprs, place) {
            return Err(reported);
        }
        let Split { positional, named, mut wrong } = self.split_args(row, exprs);
        let mut args = Args { row, place, receiver, descriptor: None, positional, named, dtype: None };
        if wrong.is_none()
            && let Some(reported) = self.option_without_value(&args)
        {
            return Err(reported);
        }
        if wrong.is_none()
            && turbofish.is_none()
            && let Some(reported) = self.positional_dtype(&args, exprs)
        {
            return Err(reported);
        }
        if wrong.is_none() {
            args.dtype = match self.turbofish(row, turbofish, place) {
                Ok(dtype) => dtype,
                Err(reported) => {
                    wrong = Some(reported);
                    None
                }
            };
        }
        if let Some(reported) = wrong {
            drop(self.check_values(exprs));
            return Err(reported);
        }
        let positional = |args: &Args<'_>| args.positional.len() + usize::from(receiver.is_some());
        if let Some(option) = row.last
            && positional(&args) == row.params.len() + 1
            && args.named(option).is_none()
            && let Some(expr) = args.positional.pop()
        {
            args.named.push((option, expr));
        }
        let given = positional(&args);
        if given != row.params.len() {
            let expected = match row.params {
                [] => "no positional argument".to_string(),
                [one] => format!("one positional argument (`{one}`)"),
                many => format!("{} positional arguments ({})", many.len(), quoted(many)),
            };
            let message = format!("`{}` takes {expected}, found {given}", row.name);
            let extra = exprs.iter().filter(|e| as_named(e).is_none()).nth(row.params.len());
            let at = if receiver.is_none() { extra.map_or(place, SourceRange::of) } else { place };
            let reported = self.report_help(at, message, format!("write `{}`", row.usage()));
            drop(self.check_values(exprs));
            return Err(reported);
        }
        Ok(args)
    }

    /// `sort(x, descending)`: the name alone is no argument.
    fn option_without_value(&mut self, args: &Args<'_>) -> Option<Reported> {
        let given = args.positional.len() + usize::from(args.receiver.is_some());
        let extra = args.positional.last().copied().filter(|_| given > args.row.params.len())?;
        let Expr::Path(path) = bare(extra) else { return None };
        let name = path.path.get_ident()?.to_string();
        if !args.row.options.contains(&name.as_str()) || args.row.last == Some(&name) || self.lookup(&name).is_some() {
            return None;
        }
        let value = if matches!(name.as_str(), "axis") { "0" } else { "true" };
        let at = SourceRange::of(extra);
        let help = match name.as_str() {
            "axis" | "mask" | "other" | "acc" | "cache" | "eviction" | "order" | "scope" => {
                format!("write `{name} = ..`").into()
            }
            _ => Help::write(at, format!("{name} = {value}")),
        };
        Some(self.report_help(at, format!("`{name}` is written with its value"), help))
    }

    /// `x.to(f16)`, `full([N], 0.0, f32)`: the dtype is no argument here.
    fn positional_dtype(&mut self, args: &Args<'_>, exprs: &Punctuated<Expr, Token![,]>) -> Option<Reported> {
        let last = args.positional.last().filter(|_| args.row.turbofish != Turbofish::None)?;
        let Expr::Path(path) = bare(last) else { return None };
        let dtype = path.path.segments.last()?.ident.to_string();
        self.dtype_by_name(&dtype)?;
        let name = args.row.name;
        let rest: Vec<String> = exprs
            .iter()
            .take(exprs.len() - 1)
            .map(|e| self.source.text(SourceRange::of(e)).unwrap_or_default())
            .collect();
        let call = format!("{name}::<{dtype}>({})", rest.join(", "));
        let message = format!("the dtype of `{name}` is written in front of its arguments");
        let help = match args.receiver {
            Some(receiver) => {
                let source = self.source(receiver);
                Help::write(args.place, format!("{source}.{call}"))
            }
            None => Help::write(args.place, call),
        };
        Some(self.report_help(SourceRange::of(last), message, help))
    }

    /// Reports mistakes in the arguments of a call that is wrong itself, of which it gives the first.
    pub(super) fn check_values(&mut self, exprs: &Punctuated<Expr, Token![,]>) -> Option<Val> {
        let mut first = None;
        for (i, expr) in exprs.iter().enumerate() {
            let value = as_named(expr).map_or(expr, |(_, value)| value);
            // What stands for a name, a shape or a closure means nothing outside of its call.
            let named = as_named(expr).is_some_and(|(name, _)| name != "mask" && name != "other");
            let text = matches!(bare(value), Expr::Lit(ExprLit { lit: Lit::Str(_), .. }));
            let dtype = match bare(value) {
                Expr::Path(path) => {
                    path.path.get_ident().is_some_and(|name| self.dtype_by_name(&name.to_string()).is_some())
                }
                _ => false,
            };
            if !named && !text && !dtype && !matches!(bare(value), Expr::Closure(_) | Expr::Array(_)) {
                let (val, _) = self.nested(super::Context::Branch, |c| c.expr(value));
                first = first.or(val.ok().filter(|_| i == 0));
            }
        }
        first
    }

    fn unknown_option(&mut self, row: &Row, name: &str, value: &Expr, place: SourceRange) -> Reported {
        let message = format!("`{}` has no argument `{name}`", row.name);
        if row.params.contains(&name) {
            let help = format!("`{name}` is positional: write `{}`", row.usage());
            return self.report_help(place, message, help);
        }
        let help: Help = match (closest(name, row.options.iter().copied()), row.options) {
            _ if name == "out_dtype" && row.options.contains(&"out") => self.product_option(name, value, place),
            _ if let Some(help) = foreign_option(row, name) => help.into(),
            (Some(close), _) => Help::meant(place, close),
            (None, []) => format!("write `{}`", row.usage()).into(),
            (None, options) => format!("named arguments are {}", quoted(options)).into(),
        };
        self.report_help(place, message, help)
    }

    fn turbofish(
        &mut self,
        row: &Row,
        turbofish: Option<&AngleBracketedGenericArguments>,
        place: SourceRange,
    ) -> Checked<Option<Dt>> {
        let Some(generics) = turbofish else {
            if row.turbofish == Turbofish::Required {
                let message = format!("`{}` needs a dtype", row.name);
                return Err(self.report_help(place, message, format!("write `{}`", row.usage())));
            }
            return Ok(None);
        };
        let at = SourceRange::of_tokens(generics);
        if row.turbofish == Turbofish::None {
            let message = format!("`{}` takes no generic arguments", row.name);
            if row.call == Call::Arange
                && let Some(dtype) = generics.args.first().and_then(|arg| self.source.text(SourceRange::of_tokens(arg)))
            {
                let help = format!("its numbers are `i32`: write `arange(lo, hi) as {dtype}`");
                return Err(self.report_help(at, message, help));
            }
            return Err(self.report_help(at, message, format!("write `{}`", row.usage())));
        }
        let mut generics = generics.args.iter();
        match (generics.next(), generics.next()) {
            (Some(GenericArgument::Type(ty)), None) => self.dtype(ty).map(Some),
            _ => {
                let message = format!("`{}` takes one dtype", row.name);
                Err(self.report_help(at, message, format!("write `{}`", row.usage())))
            }
        }
    }

    /// A positional argument as a value.
    pub(super) fn arg(&mut self, args: &Args<'_>, index: usize) -> Checked<Operand> {
        match (index, args.receiver) {
            (0, Some(receiver)) => Ok(receiver),
            _ => match args.expr(index) {
                Some(expr) => self.operand(expr),
                // The number of arguments has been checked.
                None => Err(Reported::earlier()),
            },
        }
    }

    /// The first `N` positional arguments as values; all are checked before the first mistake ends it.
    pub(super) fn arg_values<const N: usize>(&mut self, args: &Args<'_>) -> Checked<[Operand; N]> {
        let values = std::array::from_fn::<_, N, _>(|i| self.arg(args, i));
        let mut out = Vec::with_capacity(N);
        for value in values {
            out.push(value?);
        }
        out.try_into().map_err(|_| Reported::earlier())
    }

    /// A named argument as a value.
    pub(super) fn named_value(&mut self, args: &Args<'_>, name: &str) -> Checked<Option<Operand>> {
        let Some(expr) = args.named(name) else { return Ok(None) };
        if matches!(bare(expr), Expr::Path(path) if path.path.is_ident("None")) {
            let message = format!("a `{name}` that is not needed is left out");
            return Err(self.report_help(SourceRange::of(expr), message, format!("leave `{name} = None` out")));
        }
        self.operand(expr).map(Some)
    }

    /// `true` or `false`
    pub(super) fn truth_literal(&mut self, expr: &Expr, name: &str) -> Checked<bool> {
        match bare(expr) {
            Expr::Lit(ExprLit { lit: Lit::Bool(value), .. }) => Ok(value.value),
            other => Err(self.report(SourceRange::of(other), format!("`{name}` is `true` or `false`"))),
        }
    }

    /// An integer literal, perhaps negative.
    pub(super) fn literal_int(&mut self, expr: &Expr, what: &str) -> Checked<i64> {
        let value = match expr {
            Expr::Lit(ExprLit { lit: Lit::Int(int), .. }) => int.base10_parse::<i64>().ok(),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => match &*unary.expr {
                Expr::Lit(ExprLit { lit: Lit::Int(int), .. }) => int.base10_parse::<i64>().ok().map(|v| -v),
                _ => None,
            },
            Expr::Paren(paren) => return self.literal_int(&paren.expr, what),
            Expr::Group(group) => return self.literal_int(&group.expr, what),
            _ => None,
        };
        value.ok_or_else(|| self.report(SourceRange::of(expr), format!("{what} is an integer literal")))
    }

    /// Whether an expression is an integer literal, perhaps negative.
    pub(super) fn is_number(&self, expr: &Expr) -> bool {
        match bare(expr) {
            Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) => true,
            Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => self.is_number(&unary.expr),
            _ => false,
        }
    }

    /// The number of an axis: a literal, or a constexpr that is one here.
    fn axis_number(&mut self, expr: &Expr) -> Checked<i64> {
        if self.is_number(expr) {
            return self.literal_int(expr, "an axis");
        }
        if let Some(named) = self.axis_constexpr(expr)? {
            let message = "this axis decides the shape of the result, which must be known before the constexprs are";
            let source = self.source(named);
            let help = format!("write a literal, in the branches of an `if {source} == 0 {{ .. }} else {{ .. }}`");
            return Err(self.report_help(named.place, message, help));
        }
        let (operand, _) = self.nested(super::Context::Branch, |c| c.operand(expr));
        let number = self.node(operand?.node).dim.as_ref().and_then(Dim::as_const);
        number.ok_or_else(|| self.report(SourceRange::of(expr), "an axis is an integer literal or a constexpr"))
    }

    /// An axis of a tile, counted from the end if negative.
    pub(super) fn axis(&mut self, expr: &Expr, rank: usize, what: &str) -> Checked<u8> {
        let value = self.axis_number(expr)?;
        let rank = rank as i64;
        let index = if value < 0 { value + rank } else { value };
        if (0..rank).contains(&index) {
            return Ok(index as u8);
        }
        let message = format!("{what} has no axis {value}");
        let help = match rank {
            1 => "its only axis is 0".to_string(),
            _ => format!("its axes are 0 to {}", rank - 1),
        };
        Err(self.report_help(SourceRange::of(expr), message, help))
    }
}

/// What an argument of Triton or PyTorch is called here.
fn foreign_option(row: &Row, name: &str) -> Option<&'static str> {
    let takes = |option: &str| row.options.contains(&option);
    Some(match name {
        "cache_modifier" if takes("cache") => "write `cache = cg`, a word without quotes",
        "eviction_policy" if takes("eviction") => "write `eviction = evict_first`, a word without quotes",
        "volatile" if takes("other") => "write `cache = cv`",
        "sem" if takes("order") => "write `order = relaxed`, a word without quotes",
        "allow_tf32" | "input_precision" if takes("precision") => {
            "write `precision = ieee` for `f32` arithmetic, `precision = tf32` for the fast one"
        }
        "lhs_scale" if takes("a_scale") => "write `a_scale = ..`",
        "rhs_scale" if takes("b_scale") => "write `b_scale = ..`",
        "lhs_format" if takes("a_format") => "write `a_format = e2m1`; other formats are dtypes",
        "rhs_format" if takes("b_format") => "write `b_format = e2m1`; other formats are dtypes",
        "lhs_k_pack" | "rhs_k_pack" if takes("a_format") => "bytes of `e2m1` hold neighbours along K",
        "fast_math" if takes("a_format") => "leave it out: scales of 255 are NaN, which costs as good as nothing",
        "out_dtype" if takes("a_format") => "sums are `f32`: write `dot_scaled(..) as f16`",
        "dim" if takes("axis") => "write `axis = ..`",
        "keep_dims" if row.call == Call::Softmax => "leave it out: the result has the shape of the operand",
        "bitcast" if row.call == Call::To => "write `bitcast::<f32>(x)`",
        "keepdim" if takes("keep_dims") => "write `keep_dims = true`",
        "dtype" if row.turbofish != Turbofish::None => "write it in front of the arguments: `zeros::<f32>([N])`",
        "dtype" => "convert the operand or the result: `x as f32`",
        "max_num_imprecise_acc" => {
            "leave it out: `acc += dot(a, b)` sums products of 8-bit floats in `f32`, `dot(a, b, acc = acc)` in the tensor cores"
        }
        "can_reorder" => "leave it out: elements keep their order",
        "return_indices_tie_break_left" | "tie_break_left" => "leave it out: of equal values the first one counts",
        "ieee_rounding" => "`div_rn(a, b)` is rounded correctly, and `a / b` within 2 ulp",
        "fp_downcast_rounding" | "rounding" => "leave it out: conversions round to the nearest, halves to even",
        "sanitize_overflow" => "`overflowing_add(a, b)` says whether a sum has wrapped",
        "pack" => "leave it out: instructions of neighbours are joined without it",
        "is_pure" if takes("pure") => "write `pure = true`",
        "num_bins" => "write `histogram(x, BINS)`",
        "timeout_ns" => "a launch has a limit on the CPU: `.time_limit(Duration::from_secs(10))`",
        "propagate_nan" if matches!(row.name, "max" | "min") => {
            "write `reduce(x, axis = .., |a, b| maximum(a, b, propagate_nan = true))`, or `minimum`"
        }
        "padding_option" if takes("padding") => "write `padding = nan`, a word without quotes",
        "boundary_check" | "padding_option" => "write `mask = .., other = ..`; blocks of descriptors need neither",
        _ => return None,
    })
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}
