//! What every elementwise operation computes, for every dtype.
//!
//! Each function here picks the tile function of an operation and a dtype, or `None` where the type rules have no
//! such operation. Integers wrap and are total; f16 and bf16 go through f32 and round once per operation; f32 and
//! f64 are IEEE 754, `div` and `sqrt` correctly rounded; elementary functions are those of [`crate::math`].

use half::{bf16, f16};

use crate::ir::{BinaryOp, CmpOp, DType, UnaryOp};
use crate::math::{
    evaluate_binary_f32, evaluate_binary_f64, evaluate_f32, evaluate_f64, specialise, specialise_binary,
};
use crate::num::{F8E4M3, F8E5M2};

use super::float_int::next_after;
use super::lanes::{
    Fn1, Fn2, Fn3, Half, lift1, lift1_fma, lift1_half, lift2, lift2_fma, lift2_half, lift2_half_compare, lift3,
    lift3_fma,
};

/// The total, wrapping arithmetic of an integer dtype.
pub(super) trait Int: Copy + Ord + 'static {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
    /// Truncates; x / 0 is 0 and MIN / -1 is MIN.
    fn div(self, other: Self) -> Self;
    /// Has the sign of the dividend; x % 0 is x.
    fn rem(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// The count is taken modulo the width.
    fn shl(self, count: Self) -> Self;
    /// Arithmetic on signed integers; the count is taken modulo the width.
    fn shr(self, count: Self) -> Self;
    /// The upper half of the product of the operands read as unsigned.
    fn umulhi(self, other: Self) -> Self;
    /// The upper half of the product.
    fn mulhi(self, other: Self) -> Self;
    /// The count is taken modulo the width.
    fn rotate_left(self, count: Self) -> Self;
    /// The count is taken modulo the width.
    fn rotate_right(self, count: Self) -> Self;
    fn saturating_add(self, other: Self) -> Self;
    fn saturating_sub(self, other: Self) -> Self;
    fn saturating_mul(self, other: Self) -> Self;
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn not(self) -> Self;
    fn count_ones(self) -> Self;
    fn leading_zeros(self) -> Self;
    fn trailing_zeros(self) -> Self;
    fn reverse_bits(self) -> Self;
}

macro_rules! int {
    ($($ty:ty, $unsigned:ty, $wide:ty, $abs:ident;)*) => {$(
        impl Int for $ty {
            fn add(self, other: $ty) -> $ty { self.wrapping_add(other) }
            fn sub(self, other: $ty) -> $ty { self.wrapping_sub(other) }
            fn mul(self, other: $ty) -> $ty { self.wrapping_mul(other) }
            fn div(self, other: $ty) -> $ty { if other == 0 { 0 } else { self.wrapping_div(other) } }
            fn rem(self, other: $ty) -> $ty { if other == 0 { self } else { self.wrapping_rem(other) } }
            fn and(self, other: $ty) -> $ty { self & other }
            fn or(self, other: $ty) -> $ty { self | other }
            fn xor(self, other: $ty) -> $ty { self ^ other }
            fn shl(self, count: $ty) -> $ty { self.wrapping_shl(count as u32) }
            fn shr(self, count: $ty) -> $ty { self.wrapping_shr(count as u32) }
            fn umulhi(self, other: $ty) -> $ty {
                let product = (self as $unsigned as $wide) * (other as $unsigned as $wide);
                (product >> <$ty>::BITS) as $ty
            }
            fn mulhi(self, other: $ty) -> $ty {
                // What leaves 128 bits, of two u64, are none of those that are kept.
                (i128::from(self).wrapping_mul(i128::from(other)) >> <$ty>::BITS) as $ty
            }
            fn rotate_left(self, count: $ty) -> $ty { <$ty>::rotate_left(self, count as u32 & (<$ty>::BITS - 1)) }
            fn rotate_right(self, count: $ty) -> $ty { <$ty>::rotate_right(self, count as u32 & (<$ty>::BITS - 1)) }
            fn saturating_add(self, other: $ty) -> $ty { <$ty>::saturating_add(self, other) }
            fn saturating_sub(self, other: $ty) -> $ty { <$ty>::saturating_sub(self, other) }
            fn saturating_mul(self, other: $ty) -> $ty { <$ty>::saturating_mul(self, other) }
            fn neg(self) -> $ty { self.wrapping_neg() }
            fn abs(self) -> $ty { $abs!(self) }
            fn not(self) -> $ty { !self }
            fn count_ones(self) -> $ty { <$ty>::count_ones(self) as $ty }
            fn leading_zeros(self) -> $ty { <$ty>::leading_zeros(self) as $ty }
            fn trailing_zeros(self) -> $ty { <$ty>::trailing_zeros(self) as $ty }
            fn reverse_bits(self) -> $ty { <$ty>::reverse_bits(self) }
        }
    )*};
}

