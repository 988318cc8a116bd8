//! What the host must know of a dtype: its extremes, and the dtypes that its elements are summed in.

use tilewright::prelude::*;

/// A number, with what reductions and scans need of it.
pub trait Number: Num {
    /// The dtype that kernels add and multiply in: f32 for floats of up to 32 bits, otherwise 64 bits.
    type Wide: Number;
    /// The dtype of a sum: that of the elements for floats, 64 bits for integers.
    type Total: Number;
    /// The unsigned integer of the same width.
    type Bits: Int;
    /// Whether it has negative numbers.
    const SIGNED: bool;
    /// Whether it is a float.
    const FLOAT: bool;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// No number is less: `-inf` where there is one.
    const LOWEST: Self;
    /// No number is greater: `inf` where there is one.
    const HIGHEST: Self;
    /// No element comes behind it in a sorted row: NaN where there is one.
    const LAST: Self;
}

/// A float, with what reductions need of it.
pub trait Real: Float + Number<Wide = <Self as Real>::Sums, Total = Self> {
    /// f64 for f64, f32 for others.
    type Sums: Real;
}

macro_rules! integers {
    ($($dtype:ident $total:ident $bits:ident,)*) => {$(
        impl Number for $dtype {
            type Wide = $total;
            type Total = $total;
            type Bits = $bits;
            const SIGNED: bool = $dtype::MIN != 0;
            const FLOAT: bool = false;
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const LOWEST: Self = $dtype::MIN;
            const HIGHEST: Self = $dtype::MAX;
            const LAST: Self = $dtype::MAX;
        }
    )*};
}

macro_rules! floats {
    ($($dtype:ident $sums:ident $bits:ident $zero:expr, $one:expr, $lowest:expr, $highest:expr, $last:expr;)*) => {$(
        impl Number for $dtype {
            type Wide = $sums;
            type Total = $dtype;
            type Bits = $bits;
            const SIGNED: bool = true;
            const FLOAT: bool = true;
            const ZERO: Self = $zero;
            const ONE: Self = $one;
            const LOWEST: Self = $lowest;
            const HIGHEST: Self = $highest;
            const LAST: Self = $last;
        }
        impl Real for $dtype {
            type Sums = $sums;
        }
    )*};
}

integers!(i8 i64 u8, i16 i64 u16, i32 i64 u32, i64 i64 u64, u8 u64 u8, u16 u64 u16, u32 u64 u32, u64 u64 u64,);

floats! {
    f16 f32 u16 f16::ZERO, f16::ONE, f16::NEG_INFINITY, f16::INFINITY, f16::NAN;
    bf16 f32 u16 bf16::ZERO, bf16::ONE, bf16::NEG_INFINITY, bf16::INFINITY, bf16::NAN;
    f32 f32 u32 0.0, 1.0, f32::NEG_INFINITY, f32::INFINITY, f32::NAN;
    f64 f64 u64 0.0, 1.0, f64::NEG_INFINITY, f64::INFINITY, f64::NAN;
    // e4m3 has no infinity: its extremes are -448 and 448. Conversions to e5m2 saturate at 57344, but its bytes may be
    // infinite.
    F8E4M3 f32 u8 F8E4M3::from_bits(0), F8E4M3::from_bits(0x38), F8E4M3::from_bits(0xFE), F8E4M3::from_bits(0x7E), F8E4M3::from_bits(0x7F);
    F8E5M2 f32 u8 F8E5M2::from_bits(0), F8E5M2::from_bits(0x3C), F8E5M2::from_bits(0xFC), F8E5M2::from_bits(0x7C), F8E5M2::from_bits(0x7F);
}
