//! Functions of two arguments: accuracy against values of 200 bits and more, and special values.

use super::double::ulp;
use super::single::error_in_ulps;
use crate::math::{
    BinaryMathFn, FloatIntFn, FloatTy, binary_ulp_bound, evaluate_binary_f32, evaluate_binary_f64,
    evaluate_float_int_f32, evaluate_float_int_f64, float_int_ulp_bound,
};

/// Lines of function, arguments, and value as the sum of two f64; all numbers as bit patterns of f64.
///
/// Computed with mpmath at 260 bits. Of 12,000 random arguments for each function and width (over all exponents, near
/// the ends of the results' range, near 1, integers, subnormal numbers), those where this implementation was the least
/// accurate, and some others.
const SINGLE_VALUES: &str = include_str!("binary_single_values.txt");
/// The same, with arguments that f32 has not.
const DOUBLE_VALUES: &str = include_str!("binary_double_values.txt");

/// A line of a table.
struct Line {
    function: BinaryMathFn,
    x: f64,
    y: f64,
    high: f64,
    low: f64,
}

fn lines(table: &str) -> impl Iterator<Item = Line> + '_ {
    table.lines().map(|line| {
        let (name, numbers) = line.split_once(' ').expect("a name and numbers");
        let numbers: Vec<f64> = numbers
            .split(' ')
            .map(|bits| f64::from_bits(u64::from_str_radix(bits, 16).expect("hexadecimal digits")))
            .collect();
        let [x, y, high, low] = numbers[..] else { panic!("four numbers in {line:?}") };
        let named = BinaryMathFn::ALL.iter().copied().find(|function| format!("{function:?}") == name);
        Line { function: named.unwrap_or_else(|| panic!("no function is called {name}")), x, y, high, low }
    })
}

#[test]
fn f32_functions_are_within_their_bounds_of_the_exact_value() {
    let mut checked = 0;
    for Line { function, x, y, high, .. } in lines(SINGLE_VALUES) {
        let got = evaluate_binary_f32(function, x as f32, y as f32);
        let error = error_in_ulps(got, high);
        let bound = binary_ulp_bound(function, FloatTy::F32);
        assert!(error <= bound, "{function:?}({x:e}, {y:e}) = {got:e}, not {high:e}: {error} ulp");
        checked += 1;
    }
    assert!(checked > 900, "only {checked} values");
}

#[test]
fn f64_functions_are_within_their_bounds_of_the_exact_value() {
    let mut checked = 0;
    for Line { function, x, y, high, low } in lines(DOUBLE_VALUES) {
        let got = evaluate_binary_f64(function, x, y);
        let error = (got - high - low).abs() / ulp(high);
        let bound = binary_ulp_bound(function, FloatTy::F64);
        assert!(error <= bound, "{function:?}({x:e}, {y:e}) = {got:e}, not {high:e}: {error} ulp");
        checked += 1;
    }
    assert!(checked > 900, "only {checked} values");
}

/// Bit patterns of f32 all over the range, in an order that does not repeat.
fn patterns(count: u32) -> impl Iterator<Item = (f32, f32)> {
    (0..count).map(|i| (f32::from_bits(i.wrapping_mul(2_654_435_761)), f32::from_bits(i.wrapping_mul(2_246_822_519))))
}

#[test]
fn f32_functions_are_those_of_f64_over_all_exponents() {
    let with_near = patterns(50_000).flat_map(|(x, y)| {
        // Powers of numbers near 1, and points near the diagonal, are numbers far more often.
        let near = f32::from_bits(0x3f00_0000 | x.to_bits() & 0xff_ffff);
        [(x, y), (near, y), (x, x * near), (near, (y.to_bits() % 64) as f32 - 32.0)]
    });
    for (x, y) in with_near {
        for &function in BinaryMathFn::ALL {
            let got = evaluate_binary_f32(function, x, y);
            let want = evaluate_binary_f64(function, f64::from(x), f64::from(y));
            let error = error_in_ulps(got, want);
            let bound = binary_ulp_bound(function, FloatTy::F32);
            assert!(error <= bound, "{function:?}({x:e}, {y:e}) = {got:e}, not {want:e}: {error} ulp");
        }
    }
}

/// A function in both widths.
type Pair = (fn(f64, f64) -> f64, fn(f32, f32) -> f32);

