//! Numbers as the tile IR has them: what a constant is in its dtype, and what operations on constants give.
//!
//! Used where values are known while compiling: the verifier, binding and constant folding.
//! A float constant is held as the f64 of the same value, whatever its dtype; all conversions round to nearest even,
//! once, from the exact value (going from f64 to f16 through f32 would round twice).
//!
//! ```
//! use kernel_core::ir::{DType, Literal};
//! use kernel_core::num::normalise;
//! // 0.1 as f16 is 0.0999755859375.
//! assert_eq!(normalise(Literal::float(0.1), DType::F16), Some(Literal::float(0.0999755859375)));
//! assert_eq!(normalise(Literal::Int(256), DType::U8), None);
//! ```

mod eval;
mod float8;
pub mod order;
#[cfg(test)]
mod tests;

#[cfg(feature = "interp")]
pub(crate) use eval::next_after;
pub use eval::{binary, bitcast, cast, compare, fma, select, unary, wrap};
pub use float8::{F8E4M3, F8E5M2};

use crate::ir::{DType, LimitKind, Literal};

/// A binary floating-point format narrower than f64.
struct Format {
    /// Bits of the fraction, the hidden one not counted.
    fraction: u32,
    /// Exponent of the smallest normal number.
    min_exponent: i32,
    /// Exponent of the largest number.
    max_exponent: i32,
    /// Whether the largest exponent has infinities and NaNs only; if not, all but the last fraction are numbers.
    ieee: bool,
}

fn format(dtype: DType) -> Option<Format> {
    match dtype {
        DType::F8E4M3 => Some(Format { fraction: 3, min_exponent: -6, max_exponent: 8, ieee: false }),
        DType::F8E5M2 => Some(Format { fraction: 2, min_exponent: -14, max_exponent: 15, ieee: true }),
        DType::F16 => Some(Format { fraction: 10, min_exponent: -14, max_exponent: 15, ieee: true }),
        DType::BF16 => Some(Format { fraction: 7, min_exponent: -126, max_exponent: 127, ieee: true }),
        DType::F32 => Some(Format { fraction: 23, min_exponent: -126, max_exponent: 127, ieee: true }),
        DType::F64 => Some(Format { fraction: 52, min_exponent: -1022, max_exponent: 1023, ieee: true }),
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => None,
    }
}

/// 2 to the power of `exponent`, which must be in -1022..=1023.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The value of a float dtype nearest to `value`, ties to even; infinite where it is too large, but the largest
/// number of the 8-bit floats, whose conversions saturate.
/// NaNs keep their sign and the upper bits of their payload, but those of the 8-bit floats, which all become one. Values of
/// other dtypes stay as they are.
pub fn round(value: f64, dtype: DType) -> f64 {
    let rounded = round_or_overflow(value, dtype);
    match format(dtype) {
        Some(format) if dtype.is_fp8() && rounded.is_nan() => fp8_nan(&format),
        Some(format) if dtype.is_fp8() && rounded.is_infinite() => largest(&format).copysign(value),
        Some(_) | None => rounded,
    }
}

/// The NaN that conversions to an 8-bit float give: all bits but the sign.
fn fp8_nan(format: &Format) -> f64 {
    let payload = if format.ieee { u64::MAX << (52 - format.fraction) } else { 1 << 51 };
    f64::from_bits(0x7ff << 52 | payload & u64::MAX >> 12)
}

/// As [`round`], but infinite beyond the range of every dtype.
fn round_or_overflow(value: f64, dtype: DType) -> f64 {
    let Some(format) = format(dtype) else { return value };
    if value == 0.0 || value.is_infinite() || dtype == DType::F64 {
        return value;
    }
    if value.is_nan() && !format.ieee {
        return f64::from_bits(0x7ff8_0000_0000_0000 | (value.to_bits() & 1 << 63));
    }
    if value.is_nan() {
        let kept = u64::MAX << (52 - format.fraction);
        // A payload that would vanish must not leave an infinity behind.
        return f64::from_bits((value.to_bits() & kept) | (1 << 51));
    }
    let exponent = (value.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    // The distance of neighbouring values there, as an exponent. Below the normal numbers it is constant.
    let quantum = exponent.max(format.min_exponent) - format.fraction as i32;
    // Scaling by powers of two is exact: the quantum is at least 2^-149, at most 2^1013.
    let rounded = (value * power_of_two(-quantum)).round_ties_even() * power_of_two(quantum);
    if rounded.abs() > largest(&format) { f64::INFINITY.copysign(value) } else { rounded }
}

fn largest(format: &Format) -> f64 {
    // The last fraction of the largest exponent is NaN where that exponent holds numbers.
    let below_two = if format.ieee { format.fraction as i32 } else { format.fraction as i32 - 1 };
    (2.0 - power_of_two(-below_two)) * power_of_two(format.max_exponent)
}

/// `x` rounded to odd, which a narrower format can be rounded from as if from `x`.
fn to_f32_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    if back == x || x.is_nan() {
        return nearest;
    }
    // One step towards zero where `nearest` lies beyond `x`; infinity becomes the largest number.
    let truncated = nearest.to_bits() - u32::from(back.abs() > x.abs());
    f32::from_bits(truncated | 1)
}

