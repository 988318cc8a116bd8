//! Values as bits in memory: types, constants, packing into the words of an instruction.

use kernel_core::ir::{DType, Literal};
use kernel_core::num::{self, F8E4M3, F8E5M2};
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::types::{BasicTypeEnum, FloatType};
use kernel_llvm::inkwell::values::{BasicValueEnum, IntValue};

use super::ir::{Ir, Value};

/// How the bytes of one access are spread over registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Words {
    /// Bits of one register: 8, 16, 32 or 64.
    pub(super) bits: u32,
    /// Registers.
    pub(super) count: u32,
}

impl Words {
    /// The words for `width` elements of `elem_bits` bits: as few as there can be.
    pub(super) fn new(elem_bits: u32, width: u32) -> Words {
        let total = elem_bits * width;
        let bits = if elem_bits == 64 { 64 } else { total.min(32) };
        Words { bits, count: total / bits }
    }

    /// The suffix of an instruction that moves them: `.v4.b32`.
    pub(super) fn suffix(self) -> String {
        match self.count {
            1 => format!(".b{}", self.bits),
            count => format!(".v{count}.b{}", self.bits),
        }
    }

    /// The constraint of one word; a byte sits in a register of 16 bits.
    pub(super) fn constraint(self) -> &'static str {
        match self.bits {
            8 | 16 => "h",
            32 => "r",
            _ => "l",
        }
    }

    /// Bits of the register that holds a word.
    pub(super) fn register_bits(self) -> u32 {
        self.bits.max(16)
    }
}

/// Bits of an element in memory.
pub(super) fn memory_bits(dtype: DType) -> u32 {
    dtype.bytes() * 8
}

impl<'ctx> Ir<'ctx> {
    /// The type of a value in registers.
    pub(super) fn dtype(&self, dtype: DType) -> BasicTypeEnum<'ctx> {
        match dtype {
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => self.float_type(dtype).into(),
            DType::Bool
            | DType::F8E4M3
            | DType::F8E5M2
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::U8
            | DType::U16
            | DType::U32
            | DType::U64 => self.int_type(dtype.bits()).into(),
        }
    }

    /// The type of a float dtype (f32 for others).
    pub(super) fn float_type(&self, dtype: DType) -> FloatType<'ctx> {
        match dtype {
            DType::F16 => self.context.f16_type(),
            DType::BF16 => self.context.bf16_type(),
            DType::F64 => self.context.f64_type(),
            _ => self.context.f32_type(),
        }
    }

    /// A constant, read in a dtype.
    pub(super) fn literal(&self, value: Literal, dtype: DType) -> Value<'ctx> {
        let bits = match value {
            Literal::Bool(value) => u64::from(value),
            Literal::Int(value) => value as u64,
            Literal::Float(bits) => {
                let value = f64::from_bits(bits);
                match dtype {
                    // With one rounding, which the conversions of `half` from f64 do not promise.
                    DType::F16 | DType::BF16 => num::to_bits(Literal::float(value), dtype).unwrap_or_default(),
                    DType::F8E4M3 => u64::from(F8E4M3::from_f64(value).to_bits()),
                    DType::F8E5M2 if value.is_infinite() => {
                        if value > 0.0 {
                            0x7c
                        } else {
                            0xfc
                        }
                    }
                    DType::F8E5M2 => u64::from(F8E5M2::from_f64(value).to_bits()),
                    DType::F32 => u64::from((value as f32).to_bits()),
                    _ => bits,
                }
            }
        };
        let bits = self.int_type(dtype.bits()).const_int(bits, false);
        if dtype.is_float() && !dtype.is_fp8() { self.bitcast(bits, self.float_type(dtype)) } else { bits.into() }
    }

    /// A value as the integer of its bits in memory.
    pub(super) fn to_bits(&self, value: Value<'ctx>) -> IntValue<'ctx> {
        match value {
            BasicValueEnum::IntValue(value) if value.get_type().get_bit_width() == 1 => {
                self.resize(value, self.int_type(8), false)
            }
            BasicValueEnum::IntValue(value) => value,
            BasicValueEnum::FloatValue(value) => {
                let bits = value.get_type().get_bit_width();
                self.int(self.bitcast(value, self.int_type(bits)))
            }
            BasicValueEnum::PointerValue(value) => self.pointer_to_int(value, self.int_type(64)),
            other => {
                self.bug(format!("{other:?} has no place in memory"));
                self.i32(0)
            }
        }
    }

    /// The value of a type whose bits in memory these are.
    pub(super) fn value_of_bits(&self, bits: IntValue<'ctx>, ty: BasicTypeEnum<'ctx>) -> Value<'ctx> {
        match ty {
            BasicTypeEnum::IntType(ty) if ty.get_bit_width() == 1 => {
                self.icmp(IntPredicate::NE, bits, bits.get_type().const_zero()).into()
            }
            BasicTypeEnum::PointerType(ty) => self.int_to_pointer(bits, ty).into(),
            BasicTypeEnum::IntType(_) => bits.into(),
            other => self.bitcast(bits, other),
        }
    }

    /// Packs elements into words, as the register operands of an instruction.
    pub(super) fn pack(&self, elements: &[Value<'ctx>], words: Words) -> Vec<IntValue<'ctx>> {
        let per_word = (elements.len() / words.count as usize).max(1);
        let pack = |group: &[Value<'ctx>]| {
            let bits: Vec<Value> = group.iter().map(|&element| self.to_bits(element).into()).collect();
            let word = self.vector(&bits);
            let word = if per_word > 1 { self.bitcast(word, self.int_type(words.bits)) } else { word };
            self.resize(self.int(word), self.int_type(words.register_bits()), false)
        };
        elements.chunks(per_word).map(pack).collect()
    }

    /// The elements of a type that words hold.
    pub(super) fn unpack(
        &self,
        registers: &[Value<'ctx>],
        words: Words,
        ty: BasicTypeEnum<'ctx>,
        elem_bits: u32,
    ) -> Vec<Value<'ctx>> {
        let per_word = words.bits / elem_bits;
        let unpack = |&register: &Value<'ctx>| {
            let word = self.resize(self.int(register), self.int_type(words.bits), false);
            let elements = if per_word > 1 {
                let vector = self.bitcast(word, self.int_type(elem_bits).vec_type(per_word));
                self.elements(vector, per_word)
            } else {
                vec![word.into()]
            };
            elements.into_iter().map(|bits| self.value_of_bits(self.int(bits), ty)).collect::<Vec<_>>()
        };
        registers.iter().flat_map(unpack).collect()
    }
}
