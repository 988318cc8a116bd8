//! What is known of a generated value, so that every way to run a kernel must give the same bits.
//!
//! A float is *exact* where it is a multiple of a power of two and so small that no operation on it rounds. Sums of exact
//! floats do not depend on their order, and `a * b + c` not on whether it is fused. Where a value is not exact, its bits
//! still follow from IEEE 754 as long as it is only put through operations that round once; sums, products of matrices
//! and the hardware's approximations are left out for it. So no tolerance is needed.
//!
//! Zeros compare equal whatever their sign. Where it is open, nothing is computed from it that tells the two apart.

use kernel_core::ir::{BinaryOp, DType, UnaryOp};

/// The values that one element may have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fact {
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// Each is a multiple of 2 to this power; `None` if nothing of the kind is known. 0 for integers and `bool`.
    pub step: Option<i32>,
    /// Whether it may be infinite or NaN, whatever the bounds say.
    pub special: bool,
    /// Whether a zero may have either sign: that of a matrix product's sum and of `minimum(-0.0, 0.0)` is open.
    pub open_zero: bool,
}

/// Bits of precision, exponent of the smallest number, and the largest number of a float dtype.
fn format(dtype: DType) -> (i32, i32, f64) {
    match dtype {
        DType::F8E4M3 => (4, -9, 448.0),
        DType::F8E5M2 => (3, -16, 57344.0),
        DType::F16 => (11, -24, 65504.0),
        DType::BF16 => (8, -133, f64::from(half::bf16::MAX)),
        DType::F32 => (24, -149, f64::from(f32::MAX)),
        DType::F64 => (53, -1074, f64::MAX),
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => (0, 0, 0.0),
    }
}

/// Bits of precision of a float dtype.
pub fn precision(dtype: DType) -> i32 {
    format(dtype).0
}

impl Fact {
    /// Multiples of 2 to the power of `step` between two bounds.
    pub fn exact(low: f64, high: f64, step: i32) -> Fact {
        Fact { low, high, step: Some(step), special: false, open_zero: false }
    }

    /// Anything of a dtype.
    pub fn any(dtype: DType) -> Fact {
        if dtype.is_float() {
            let largest = format(dtype).2;
            return Fact { low: -largest, high: largest, step: None, special: true, open_zero: true };
        }
        Fact::exact(dtype.int_min() as f64, dtype.int_max() as f64, 0)
    }

    /// The same values, with zeros of either sign.
    pub fn with_open_zero(self) -> Fact {
        Fact { open_zero: true, ..self }
    }

