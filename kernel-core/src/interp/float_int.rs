//! What floats with an integer, and floats as the integers of their bits, compute.

use half::{bf16, f16};

use crate::ir::DType;
use crate::math::{FloatIntFn, evaluate_float_int_f32, evaluate_float_int_f64, specialise_float_int};
use crate::num::{self, F8E4M3, F8E5M2};

use super::lanes::{Fn2, lift2, lift2_fma};

/// The tile function of an operation with a float and an i32.
pub(super) fn float_int(op: FloatIntFn, dtype: DType) -> Option<Fn2> {
    macro_rules! through_f32 {
        ($ty:ty) => {
            specialise_float_int!(op, F => lift2_fma(|x: $ty, n: i32| {
                <$ty>::from_f32(evaluate_float_int_f32(F, x.to_f32(), n))
            }))
        };
    }
    Some(match dtype {
        DType::F8E4M3 => through_f32!(F8E4M3),
        DType::F8E5M2 => through_f32!(F8E5M2),
        DType::F16 => through_f32!(f16),
        DType::BF16 => through_f32!(bf16),
        DType::F32 => specialise_float_int!(op, F => lift2_fma(|x: f32, n: i32| evaluate_float_int_f32(F, x, n))),
        DType::F64 => specialise_float_int!(op, F => lift2_fma(|x: f64, n: i32| evaluate_float_int_f64(F, x, n))),
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => return None,
    })
}

/// The tile function of `nextafter`.
pub(super) fn next_after(dtype: DType) -> Option<Fn2> {
    macro_rules! on_bits {
        ($ty:ty, $bits:ty, $value:expr) => {
            lift2(|a: $bits, b: $bits| {
                let value = |bits| f64::from($value(<$ty>::from_bits(bits)));
                num::next_after([u64::from(a), u64::from(b)], [value(a), value(b)], <$bits>::BITS) as $bits
            })
        };
    }
    Some(match dtype {
        DType::F8E4M3 => on_bits!(F8E4M3, u8, F8E4M3::to_f32),
        DType::F8E5M2 => on_bits!(F8E5M2, u8, F8E5M2::to_f32),
        DType::F16 => on_bits!(f16, u16, f16::to_f32),
        DType::BF16 => on_bits!(bf16, u16, bf16::to_f32),
        DType::F32 => on_bits!(f32, u32, std::convert::identity),
        DType::F64 => on_bits!(f64, u64, std::convert::identity),
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => return None,
    })
}
