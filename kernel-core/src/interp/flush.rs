//! What elementwise operations compute in kernels that flush: f32 takes subnormal numbers for zeros of their sign, where
//! they go into arithmetic and where they come out. bf16 is computed in f32, and flushes with it; f16 and f8 have no
//! number that is subnormal there.
//!
//! Bits that are only moved stay as they are: those of `select`, bitcasts and conversions to narrower floats. So do those
//! beside a sign that `neg`, `abs` and `copysign` change.
//! Elementary functions flush in each of their steps.

use half::bf16;

use crate::ir::{BinaryOp, CmpOp, DType, Subnormals, UnaryOp};
use crate::math::{
    FloatIntFn, evaluate_binary_flushing, evaluate_float_int_flushing, evaluate_flushing, flush, specialise,
    specialise_binary, specialise_float_int,
};
use crate::num;

use super::elementwise::Extremes;
use super::lanes::{
    Fn1, Fn2, Fn3, lift1, lift1_fma, lift1_half, lift2, lift2_fma, lift2_half, lift2_half_compare, lift3_fma,
};
use super::{cast as kept_cast, elementwise as kept, float_int as kept_float_int};

/// Whether arithmetic of that dtype is that of f32, with subnormal numbers.
fn flushes(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::BF16)
}

/// A lift of a function on f32, to f32 or to bf16.
macro_rules! lifted {
    ($dtype:expr, $single:ident, $half:ident, $f:expr) => {
        if $dtype == DType::BF16 { $half::<bf16, _>($f) } else { $single($f) }
    };
}

/// The tile function of a unary operation.
pub(super) fn unary(op: UnaryOp, dtype: DType) -> Option<Fn1> {
    if !flushes(dtype) {
        return kept::unary(op, dtype);
    }
    macro_rules! lift {
        ($f:expr) => {
            lifted!(dtype, lift1_fma, lift1_half, |x: f32| flush($f(flush(x))))
        };
    }
    Some(match op {
        UnaryOp::Neg | UnaryOp::Abs => return kept::unary(op, dtype),
        UnaryOp::Floor => lift!(f32::floor),
        UnaryOp::Ceil => lift!(f32::ceil),
        UnaryOp::Trunc => lift!(f32::trunc),
        UnaryOp::Round => lift!(f32::round),
        UnaryOp::RoundTiesEven => lift!(f32::round_ties_even),
        UnaryOp::SqrtRn => lift!(f32::sqrt),
        UnaryOp::Math(function) => {
            specialise!(function, F => lifted!(dtype, lift1_fma, lift1_half, |x: f32| evaluate_flushing(F, x)))
        }
        UnaryOp::Not | UnaryOp::CountOnes | UnaryOp::LeadingZeros | UnaryOp::TrailingZeros | UnaryOp::ReverseBits => {
            return None;
        }
    })
}

/// The tile function of a binary operation.
pub(super) fn binary(op: BinaryOp, dtype: DType) -> Option<Fn2> {
    if !flushes(dtype) {
        return kept::binary(op, dtype);
    }
    macro_rules! lift {
        ($f:expr) => {
            lifted!(dtype, lift2, lift2_half, |a: f32, b: f32| flush($f(flush(a), flush(b))))
        };
    }
    Some(match op {
        BinaryOp::Add => lift!(|a: f32, b: f32| a + b),
        BinaryOp::Sub => lift!(|a: f32, b: f32| a - b),
        BinaryOp::Mul => lift!(|a: f32, b: f32| a * b),
        BinaryOp::Div | BinaryOp::DivRn => lift!(|a: f32, b: f32| a / b),
        BinaryOp::Rem => lift!(|a: f32, b: f32| a % b),
        BinaryOp::Min => lift!(<f32 as Extremes>::minimum),
        BinaryOp::Max => lift!(<f32 as Extremes>::maximum),
        BinaryOp::MinNan => lift!(<f32 as Extremes>::minimum_nan),
        BinaryOp::MaxNan => lift!(<f32 as Extremes>::maximum_nan),
        BinaryOp::CopySign => return kept::binary(op, dtype),
        BinaryOp::NextAfter => return Some(next_after(dtype)),
        BinaryOp::Math(function) => specialise_binary!(function, F => lifted!(
            dtype, lift2_fma, lift2_half, |a: f32, b: f32| evaluate_binary_flushing(F, a, b)
        )),
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
        | BinaryOp::SaturatingMul => return None,
    })
}

