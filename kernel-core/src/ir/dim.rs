//! Symbolic dimensions: integer expressions over constexprs, in a normal form.
//!
//! A [`Dim`] is a polynomial with integer coefficients over *atoms*: constexpr parameters and the
//! results of division, remainder, minimum, maximum and powers of two, which are opaque.
//! Two dimensions agree iff their normal forms are equal, so `BLOCK * 2` is `BLOCK + BLOCK`,
//! and `M * N` is `N * M`; nothing is assumed of a constexpr's value.
//!
//! After `bind` every dimension is [`Dim::Const`].

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::ids::ConstId;

/// A dimension of a tile, or any other integer known when the constexprs are.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Dim {
    /// A number.
    Const(i64),
    /// A polynomial that is not a constant, in normal form.
    Poly(Arc<Poly>),
}

/// A sum of terms, sorted by monomial, without zero coefficients.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Poly {
    /// Pairs of a product of atoms (sorted, repeats allowed; empty for the constant term) and its coefficient.
    pub terms: Vec<(Vec<Atom>, i64)>,
}

/// An indivisible part of a symbolic dimension.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Atom {
    /// A constexpr parameter.
    Const(ConstId),
    /// Division that truncates towards zero.
    Div(Dim, Dim),
    /// Remainder with the sign of the dividend.
    Rem(Dim, Dim),
    /// The smaller of two.
    Min(Dim, Dim),
    /// The larger of two.
    Max(Dim, Dim),
    /// The power of two with that exponent: `1 << i`.
    Power(Dim),
}

/// The most terms of a product before equal ones are collected: powers of long sums grow without bound.
const MAX_TERMS: usize = 4096;

/// The most atoms and numbers of a dimension, those within quotients and the like included. Named constexprs share such
/// parts, which are written out wherever they are used: without a limit thirty lines make billions of them.
const MAX_SIZE: usize = 4096;

/// How deep quotients and the like nest: as deep as the text form can be read, which has two pairs of parentheses for each.
const MAX_DEPTH: usize = 149;

/// Why a dimension has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DimError {
    /// The value does not fit 64 bits.
    Overflow,
    /// Division or remainder by zero.
    DivisionByZero,
    /// The expression is longer than anybody writes.
    TooLong,
}

impl fmt::Display for DimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DimError::Overflow => "the value does not fit 64 bits",
            DimError::DivisionByZero => "division by zero",
            DimError::TooLong => "the expression is too long",
        })
    }
}

impl std::error::Error for DimError {}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim::Const(value)
    }
}

impl Dim {
    /// The dimension that a constexpr parameter names.
    pub fn param(id: ConstId) -> Dim {
        Dim::Poly(Arc::new(Poly { terms: vec![(vec![Atom::Const(id)], 1)] }))
    }

    fn atom(atom: Atom) -> Result<Dim, DimError> {
        Dim::from_terms(vec![(vec![atom], 1)])
    }

    /// Counts atoms and numbers of the dimension; `None` if there are more than `room`, or if it nests too deep.
    fn room_behind(&self, room: usize, depth: usize) -> Option<usize> {
        match self {
            Dim::Const(_) => room.checked_sub(1),
            Dim::Poly(poly) => poly.room_behind(room, depth),
        }
    }

    /// The number, if this is one.
    pub fn as_const(&self) -> Option<i64> {
        match self {
            Dim::Const(c) => Some(*c),
            Dim::Poly(_) => None,
        }
    }

    /// Whether this is the literal 1, which broadcasts.
    pub fn is_one(&self) -> bool {
        *self == Dim::Const(1)
    }

    /// Terms of the polynomial, the constant included.
    pub fn terms(&self) -> Vec<(Vec<Atom>, i64)> {
        match self {
            Dim::Const(0) => Vec::new(),
            Dim::Const(c) => vec![(Vec::new(), *c)],
            Dim::Poly(p) => p.terms.clone(),
        }
    }

    fn from_terms(mut terms: Vec<(Vec<Atom>, i64)>) -> Result<Dim, DimError> {
        terms.sort_by(|a, b| a.0.cmp(&b.0));
        let mut merged: Vec<(Vec<Atom>, i64)> = Vec::with_capacity(terms.len());
        for (atoms, coefficient) in terms {
            match merged.last_mut() {
                Some(last) if last.0 == atoms => {
                    last.1 = last.1.checked_add(coefficient).ok_or(DimError::Overflow)?;
                }
                _ => merged.push((atoms, coefficient)),
            }
        }
        merged.retain(|term| term.1 != 0);
        Ok(match merged.as_slice() {
            [] => Dim::Const(0),
            [(atoms, c)] if atoms.is_empty() => Dim::Const(*c),
            _ => {
                let poly = Poly { terms: merged };
                poly.room_behind(MAX_SIZE, 0).ok_or(DimError::TooLong)?;
                Dim::Poly(Arc::new(poly))
            }
        })
    }

