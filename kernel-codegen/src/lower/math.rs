//! The elementary functions: the algorithms of [`kernel_core::math`] on a machine that emits instructions.

use kernel_core::ir::Subnormals;
use kernel_core::math::{Angle, BinaryMathFn, FastMachine, FloatIntFn, Machine, MathFn, Reduced, double, single};
use kernel_llvm::AsmEffects;
use kernel_llvm::inkwell::types::{FloatType, IntType};
use kernel_llvm::inkwell::values::{FloatValue, IntValue};
use kernel_llvm::inkwell::{FloatPredicate, IntPredicate};

use super::intrinsics::Intrinsic;
use super::ir::{Ir, Value};

/// `function` of an f32.
pub(super) fn apply_f32<'ctx>(ir: &Ir<'ctx>, function: MathFn, x: FloatValue<'ctx>) -> FloatValue<'ctx> {
    single::apply(&F32 { ir }, function, x)
}

/// `function` of an f64.
pub(super) fn apply_f64<'ctx>(ir: &Ir<'ctx>, function: MathFn, x: FloatValue<'ctx>) -> FloatValue<'ctx> {
    double::apply(&F64 { ir }, function, x)
}

/// `function` of two f32.
pub(super) fn apply_binary_f32<'ctx>(
    ir: &Ir<'ctx>,
    function: BinaryMathFn,
    x: FloatValue<'ctx>,
    y: FloatValue<'ctx>,
) -> FloatValue<'ctx> {
    single::apply_binary(&F32 { ir }, function, x, y)
}

/// `function` of two f64.
pub(super) fn apply_binary_f64<'ctx>(
    ir: &Ir<'ctx>,
    function: BinaryMathFn,
    x: FloatValue<'ctx>,
    y: FloatValue<'ctx>,
) -> FloatValue<'ctx> {
    double::apply_binary(&F64 { ir }, function, x, y)
}

/// `function` of an f32 and an i32.
pub(super) fn apply_float_int_f32<'ctx>(
    ir: &Ir<'ctx>,
    function: FloatIntFn,
    x: FloatValue<'ctx>,
    n: IntValue<'ctx>,
) -> FloatValue<'ctx> {
    single::apply_float_int(&F32 { ir }, function, x, n)
}

/// `function` of an f64 and an i32.
pub(super) fn apply_float_int_f64<'ctx>(
    ir: &Ir<'ctx>,
    function: FloatIntFn,
    x: FloatValue<'ctx>,
    n: IntValue<'ctx>,
) -> FloatValue<'ctx> {
    let n = ir.resize(n, ir.context.i64_type(), true);
    double::apply_float_int(&F64 { ir }, function, x, n)
}

/// The functions that reduce an angle.
#[derive(Clone, Copy)]
pub(super) enum Trig {
    Sin,
    Cos,
    Tan,
}