/// The next number in bits, found by comparisons, which flush.
fn next_after(dtype: DType) -> Fn2 {
    if dtype == DType::BF16 {
        return lift2(|a: u16, b: u16| {
            let value = |bits| f64::from(flush(bf16::from_bits(bits).to_f32()));
            num::next_after([u64::from(a), u64::from(b)], [value(a), value(b)], 16) as u16
        });
    }
    lift2(|a: u32, b: u32| {
        let value = |bits| f64::from(flush(f32::from_bits(bits)));
        num::next_after([u64::from(a), u64::from(b)], [value(a), value(b)], 32) as u32
    })
}

/// The tile function of a comparison.
pub(super) fn compare(op: CmpOp, dtype: DType) -> Fn2 {
    if !flushes(dtype) {
        return kept::compare(op, dtype);
    }
    macro_rules! lift {
        ($f:expr) => {
            lifted!(dtype, lift2, lift2_half_compare, |a: f32, b: f32| u8::from($f(&flush(a), &flush(b))))
        };
    }
    match op {
        CmpOp::Eq => lift!(f32::eq),
        CmpOp::Ne => lift!(f32::ne),
        CmpOp::Lt => lift!(f32::lt),
        CmpOp::Le => lift!(f32::le),
        CmpOp::Gt => lift!(f32::gt),
        CmpOp::Ge => lift!(f32::ge),
    }
}

/// The tile function of `fma`.
pub(super) fn fma(dtype: DType) -> Option<Fn3> {
    let fused = |a: f32, b: f32, c: f32| flush(flush(a).mul_add(flush(b), flush(c)));
    match dtype {
        DType::F32 => Some(lift3_fma(move |a: f32, b: f32, c: f32| fused(a, b, c))),
        DType::BF16 => {
            Some(lift3_fma(move |a: bf16, b: bf16, c: bf16| bf16::from_f32(fused(a.to_f32(), b.to_f32(), c.to_f32()))))
        }
        DType::F64
        | DType::F16
        | DType::F8E4M3
        | DType::F8E5M2
        | DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => kept::fma(dtype),
    }
}

/// The tile function that converts elements: between f32 and f64 they are flushed, and so is what is compared with zero.
pub(super) fn cast(source: DType, to: DType) -> Fn1 {
    match (source, to) {
        (DType::F32, DType::F64) => lift1(|x: f32| f64::from(flush(x))),
        (DType::F64, DType::F32) => lift1(|x: f64| flush(x as f32)),
        (DType::F32, DType::Bool) => lift1(|x: f32| u8::from(flush(x) != 0.0)),
        (DType::BF16, DType::Bool) => lift1(|x: bf16| u8::from(flush(x.to_f32()) != 0.0)),
        _ => kept_cast::cast(source, to),
    }
}

/// The tile function of an operation with a float and an i32.
pub(super) fn float_int(op: FloatIntFn, dtype: DType) -> Option<Fn2> {
    match dtype {
        DType::F32 => {
            Some(specialise_float_int!(op, F => lift2_fma(|x: f32, n: i32| evaluate_float_int_flushing(F, x, n))))
        }
        DType::BF16 => Some(specialise_float_int!(op, F => lift2_fma(|x: bf16, n: i32| {
            bf16::from_f32(evaluate_float_int_flushing(F, x.to_f32(), n))
        }))),
        DType::F64
        | DType::F16
        | DType::F8E4M3
        | DType::F8E5M2
        | DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64 => kept_float_int::float_int(op, dtype),
    }
}

/// Where the tile functions of elementwise operations come from, in a kernel.
#[derive(Clone, Copy)]
pub(super) struct Lanes(pub(super) Subnormals);

/// Asks one module or the other.
macro_rules! either {
    ($($name:ident($($argument:ident: $ty:ty),*) -> $result:ty, $kept:path;)*) => {
        impl Lanes {
            $(pub(super) fn $name(self, $($argument: $ty),*) -> $result {
                match self.0 {
                    Subnormals::Kept => $kept($($argument),*),
                    Subnormals::Flushed => $name($($argument),*),
                }
            })*
        }
    };
}

either! {
    unary(op: UnaryOp, dtype: DType) -> Option<Fn1>, kept::unary;
    binary(op: BinaryOp, dtype: DType) -> Option<Fn2>, kept::binary;
    compare(op: CmpOp, dtype: DType) -> Fn2, kept::compare;
    fma(dtype: DType) -> Option<Fn3>, kept::fma;
    cast(source: DType, to: DType) -> Fn1, kept_cast::cast;
    float_int(op: FloatIntFn, dtype: DType) -> Option<Fn2>, kept_float_int::float_int;
}