    /// `self + other`.
    pub fn add(&self, other: &Dim) -> Result<Dim, DimError> {
        if let (Dim::Const(a), Dim::Const(b)) = (self, other) {
            return a.checked_add(*b).map(Dim::Const).ok_or(DimError::Overflow);
        }
        let mut terms = self.terms();
        terms.extend(other.terms());
        Dim::from_terms(terms)
    }

    /// `-self`.
    pub fn neg(&self) -> Result<Dim, DimError> {
        self.mul(&Dim::Const(-1))
    }

    /// `self - other`.
    pub fn sub(&self, other: &Dim) -> Result<Dim, DimError> {
        self.add(&other.neg()?)
    }

    /// `self * other`.
    pub fn mul(&self, other: &Dim) -> Result<Dim, DimError> {
        if let (Dim::Const(a), Dim::Const(b)) = (self, other) {
            return a.checked_mul(*b).map(Dim::Const).ok_or(DimError::Overflow);
        }
        let (lefts, rights) = (self.terms(), other.terms());
        if lefts.len().saturating_mul(rights.len()) > MAX_TERMS {
            return Err(DimError::TooLong);
        }
        let mut terms = Vec::with_capacity(lefts.len() * rights.len());
        for (left, a) in &lefts {
            for (right, b) in &rights {
                let mut atoms = left.clone();
                atoms.extend(right.iter().cloned());
                atoms.sort();
                terms.push((atoms, a.checked_mul(*b).ok_or(DimError::Overflow)?));
            }
        }
        Dim::from_terms(terms)
    }

    /// `self / other`, truncating. Exact where every coefficient divides, or where `other` is a product that is a factor of
    /// every term; otherwise an opaque atom.
    pub fn div(&self, other: &Dim) -> Result<Dim, DimError> {
        match (self, other) {
            (_, Dim::Const(0)) => return Err(DimError::DivisionByZero),
            (Dim::Const(a), Dim::Const(b)) => {
                return a.checked_div(*b).map(Dim::Const).ok_or(DimError::Overflow);
            }
            (_, Dim::Const(1)) => return Ok(self.clone()),
            // `i64::MIN / -1` does not fit.
            (_, Dim::Const(-1)) => return self.neg(),
            (Dim::Poly(p), Dim::Const(d)) if p.terms.iter().all(|t| t.1 % d == 0) => {
                return Dim::from_terms(p.terms.iter().map(|(m, c)| (m.clone(), c / d)).collect());
            }
            _ => {}
        }
        if let Some(quotient) = self.without_factor(other) {
            return Dim::from_terms(quotient);
        }
        Dim::atom(Atom::Div(self.clone(), other.clone()))
    }

    /// The terms of `self / other`, where `other` is a product of symbols, `2 * B`, that is a factor of every term.
    fn without_factor(&self, other: &Dim) -> Option<Vec<(Vec<Atom>, i64)>> {
        let (Dim::Poly(own), Dim::Poly(factor)) = (self, other) else { return None };
        let [(factors, divisor)] = factor.terms.as_slice() else { return None };
        let quotient = |(atoms, coefficient): &(Vec<Atom>, i64)| {
            let mut rest = atoms.clone();
            for atom in factors {
                rest.remove(rest.iter().position(|own| own == atom)?);
            }
            (coefficient.checked_rem(*divisor)? == 0).then(|| (rest, coefficient / divisor))
        };
        own.terms.iter().map(quotient).collect()
    }

    /// `self % other`, with the sign of `self`.
    pub fn rem(&self, other: &Dim) -> Result<Dim, DimError> {
        match (self, other) {
            (_, Dim::Const(0)) => Err(DimError::DivisionByZero),
            (Dim::Const(a), Dim::Const(b)) => Ok(Dim::Const(a.wrapping_rem(*b))),
            (_, Dim::Const(1 | -1)) => Ok(Dim::Const(0)),
            (Dim::Poly(p), Dim::Const(d)) if p.terms.iter().all(|t| t.1 % d == 0) => Ok(Dim::Const(0)),
            _ => Dim::atom(Atom::Rem(self.clone(), other.clone())),
        }
    }