    /// The largest absolute value.
    pub fn magnitude(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// Whether all values are numbers that need at most `bits` bits of precision.
    pub fn needs_at_most(self, bits: i32) -> bool {
        self.step.is_some_and(|step| !self.special && self.magnitude() <= 2f64.powi(step + bits))
    }

    /// The values that either has.
    pub fn hull(self, other: Fact) -> Fact {
        Fact {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            step: self.step.zip(other.step).map(|(a, b)| a.min(b)),
            special: self.special || other.special,
            open_zero: self.open_zero || other.open_zero,
        }
    }

    /// Whether a zero among the values may have either sign, so that what tells the two apart has no fixed bits.
    pub fn has_open_zero(self) -> bool {
        self.open_zero && self.low <= 0.0 && self.high >= 0.0
    }

    /// Whether every value of this is one of `other`.
    pub fn within(self, other: Fact) -> bool {
        let finer = match (self.step, other.step) {
            (_, None) => true,
            (Some(own), Some(other)) => own >= other,
            (None, Some(_)) => false,
        };
        let signed = !self.has_open_zero() || other.open_zero;
        self.low >= other.low && self.high <= other.high && finer && signed && (!self.special || other.special)
    }

    /// What remains of computed values in a dtype: integers wrap, floats are rounded once.
    pub fn in_dtype(self, dtype: DType) -> Fact {
        if !dtype.is_float() {
            let whole = Fact::any(dtype);
            let fits = self.low >= whole.low && self.high <= whole.high && !self.special;
            return if fits { Fact { step: Some(0), open_zero: false, ..self } } else { whole };
        }
        let (bits, smallest, largest) = format(dtype);
        if self.magnitude().is_nan() || self.magnitude() > largest {
            return Fact::any(dtype);
        }
        let exact = Fact { special: false, ..self }.needs_at_most(bits) && self.step.is_some_and(|s| s >= smallest);
        if exact {
            return self;
        }
        let slack = (1.0 + 2f64.powi(1 - bits)) * (1.0 + f64::EPSILON);
        let wider = |bound: f64| (bound * slack).clamp(-largest, largest);
        let tiny = 2f64.powi(smallest.max(-1000));
        Fact {
            low: wider(self.low).min(self.low - tiny),
            high: wider(self.high).max(self.high + tiny),
            step: None,
            ..self
        }
    }

    /// The sum of up to `count` values, exact or refused.
    pub fn sum_of(self, count: f64, dtype: DType) -> Option<Fact> {
        let sum = Fact { low: self.low.min(self.low * count), high: self.high.max(self.high * count), ..self };
        sum.summed(dtype)
    }

    /// The fact of a sum whose order is open: `None` if it could round on the way.
    pub fn summed(self, dtype: DType) -> Option<Fact> {
        if !dtype.is_float() {
            return Some(self.in_dtype(dtype));
        }
        // Two bits are kept free, for hardware that aligns summands before it adds them.
        let bits = if precision(dtype) >= 24 { precision(dtype) - 2 } else { precision(dtype) };
        self.needs_at_most(bits).then(|| self.in_dtype(dtype)).filter(|fact| fact.step.is_some())
    }
}

/// The four products, or whatever, of two intervals' ends.
fn corners(a: Fact, b: Fact, f: impl Fn(f64, f64) -> f64) -> (f64, f64) {
    let all = [f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)];
    let low = all.into_iter().fold(f64::INFINITY, f64::min);
    (low, all.into_iter().fold(f64::NEG_INFINITY, f64::max))
}

/// The fact of a unary operation; `None` where its bits are not fixed.
pub fn unary(op: UnaryOp, a: Fact, dtype: DType) -> Option<Fact> {
    let rounded = |f: fn(f64) -> f64| Fact { low: f(a.low), high: f(a.high), step: a.step.map(|s| s.max(0)), ..a };
    let fact = match op {
        UnaryOp::Neg => Fact { low: -a.high, high: -a.low, ..a },
        UnaryOp::Abs => Fact { low: 0.0, high: a.magnitude(), open_zero: false, ..a },
        UnaryOp::Not if dtype == DType::Bool => Fact::exact(0.0, 1.0, 0),
        UnaryOp::Not => Fact::any(dtype),
        UnaryOp::Floor => rounded(f64::floor),
        UnaryOp::Ceil => rounded(f64::ceil),
        UnaryOp::Trunc => rounded(f64::trunc),
        UnaryOp::Round => rounded(f64::round),
        UnaryOp::RoundTiesEven => rounded(f64::round_ties_even),
        UnaryOp::CountOnes | UnaryOp::LeadingZeros | UnaryOp::TrailingZeros => {
            Fact::exact(0.0, f64::from(dtype.bits()), 0)
        }
        UnaryOp::ReverseBits => Fact::any(dtype),
        // Correctly rounded, and so inexact for most.
        UnaryOp::SqrtRn if a.low >= 0.0 => Fact { low: 0.0, high: a.high.max(1.0), step: None, ..a },
        UnaryOp::SqrtRn => return Some(Fact::any(dtype)),
        UnaryOp::Math(_) => return None,
    };
    Some(fact.in_dtype(dtype))
}

