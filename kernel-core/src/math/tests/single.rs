//! f32 against f64 references, over a stride of all bit patterns, on hardware that is as wrong as
//! it may be.
//!
//! The example `math_accuracy` runs the same comparison over every bit pattern.

use std::f32::consts::{FRAC_PI_2, PI};

use crate::math::host::ulp_f32;
use crate::math::{ApproximationError, FloatTy, Host, MathFn, divide_ulp_bound, evaluate_f64, single, ulp_bound_at};

/// A prime: strides through exponents, signs and significands alike.
const STRIDE: usize = 20_011;

/// The function in f64, by Rust's own where it has one.
fn reference(function: MathFn, x: f64) -> f64 {
    match function {
        MathFn::Exp => x.exp(),
        MathFn::Exp2 => x.exp2(),
        MathFn::Expm1 => x.exp_m1(),
        MathFn::Log => x.ln(),
        MathFn::Log2 => x.log2(),
        MathFn::Log1p => x.ln_1p(),
        MathFn::Sin => x.sin(),
        MathFn::Cos => x.cos(),
        MathFn::Exp10 => 10.0_f64.powf(x),
        MathFn::Log10 => x.log10(),
        MathFn::Tan => x.tan(),
        MathFn::Asin => x.asin(),
        MathFn::Acos => x.acos(),
        MathFn::Atan => x.atan(),
        MathFn::Sinh => x.sinh(),
        MathFn::Cosh => x.cosh(),
        // Held against 200-bit values in the tests of f64, as Rust's lose digits.
        MathFn::Asinh | MathFn::Acosh | MathFn::Atanh => evaluate_f64(function, x),
        MathFn::Tanh => x.tanh(),
        // Held against 200-bit values in the tests of f64.
        MathFn::Erf | MathFn::Erfc | MathFn::Erfinv | MathFn::Lgamma | MathFn::Tgamma => evaluate_f64(function, x),
        MathFn::Sigmoid if x < 0.0 => x.exp() / (1.0 + x.exp()),
        MathFn::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        MathFn::Sqrt => x.sqrt(),
        MathFn::Rsqrt => 1.0 / x.sqrt(),
        MathFn::Cbrt => x.cbrt(),
    }
}

/// How wrong each approximation may be, less the half ulp by which the host rounds: 1.5 ulp of
/// `ex2` where its argument is reduced (the documented 2 ulp of CUDA's `expf`, whose instructions
/// those of `sigmoid` are, leave it no more), 1 ulp of `rcp`, 2^-22.9 of roots, 2 ulp of
/// `div.full`.
const ALLOWED: ApproximationError = ApproximationError { ex2: 1.0, rcp: 0.5, root: 1.64, division: 1.5 };

/// Every way to be as wrong as allowed, and exact.
fn errors() -> Vec<ApproximationError> {
    let mut all = vec![ApproximationError::default()];
    for (ex2, other) in [(1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)] {
        all.push(ApproximationError {
            ex2: ex2 * ALLOWED.ex2,
            rcp: other * ALLOWED.rcp,
            root: other * ALLOWED.root,
            division: other * ALLOWED.division,
        });
    }
    all
}

/// The error of `got` in ulps; infinite if the two differ in kind.
pub(super) fn error_in_ulps(got: f32, want: f64) -> f64 {
    let rounded = want as f32;
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if want == 0.0 || want.is_infinite() {
        return if got.to_bits() == rounded.to_bits() { 0.0 } else { f64::INFINITY };
    }
    // Beyond the largest number infinity stands for 2^128, where the next number would be.
    let top = 2.0_f64.powi(128);
    let finite = |x: f64| if x.abs() > top { top.copysign(x) } else { x };
    (finite(f64::from(got)) - finite(want)).abs() / ulp_f32(finite(want)).min(2.0_f64.powi(104))
}

fn check_all(function: MathFn) {
    for error in errors() {
        let machine = Host::<f32>::with_error(error);
        for bits in (0..=u32::MAX).step_by(STRIDE) {
            let x = f32::from_bits(bits);
            let got = single::apply(&machine, function, x);
            let want = reference(function, f64::from(x));
            let ulps = error_in_ulps(got, want);
            let bound = ulp_bound_at(function, FloatTy::F32, f64::from(x));
            assert!(ulps <= bound, "{function:?}({x:e}) = {got:e}, not {want:e}: {ulps} ulp, with {error:?}");
        }
    }
}

#[test]
fn exponentials_are_within_their_bounds() {
    check_all(MathFn::Exp);
    check_all(MathFn::Exp2);
    check_all(MathFn::Exp10);
    check_all(MathFn::Expm1);
}

