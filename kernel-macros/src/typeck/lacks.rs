//! What to write where an operation is not defined for a dtype.

use kernel_core::ir::infer::Needs;
use kernel_core::ir::{DType, DTypeBound, Dt};

use super::convert::{default_of, grouped, meeting};
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
            Some(Dt::Known(dtype)) => dtype.bits(),
            None => DType::F32.bits(),
        };
        format!("for its bits write `bitcast::<u{bits}>({source})`, for its whole part `{source} as i32`").into()
    }

    /// Gives the last mistake, an integer where a float is due, the conversions to the float that stands beside it.
    pub(super) fn rehelp_beside_float(&mut self, operand: Operand, needs: Needs, what: &str, beside: Option<Operand>) {
        let known = |c: &Self, o: Operand| match c.ty(o).elem {
            VElem::Data(dt) => c.types.known(dt),
            VElem::Ptr(_) => None,
        };
        let Some(beside) = beside.filter(|_| needs == Needs::Bound(DTypeBound::Float)) else { return };
        let float = known(self, beside).filter(|&dt| admits(&self.func, dt, DTypeBound::Float));
        let Some(float) = float.filter(|_| self.is_integer(operand)) else { return };
        let help = match known(self, operand) {
            None if !matches!(self.node(operand.node).kind, Kind::Slot | Kind::Op(..)) => self.as_float(operand, float),
            own => {
                let own = own.unwrap_or(default_of(Class::Int));
                self.agreement((operand, own), (beside, float), what)
            }
        };
        self.errors.rehelp(help);
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
