//! f64 against values computed with 200 bits and more, and against the platform's `libm`.

use crate::math::{FloatTy, MathFn, evaluate_f64, ulp_bound, ulp_bound_at};

/// Lines of function, argument, and value as the sum of two f64; all numbers as bit patterns.
///
/// Computed with mpmath at 200 bits plus as many as reduction and cancellation eat. Of 20,000
/// random arguments for each function (uniform, logarithmic, near 1, near multiples of π/2 up to
/// 2^60, subnormal results; 6,000 from `exp10` on in the file, 40,000 of the
/// gamma function and its logarithm, also next to poles and zeros), those where this implementation was the least accurate, and some
/// others.
const VALUES: &str = include_str!("double_values.txt");

/// The spacing of f64 numbers in the binade of `x`.
pub(super) fn ulp(x: f64) -> f64 {
    let exponent = ((x.to_bits() >> 52) & 0x7ff).max(1);
    if exponent > 52 { f64::from_bits((exponent - 52) << 52) } else { f64::from_bits(1 << (exponent - 1)) }
}

fn function_named(name: &str) -> MathFn {
    let named = MathFn::ALL.iter().copied().find(|function| format!("{function:?}") == name);
    named.unwrap_or_else(|| panic!("no function is called {name}"))
}

#[test]
fn every_function_is_within_its_bound_of_the_exact_value() {
    let mut checked = 0;
    for line in VALUES.lines() {
        let (name, numbers) = line.split_once(' ').expect("a name and numbers");
        let numbers: Vec<f64> = numbers
            .split(' ')
            .map(|bits| f64::from_bits(u64::from_str_radix(bits, 16).expect("hexadecimal digits")))
            .collect();
        let [x, high, low] = numbers[..] else { panic!("three numbers in {line:?}") };
        let function = function_named(name);
        let got = evaluate_f64(function, x);
        let bound = ulp_bound_at(function, FloatTy::F64, x);
        let error = (got - high - low).abs() / ulp(high);
        assert!(error <= bound, "{name}({x:e}) = {got:e}, not {high:e}: {error} ulp");
        checked += 1;
    }
    assert!(checked > 5900, "only {checked} values");
}

/// Rust's own f64 functions are within 1 ulp, `log10`, `sinh` and `tanh` within 2 (glibc 2.28 and later); so the
/// difference is within that of our bound.
#[test]
fn every_function_agrees_with_libm_over_all_exponents() {
    type Reference = (MathFn, fn(f64) -> f64, f64);
    let references: [Reference; 17] = [
        (MathFn::Exp, f64::exp, 1.0),
        (MathFn::Exp2, f64::exp2, 1.0),
        (MathFn::Expm1, f64::exp_m1, 1.0),
        (MathFn::Log, f64::ln, 1.0),
        (MathFn::Log2, f64::log2, 1.0),
        (MathFn::Log1p, f64::ln_1p, 1.0),
        (MathFn::Sin, f64::sin, 1.0),
        (MathFn::Cos, f64::cos, 1.0),
        (MathFn::Log10, f64::log10, 2.0),
        (MathFn::Tan, f64::tan, 1.0),
        (MathFn::Asin, f64::asin, 1.0),
        (MathFn::Acos, f64::acos, 1.0),
        (MathFn::Atan, f64::atan, 1.0),
        (MathFn::Sinh, f64::sinh, 2.0),
        (MathFn::Tanh, f64::tanh, 2.0),
        (MathFn::Sqrt, f64::sqrt, 0.0),
        (MathFn::Cbrt, f64::cbrt, 1.0),
    ];
    for (function, reference, slack) in references {
        let bound = ulp_bound(function, FloatTy::F64) + slack;
        // A prime near 2^64 / 100,000.
        for bits in (0..=u64::MAX).step_by(184_467_440_737_109) {
            let x = f64::from_bits(bits);
            let (got, want) = (evaluate_f64(function, x), reference(x));
            let same = got == want || got.is_nan() && want.is_nan();
            let ulps = (got - want).abs() / ulp(want);
            assert!(same || ulps <= bound, "{function:?}({x:e}) = {got:e}, not {want:e}: {ulps} ulp");
        }
    }
}