macro_rules! signed_abs {
    ($x:expr) => {
        $x.wrapping_abs()
    };
}
macro_rules! unsigned_abs {
    ($x:expr) => {
        $x
    };
}

int! {
    i8, u8, u16, signed_abs;
    i16, u16, u32, signed_abs;
    i32, u32, u64, signed_abs;
    i64, u64, u128, signed_abs;
    u8, u8, u16, unsigned_abs;
    u16, u16, u32, unsigned_abs;
    u32, u32, u64, unsigned_abs;
    u64, u64, u128, unsigned_abs;
}

/// Minimum and maximum of floats, where -0 < +0.
pub(super) trait Extremes: Copy {
    /// The smaller; a NaN operand is ignored.
    fn minimum(self, other: Self) -> Self;
    /// The larger; a NaN operand is ignored.
    fn maximum(self, other: Self) -> Self;
    /// The smaller; NaN if an operand is.
    fn minimum_nan(self, other: Self) -> Self;
    /// The larger; NaN if an operand is.
    fn maximum_nan(self, other: Self) -> Self;
}

macro_rules! extremes {
    ($($ty:ty),*) => {$(
        impl Extremes for $ty {
            fn minimum(self, other: $ty) -> $ty {
                // Equal numbers have equal bits, but for zeros, where the bits of -0 contain those of +0.
                let equal = <$ty>::from_bits(self.to_bits() | other.to_bits());
                let smaller = if self == other { equal } else { other };
                if self < other || other.is_nan() { self } else { smaller }
            }
            fn maximum(self, other: $ty) -> $ty {
                let equal = <$ty>::from_bits(self.to_bits() & other.to_bits());
                let larger = if self == other { equal } else { other };
                if self > other || other.is_nan() { self } else { larger }
            }
            fn minimum_nan(self, other: $ty) -> $ty {
                if self.is_nan() { self } else if other.is_nan() { other } else { Extremes::minimum(self, other) }
            }
            fn maximum_nan(self, other: $ty) -> $ty {
                if self.is_nan() { self } else if other.is_nan() { other } else { Extremes::maximum(self, other) }
            }
        }
    )*};
}
extremes!(f32, f64);

fn int_binary<T: Int>(op: BinaryOp) -> Option<Fn2> {
    Some(match op {
        BinaryOp::Add => lift2(T::add),
        BinaryOp::Sub => lift2(T::sub),
        BinaryOp::Mul => lift2(T::mul),
        BinaryOp::Div => lift2(T::div),
        BinaryOp::Rem => lift2(T::rem),
        BinaryOp::Min | BinaryOp::MinNan => lift2(<T as Ord>::min),
        BinaryOp::Max | BinaryOp::MaxNan => lift2(<T as Ord>::max),
        BinaryOp::And => lift2(T::and),
        BinaryOp::Or => lift2(T::or),
        BinaryOp::Xor => lift2(T::xor),
        BinaryOp::Shl => lift2(T::shl),
        BinaryOp::Shr => lift2(T::shr),
        BinaryOp::Umulhi => lift2(T::umulhi),
        BinaryOp::Mulhi => lift2(T::mulhi),
        BinaryOp::RotateLeft => lift2(T::rotate_left),
        BinaryOp::RotateRight => lift2(T::rotate_right),
        BinaryOp::SaturatingAdd => lift2(T::saturating_add),
        BinaryOp::SaturatingSub => lift2(T::saturating_sub),
        BinaryOp::SaturatingMul => lift2(T::saturating_mul),
        BinaryOp::DivRn | BinaryOp::CopySign | BinaryOp::NextAfter | BinaryOp::Math(_) => return None,
    })
}

