//! Elementwise operations, register after register.
//!
//! Integer arithmetic is total: divisors are made harmless before the division and the result is chosen after it,
//! shift counts are masked. f16 and bf16 compute in f32 and round once per operation; LLVM narrows that to native
//! instructions where the result is the same.

use kernel_core::ir::{BinaryOp, CmpOp, DType, ElementwiseOp, Operation, UnaryOp};
use kernel_core::math::MathFn;
use kernel_llvm::inkwell::values::{FloatValue, IntValue};
use kernel_llvm::inkwell::{FloatPredicate, IntPredicate};

use super::intrinsics::Intrinsic;
use super::ir::{Ir, Value};
use super::{Lower, Registers, Result, math};

impl<'ctx> Lower<'_, 'ctx> {
    pub(super) fn elementwise(&mut self, operation: &Operation, op: &ElementwiseOp) -> Result<()> {
        let operands: Vec<_> = operation.operands.iter().map(|&v| self.registers(v)).collect();
        let result = operation.results[0];
        let dtype = self.dtype(operation.operands[0]);
        let to = self.dtype(result);
        let count = self.register_count(result);
        let contract = operation.flags.contract;
        if let Some(wave) = wave(op)
            && let [xs] = &operands[..]
        {
            let ir = &self.ir;
            let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let xs: Vec<_> = xs.iter().map(|&x| ir.float(ir.cast(dtype, wide, x))).collect();
            let results = math::waves(ir, wave, &xs).into_iter();
            let registers = results.map(|y| ir.cast(wide, to, y.into())).collect();
            self.set(result, registers);
            return Ok(());
        }
        if self.in_words[result.index()]
            && let ElementwiseOp::Binary { op } = op
            && let Some(registers) =
                self.in_words(*op, dtype, contract, &operands).or_else(|| self.in_one(*op, operation))
        {
            self.set(result, registers);
            return Ok(());
        }
        if let Some(registers) = self.whole_tile(op, dtype, to, &operands) {
            self.set(result, registers);
            return Ok(());
        }
        // Truth values that are known to be equal (a mask along a vector) are computed once, which LLVM cannot know.
        let leaders = (to == DType::Bool).then(|| self.leaders(result));
        let mut registers: Vec<Value<'ctx>> = Vec::with_capacity(count);
        for index in 0..count {
            if let Some(&known) = leaders.as_ref().and_then(|leaders| registers.get(leaders[index])) {
                registers.push(known);
                continue;
            }
            let arguments: Vec<Value<'ctx>> = operands.iter().filter_map(|v| v.get(index).copied()).collect();
            if arguments.len() != operands.len() {
                self.ir.bug("operands with different numbers of registers");
                break;
            }
            registers.push(self.element(op, dtype, to, contract, &arguments));
        }
        self.set(result, registers);
        Ok(())
    }

    /// The registers of a tile's result where they have something in common: floats that are rounded in pairs, 8-bit floats that
    /// are widened in pairs, and quotients by one divisor.
    fn whole_tile(
        &self,
        op: &ElementwiseOp,
        dtype: DType,
        to: DType,
        operands: &[Registers<'ctx>],
    ) -> Option<Vec<Value<'ctx>>> {
        let ir = &self.ir;
        match (op, operands) {
            (ElementwiseOp::Cast { .. }, [values]) if ir.narrows_in_pairs(dtype, to) => {
                Some(ir.narrow_pairs(values, to))
            }
            (ElementwiseOp::Cast { .. }, [values]) if ir.widens_in_pairs(dtype, to) => {
                Some(ir.widen_pairs(values, dtype, to))
            }
            (ElementwiseOp::Binary { op: BinaryOp::Div }, [values, divisors])
                if matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
                    && divisors.iter().skip(1).any(|divisor| *divisor == divisors[0]) =>
            {
                let quotient = |(&a, &b): (&Value<'ctx>, &Value<'ctx>)| {
                    let (a, b) = (ir.widen(ir.float(a)), ir.widen(ir.float(b)));
                    ir.narrow(math::divide_by_shared_f32(ir, a, b), dtype).into()
                };
                Some(values.iter().zip(divisors.iter()).map(quotient).collect())
            }
            (
                ElementwiseOp::Unary { .. }
                | ElementwiseOp::Binary { .. }
                | ElementwiseOp::FloatInt { .. }
                | ElementwiseOp::Compare { .. }
                | ElementwiseOp::Select
                | ElementwiseOp::Fma
                | ElementwiseOp::Cast { .. }
                | ElementwiseOp::Bitcast { .. },
                _,
            ) => None,
        }
    }

    fn element(&self, op: &ElementwiseOp, dtype: DType, to: DType, contract: bool, a: &[Value<'ctx>]) -> Value<'ctx> {
        let ir = &self.ir;
        let moves = matches!(op, ElementwiseOp::Cast { .. } | ElementwiseOp::Bitcast { .. });
        if let (true, ElementwiseOp::Unary { op: UnaryOp::Neg | UnaryOp::Abs }) = (dtype.is_fp8(), op) {
            // The sign alone: an infinity stays one.
            let (byte, sign) = (ir.int(a[0]), ir.int_type(8).const_int(0x80, false));
            let negates = matches!(op, ElementwiseOp::Unary { op: UnaryOp::Neg });
            return if negates { ir.xor(byte, sign) } else { ir.and(byte, ir.not(sign)) }.into();
        }
        if let (true, ElementwiseOp::Binary { op: BinaryOp::CopySign }) = (dtype.is_fp8(), op) {
            return ir.with_sign(ir.int(a[0]), ir.int(a[1])).into();
        }
        if let ElementwiseOp::Binary { op: BinaryOp::NextAfter } = op {
            return self.next_after(dtype, a[0], a[1]);
        }
        if dtype.is_fp8() && !moves {
            // In f32, with one rounding.
            let floats = if matches!(op, ElementwiseOp::FloatInt { .. }) { 1 } else { a.len() };
            let wide = |(at, &value)| if at < floats { ir.cast(dtype, DType::F32, value) } else { value };
            let wide: Vec<Value> = a.iter().enumerate().map(wide).collect();
            let result = if to.is_fp8() { DType::F32 } else { to };
            let value = self.element(op, DType::F32, result, false, &wide);
            return ir.cast(result, to, value);
        }
        match op {
            ElementwiseOp::Unary { op } if dtype.is_float() => self.float_unary(*op, dtype, a[0]),
            ElementwiseOp::Unary { op } => self.int_unary(*op, dtype, ir.int(a[0])).into(),
            ElementwiseOp::Binary { op } if dtype.is_float() => {
                self.float_binary(*op, dtype, contract, ir.float(a[0]), ir.float(a[1]))
            }
            ElementwiseOp::Binary { op } => self.int_binary(*op, dtype, ir.int(a[0]), ir.int(a[1])).into(),
            ElementwiseOp::FloatInt { op } => {
                let (x, n) = (ir.widen(ir.float(a[0])), ir.int(a[1]));
                let result = match dtype {
                    DType::F64 => math::apply_float_int_f64(ir, *op, x, n),
                    _ => math::apply_float_int_f32(ir, *op, x, n),
                };
                ir.narrow(result, dtype).into()
            }
            ElementwiseOp::Compare { op } => self.compare(*op, dtype, a[0], a[1]).into(),
            ElementwiseOp::Select => ir.select(ir.int(a[0]), a[1], a[2]),
            ElementwiseOp::Fma => {
                let wide = |value: Value<'ctx>| ir.widen(ir.float(value));
                let result = ir.float_call(Intrinsic::Fma, &[wide(a[0]), wide(a[1]), wide(a[2])]);
                ir.narrow(result, dtype).into()
            }
            ElementwiseOp::Cast { .. } => ir.cast(dtype, to, a[0]),
            ElementwiseOp::Bitcast { .. } => {
                let bits = match a[0] {
                    Value::FloatValue(value) => ir.int(ir.bitcast(value, ir.int_type(dtype.bits()))),
                    value => ir.int(value),
                };
                if to.is_float() && !to.is_fp8() { ir.bitcast(bits, ir.float_type(to)) } else { bits.into() }
            }
        }
    }

    /// An operation on two values of a dtype, without flags.
    pub(super) fn binary(&self, op: BinaryOp, dtype: DType, a: Value<'ctx>, b: Value<'ctx>) -> Value<'ctx> {
        self.element(&ElementwiseOp::Binary { op }, dtype, dtype, false, &[a, b])
    }

    fn float_unary(&self, op: UnaryOp, dtype: DType, value: Value<'ctx>) -> Value<'ctx> {
        let ir = &self.ir;
        let narrow = ir.float(value);
        let wide = || ir.widen(narrow);
        let result = match op {
            UnaryOp::Neg => return ir.fneg(narrow).into(),
            UnaryOp::Abs => ir.float_call(Intrinsic::Abs, &[wide()]),
            UnaryOp::Floor => ir.float_call(Intrinsic::Floor, &[wide()]),
            UnaryOp::Ceil => ir.float_call(Intrinsic::Ceil, &[wide()]),
            UnaryOp::Trunc => ir.float_call(Intrinsic::Trunc, &[wide()]),
            UnaryOp::Round => ir.round(wide()),
            UnaryOp::RoundTiesEven => ir.float_call(Intrinsic::RoundEven, &[wide()]),
            UnaryOp::SqrtRn => ir.float_call(Intrinsic::Sqrt, &[wide()]),
            UnaryOp::Math(function) => self.function(function, wide()),
            UnaryOp::Not
            | UnaryOp::CountOnes
            | UnaryOp::LeadingZeros
            | UnaryOp::TrailingZeros
            | UnaryOp::ReverseBits => {
                ir.bug(format!("`{}` of a float", op.name()));
                narrow
            }
        };
        ir.narrow(result, dtype).into()
    }

    fn function(&self, function: MathFn, x: FloatValue<'ctx>) -> FloatValue<'ctx> {
        match x.get_type().get_bit_width() {
            64 => math::apply_f64(&self.ir, function, x),
            _ => math::apply_f32(&self.ir, function, x),
        }
    }

    fn int_unary(&self, op: UnaryOp, dtype: DType, a: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = &self.ir;
        let negated = || ir.sub(a.get_type().const_zero(), a);
        match op {
            UnaryOp::Neg => negated(),
            // The larger of a and -a: MIN stays MIN.
            UnaryOp::Abs if dtype.is_signed_int() => ir.int_call(Intrinsic::SMax, &[a, negated()]),
            UnaryOp::Abs => a,
            UnaryOp::Not => ir.not(a),
            UnaryOp::CountOnes => ir.int_call(Intrinsic::CountOnes, &[a]),
            UnaryOp::LeadingZeros => ir.int_call(Intrinsic::LeadingZeros, &[a, ir.bool(false)]),
            UnaryOp::TrailingZeros => ir.int_call(Intrinsic::TrailingZeros, &[a, ir.bool(false)]),
            UnaryOp::ReverseBits => ir.int_call(Intrinsic::ReverseBits, &[a]),
            UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Trunc
            | UnaryOp::Round
            | UnaryOp::RoundTiesEven
            | UnaryOp::SqrtRn
            | UnaryOp::Math(_) => {
                ir.bug(format!("`{}` of an integer", op.name()));
                a
            }
        }
    }

    fn float_binary(
        &self,
        op: BinaryOp,
        dtype: DType,
        contract: bool,
        a: FloatValue<'ctx>,
        b: FloatValue<'ctx>,
    ) -> Value<'ctx> {
        let ir = &self.ir;
        let (x, y) = (ir.widen(a), ir.widen(b));
        let is_double = dtype == DType::F64;
        let result = match op {
            BinaryOp::Add => ir.contract(ir.fadd(x, y), contract),
            BinaryOp::Sub => ir.contract(ir.fsub(x, y), contract),
            BinaryOp::Mul => ir.contract(ir.fmul(x, y), contract),
            BinaryOp::Div if !is_double => math::divide_f32(ir, x, y),
            BinaryOp::Div | BinaryOp::DivRn => ir.fdiv(x, y),
            BinaryOp::Rem => self.fmod(x, y),
            BinaryOp::Min => ir.float_call(Intrinsic::MinNum, &[x, y]),
            BinaryOp::Max => ir.float_call(Intrinsic::MaxNum, &[x, y]),
            BinaryOp::MinNan => ir.float_call(Intrinsic::Minimum, &[x, y]),
            BinaryOp::MaxNan => ir.float_call(Intrinsic::Maximum, &[x, y]),
            BinaryOp::CopySign => return ir.copysign(a, b).into(),
            BinaryOp::Math(function) if is_double => math::apply_binary_f64(ir, function, x, y),
            BinaryOp::Math(function) => math::apply_binary_f32(ir, function, x, y),
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
            | BinaryOp::NextAfter => {
                ir.bug(format!("`{}` of floats", op.name()));
                x
            }
        };
        ir.narrow(result, dtype).into()
    }

    /// The float next to one on the way to another, in their bits.
    fn next_after(&self, dtype: DType, a: Value<'ctx>, b: Value<'ctx>) -> Value<'ctx> {
        let ir = &self.ir;
        let wide = |value| match dtype {
            DType::F64 => ir.float(value),
            _ => ir.float(ir.cast(dtype, DType::F32, value)),
        };
        let ty = ir.int_type(dtype.bits());
        let bits = |value: Value<'ctx>| if dtype.is_fp8() { ir.int(value) } else { ir.int(ir.bitcast(value, ty)) };
        let (x, y, a, b) = (wide(a), wide(b), bits(a), bits(b));
        let (zero, one) = (x.get_type().const_zero(), ty.const_int(1, false));
        let is = |predicate, x, y| ir.fcmp(predicate, x, y);
        let outwards = ir.icmp(IntPredicate::EQ, is(FloatPredicate::OLT, x, y), is(FloatPredicate::OGT, x, zero));
        let next = ir.iselect(outwards, ir.add(a, one), ir.sub(a, one));
        let smallest = ir.with_sign(one, b);
        let next = ir.iselect(is(FloatPredicate::OEQ, x, zero), smallest, next);
        let next = ir.iselect(is(FloatPredicate::OEQ, x, y), b, next);
        let next = ir.iselect(is(FloatPredicate::UNO, y, y), b, next);
        let next = ir.iselect(is(FloatPredicate::UNO, x, x), a, next);
        if dtype.is_fp8() { next.into() } else { ir.bitcast(next, ir.float_type(dtype)) }
    }

    fn int_binary(&self, op: BinaryOp, dtype: DType, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
        let ir = &self.ir;
        let signed = dtype.is_signed_int();
        let count = || ir.and(b, b.get_type().const_int(u64::from(dtype.bits() - 1), false));
        match op {
            BinaryOp::Add if self.addresses_beside_sums => ir.sum(a, b),
            BinaryOp::Add => ir.add(a, b),
            BinaryOp::Sub => ir.sub(a, b),
            BinaryOp::Mul if self.addresses_beside_sums => ir.product(a, b),
            BinaryOp::Mul => ir.mul(a, b),
            BinaryOp::Div => {
                let quotient = ir.divide(a, ir.safe_divisor(a, b, signed), signed);
                ir.iselect(ir.is_zero(b), a.get_type().const_zero(), quotient)
            }
            BinaryOp::Rem => {
                let divisor = ir.safe_divisor(a, b, signed);
                let rest = if signed { ir.srem(a, divisor) } else { ir.urem(a, divisor) };
                ir.iselect(ir.is_zero(b), a, rest)
            }
            BinaryOp::Min | BinaryOp::MinNan if signed => ir.int_call(Intrinsic::SMin, &[a, b]),
            BinaryOp::Min | BinaryOp::MinNan => ir.int_call(Intrinsic::UMin, &[a, b]),
            BinaryOp::Max | BinaryOp::MaxNan if signed => ir.int_call(Intrinsic::SMax, &[a, b]),
            BinaryOp::Max | BinaryOp::MaxNan => ir.int_call(Intrinsic::UMax, &[a, b]),
            BinaryOp::And => ir.and(a, b),
            BinaryOp::Or => ir.or(a, b),
            BinaryOp::Xor => ir.xor(a, b),
            BinaryOp::Shl => ir.shl(a, count()),
            BinaryOp::Shr if signed => ir.ashr(a, count()),
            BinaryOp::Shr => ir.lshr(a, count()),
            BinaryOp::Umulhi => ir.mulhi(a, b, false),
            BinaryOp::Mulhi => ir.mulhi(a, b, signed),
            BinaryOp::RotateLeft => ir.int_call(Intrinsic::FunnelShiftLeft, &[a, a, b]),
            BinaryOp::RotateRight => ir.int_call(Intrinsic::FunnelShiftRight, &[a, a, b]),
            BinaryOp::SaturatingAdd if signed => ir.int_call(Intrinsic::SaturatingAddSigned, &[a, b]),
            BinaryOp::SaturatingAdd => ir.int_call(Intrinsic::SaturatingAddUnsigned, &[a, b]),
            BinaryOp::SaturatingSub if signed => ir.int_call(Intrinsic::SaturatingSubSigned, &[a, b]),
            BinaryOp::SaturatingSub => ir.int_call(Intrinsic::SaturatingSubUnsigned, &[a, b]),
            BinaryOp::SaturatingMul => ir.saturating_mul(a, b, signed),
            BinaryOp::DivRn | BinaryOp::CopySign | BinaryOp::NextAfter | BinaryOp::Math(_) => {
                ir.bug(format!("`{}` of integers", op.name()));
                a
            }
        }
    }

    fn compare(&self, op: CmpOp, dtype: DType, a: Value<'ctx>, b: Value<'ctx>) -> IntValue<'ctx> {
        let ir = &self.ir;
        if let (Value::FloatValue(a), Value::FloatValue(b)) = (a, b) {
            let predicate = match op {
                CmpOp::Eq => FloatPredicate::OEQ,
                CmpOp::Ne => FloatPredicate::UNE,
                CmpOp::Lt => FloatPredicate::OLT,
                CmpOp::Le => FloatPredicate::OLE,
                CmpOp::Gt => FloatPredicate::OGT,
                CmpOp::Ge => FloatPredicate::OGE,
            };
            return ir.fcmp(predicate, ir.widen(a), ir.widen(b));
        }
        // Pointers into one buffer compare as their offsets do.
        let is_pointer = matches!(a, Value::PointerValue(_));
        let signed = dtype.is_signed_int() || is_pointer;
        let number = |value: Value<'ctx>| if is_pointer { ir.to_bits(value) } else { ir.int(value) };
        let predicate = match (op, signed) {
            (CmpOp::Eq, _) => IntPredicate::EQ,
            (CmpOp::Ne, _) => IntPredicate::NE,
            (CmpOp::Lt, true) => IntPredicate::SLT,
            (CmpOp::Le, true) => IntPredicate::SLE,
            (CmpOp::Gt, true) => IntPredicate::SGT,
            (CmpOp::Ge, true) => IntPredicate::SGE,
            (CmpOp::Lt, false) => IntPredicate::ULT,
            (CmpOp::Le, false) => IntPredicate::ULE,
            (CmpOp::Gt, false) => IntPredicate::UGT,
            (CmpOp::Ge, false) => IntPredicate::UGE,
        };
        ir.icmp(predicate, number(a), number(b))
    }
}

