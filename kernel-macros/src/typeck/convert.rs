//! What to write where dtypes do not agree.
//!
//! A hint must be right when it is followed, so that a conversion goes to a dtype that holds the values of both sides,
//! on whichever side that is:
//!
//! ```text
//! row * stride        i32 and i64: write `row as i64`, never `stride as i32`
//! (1 / n) * s         i32 and f32: write `(1.0 / n as f32)`, as integers divide without a fraction
//! count + index       u32 and i32: write `count as i64` and `index as i64`
//! ```

use kernel_core::ir::{DType, DTypeBound, Dim, Dt, DtypeId};

use super::{Checker, Operand};
use crate::error::Reported;
use crate::help::Help;
use crate::quotient;
use crate::source_range::SourceRange;
use crate::spellings::without_parentheses;
use crate::tree::Kind;
use crate::types::{Class, Mismatch, VElem, admits};

impl Checker<'_> {
    /// How to convert a value.
    pub(super) fn conversion(&self, operand: Operand, to: Dt) -> Help {
        if to == Dt::Known(DType::Bool) {
            return self.truth(operand, operand.place);
        }
        let quotient = (admits(&self.func, to, DTypeBound::Float) && self.is_integer(operand))
            .then(|| self.quotient(operand, to))
            .flatten();
        quotient.unwrap_or_else(|| Help::write(operand.place, self.cast_source(operand.place, &self.bare_name(to))))
    }

    /// The source of an expression, as an operand of `as`.
    pub(super) fn source(&self, operand: Operand) -> String {
        self.source.operand(operand.place)
    }

    /// `x as f32`, in parentheses where the expression around it would take it apart.
    pub(super) fn cast_source(&self, place: SourceRange, name: &str) -> String {
        let code = format!("{} as {name}", self.source.operand(place));
        if self.source.binds_tighter(place) { format!("({code})") } else { code }
    }

    pub(super) fn bare_name(&self, dt: Dt) -> String {
        self.show_fixed(dt).replace('`', "")
    }

    /// A number as a condition.
    pub(super) fn truth(&self, operand: Operand, place: SourceRange) -> Help {
        let dt = match self.ty(operand).elem {
            VElem::Data(dt) => dt,
            VElem::Ptr(_) => return "read what it points to: `load(pointer)`".into(),
        };
        let zero = match self.types.known(dt) {
            Some(dt @ Dt::Param(_)) => format!("0 as {}", self.bare_name(dt)),
            Some(Dt::Known(_)) | None if self.may_be_float(dt) => "0.0".to_string(),
            Some(Dt::Known(_)) | None => "0".to_string(),
        };
        let code = format!("{} != {zero}", self.source(operand));
        let code = if self.source.is_operand(place) { format!("({code})") } else { code };
        Help::write(place, code.clone()).said(format!("compare: `{code}`"))
    }

    pub(super) fn is_integer(&self, operand: Operand) -> bool {
        match self.ty(operand).elem {
            VElem::Data(dt) => match self.types.known(dt) {
                Some(dt) => admits(&self.func, dt, DTypeBound::Int),
                None => self.types.class(dt) == Some(Class::Int),
            },
            VElem::Ptr(_) => false,
        }
    }

    /// How to divide floats where a quotient of integers meets a float.
    fn quotient(&self, operand: Operand, to: Dt) -> Option<Help> {
        let name = self.bare_name(to);
        let written = self.source.text(operand.place)?;
        if let Some(code) = quotient::of_floats(&written, &name) {
            let code = if self.source.binds_tighter(operand.place) { grouped(code) } else { code };
            let whole = self.cast_source(operand.place, &name);
            let more = format!(", or `{whole}` for the quotient without its fraction");
            return Some(Help::write(operand.place, code).and(&more));
        }
        let defined = self.source.text(self.node(operand.node).place).filter(|text| *text != written)?;
        let code = quotient::of_floats(&defined, &name)?;
        let whole = self.cast_source(operand.place, &name);
        Some(format!("`{written}` has lost its fraction: divide floats, `{code}`, or write `{whole}`").into())
    }

    /// Says that two dtypes do not agree.
    pub(super) fn mismatch(
        &mut self,
        mismatch: Mismatch,
        a: Operand,
        b: Operand,
        what: &str,
        place: SourceRange,
    ) -> Reported {
        let before = self.errors.list().len();
        let reported = self.disagreement(mismatch, a, b, what, place);
        if self.errors.list().len() == before + 1
            && let Some(help) = self.begun_with_integer(a, b)
        {
            self.errors.rehelp(help);
        }
        reported
    }

    fn disagreement(&mut self, mismatch: Mismatch, a: Operand, b: Operand, what: &str, place: SourceRange) -> Reported {
        // The operand whose dtype is still open is the literal.
        let open = |c: &Self, o: Operand| matches!(c.ty(o).elem, VElem::Data(dt) if c.types.class(dt).is_some());
        let literal = if open(self, b) || !open(self, a) { b } else { a };
        match mismatch {
            Mismatch::Dtypes(x, y) => {
                let (left, right) = (self.show_fixed(x), self.show_fixed(y));
                let message = format!("{what} needs one dtype, found {left} and {right}");
                let help = self.agreement((a, x), (b, y), what);
                self.report_help(place, message, help)
            }
            Mismatch::Literal(class, dt) => {
                let other = if literal.node == a.node { b } else { a };
                if matches!(self.node(literal.node).kind, Kind::Slot | Kind::Op(..)) && a.node != b.node {
                    let (left, right) = (self.show(a), self.show(b));
                    let message = format!("{what} needs one dtype, found {left} and {right}");
                    let help = match dt {
                        Dt::Known(DType::Bool) => self.conversion(literal, dt),
                        Dt::Known(_) | Dt::Param(_) => {
                            let default = default_of(class);
                            let own = |o: Operand| (o, if o.node == literal.node { default } else { dt });
                            match self.meeting(default, dt) {
                                // No dtype holds both, but that of the literal is not decided.
                                None if is_compound(what) && literal.node == a.node => self.variable(a, b, dt),
                                None if !takes_count(what) => self.conversion(literal, dt),
                                Some(_) | None => self.agreement(own(a), own(b), what),
                            }
                        }
                    };
                    return self.report_help(place, message, help);
                }
                self.literal_mismatch(class, dt, literal, other)
            }
            Mismatch::Classes => {
                let message = format!("{what} needs one dtype, found an integer and a float");
                let integer = [a, b].into_iter().find(|&o| self.is_integer(o));
                match integer {
                    Some(o) => {
                        let help = self.as_float(o, Dt::Known(DType::F32));
                        self.report_help(o.place, message, help)
                    }
                    None => self.report(place, message),
                }
            }
            Mismatch::Constant(dt) => {
                let name = self.bare_name(dt);
                let message = format!("a constant has one dtype, but `{name}` stands for several");
                let help = match self.names_constant(literal) {
                    true => self.conversion(literal, dt),
                    false => format!("convert the constant where its name stands: `NAME as {name}`").into(),
                };
                self.report_help(literal.place, message, help)
            }
        }
    }

    /// The conversions after which two operands agree.
    pub(super) fn agreement(&self, (a, x): (Operand, Dt), (b, y): (Operand, Dt), what: &str) -> Help {
        // A count is taken modulo the width, which its low bits decide.
        if takes_count(what) {
            return self.conversion(b, x);
        }
        match self.meeting(x, y) {
            Some(to) if is_compound(what) && to != x => self.variable(a, b, to),
            Some(to) if to == x => self.conversion(b, to),
            Some(to) if to == y => self.conversion(a, to),
            Some(to) => {
                let (left, right) = (self.conversion(a, to), self.conversion(b, to));
                all_of(vec![left, right])
            }
            None => {
                let other = self.bare_name(y);
                let cast = self.cast_source(b.place, &self.bare_name(x));
                match is_compound(what) {
                    true => {
                        let declared = format!("declare `{}` as `{other}`, or write `{cast}`", self.source(a));
                        format!("no dtype holds both: {declared}, whichever holds the values").into()
                    }
                    false => {
                        let left = self.cast_source(a.place, &other);
                        format!("no dtype holds both: write `{left}` or `{cast}`, whichever holds its values").into()
                    }
                }
            }
        }
    }

    /// Whether an operand is the name of a constant, of whose type rustc makes any other.
    fn names_constant(&self, operand: Operand) -> bool {
        let Kind::Constant(index) = self.node(operand.node).kind else { return false };
        let written = self.source.text(operand.place).unwrap_or_default();
        written.rsplit("::").next().is_some_and(|last| last.trim() == self.constants[index].name)
    }

    /// The dtype that holds the values of two others, as far as there is one.
    pub(super) fn meeting(&self, x: Dt, y: Dt) -> Option<Dt> {
        match (x, y) {
            (Dt::Known(DType::Bool), other) | (other, Dt::Known(DType::Bool)) => Some(other),
            // An accumulator holds what it accumulates.
            (Dt::Param(sum), Dt::Param(of)) if self.accumulates(sum) == Some(of) => Some(x),
            (Dt::Param(of), Dt::Param(sum)) if self.accumulates(sum) == Some(of) => Some(y),
            (Dt::Known(_) | Dt::Param(_), Dt::Known(_) | Dt::Param(_)) => {
                meeting_of_any(&self.stands_for(x), &self.stands_for(y)).map(Dt::Known)
            }
        }
    }

    /// The dtype parameter whose accumulator another one is.
    fn accumulates(&self, sum: DtypeId) -> Option<DtypeId> {
        self.func.dtype_params[sum.index()].accumulator_of
    }

    /// The dtypes that one can stand for.
    fn stands_for(&self, dt: Dt) -> Vec<DType> {
        match dt {
            Dt::Known(dtype) => vec![dtype],
            Dt::Param(param) => admitted(self.func.dtype_params[param.index()].bound),
        }
    }

    /// What to do where a variable is too narrow for what is assigned to it with an operator.
    fn variable(&self, variable: Operand, value: Operand, wanted: Dt) -> Help {
        let name = self.source(variable);
        let own = match self.ty(variable).elem {
            VElem::Data(dt) => self.bare_name(self.types.settled(dt)),
            VElem::Ptr(_) => return "a variable keeps its type: use a second one".into(),
        };
        let cast = self.cast_source(value.place, &own);
        let wanted = self.bare_name(wanted);
        format!("`{name}` keeps its dtype: declare it as `{wanted}`, or write `{cast}` if `{own}` holds the value")
            .into()
    }

    fn literal_mismatch(&mut self, class: Class, dt: Dt, literal: Operand, other: Operand) -> Reported {
        let wanted = self.show_fixed(dt);
        let name = wanted.replace('`', "");
        let kind = if class == Class::Float { "a float" } else { "an integer" };
        let message = match dt {
            Dt::Param(p) => {
                let bound = self.func.dtype_params[p.index()].bound.name();
                format!("{kind} does not adapt to {wanted}, which `{name}: {bound}` leaves open")
            }
            Dt::Known(_) => format!("expected {wanted}, found {kind}"),
        };
        let other = (other.node != literal.node).then_some(other);
        let help = match (class, dt) {
            (_, Dt::Known(DType::Bool)) => "a `bool` is `true`, `false` or a comparison".into(),
            (Class::Int, dt) if admits(&self.func, dt, DTypeBound::Float) => self.as_float(literal, dt),
            (Class::Int, Dt::Param(_)) if !self.is_held(literal, dt) => {
                let help = self.conversion(literal, dt);
                let text = help.text.replacen("write", "say that it may wrap:", 1);
                help.said(text)
            }
            (Class::Float, dt) if admits(&self.func, dt, DTypeBound::Int) => self.beside_integers(literal, other, dt),
            (Class::Float, Dt::Param(_)) if self.whole(literal.place).is_none() => {
                format!("bound the dtype: `{name}: Float`; an integer would lose the fraction").into()
            }
            _ => self.conversion(literal, dt),
        };
        self.report_help(literal.place, message, help)
    }

    /// A float literal beside integers: either they are converted, or it stands for a whole number.
    fn beside_integers(&self, literal: Operand, other: Option<Operand>, dt: Dt) -> Help {
        let name = self.bare_name(dt);
        let whole = self.whole(literal.place).map(|whole| match dt {
            Dt::Known(_) => whole,
            Dt::Param(_) => format!("{whole} as {name}"),
        });
        match (whole, other) {
            (Some(whole), _) if self.in_offset => {
                Help::write(literal.place, whole.clone()).said(format!("pointers move by integers: write `{whole}`"))
            }
            (Some(whole), Some(other)) => {
                let float = self.conversion(other, Dt::Known(DType::F32));
                let code = float.rewrites.first().map(|(_, code)| code.clone()).unwrap_or_default();
                float.said(format!("write `{code}`, or `{whole}` to compute with integers"))
            }
            (Some(whole), None) => Help::write(literal.place, whole),
            (None, Some(other)) => self.conversion(other, Dt::Known(DType::F32)),
            (None, None) => {
                let written = self.source.text(literal.place).unwrap_or_default();
                match written.trim_start_matches(['-', '(']).starts_with(|c: char| c.is_ascii_digit() || c == '.') {
                    true => format!("`{name}` has no fraction: write a whole number").into(),
                    false => self.conversion(literal, dt),
                }
            }
        }
    }

    /// The source of a float literal without its fraction, if that is zero.
    pub(super) fn whole(&self, literal: SourceRange) -> Option<String> {
        let text = self.source.text(literal)?;
        let text = text.trim_start_matches('(').trim_end_matches(')');
        let digits = text.strip_suffix(".0").or_else(|| text.strip_suffix('.'))?;
        digits.trim_start_matches('-').chars().all(|c| c.is_ascii_digit()).then(|| digits.to_string())
    }

    /// Whether every dtype that one can stand for holds an integer, as far as that is known; floats round.
    pub(super) fn is_held(&self, integer: Operand, dt: Dt) -> bool {
        let value = match self.node(integer.node).kind {
            Kind::Int(Dim::Const(value)) => value.into(),
            Kind::BigInt(value) => value,
            _ => return true,
        };
        let holds = |d: &DType| !d.is_int() || (d.int_min()..=d.int_max()).contains(&value);
        self.stands_for(dt).iter().all(holds)
    }

    pub(super) fn as_float(&self, operand: Operand, to: Dt) -> Help {
        let source = self.source.text(operand.place).unwrap_or_default();
        let digits = source.trim_start_matches('-');
        match self.node(operand.node).kind {
            Kind::Int(Dim::Const(_)) if !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()) => {
                Help::write(operand.place, format!("{source}.0"))
            }
            _ => self.conversion(operand, to),
        }
    }
}

