//! Conversions between dtypes: Rust's `as`, with one rounding to f16 and bf16.

use kernel_core::ir::DType;
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::values::{BasicValueEnum, FloatValue, IntValue};
use kernel_llvm::inkwell::{FloatPredicate, IntPredicate};

use super::intrinsics::Intrinsic;
use super::ir::{Ir, Value};

/// Integers of up to this many bits are f32 exactly.
const EXACT_F32_BITS: u32 = 24;

impl<'ctx> Ir<'ctx> {
    /// A value of dtype `from` as one of dtype `to`.
    pub(super) fn cast(&self, from: DType, to: DType, value: Value<'ctx>) -> Value<'ctx> {
        match (from.is_float(), to.is_float()) {
            _ if from == to => value,
            _ if from.is_fp8() => self.cast(DType::F32, to, self.widen_f8(self.int(value), from).into()),
            // What f32 would round twice: integers, which saturate long before they are inexact, and f64.
            (true, true) if to.is_fp8() => self.narrow_f8(self.to_f32_odd(self.float(value)), to).into(),
            (false, true) if to.is_fp8() => {
                self.narrow_f8(self.int_to_dtype(self.int(value), from, DType::F32), to).into()
            }
            (true, true) => self.float_to_float(self.float(value), to).into(),
            (true, false) => self.float_to_int(self.float(value), to).into(),
            (false, true) => self.int_to_dtype(self.int(value), from, to).into(),
            (false, false) => self.int_to_int(self.int(value), from, to).into(),
        }
    }

    /// Whether a tile's values go from one dtype to the other two at a time: one instruction rounds two f32 to a pair of
    /// narrower floats.
    pub(super) fn narrows_in_pairs(&self, from: DType, to: DType) -> bool {
        match from {
            DType::F32 => matches!(to, DType::F16 | DType::BF16) || (to.is_fp8() && self.has_f8_conversions),
            // f32 has their values.
            DType::F16 | DType::BF16 => to.is_fp8() && self.has_f8_conversions,
            _ => false,
        }
    }

    /// The registers of a tile as narrower floats. Neighbours, which most users pack into one word, are rounded together.
    pub(super) fn narrow_pairs(&self, values: &[Value<'ctx>], to: DType) -> Vec<Value<'ctx>> {
        if to.is_fp8() {
            let wide: Vec<FloatValue> = values.iter().map(|&value| self.widen(self.float(value))).collect();
            return wide.chunks(4).flat_map(|values| self.narrow_f8_word(values, to)).collect();
        }
        let narrow = |pair: &[Value<'ctx>]| match pair {
            [_, _] => {
                let BasicValueEnum::VectorValue(wide) = self.vector(pair) else { return pair.to_vec() };
                self.elements(self.fptrunc_vector(wide, self.float_type(to)).into(), 2)
            }
            others => others.iter().map(|&value| self.cast(DType::F32, to, value)).collect(),
        };
        values.chunks(2).flat_map(narrow).collect()
    }

    /// Whether 8-bit floats are converted two at a time: one instruction gives a pair of f16.
    pub(super) fn widens_in_pairs(&self, from: DType, to: DType) -> bool {
        from.is_fp8() && self.has_f8_conversions && to.is_float() && !to.is_fp8() && to != DType::F64
    }

    /// The 8-bit floats of a tile in a wider dtype. Neighbours, which mostly lie in one word, are converted together.
    pub(super) fn widen_pairs(&self, values: &[Value<'ctx>], from: DType, to: DType) -> Vec<Value<'ctx>> {
        let widen = |pair: &[Value<'ctx>]| match pair {
            [_, _] => {
                let halves = self.widen_f8_pair(pair, from);
                let wide = |half: &Value<'ctx>| match to {
                    DType::F16 => *half,
                    _ => self.cast(DType::F32, to, self.widen(self.float(*half)).into()),
                };
                halves.iter().map(wide).collect()
            }
            others => others.iter().map(|&value| self.cast(from, to, value)).collect::<Vec<_>>(),
        };
        values.chunks(2).flat_map(widen).collect()
    }

    fn int_to_int(&self, value: IntValue<'ctx>, from: DType, to: DType) -> IntValue<'ctx> {
        match to {
            DType::Bool => self.icmp(IntPredicate::NE, value, value.get_type().const_zero()),
            _ => self.resize(value, self.int_type(to.bits()), from.is_signed_int()),
        }
    }

    fn float_to_int(&self, value: FloatValue<'ctx>, to: DType) -> IntValue<'ctx> {
        let wide = self.widen(value);
        if to == DType::Bool {
            return self.fcmp(FloatPredicate::UNE, wide, wide.get_type().const_zero());
        }
        let which = if to.is_signed_int() { Intrinsic::FloatToSigned } else { Intrinsic::FloatToUnsigned };
        let ty = self.int_type(to.bits());
        let result = self.call(which, &[ty.into(), wide.get_type().into()], &[wide.into()]);
        result.map_or(ty.const_zero(), |value| self.int(value))
    }

    fn int_to_dtype(&self, value: IntValue<'ctx>, from: DType, to: DType) -> FloatValue<'ctx> {
        let signed = from.is_signed_int();
        if to != DType::BF16 {
            return self.int_to_float(value, self.float_type(to), signed);
        }
        // Not every target converts integers to bf16, and rounding to f32 first would round twice.
        let single = self.context.f32_type();
        if from.bits() <= EXACT_F32_BITS {
            return self.fptrunc(self.int_to_float(value, single, signed), self.float_type(to));
        }
        let (letter, constraint) = (if signed { 's' } else { 'u' }, if from.bits() == 64 { "l" } else { "r" });
        let assembly = format!("cvt.rz.f32.{letter}{} $0, $1;", from.bits());
        let constraints = format!("=f,{constraint}");
        let cut = self.asm(&[single.into()], &assembly, &constraints, &[value.into()], AsmEffects::Pure);
        let cut = cut.first().map_or(single.const_zero(), |&value| self.float(value));
        let exact = if signed { DType::I64 } else { DType::U64 };
        let back = self.resize(self.float_to_int(cut, exact), value.get_type(), false);
        let inexact = self.icmp(IntPredicate::NE, back, value);
        self.fptrunc(self.odd(cut, inexact), self.float_type(to))
    }

    fn float_to_float(&self, value: FloatValue<'ctx>, to: DType) -> FloatValue<'ctx> {
        let (from_bits, target) = (value.get_type().get_bit_width(), self.float_type(to));
        match (from_bits, to) {
            (16, DType::F16 | DType::BF16) => self.fptrunc(self.widen(value), target),
            (64, DType::BF16) => self.fptrunc(self.to_f32_odd(value), target),
            (from, _) if from < to.bits() => self.fpext(value, target),
            (from, _) if from > to.bits() => self.fptrunc(value, target),
            _ => value,
        }
    }

    /// A float as f32, rounded to odd if that is inexact.
    fn to_f32_odd(&self, value: FloatValue<'ctx>) -> FloatValue<'ctx> {
        if value.get_type().get_bit_width() < 64 {
            return self.widen(value);
        }
        let single = self.context.f32_type();
        let cut = self.asm(&[single.into()], "cvt.rz.f32.f64 $0, $1;", "=f,d", &[value.into()], AsmEffects::Pure);
        let cut = cut.first().map_or(single.const_zero(), |&value| self.float(value));
        let inexact = self.fcmp(FloatPredicate::UNE, self.fpext(cut, value.get_type()), value);
        self.odd(cut, inexact)
    }

    /// An f32 that was rounded towards zero, with its lowest bit set if that was inexact: rounding it again, to far
    /// fewer bits, then gives what one rounding of the exact value gives ("rounding to odd", Boldo and Melquiond).
    fn odd(&self, cut: FloatValue<'ctx>, inexact: IntValue<'ctx>) -> FloatValue<'ctx> {
        let bits = self.int(self.bitcast(cut, self.context.i32_type()));
        let sticky = self.resize(inexact, bits.get_type(), false);
        self.float(self.bitcast(self.or(bits, sticky), cut.get_type()))
    }
}
