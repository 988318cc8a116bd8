//! Special values: signed zeros, infinities, NaN, the ends of the range.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use crate::math::{MathFn, evaluate_f32, evaluate_f64};

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Arguments and exact values, the same for both widths. The sign of a zero counts.
const VALUES: &[(MathFn, &[(f64, f64)])] = &[
    (MathFn::Exp, &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e5, INF), (-1e5, 0.0)]),
    (MathFn::Exp, &[(3e38, INF), (-3e38, 0.0), (1e-30, 1.0), (1e-42, 1.0)]),
    (MathFn::Exp2, &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (10.0, 1024.0), (-1.0, 0.5)]),
    (MathFn::Expm1, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN), (1e5, INF), (-1e5, -1.0)]),
    (MathFn::Expm1, &[(3e38, INF), (-3e38, -1.0), (1e-30, 1e-30), (-1e-30, -1e-30), (1e-42, 1e-42)]),
    (MathFn::Exp10, &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e5, INF), (-1e5, 0.0)]),
    (MathFn::Exp10, &[(3e38, INF), (-3e38, 0.0), (1e-30, 1.0), (1e-42, 1.0), (2.0, 100.0)]),
    (MathFn::Log10, &[(1.0, 0.0), (100.0, 2.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF), (-INF, NAN)]),
    (MathFn::Log10, &[(NAN, NAN)]),
    (MathFn::Tan, &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e-30, 1e-30), (1e-42, 1e-42)]),
    (MathFn::Asin, &[(0.0, 0.0), (-0.0, -0.0), (1.0, FRAC_PI_2), (-1.0, -FRAC_PI_2), (1.5, NAN), (-1.5, NAN)]),
    (MathFn::Asin, &[(INF, NAN), (-INF, NAN), (NAN, NAN), (1e-30, 1e-30), (-1e-42, -1e-42)]),
    (MathFn::Acos, &[(0.0, FRAC_PI_2), (-0.0, FRAC_PI_2), (1.0, 0.0), (-1.0, PI), (1.5, NAN), (-1.5, NAN), (NAN, NAN)]),
    (MathFn::Acos, &[(INF, NAN), (-INF, NAN), (1e-30, FRAC_PI_2)]),
    (MathFn::Atan, &[(0.0, 0.0), (-0.0, -0.0), (1.0, FRAC_PI_4), (-1.0, -FRAC_PI_4), (INF, FRAC_PI_2), (NAN, NAN)]),
    (MathFn::Atan, &[(-INF, -FRAC_PI_2), (1e30, FRAC_PI_2), (1e-30, 1e-30), (-1e-42, -1e-42)]),
    (MathFn::Sinh, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e5, INF), (-1e5, -INF)]),
    (MathFn::Sinh, &[(3e38, INF), (1e-30, 1e-30), (-1e-42, -1e-42)]),
    (
        MathFn::Cosh,
        &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (NAN, NAN), (1e5, INF), (-1e5, INF), (1e-42, 1.0)],
    ),
    (
        MathFn::Asinh,
        &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e-30, 1e-30), (-1e-42, -1e-42)],
    ),
    (MathFn::Acosh, &[(1.0, 0.0), (0.5, NAN), (0.0, NAN), (-1.0, NAN), (-3.0, NAN), (-1e30, NAN), (INF, INF)]),
    (MathFn::Acosh, &[(-INF, NAN), (NAN, NAN)]),
    (MathFn::Atanh, &[(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (-1.5, NAN), (INF, NAN)]),
    (MathFn::Atanh, &[(-INF, NAN), (NAN, NAN), (1e-30, 1e-30), (-1e-42, -1e-42)]),
    (MathFn::Log, &[(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)]),
    (MathFn::Log2, &[(1.0, 0.0), (8.0, 3.0), (0.25, -2.0), (0.0, -INF), (-0.0, -INF), (-1.0, NAN), (INF, INF)]),
    (MathFn::Log2, &[(NAN, NAN), (-INF, NAN), (1.1754943508222875e-38, -126.0), (1.401298464324817e-45, -149.0)]),
    (MathFn::Log1p, &[(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-2.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)]),
    (MathFn::Log1p, &[(1e-30, 1e-30), (-1e-30, -1e-30), (1e-42, 1e-42), (-1e-42, -1e-42)]),
    (MathFn::Sin, &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e-30, 1e-30)]),
    (MathFn::Cos, &[(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e-30, 1.0)]),
    (MathFn::Tanh, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (50.0, 1.0), (-1e30, -1.0)]),
    (MathFn::Erf, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN), (7.0, 1.0), (-1e30, -1.0)]),
    (
        MathFn::Erfc,
        &[(0.0, 1.0), (-0.0, 1.0), (INF, 0.0), (-INF, 2.0), (NAN, NAN), (30.0, 0.0), (-7.0, 2.0), (1e30, 0.0)],
    ),
    (MathFn::Erfc, &[(-1e30, 2.0), (1e-30, 1.0), (1e-42, 1.0)]),
    (
        MathFn::Erfinv,
        &[(0.0, 0.0), (-0.0, -0.0), (1.0, INF), (-1.0, -INF), (1.5, NAN), (-2.0, NAN), (INF, NAN), (NAN, NAN)],
    ),
    (MathFn::Tgamma, &[(0.0, INF), (-0.0, -INF), (INF, INF), (-INF, NAN), (NAN, NAN), (-1.0, NAN), (-2.0, NAN)]),
    (MathFn::Tgamma, &[(1.0, 1.0), (2.0, 1.0), (-3e38, NAN), (-1e7, NAN), (1e30, INF), (200.0, INF), (-190.5, -0.0)]),
    (MathFn::Tgamma, &[(-191.5, 0.0), (-2000001.25, 0.0), (-2000002.25, -0.0), (-4000000.5, -0.0)]),
    (MathFn::Lgamma, &[(0.0, INF), (-0.0, INF), (INF, INF), (-INF, INF), (NAN, NAN), (-1.0, INF), (-7.0, INF)]),
    (MathFn::Lgamma, &[(1.0, 0.0), (2.0, 0.0), (-3e38, INF)]),
    (MathFn::Sigmoid, &[(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN), (50.0, 1.0), (-1e5, 0.0)]),
    (MathFn::Sqrt, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1.0, NAN), (NAN, NAN), (4.0, 2.0)]),
    (MathFn::Cbrt, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (27.0, 3.0), (-8.0, -2.0)]),
    (MathFn::Rsqrt, &[(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (NAN, NAN), (4.0, 0.5)]),
];