/// Where x · log2 e has just taken one more bit before the point, its rounding costs most: there are arguments near
/// the bound, which is therefore no larger than it must be.
#[test]
fn the_bound_of_exp_is_no_looser_than_need_be() {
    let machine = Host::<f32>::with_error(ApproximationError { ex2: 1.5, ..ApproximationError::default() });
    let worst = |from: f32, to: f32| {
        let share = |bits| {
            let x = f32::from_bits(bits);
            let ulps = error_in_ulps(single::exp(&machine, x), f64::from(x).exp());
            ulps / ulp_bound_at(MathFn::Exp, FloatTy::F32, f64::from(x))
        };
        (from.to_bits()..to.to_bits()).step_by(7).map(share).fold(0.0, f64::max)
    };
    for (from, to) in [(22.18, 22.9), (44.36, 45.0), (-44.36, -45.0)] {
        let share = worst(from, to);
        assert!((0.75..=1.0).contains(&share), "{share} of the bound between {from} and {to}");
    }
}

#[test]
fn logarithms_are_within_their_bounds() {
    check_all(MathFn::Log);
    check_all(MathFn::Log2);
    check_all(MathFn::Log10);
    check_all(MathFn::Log1p);
}

#[test]
fn functions_of_angles_are_within_their_bounds_for_all_arguments() {
    check_all(MathFn::Sin);
    check_all(MathFn::Cos);
    check_all(MathFn::Tan);
}

#[test]
fn angles_are_within_their_bounds() {
    check_all(MathFn::Asin);
    check_all(MathFn::Acos);
    check_all(MathFn::Atan);
}

#[test]
fn hyperbolic_functions_and_their_inverses_are_within_their_bounds() {
    check_all(MathFn::Sinh);
    check_all(MathFn::Cosh);
    check_all(MathFn::Asinh);
    check_all(MathFn::Acosh);
    check_all(MathFn::Atanh);
}

#[test]
fn sigmoid_functions_are_within_their_bounds() {
    check_all(MathFn::Tanh);
    check_all(MathFn::Sigmoid);
    check_all(MathFn::Erf);
    check_all(MathFn::Erfc);
    check_all(MathFn::Erfinv);
}

#[test]
fn the_gamma_function_and_its_logarithm_are_within_their_bounds() {
    check_all(MathFn::Lgamma);
    check_all(MathFn::Tgamma);
}

/// What a stride over all bit patterns seldom meets: the zeros of the logarithm and the neighbours of poles.
#[test]
fn the_gamma_function_is_right_next_to_poles_and_zeros() {
    let zeros = [1.0, 2.0, -2.4570248, -2.7476826, -3.1435809, -3.9552943, -4.039361, -4.9915444, -5.008218];
    let poles = (1..45).map(|n| -(n as f32));
    for around in zeros.into_iter().chain(poles) {
        let (mut up, mut down) = (around, around);
        for _ in 0..200 {
            for x in [up, down] {
                for function in [MathFn::Lgamma, MathFn::Tgamma] {
                    let got = single::apply(&Host::<f32>::new(), function, x);
                    let ulps = error_in_ulps(got, reference(function, f64::from(x)));
                    let bound = ulp_bound_at(function, FloatTy::F32, f64::from(x));
                    assert!(ulps <= bound, "{function:?}({x:e}) = {got:e}: {ulps} ulp, not {bound}");
                }
            }
            (up, down) = (up.next_up(), down.next_down());
        }
    }
}

/// Rounded values of Γ(n) = (n - 1)! and of Γ at halves, from which the argument's own rounding takes nothing.
#[test]
fn factorials_are_within_a_unit() {
    let mut factorial = 1.0_f64;
    for n in 1..35 {
        let got = single::apply(&Host::<f32>::new(), MathFn::Tgamma, n as f32);
        assert!(error_in_ulps(got, factorial) <= 1.5, "Γ({n}) = {got:e}, not {factorial:e}");
        factorial *= f64::from(n);
    }
}

#[test]
fn roots_are_within_their_bounds() {
    check_all(MathFn::Sqrt);
    check_all(MathFn::Rsqrt);
    check_all(MathFn::Cbrt);
}

#[test]
fn division_is_within_its_bound() {
    let bound = divide_ulp_bound(FloatTy::F32);
    for error in errors() {
        let machine = Host::<f32>::with_error(error);
        for bits in (0..=u32::MAX).step_by(1_000_003) {
            let (a, b) = (f32::from_bits(bits), f32::from_bits(bits.wrapping_mul(2_654_435_761)));
            let want = f64::from(a) / f64::from(b);
            let ulps = error_in_ulps(single::divide(&machine, a, b), want);
            assert!(ulps <= bound, "{a:e} / {b:e}: {ulps} ulp");
        }
    }
}

#[test]
fn sine_is_right_next_to_the_multiples_of_pi_over_two() {
    // The f32 number closest to a multiple of π/2, relative to its size, and its neighbours.
    for x in [16_367_173.0 * 2.0_f32.powi(72), PI, FRAC_PI_2, 65_536.0, 65_535.996] {
        for x in [x.next_down(), x, x.next_up(), -x] {
            for function in [MathFn::Sin, MathFn::Cos, MathFn::Tan] {
                let got = single::apply(&Host::<f32>::new(), function, x);
                let ulps = error_in_ulps(got, reference(function, f64::from(x)));
                assert!(
                    ulps <= ulp_bound_at(function, FloatTy::F32, f64::from(x)),
                    "{function:?}({x:e}) = {got:e}: {ulps} ulp"
                );
            }
        }
    }
}
