//! Scalar arguments: values of any dtype, typed at the surface, plain data behind it.

use crate::dtype::{DType, ElementType};
use kernel_core::ir::Literal;

/// What may be passed for a scalar parameter: a value of any dtype.
pub trait Scalar: DType {
    /// The value as plain data.
    fn value(self) -> ScalarValue;
}

impl<T: DType> Scalar for T {
    #[inline]
    fn value(self) -> ScalarValue {
        let size = size_of::<T>();
        let mut bytes = [0; size_of::<u64>()];
        let low = if cfg!(target_endian = "little") { 0..size } else { bytes.len() - size..bytes.len() };
        bytes[low].copy_from_slice(crate::view::as_bytes(std::slice::from_ref(&self)));
        ScalarValue { bits: u64::from_ne_bytes(bytes), element: T::ELEMENT }
    }
}

/// A scalar argument without its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScalarValue {
    /// The value in the low bits; the others are zero.
    pub(super) bits: u64,
    pub(super) element: ElementType,
}

impl ScalarValue {
    /// The value of an integer or truth value; `None` for floats.
    #[inline]
    pub(super) fn as_int(self) -> Option<i128> {
        match self.element {
            ElementType::I8 => Some(i128::from(self.bits as i8)),
            ElementType::I16 => Some(i128::from(self.bits as i16)),
            ElementType::I32 => Some(i128::from(self.bits as i32)),
            ElementType::I64 => Some(i128::from(self.bits as i64)),
            ElementType::Bool | ElementType::U8 | ElementType::U16 | ElementType::U32 | ElementType::U64 => {
                Some(i128::from(self.bits))
            }
            ElementType::F8E4M3
            | ElementType::F8E5M2
            | ElementType::F16
            | ElementType::BF16
            | ElementType::F32
            | ElementType::F64 => None,
        }
    }

    /// Whether it is an integer or a truth value.
    #[inline]
    pub(super) fn is_int(self) -> bool {
        self.element == ElementType::Bool || self.element.is_int()
    }

    /// The value as a constant of the tile IR.
    pub(super) fn literal(self) -> Literal {
        let bits = self.bits;
        match self.element {
            ElementType::Bool => Literal::Bool(bits != 0),
            ElementType::F16 => Literal::float(half::f16::from_bits(bits as u16).to_f64()),
            ElementType::F8E4M3 | ElementType::F8E5M2 => kernel_core::num::from_bits(bits, self.element),
            ElementType::BF16 => Literal::float(half::bf16::from_bits(bits as u16).to_f64()),
            ElementType::F32 => Literal::float(f32::from_bits(bits as u32).into()),
            ElementType::F64 => Literal::Float(bits),
            ElementType::I8
            | ElementType::I16
            | ElementType::I32
            | ElementType::I64
            | ElementType::U8
            | ElementType::U16
            | ElementType::U32
            | ElementType::U64 => Literal::Int(self.as_int().unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn scalars_keep_their_values() {
        assert_eq!((-2i8).value().as_int(), Some(-2));
        assert_eq!((-2i8).value().bits, 0xfe, "the other bits are zero");
        assert_eq!(i64::MIN.value().as_int(), Some(i128::from(i64::MIN)));
        assert_eq!(u64::MAX.value().as_int(), Some(i128::from(u64::MAX)));
        assert_eq!(true.value().literal(), Literal::Bool(true));
        assert_eq!((-7i32).value().literal(), Literal::Int(-7));
        assert_eq!(0.1f32.value().literal(), Literal::float(f64::from(0.1f32)));
        assert_eq!(0.1f64.value().literal(), Literal::float(0.1));
        assert_eq!(f16::from_f32(0.5).value().literal(), Literal::float(0.5));
        assert_eq!(bf16::from_f32(-3.0).value().literal(), Literal::float(-3.0));
        assert_eq!(1.0f32.value().as_int(), None);
    }
}
