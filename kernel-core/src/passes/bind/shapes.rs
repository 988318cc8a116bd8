//! What only the values decide about shapes.

use super::Binder;
use crate::ir::{Atom, ConstId, Dim, DimError, Span};
use crate::verify::MAX_ELEMENTS;

/// Whether a dimension depends on a constexpr.
pub(super) fn mentions(dim: &Dim, id: ConstId) -> bool {
    let Dim::Poly(poly) = dim else { return false };
    poly.terms.iter().flat_map(|term| &term.0).any(|atom| match atom {
        Atom::Const(own) => *own == id,
        Atom::Div(a, b) | Atom::Rem(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => mentions(a, id) || mentions(b, id),
        Atom::Power(exponent) => mentions(exponent, id),
    })
}

/// The constexpr that a dimension is, if it is one alone.
fn lone_constexpr(dim: &Dim) -> Option<ConstId> {
    let Dim::Poly(poly) = dim else { return None };
    match poly.terms.as_slice() {
        [(atoms, 1)] => match atoms.as_slice() {
            [Atom::Const(id)] => Some(*id),
            _ => None,
        },
        _ => None,
    }
}

impl Binder<'_> {
    /// The value of a dimension; a mistake is reported the first time.
    pub(super) fn checked_dim(&mut self, dim: &Dim, span: Span) -> Option<i64> {
        match self.dim(dim) {
            Ok(value) => Some(value),
            Err(_) if !self.first_report(dim) => None,
            Err(error) => {
                let what = match error {
                    DimError::Overflow => "does not fit 64 bits",
                    DimError::TooLong => "is too long",
                    DimError::DivisionByZero => "divides by zero",
                };
                let message = format!("`{}` {what}{}", self.show(dim), self.with_values(&[dim]));
                self.error(span, message, None);
                None
            }
        }
    }

    /// The length of `arange(lo, hi)` and its bounds; a mistake is reported.
    pub(super) fn arange(&mut self, lo: &Dim, hi: &Dim, span: Span) -> Option<(i64, i64)> {
        let (first, end) = (self.checked_dim(lo, span), self.checked_dim(hi, span));
        let (first, end) = (first?, end?);
        let call = format!("`arange({}, {})`", self.show(lo), self.show(hi));
        let range = i64::from(i32::MIN)..=i64::from(i32::MAX) + 1;
        if !range.contains(&first) || !range.contains(&end) {
            let message = format!("{call} counts beyond i32{}", self.with_values(&[lo, hi]));
            self.error(span, message, None);
            return None;
        }
        let len = end - first;
        if let Some(wrong) = wrong_length(len) {
            let symbolic = hi.sub(lo).unwrap_or(Dim::Const(len));
            self.first_report(&symbolic);
            let help = self.suggest(&symbolic, len);
            self.error(span, format!("{call} makes a tile of {len} elements, {wrong}"), help);
            return None;
        }
        Some((first, end))
    }

    /// Notes that a dimension is reported; `false` if it was before. One wrong constexpr makes many wrong tiles.
    fn first_report(&mut self, dim: &Dim) -> bool {
        let first = !self.reported.contains(dim);
        if first {
            self.reported.push(dim.clone());
        }
        first
    }

    /// The values of a shape; mistakes are reported.
    pub(super) fn shape(&mut self, shape: &[Dim], span: Span) -> Option<Vec<Dim>> {
        let values: Vec<Option<i64>> = shape.iter().map(|dim| self.checked_dim(dim, span)).collect();
        let values: Vec<i64> = values.into_iter().collect::<Option<_>>()?;
        let mut sound = true;
        for (dim, &value) in shape.iter().zip(&values) {
            if let Some(wrong) = wrong_length(value) {
                sound = false;
                if !self.first_report(dim) {
                    continue;
                }
                let what = match dim {
                    Dim::Const(_) => "a dimension of this tile".to_string(),
                    Dim::Poly(_) => format!("dimension `{}` of this tile", self.show(dim)),
                };
                let help = self.suggest(dim, value);
                self.error(span, format!("{what} is {value}, {wrong}{}", self.others(dim)), help);
            }
        }
        let elements = values.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
        if sound && elements.is_none_or(|n| n > MAX_ELEMENTS) {
            let written: Vec<String> = shape.iter().map(|d| self.show(d)).collect();
            let (written, values) = (format!("[{}]", written.join(", ")), format!("{values:?}"));
            let tile = if written == values { values } else { format!("{written} = {values}") };
            let message = format!("a tile of shape {tile} has more than {MAX_ELEMENTS} elements");
            self.error(span, message, Some("use smaller tiles and more programs".to_string()));
            sound = false;
        }
        sound.then(|| values.into_iter().map(Dim::Const).collect())
    }

    /// The values that a dimension is made of, unless it is a constexpr alone, whose value was just said.
    fn others(&self, dim: &Dim) -> String {
        if lone_constexpr(dim).is_some() { String::new() } else { self.with_values(&[dim]) }
    }

    /// How to mend a length that is no power of two.
    fn suggest(&self, dim: &Dim, value: i64) -> Option<String> {
        if value <= 0 {
            return None;
        }
        if value > MAX_ELEMENTS {
            return Some("use smaller tiles and more programs".to_string());
        }
        let power = (value as u64).next_power_of_two();
        let given = |id: &ConstId| self.source.const_params[id.index()].is_given();
        Some(match lone_constexpr(dim).filter(given) {
            Some(id) => format!("use {} = {power} and a mask", self.const_name(id)),
            None => format!("use a power of two, such as {power}, and a mask"),
        })
    }
}

/// Whether a tile can have those dimensions.
pub(super) fn is_shape(shape: &[Dim]) -> bool {
    let values: Option<Vec<i64>> = shape.iter().map(Dim::as_const).collect();
    values.is_some_and(|values| {
        values.iter().all(|&len| wrong_length(len).is_none())
            && values.iter().try_fold(1i64, |n, &len| n.checked_mul(len)).is_some_and(|n| n <= MAX_ELEMENTS)
    })
}

/// What is wrong with the length of a dimension.
fn wrong_length(len: i64) -> Option<String> {
    if len <= 0 {
        Some("but a tile has at least one element".to_string())
    } else if !(len as u64).is_power_of_two() {
        Some("which is not a power of two".to_string())
    } else if len > MAX_ELEMENTS {
        Some(format!("but a tile has at most {MAX_ELEMENTS}"))
    } else {
        None
    }
}