/// The operations that are lowered for all registers of a tile together.
fn wave(op: &ElementwiseOp) -> Option<math::Trig> {
    match op {
        ElementwiseOp::Unary { op: UnaryOp::Math(MathFn::Sin) } => Some(math::Trig::Sin),
        ElementwiseOp::Unary { op: UnaryOp::Math(MathFn::Cos) } => Some(math::Trig::Cos),
        ElementwiseOp::Unary { op: UnaryOp::Math(MathFn::Tan) } => Some(math::Trig::Tan),
        ElementwiseOp::Unary { .. }
        | ElementwiseOp::Binary { .. }
        | ElementwiseOp::FloatInt { .. }
        | ElementwiseOp::Compare { .. }
        | ElementwiseOp::Select
        | ElementwiseOp::Fma
        | ElementwiseOp::Cast { .. }
        | ElementwiseOp::Bitcast { .. } => None,
    }
}

impl<'ctx> Ir<'ctx> {
    /// f16 and bf16 as f32; f32 and f64 as they are.
    pub(super) fn widen(&self, value: FloatValue<'ctx>) -> FloatValue<'ctx> {
        match value.get_type().get_bit_width() {
            16 => self.fpext(value, self.context.f32_type()),
            _ => value,
        }
    }

    /// The result of arithmetic in f32, rounded to f16 or bf16; f32 and f64 as they are.
    pub(super) fn narrow(&self, value: FloatValue<'ctx>, dtype: DType) -> FloatValue<'ctx> {
        match dtype {
            DType::F16 | DType::BF16 => self.fptrunc(value, self.float_type(dtype)),
            _ => value,
        }
    }

    /// Rounded to an integral f32 or f64, halves away from zero: what the largest number below one half is added to,
    /// away from zero, goes beyond the next integral value only from its half on.
    fn round(&self, x: FloatValue<'ctx>) -> FloatValue<'ctx> {
        let below_half = match x.get_type().get_bit_width() {
            64 => 0.5_f64.next_down(),
            _ => f64::from(0.5_f32.next_down()),
        };
        let below_half = self.float_call(Intrinsic::CopySign, &[x.get_type().const_float(below_half), x]);
        self.float_call(Intrinsic::Trunc, &[self.fadd(x, below_half)])
    }

    /// The magnitude of one number with the sign of another. Of f16 and bf16 in their bits: as f32 a NaN has no sign.
    fn copysign(&self, magnitude: FloatValue<'ctx>, sign: FloatValue<'ctx>) -> FloatValue<'ctx> {
        match magnitude.get_type().get_bit_width() {
            16 => {
                let bits = |value| self.int(self.bitcast(value, self.int_type(16)));
                let bits = self.with_sign(bits(magnitude), bits(sign));
                self.float(self.bitcast(bits, magnitude.get_type()))
            }
            _ => self.float_call(Intrinsic::CopySign, &[magnitude, sign]),
        }
    }

    /// The bits of one number with the highest bit of another.
    fn with_sign(&self, magnitude: IntValue<'ctx>, sign: IntValue<'ctx>) -> IntValue<'ctx> {
        let ty = magnitude.get_type();
        let highest = ty.const_int(1 << (ty.get_bit_width() - 1), false);
        self.or(self.and(magnitude, self.not(highest)), self.and(sign, highest))
    }

    /// The product, or the limit on its side of zero where its upper half is more than the sign of the lower.
    fn saturating_mul(&self, a: IntValue<'ctx>, b: IntValue<'ctx>, signed: bool) -> IntValue<'ctx> {
        let ty = a.get_type();
        let (low, high) = (self.mul(a, b), self.mulhi(a, b, signed));
        let sign = ty.const_int(u64::from(ty.get_bit_width() - 1), false);
        let ones = ty.const_all_ones();
        if !signed {
            return self.iselect(self.is_zero(high), low, ones);
        }
        let fits = self.icmp(IntPredicate::EQ, high, self.ashr(low, sign));
        let largest = self.lshr(ones, ty.const_int(1, false));
        let limit = self.xor(self.ashr(self.xor(a, b), sign), largest);
        self.iselect(fits, low, limit)
    }

    fn is_zero(&self, value: IntValue<'ctx>) -> IntValue<'ctx> {
        self.icmp(IntPredicate::EQ, value, value.get_type().const_zero())
    }

    pub(super) fn divide(&self, a: IntValue<'ctx>, b: IntValue<'ctx>, signed: bool) -> IntValue<'ctx> {
        if signed { self.sdiv(a, b) } else { self.udiv(a, b) }
    }

    /// The divisor, or 1 where the division would be undefined: by zero, and MIN by -1 (whose quotient by 1 is MIN
    /// and whose remainder is 0, as they should be).
    fn safe_divisor(&self, a: IntValue<'ctx>, b: IntValue<'ctx>, signed: bool) -> IntValue<'ctx> {
        let ty = b.get_type();
        let mut undefined = self.is_zero(b);
        if signed {
            let min = ty.const_int(1 << (ty.get_bit_width() - 1), false);
            let is_min = self.icmp(IntPredicate::EQ, a, min);
            let is_minus_one = self.icmp(IntPredicate::EQ, b, ty.const_all_ones());
            undefined = self.or(undefined, self.and(is_min, is_minus_one));
        }
        self.iselect(undefined, ty.const_int(1, false), b)
    }
}
