//! Bounds of errors.

/// Below -104 and above 88.8 the exponentials of f32 are 0 and ∞.
const LARGEST_EXPONENT: f64 = 104.0;

/// A bound of an error, in units in the last place of the exact result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ulps {
    always: f64,
    per_unit: f64,
}

impl Ulps {
    /// The same bound for all arguments.
    pub const fn at_most(ulps: f64) -> Ulps {
        Ulps { always: ulps, per_unit: 0.0 }
    }

    /// A bound that grows with the magnitude of the argument of an f32 exponential, as far as its results are numbers.
    pub const fn growing(ulps: f64, per_unit: f64) -> Ulps {
        Ulps { always: ulps, per_unit }
    }

    /// The bound at an argument.
    pub const fn at(self, x: f64) -> f64 {
        self.always + self.per_unit * x.abs().min(LARGEST_EXPONENT)
    }
}