/// All of several conversions.
pub(super) fn all_of(mut conversions: Vec<Help>) -> Help {
    if conversions.len() == 1 {
        return conversions.remove(0);
    }
    let rewrites: Vec<(SourceRange, String)> = conversions.into_iter().flat_map(|help| help.rewrites).collect();
    let mut codes: Vec<String> = rewrites.iter().map(|(_, code)| format!("`{code}`")).collect();
    codes.dedup();
    let text = match codes.split_last() {
        Some((last, first @ [_, ..])) => format!("{} and {last}", first.join(", ")),
        Some(_) | None => codes.concat(),
    };
    Help { text: format!("write {text}"), rewrites }
}

/// An expression in parentheses, unless it is already.
pub(super) fn grouped(code: String) -> String {
    if without_parentheses(&code) == code { format!("({code})") } else { code }
}

/// Whether the second operand of an operation is a number of bits.
fn takes_count(what: &str) -> bool {
    ["<<", ">>", "rotate_"].iter().any(|counts| what.contains(counts))
}

/// `+=` and its kind, as messages name them.
fn is_compound(what: &str) -> bool {
    what.ends_with("=`") && !matches!(what, "`==`" | "`!=`" | "`<=`" | "`>=`")
}

/// The dtype that a value of that class takes if nothing else says so.
pub(super) fn default_of(class: Class) -> Dt {
    Dt::Known(if class == Class::Float { DType::F32 } else { DType::I32 })
}