/// The float operations, with a lift and the type that computes.
macro_rules! float_binary {
    ($op:expr, $ty:ty, $lift:path, $lift_fma:path, $evaluate:path) => {
        Some(match $op {
            BinaryOp::Add => $lift(|a: $ty, b: $ty| a + b),
            BinaryOp::Sub => $lift(|a: $ty, b: $ty| a - b),
            BinaryOp::Mul => $lift(|a: $ty, b: $ty| a * b),
            BinaryOp::Div | BinaryOp::DivRn => $lift(|a: $ty, b: $ty| a / b),
            BinaryOp::Rem => $lift(|a: $ty, b: $ty| a % b),
            BinaryOp::Min => $lift(<$ty as Extremes>::minimum),
            BinaryOp::Max => $lift(<$ty as Extremes>::maximum),
            BinaryOp::MinNan => $lift(<$ty as Extremes>::minimum_nan),
            BinaryOp::MaxNan => $lift(<$ty as Extremes>::maximum_nan),
            BinaryOp::CopySign => $lift(|a: $ty, b: $ty| a.copysign(b)),
            BinaryOp::Math(function) => {
                specialise_binary!(function, F => $lift_fma(|a: $ty, b: $ty| $evaluate(F, a, b)))
            }
            BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Shl
            | BinaryOp::Shr
            | BinaryOp::Umulhi
            | BinaryOp::Mulhi
            | BinaryOp::RotateLeft
            | BinaryOp::RotateRight
            | BinaryOp::SaturatingAdd
            | BinaryOp::SaturatingSub
            | BinaryOp::SaturatingMul
            | BinaryOp::NextAfter => return None,
        })
    };
}

fn half_binary<H: Half>(op: BinaryOp) -> Option<Fn2> {
    float_binary!(op, f32, lift2_half::<H, _>, lift2_half::<H, _>, evaluate_binary_f32)
}

/// As [`f8_unary`].
fn f8_binary<H: Half>(op: BinaryOp) -> Option<Fn2> {
    if op == BinaryOp::CopySign {
        return Some(lift2(|a: u8, b: u8| a & 0x7f | b & 0x80));
    }
    half_binary::<H>(op)
}

fn f32_binary(op: BinaryOp) -> Option<Fn2> {
    float_binary!(op, f32, lift2, lift2_fma, evaluate_binary_f32)
}

fn f64_binary(op: BinaryOp) -> Option<Fn2> {
    float_binary!(op, f64, lift2, lift2_fma, evaluate_binary_f64)
}

/// Truth values are the bytes 0 and 1.
fn bool_binary(op: BinaryOp) -> Option<Fn2> {
    match op {
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => int_binary::<u8>(op),
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::DivRn
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::MinNan
        | BinaryOp::MaxNan
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Umulhi
        | BinaryOp::Mulhi
        | BinaryOp::RotateLeft
        | BinaryOp::RotateRight
        | BinaryOp::SaturatingAdd
        | BinaryOp::SaturatingSub
        | BinaryOp::SaturatingMul
        | BinaryOp::CopySign
        | BinaryOp::NextAfter
        | BinaryOp::Math(_) => None,
    }
}

/// The tile function of a binary operation.
pub(super) fn binary(op: BinaryOp, dtype: DType) -> Option<Fn2> {
    if op == BinaryOp::NextAfter {
        return next_after(dtype);
    }
    match dtype {
        DType::Bool => bool_binary(op),
        DType::I8 => int_binary::<i8>(op),
        DType::I16 => int_binary::<i16>(op),
        DType::I32 => int_binary::<i32>(op),
        DType::I64 => int_binary::<i64>(op),
        DType::U8 => int_binary::<u8>(op),
        DType::U16 => int_binary::<u16>(op),
        DType::U32 => int_binary::<u32>(op),
        DType::U64 => int_binary::<u64>(op),
        DType::F8E4M3 => f8_binary::<F8E4M3>(op),
        DType::F8E5M2 => f8_binary::<F8E5M2>(op),
        DType::F16 => half_binary::<f16>(op),
        DType::BF16 => half_binary::<bf16>(op),
        DType::F32 => f32_binary(op),
        DType::F64 => f64_binary(op),
    }
}

