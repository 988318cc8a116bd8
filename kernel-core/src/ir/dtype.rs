//! Element types of tiles, scalars and buffers.

use std::fmt;

/// The element type of a scalar, a tile or a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum DType {
    /// A truth value. One byte (0 or 1) in memory.
    Bool,
    /// 8-bit signed integer.
    I8,
    /// 16-bit signed integer.
    I16,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// 8-bit unsigned integer.
    U8,
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit unsigned integer.
    U64,
    /// 8-bit float with 4 bits of exponent and 3 of fraction, without infinities (`e4m3fn`).
    F8E4M3,
    /// 8-bit float with 5 bits of exponent and 2 of fraction.
    F8E5M2,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl DType {
    /// Every dtype, in the order of the enum.
    pub const ALL: [DType; 15] = [
        DType::Bool,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::F16,
        DType::BF16,
        DType::F32,
        DType::F64,
    ];

    /// The Rust spelling, which is also the spelling in kernels and in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }

    /// The dtype of that name, if there is one.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// The size of an element in memory, in bytes. It is also its alignment.
    #[inline]
    pub const fn size(self) -> usize {
        self.bytes() as usize
    }

    /// [`DType::size`] as a `u32`.
    #[inline]
    pub const fn bytes(self) -> u32 {
        match self {
            DType::Bool | DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// Width of the value in bits: 1 for `bool`, else eight times [`DType::bytes`].
    pub fn bits(self) -> u32 {
        if self == DType::Bool { 1 } else { self.bytes() * 8 }
    }

    /// f8e4m3, f8e5m2, f16, bf16, f32 or f64.
    #[inline]
    pub fn is_float(self) -> bool {
        self.is_fp8() || matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// f8e4m3 or f8e5m2.
    #[inline]
    pub fn is_fp8(self) -> bool {
        matches!(self, DType::F8E4M3 | DType::F8E5M2)
    }

    /// A signed or unsigned integer (`bool` is not one).
    #[inline]
    pub fn is_int(self) -> bool {
        !self.is_float() && self != DType::Bool
    }

    /// The dtype in which sums of many values of this dtype are kept, `T::Acc` in kernels: one that adding them does not
    /// leave at once, and in which `dot` can sum.
    ///
    /// ```
    /// use kernel_core::ir::DType;
    ///
    /// assert_eq!(DType::BF16.accumulator(), DType::F32);
    /// assert_eq!(DType::U8.accumulator(), DType::I32);
    /// assert_eq!(DType::F64.accumulator(), DType::F64);
    /// ```
    pub const fn accumulator(self) -> DType {
        match self {
            DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 | DType::F32 => DType::F32,
            DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 => DType::I32,
            DType::I64 | DType::U32 | DType::U64 | DType::F64 => self,
        }
    }

    /// A signed integer.
    pub fn is_signed_int(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// Smallest value of an integer dtype; 0 for `bool` and for floats.
    pub fn int_min(self) -> i128 {
        if self.is_signed_int() { -(1i128 << (self.bits() - 1)) } else { 0 }
    }

    /// Largest value of an integer dtype; 1 for `bool`, 0 for floats.
    pub fn int_max(self) -> i128 {
        if self.is_float() {
            0
        } else if self.is_signed_int() {
            (1i128 << (self.bits() - 1)) - 1
        } else {
            (1i128 << self.bits()) - 1
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The bound of a dtype parameter (`T: Num`), which says what may be done with its values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DTypeBound {
    /// Any dtype, `bool` included: load, store, select, compare for equality.
    DType,
    /// Integers and floats.
    Num,
    /// Integers.
    Int,
    /// Floats.
    Float,
    /// Signed integers and floats.
    Signed,
}

impl DTypeBound {
    /// Every bound.
    pub const ALL: [DTypeBound; 5] =
        [DTypeBound::DType, DTypeBound::Num, DTypeBound::Int, DTypeBound::Float, DTypeBound::Signed];

    /// The name of the trait.
    pub fn name(self) -> &'static str {
        match self {
            DTypeBound::DType => "DType",
            DTypeBound::Num => "Num",
            DTypeBound::Int => "Int",
            DTypeBound::Float => "Float",
            DTypeBound::Signed => "Signed",
        }
    }

    /// The bound of that name, if there is one.
    pub fn from_name(name: &str) -> Option<DTypeBound> {
        DTypeBound::ALL.into_iter().find(|b| b.name() == name)
    }

    /// What the accumulators of dtypes that satisfy this bound satisfy.
    pub fn of_accumulator(self) -> DTypeBound {
        match self {
            DTypeBound::DType => DTypeBound::Num,
            DTypeBound::Num | DTypeBound::Int | DTypeBound::Float | DTypeBound::Signed => self,
        }
    }

    /// Whether `dtype` satisfies this bound.
    pub fn admits(self, dtype: DType) -> bool {
        match self {
            DTypeBound::DType => true,
            DTypeBound::Num => dtype != DType::Bool,
            DTypeBound::Int => dtype.is_int(),
            DTypeBound::Float => dtype.is_float(),
            DTypeBound::Signed => dtype.is_float() || dtype.is_signed_int(),
        }
    }
}
