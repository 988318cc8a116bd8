//! Bounds of errors.

use std::fmt;

/// Below -104 and above 88.8 the exponentials of f32 are 0 and ∞.
const LARGEST_EXPONENT: f64 = 104.0;

/// A bound of an error, in units in the last place of the exact result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ulps {
    always: f64,
    per_unit: f64,
    /// Below this argument the units are those of a term.
    terms_below: f64,
}

impl Ulps {
    /// The same bound for all arguments.
    pub const fn at_most(ulps: f64) -> Ulps {
        Ulps { always: ulps, per_unit: 0.0, terms_below: f64::NEG_INFINITY }
    }

    /// A bound that grows with the magnitude of the argument of an f32 exponential, as far as its results are numbers.
    pub const fn growing(ulps: f64, per_unit: f64) -> Ulps {
        Ulps { per_unit, ..Ulps::at_most(ulps) }
    }

    /// Below `argument` the result f(x) is a difference of which f(-x) is a term, and has zeros that are no numbers of
    /// the type: there the bound is in units of the largest of f(x), f(-x) and 1.
    pub const fn of_terms_below(self, argument: f64) -> Ulps {
        Ulps { terms_below: argument, ..self }
    }

    /// The bound at an argument.
    pub const fn at(self, x: f64) -> f64 {
        self.always + self.per_unit * x.abs().min(LARGEST_EXPONENT)
    }

    /// Whether the bound at an argument is in units of the largest term rather than of the result.
    pub const fn counts_terms(self, x: f64) -> bool {
        x < self.terms_below && x > f64::NEG_INFINITY
    }
}

/// `2 + 1.25·|x|`
impl fmt::Display for Ulps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.always)?;
        if self.per_unit > 0.0 {
            write!(f, " + {}·|x|", self.per_unit)?;
        }
        if self.terms_below > f64::NEG_INFINITY {
            let below = self.terms_below;
            write!(f, "; below {below} of the largest of f(x), f(-x) and 1")?;
        }
        Ok(())
    }
}
