//! The two 8-bit floats, as host types.
//!
//! Conversions round to nearest even and *saturate*: what is too large, infinities included, becomes the largest
//! finite number, as the GPU's conversions do. NaN stays NaN.
//!
//! ```
//! use kernel_core::num::{F8E4M3, F8E5M2};
//! assert_eq!(F8E4M3::from_f32(17.0).to_f32(), 16.0);
//! assert_eq!(F8E4M3::from_f32(1e6), F8E4M3::MAX);
//! assert_eq!(F8E5M2::from_f32(f32::INFINITY).to_f32(), 57344.0);
//! ```

use std::cmp::Ordering;
use std::fmt;

/// `x` to the nearest number with `fraction` bits of fraction and exponents from `min_exponent`, as the bits below the
/// sign; at most `largest`, also for infinities. `x` is not NaN.
fn narrow(x: f32, fraction: u32, min_exponent: i32, largest: u8) -> u8 {
    let magnitude = f32::from_bits(x.to_bits() & 0x7fff_ffff);
    let power = |exponent: i32| f32::from_bits(((exponent + 127) as u32) << 23);
    if magnitude < power(min_exponent) {
        // The distance of subnormal numbers is constant. Scaling is exact; the largest quotient is the first normal.
        return (magnitude * power(fraction as i32 - min_exponent)).round_ties_even() as u8;
    }
    let drop = 23 - fraction;
    let bits = magnitude.to_bits();
    let rounded = (bits + ((1 << (drop - 1)) - 1) + ((bits >> drop) & 1)) >> drop;
    let rebased = rounded - (((126 + min_exponent) as u32) << fraction);
    rebased.min(u32::from(largest)) as u8
}

/// The value of the bits below the sign of a finite number.
const fn widen(bits: u8, fraction: u32, min_exponent: i32) -> f32 {
    let (exponent, part) = ((bits >> fraction) as u32, (bits & ((1 << fraction) - 1)) as u32);
    if exponent == 0 {
        let quantum = f32::from_bits(((min_exponent - fraction as i32 + 127) as u32) << 23);
        return part as f32 * quantum;
    }
    f32::from_bits((exponent + (126 + min_exponent) as u32) << 23 | part << (23 - fraction))
}

const fn table(fraction: u32, min_exponent: i32, nan_from: u8, infinity: u8) -> [f32; 256] {
    let mut table = [0f32; 256];
    let mut bits = 0usize;
    while bits < 256 {
        let below = (bits & 0x7f) as u8;
        let magnitude = if below >= nan_from {
            f32::NAN
        } else if below == infinity {
            f32::INFINITY
        } else {
            widen(below, fraction, min_exponent)
        };
        table[bits] = f32::from_bits(magnitude.to_bits() | ((bits as u32) >> 7) << 31);
        bits += 1;
    }
    table
}

static E4M3: [f32; 256] = table(3, -6, 0x7f, 0xff);
static E5M2: [f32; 256] = table(2, -14, 0x7d, 0x7c);