    /// The smaller of the two.
    pub fn min_with(&self, other: &Dim) -> Result<Dim, DimError> {
        match (self, other) {
            (Dim::Const(a), Dim::Const(b)) => Ok(Dim::Const(*a.min(b))),
            _ if self == other => Ok(self.clone()),
            _ => {
                let (a, b) = ordered(self, other);
                Dim::atom(Atom::Min(a, b))
            }
        }
    }

    /// The larger of the two.
    pub fn max_with(&self, other: &Dim) -> Result<Dim, DimError> {
        match (self, other) {
            (Dim::Const(a), Dim::Const(b)) => Ok(Dim::Const(*a.max(b))),
            _ if self == other => Ok(self.clone()),
            _ => {
                let (a, b) = ordered(self, other);
                Dim::atom(Atom::Max(a, b))
            }
        }
    }

    /// `self << count`, without bits that are lost.
    pub fn shl(&self, count: &Dim) -> Result<Dim, DimError> {
        self.mul(&count.power()?)
    }

    /// The power of two with this exponent. What is known of the exponent is a factor: `1 << i + 1` is `2 * (1 << i)`.
    fn power(&self) -> Result<Dim, DimError> {
        let known = self.terms().iter().find(|term| term.0.is_empty()).map_or(0, |term| term.1);
        let factor = |exponent: i64| match u32::try_from(exponent).ok().and_then(|bits| 1i64.checked_shl(bits)) {
            Some(power) if power > 0 => Ok(Dim::Const(power)),
            Some(_) | None => Err(DimError::Overflow),
        };
        match self {
            Dim::Const(exponent) => factor(*exponent),
            Dim::Poly(_) if known > 0 => Dim::atom(Atom::Power(self.sub(&Dim::Const(known))?))?.mul(&factor(known)?),
            Dim::Poly(_) => Dim::atom(Atom::Power(self.clone())),
        }
    }

    /// Whether two numbers of elements are equal for some values of the constexprs, as far as their forms tell. Sums of
    /// products of constexprs can be compared, and so can multiples of one number; what a quotient is, binding finds out.
    pub fn may_equal(&self, other: &Dim) -> bool {
        let is_sum =
            |dim: &Dim| dim.terms().iter().all(|(atoms, _)| atoms.iter().all(|atom| matches!(atom, Atom::Const(_))));
        self == other || !(is_sum(self) && is_sum(other) || self.is_multiple(other))
    }

    /// Whether one is the other one times a number.
    fn is_multiple(&self, other: &Dim) -> bool {
        let (own, other) = (self.terms(), other.terms());
        let Some((a, b)) = own.first().zip(other.first()).map(|(a, b)| (i128::from(a.1), i128::from(b.1))) else {
            return own.len() == other.len();
        };
        // Products of two numbers of 64 bits.
        let mut pairs = own.iter().zip(&other);
        own.len() == other.len()
            && pairs.all(|((atoms, c), (others, d))| atoms == others && i128::from(*c) * b == i128::from(*d) * a)
    }

    /// The product of several dimensions: the number of elements of a shape.
    pub fn product(dims: &[Dim]) -> Result<Dim, DimError> {
        dims.iter().try_fold(Dim::Const(1), |acc, d| acc.mul(d))
    }

    /// Replaces every constexpr by what `value` gives for it, and brings the result to normal form.
    pub fn substitute(&self, value: &dyn Fn(ConstId) -> Dim) -> Result<Dim, DimError> {
        let Dim::Poly(poly) = self else { return Ok(self.clone()) };
        let mut sum = Dim::Const(0);
        for (atoms, coefficient) in &poly.terms {
            let mut product = Dim::Const(*coefficient);
            for atom in atoms {
                let factor = match atom {
                    Atom::Const(id) => value(*id),
                    Atom::Div(a, b) => a.substitute(value)?.div(&b.substitute(value)?)?,
                    Atom::Rem(a, b) => a.substitute(value)?.rem(&b.substitute(value)?)?,
                    Atom::Min(a, b) => a.substitute(value)?.min_with(&b.substitute(value)?)?,
                    Atom::Max(a, b) => a.substitute(value)?.max_with(&b.substitute(value)?)?,
                    Atom::Power(exponent) => exponent.substitute(value)?.power()?,
                };
                product = product.mul(&factor)?;
            }
            sum = sum.add(&product)?;
        }
        Ok(sum)
    }

    /// Writes the dimension with the constexprs' names.
    pub fn display<'a>(&'a self, name: &'a dyn Fn(ConstId) -> String) -> impl fmt::Display + 'a {
        DimDisplay { dim: self, name }
    }
}

