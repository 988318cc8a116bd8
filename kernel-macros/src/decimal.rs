//! Decimal numbers as floats: rounded to `f64`, and so that they can be rounded once more.
//!
//! A literal has one value in each dtype, and a dtype parameter is known only when the kernel is bound. Rounding to the
//! nearest `f64` first may change the result: what lies just above the middle of two `f32` becomes the middle. Rounding
//! to odd keeps on which side of it the number lies (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums:
//! proved algorithms using rounding to odd").

use kernel_core::ir::{DType, Literal};
use kernel_core::num;

/// The dtypes into which `f64` is rounded further.
const NARROW: [DType; 5] = [DType::F8E4M3, DType::F8E5M2, DType::F16, DType::BF16, DType::F32];
/// As many digits as any `f64` has behind its first.
const DIGITS: usize = 766;

/// A decimal number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decimal {
    /// The nearest `f64`.
    pub nearest: f64,
    /// The number itself, if it is an `f64`; else the odd one of those next to it.
    pub odd: f64,
}

impl Decimal {
    /// Reads a literal, without `_` and suffix.
    pub fn parse(digits: &str) -> Option<Decimal> {
        let nearest: f64 = digits.parse().ok()?;
        if nearest.is_infinite() {
            return Some(Decimal { nearest, odd: nearest });
        }
        let (own, of_nearest) = (scientific(digits)?, scientific(&format!("{nearest:.DIGITS$e}"))?);
        let is_odd = nearest.to_bits() % 2 == 1;
        let odd = match own.cmp(&of_nearest) {
            std::cmp::Ordering::Greater if !is_odd => nearest.next_up(),
            std::cmp::Ordering::Less if !is_odd => nearest.next_down(),
            _ => nearest,
        };
        Some(Decimal { nearest, odd })
    }

    /// The `f64` that is rounded to that dtype: the nearest, if that gives the same.
    pub fn of(self, dtype: DType) -> f64 {
        match dtype {
            DType::F32 => f64::from(self.odd as f32),
            DType::F64 => self.nearest,
            _ if self.rounds_twice(dtype) => self.odd,
            _ => self.nearest,
        }
    }

    /// Whether the nearest `f64` is rounded to another number of some dtype than the decimal number.
    pub fn may_round_twice(self) -> bool {
        NARROW.into_iter().any(|dtype| self.rounds_twice(dtype))
    }

    fn rounds_twice(self, dtype: DType) -> bool {
        let [nearest, odd] = [self.nearest, self.odd].map(|value| num::normalise(Literal::float(value), dtype));
        nearest != odd
    }
}

impl std::ops::Neg for Decimal {
    type Output = Decimal;

    fn neg(self) -> Decimal {
        Decimal { nearest: -self.nearest, odd: -self.odd }
    }
}

/// The place of the first digit that is not 0, and the digits from there to the last such one; numbers compare as these do.
/// Nothing for what is no number.
fn scientific(number: &str) -> Option<(i64, Vec<u8>)> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent: i64 = exponent.parse().ok()?;
    let all = || whole.bytes().chain(fraction.bytes());
    if !all().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let Some(zeros) = all().position(|digit| digit != b'0') else { return Some((i64::MIN, Vec::new())) };
    let mut digits: Vec<u8> = all().skip(zeros).collect();
    digits.truncate(digits.iter().rposition(|digit| *digit != b'0').map_or(0, |last| last + 1));
    Some((exponent.saturating_add(whole.len() as i64 - zeros as i64), digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is rounded to odd is rounded on as the number itself is.
    #[test]
    fn decimals_are_rounded_once() {
        for (text, single) in [
            ("1.00000005960464477539062500001", f32::from_bits(0x3F80_0001)),
            ("1.00000005960464477539062499999", 1.0),
            ("1.000000059604644775390625", 1.0),
            ("0.1", 0.1),
            ("1.0e-50", 0.0),
            ("7.006492321624085354618e-46", 0.0),
            (
                "7.00649232162408535461864791644958065640130970938257885878534141944895541342930300743319094181060791015626e-46",
                f32::from_bits(1),
            ),
            ("16777217.0000000000000001", 16_777_218.0),
            ("33554434", 33_554_432.0),
        ] {
            let decimal = Decimal::parse(text).expect("a number");
            assert_eq!(decimal.nearest, text.parse::<f64>().expect("a number"), "{text}");
            assert_eq!(decimal.odd as f32, text.parse::<f32>().expect("a number"), "{text}");
            assert_eq!(decimal.odd as f32, single, "{text}");
        }
        let half = Decimal::parse("1.00048828125000000000000000001").expect("a number");
        assert_eq!(
            num::normalise(Literal::float(half.of(DType::F16)), DType::F16),
            Some(Literal::float(1.000_976_562_5))
        );
        assert_eq!(half.of(DType::F64), 1.000_488_281_25);
        assert!(half.may_round_twice() && !Decimal::parse("0.1").expect("a number").may_round_twice());
    }

    /// Against the parser of the standard library, near the middle of numbers of `f32`.
    #[test]
    fn middles_of_two_numbers_go_where_they_belong() {
        for at in 0..2000u32 {
            let low = f32::from_bits(0x3F00_0000 + at * 7919);
            let middle = (f64::from(low) + f64::from(low.next_up())) / 2.0;
            for text in [format!("{middle:.60}"), format!("{middle:.60}1"), format!("{:.60}", middle.next_down())] {
                let decimal = Decimal::parse(&text).expect("a number");
                assert_eq!(decimal.odd as f32, text.parse::<f32>().expect("a number"), "{text}");
            }
        }
    }
}