macro_rules! float8 {
    (
        $(#[doc = $doc:literal])*
        $Ty:ident: fraction $fraction:literal, from $min_exponent:literal, largest $largest:literal, smallest $smallest:literal,
        epsilon $epsilon:literal, table $TABLE:ident
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $Ty(u8);

        impl $Ty {
            /// Zero.
            pub const ZERO: $Ty = $Ty(0);
            /// The largest finite number.
            pub const MAX: $Ty = $Ty($largest);
            /// The smallest finite number, `-MAX`.
            pub const MIN: $Ty = $Ty($largest | 0x80);
            /// The smallest positive normal number.
            pub const MIN_POSITIVE: $Ty = $Ty($smallest);
            /// The distance from 1 to the next number.
            pub const EPSILON: $Ty = $Ty($epsilon);
            /// Not a number.
            pub const NAN: $Ty = $Ty(0x7f);

            /// The number with these bits.
            pub const fn from_bits(bits: u8) -> $Ty {
                $Ty(bits)
            }

            /// The number's bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The number's byte.
            pub const fn to_le_bytes(self) -> [u8; 1] {
                [self.0]
            }

            /// The number with this byte.
            pub const fn from_le_bytes(bytes: [u8; 1]) -> $Ty {
                $Ty(bytes[0])
            }

            /// The nearest number, ties to even; the largest one where `x` is beyond it.
            pub fn from_f32(x: f32) -> $Ty {
                if x.is_nan() {
                    return $Ty::NAN;
                }
                $Ty(narrow(x, $fraction, $min_exponent, $largest) | ((x.to_bits() >> 24) as u8 & 0x80))
            }

            /// As [`Self::from_f32`], with one rounding.
            pub fn from_f64(x: f64) -> $Ty {
                $Ty::from_f32(super::to_f32_odd(x))
            }

            /// The number, exactly.
            pub fn to_f32(self) -> f32 {
                $TABLE[usize::from(self.0)]
            }

            /// The number, exactly.
            pub fn to_f64(self) -> f64 {
                f64::from(self.to_f32())
            }

            /// Whether this is not a number.
            pub fn is_nan(self) -> bool {
                self.to_f32().is_nan()
            }
        }

        impl PartialEq for $Ty {
            fn eq(&self, other: &$Ty) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $Ty {
            fn partial_cmp(&self, other: &$Ty) -> Option<Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Display for $Ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Debug for $Ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl From<$Ty> for f32 {
            fn from(x: $Ty) -> f32 {
                x.to_f32()
            }
        }

        impl From<$Ty> for f64 {
            fn from(x: $Ty) -> f64 {
                x.to_f64()
            }
        }
    };
}

float8! {
    /// The 8-bit float with 4 bits of exponent and 3 of fraction (`e4m3fn`): up to 448, no infinities, one NaN.
    F8E4M3: fraction 3, from -6, largest 0x7e, smallest 0x08, epsilon 0x20, table E4M3
}

float8! {
    /// The 8-bit float with 5 bits of exponent and 2 of fraction: up to 57344, with infinities, which no conversion gives.
    F8E5M2: fraction 2, from -14, largest 0x7b, smallest 0x04, epsilon 0x34, table E5M2
}

impl F8E5M2 {
    /// Infinity.
    pub const INFINITY: F8E5M2 = F8E5M2(0x7c);
    /// Minus infinity.
    pub const NEG_INFINITY: F8E5M2 = F8E5M2(0xfc);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nearest finite value by search, ties to the even encoding.
    fn nearest(x: f32, table: &[f32; 256]) -> u8 {
        let mut best = 0u8;
        for bits in 0..=0x7fu8 {
            let value = table[usize::from(bits)];
            if !value.is_finite() {
                continue;
            }
            let (d, e) = (
                (f64::from(value) - f64::from(x.abs())).abs(),
                (f64::from(table[usize::from(best)]) - f64::from(x.abs())).abs(),
            );
            if d < e || (d == e && bits & 1 == 0) {
                best = bits;
            }
        }
        best | if x.is_sign_negative() { 0x80 } else { 0 }
    }

    #[test]
    fn conversion_is_the_nearest_value() {
        // Every f32 with few bits around every boundary of both formats, and their neighbours.
        for high in (0u32..=0xffff).step_by(7) {
            for low in [0u32, 1, 0x8000, 0xffff] {
                let x = f32::from_bits(high << 16 | low);
                if x.is_nan() {
                    assert!(F8E4M3::from_f32(x).is_nan() && F8E5M2::from_f32(x).is_nan());
                    continue;
                }
                // Beyond the range all are alike, and distances stay exact.
                let finite = x.clamp(-1e6, 1e6);
                assert_eq!(F8E4M3::from_f32(x).to_bits(), nearest(finite, &E4M3), "e4m3 of {x:e}");
                assert_eq!(F8E5M2::from_f32(x).to_bits(), nearest(finite, &E5M2), "e5m2 of {x:e}");
            }
        }
    }

    #[test]
    fn every_value_comes_back() {
        for bits in 0..=255u8 {
            let (a, b) = (F8E4M3::from_bits(bits), F8E5M2::from_bits(bits));
            if !a.is_nan() {
                assert_eq!(F8E4M3::from_f32(a.to_f32()).to_bits(), bits);
                assert_eq!(F8E4M3::from_f64(a.to_f64()).to_bits(), bits);
            }
            if b.to_f32().is_finite() {
                assert_eq!(F8E5M2::from_f32(b.to_f32()).to_bits(), bits);
            }
        }
        assert_eq!(F8E4M3::MAX.to_f32(), 448.0);
        assert_eq!(F8E5M2::MAX.to_f32(), 57344.0);
        assert_eq!(F8E4M3::EPSILON.to_f32(), 0.125);
        assert_eq!(F8E5M2::EPSILON.to_f32(), 0.25);
        assert_eq!(F8E4M3::MIN_POSITIVE.to_f32(), f32::powi(2.0, -6));
        assert_eq!(F8E5M2::MIN_POSITIVE.to_f32(), f32::powi(2.0, -14));
        assert_eq!(F8E5M2::INFINITY.to_f32(), f32::INFINITY);
        // Just above a tie: f64 to f32 first would land on it.
        assert_eq!(F8E4M3::from_f64(1.0625 + 1e-12).to_f32(), 1.125);
    }
}
