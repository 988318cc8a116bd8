//! The order of all values of a dtype, as that of unsigned numbers: -inf is the lowest, -0 is below +0, and NaN of either
//! sign is one number above all others.

use super::from_bits;
use crate::ir::{DType, Literal};

/// The bits of the dtype that a key has.
fn mask(dtype: DType) -> u64 {
    u64::MAX >> (64 - dtype.bytes() * 8)
}

fn sign(dtype: DType) -> u64 {
    1 << (dtype.bytes() * 8 - 1)
}

/// The key of an element: values are in the order of their keys, which have as many bits.
pub fn key(dtype: DType, bits: u64) -> u64 {
    if dtype.is_float() {
        let is_nan = matches!(from_bits(bits, dtype), Literal::Float(value) if f64::from_bits(value).is_nan());
        return match () {
            () if is_nan => mask(dtype),
            () if bits & sign(dtype) != 0 => !bits & mask(dtype),
            () => bits | sign(dtype),
        };
    }
    if dtype.is_signed_int() { bits ^ sign(dtype) } else { bits }
}

/// The element with that key.
pub fn value(dtype: DType, key: u64) -> u64 {
    if dtype.is_float() && key & sign(dtype) == 0 {
        return !key & mask(dtype);
    }
    if dtype.is_float() || dtype.is_signed_int() { key ^ sign(dtype) } else { key }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_values() {
        let numbers = [f64::NEG_INFINITY, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, f64::INFINITY, f64::NAN];
        let keys: Vec<u64> = numbers.iter().map(|x| key(DType::F64, x.to_bits())).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert_eq!(key(DType::F64, f64::NAN.to_bits() | 1 << 63), u64::MAX);
        for bits in 0..=u64::from(u16::MAX) {
            for dtype in [DType::I16, DType::U16, DType::F16, DType::BF16] {
                let nan = dtype.is_float() && key(dtype, bits) == mask(dtype);
                assert_eq!(value(dtype, key(dtype, bits)), if nan { 0x7fff } else { bits }, "{dtype} {bits:x}");
            }
        }
        let nan = |dtype: DType| from_bits(value(dtype, mask(dtype)), dtype);
        for dtype in [DType::F8E4M3, DType::F8E5M2, DType::F16, DType::BF16, DType::F32, DType::F64] {
            assert!(matches!(nan(dtype), Literal::Float(bits) if f64::from_bits(bits).is_nan()), "{dtype}");
        }
    }
}
