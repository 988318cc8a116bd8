//! Taking multiples of π/2 off an angle, for every finite argument.
//!
//! Ordinary arguments take Cody and Waite's way: π/2 in three parts, subtracted one after the
//! other with fma ("Software Manual for the Elementary Functions", 1980). It runs out of bits as
//! the argument grows, so beyond a limit Payne and Hanek's way takes over ("Radian reduction
//! for trigonometric functions", 1983): the product of the argument's integer significand with
//! just those bits of 2/π that can influence the quadrant and the remainder.
//!
//! The bits are chosen without a table in memory: selects shift the words of 2/π, which are
//! constants, by powers of two.
//!
//! The two ways are functions of their own, so that a code generator can take all angles of a
//! tile the short way first and branch once.

use std::array;

use super::machine::{Angle, Machine, Reduced};

/// The longest list of words of 2/π (that of f64).
const MAX_WORDS: usize = 19;

/// What the reduction needs to know about a float width.
pub(super) struct Format<Scalar: 'static> {
    /// Bits of the significand, the hidden one included.
    precision: u32,
    /// Bits of the whole number.
    width: u32,
    /// log2 of `width`.
    log2_width: u32,
    /// The biased exponent of 2.0, the smallest that the long reduction handles.
    smallest_exponent: i64,
    /// Selects that pick the window: it starts at one of 2^`index_bits` words.
    index_bits: u32,
    /// `precision` zero bits, then 2/π = 0.1010001011111001…, the most significant word first.
    two_over_pi: &'static [u64],
    /// 2^(-width/2).
    half_word: Scalar,
    /// 2^(width/2).
    half_word_inverse: Scalar,
    /// π/2 · 2^-width, rounded.
    scaled_half_pi_high: Scalar,
    /// What rounding lost.
    scaled_half_pi_low: Scalar,
    zero: Scalar,
}

/// 2^-32, and the scale of a 32-bit fraction.
const TWO_POW_MINUS_32: f32 = 1.0 / 4294967296.0;
/// 2^-64, and the scale of a 64-bit fraction.
const TWO_POW_MINUS_64: f64 = 1.0 / 18446744073709551616.0;

/// The reduction of f32: a 96-bit window, of which 64 product bits are kept. The remainder of
/// no f32 is below 2^-29 quarter turns, so 33 bits or more of it are right.
pub(super) const SINGLE: Format<f32> = Format {
    precision: 24,
    width: 32,
    log2_width: 5,
    smallest_exponent: 128,
    index_bits: 2,
    two_over_pi: &[0x0000_00a2, 0xf983_6e4e, 0x4415_29fc, 0x2757_d1f5, 0x34dd_c0db, 0x6295_993c, 0x4390_41fe],
    half_word: 1.0 / 65536.0,
    half_word_inverse: 65536.0,
    scaled_half_pi_high: SINGLE_HALF_PI[0] * TWO_POW_MINUS_32,
    scaled_half_pi_low: SINGLE_HALF_PI[1] * TWO_POW_MINUS_32,
    zero: 0.0,
};

/// The reduction of f64: a 192-bit window, of which 128 product bits are kept. The remainder of
/// no f64 is below 2^-61 quarter turns, so 65 bits or more of it are right.
pub(super) const DOUBLE: Format<f64> = Format {
    precision: 53,
    width: 64,
    log2_width: 6,
    smallest_exponent: 1024,
    index_bits: 4,
    two_over_pi: &[
        0x0000_0000_0000_0517,
        0xcc1b_7272_20a9_4fe1,
        0x3abe_8fa9_a6ee_06db,
        0x14ac_c9e2_1c82_0ff2,
        0x8b1d_5ef5_de2b_0db9,
        0x2371_d212_6e97_0032,
        0x4977_504e_8c90_e7f0,
        0xef58_e589_4d39_f744,
        0x11af_a975_da24_274c,
        0xe381_35a2_fbf2_09cc,
        0x8eb1_cc1a_99cf_a4e4,
        0x22fc_5def_c941_d8ff,
        0xc4bf_fef0_2cc0_7f79,
        0x788c_5ad0_5368_fb69,
        0xb3f6_793e_584d_ba7a,
        0x31fb_34f2_ff51_6ba9,
        0x3dd6_3f5f_2f8b_d9e8,
        0x39cf_bc52_9497_535f,
        0xdafd_88fc_6ae8_42b0,
    ],
    half_word: 1.0 / 4294967296.0,
    half_word_inverse: 4294967296.0,
    scaled_half_pi_high: DOUBLE_HALF_PI[0] * TWO_POW_MINUS_64,
    scaled_half_pi_low: DOUBLE_HALF_PI[1] * TWO_POW_MINUS_64,
    zero: 0.0,
};

