//! The instruction sets that the elementary functions are written in.
//!
//! [`Machine`] is the scalar arithmetic of one float width: everything on it is a single
//! instruction of every GPU and CPU (a handful at most) and exactly defined, so two
//! implementations agree bit for bit. [`FastMachine`] adds the approximation instructions of a
//! GPU's special function unit, which exist for f32 only and which are defined up to a stated
//! error.
//!
//! An implementation over an instruction *builder* emits one instruction per call; an
//! implementation over numbers ([`Host`](super::Host)) computes. The algorithms cannot tell the
//! difference: they never look at a value, so they cannot branch on one.
//!
//! ```
//! use kernel_core::math::{Host, Machine};
//!
//! /// x² + 1 with one rounding, for any machine of any width.
//! fn square_plus_one<M: Machine>(m: &M, x: M::Float, one: M::Scalar) -> M::Float {
//!     let one = m.float(one);
//!     m.fma(x, x, one)
//! }
//! assert_eq!(square_plus_one(&Host::<f32>::new(), 3.0, 1.0), 10.0);
//! assert_eq!(square_plus_one(&Host::<f64>::new(), 3.0, 1.0), 10.0);
//! ```
//!
//! # What an implementation owes
//!
//! - Float operations round once, to nearest even, and keep subnormals, unless
//!   [`keeps_subnormals`](Machine::keeps_subnormals) says otherwise. **No fast-math flags**
//!   (no `contract`, `reassoc`, `nnan`, `ninf`, `nsz`, `arcp`, `afn`): the algorithms recover
//!   rounding errors by subtracting sums that are equal in real arithmetic.
//! - Integer operations wrap; no `nsw`, `nuw` or `exact`. Shift counts are always below the
//!   width, whatever the argument of the function.
//! - `from_int` only meets integers that the float type holds exactly.
//! - Both arms of a `select` are evaluated and may hold any value, NaN included.

/// The exact scalar instructions of one float width.
///
/// The signed and unsigned integers of that width share the type [`Int`](Self::Int): operations
/// where the sign matters say it in their names.
#[expect(clippy::wrong_self_convention, reason = "the receiver is the machine that executes, not what is converted")]
pub trait Machine {
    /// The Rust type of constants: `f32` or `f64`.
    type Scalar: Copy;
    /// A float value.
    type Float: Copy;
    /// An integer as wide as the float.
    type Int: Copy;
    /// A truth value.
    type Bool: Copy;

    /// Whether arithmetic keeps subnormal numbers. If not, it takes them for zeros, and what only serves them is left out.
    fn keeps_subnormals(&self) -> bool {
        true
    }

    /// A float constant.
    fn float(&self, value: Self::Scalar) -> Self::Float;
    /// An integer constant: the low bits of `value`.
    fn int(&self, value: i64) -> Self::Int;