/// Rust's `powf`, `atan2` and `hypot` are those of the platform, within 1 ulp, and follow Annex F of the C standard.
#[test]
fn special_values_are_those_of_rust_in_both_widths() {
    let inf = f64::INFINITY;
    let mut values =
        vec![0.0, 1.0, 2.0, 3.0, 0.5, 0.25, 2.5, 7.0, 1e30, 1e38, 1e-30, 1e-42, 16777216.0, 16777217.0, inf];
    values.extend(values.clone().iter().map(|x| -x));
    values.push(f64::NAN);
    for &x in &values {
        for &y in &values {
            for &function in BinaryMathFn::ALL {
                let (wide, narrow): Pair = match function {
                    BinaryMathFn::Pow => (f64::powf, f32::powf),
                    BinaryMathFn::Atan2 => (f64::atan2, f32::atan2),
                    BinaryMathFn::Hypot => (f64::hypot, f32::hypot),
                };
                let (got, want) = (evaluate_binary_f64(function, x, y), wide(x, y));
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                let near = (got - want).abs() <= 3.0 * ulp(want) && got != 0.0;
                assert!(same || near, "f64 {function:?}({x:e}, {y:e}) = {got:e}, not {want:e}");
                let (x, y) = (x as f32, y as f32);
                let (got, want) = (evaluate_binary_f32(function, x, y), narrow(x, y));
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                let near = error_in_ulps(got, f64::from(want)) <= 3.0 && got != 0.0;
                assert!(same || near, "f32 {function:?}({x:e}, {y:e}) = {got:e}, not {want:e}");
            }
        }
    }
}

/// Integers at which something happens, and the ends of the range.
const INTEGERS: [i32; 22] = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    -3,
    24,
    -24,
    126,
    -126,
    127,
    -149,
    150,
    -1022,
    1023,
    -1074,
    2098,
    16_777_217,
    -16_777_217,
    i32::MAX,
    i32::MIN,
];

#[test]
fn powers_of_integers_are_those_of_floats() {
    for (x, _) in patterns(10_000) {
        // Nearer to 1, with larger integers.
        let near = 1.0 + (f64::from(x).to_bits() >> 40 & 0xffff) as f64 * 2.0_f64.powi(-40);
        for x in [f64::from(x), near] {
            for n in INTEGERS {
                let exact = evaluate_binary_f64(BinaryMathFn::Pow, x, f64::from(n));
                let got = evaluate_float_int_f64(FloatIntFn::Powi, x, n);
                assert!(got.to_bits() == exact.to_bits() || got.is_nan() && exact.is_nan(), "{x:e}^{n} is {got:e}");
                let narrow = x as f32;
                let exact = evaluate_binary_f64(BinaryMathFn::Pow, f64::from(narrow), f64::from(n));
                let got = evaluate_float_int_f32(FloatIntFn::Powi, narrow, n);
                let error = error_in_ulps(got, exact);
                let bound = float_int_ulp_bound(FloatIntFn::Powi, FloatTy::F32);
                assert!(error <= bound, "{narrow:e}^{n} is {got:e}, not {exact:e}: {error} ulp");
            }
        }
    }
}

#[test]
fn products_with_powers_of_two_round_once() {
    for (x, y) in patterns(30_000) {
        for n in INTEGERS.into_iter().chain([-(y.to_bits() as i32 & 0xff), y.to_bits() as i32 & 0xff]) {
            // f64 holds every product of a finite f32 that is a number, so one rounding is left.
            let power = 2.0_f64.powi(n.clamp(-600, 600));
            let (got, want) = (evaluate_float_int_f32(FloatIntFn::Ldexp, x, n), (f64::from(x) * power) as f32);
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{x:e} · 2^{n} is {got:e}");
        }
    }
    // In f64, the ends of the range: 3 · 2^-1075 and 2^-1074 · 2^2098 lie in it, and the first is a tie.
    for (x, n, want) in [
        (3.0, -1075, f64::from_bits(2)),
        (5.0, -1075, f64::from_bits(2)),
        (1.0, -1075, 0.0),
        (1.0, -1074, f64::from_bits(1)),
        (f64::from_bits(1), 2097, 2.0_f64.powi(1023)),
        (f64::from_bits(1), 2098, f64::INFINITY),
        (-f64::from_bits(3), 1074, -3.0),
        (1.5, i32::MIN, 0.0),
        (-1.5, i32::MAX, f64::NEG_INFINITY),
        (-0.0, i32::MAX, -0.0),
        (f64::NEG_INFINITY, i32::MIN, f64::NEG_INFINITY),
        (1.75, 10, 1792.0),
    ] {
        let got = evaluate_float_int_f64(FloatIntFn::Ldexp, x, n);
        assert_eq!(got.to_bits(), f64::to_bits(want), "{x:e} · 2^{n} is {got:e}");
    }
    assert!(evaluate_float_int_f64(FloatIntFn::Ldexp, f64::NAN, 3).is_nan());
}