impl Poly {
    /// As of a dimension: a number for each term, and its atoms.
    fn room_behind(&self, room: usize, depth: usize) -> Option<usize> {
        self.terms.iter().try_fold(room, |room, (atoms, _)| {
            atoms.iter().try_fold(room.checked_sub(1)?, |room, atom| atom.room_behind(room, depth))
        })
    }
}

impl Atom {
    fn room_behind(&self, room: usize, depth: usize) -> Option<usize> {
        let room = room.checked_sub(1)?;
        let inner = |dim: &Dim, room| if depth < MAX_DEPTH { dim.room_behind(room, depth + 1) } else { None };
        match self {
            Atom::Const(_) => Some(room),
            Atom::Div(a, b) | Atom::Rem(a, b) | Atom::Min(a, b) | Atom::Max(a, b) => inner(b, inner(a, room)?),
            Atom::Power(exponent) => inner(exponent, room),
        }
    }
}

fn ordered(a: &Dim, b: &Dim) -> (Dim, Dim) {
    match a.cmp(b) {
        Ordering::Greater => (b.clone(), a.clone()),
        Ordering::Less | Ordering::Equal => (a.clone(), b.clone()),
    }
}

/// Whether the dimension is printed as one word or in parentheses of its own.
fn is_simple(dim: &Dim) -> bool {
    match dim {
        Dim::Const(c) => *c >= 0,
        Dim::Poly(poly) => matches!(poly.terms.as_slice(), [(atoms, 1)] if atoms.len() == 1),
    }
}

struct DimDisplay<'a> {
    dim: &'a Dim,
    name: &'a dyn Fn(ConstId) -> String,
}

impl<'a> DimDisplay<'a> {
    fn atom(&self, atom: &'a Atom, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |dim: &'a Dim| DimDisplay { dim, name: self.name };
        let operand = |dim: &'a Dim| if is_simple(dim) { part(dim).to_string() } else { format!("({})", part(dim)) };
        match atom {
            Atom::Const(id) => f.write_str(&(self.name)(*id)),
            Atom::Div(a, b) => write!(f, "({} / {})", operand(a), operand(b)),
            Atom::Rem(a, b) => write!(f, "({} % {})", operand(a), operand(b)),
            Atom::Min(a, b) => write!(f, "min({}, {})", part(a), part(b)),
            Atom::Max(a, b) => write!(f, "max({}, {})", part(a), part(b)),
            Atom::Power(exponent) => write!(f, "(1 << {})", part(exponent)),
        }
    }
}

