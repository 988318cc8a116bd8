//! What to write instead of calls that have arguments of other languages, or name what is in other libraries.
//!
//! ```text
//! log(v, 2.0)                     log2(v)
//! max(row, 0)                     max(row, axis = 0)
//! dot(a, b, out_dtype = tl.float32)   out = f32
//! T::one()                        1 as T
//! f16::from_f32(x)                x as f16
//! ```

use syn::punctuated::Punctuated;
use syn::{Expr, ExprCall, ExprLit, Lit, Member, Token};

use super::{Checker, Context, Operand};
use crate::device::collect::is_foreign;
use crate::error::Reported;
use crate::help::Help;
use crate::names::{dtype_of_other_languages, is_screaming};
use crate::ops::{self, Row};
use crate::source_range::{SourceRange, bare};
use crate::spellings::{self, without_parentheses};

impl Checker<'_> {
    /// `log(v, 2.0)`, `v.log(2.0)`, `log(v, base = 2.0)`
    pub(super) fn logarithm_with_base(
        &mut self,
        row: &Row,
        receiver: Option<Operand>,
        exprs: &Punctuated<Expr, Token![,]>,
        place: SourceRange,
    ) -> Option<Reported> {
        let mut args: Vec<&Expr> = exprs.iter().collect();
        if row.name != "log" || args.len() + usize::from(receiver.is_some()) != 2 {
            return None;
        }
        let base = match args.pop()? {
            Expr::Assign(named) => {
                let is_base = matches!(bare(&named.left), Expr::Path(path) if path.path.is_ident("base"));
                Some(&*named.right).filter(|_| is_base)?
            }
            base => base,
        };
        let number = receiver.map_or_else(|| args.first().map(|arg| SourceRange::of(arg)), |own| Some(own.place))?;
        let number = self.source.operand(number);
        let number = without_parentheses(&number);
        let text = self.source.operand(SourceRange::of(base));
        let code = match (text.as_str(), bare(base)) {
            ("2" | "2.0", _) => format!("log2({number})"),
            ("10" | "10.0", _) => format!("log10({number})"),
            (_, Expr::Lit(ExprLit { lit: Lit::Int(int), .. })) if int.suffix().is_empty() => {
                format!("log({number}) / log({text}.0)")
            }
            _ => format!("log({number}) / log({})", without_parentheses(&text)),
        };
        let code = if code.contains('/') && self.source.is_operand(place) { format!("({code})") } else { code };
        Some(self.report_help(place, "`log` is the natural logarithm, and takes no base", Help::write(place, code)))
    }

    /// `max(row, 0)` of a tile is a reduction along an axis; of two values `maximum` is the larger.
    pub(super) fn extreme_of_two(&mut self, name: &str, call: &ExprCall, place: SourceRange) -> Reported {
        let message = format!("`{name}` reduces a tile along an axis");
        let (first, second) = (&call.args[0], &call.args[1]);
        if self.is_number(second) {
            let (operand, _) = self.nested(Context::Branch, |c| c.operand(first));
            let operand = match operand {
                Ok(operand) => operand,
                Err(reported) => return reported,
            };
            let (at, rank) = (SourceRange::of(second), self.ty(operand).shape.len() as i64);
            let text = self.source.text(at).unwrap_or_default();
            if text.parse().is_ok_and(|axis: i64| (-rank..rank).contains(&axis)) {
                let code = format!("{name}({}, axis = {text})", without_parentheses(&self.source(operand)));
                return self.report_help(
                    place,
                    message,
                    Help::write(at, format!("axis = {text}")).said(format!("write `{code}`")),
                );
            }
        }
        let other = if name == "max" { "maximum" } else { "minimum" };
        let help = Help::write(place, other).said(format!("of two values write `{other}(a, b)`"));
        self.report_help(place, message, help)
    }

    /// `out_dtype = tl.float32`
    pub(super) fn product_option(&self, name: &str, value: &Expr, place: SourceRange) -> Help {
        let dtype = match bare(value) {
            Expr::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            Expr::Field(field) => match &field.member {
                Member::Named(name) => Some(name.to_string()),
                Member::Unnamed(_) => None,
            },
            _ => None,
        };
        let dtype = dtype.and_then(|dtype| match self.dtype_by_name(&dtype) {
            Some(_) => Some(dtype),
            None => dtype_of_other_languages(&dtype).map(str::to_string),
        });
        match dtype {
            Some(dtype) => {
                let whole = SourceRange::between(place.start, SourceRange::of(value).end);
                Help::write(whole, format!("out = {dtype}"))
            }
            None => format!("`{name}` is called `out` here, and names the dtype of the sums: `out = f32`").into(),
        }
    }

    /// A path that names no function which a kernel could call: `T::one()`, `String::from(..)`, `Ok(..)`.
    pub(super) fn no_function(&mut self, path: &[String], call: &ExprCall, whole: SourceRange) -> Option<Reported> {
        let (name, of) = path.split_last()?;
        let place = SourceRange::of(&call.func);
        let capital = |name: &String| name.starts_with(char::is_uppercase);
        let operation = ops::find(name).is_some() || ops::find_desc(name).is_some() || spellings::find(name).is_some();
        let slip = of.is_empty() && (is_screaming(name) || ops::find(&name.to_lowercase()).is_some());
        let dtype = of.last().filter(|dtype| self.dtype_by_name(dtype).is_some());
        let foreign = dtype.is_some() || of.first().is_some_and(|first| is_foreign(first));
        if operation || slip || !foreign && !path.iter().any(capital) {
            return None;
        }
        let number = match name.as_str() {
            "one" => Some("1"),
            "zero" | "default" => Some("0"),
            _ => None,
        };
        let limit = match name.as_str() {
            "epsilon" => Some("EPSILON"),
            "max_value" => Some("MAX"),
            "min_value" => Some("MIN"),
            "infinity" => Some("INFINITY"),
            "neg_infinity" => Some("NEG_INFINITY"),
            "nan" => Some("NAN"),
            "min_positive_value" => Some("MIN_POSITIVE"),
            _ => None,
        };
        let code = match (dtype, number, call.args.first()) {
            (Some(dtype), None, None) => limit.map(|limit| format!("{dtype}::{limit}")),
            (Some(dtype), Some(number), None) => Some(format!("{number} as {dtype}")),
            (Some(dtype), None, Some(arg)) if self.is_conversion(name) && call.args.len() == 1 => {
                Some(format!("{} as {dtype}", self.source.operand(SourceRange::of(arg))))
            }
            _ => None,
        };
        let help: Help = match (code, name.as_str(), of.len()) {
            (Some(code), ..) => {
                let tight = code.contains(' ') && self.source.binds_tighter(whole);
                let code = if tight { format!("({code})") } else { code };
                Help::write(whole, code)
            }
            (None, "Ok", 0) => "a kernel gives nothing: leave it out".into(),
            (None, "Err", 0) => {
                "a kernel gives nothing: a failed `assert!` ends the program, and the launch reports it".into()
            }
            (None, "swap", _) => "write `(a, b) = (b, a);`".into(),
            (None, ..) => {
                "a kernel calls operations, `#[device]` functions, and functions of `#[device]` structs".into()
            }
        };
        Some(self.report_help(place, format!("`{}` cannot be called in a kernel", path.join("::")), help))
    }

    /// `from_f32` and its kind.
    fn is_conversion(&self, name: &str) -> bool {
        name.strip_prefix("from_").is_some_and(|from| self.dtype_by_name(from).is_some())
    }
}