/// π/2 as a sum of f32 numbers, each the rounding of what the earlier ones leave.
const SINGLE_HALF_PI: [f32; 3] = [std::f32::consts::FRAC_PI_2, -4.371139e-8, -1.7151245e-15];
/// π/2 as a sum of f64 numbers.
const DOUBLE_HALF_PI: [f64; 3] = [std::f64::consts::FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591698e-33];
/// Adding this to a small f32 rounds it to an integer, which the low bits of the sum then hold:
/// 1.5 · 2^23.
pub(super) const SINGLE_ROUNDER: f32 = 12582912.0;
/// The same for f64: 1.5 · 2^52.
pub(super) const DOUBLE_ROUNDER: f64 = 6755399441055744.0;
/// Where f32 changes over. The quotient still has 17 bits to spare in [`SINGLE_ROUNDER`], and
/// the third part of π/2 keeps the remainder's error under 0.6 ulp.
const SINGLE_LIMIT: f32 = 65536.0;
/// Where f64 changes over.
const DOUBLE_LIMIT: f64 = 131072.0;

/// Reduces an f32 angle of at most 65536: 9 instructions.
#[inline]
pub(super) fn single<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> Angle<M> {
    let rounder = m.float(SINGLE_ROUNDER);
    let rounded = m.fma(x, m.float(std::f32::consts::FRAC_2_PI), rounder);
    let turns = m.sub(rounded, rounder);
    // The first fma is exact: the difference has at most 24 bits.
    let mut high = x;
    for part in SINGLE_HALF_PI {
        high = m.fma(turns, m.float(-part), high);
    }
    let usual = Reduced { high, low: m.float(0.0), quadrant: m.to_bits(rounded) };
    Angle { usual, huge: m.lt(m.float(SINGLE_LIMIT), m.abs(x)) }
}

/// Reduces a larger f32 angle: 82 instructions.
#[inline]
pub(super) fn single_huge<M: Machine<Scalar = f32>>(m: &M, x: M::Float) -> Reduced<M> {
    let long = payne_hanek(m, x, &SINGLE);
    Reduced { low: m.float(0.0), ..long }
}

/// Reduces an f64 angle of at most 131072 to a remainder of about 106 bits.
#[inline]
pub(super) fn double<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> Angle<M> {
    let [first, second, third] = DOUBLE_HALF_PI;
    let rounder = m.float(DOUBLE_ROUNDER);
    let rounded = m.fma(x, m.float(std::f64::consts::FRAC_2_PI), rounder);
    let turns = m.sub(rounded, rounder);
    // Exact, as above. The second part is taken off with both its rounding errors recovered
    // (Knuth's two-sum: near a multiple of π/2 either operand may be the larger).
    let exact = m.fma(turns, m.float(-first), x);
    let part = m.mul(turns, m.float(-second));
    let part_error = m.fma(turns, m.float(-second), m.neg(part));
    let sum = m.add(exact, part);
    let part_in_sum = m.sub(sum, exact);
    let exact_in_sum = m.sub(sum, part_in_sum);
    let sum_error = m.add(m.sub(exact, exact_in_sum), m.sub(part, part_in_sum));
    let rest = m.fma(turns, m.float(-third), m.add(sum_error, part_error));
    let high = m.add(sum, rest);
    let low = m.add(m.sub(sum, high), rest);
    let usual = Reduced { high, low, quadrant: m.to_bits(rounded) };
    Angle { usual, huge: m.lt(m.float(DOUBLE_LIMIT), m.abs(x)) }
}

/// Reduces a larger f64 angle.
#[inline]
pub(super) fn double_huge<M: Machine<Scalar = f64>>(m: &M, x: M::Float) -> Reduced<M> {
    payne_hanek(m, x, &DOUBLE)
}