/// `wave` of the f32 or f64 registers of a tile.
///
/// All angles are reduced the short way first, in straight code, and one branch behind them leads to the long way,
/// where each register branches for itself. With a branch per register the loads of a tile could not be issued
/// together: each would be sunk to its use behind the branches of those before it.
pub(super) fn waves<'ctx>(ir: &Ir<'ctx>, wave: Trig, xs: &[FloatValue<'ctx>]) -> Vec<FloatValue<'ctx>> {
    match xs.first().map(|x| x.get_type().get_bit_width()) {
        Some(64) => waves_on(&F64 { ir }, ir, wave, xs),
        Some(_) => waves_on(&F32 { ir }, ir, wave, xs),
        None => Vec::new(),
    }
}

/// The steps of the functions that reduce an angle, whatever the width.
trait Waves: Machine {
    fn angle(&self, x: Self::Float) -> Angle<Self>;
    fn huge_angle(&self, x: Self::Float) -> Reduced<Self>;
    fn of_reduced(&self, wave: Trig, x: Self::Float, reduced: Reduced<Self>) -> Self::Float;
}

fn waves_on<'ctx, M>(m: &M, ir: &Ir<'ctx>, wave: Trig, xs: &[FloatValue<'ctx>]) -> Vec<FloatValue<'ctx>>
where
    M: Waves<Float = FloatValue<'ctx>, Int = IntValue<'ctx>, Bool = IntValue<'ctx>>,
{
    let angles: Vec<Angle<M>> = xs.iter().map(|&x| m.angle(x)).collect();
    let any_huge = angles.iter().fold(ir.bool(false), |any, angle| ir.or(any, angle.huge));
    let parts = |r: &Reduced<M>| [r.high.into(), r.low.into(), r.quadrant.into()];
    let mut reduced: Vec<Value<'ctx>> = angles.iter().flat_map(|angle| parts(&angle.usual)).collect();
    ir.rarely(any_huge, &mut reduced, || {
        let one = |(&x, angle): (_, &Angle<M>)| {
            let usual = Reduced { ..angle.usual };
            parts(&m.rarely(angle.huge, usual, || m.huge_angle(x)))
        };
        xs.iter().zip(&angles).flat_map(one).collect()
    });
    let reduced = reduced.chunks_exact(3).map(|part| Reduced {
        high: ir.float(part[0]),
        low: ir.float(part[1]),
        quadrant: ir.int(part[2]),
    });
    xs.iter().zip(reduced).map(|(&x, reduced)| m.of_reduced(wave, x, reduced)).collect()
}

/// The fast f32 quotient.
pub(super) fn divide_f32<'ctx>(ir: &Ir<'ctx>, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> FloatValue<'ctx> {
    single::divide(&F32 { ir }, a, b)
}

/// [`divide_f32`] where other quotients have the same divisor.
///
/// This is what ptxas makes of `div.full.f32`, with the same result to the bit: both terms are scaled where the
/// reciprocal of the divisor would be subnormal, or the divisor is. Written out, all quotients by one divisor share its
/// scale and its reciprocal, so that each takes two instructions instead of three, and ptxas far less time.
pub(super) fn divide_by_shared_f32<'ctx>(ir: &Ir<'ctx>, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> FloatValue<'ctx> {
    let m = F32 { ir };
    let magnitude = m.abs(b);
    if ir.subnormals == Subnormals::Flushed {
        // There are no tiny ones.
        let huge = m.lt(m.float(HUGE_DIVISOR), magnitude);
        let scale = m.select(huge, m.float(SHRINK), m.float(1.0));
        return m.mul(m.mul(a, scale), m.rcp_approx_ftz(m.mul(b, scale)));
    }
    let (huge, tiny) = (m.lt(m.float(HUGE_DIVISOR), magnitude), m.lt(magnitude, m.float(TINY_DIVISOR)));
    let scale = m.select(huge, m.float(SHRINK), m.float(1.0));
    let scale = m.select(tiny, m.float(GROW), scale);
    m.mul(m.mul(a, scale), m.rcp_approx_ftz(m.mul(b, scale)))
}

/// Divisors above this, 2^126, have subnormal reciprocals.
const HUGE_DIVISOR: f32 = f32::from_bits(0x7e80_0000);
/// Divisors below this, 2^-126, are subnormal.
const TINY_DIVISOR: f32 = f32::MIN_POSITIVE;
/// By how much a quotient's terms are scaled where the divisor is huge.
const SHRINK: f32 = 0.25;
/// By how much a quotient's terms are scaled where the divisor is tiny: 2^24.
const GROW: f32 = 16_777_216.0;

/// Emits f32 instructions.
struct F32<'a, 'ctx> {
    ir: &'a Ir<'ctx>,
}

/// Emits f64 instructions.
struct F64<'a, 'ctx> {
    ir: &'a Ir<'ctx>,
}

impl<'ctx> F32<'_, 'ctx> {
    fn float_type(&self) -> FloatType<'ctx> {
        self.ir.context.f32_type()
    }

    fn int_type(&self) -> IntType<'ctx> {
        self.ir.context.i32_type()
    }
}

impl<'ctx> F64<'_, 'ctx> {
    fn float_type(&self) -> FloatType<'ctx> {
        self.ir.context.f64_type()
    }

    fn int_type(&self) -> IntType<'ctx> {
        self.ir.context.i64_type()
    }
}

