//! What to write where an operation is not defined for a dtype.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{DType, DTypeBound, Dt};

use super::convert::{all_of, default_of, grouped, meeting};
use super::{Checker, Operand};
use crate::error::Reported;
use crate::help::Help;
use crate::quotient;
use crate::source_range::SourceRange;
use crate::spellings::without_parentheses;
use crate::tree::Kind;
use crate::types::{Class, DtRef, VElem, admits, may_be};

impl Checker<'_> {
    /// Says that an operation is not defined for a dtype; `beside` is the other operand, if there is one.
    pub(super) fn lacks(
        &mut self,
        dt: DtRef,
        needs: Needs,
        what: &str,
        place: SourceRange,
        beside: Option<Operand>,
    ) -> Reported {
        let (wanted, bound) = match needs {
            Needs::Bound(DTypeBound::Float) => ("a float", DTypeBound::Float),
            Needs::Bound(DTypeBound::Int) => ("an integer", DTypeBound::Int),
            Needs::Bound(DTypeBound::Signed) => ("a signed integer or a float", DTypeBound::Signed),
            Needs::Bound(DTypeBound::Num) => ("a number", DTypeBound::Num),
            Needs::Bound(DTypeBound::DType) | Needs::Any => ("a value", DTypeBound::DType),
            Needs::Bits => ("an integer or a `bool`", DTypeBound::Int),
        };
        let message = format!("{what} needs {wanted}, found {}", self.show_dt(dt));
        let known = self.types.known(dt);
        let help = match (known, bound) {
            (Some(Dt::Param(p)), _) if may_be(&self.func, Dt::Param(p), bound) => {
                let name = &self.func.dtype_params[p.index()].name;
                format!("bound the dtype: `{name}: {}`", bound.name()).into()
            }
            (Some(Dt::Known(DType::Bool)), DTypeBound::Num | DTypeBound::Signed) => self.counted(place, beside, what),
            (Some(Dt::Known(unsigned)), DTypeBound::Signed) => self.negated(place, unsigned),
            (_, DTypeBound::Float) if matches!(what, "`pow`" | "`powi`") => self.power_of(dt, place, beside),
            (_, DTypeBound::Float) => self.first_as_float(place),
            _ if what.contains("<<") || what.contains(">>") || needs == Needs::Bits => self.bits_of(place, known),
            _ => {
                let to = if known == Some(Dt::Known(DType::F64)) { "i64" } else { "i32" };
                self.first_as(place, to)
            }
        };
        self.report_help(place, message, help)
    }

    /// A float where bits are due. How many a dtype parameter has is not known.
    fn bits_of(&self, place: SourceRange, dt: Option<Dt>) -> Help {
        let source = self.source.operand(place);
        let bits = match dt {
            Some(Dt::Param(_)) => return format!("for its whole part write `{source} as i32`").into(),
            Some(Dt::Known(DType::Bool)) => return self.first_as(place, "i32"),
            Some(Dt::Known(dtype)) => dtype.bits(),
            None => DType::F32.bits(),
        };
        format!("for its bits write `bitcast::<u{bits}>({source})`, for its whole part `{source} as i32`").into()
    }

    /// Gives the last mistake, an integer where a float is due, the conversions after which it agrees with the floats that
    /// stand beside it.
    pub(super) fn rehelp_beside_floats(&mut self, operand: Operand, needs: Needs, beside: &[Operand]) {
        if needs != Needs::Bound(DTypeBound::Float) || !self.is_integer(operand) {
            return;
        }
        let is_float = |o: &Operand| self.own(*o).is_some_and(|dt| admits(&self.func, dt, DTypeBound::Float));
        let floats: Vec<Operand> = beside.iter().copied().filter(is_float).collect();
        let integers = beside.iter().copied().chain([operand]).filter(|&o| self.is_integer(o) && !self.is_literal(o));
        let integers = integers.map(|o| self.own(o).unwrap_or(default_of(Class::Int)));
        let dtypes = floats.iter().filter_map(|&o| self.own(o)).chain(integers);
        let to = dtypes.map(Some).reduce(|x, y| self.meeting(x?, y?)).flatten();
        let Some(to) = to.filter(|_| !floats.is_empty()) else { return };
        let first = if self.is_literal(operand) { self.as_float(operand, to) } else { self.conversion(operand, to) };
        let others = floats.into_iter().filter(|&o| self.own(o) != Some(to)).map(|o| self.conversion(o, to));
        let help = [first].into_iter().chain(others).collect();
        self.errors.rehelp(all_of(help));
    }

    /// The dtype of a value, if it is decided.
    fn own(&self, operand: Operand) -> Option<Dt> {
        match self.ty(operand).elem {
            VElem::Data(dt) => self.types.known(dt),
            VElem::Ptr(_) => None,
        }
    }

    /// Whether an operand is a number as written, which takes any dtype of its class.
    fn is_literal(&self, operand: Operand) -> bool {
        self.own(operand).is_none() && !matches!(self.node(operand.node).kind, Kind::Slot | Kind::Op(..))
    }

    fn first_as(&self, place: SourceRange, to: &str) -> Help {
        if let Some(whole) = self.whole(place) {
            return Help::write(place, whole);
        }
        let code = self.cast_source(place, to);
        Help::write(place, code.clone()).said(format!("convert first: `{code}`"))
    }

    /// A power of an integer.
    fn power_of(&self, dt: DtRef, place: SourceRange, exponent: Option<Operand>) -> Help {
        let (help, number) = (self.first_as_float(place), self.source.operand(place));
        let known = self.types.known(dt).is_some_and(|dt| admits(&self.func, dt, DTypeBound::Int));
        if !known {
            return help;
        }
        let exponent = exponent.and_then(|exponent| self.node(exponent.node).dim.as_ref()?.as_const());
        let product = match exponent {
            Some(times @ 2..=4) => format!("multiply: `{}`", vec![number; times as usize].join(" * ")),
            Some(_) | None => format!("multiply in a loop: `for _ in 0..exponent {{ power *= {number}; }}`"),
        };
        format!("{product}; for a float convert first: `{}`", self.cast_source(place, "f32")).into()
    }

    fn first_as_float(&self, place: SourceRange) -> Help {
        let written = self.source.text(place).unwrap_or_default();
        let literal = written.trim_start_matches('-');
        if !literal.is_empty() && literal.chars().all(|c| c.is_ascii_digit()) {
            return Help::write(place, format!("{written}.0"));
        }
        match quotient::of_floats(&written, "f32") {
            Some(code) => {
                let code = if self.source.binds_tighter(place) { grouped(code) } else { code };
                let whole = self.cast_source(place, "f32");
                Help::write(place, code).and(&format!(", or `{whole}` for the quotient without its fraction"))
            }
            None => self.first_as(place, "f32"),
        }
    }

    /// A `bool` where a number is due: one of the dtype beside it.
    fn counted(&self, place: SourceRange, beside: Option<Operand>, what: &str) -> Help {
        let dt = beside.and_then(|o| match self.ty(o).elem {
            VElem::Data(dt) => Some(dt),
            VElem::Ptr(_) => None,
        });
        let (to, zero) = match dt.map(|dt| (self.types.known(dt), self.types.class(dt))) {
            Some((Some(Dt::Known(DType::Bool)), _)) | None => ("i32".to_string(), "0".to_string()),
            Some((Some(Dt::Known(d)), _)) => (d.to_string(), if d.is_float() { "0.0" } else { "0" }.to_string()),
            Some((Some(dt @ Dt::Param(_)), _)) => (self.bare_name(dt), format!("0 as {}", self.bare_name(dt))),
            Some((None, Some(Class::Float))) => ("f32".to_string(), "0.0".to_string()),
            Some((None, _)) => ("i32".to_string(), "0".to_string()),
        };
        let help = self.first_as(place, &to);
        match beside {
            Some(other) if what == "`*`" => {
                let (mask, value) = (self.source.text(place), self.source.text(other.place));
                let [mask, value] = [mask, value].map(|text| text.unwrap_or_else(|| "..".to_string()));
                let mask = without_parentheses(&mask);
                help.and(&format!("; to choose elements write `select({mask}, {value}, {zero})`"))
            }
            Some(_) | None => help,
        }
    }

    /// `-x` of an unsigned number.
    fn negated(&self, place: SourceRange, unsigned: DType) -> Help {
        let source = self.source.operand(place);
        match meeting(unsigned, DType::I8) {
            Some(signed) => {
                let code = self.cast_source(place, signed.name());
                let text = format!("write `{code}` for a negative number, or `0 - {source}`, which wraps");
                Help::write(place, code).said(text)
            }
            None => format!("write `0 - {source}`, which wraps").into(),
        }
    }
}