#[test]
fn special_values_are_exact_in_both_widths() {
    for &(function, values) in VALUES {
        for &(x, want) in values {
            let got = evaluate_f64(function, x);
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "f64 {function:?}({x:e}) = {got:e}, not {want:e}");

            let (x, want) = (x as f32, want as f32);
            let got = evaluate_f32(function, x);
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "f32 {function:?}({x:e}) = {got:e}, not {want:e}");
        }
    }
}

#[test]
fn results_underflow_gradually() {
    // e^-100 and σ(-100) are subnormal in f32, e^-740 in f64: 2^-148 and 2^-1073 are their units.
    for function in [MathFn::Exp, MathFn::Sigmoid] {
        assert!(evaluate_f32(function, -100.0).is_subnormal());
        assert_eq!(evaluate_f32(function, -103.0).to_bits(), 1);
        assert!(evaluate_f64(function, -740.0).is_subnormal());
    }
    assert_eq!(evaluate_f32(MathFn::Exp2, -149.0).to_bits(), 1);
    assert_eq!(evaluate_f64(MathFn::Exp2, -1074.0).to_bits(), 1);
    assert_eq!(evaluate_f64(MathFn::Exp2, 1023.0), 2.0_f64.powi(1023));
}

#[test]
fn subnormal_arguments_are_kept() {
    let x = f32::from_bits(0x0000_1234);
    let same = [
        MathFn::Sin,
        MathFn::Tan,
        MathFn::Asin,
        MathFn::Atan,
        MathFn::Sinh,
        MathFn::Asinh,
        MathFn::Atanh,
        MathFn::Tanh,
        MathFn::Log1p,
        MathFn::Expm1,
    ];
    for function in same {
        assert_eq!(evaluate_f32(function, x), x);
        assert_eq!(evaluate_f64(function, f64::from_bits(0x1234)), f64::from_bits(0x1234));
    }
    assert_eq!(evaluate_f32(MathFn::Sqrt, x), (f64::from(x).sqrt()) as f32);
}

const ODD: [MathFn; 11] = [
    MathFn::Cbrt,
    MathFn::Sin,
    MathFn::Tan,
    MathFn::Asin,
    MathFn::Atan,
    MathFn::Sinh,
    MathFn::Asinh,
    MathFn::Atanh,
    MathFn::Tanh,
    MathFn::Erf,
    MathFn::Erfinv,
];

#[test]
fn odd_functions_are_odd_and_even_ones_even() {
    for bits in (0..0x7f80_0000_u32).step_by(100_003) {
        let x = f32::from_bits(bits);
        for function in ODD {
            let (left, right) = (evaluate_f32(function, -x), evaluate_f32(function, x));
            assert!(left == -right || left.is_nan() && right.is_nan(), "{function:?}({x:e})");
            let x = f64::from(x);
            let (left, right) = (evaluate_f64(function, -x), evaluate_f64(function, x));
            assert!(left == -right || left.is_nan() && right.is_nan(), "{function:?}({x:e})");
        }
        for function in [MathFn::Cos, MathFn::Cosh] {
            assert_eq!(evaluate_f32(function, -x), evaluate_f32(function, x), "{function:?}({x:e})");
        }
    }
}