/// The dtype to which two others are converted: one of the two if it holds the other's values, else the narrowest that
/// holds both, as far as there is one. Integers beside `f32` and `f64` become floats, as everywhere.
pub(super) fn meeting(x: DType, y: DType) -> Option<DType> {
    if x == y {
        return Some(x);
    }
    let narrow = |float: DType| float.bits() <= 16;
    match (x.is_float(), y.is_float()) {
        (false, false) => {
            let holds = |d: &DType| [x, y].iter().all(|o| d.int_min() <= o.int_min() && d.int_max() >= o.int_max());
            [x, y, DType::I16, DType::I32, DType::I64].into_iter().find(holds)
        }
        (true, true) => Some(match (x.is_fp8(), y.is_fp8()) {
            (true, false) => y,
            (false, true) => x,
            // Neither of `f16` and `bf16`, or of the two 8-bit floats, holds the other.
            (true, true) | (false, false) if x.bits() == y.bits() => DType::F32,
            (true, true) | (false, false) if x.bits() > y.bits() => x,
            (true, true) | (false, false) => y,
        }),
        (true, false) | (false, true) => {
            let (float, int) = if x.is_float() { (x, y) } else { (y, x) };
            // 16-bit floats hold the integers of 8 bits; the 8-bit ones do not.
            Some(if narrow(float) && (float.is_fp8() || int.bits() > 8) { DType::F32 } else { float })
        }
    }
}

