//! Conversions of 8-bit floats, which are bytes in registers: to f32 exactly, from f32 to nearest even, saturating at the
//! largest finite number; NaN stays NaN.
//!
//! From sm_89 on there are instructions; before, the bits are moved to where f32 has them.

use kernel_core::ir::DType;
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::IntPredicate;
use kernel_llvm::inkwell::values::{FloatValue, IntValue};

use super::intrinsics::Intrinsic;
use super::ir::{Ir, Value};

/// The NaN that conversions make, of both formats.
const NAN: u64 = 0x7f;
/// All bits but the sign.
const MAGNITUDE: u64 = 0x7f;

/// The numbers of a format.
struct Format {
    name: &'static str,
    /// Bits of the fraction.
    fraction: u32,
    /// The exponent's bias.
    bias: i32,
    largest: f32,
}

impl Format {
    fn of(dtype: DType) -> Format {
        match dtype {
            DType::F8E5M2 => Format { name: "e5m2", fraction: 2, bias: 15, largest: 57344.0 },
            _ => Format { name: "e4m3", fraction: 3, bias: 7, largest: 448.0 },
        }
    }

    /// Bits of the fraction that f32 has more.
    fn shift(&self) -> i32 {
        23 - self.fraction as i32
    }
}

/// A power of two.
fn power(exponent: i32) -> f64 {
    f64::from(exponent).exp2()
}