/// The fact of a binary operation; `None` where its bits are not fixed.
pub fn binary(op: BinaryOp, a: Fact, b: Fact, dtype: DType) -> Option<Fact> {
    let special = a.special || b.special;
    let open_zero = a.open_zero || b.open_zero;
    let fine = a.step.zip(b.step).map(|(a, b)| a.min(b));
    let of = |(low, high): (f64, f64), step| Fact { low, high, step, special, open_zero };
    let fact = match op {
        BinaryOp::Add => of((a.low + b.low, a.high + b.high), fine),
        BinaryOp::Sub => of((a.low - b.high, a.high - b.low), fine),
        BinaryOp::Mul => of(corners(a, b, |a, b| a * b), a.step.zip(b.step).map(|(a, b)| a + b)),
        BinaryOp::Div if dtype.is_float() => return None,
        // Infinity has the sign of the zero that something is divided by.
        BinaryOp::Math(_) => return None,
        BinaryOp::DivRn if b.has_open_zero() => return None,
        BinaryOp::DivRn => return Some(Fact::any(dtype)),
        BinaryOp::Rem if dtype.is_float() => {
            // Few steps of a long division, and no division by zero.
            let plain = !special && (b.low > 0.0 || b.high < 0.0) && fine.is_some();
            if !plain {
                return None;
            }
            of((-a.magnitude(), a.magnitude()), fine)
        }
        BinaryOp::Div | BinaryOp::Rem => of((-a.magnitude(), a.magnitude()), Some(0)),
        BinaryOp::Min | BinaryOp::MinNan | BinaryOp::Max | BinaryOp::MaxNan => {
            let whole = a.hull(b);
            let bounds = match op {
                _ if special => (whole.low, whole.high),
                BinaryOp::Min | BinaryOp::MinNan => (a.low.min(b.low), a.high.min(b.high)),
                _ => (a.low.max(b.low), a.high.max(b.high)),
            };
            Fact { open_zero: dtype.is_float(), ..of(bounds, if special { whole.step } else { fine }) }
        }
        BinaryOp::And if a.low >= 0.0 && b.low >= 0.0 => of((0.0, a.high.min(b.high)), Some(0)),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor if dtype == DType::Bool => Fact::exact(0.0, 1.0, 0),
        BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Umulhi
        | BinaryOp::Mulhi
        | BinaryOp::RotateLeft
        | BinaryOp::RotateRight => Fact::any(dtype),
        BinaryOp::SaturatingAdd | BinaryOp::SaturatingSub | BinaryOp::SaturatingMul => Fact::any(dtype),
        // The sign of a NaN or of such a zero is anyone's choice.
        BinaryOp::NextAfter if special || a.has_open_zero() || b.has_open_zero() => return None,
        BinaryOp::NextAfter => Fact::any(dtype),
        BinaryOp::CopySign if b.special || b.has_open_zero() => return None,
        BinaryOp::CopySign => Fact { open_zero: false, ..of((-a.magnitude(), a.magnitude()), a.step) },
        BinaryOp::Shr => of((a.low.min(0.0), a.high.max(0.0)), Some(0)),
    };
    Some(fact.in_dtype(dtype))
}

/// The fact of a conversion.
pub fn cast(a: Fact, from: DType, to: DType) -> Fact {
    if to == DType::Bool {
        return Fact::exact(0.0, 1.0, 0);
    }
    if to.is_float() || !from.is_float() {
        return a.in_dtype(to);
    }
    let whole = Fact::any(to);
    if a.special {
        return whole;
    }
    Fact::exact(a.low.trunc().clamp(whole.low, whole.high), a.high.trunc().clamp(whole.low, whole.high), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hardware gives a matrix product's sum that is zero a sign of its own.
    #[test]
    fn nothing_is_divided_by_a_zero_whose_sign_is_open() {
        let one = Fact::exact(1.0, 1.0, 0);
        let product = Fact::exact(-4.0, 4.0, 0).with_open_zero();
        let negated = unary(UnaryOp::Neg, product, DType::F32).unwrap();
        let sum = binary(BinaryOp::Add, negated, one, DType::F32).unwrap();
        for by in [product, negated, sum] {
            assert_eq!(binary(BinaryOp::DivRn, one, by, DType::F32), None);
        }
        let away = binary(BinaryOp::Add, product, Fact::exact(5.0, 5.0, 0), DType::F32).unwrap();
        let none = unary(UnaryOp::Abs, product, DType::F32).unwrap();
        for by in [away, none] {
            assert!(binary(BinaryOp::DivRn, one, by, DType::F32).is_some());
        }
    }
}