/// The dtypes of a bound.
fn admitted(bound: DTypeBound) -> Vec<DType> {
    DType::ALL.into_iter().filter(|dtype| bound.admits(*dtype)).collect()
}

/// The dtype to which two others are converted, each of which is any of several. Two integers never meet as floats.
fn meeting_of_any(xs: &[DType], ys: &[DType]) -> Option<DType> {
    let pairs = || xs.iter().flat_map(|&x| ys.iter().map(move |&y| (x, y)));
    let met = pairs().map(|(x, y)| meeting(x, y)).collect::<Option<Vec<DType>>>()?;
    let to = met.into_iter().map(Some).reduce(|a, b| meeting(a?, b?))??;
    let integers = pairs().any(|(x, y)| !x.is_float() && !y.is_float());
    (!integers || !to.is_float()).then_some(to)
}

#[cfg(test)]
mod tests {
    use super::{DType, DTypeBound, admitted, meeting, meeting_of_any};

    #[test]
    fn conversions_lose_nothing() {
        use DType::{BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
        let cases = [
            (I32, I64, Some(I64)),
            (I64, I32, Some(I64)),
            (U32, I64, Some(I64)),
            (U32, I32, Some(I64)),
            (U8, I8, Some(I16)),
            (U16, I8, Some(I32)),
            (U8, U32, Some(U32)),
            (U64, I64, None),
            (U64, U32, Some(U64)),
            (F16, F32, Some(F32)),
            (F16, BF16, Some(F32)),
            (F8E4M3, F8E5M2, Some(F32)),
            (F8E4M3, BF16, Some(BF16)),
            (F32, F64, Some(F64)),
            (I32, F32, Some(F32)),
            (I64, F64, Some(F64)),
            (I32, F16, Some(F32)),
            (U8, BF16, Some(BF16)),
            (U8, F8E5M2, Some(F32)),
        ];
        for (x, y, wanted) in cases {
            assert_eq!(meeting(x, y), wanted, "{x} and {y}");
            assert_eq!(meeting(y, x), wanted, "{y} and {x}");
        }
    }

    #[test]
    fn conversions_of_dtype_parameters_lose_nothing() {
        use DType::{F16, F32, F64, I8, I32, I64, U64};
        use DTypeBound::{Float, Int, Num, Signed};
        let [float, int, num, signed] = [Float, Int, Num, Signed].map(admitted);
        let cases: [(&[DType], &[DType], Option<DType>); 15] = [
            (&[F16], &float, Some(F64)),
            (&[F32], &float, Some(F64)),
            (&[F64], &float, Some(F64)),
            (&[I32], &float, Some(F64)),
            (&[F32], &int, Some(F32)),
            (&[F64], &int, Some(F64)),
            (&[F32], &num, Some(F64)),
            (&float, &float, Some(F64)),
            (&float, &int, Some(F64)),
            (&[I8], &int, None),
            (&[I64], &int, None),
            (&[U64], &int, None),
            (&int, &int, None),
            // Where one may be an integer, a float loses what the others hold.
            (&[I32], &signed, None),
            (&num, &num, None),
        ];
        for (x, y, wanted) in cases {
            assert_eq!(meeting_of_any(x, y), wanted, "{x:?} and {y:?}");
            assert_eq!(meeting_of_any(y, x), wanted, "{y:?} and {x:?}");
        }
    }
}