    /// `a + b`.
    fn add(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a - b`.
    fn sub(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a * b`.
    fn mul(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a / b`, correctly rounded (PTX `div.rn`).
    fn div(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// `a * b + c` with one rounding.
    fn fma(&self, a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
    /// The square root, correctly rounded (PTX `sqrt.rn`).
    fn sqrt(&self, a: Self::Float) -> Self::Float;
    /// `-a`: flips the sign bit.
    fn neg(&self, a: Self::Float) -> Self::Float;
    /// `|a|`: clears the sign bit.
    fn abs(&self, a: Self::Float) -> Self::Float;
    /// The magnitude of `magnitude` with the sign bit of `sign`.
    fn copysign(&self, magnitude: Self::Float, sign: Self::Float) -> Self::Float;
    /// The smaller; the number if one of the two is a NaN (LLVM `minnum`, PTX `min`).
    fn min(&self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// The larger; the number if one of the two is a NaN (LLVM `maxnum`, PTX `max`).
    fn max(&self, a: Self::Float, b: Self::Float) -> Self::Float;

    /// `a < b`, false on NaN (`fcmp olt`).
    fn lt(&self, a: Self::Float, b: Self::Float) -> Self::Bool;
    /// `a == b`, false on NaN (`fcmp oeq`).
    fn eq(&self, a: Self::Float, b: Self::Float) -> Self::Bool;
    /// `if condition { yes } else { no }`.
    fn select(&self, condition: Self::Bool, yes: Self::Float, no: Self::Float) -> Self::Float;

    /// The bit pattern of a float.
    fn to_bits(&self, a: Self::Float) -> Self::Int;
    /// The float of a bit pattern.
    fn from_bits(&self, a: Self::Int) -> Self::Float;
    /// A signed integer as a float.
    fn from_int(&self, a: Self::Int) -> Self::Float;

    /// `a + b`.
    fn iadd(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// `a - b`.
    fn isub(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// The low half of the product.
    fn imul(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// The high half of the unsigned product (PTX `mul.hi.u32`, `mul.hi.u64`).
    fn umulhi(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Bitwise and.
    fn and(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Bitwise or.
    fn or(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Bitwise exclusive or.
    fn xor(&self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Shift left.
    fn shl(&self, a: Self::Int, count: Self::Int) -> Self::Int;
    /// Logical shift right: fills with zeros.
    fn lshr(&self, a: Self::Int, count: Self::Int) -> Self::Int;
    /// Arithmetic shift right: fills with the sign.
    fn ashr(&self, a: Self::Int, count: Self::Int) -> Self::Int;
    /// `a < b` as unsigned integers.
    fn ult(&self, a: Self::Int, b: Self::Int) -> Self::Bool;
    /// `a == b`.
    fn ieq(&self, a: Self::Int, b: Self::Int) -> Self::Bool;
    /// `if condition { yes } else { no }` on integers.
    fn iselect(&self, condition: Self::Bool, yes: Self::Int, no: Self::Int) -> Self::Int;

    /// `usual`, or the values of `unusual` where the rare condition holds.
    ///
    /// The default evaluates both and selects, which keeps the code straight. A machine that
    /// can branch cheaply overrides this: `unusual` is long (82 instructions for f32) and its
    /// condition is false for ordinary arguments.
    fn rarely(
        &self,
        condition: Self::Bool,
        usual: Reduced<Self>,
        unusual: impl FnOnce() -> Reduced<Self>,
    ) -> Reduced<Self> {
        let other = unusual();
        Reduced {
            high: self.select(condition, other.high, usual.high),
            low: self.select(condition, other.low, usual.low),
            quadrant: self.iselect(condition, other.quadrant, usual.quadrant),
        }
    }

    /// Shift left by a constant.
    fn shl_by(&self, a: Self::Int, count: u32) -> Self::Int {
        self.shl(a, self.int(i64::from(count)))
    }
    /// Logical shift right by a constant.
    fn lshr_by(&self, a: Self::Int, count: u32) -> Self::Int {
        self.lshr(a, self.int(i64::from(count)))
    }
    /// Arithmetic shift right by a constant.
    fn ashr_by(&self, a: Self::Int, count: u32) -> Self::Int {
        self.ashr(a, self.int(i64::from(count)))
    }
}

/// The approximation instructions of a GPU's special function unit, f32 only.
///
/// Their errors are the hardware's; the bounds below come from the PTX manual and the accuracy
/// table of the CUDA programming guide. [`Host`](super::Host) computes each in f64 and rounds
/// once, so the interpreter is the more accurate of the two.
pub trait FastMachine: Machine<Scalar = f32> {
    /// 2^a with subnormal results kept: PTX `ex2.approx.f32`, at most 2 ulp.
    fn ex2_approx(&self, a: Self::Float) -> Self::Float;
    /// 2^a, subnormal arguments and results flushed to zero: PTX `ex2.approx.ftz.f32`.
    /// One instruction in hardware where [`ex2_approx`](Self::ex2_approx) takes four.
    fn ex2_approx_ftz(&self, a: Self::Float) -> Self::Float;
    /// 1/a, subnormal arguments and results flushed to zero: PTX `rcp.approx.ftz.f32`, 1 ulp.
    fn rcp_approx_ftz(&self, a: Self::Float) -> Self::Float;
    /// 1/√a: PTX `rsqrt.approx.f32`, relative error 2^-22.9.
    fn rsqrt_approx(&self, a: Self::Float) -> Self::Float;
    /// √a: PTX `sqrt.approx.f32`, relative error 2^-23.
    fn sqrt_approx(&self, a: Self::Float) -> Self::Float;
    /// a/b: PTX `div.full.f32`, 2 ulp over the whole range.
    fn div_full(&self, a: Self::Float, b: Self::Float) -> Self::Float;
}

/// An angle that is reduced the short way, which serves nearly always.
pub struct Angle<M: Machine + ?Sized> {
    /// What the short way gives.
    pub usual: Reduced<M>,
    /// Whether the angle is too large for it: then `usual` means nothing.
    pub huge: M::Bool,
}

/// An angle as `quadrant · π/2 + high + low`, with `|high| ≤ π/4` (a rounding error more at
/// most). Only the low two bits of `quadrant` mean anything.
pub struct Reduced<M: Machine + ?Sized> {
    /// The remainder, rounded.
    pub high: M::Float,
    /// What rounding `high` lost; zero for f32, whose remainder needs no more bits.
    pub low: M::Float,
    /// How many quarter turns were taken off, modulo 4.
    pub quadrant: M::Int,
}

/// The polynomial with these coefficients, lowest degree first, by Horner's rule: one fma for
/// each coefficient but one.
#[inline]
pub(super) fn polynomial<M: Machine>(m: &M, x: M::Float, coefficients: &[M::Scalar]) -> M::Float {
    let mut descending = coefficients.iter().rev();
    let mut sum = match descending.next() {
        Some(&leading) => m.float(leading),
        None => m.from_int(m.int(0)),
    };
    for &coefficient in descending {
        sum = m.fma(sum, x, m.float(coefficient));
    }
    sum
}