/// The nearest value of a float dtype to an integer.
fn round_int(value: i128, dtype: DType) -> f64 {
    if dtype == DType::F64 {
        return value as f64;
    }
    let magnitude = value.unsigned_abs();
    let excess = (128 - magnitude.leading_zeros()).saturating_sub(53);
    // What does not fit f64 is cut off, and remembered in the lowest bit, far below what the dtype keeps.
    let sticky = u128::from(magnitude & ((1u128 << excess) - 1) != 0);
    let cut = (magnitude >> excess | sticky) as f64 * power_of_two(excess as i32);
    round(if value < 0 { -cut } else { cut }, dtype)
}

/// A constant as its dtype represents it: floats (and integers in a float dtype) rounded, all else unchanged.
/// `None` if the constant is of another kind than the dtype, or too large for it.
pub fn normalise(value: Literal, dtype: DType) -> Option<Literal> {
    match value {
        Literal::Bool(_) => (dtype == DType::Bool).then_some(value),
        Literal::Int(int) if dtype.is_int() => (dtype.int_min()..=dtype.int_max()).contains(&int).then_some(value),
        Literal::Int(int) if dtype.is_float() => {
            let float = round_int(int, dtype);
            // An 8-bit float saturates where a literal is to be refused.
            let fits = !dtype.is_fp8() || round_or_overflow(int as f64, dtype).is_finite();
            (fits && float.is_finite()).then(|| Literal::float(float))
        }
        Literal::Float(bits) if dtype.is_float() => {
            let exact = f64::from_bits(bits);
            let float = round_or_overflow(exact, dtype);
            if exact.is_infinite() && dtype == DType::F8E4M3 {
                return None;
            }
            (exact.is_infinite() || !float.is_infinite()).then(|| Literal::float(float))
        }
        Literal::Int(_) | Literal::Float(_) => None,
    }
}

/// The extreme or special value of a dtype; `None` if it has no such value.
pub fn limit(kind: LimitKind, dtype: DType) -> Option<Literal> {
    let format = match format(dtype) {
        Some(format) => format,
        None if !dtype.is_int() => return None,
        None => {
            return match kind {
                LimitKind::Min => Some(Literal::Int(dtype.int_min())),
                LimitKind::Max => Some(Literal::Int(dtype.int_max())),
                LimitKind::Infinity
                | LimitKind::NegInfinity
                | LimitKind::Nan
                | LimitKind::Epsilon
                | LimitKind::MinPositive => None,
            };
        }
    };
    Some(Literal::float(match kind {
        LimitKind::Min => -largest(&format),
        LimitKind::Max => largest(&format),
        // Without infinities, what an infinity converts to.
        LimitKind::Infinity => {
            if format.ieee {
                f64::INFINITY
            } else {
                largest(&format)
            }
        }
        LimitKind::NegInfinity => {
            if format.ieee {
                f64::NEG_INFINITY
            } else {
                -largest(&format)
            }
        }
        LimitKind::Nan => round(f64::from_bits(0x7ff8_0000_0000_0000), dtype),
        LimitKind::Epsilon => power_of_two(-(format.fraction as i32)),
        LimitKind::MinPositive => power_of_two(format.min_exponent),
    }))
}