impl fmt::Display for DimDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let poly = match self.dim {
            Dim::Const(c) => return write!(f, "{c}"),
            Dim::Poly(p) => p,
        };
        // The constant term sorts first but reads better last.
        let (constant, rest): (Vec<_>, Vec<_>) = poly.terms.iter().partition(|t| t.0.is_empty());
        for (i, (atoms, coefficient)) in rest.into_iter().chain(constant).enumerate() {
            let negative = *coefficient < 0;
            match (i, negative) {
                (0, false) => {}
                (0, true) => f.write_str("-")?,
                (_, false) => f.write_str(" + ")?,
                (_, true) => f.write_str(" - ")?,
            }
            let magnitude = coefficient.unsigned_abs();
            if atoms.is_empty() {
                write!(f, "{magnitude}")?;
                continue;
            }
            if magnitude != 1 {
                write!(f, "{magnitude} * ")?;
            }
            for (j, atom) in atoms.iter().enumerate() {
                if j > 0 {
                    f.write_str(" * ")?;
                }
                self.atom(atom, f)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(i: u32) -> Dim {
        Dim::param(ConstId::new(i))
    }

    fn show(d: &Dim) -> String {
        d.display(&|c| ["M", "N", "K"][c.index()].to_string()).to_string()
    }

    #[test]
    fn normal_form_is_commutative_and_collects() {
        let two = Dim::Const(2);
        assert_eq!(p(0).mul(&p(1)), p(1).mul(&p(0)));
        assert_eq!(p(0).add(&p(0)), p(0).mul(&two));
        assert_eq!(p(0).sub(&p(0)), Ok(Dim::Const(0)));
        assert_eq!(p(0).mul(&two).unwrap().div(&two), Ok(p(0)));
        assert_ne!(p(0).div(&two), Ok(p(0)));
        assert_eq!(show(&p(0).mul(&two).unwrap().add(&Dim::Const(-3)).unwrap()), "2 * M - 3");
        assert_eq!(show(&p(0).div(&two).unwrap()), "(M / 2)");
    }

    #[test]
    fn powers_of_two_take_what_is_known_out() {
        let one = Dim::Const(1);
        let next = one.shl(&p(0).add(&one).unwrap()).unwrap();
        assert_eq!(next, one.shl(&p(0)).unwrap().mul(&Dim::Const(2)).unwrap());
        assert_eq!(show(&next), "2 * (1 << M)");
        let below = one.shl(&p(0).sub(&one).unwrap()).unwrap();
        assert_eq!(show(&below), "(1 << M - 1)");
        assert_eq!(below.substitute(&|_| Dim::Const(4)), Ok(Dim::Const(8)));
        assert_eq!(below.substitute(&|_| Dim::Const(0)), Err(DimError::Overflow));
        assert_eq!(one.shl(&Dim::Const(62)), Ok(Dim::Const(1 << 62)));
        assert_eq!([63, 64, -1].map(|count| one.shl(&Dim::Const(count))), [const { Err(DimError::Overflow) }; 3]);
    }

    #[test]
    fn products_are_divided_by_their_factors() {
        let two_b = p(1).mul(&Dim::Const(2)).unwrap();
        let quotient = p(0).div(&two_b).unwrap();
        let whole = quotient.mul(&two_b).unwrap();
        assert_eq!(whole.div(&two_b), Ok(quotient.clone()));
        assert_eq!(whole.div(&p(1)), quotient.mul(&Dim::Const(2)));
        assert_eq!(whole.div(&quotient), Ok(two_b.clone()));
        let sum = whole.add(&p(1).mul(&p(2)).unwrap()).unwrap();
        assert_eq!(sum.div(&p(1)), quotient.mul(&Dim::Const(2)).unwrap().add(&p(2)));
        // What is no factor of each term, with its coefficient, divides nothing.
        for (dividend, divisor) in [(sum.add(&Dim::Const(1)).unwrap(), p(1)), (p(1), two_b.clone()), (sum, two_b)] {
            let quotient = dividend.div(&divisor).unwrap();
            assert!(matches!(quotient.terms().as_slice(), [(atoms, 1)] if matches!(atoms.as_slice(), [Atom::Div(..)])));
        }
    }

    #[test]
    fn forms_tell_what_may_be_equal() {
        let (two, stride) = (Dim::Const(2), Dim::Const(1).shl(&p(2)).unwrap());
        let pairs = p(0).div(&two.mul(&stride).unwrap()).unwrap();
        let whole = pairs.mul(&two).unwrap().mul(&stride).unwrap();
        assert!(whole.may_equal(&p(0)) && p(0).may_equal(&whole) && whole.may_equal(&whole));
        assert!(!whole.may_equal(&whole.mul(&two).unwrap()), "one is twice the other");
        assert!(!p(0).may_equal(&p(1)) && !p(0).may_equal(&Dim::Const(8)));
        assert!(stride.may_equal(&Dim::Const(8)) && !Dim::Const(4).may_equal(&Dim::Const(8)));
    }

    #[test]
    fn what_is_too_long_to_write_out_is_refused() {
        // Each step doubles what there is to write.
        let doubled = |step: fn(&Dim, &Dim) -> Result<Dim, DimError>| {
            (0..60).try_fold(p(0), |d, _| step(&d, &d.add(&Dim::Const(1))?))
        };
        assert_eq!(doubled(Dim::div), Err(DimError::TooLong));
        assert_eq!(doubled(Dim::rem), Err(DimError::TooLong));
        let extremes = (0..60).try_fold(p(0), |d, _| d.min_with(&p(1))?.mul(&d.max_with(&p(2))?));
        assert_eq!(extremes, Err(DimError::TooLong));
        // Parts that lie in each other.
        let nested = |times| (0..times).try_fold(p(0), |d, _| d.add(&Dim::Const(1))?.div(&p(1)));
        assert!(nested(149).is_ok());
        assert_eq!(nested(150), Err(DimError::TooLong));
    }

    #[test]
    fn substitution_evaluates() {
        let d = p(0).mul(&p(1)).unwrap().add(&p(0).div(&Dim::Const(4)).unwrap()).unwrap();
        let value = d.substitute(&|c| Dim::Const([8, 3, 0][c.index()])).unwrap();
        assert_eq!(value, Dim::Const(26));
        let zero = p(0).div(&p(1)).unwrap().substitute(&|_| Dim::Const(0));
        assert_eq!(zero, Err(DimError::DivisionByZero));
        assert_eq!(Dim::Const(i64::MAX).add(&Dim::Const(1)), Err(DimError::Overflow));
    }
}
