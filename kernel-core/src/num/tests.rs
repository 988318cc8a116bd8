use super::*;
use crate::ir::infer::Needs;
use crate::ir::{BinaryOp, CmpOp, DTypeBound, UnaryOp};
use crate::math::MathFn;

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

#[test]
fn every_narrow_float_survives_the_way_through_its_bits() {
    for dtype in [DType::F16, DType::BF16] {
        for bits in 0..=0xffffu64 {
            let literal = from_bits(bits, dtype);
            assert_eq!(to_bits(literal, dtype).map(|b| b | quiet(dtype, bits)), Some(bits | quiet(dtype, bits)));
            let Literal::Float(wide) = literal else { panic!("{bits:#x}") };
            if dtype == DType::BF16 && !f64::from_bits(wide).is_nan() {
                assert_eq!(f64::from_bits(wide), f64::from(f32::from_bits((bits as u32) << 16)));
            }
        }
    }
}

/// The bit that rounding sets in a NaN.
fn quiet(dtype: DType, bits: u64) -> u64 {
    let Literal::Float(wide) = from_bits(bits, dtype) else { return 0 };
    let bit = if dtype == DType::F16 { 1 << 9 } else { 1 << 6 };
    if f64::from_bits(wide).is_nan() { bit } else { 0 }
}

#[test]
fn rounding_takes_the_nearest_and_ties_to_even() {
    for dtype in [DType::F16, DType::BF16] {
        let all: Vec<f64> = (0..0x7c00u64 + if dtype == DType::BF16 { 0x380 } else { 0 })
            .map(|bits| match from_bits(bits, dtype) {
                Literal::Float(b) => f64::from_bits(b),
                Literal::Bool(_) | Literal::Int(_) => f64::NAN,
            })
            .filter(|f| f.is_finite())
            .collect();
        for (index, pair) in all.windows(2).enumerate() {
            let (low, high) = (pair[0], pair[1]);
            let middle = (low + high) / 2.0;
            let even = if index % 2 == 0 { low } else { high };
            assert_eq!(round(middle, dtype), even, "{dtype} {middle}");
            assert_eq!(round(middle.next_up(), dtype), high);
            assert_eq!(round(middle.next_down(), dtype), low);
            assert_eq!(round(-middle.next_down(), dtype), -low);
        }
    }
    assert_eq!(round(65519.99, DType::F16), 65504.0);
    assert_eq!(round(65520.0, DType::F16), f64::INFINITY);
    assert_eq!(round(-1e300, DType::BF16), f64::NEG_INFINITY);
}

#[test]
fn rounding_to_f32_is_rusts() {
    let mut bits = 1u64;
    for _ in 0..100_000 {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Exponents around those of f32, its subnormals included.
        let value = f64::from_bits(bits & !(0x7ff << 52) | (850 + bits % 320) << 52);
        assert_eq!(round(value, DType::F32).to_bits(), f64::from(value as f32).to_bits(), "{value:e}");
    }
}

#[test]
fn narrow_literals_are_rounded_once() {
    // Just above the middle of 1 and its successor in f16; f32 rounds it to the middle, from where it would go down.
    let middle = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
    assert_eq!(normalise(Literal::float(middle), DType::F16), Some(Literal::float(1.0 + 2f64.powi(-10))));
    let int = (1i128 << 60) + (1 << 52) + 1;
    assert_eq!(round_int(int, DType::BF16), ((1i128 << 60) + (1 << 53)) as f64);
}

#[test]
fn constants_that_do_not_fit_have_no_normal_form() {
    assert_eq!(normalise(Literal::Int(-1), DType::U32), None);
    assert_eq!(normalise(Literal::Int(65536), DType::F16), None);
    assert_eq!(normalise(Literal::float(1e300), DType::F32), None);
    assert_eq!(normalise(Literal::float(f64::INFINITY), DType::F32), Some(Literal::float(f64::INFINITY)));
    assert_eq!(normalise(Literal::float(1.0), DType::I32), None);
    assert_eq!(normalise(Literal::Int(1), DType::Bool), None);
    assert_eq!(normalise(Literal::Int(3), DType::F32), Some(Literal::float(3.0)));
}