/// The exact instructions, which are the same for both widths.
macro_rules! machine {
    ($Machine:ident, $scalar:ty, $functions:ident) => {
        impl<'ctx> Machine for $Machine<'_, 'ctx> {
            type Scalar = $scalar;
            type Float = FloatValue<'ctx>;
            type Int = IntValue<'ctx>;
            type Bool = IntValue<'ctx>;

            fn keeps_subnormals(&self) -> bool {
                // f64 does, whatever the kernel says.
                self.ir.subnormals == Subnormals::Kept || <$scalar>::MAX_EXP > f32::MAX_EXP
            }

            fn float(&self, value: $scalar) -> FloatValue<'ctx> {
                // By its bits, so that no conversion through f64 can touch it.
                let bits = self.int_type().const_int(u64::from(value.to_bits()), false);
                self.from_bits(bits)
            }
            fn int(&self, value: i64) -> IntValue<'ctx> {
                self.int_type().const_int(value as u64, true)
            }
            fn rarely(
                &self,
                condition: IntValue<'ctx>,
                usual: Reduced<Self>,
                unusual: impl FnOnce() -> Reduced<Self>,
            ) -> Reduced<Self> {
                let mut values = vec![usual.high.into(), usual.low.into(), usual.quadrant.into()];
                self.ir.rarely(condition, &mut values, || {
                    let other = unusual();
                    vec![other.high.into(), other.low.into(), other.quadrant.into()]
                });
                Reduced {
                    high: self.ir.float(values[0]),
                    low: self.ir.float(values[1]),
                    quadrant: self.ir.int(values[2]),
                }
            }
            fn add(&self, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.fadd(a, b)
            }
            fn sub(&self, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.fsub(a, b)
            }
            fn mul(&self, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.fmul(a, b)
            }
            fn div(&self, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.fdiv(a, b)
            }
            fn fma(&self, a: FloatValue<'ctx>, b: FloatValue<'ctx>, c: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.float_call(Intrinsic::Fma, &[a, b, c])
            }
            fn sqrt(&self, a: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.float_call(Intrinsic::Sqrt, &[a])
            }
            fn neg(&self, a: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.fneg(a)
            }
            fn abs(&self, a: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.float_call(Intrinsic::Abs, &[a])
            }
            fn copysign(&self, magnitude: FloatValue<'ctx>, sign: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.float_call(Intrinsic::CopySign, &[magnitude, sign])
            }
            fn min(&self, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.float_call(Intrinsic::MinNum, &[a, b])
            }
            fn max(&self, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.float_call(Intrinsic::MaxNum, &[a, b])
            }
            fn lt(&self, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> IntValue<'ctx> {
                self.ir.fcmp(FloatPredicate::OLT, a, b)
            }
            fn eq(&self, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> IntValue<'ctx> {
                self.ir.fcmp(FloatPredicate::OEQ, a, b)
            }
            fn select(&self, c: IntValue<'ctx>, yes: FloatValue<'ctx>, no: FloatValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.float(self.ir.select(c, yes.into(), no.into()))
            }
            fn to_bits(&self, a: FloatValue<'ctx>) -> IntValue<'ctx> {
                self.ir.int(self.ir.bitcast(a, self.int_type()))
            }
            fn from_bits(&self, a: IntValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.float(self.ir.bitcast(a, self.float_type()))
            }
            fn from_int(&self, a: IntValue<'ctx>) -> FloatValue<'ctx> {
                self.ir.int_to_float(a, self.float_type(), true)
            }
            fn iadd(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.add(a, b)
            }
            fn isub(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.sub(a, b)
            }
            fn imul(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.mul(a, b)
            }
            fn umulhi(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.mulhi(a, b, false)
            }
            fn and(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.and(a, b)
            }
            fn or(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.or(a, b)
            }
            fn xor(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.xor(a, b)
            }
            fn shl(&self, a: IntValue<'ctx>, count: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.shl(a, count)
            }
            fn lshr(&self, a: IntValue<'ctx>, count: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.lshr(a, count)
            }
            fn ashr(&self, a: IntValue<'ctx>, count: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.ashr(a, count)
            }
            fn ult(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.icmp(IntPredicate::ULT, a, b)
            }
            fn ieq(&self, a: IntValue<'ctx>, b: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.icmp(IntPredicate::EQ, a, b)
            }
            fn iselect(&self, c: IntValue<'ctx>, yes: IntValue<'ctx>, no: IntValue<'ctx>) -> IntValue<'ctx> {
                self.ir.iselect(c, yes, no)
            }
        }

        impl<'ctx> Waves for $Machine<'_, 'ctx> {
            fn angle(&self, x: Self::Float) -> Angle<Self> {
                $functions::angle(self, x)
            }
            fn huge_angle(&self, x: Self::Float) -> Reduced<Self> {
                $functions::huge_angle(self, x)
            }
            fn of_reduced(&self, wave: Trig, x: Self::Float, reduced: Reduced<Self>) -> Self::Float {
                match wave {
                    Trig::Sin => $functions::sin_of_reduced(self, x, reduced),
                    Trig::Cos => $functions::cos_of_reduced(self, reduced),
                    Trig::Tan => $functions::tan_of_reduced(self, x, reduced),
                }
            }
        }
    };
}

machine!(F32, f32, single);
machine!(F64, f64, double);

