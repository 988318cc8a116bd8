//! Rounding to nearest, ties to even, for any IEEE format, in integer arithmetic.

use kernel_core::ir::DType;

/// A binary float format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Bits of the significand, the hidden one included.
    pub precision: i32,
    /// The exponent of the last bit of the smallest numbers.
    pub min_exponent: i32,
    /// Bits of the exponent field.
    pub exponent_bits: i32,
    /// What is too large becomes: the bits of infinity, or of the largest number of formats that saturate.
    pub overflow: u64,
}

impl Format {
    /// The format of a float dtype.
    pub fn of(dtype: DType) -> Format {
        match dtype {
            DType::F8E4M3 => Format { precision: 4, min_exponent: -9, exponent_bits: 4, overflow: 0x7e },
            DType::F8E5M2 => Format { precision: 3, min_exponent: -16, exponent_bits: 5, overflow: 0x7b },
            DType::F16 => Format { precision: 11, min_exponent: -24, exponent_bits: 5, overflow: 0x7c00 },
            DType::BF16 => Format { precision: 8, min_exponent: -133, exponent_bits: 8, overflow: 0x7f80 },
            DType::F32 => Format { precision: 24, min_exponent: -149, exponent_bits: 8, overflow: 0x7f80_0000 },
            DType::F64 => {
                Format { precision: 53, min_exponent: -1074, exponent_bits: 11, overflow: 0x7ff0_0000_0000_0000 }
            }
            other => panic!("{other} is no float"),
        }
    }

    fn field_bits(self) -> i32 {
        self.precision - 1
    }

    /// The spacing of the format's numbers around `x`, as a power of two; that of the smallest near zero.
    pub fn ulp(self, x: f64) -> f64 {
        let exponent = if x == 0.0 { i32::MIN } else { exponent_of(x) - self.field_bits() };
        // In two halves: `powi` inverts a power, which is infinite from 2^1024 on.
        let exponent = exponent.max(self.min_exponent);
        2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2)
    }
}

/// The exponent of the leading bit of a finite number other than zero.
fn exponent_of(x: f64) -> i32 {
    let (_, mantissa, exponent) = split(x);
    exponent + 127 - mantissa.leading_zeros() as i32
}

/// A finite number as sign, integer and exponent: `±integer * 2^exponent`.
pub fn split(x: f64) -> (bool, u128, i32) {
    let bits = x.to_bits();
    let field = (bits >> 52 & 0x7ff) as i32;
    let fraction = u128::from(bits & ((1 << 52) - 1));
    let (mantissa, exponent) = if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
    (x.is_sign_negative(), mantissa, exponent)
}

/// The bits of `±mantissa * 2^exponent` rounded once to the format.
pub fn round(format: Format, negative: bool, mantissa: u128, exponent: i32) -> u64 {
    let sign = u64::from(negative) << (format.field_bits() + format.exponent_bits);
    if mantissa == 0 {
        return sign;
    }
    let length = 128 - mantissa.leading_zeros() as i32;
    // The exponent of the last bit that is kept.
    let last = (exponent + length - format.precision).max(format.min_exponent);
    let dropped = last - exponent;
    let mut kept = if dropped <= 0 {
        mantissa << -dropped
    } else if dropped > 127 {
        0
    } else {
        let (whole, rest, half) = (mantissa >> dropped, mantissa & ((1 << dropped) - 1), 1u128 << (dropped - 1));
        whole + u128::from(rest > half || (rest == half && whole & 1 == 1))
    };
    let mut last = last;
    if kept >> format.precision != 0 {
        kept >>= 1;
        last += 1;
    }
    let normal = kept >> format.field_bits() != 0;
    let field = if normal { (last - format.min_exponent + 1) as u64 } else { 0 };
    let magnitude = (field << format.field_bits()) | (kept as u64 & ((1 << format.field_bits()) - 1));
    sign | magnitude.min(format.overflow)
}

/// The bits of `a * b + c` rounded once; all three finite, their product exact in f64.
pub fn fused(format: Format, a: f64, b: f64, c: f64) -> u64 {
    let (product_sign, product, product_exponent) = {
        let ((s, m, e), (t, n, f)) = (split(a), split(b));
        (s != t, m * n, e + f)
    };
    let (sign, addend, exponent) = split(c);
    // Both over one exponent; what is too far below to matter stays as one sticky bit far down.
    let (high, low) = if product != 0 && (addend == 0 || product_exponent + bits(product) >= exponent + bits(addend)) {
        ((product_sign, product, product_exponent), (sign, addend, exponent))
    } else {
        ((sign, addend, exponent), (product_sign, product, product_exponent))
    };
    let room = high.1.leading_zeros() as i32 - 2;
    let (high_value, scale) = (high.1 << room, high.2 - room);
    let shift = low.2 - scale;
    let low_value = match shift {
        0.. => low.1 << shift,
        -127..0 => (low.1 >> -shift) | u128::from(low.1 & ((1 << -shift) - 1) != 0),
        _ => u128::from(low.1 != 0),
    };
    let signed = |negative: bool, m: u128| if negative { -(m as i128) } else { m as i128 };
    let sum = signed(high.0, high_value) + signed(low.0, low_value);
    let negative = if sum == 0 { product_sign && sign } else { sum < 0 };
    round(format, negative, sum.unsigned_abs(), scale)
}

fn bits(m: u128) -> i32 {
    128 - m.leading_zeros() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_rust_on_f32() {
        let mut state = 1u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let x = f64::from_bits(state);
            if x.is_finite() {
                let (negative, mantissa, exponent) = split(x);
                assert_eq!(
                    round(Format::of(DType::F32), negative, mantissa, exponent),
                    u64::from((x as f32).to_bits())
                );
                assert_eq!(round(Format::of(DType::F64), negative, mantissa, exponent), x.to_bits());
            }
            let y = state as i64;
            let bits = round(Format::of(DType::F32), y < 0, u128::from(y.unsigned_abs()), 0);
            assert_eq!(bits, u64::from((y as f32).to_bits()));
            let (a, b) = (f64::from(f32::from_bits(state as u32)), f64::from(f32::from_bits((state >> 32) as u32)));
            let c = f64::from(f32::from_bits((state >> 16) as u32));
            if a.is_finite() && b.is_finite() && c.is_finite() {
                let sum = (a as f32).mul_add(b as f32, c as f32);
                assert_eq!(fused(Format::of(DType::F32), a, b, c), u64::from(sum.to_bits()), "{a:e} {b:e} {c:e}");
            }
        }
    }

    #[test]
    fn ulps() {
        assert_eq!(Format::of(DType::F32).ulp(1.0), f64::from(f32::EPSILON));
        assert_eq!(Format::of(DType::F32).ulp(1e-45), 2f64.powi(-149));
        assert_eq!(Format::of(DType::F16).ulp(-3.0), 2f64.powi(-9));
        assert_eq!(Format::of(DType::F64).ulp(5e-324), 5e-324);
        assert_eq!(Format::of(DType::F64).ulp(f64::MIN_POSITIVE), 5e-324);
    }
}
