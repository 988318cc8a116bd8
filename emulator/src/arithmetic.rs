//! The instructions that compute.

use half::{bf16, f16};
use kernel_core::ir::{DType, Literal};
use kernel_core::num::{self, F8E4M3, F8E5M2};

use super::parse::Instruction;

/// The width of a PTX type in bits.
pub fn bits(ty: &str) -> u32 {
    match ty {
        "pred" => 1,
        "f16x2" | "bf16x2" => 32,
        "bf16" => 16,
        _ => ty[1..].parse().unwrap_or_else(|_| panic!("`{ty}` is no type")),
    }
}

fn mask(value: u64, ty: &str) -> u64 {
    match bits(ty) {
        64 => value,
        width => value & ((1 << width) - 1),
    }
}

fn signed(value: u64, ty: &str) -> i64 {
    let unused = 64 - bits(ty);
    (value << unused) as i64 >> unused
}

/// A float operand as f64 (exact for every type).
fn float(value: u64, ty: &str) -> f64 {
    match ty {
        "f16" => f16::from_bits(value as u16).to_f64(),
        "bf16" => bf16::from_bits(value as u16).to_f64(),
        "f32" => f64::from(f32::from_bits(value as u32)),
        "f64" => f64::from_bits(value),
        _ => panic!("`{ty}` is no float type"),
    }
}

/// The sign instead of the bits of a subnormal f32.
fn flushed(bits: u64) -> u64 {
    if f32::from_bits(bits as u32).is_subnormal() { bits & 1 << 31 } else { bits }
}

/// The result of an instruction that takes subnormal f32 for zeros.
fn flushing(instruction: &Instruction, a: &[u64]) -> Option<u64> {
    let mut kept = instruction.clone();
    kept.modifiers.retain(|modifier| modifier != "ftz");
    let (from, to) = match (kept.name.as_str(), kept.modifiers.as_slice()) {
        ("cvt", [.., to, from]) => (from.as_str(), to.as_str()),
        ("setp", [.., ty]) => (ty.as_str(), "pred"),
        (_, [.., ty]) => (ty.as_str(), ty.as_str()),
        (_, []) => return None,
    };
    let single = |ty: &str| ty == "f32";
    // Conversions to pairs say f32 last, and the pair before.
    let operands: Vec<u64> = a.iter().map(|&bits| if single(from) { flushed(bits) } else { bits }).collect();
    let result = compute(&kept, &operands)?;
    Some(if single(to) { flushed(result) } else { result })
}

/// The nearest float of a type, with one rounding, which the conversions of `half` from f64 do not promise.
pub fn from_float(value: f64, ty: &str) -> u64 {
    match ty {
        "f16" | "bf16" | "f64" => {
            let dtype = DType::from_name(ty).unwrap_or_else(|| panic!("`{ty}` is no dtype"));
            num::to_bits(Literal::float(value), dtype).unwrap_or_else(|| panic!("`{ty}` is no float type"))
        }
        "f32" => u64::from((value as f32).to_bits()),
        _ => panic!("`{ty}` is no float type"),
    }
}

/// The nearest float to an integer, with one rounding.
fn from_int(number: i128, ty: &str) -> u64 {
    let dtype = DType::from_name(ty).unwrap_or_else(|| panic!("`{ty}` is no dtype"));
    match num::normalise(Literal::Int(number), dtype).and_then(|literal| num::to_bits(literal, dtype)) {
        Some(bits) => bits,
        // Beyond the largest number.
        None => from_float(f64::INFINITY.copysign(number as f64), ty),
    }
}

fn is_float(ty: &str) -> bool {
    ty.starts_with('f') || ty.starts_with("bf")
}

/// The lesser of two numbers, or the one that is a number. Of zeros, the negative one is less.
fn lesser(x: f64, y: f64) -> f64 {
    let is_first = y.is_nan() || x < y || (x == y && x.is_sign_negative());
    if is_first { x } else { y }
}