/// The bits of a normalised constant, as they stand in memory; unused upper bits are 0.
/// `None` if the constant is not of the dtype's kind.
pub fn to_bits(value: Literal, dtype: DType) -> Option<u64> {
    let mask = u64::MAX >> (64 - dtype.bits());
    match value {
        Literal::Bool(b) => (dtype == DType::Bool).then_some(u64::from(b)),
        Literal::Int(i) => dtype.is_int().then_some(i as u64 & mask),
        Literal::Float(bits) => {
            let format = format(dtype)?;
            if dtype == DType::F64 {
                return Some(bits);
            }
            let float = round_or_overflow(f64::from_bits(bits), dtype);
            let sign = (float.to_bits() >> 63) << (dtype.bits() - 1);
            let exponent_ones = (1u64 << (dtype.bits() - 1 - format.fraction)) - 1;
            let fraction = float.to_bits() << 12 >> (64 - format.fraction);
            let magnitude = if float == 0.0 {
                0
            } else if !format.ieee && !float.is_finite() {
                // NaN has all bits; an infinity, which is none of its values, becomes the largest number.
                0x7f - u64::from(float.is_infinite())
            } else if !float.is_finite() {
                exponent_ones << format.fraction | fraction
            } else if float.abs() < power_of_two(format.min_exponent) {
                (float.abs() * power_of_two(format.fraction as i32 - format.min_exponent)) as u64
            } else {
                let exponent = (float.to_bits() >> 52 & 0x7ff) as i32 - 1023;
                ((exponent - format.min_exponent + 1) as u64) << format.fraction | fraction
            };
            Some(sign | magnitude)
        }
    }
}

/// The constant with those bits; upper bits that the dtype does not have are ignored.
pub fn from_bits(bits: u64, dtype: DType) -> Literal {
    let bits = bits & (u64::MAX >> (64 - dtype.bits()));
    let Some(format) = format(dtype) else {
        return if dtype == DType::Bool {
            Literal::Bool(bits != 0)
        } else {
            Literal::Int(wrap(i128::from(bits), dtype))
        };
    };
    if dtype == DType::F64 {
        return Literal::Float(bits);
    }
    let sign = bits >> (dtype.bits() - 1) << 63;
    let exponent_ones = (1u64 << (dtype.bits() - 1 - format.fraction)) - 1;
    let exponent = bits >> format.fraction & exponent_ones;
    let fraction = bits & ((1 << format.fraction) - 1);
    let magnitude = if !format.ieee && exponent == exponent_ones && fraction == (1 << format.fraction) - 1 {
        0x7ff8_0000_0000_0000
    } else if format.ieee && exponent == exponent_ones {
        0x7ff << 52 | fraction << (52 - format.fraction)
    } else if exponent == 0 {
        (fraction as f64 * power_of_two(format.min_exponent - format.fraction as i32)).to_bits()
    } else {
        ((exponent as i32 - 1 + format.min_exponent + 1023) as u64) << 52 | fraction << (52 - format.fraction)
    };
    Literal::Float(sign | magnitude)
}

/// A constant in as few digits as tell it apart from the others of its dtype: 0.1 is no `f32`, and the one next to it
/// reads `0.1`, not as the `f64` that holds it. Whole numbers have all their digits, up to 2^53.
///
/// ```
/// use kernel_core::ir::{DType, Literal};
/// use kernel_core::num::{normalise, show};
/// let tenth = normalise(Literal::float(0.1), DType::F16).expect("a float");
/// assert_eq!((show(tenth, DType::F16), show(tenth, DType::F64)), ("0.1".into(), "0.0999755859375".into()));
/// ```
pub fn show(value: Literal, dtype: DType) -> String {
    /// Digits behind the first one that tell any two `f64` apart.
    const MOST: usize = 16;
    let exact = match value {
        Literal::Bool(value) => return value.to_string(),
        Literal::Int(value) => return value.to_string(),
        Literal::Float(bits) => f64::from_bits(bits),
    };
    if exact.fract() == 0.0 && exact.abs() <= power_of_two(53) {
        return format!("{exact:?}");
    }
    // What is read as an `f32` first, and then rounded, is to be the same.
    let narrow = dtype.bits() < DType::F32.bits();
    let reads_as =
        |short: &f64| round(*short, dtype) == exact && (!narrow || round(f64::from(*short as f32), dtype) == exact);
    let short = |digits: usize| format!("{exact:.digits$e}").parse().ok().filter(reads_as);
    format!("{:?}", (0..=MOST).find_map(short).unwrap_or(exact))
}
