//! Conversions between dtypes: Rust's `as`, and one correct rounding to f16, bf16 and the 8-bit floats.

use half::{bf16, f16};

use crate::ir::DType;
use crate::num::{F8E4M3, F8E5M2};

use super::lanes::{Fn1, lift1};
use super::round::{f64_to_bf16, f64_to_f16, f64_to_f32_odd, int_to_f64_odd};

/// Conversions from one element type to all others.
trait Source: Copy + 'static {
    /// Nonzero; true for NaN.
    fn truth(self) -> u8;
    fn i8(self) -> i8;
    fn i16(self) -> i16;
    fn i32(self) -> i32;
    fn i64(self) -> i64;
    fn u8(self) -> u8;
    fn u16(self) -> u16;
    fn u32(self) -> u32;
    fn u64(self) -> u64;
    fn f8e4m3(self) -> F8E4M3;
    fn f8e5m2(self) -> F8E5M2;
    fn f16(self) -> f16;
    fn bf16(self) -> bf16;
    fn f32(self) -> f32;
    fn f64(self) -> f64;
}

macro_rules! source {
    ($($ty:ty: |$x:ident| zero $zero:expr, native $native:expr, odd $odd:expr, f16 $f16:expr, bf16 $bf16:expr;)*) => {$(
        impl Source for $ty {
            fn truth(self) -> u8 { let $x = self; u8::from(!$zero) }
            fn i8(self) -> i8 { let $x = self; $native as i8 }
            fn i16(self) -> i16 { let $x = self; $native as i16 }
            fn i32(self) -> i32 { let $x = self; $native as i32 }
            fn i64(self) -> i64 { let $x = self; $native as i64 }
            fn u8(self) -> u8 { let $x = self; $native as u8 }
            fn u16(self) -> u16 { let $x = self; $native as u16 }
            fn u32(self) -> u32 { let $x = self; $native as u32 }
            fn u64(self) -> u64 { let $x = self; $native as u64 }
            fn f8e4m3(self) -> F8E4M3 { let $x = self; F8E4M3::from_f32($odd) }
            fn f8e5m2(self) -> F8E5M2 { let $x = self; F8E5M2::from_f32($odd) }
            fn f16(self) -> f16 { let $x = self; $f16 }
            fn bf16(self) -> bf16 { let $x = self; $bf16 }
            fn f32(self) -> f32 { let $x = self; $native as f32 }
            fn f64(self) -> f64 { let $x = self; $native as f64 }
        }
    )*};
}

source! {
    i8: |x| zero x == 0, native x, odd f32::from(x), f16 f16::from_f32(f32::from(x)), bf16 bf16::from_f32(f32::from(x));
    i16: |x| zero x == 0, native x, odd f32::from(x), f16 f16::from_f32(f32::from(x)), bf16 bf16::from_f32(f32::from(x));
    i32: |x| zero x == 0, native x, odd f64_to_f32_odd(f64::from(x)), f16 f64_to_f16(f64::from(x)), bf16 f64_to_bf16(f64::from(x));
    i64: |x| zero x == 0, native x, odd f64_to_f32_odd(int_to_f64_odd(i128::from(x))), f16 f64_to_f16(int_to_f64_odd(i128::from(x))), bf16 f64_to_bf16(int_to_f64_odd(i128::from(x)));
    u8: |x| zero x == 0, native x, odd f32::from(x), f16 f16::from_f32(f32::from(x)), bf16 bf16::from_f32(f32::from(x));
    u16: |x| zero x == 0, native x, odd f32::from(x), f16 f16::from_f32(f32::from(x)), bf16 bf16::from_f32(f32::from(x));
    u32: |x| zero x == 0, native x, odd f64_to_f32_odd(f64::from(x)), f16 f64_to_f16(f64::from(x)), bf16 f64_to_bf16(f64::from(x));
    u64: |x| zero x == 0, native x, odd f64_to_f32_odd(int_to_f64_odd(i128::from(x))), f16 f64_to_f16(int_to_f64_odd(i128::from(x))), bf16 f64_to_bf16(int_to_f64_odd(i128::from(x)));
    F8E4M3: |x| zero x.to_f32() == 0.0, native x.to_f32(), odd x.to_f32(), f16 f16::from_f32(x.to_f32()), bf16 bf16::from_f32(x.to_f32());
    F8E5M2: |x| zero x.to_f32() == 0.0, native x.to_f32(), odd x.to_f32(), f16 f16::from_f32(x.to_f32()), bf16 bf16::from_f32(x.to_f32());
    f16: |x| zero x.to_f32() == 0.0, native x.to_f32(), odd x.to_f32(), f16 x, bf16 bf16::from_f32(x.to_f32());
    bf16: |x| zero x.to_f32() == 0.0, native x.to_f32(), odd x.to_f32(), f16 f16::from_f32(x.to_f32()), bf16 x;
    f32: |x| zero x == 0.0, native x, odd x, f16 f16::from_f32(x), bf16 bf16::from_f32(x);
    f64: |x| zero x == 0.0, native x, odd f64_to_f32_odd(x), f16 f64_to_f16(x), bf16 f64_to_bf16(x);
}

fn from<S: Source>(to: DType) -> Fn1 {
    match to {
        DType::Bool => lift1(S::truth),
        DType::I8 => lift1(S::i8),
        DType::I16 => lift1(S::i16),
        DType::I32 => lift1(S::i32),
        DType::I64 => lift1(S::i64),
        DType::U8 => lift1(S::u8),
        DType::U16 => lift1(S::u16),
        DType::U32 => lift1(S::u32),
        DType::U64 => lift1(S::u64),
        DType::F8E4M3 => lift1(S::f8e4m3),
        DType::F8E5M2 => lift1(S::f8e5m2),
        DType::F16 => lift1(S::f16),
        DType::BF16 => lift1(S::bf16),
        DType::F32 => lift1(S::f32),
        DType::F64 => lift1(S::f64),
    }
}

/// The tile function that converts elements of one dtype to another. A truth value converts as the byte 0 or 1.
pub(super) fn cast(source: DType, to: DType) -> Fn1 {
    if source == to && source.is_fp8() {
        // Nothing is rounded, so infinities stay.
        return lift1(|x: u8| x);
    }
    match source {
        DType::Bool | DType::U8 => from::<u8>(to),
        DType::I8 => from::<i8>(to),
        DType::I16 => from::<i16>(to),
        DType::I32 => from::<i32>(to),
        DType::I64 => from::<i64>(to),
        DType::U16 => from::<u16>(to),
        DType::U32 => from::<u32>(to),
        DType::U64 => from::<u64>(to),
        DType::F8E4M3 => from::<F8E4M3>(to),
        DType::F8E5M2 => from::<F8E5M2>(to),
        DType::F16 => from::<f16>(to),
        DType::BF16 => from::<bf16>(to),
        DType::F32 => from::<f32>(to),
        DType::F64 => from::<f64>(to),
    }
}