impl<'ctx> Ir<'ctx> {
    fn f32(&self, value: f64) -> FloatValue<'ctx> {
        self.context.f32_type().const_float(value)
    }

    fn f32_bits(&self, bits: IntValue<'ctx>) -> FloatValue<'ctx> {
        self.float(self.bitcast(bits, self.context.f32_type()))
    }

    /// The f32 with the value of an 8-bit float.
    pub(super) fn widen_f8(&self, byte: IntValue<'ctx>, dtype: DType) -> FloatValue<'ctx> {
        let format = Format::of(dtype);
        if self.has_f8_conversions {
            let word = self.resize(byte, self.int_type(16), false);
            let assembly = format!("cvt.rn.f16x2.{}x2 $0, $1;", format.name);
            let pair = self.asm(&[self.int_type(32).into()], &assembly, "=r,h", &[word.into()], AsmEffects::Pure);
            let half = self.resize(self.int(pair[0]), self.int_type(16), false);
            let half = self.float(self.bitcast(half, self.context.f16_type()));
            return self.fpext(half, self.context.f32_type());
        }
        let word = self.resize(byte, self.int_type(32), false);
        let sign = self.shl(self.and(word, self.i32(0x80)), self.i32(24));
        let magnitude = self.and(word, self.i32(MAGNITUDE as i32));
        if dtype == DType::F8E5M2 {
            // The upper byte of an f16.
            let half = self.resize(self.shl(word, self.i32(8)), self.int_type(16), false);
            return self.fpext(self.float(self.bitcast(half, self.context.f16_type())), self.context.f32_type());
        }
        // With the bits in their places the exponent is too small by the difference of the biases, for subnormal
        // numbers too, and the product mends it.
        let placed = self.or(sign, self.shl(magnitude, self.i32(format.shift())));
        let scaled = self.fmul(self.f32_bits(placed), self.f32(power(127 - format.bias)));
        let is_nan = self.icmp(IntPredicate::EQ, magnitude, self.i32(NAN as i32));
        self.float(self.select(is_nan, self.f32(f64::NAN).into(), scaled.into()))
    }

    /// The f16 with the values of two 8-bit floats, where there are instructions.
    pub(super) fn widen_f8_pair(&self, bytes: &[Value<'ctx>], dtype: DType) -> Vec<Value<'ctx>> {
        let word = self.bitcast(self.vector(bytes), self.int_type(16));
        let assembly = format!("cvt.rn.f16x2.{}x2 $0, $1;", Format::of(dtype).name);
        let pair = self.asm(&[self.int_type(32).into()], &assembly, "=r,h", &[word], AsmEffects::Pure);
        self.elements(self.bitcast(self.int(pair[0]), self.context.f16_type().vec_type(2)), 2)
    }

    /// The 8-bit floats nearest to up to four f32, which make one word, where there are instructions.
    pub(super) fn narrow_f8_word(&self, values: &[FloatValue<'ctx>], dtype: DType) -> Vec<Value<'ctx>> {
        let arguments: Vec<Value> = values.iter().map(|&value| value.into()).collect();
        // The first operand of an instruction becomes the upper half.
        let name = Format::of(dtype).name;
        let pair = |to: &str, low: u32| format!("cvt.rn.satfinite.{name}x2.f32 {to}, ${}, ${low};", low + 1);
        let (assembly, bits) = match values.len() {
            2 => (pair("$0", 1), 16),
            4 => {
                let halves = format!("{}\n\t{}", pair("low", 1), pair("high", 3));
                (format!("{{\n\t.reg .b16 low, high;\n\t{halves}\n\tmov.b32 $0, {{low, high}};\n}}"), 32)
            }
            _ => return values.iter().map(|&value| self.narrow_f8(value, dtype).into()).collect(),
        };
        let result = if bits == 16 { "=h" } else { "=r" };
        let constraints = format!("{result}{}", ",f".repeat(values.len()));
        let word = self.asm(&[self.int_type(bits).into()], &assembly, &constraints, &arguments, AsmEffects::Pure);
        let bytes = self.int_type(8).vec_type(values.len() as u32);
        self.elements(self.bitcast(self.int(word[0]), bytes), values.len() as u32)
    }

    /// The 8-bit float nearest to an f32.
    pub(super) fn narrow_f8(&self, value: FloatValue<'ctx>, dtype: DType) -> IntValue<'ctx> {
        let format = Format::of(dtype);
        let byte = self.int_type(8);
        if self.has_f8_conversions {
            let assembly = format!("cvt.rn.satfinite.{}x2.f32 $0, 0f00000000, $1;", format.name);
            let pair = self.asm(&[self.int_type(16).into()], &assembly, "=h,f", &[value.into()], AsmEffects::Pure);
            return self.resize(self.int(pair[0]), byte, false);
        }
        let bits = self.int(self.bitcast(value, self.int_type(32)));
        let sign = self.and(self.lshr(bits, self.i32(24)), self.i32(0x80));
        let magnitude = self.float_call(Intrinsic::Abs, &[value]);
        let clamped = self.float_call(Intrinsic::MinNum, &[magnitude, self.f32(f64::from(format.largest))]);
        let clamped_bits = self.int(self.bitcast(clamped, self.int_type(32)));
        // Normal numbers: half a unit is added, less a bit where the last place is even.
        let shift = self.i32(format.shift());
        let odd = self.and(self.lshr(clamped_bits, shift), self.i32(1));
        let half = self.i32((1 << (format.shift() - 1)) - 1);
        let rounded = self.lshr(self.add(self.add(clamped_bits, half), odd), shift);
        let normal = self.sub(rounded, self.i32((127 - format.bias) << format.fraction));
        // Subnormal numbers: the sum with a large number has their unit in its last place.
        let magic = power(24 - format.bias - format.fraction as i32);
        let summed = self.fadd(clamped, self.f32(magic));
        let magic_bits = (magic as f32).to_bits() as i32;
        let subnormal = self.sub(self.int(self.bitcast(summed, self.int_type(32))), self.i32(magic_bits));
        let least = self.i32((power(1 - format.bias) as f32).to_bits() as i32);
        let is_subnormal = self.icmp(IntPredicate::ULT, clamped_bits, least);
        let number = self.or(sign, self.iselect(is_subnormal, subnormal, normal));
        let infinity = self.i32(0x7f80_0000);
        let is_nan = self.icmp(IntPredicate::UGT, self.and(bits, self.i32(i32::MAX)), infinity);
        self.resize(self.iselect(is_nan, self.i32(NAN as i32), number), byte, false)
    }
}
