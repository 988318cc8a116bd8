//! Elements of any dtype, each as its bits in the low end of a `u64`.

use half::{bf16, f16};
use kernel_core::ir::{DType, Literal};
use kernel_core::num::{self, F8E4M3, F8E5M2};

/// A list of elements of one dtype.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Data {
    /// The dtype.
    pub dtype: DType,
    /// The bits of each element, the others zero.
    pub bits: Vec<u64>,
}

impl Data {
    /// Elements given by their bits; what does not belong to the dtype is cut off.
    pub fn new(dtype: DType, bits: impl IntoIterator<Item = u64>) -> Data {
        Data { dtype, bits: bits.into_iter().map(|b| b & mask(dtype)).collect() }
    }

    /// Integers (or truth values) of an integer dtype, wrapped into it.
    pub fn ints(dtype: DType, values: impl IntoIterator<Item = i128>) -> Data {
        Data::new(dtype, values.into_iter().map(|v| from_int(dtype, v)))
    }

    /// Floats, rounded to the dtype.
    pub fn floats(dtype: DType, values: impl IntoIterator<Item = f64>) -> Data {
        Data::new(dtype, values.into_iter().map(|v| from_f64(dtype, v)))
    }

    /// Small integers in any dtype but `bool`, which takes their last bit.
    pub fn numbers(dtype: DType, values: impl IntoIterator<Item = i64>) -> Data {
        Data::new(dtype, values.into_iter().map(|v| number(dtype, v)))
    }

    /// `len` zeros.
    pub fn zeros(dtype: DType, len: usize) -> Data {
        Data { dtype, bits: vec![0; len] }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.bits.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bits.is_empty()
    }

    /// A new list, element by element.
    pub fn map(&self, dtype: DType, f: impl Fn(u64) -> u64) -> Data {
        Data::new(dtype, self.bits.iter().map(|&b| f(b)))
    }

    /// A new list from pairs of elements.
    pub fn zip(&self, other: &Data, dtype: DType, f: impl Fn(u64, u64) -> u64) -> Data {
        assert_eq!(self.len(), other.len());
        Data::new(dtype, self.bits.iter().zip(&other.bits).map(|(&a, &b)| f(a, b)))
    }
}

/// All bits that an element of the dtype has.
pub fn mask(dtype: DType) -> u64 {
    u64::MAX >> (64 - dtype.bits())
}

/// The value of an integer or truth value.
pub fn to_int(dtype: DType, bits: u64) -> i128 {
    let unused = 64 - dtype.bits();
    if dtype.is_signed_int() { i128::from(((bits << unused) as i64) >> unused) } else { i128::from(bits & mask(dtype)) }
}

/// The bits of an integer, wrapped into the dtype.
pub fn from_int(dtype: DType, value: i128) -> u64 {
    value as u64 & mask(dtype)
}

/// The value of a float, exactly.
pub fn to_f64(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F8E4M3 => F8E4M3::from_bits(bits as u8).to_f64(),
        DType::F8E5M2 => F8E5M2::from_bits(bits as u8).to_f64(),
        DType::F16 => f16::from_bits(bits as u16).to_f64(),
        DType::BF16 => bf16::from_bits(bits as u16).to_f64(),
        DType::F32 => f64::from(f32::from_bits(bits as u32)),
        DType::F64 => f64::from_bits(bits),
        other => panic!("{other} is no float"),
    }
}

/// The bits of a float, rounded to the dtype once.
pub fn from_f64(dtype: DType, value: f64) -> u64 {
    match dtype {
        DType::F8E4M3 => u64::from(F8E4M3::from_f64(value).to_bits()),
        DType::F8E5M2 => u64::from(F8E5M2::from_f64(value).to_bits()),
        DType::F16 | DType::BF16 => num::to_bits(Literal::float(value), dtype).unwrap_or_default(),
        DType::F32 => u64::from((value as f32).to_bits()),
        DType::F64 => value.to_bits(),
        other => panic!("{other} is no float"),
    }
}

/// The nearest `f16`, with the one rounding that the conversions of `half` from f64 do not promise.
pub fn f16_from_f64(value: f64) -> f16 {
    f16::from_bits(from_f64(DType::F16, value) as u16)
}

/// The nearest `bf16`, likewise.
pub fn bf16_from_f64(value: f64) -> bf16 {
    bf16::from_bits(from_f64(DType::BF16, value) as u16)
}

/// The bits of a small integer in any dtype.
pub fn number(dtype: DType, value: i64) -> u64 {
    if dtype.is_float() { from_f64(dtype, value as f64) } else { from_int(dtype, i128::from(value)) }
}

/// Whether the bits are a NaN of the dtype.
pub fn is_nan(dtype: DType, bits: u64) -> bool {
    dtype.is_float() && to_f64(dtype, bits).is_nan()
}

/// An element for a person to read.
pub fn show(dtype: DType, bits: u64) -> String {
    if dtype.is_float() {
        format!("{:e} (0x{bits:x})", to_f64(dtype, bits))
    } else if dtype == DType::Bool {
        (bits != 0).to_string()
    } else {
        to_int(dtype, bits).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_and_come_back() {
        assert_eq!(to_int(DType::I8, from_int(DType::I8, -128)), -128);
        assert_eq!(to_int(DType::I8, from_int(DType::I8, 200)), -56);
        assert_eq!(to_int(DType::U64, from_int(DType::U64, -1)), i128::from(u64::MAX));
        assert_eq!(to_int(DType::Bool, from_int(DType::Bool, 3)), 1);
        assert_eq!(to_int(DType::I64, 1 << 63), i128::from(i64::MIN));
    }
}