/// The long reduction, for |x| ≥ 2. Infinities and NaN give NaN.
fn payne_hanek<M: Machine>(m: &M, x: M::Float, format: &Format<M::Scalar>) -> Reduced<M> {
    let width = format.width;
    let bits = m.to_bits(x);
    let field = format.precision - 1;
    let significand = m.and(bits, m.int((1 << field) - 1));
    let significand = m.or(significand, m.int(1 << field));
    let exponent_mask = (1 << (width - format.precision)) - 1;
    let exponent = m.and(m.lshr_by(bits, field), m.int(exponent_mask));

    // |x| = significand · 2^(exponent - bias - field). Bits of 2/π of weight 2^(2-…) and more
    // only add whole turns, so the window starts at the bit whose product has weight 2.
    let start = m.isub(exponent, m.int(format.smallest_exponent));
    let [w0, w1, w2] = window(m, start, format);

    // The two upper words of significand · window, modulo whole turns.
    let middle_low = m.imul(significand, w1);
    let middle = m.iadd(middle_low, m.umulhi(significand, w2));
    let carry = m.iselect(m.ult(middle, middle_low), m.int(1), m.int(0));
    let upper = m.iadd(m.imul(significand, w0), m.umulhi(significand, w1));
    let upper = m.iadd(upper, carry);

    // Two bits of quadrant, then the fraction. Read as a signed number the fraction lies in
    // [-1/2, 1/2) quarter turns; if that made it negative the quadrant is the next one.
    let fraction = m.or(m.shl_by(upper, 2), m.lshr_by(middle, width - 2));
    let fraction_low = m.shl_by(middle, 2);
    let quadrant = m.iadd(m.lshr_by(upper, width - 2), m.lshr_by(fraction, width - 1));
    let (high, low) = fraction_to_angle(m, fraction, fraction_low, format);

    // sin(-x) = -sin(x), cos(-x) = cos(x): negate the angle, quadrant included.
    let sign = m.ashr_by(bits, width - 1);
    let sign_bit = m.shl_by(sign, width - 1);
    let quadrant = m.isub(m.xor(quadrant, sign), sign);
    let signed = |part| m.from_bits(m.xor(m.to_bits(part), sign_bit));
    // 0 · x adds nothing unless x is infinite or NaN.
    let high = m.fma(x, m.float(format.zero), signed(high));
    Reduced { high, low: signed(low), quadrant }
}

/// Three words of 2/π from bit `start` of the padded expansion on.
fn window<M: Machine>(m: &M, start: M::Int, format: &Format<M::Scalar>) -> [M::Int; 3] {
    // Arguments below 2 get a meaningless window here, but a defined one: all is masked.
    let offset = m.and(start, m.int(i64::from(format.width) - 1));
    let index = m.lshr_by(start, format.log2_width);
    let mut words: [M::Int; MAX_WORDS] =
        array::from_fn(|i| m.int(format.two_over_pi.get(i).map_or(0, |&word| word as i64)));
    for bit in (0..format.index_bits).rev() {
        let step = 1_usize << bit;
        let clear = m.ieq(m.and(index, m.int(1 << bit)), m.int(0));
        for i in 0..3 + step {
            words[i] = m.iselect(clear, words[i], words[i + step]);
        }
    }
    // A funnel shift by 0..width; two right shifts, because one by `width` is not defined.
    let rest = m.xor(offset, m.int(i64::from(format.width) - 1));
    array::from_fn(|i| {
        let spill = m.lshr(m.lshr_by(words[i + 1], 1), rest);
        m.or(m.shl(words[i], offset), spill)
    })
}

/// A signed fraction of a quarter turn, two words long, times π/2.
fn fraction_to_angle<M: Machine>(
    m: &M,
    fraction: M::Int,
    fraction_low: M::Int,
    format: &Format<M::Scalar>,
) -> (M::Float, M::Float) {
    // Half words convert exactly. Each sum below is Dekker's fast two-sum.
    let half = format.width / 2;
    let mask = m.int((1 << half) - 1);
    let scale = m.float(format.half_word);
    let a = m.mul(m.from_int(m.ashr_by(fraction, half)), m.float(format.half_word_inverse));
    let b = m.from_int(m.and(fraction, mask));
    let c = m.from_int(m.lshr_by(fraction_low, half));
    let d = m.from_int(m.and(fraction_low, mask));
    let sum = m.add(a, b);
    let sum_error = m.sub(b, m.sub(sum, a));
    let rest = m.mul(m.fma(d, scale, c), scale);
    let rest = m.add(sum_error, rest);
    let high = m.add(sum, rest);
    let low = m.add(m.sub(sum, high), rest);

    let half_pi = m.float(format.scaled_half_pi_high);
    let angle = m.mul(high, half_pi);
    let angle_error = m.fma(high, half_pi, m.neg(angle));
    let correction = m.fma(high, m.float(format.scaled_half_pi_low), m.mul(low, half_pi));
    let rest = m.add(angle_error, correction);
    let high = m.add(angle, rest);
    (high, m.add(m.sub(angle, high), rest))
}