fn int_unary<T: Int>(op: UnaryOp) -> Option<Fn1> {
    match op {
        UnaryOp::Neg => Some(lift1(T::neg)),
        UnaryOp::Abs => Some(lift1(T::abs)),
        UnaryOp::Not => Some(lift1(T::not)),
        UnaryOp::CountOnes => Some(lift1(T::count_ones)),
        UnaryOp::LeadingZeros => Some(lift1(T::leading_zeros)),
        UnaryOp::TrailingZeros => Some(lift1(T::trailing_zeros)),
        UnaryOp::ReverseBits => Some(lift1(T::reverse_bits)),
        UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Trunc
        | UnaryOp::Round
        | UnaryOp::RoundTiesEven
        | UnaryOp::SqrtRn
        | UnaryOp::Math(_) => None,
    }
}

macro_rules! float_unary {
    ($op:expr, $ty:ty, $lift:path, $evaluate:path) => {
        Some(match $op {
            UnaryOp::Neg => $lift(|x: $ty| -x),
            UnaryOp::Abs => $lift(|x: $ty| x.abs()),
            UnaryOp::Floor => $lift(|x: $ty| x.floor()),
            UnaryOp::Ceil => $lift(|x: $ty| x.ceil()),
            UnaryOp::Trunc => $lift(|x: $ty| x.trunc()),
            UnaryOp::Round => $lift(|x: $ty| x.round()),
            UnaryOp::RoundTiesEven => $lift(|x: $ty| x.round_ties_even()),
            UnaryOp::SqrtRn => $lift(|x: $ty| x.sqrt()),
            UnaryOp::Math(function) => specialise!(function, F => $lift(|x: $ty| $evaluate(F, x))),
            UnaryOp::Not | UnaryOp::CountOnes | UnaryOp::LeadingZeros | UnaryOp::TrailingZeros | UnaryOp::ReverseBits => return None,
        })
    };
}

fn half_unary<H: Half>(op: UnaryOp) -> Option<Fn1> {
    float_unary!(op, f32, lift1_half::<H, _>, evaluate_f32)
}

/// Signs are changed in the bits, so that they reach infinities too, which nothing else gives.
fn f8_unary<H: Half>(op: UnaryOp) -> Option<Fn1> {
    match op {
        UnaryOp::Neg => Some(lift1(|x: u8| x ^ 0x80)),
        UnaryOp::Abs => Some(lift1(|x: u8| x & 0x7f)),
        UnaryOp::Not
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Trunc
        | UnaryOp::Round
        | UnaryOp::RoundTiesEven
        | UnaryOp::SqrtRn
        | UnaryOp::Math(_)
        | UnaryOp::CountOnes
        | UnaryOp::LeadingZeros
        | UnaryOp::TrailingZeros
        | UnaryOp::ReverseBits => half_unary::<H>(op),
    }
}

fn f32_unary(op: UnaryOp) -> Option<Fn1> {
    float_unary!(op, f32, lift1_fma, evaluate_f32)
}

fn f64_unary(op: UnaryOp) -> Option<Fn1> {
    float_unary!(op, f64, lift1_fma, evaluate_f64)
}

/// The tile function of a unary operation.
pub(super) fn unary(op: UnaryOp, dtype: DType) -> Option<Fn1> {
    match dtype {
        DType::Bool => (op == UnaryOp::Not).then(|| lift1(|x: u8| x ^ 1)),
        DType::I8 => int_unary::<i8>(op),
        DType::I16 => int_unary::<i16>(op),
        DType::I32 => int_unary::<i32>(op),
        DType::I64 => int_unary::<i64>(op),
        DType::U8 => int_unary::<u8>(op),
        DType::U16 => int_unary::<u16>(op),
        DType::U32 => int_unary::<u32>(op),
        DType::U64 => int_unary::<u64>(op),
        DType::F8E4M3 => f8_unary::<F8E4M3>(op),
        DType::F8E5M2 => f8_unary::<F8E5M2>(op),
        DType::F16 => half_unary::<f16>(op),
        DType::BF16 => half_unary::<bf16>(op),
        DType::F32 => f32_unary(op),
        DType::F64 => f64_unary(op),
    }
}

macro_rules! compare_with {
    ($op:expr, $ty:ty, $lift:path) => {
        match $op {
            CmpOp::Eq => $lift(|a: $ty, b: $ty| u8::from(a == b)),
            CmpOp::Ne => $lift(|a: $ty, b: $ty| u8::from(a != b)),
            CmpOp::Lt => $lift(|a: $ty, b: $ty| u8::from(a < b)),
            CmpOp::Le => $lift(|a: $ty, b: $ty| u8::from(a <= b)),
            CmpOp::Gt => $lift(|a: $ty, b: $ty| u8::from(a > b)),
            CmpOp::Ge => $lift(|a: $ty, b: $ty| u8::from(a >= b)),
        }
    };
}