#[test]
fn limits_are_rusts() {
    let float = |f: f64| Some(Literal::float(f));
    assert_eq!(limit(LimitKind::Max, DType::F32), float(f64::from(f32::MAX)));
    assert_eq!(limit(LimitKind::Min, DType::F64), float(f64::MIN));
    assert_eq!(limit(LimitKind::Epsilon, DType::F32), float(f64::from(f32::EPSILON)));
    assert_eq!(limit(LimitKind::MinPositive, DType::F32), float(f64::from(f32::MIN_POSITIVE)));
    assert_eq!(limit(LimitKind::Max, DType::F16), float(65504.0));
    assert_eq!(limit(LimitKind::Max, DType::U64), Some(Literal::Int(i128::from(u64::MAX))));
    assert_eq!(limit(LimitKind::Min, DType::Bool), None);
    assert_eq!(limit(LimitKind::Nan, DType::I32), None);
}

#[test]
fn integer_arithmetic_is_total() {
    let int = |op, dtype, a: i128, b: i128| match binary(op, dtype, Literal::Int(a), Literal::Int(b)) {
        Some(Literal::Int(v)) => v,
        other => panic!("{other:?}"),
    };
    for dtype in DType::ALL.into_iter().filter(|d| d.is_int()) {
        let (min, max) = (dtype.int_min(), dtype.int_max());
        for op in BinaryOp::ALL.iter().copied().filter(|op| op.needs() != Needs::Bound(DTypeBound::Float)) {
            for a in [min, max, 0, 1, 7] {
                for b in [min, max, 0, 1, 7] {
                    let v = int(op, dtype, a, b);
                    assert!((min..=max).contains(&v), "{op:?} {dtype} {a} {b}: {v}");
                }
            }
        }
        assert_eq!(int(BinaryOp::Div, dtype, 7, 0), 0);
        assert_eq!(int(BinaryOp::Rem, dtype, 7, 0), 7);
        assert_eq!(int(BinaryOp::Add, dtype, max, 1), min);
    }
    assert_eq!(int(BinaryOp::Div, DType::I32, i128::from(i32::MIN), -1), i128::from(i32::MIN));
    assert_eq!(int(BinaryOp::Rem, DType::I32, i128::from(i32::MIN), -1), 0);
    assert_eq!(int(BinaryOp::Div, DType::I32, -7, 2), -3);
    assert_eq!(int(BinaryOp::Shl, DType::I32, 1, 33), 2);
    assert_eq!(int(BinaryOp::Shr, DType::I8, -128, -1), -1);
    assert_eq!(int(BinaryOp::Umulhi, DType::I32, -1, -1), -2);
    assert_eq!(int(BinaryOp::Mulhi, DType::I32, -1, -1), 0);
    assert_eq!(int(BinaryOp::Mulhi, DType::I64, i64::MIN.into(), i64::MIN.into()), 1 << 62);
    assert_eq!(int(BinaryOp::Mulhi, DType::U64, u64::MAX.into(), u64::MAX.into()), i128::from(u64::MAX - 1));
    assert_eq!(int(BinaryOp::RotateLeft, DType::I8, -127, 1), 3);
    assert_eq!(int(BinaryOp::RotateLeft, DType::U64, 1, -1), 1 << 63);
    assert_eq!(int(BinaryOp::RotateLeft, DType::U32, 0x8000_0001, 32), 0x8000_0001);
    assert_eq!(int(BinaryOp::RotateRight, DType::U8, 1, 1), 128);
    assert_eq!(int(BinaryOp::RotateRight, DType::I16, 0x1234, -4), 0x2341);
    assert_eq!(int(BinaryOp::SaturatingAdd, DType::I8, 100, 100), 127);
    assert_eq!(int(BinaryOp::SaturatingSub, DType::I8, -100, 100), -128);
    assert_eq!(int(BinaryOp::SaturatingSub, DType::U8, 1, 2), 0);
    assert_eq!(int(BinaryOp::Umulhi, DType::U64, u64::MAX.into(), u64::MAX.into()), i128::from(u64::MAX - 1));
}

