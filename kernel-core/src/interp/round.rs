//! Correct rounding to f16 and bf16 from wider values, without rounding twice.
//!
//! Rounding to nearest twice is wrong where the first rounding lands on a tie of the second. Rounding *to odd*
//! first is right (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
//! rounding to odd", 2008): truncate, and set the last bit if anything was lost.

use half::{bf16, f16};

/// `x` rounded to odd: keeps the information that rounding to a narrower format needs.
pub(super) fn f64_to_f32_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    if back == x || x.is_nan() {
        return nearest;
    }
    // One step towards zero where `nearest` lies beyond `x`; infinity becomes the largest number.
    let truncated = nearest.to_bits() - u32::from(back.abs() > x.abs());
    f32::from_bits(truncated | 1)
}

/// An integer as an f64 rounded to odd; at most 2^64 in magnitude.
pub(super) fn int_to_f64_odd(x: i128) -> f64 {
    let magnitude = x.unsigned_abs();
    // 53 bits and more are kept exactly by dropping eleven low ones into a sticky bit.
    let kept =
        if magnitude >> 53 == 0 { magnitude } else { ((magnitude >> 11) | u128::from(magnitude & 0x7ff != 0)) << 11 };
    if x < 0 { -(kept as f64) } else { kept as f64 }
}

/// Rounds to f16 once.
pub(super) fn f64_to_f16(x: f64) -> f16 {
    f16::from_f32(f64_to_f32_odd(x))
}

/// Rounds to bf16 once.
pub(super) fn f64_to_bf16(x: f64) -> bf16 {
    bf16::from_f32(f64_to_f32_odd(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_once_where_rounding_twice_would_miss() {
        // 1 + 2^-11 + 2^-30 lies above the tie of f16; rounded to f32 first it is the tie and goes to even.
        let x = 1.0 + f64::powi(2.0, -11) + f64::powi(2.0, -30);
        assert_eq!(f64_to_f16(x).to_f64(), 1.0 + f64::powi(2.0, -10));
        assert_eq!(f16::from_f32(x as f32).to_f64(), 1.0);
        assert_eq!(f64_to_f16(-x).to_f64(), -1.0 - f64::powi(2.0, -10));
    }

    #[test]
    fn edges_of_the_range() {
        assert_eq!(f64_to_f16(65519.999), f16::MAX);
        assert_eq!(f64_to_f16(65520.0), f16::INFINITY);
        assert_eq!(f64_to_f16(1e300), f16::INFINITY);
        assert_eq!(f64_to_bf16(1e300), bf16::INFINITY);
        assert_eq!(f64_to_bf16(-f64::INFINITY), bf16::NEG_INFINITY);
        assert!(f64_to_f16(f64::NAN).is_nan());
        assert_eq!(f64_to_f16(-0.0).to_bits(), 0x8000);
        // Half of the smallest subnormal is a tie and goes to zero; a little more does not.
        assert_eq!(f64_to_f16(f64::powi(2.0, -25)).to_bits(), 0);
        assert_eq!(f64_to_f16(f64::powi(2.0, -25) * (1.0 + f64::EPSILON)).to_bits(), 1);
        assert_eq!(f64_to_bf16(f64::MIN_POSITIVE).to_bits(), 0);
    }

    #[test]
    fn integers_keep_their_low_bits() {
        // 2^60 + 2^52 + 1 is just above a tie of bf16; an f64 drops the 1.
        let x = (1i128 << 60) + (1 << 52) + 1;
        assert_eq!(f64_to_bf16(int_to_f64_odd(x)).to_f64(), ((1i128 << 60) + (1 << 53)) as f64);
        assert_eq!(f64_to_bf16(x as f64).to_f64(), (1i128 << 60) as f64);
        assert_eq!(int_to_f64_odd(-5), -5.0);
    }
}