fn compare_native<T: Copy + PartialOrd + 'static>(op: CmpOp) -> Fn2 {
    compare_with!(op, T, lift2)
}

fn compare_half<H: Half>(op: CmpOp) -> Fn2 {
    compare_with!(op, f32, lift2_half_compare::<H, _>)
}

/// The tile function of a comparison; the result's lanes are the bytes 0 and 1. Pointers compare as i64.
pub(super) fn compare(op: CmpOp, dtype: DType) -> Fn2 {
    match dtype {
        DType::Bool | DType::U8 => compare_native::<u8>(op),
        DType::I8 => compare_native::<i8>(op),
        DType::I16 => compare_native::<i16>(op),
        DType::I32 => compare_native::<i32>(op),
        DType::I64 => compare_native::<i64>(op),
        DType::U16 => compare_native::<u16>(op),
        DType::U32 => compare_native::<u32>(op),
        DType::U64 => compare_native::<u64>(op),
        DType::F8E4M3 => compare_half::<F8E4M3>(op),
        DType::F8E5M2 => compare_half::<F8E5M2>(op),
        DType::F16 => compare_half::<f16>(op),
        DType::BF16 => compare_half::<bf16>(op),
        DType::F32 => compare_native::<f32>(op),
        DType::F64 => compare_native::<f64>(op),
    }
}

/// The tile function of `select` on elements of `bytes` bytes.
pub(super) fn select(bytes: usize) -> Fn3 {
    fn of<T: Copy>() -> Fn3 {
        lift3(|condition: u8, a: T, b: T| if condition != 0 { a } else { b })
    }
    match bytes {
        1 => of::<u8>(),
        2 => of::<u16>(),
        4 => of::<u32>(),
        _ => of::<u64>(),
    }
}

/// The tile function of `fma`; f16 and bf16 go through that of f32.
pub(super) fn fma(dtype: DType) -> Option<Fn3> {
    match dtype {
        DType::F8E4M3 => Some(lift3_fma(|a: F8E4M3, b: F8E4M3, c: F8E4M3| {
            F8E4M3::from_f32(a.to_f32().mul_add(b.to_f32(), c.to_f32()))
        })),
        DType::F8E5M2 => Some(lift3_fma(|a: F8E5M2, b: F8E5M2, c: F8E5M2| {
            F8E5M2::from_f32(a.to_f32().mul_add(b.to_f32(), c.to_f32()))
        })),
        DType::F16 => {
            Some(lift3_fma(|a: f16, b: f16, c: f16| f16::from_f32(a.to_f32().mul_add(b.to_f32(), c.to_f32()))))
        }
        DType::BF16 => {
            Some(lift3_fma(|a: bf16, b: bf16, c: bf16| bf16::from_f32(a.to_f32().mul_add(b.to_f32(), c.to_f32()))))
        }
        DType::F32 => Some(lift3_fma(f32::mul_add)),
        DType::F64 => Some(lift3_fma(f64::mul_add)),
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

/// The tile function that moves pointers (i64 offsets) by integers of `dtype`, wrapping in 64 bits.
pub(super) fn add_ptr(dtype: DType) -> Option<Fn2> {
    Some(match dtype {
        DType::I8 => lift2(|p: i64, o: i8| p.wrapping_add(i64::from(o))),
        DType::I16 => lift2(|p: i64, o: i16| p.wrapping_add(i64::from(o))),
        DType::I32 => lift2(|p: i64, o: i32| p.wrapping_add(i64::from(o))),
        DType::I64 => lift2(|p: i64, o: i64| p.wrapping_add(o)),
        DType::U8 => lift2(|p: i64, o: u8| p.wrapping_add(i64::from(o))),
        DType::U16 => lift2(|p: i64, o: u16| p.wrapping_add(i64::from(o))),
        DType::U32 => lift2(|p: i64, o: u32| p.wrapping_add(i64::from(o))),
        DType::U64 => lift2(|p: i64, o: u64| p.wrapping_add_unsigned(o)),
        DType::Bool | DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => {
            return None;
        }
    })
}