#[test]
fn conversions_are_rusts() {
    let f = Literal::float;
    assert_eq!(cast(f(f64::NAN), DType::I32), Literal::Int(0));
    assert_eq!(cast(f(-1.5), DType::U8), Literal::Int(0));
    assert_eq!(cast(f(1e30), DType::U64), Literal::Int(u64::MAX.into()));
    assert_eq!(cast(f(f64::NAN), DType::Bool), Literal::Bool(true));
    assert_eq!(cast(Literal::Int(300), DType::I8), Literal::Int(44));
    assert_eq!(cast(Literal::Bool(true), DType::F16), f(1.0));
    assert_eq!(cast(f(1e6), DType::F16), f(f64::INFINITY));
    assert_eq!(cast(Literal::Int(16_777_217), DType::F32), f(16_777_216.0));
    // Just above the middle of two neighbours, where rounding to f32 or f64 first arrives.
    assert_eq!(cast(f(1.0 + 2f64.powi(-11) + 2f64.powi(-40)), DType::F16), f(1.0 + 2f64.powi(-10)));
    assert_eq!(cast(Literal::Int((1 << 60) + (1 << 52) + 1), DType::BF16), f(2f64.powi(60) + 2f64.powi(53)));
    assert_eq!(bitcast(f(1.0), DType::F32, DType::I32), Some(Literal::Int(0x3f80_0000)));
    assert_eq!(bitcast(Literal::Int(-0x8000), DType::I16, DType::F16), Some(f(-0.0)));
}

#[test]
fn floats_compute_in_their_precision() {
    for dtype in FLOATS {
        let third = binary(BinaryOp::Div, dtype, Literal::float(1.0), Literal::float(3.0)).unwrap();
        assert_eq!(normalise(third, dtype), Some(third));
        assert_eq!(unary(UnaryOp::Math(MathFn::Sqrt), dtype, Literal::float(4.0)), Some(Literal::float(2.0)));
        assert_eq!(unary(UnaryOp::Math(MathFn::Exp), dtype, Literal::float(0.0)), None);
        let nan = limit(LimitKind::Nan, dtype).unwrap();
        assert_eq!(binary(BinaryOp::Max, dtype, nan, Literal::float(1.0)), Some(Literal::float(1.0)));
        assert_eq!(binary(BinaryOp::MaxNan, dtype, nan, Literal::float(1.0)), Some(nan));
        assert_eq!(compare(CmpOp::Ne, nan, nan), Some(true));
        assert_eq!(compare(CmpOp::Ge, nan, nan), Some(false));
    }
}

#[test]
fn constants_are_shown_as_they_are_written() {
    let shown = |text: &str, dtype| {
        let value = normalise(Literal::float(text.parse().expect("a float")), dtype).expect("it fits");
        show(value, dtype)
    };
    for text in ["0.1", "-0.3", "1e-5", "2.5", "65504.0", "-0.0", "10008.0"] {
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let is_exact = text != "65504.0" && text != "10008.0" || dtype != DType::BF16;
            assert!(!is_exact || shown(text, dtype) == text, "{text} as {dtype}: {}", shown(text, dtype));
        }
    }
    for text in ["3.14159", "0.33333334", "3.4028235e38", "1e-45", "inf"] {
        assert_eq!(shown(text, DType::F32), text);
    }
    assert_eq!(shown("0.33333334", DType::F16), "0.3333");
    assert_eq!((shown("nan", DType::F16).as_str(), show(Literal::Bool(true), DType::Bool).as_str()), ("NaN", "true"));
}

#[test]
fn what_is_shown_reads_as_the_same_constant() {
    for dtype in [DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2] {
        for bits in 0..1u64 << dtype.bits() {
            let literal = from_bits(bits, dtype);
            let Literal::Float(wide) = literal else { panic!("{bits:#x}") };
            let shown = show(literal, dtype);
            let [exact, single] =
                [shown.parse::<f64>(), shown.parse::<f32>().map(f64::from)].map(|x| x.expect("a number"));
            for read in [exact, single] {
                let same = round(read, dtype).to_bits() == wide || f64::from_bits(wide).is_nan() && read.is_nan();
                assert!(same || !f64::from_bits(wide).is_finite(), "{shown} is not {bits:#x} as {dtype}");
            }
        }
    }
}