fn float_binary(name: &str, ty: &str, nan: bool, a: u64, b: u64) -> Option<u64> {
    let (x, y) = (float(a, ty), float(b, ty));
    // In f64, sums, products and quotients of narrower floats round twice harmlessly (f32: 53 >= 2 * 24 + 2).
    let value = match name {
        "add" => x + y,
        "sub" => x - y,
        "mul" => x * y,
        "div" => x / y,
        "min" | "max" if nan && (x.is_nan() || y.is_nan()) => f64::NAN,
        "min" => lesser(x, y),
        "max" if x.is_nan() && y.is_nan() => f64::NAN,
        "max" => -lesser(-x, -y),
        "copysign" => y.copysign(x),
        _ => return None,
    };
    Some(from_float(value, ty))
}

fn fma(ty: &str, a: u64, b: u64, c: u64) -> u64 {
    match ty {
        "f32" => {
            let f = |v: u64| f32::from_bits(v as u32);
            u64::from(f(a).mul_add(f(b), f(c)).to_bits())
        }
        "f64" => f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits(),
        // The product of two is an f64.
        _ => from_float(odd_sum(float(a, ty) * float(b, ty), float(c, ty)), ty),
    }
}

/// A sum rounded to odd, from which floats of 16 bits are rounded as if from the exact sum: the nearest f64 may be a tie of
/// theirs that the exact sum is not ("rounding to odd", Boldo and Melquiond).
fn odd_sum(x: f64, y: f64) -> f64 {
    let sum = x + y;
    // What the sum has lost, exactly (Knuth's TwoSum).
    let rest = sum - x;
    let lost = (x - (sum - rest)) + (y - rest);
    if lost == 0.0 || lost.is_nan() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    // The exact sum lies between two neighbours, of which the other one is odd.
    let is_farther = (lost > 0.0) == (sum > 0.0);
    f64::from_bits(if is_farther { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

fn compare(how: &str, ty: &str, a: u64, b: u64) -> bool {
    let ordering = if is_float(ty) {
        float(a, ty).partial_cmp(&float(b, ty))
    } else if ty.starts_with('s') {
        Some(signed(a, ty).cmp(&signed(b, ty)))
    } else {
        Some(mask(a, ty).cmp(&mask(b, ty)))
    };
    let Some(ordering) = ordering else { return how.ends_with('u') || how == "nan" };
    match how.trim_end_matches('u') {
        "eq" | "eq_" => ordering.is_eq(),
        "ne" => ordering.is_ne(),
        "lt" => ordering.is_lt(),
        "le" => ordering.is_le(),
        "gt" => ordering.is_gt(),
        "ge" => ordering.is_ge(),
        // `equ` and `nequ` lose their last letter only.
        "neq" => ordering.is_ne(),
        "num" => true,
        "nan" => false,
        other => panic!("comparison `{other}`"),
    }
}

fn convert(modifiers: &[&str], value: u64) -> u64 {
    let (to, from) = (modifiers[modifiers.len() - 2], modifiers[modifiers.len() - 1]);
    let rounding = modifiers[0];
    if !is_float(from) {
        let number =
            if from.starts_with('s') { i128::from(signed(value, from)) } else { i128::from(mask(value, from)) };
        if !is_float(to) {
            return number as u64;
        }
        return match (to, rounding) {
            ("f32", "rz") => {
                let nearest = number as f32;
                let too_far = (nearest as f64).abs() > (number as f64).abs();
                u64::from(if too_far { f32::from_bits(nearest.to_bits() - 1) } else { nearest }.to_bits())
            }
            _ => from_int(number, to),
        };
    }
    let x = float(value, from);
    let whole = match rounding {
        "rzi" => x.trunc(),
        "rmi" => x.floor(),
        "rpi" => x.ceil(),
        "rni" => x.round_ties_even(),
        _ => x,
    };
    if is_float(to) {
        if to == "f32" && rounding == "rz" {
            let nearest = whole as f32;
            let too_far = f64::from(nearest).abs() > whole.abs();
            return u64::from(if too_far { f32::from_bits(nearest.to_bits() - 1) } else { nearest }.to_bits());
        }
        return from_float(whole, to);
    }
    let width = bits(to);
    let number = whole as i128;
    match to.starts_with('s') {
        true => number.clamp(-(1 << (width - 1)), (1 << (width - 1)) - 1) as u64,
        false => number.clamp(0, (1 << width) - 1) as u64,
    }
}

fn int_binary(name: &str, ty: &str, a: u64, b: u64) -> Option<u64> {
    let width = u64::from(bits(ty));
    let is_signed = ty.starts_with('s');
    let (x, y) = (signed(a, ty), signed(b, ty));
    let (u, v) = (mask(a, ty), mask(b, ty));
    Some(match name {
        "add" => u.wrapping_add(v),
        "sub" => u.wrapping_sub(v),
        "mul" => u.wrapping_mul(v),
        "and" => u & v,
        "or" => u | v,
        "xor" => u ^ v,
        "min" if is_signed => x.min(y) as u64,
        "min" => u.min(v),
        "max" if is_signed => x.max(y) as u64,
        "max" => u.max(v),
        "div" if is_signed => x.wrapping_div(y) as u64,
        "div" => u / v,
        "rem" if is_signed => x.wrapping_rem(y) as u64,
        "rem" => u % v,
        "shl" => {
            if b as u32 as u64 >= width {
                0
            } else {
                u << (b as u32)
            }
        }
        "shr" if is_signed => (x >> (b as u32 as u64).min(63)) as u64,
        "shr" => {
            if b as u32 as u64 >= width {
                0
            } else {
                u >> (b as u32)
            }
        }
        _ => return None,
    })
}

/// `add.sat` and `sub.sat`.
fn saturated(name: &str, ty: &str, a: u64, b: u64) -> u64 {
    let (x, y) = (i128::from(signed(a, ty)), i128::from(signed(b, ty)));
    let exact = if name == "add" { x + y } else { x - y };
    let limit = 1i128 << (bits(ty) - 1);
    exact.clamp(-limit, limit - 1) as u64
}

/// Another type's nearest value.
fn converted(modifiers: &[&str], ty: &str, a: &[u64]) -> u64 {
    let has = |name: &str| modifiers.contains(&name);
    if has("tf32") {
        // Ties away from zero, which is half a unit added to the magnitude; what overflows becomes infinite.
        return u64::from((a[0] as u32).wrapping_add(0x1000) & 0xffff_e000);
    }
    if ty == "e4m3x2" || ty == "e5m2x2" {
        let number = |byte: u64| match ty {
            "e4m3x2" => F8E4M3::from_bits(byte as u8).to_f64(),
            _ => F8E5M2::from_bits(byte as u8).to_f64(),
        };
        return from_float(number(a[0]), "f16") | from_float(number(a[0] >> 8), "f16") << 16;
    }
    if has("e4m3x2") || has("e5m2x2") {
        let byte = |value: u64| match has("e4m3x2") {
            true => u64::from(F8E4M3::from_f32(f32::from_bits(value as u32)).to_bits()),
            false => u64::from(F8E5M2::from_f32(f32::from_bits(value as u32)).to_bits()),
        };
        return byte(a[0]) << 8 | byte(a[1]);
    }
    if let Some(half) = ["f16", "bf16"].into_iter().find(|half| has(&format!("{half}x2"))) {
        return from_float(float(a[0], "f32"), half) << 16 | from_float(float(a[1], "f32"), half);
    }
    let to = modifiers[modifiers.len() - 2];
    let narrow = mask(convert(modifiers, a[0]), to);
    // A result narrower than its register is extended.
    if to.starts_with('s') { signed(narrow, to) as u64 } else { narrow }
}

/// Instructions that take words apart and put them together.
fn bit_fields(name: &str, modifiers: &[&str], ty: &str, a: &[u64]) -> u64 {
    match name {
        "bfe" => {
            let (start, len) = (a[1] as u32 & 255, a[2] as u32 & 255);
            let field = (mask(a[0], ty) >> start.min(63)) & ((1u64 << len.min(63)) - 1);
            if ty.starts_with('s') && len > 0 { ((field << (64 - len)) as i64 >> (64 - len)) as u64 } else { field }
        }
        "bfi" => {
            let (start, len) = (a[2] as u32 & 255, a[3] as u32 & 255);
            let field = ((1u64 << len.min(63)) - 1) << start;
            (a[1] & !field) | ((a[0] << start) & field)
        }
        // Bit by bit what a table says, whose index are the bits of the operands.
        "lop3" => (0..32).fold(0, |word, bit| {
            let index = (a[0] >> bit & 1) << 2 | (a[1] >> bit & 1) << 1 | a[2] >> bit & 1;
            word | (a[3] >> index & 1) << bit
        }),
        "prmt" => {
            let bytes = (a[0] & 0xffff_ffff) | a[1] << 32;
            (0..4).fold(0, |word, i| {
                let selector = a[2] >> (4 * i) & 0xf;
                let byte = bytes >> (8 * (selector & 7)) & 0xff;
                let byte = if selector & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
                word | byte << (8 * i)
            })
        }
        // A funnel shift.
        _ => {
            let wide = (a[0] & 0xffff_ffff) | a[1] << 32;
            let count = if modifiers.contains(&"wrap") { a[2] & 31 } else { (a[2] & 0xffff_ffff).min(32) };
            if modifiers.contains(&"l") { (wide << count) >> 32 } else { wide >> count }
        }
    }
}

/// The result of an instruction whose operands are `a`; `None` if it is not one that computes.
pub fn compute(instruction: &Instruction, a: &[u64]) -> Option<u64> {
    let modifiers: Vec<&str> = instruction.modifiers.iter().map(String::as_str).collect();
    let ty = *modifiers.last()?;
    let has = |name: &str| modifiers.contains(&name);
    let name = instruction.name.as_str();
    if let Some(half) = ty.strip_suffix("x2").filter(|_| name != "cvt") {
        // Two halves of a word, each by itself.
        let mut narrow = instruction.clone();
        narrow.modifiers.pop();
        narrow.modifiers.push(half.to_string());
        let part = |shift: u32| -> Option<u64> {
            let operands: Vec<u64> = a.iter().map(|value| value >> shift & 0xffff).collect();
            compute(&narrow, &operands)
        };
        return Some(part(0)? | part(16)? << 16);
    }
    if has("ftz") {
        return flushing(instruction, a);
    }
    let value = match name {
        "mov" => a[0],
        "setp" => u64::from(compare(modifiers[0], ty, a[0], a[1])),
        "selp" => {
            if a[2] != 0 {
                a[0]
            } else {
                a[1]
            }
        }
        "not" if ty == "pred" => 1 - (a[0] & 1),
        "not" => !a[0],
        "neg" if is_float(ty) => a[0] ^ 1 << (bits(ty) - 1),
        "neg" => (a[0] as i64).wrapping_neg() as u64,
        "abs" if is_float(ty) => a[0] & !(1 << (bits(ty) - 1)),
        "abs" => signed(a[0], ty).unsigned_abs(),
        "cvt" => converted(&modifiers, ty, a),
        "fma" => fma(ty, a[0], a[1], a[2]),
        "ex2" => from_float(float(a[0], ty).exp2(), ty),
        "rcp" => from_float(1.0 / float(a[0], ty), ty),
        "sqrt" => from_float(float(a[0], ty).sqrt(), ty),
        "rsqrt" => from_float(1.0 / float(a[0], ty).sqrt(), ty),
        "mul" if has("wide") && ty.starts_with('s') => (signed(a[0], ty) * signed(a[1], ty)) as u64,
        "mul" if has("wide") => mask(a[0], ty) * mask(a[1], ty),
        "mul" if has("hi") && ty.starts_with('s') => {
            ((i128::from(signed(a[0], ty)) * i128::from(signed(a[1], ty))) >> bits(ty)) as u64
        }
        "mul" if has("hi") => ((u128::from(mask(a[0], ty)) * u128::from(mask(a[1], ty))) >> bits(ty)) as u64,
        "mad" if has("wide") && ty.starts_with('s') => {
            ((signed(a[0], ty) * signed(a[1], ty)) as u64).wrapping_add(a[2])
        }
        "mad" if has("wide") => (mask(a[0], ty) * mask(a[1], ty)).wrapping_add(a[2]),
        "mad" => a[0].wrapping_mul(a[1]).wrapping_add(a[2]),
        "popc" => u64::from(mask(a[0], ty).count_ones()),
        "clz" => u64::from(mask(a[0], ty).leading_zeros() + bits(ty) - 64),
        "brev" => mask(a[0], ty).reverse_bits() >> (64 - bits(ty)),
        "add" | "sub" if has("sat") && !is_float(ty) => saturated(name, ty, a[0], a[1]),
        "bfe" | "bfi" | "lop3" | "prmt" | "shf" => bit_fields(name, &modifiers, ty, a),
        "add" | "sub" | "mul" | "div" | "min" | "max" | "copysign" if is_float(ty) => {
            float_binary(name, ty, has("NaN"), a[0], a[1])?
        }
        _ => {
            let ty = if ty == "pred" { "b8" } else { ty };
            int_binary(name, ty, *a.first()?, *a.get(1)?)?
        }
    };
    let result_bits = match (name, ty) {
        ("mul" | "mad", _) if has("wide") => 64,
        ("setp", _) | (_, "pred") => 1,
        ("cvt", _) => return Some(value),
        _ => bits(ty),
    };
    Some(if result_bits == 64 { value } else { value & ((1u64 << result_bits) - 1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minima_tell_zeros_apart() {
        let of = |name: &str, x: f32, y: f32| {
            let bits = [x, y].map(|number| u64::from(number.to_bits()));
            float_binary(name, "f32", false, bits[0], bits[1]).expect("a float's bits") as u32
        };
        for (x, y) in [(0.0, -0.0), (-0.0, 0.0), (-0.0, f32::NAN), (f32::NAN, -0.0)] {
            assert_eq!(of("min", x, y), (-0.0f32).to_bits(), "{x} {y}");
        }
        for (x, y) in [(0.0, -0.0), (-0.0, 0.0), (0.0, f32::NAN), (f32::NAN, 0.0)] {
            assert_eq!(of("max", x, y), 0.0f32.to_bits(), "{x} {y}");
        }
        assert_eq!((of("min", 2.0, 1.0), of("max", 2.0, 1.0)), (1.0f32.to_bits(), 2.0f32.to_bits()));
        assert!(f32::from_bits(of("max", f32::NAN, f32::NAN)).is_nan());
    }
    #[test]
    fn conversions_round_once() {
        let of = |to: &str, from: &str, bits: u64| convert(&["rn", to, from], bits);
        let double = |to: &str, number: f64| of(to, "f64", number.to_bits());
        // Slightly more than the middle between two neighbours, which is where rounding to f32 first arrives.
        assert_eq!(double("f16", 1.0 + 1.0 / 2048.0 + 1e-9), 0x3c01);
        assert_eq!(double("bf16", 1.0 + 1.0 / 256.0 + 1e-9), 0x3f81);
        let above = 2_105_345.0;
        assert_eq!(double("bf16", above), u64::from(bf16::from_f32(above as f32).to_bits()));
        assert_eq!(of("bf16", "f32", u64::from((above as f32).to_bits())), double("bf16", above));
        // And where f64 arrives.
        assert_eq!(of("bf16", "u64", (1 << 60) + (1 << 52) + 1), 0x5d81);
        assert_eq!(of("bf16", "s64", (-(1i64 << 60) - (1 << 52) - 1) as u64), 0xdd81);
        assert_eq!((of("f16", "u32", 65520), of("f16", "s32", -65520i64 as u64)), (0x7c00, 0xfc00));
        assert_eq!(double("f16", -0.0), 0x8000);
        assert!(f16::from_bits(double("f16", f64::NAN) as u16).is_nan());
    }

    /// The number n * 2^e as a 16-bit float with so many bits of fraction, rounded to nearest even once, by integers alone.
    fn rounded(n: i128, e: i32, fraction: u32) -> u64 {
        let (bias, sign) = ((1 << (14 - fraction)) - 1, u64::from(n < 0) << 15);
        let magnitude = n.unsigned_abs();
        let top = 127 - magnitude.leading_zeros() as i32 + e;
        let unit = top.max(1 - bias) - fraction as i32;
        let below = unit - e;
        let kept = match below {
            ..=0 => magnitude << -below,
            1..=127 => {
                let (half, low) = (1u128 << (below - 1), magnitude & ((1 << below) - 1));
                let kept = magnitude >> below;
                kept + u128::from(low > half || low == half && kept & 1 == 1)
            }
            _ => 0,
        };
        // A carry goes on into the exponent. Infinity follows the largest number.
        let exponent = (top.max(1 - bias) + bias - 1) as u128;
        sign | ((exponent << fraction) + kept).min(((1 << (15 - fraction)) - 1) << fraction) as u64
    }

    /// A finite 16-bit float as n * 2^e.
    fn parts(bits: u64, fraction: u32) -> (i128, i32) {
        let bias = (1 << (14 - fraction)) - 1;
        let (exponent, low) = ((bits >> fraction) as i32 & (2 * bias + 1), (bits & ((1 << fraction) - 1)) as i128);
        let n = if exponent == 0 { low } else { low | 1 << fraction };
        (if bits >> 15 == 1 { -n } else { n }, exponent.max(1) - bias - fraction as i32)
    }

    fn exact_fma([a, b, c]: [u64; 3], fraction: u32) -> u64 {
        let [(a, a_e), (b, b_e), (c, c_e)] = [a, b, c].map(|bits| parts(bits, fraction));
        let ((product, p_e), (n, e)) = ((a * b, a_e + b_e), (c, c_e));
        // What lies far below the other is as good as a little more or less.
        let (mut high, mut low) = ((product, p_e), (n, e));
        if high.1 < low.1 {
            (high, low) = (low, high);
        }
        let distance = high.1 - low.1;
        if distance <= 90 {
            return rounded((high.0 << distance) + low.0, low.1, fraction);
        }
        if high.0 == 0 {
            rounded(low.0, low.1, fraction)
        } else {
            rounded((high.0 << 90) + low.0.signum(), high.1 - 90, fraction)
        }
    }

    #[test]
    fn fused_products_round_once() {
        // What a double rounds to is a tie, which a term far below it decides: 1 + 2^-8 of bf16, 1 + 2^-11 of f16.
        let tie =
            [("bf16", 7, 1.0 + 1.0 / 16.0, 1.0 + 7.0 / 128.0), ("f16", 10, 1.0 + 1.0 / 32.0, 1.0 + 31.0 / 1024.0)];
        for (ty, fraction, a, b) in tie {
            let nearest = |x: f64| from_float(x, ty);
            for tiny in [f64::MIN_POSITIVE, 2f64.powi(-60), 2f64.powi(-24)] {
                let smallest = if nearest(tiny) == 0 { 1 } else { nearest(tiny) };
                for bits in [
                    [nearest(a), nearest(b), smallest],
                    [nearest(a), nearest(-b), smallest | 0x8000],
                    [nearest(a), nearest(b), smallest | 0x8000],
                ] {
                    assert_eq!(fma(ty, bits[0], bits[1], bits[2]), exact_fma(bits, fraction), "{ty} {bits:x?}");
                }
            }
        }
        let mut seed = 0x9E37_79B9_7F4A_7C15u64;
        let mut ties = 0;
        for at in 0..400_000 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            for (ty, fraction) in [("f16", 10u32), ("bf16", 7)] {
                let mut bits = [seed, seed >> 16, seed >> 32].map(|bits| bits & 0xffff);
                if at % 2 == 0 {
                    // Products on ties, and what is far smaller.
                    bits[0] = bits[0] & !0x3f | 1 << (fraction / 2);
                    bits[2] &= 0x8fff;
                }
                let infinite = |bits: u64| bits << 1 & 0xffff >= ((1 << (15 - fraction)) - 1) << (fraction + 1);
                if bits.into_iter().any(infinite) {
                    continue;
                }
                let [a, b, c] = bits.map(|bits| float(bits, ty));
                let twice = from_float(a.mul_add(b, c), ty);
                let wanted = exact_fma(bits, fraction);
                ties += u32::from(twice & 0x7fff != wanted & 0x7fff);
                let found = fma(ty, bits[0], bits[1], bits[2]);
                // Of zero the reference knows no sign.
                assert!(found == wanted || (found | wanted) & 0x7fff == 0, "{ty} {bits:x?}: {found:x}, not {wanted:x}");
            }
        }
        assert!(ties > 0, "rounding twice is right everywhere");
    }
}