/// `ex2.approx.f32` as the instructions that ptxas makes of it: an argument whose result would be subnormal is halved,
/// and the result squared. The code is the same, but ptxas spends a tenth less time on a softmax.
const EX2_WITH_SUBNORMALS: &str = "{\n\t.reg .pred %small;\n\tsetp.lt.f32 %small, $1, 0fC2FC0000;\n\t\
    mov.b32 $0, $1;\n\t@%small mul.rn.f32 $0, $0, 0f3F000000;\n\tex2.approx.ftz.f32 $0, $0;\n\t\
    @%small mul.rn.f32 $0, $0, $0;\n\t}";

impl<'ctx> F32<'_, 'ctx> {
    /// One or the other form of an instruction.
    fn form(&self, kept: &'static str, flushed: &'static str) -> &'static str {
        match self.ir.subnormals {
            Subnormals::Kept => kept,
            Subnormals::Flushed => flushed,
        }
    }

    fn special(&self, instruction: &str, arguments: &[FloatValue<'ctx>]) -> FloatValue<'ctx> {
        let operands = ["$1", "$1, $2"][arguments.len() - 1];
        let constraints = ["=f,f", "=f,f,f"][arguments.len() - 1];
        let values: Vec<_> = arguments.iter().map(|&a| a.into()).collect();
        let results = [self.float_type().into()];
        let assembly = format!("{instruction} $0, {operands};");
        let result = self.ir.asm(&results, &assembly, constraints, &values, AsmEffects::Pure);
        result.first().map_or(arguments[0], |&value| self.ir.float(value))
    }
}

impl<'ctx> FastMachine for F32<'_, 'ctx> {
    fn ex2_approx(&self, a: FloatValue<'ctx>) -> FloatValue<'ctx> {
        if self.ir.subnormals == Subnormals::Flushed {
            return self.ex2_approx_ftz(a);
        }
        let assembly = EX2_WITH_SUBNORMALS;
        let result = self.ir.asm(&[self.float_type().into()], assembly, "=f,f", &[a.into()], AsmEffects::Pure);
        result.first().map_or(a, |&value| self.ir.float(value))
    }
    fn ex2_approx_ftz(&self, a: FloatValue<'ctx>) -> FloatValue<'ctx> {
        self.special("ex2.approx.ftz.f32", &[a])
    }
    fn rcp_approx_ftz(&self, a: FloatValue<'ctx>) -> FloatValue<'ctx> {
        self.special("rcp.approx.ftz.f32", &[a])
    }
    fn rsqrt_approx(&self, a: FloatValue<'ctx>) -> FloatValue<'ctx> {
        self.special(self.form("rsqrt.approx.f32", "rsqrt.approx.ftz.f32"), &[a])
    }
    fn sqrt_approx(&self, a: FloatValue<'ctx>) -> FloatValue<'ctx> {
        self.special(self.form("sqrt.approx.f32", "sqrt.approx.ftz.f32"), &[a])
    }
    fn div_full(&self, a: FloatValue<'ctx>, b: FloatValue<'ctx>) -> FloatValue<'ctx> {
        self.special(self.form("div.full.f32", "div.full.ftz.f32"), &[a, b])
    }
}

impl<'ctx> Ir<'ctx> {
    /// Replaces `values` by what `unusual` emits, behind a branch, where a rare condition holds.
    fn rarely(
        &self,
        condition: IntValue<'ctx>,
        values: &mut [Value<'ctx>],
        unusual: impl FnOnce() -> Vec<Value<'ctx>>,
    ) {
        let Some((before, function)) = self.builder.get_insert_block().and_then(|b| Some((b, b.get_parent()?))) else {
            self.bug("a branch outside every function");
            return;
        };
        let rare = self.context.append_basic_block(function, "rare");
        let after = self.context.append_basic_block(function, "after");
        self.branch_if(condition, rare, after);
        self.builder.position_at_end(rare);
        let others = unusual();
        let last = self.builder.get_insert_block().unwrap_or(rare);
        self.branch(after);
        self.builder.position_at_end(after);
        for (value, other) in values.iter_mut().zip(others) {
            if let Some(phi) = self.phi(value.get_type()) {
                phi.add_incoming(&[(value, before), (&other, last)]);
                *value = phi.as_basic_value();
            }
        }
    }

    /// The upper half of the product of two integers.
    pub(super) fn mulhi(&self, a: IntValue<'ctx>, b: IntValue<'ctx>, signed: bool) -> IntValue<'ctx> {
        let bits = a.get_type().get_bit_width();
        let wide = match bits {
            64 => self.context.i128_type(),
            bits => self.int_type(bits * 2),
        };
        let (x, y) = (self.resize(a, wide, signed), self.resize(b, wide, signed));
        let high = self.lshr(self.mul(x, y), wide.const_int(u64::from(bits), false));
        self.resize(high, a.get_type(), false)
    }
}
