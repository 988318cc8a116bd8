//! The exact float remainder, C's `fmod`.
//!
//! `a - trunc(a / b) * b` is exact only while the quotient is small. Here the divisor is scaled up by a power of two
//! until it is, the remainder by the scaled divisor is taken (a fused multiply-add has no rounding error there,
//! because the remainder is a multiple of the divisor's last bit and not larger than the divisor), and so on downwards.
//! For quotients below 2^22 (2^51 for f64) the loop runs once.

use kernel_llvm::inkwell::FloatPredicate;
use kernel_llvm::inkwell::values::FloatValue;

use super::Lower;
use super::intrinsics::Intrinsic;

impl<'ctx> Lower<'_, 'ctx> {
    /// `x - n * y` for the integer `n` nearest to `x / y` that is not beyond it; NaN where y is 0 or x is infinite.
    pub(super) fn fmod(&self, x: FloatValue<'ctx>, y: FloatValue<'ctx>) -> FloatValue<'ctx> {
        let ir = &self.ir;
        let ty = x.get_type();
        // Quotients below `limit` have an integer part that is exact; `step` keeps scaled quotients above 1.
        let (limit, step) = if ty.get_bit_width() == 64 { (51, 48) } else { (22, 19) };
        let power = |exponent: i32| ty.const_float(2f64.powi(exponent));
        let (limit, step) = (power(limit), power(step));
        let (zero, one, infinity) = (ty.const_zero(), ty.const_float(1.0), ty.const_float(f64::INFINITY));
        let (a, b) = (ir.float_call(Intrinsic::Abs, &[x]), ir.float_call(Intrinsic::Abs, &[y]));
        let valid = ir.and(ir.fcmp(FloatPredicate::OGT, b, zero), ir.fcmp(FloatPredicate::OLT, a, infinity));
        let pick = |yes: FloatValue<'ctx>, no: FloatValue<'ctx>| ir.float(ir.select(valid, yes.into(), no.into()));
        let (first, b) = (pick(a, zero), pick(b, one));

        let block = |name| ir.context.append_basic_block(self.blocks.function, name);
        let (outer, scale, reduce, done) = (block("fmod"), block("scale"), block("reduce"), block("fmod.end"));
        let Some(here) = ir.builder.get_insert_block() else { return x };
        ir.branch(outer);

        ir.builder.position_at_end(outer);
        let Some(rest) = ir.phi(ty.into()) else { return x };
        let a = ir.float(rest.as_basic_value());
        ir.branch_if(ir.fcmp(FloatPredicate::OGE, a, b), scale, done);

        ir.builder.position_at_end(scale);
        let Some(scaled) = ir.phi(ty.into()) else { return x };
        let divisor = ir.float(scaled.as_basic_value());
        let quotient = ir.fdiv(a, divisor);
        let larger = ir.fmul(divisor, step);
        scaled.add_incoming(&[(&b, outer), (&larger, scale)]);
        ir.branch_if(ir.fcmp(FloatPredicate::OGE, quotient, limit), scale, reduce);

        ir.builder.position_at_end(reduce);
        let whole = ir.float_call(Intrinsic::Trunc, &[quotient]);
        let rest_now = ir.float_call(Intrinsic::Fma, &[ir.fneg(whole), divisor, a]);
        // The quotient may have been rounded up to the next integer.
        let negative = ir.fcmp(FloatPredicate::OLT, rest_now, zero);
        let corrected = ir.fadd(rest_now, divisor);
        let next = ir.float(ir.select(negative, corrected.into(), rest_now.into()));
        rest.add_incoming(&[(&first, here), (&next, reduce)]);
        ir.branch(outer);

        ir.builder.position_at_end(done);
        let result = ir.float_call(Intrinsic::CopySign, &[a, x]);
        let nan = ty.const_float(f64::NAN);
        ir.float(ir.select(valid, result.into(), nan.into()))
    }
}
