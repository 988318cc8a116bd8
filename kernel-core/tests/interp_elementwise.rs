//! Elementwise operations against tables written out in plain Rust, exhaustively where a dtype has 8 bits.

#![cfg(feature = "interp")]

mod interp_support;

use half::{bf16, f16};
use interp_support::{elements, map};
use kernel_core::interp::{HostBuffer, HostElement};
use kernel_core::ir::DType;
use kernel_core::num;
use kernel_core::num::{F8E4M3, F8E5M2};

/// Every pair of the elements.
fn pairs<T: Copy>(of: &[T]) -> (Vec<T>, Vec<T>) {
    of.iter().flat_map(|&a| of.iter().map(move |&b| (a, b))).unzip()
}

/// Checks one binary operation on every pair of these elements.
fn check_binary<T: HostElement + PartialEq + std::fmt::Debug>(op: &str, of: &[T], expected: impl Fn(T, T) -> T) {
    let (a, b) = pairs(of);
    let want: Vec<T> = a.iter().zip(&b).map(|(&a, &b)| expected(a, b)).collect();
    let got = elements::<T>(&map(&format!("{op} %a, %b"), vec![a.clone().into(), b.clone().into()], T::DTYPE));
    for (i, (got, want)) in got.into_iter().zip(want).enumerate() {
        assert_eq!(got, want, "{op} {:?}, {:?} of {}", a[i], b[i], T::DTYPE);
    }
}

macro_rules! integer_tables {
    ($($name:ident: $ty:ident, $unsigned:ident, $values:expr;)*) => {$(
        #[test]
        fn $name() {
            let values: Vec<$ty> = $values;
            let bits = $ty::BITS;
            check_binary("add", &values, |a: $ty, b| (i128::from(a) + i128::from(b)) as $ty);
            check_binary("sub", &values, |a: $ty, b| (i128::from(a) - i128::from(b)) as $ty);
            check_binary("mul", &values, |a: $ty, b| i128::from(a).wrapping_mul(i128::from(b)) as $ty);
            check_binary("div", &values, |a: $ty, b| if b == 0 { 0 } else { (i128::from(a) / i128::from(b)) as $ty });
            check_binary("rem", &values, |a: $ty, b| if b == 0 { a } else { (i128::from(a) % i128::from(b)) as $ty });
            check_binary("minimum", &values, |a: $ty, b| if a < b { a } else { b });
            check_binary("maximum", &values, |a: $ty, b| if a < b { b } else { a });
            check_binary("minimum_nan", &values, |a: $ty, b| a.min(b));
            check_binary("maximum_nan", &values, |a: $ty, b| a.max(b));
            check_binary("and", &values, |a: $ty, b| a & b);
            check_binary("or", &values, |a: $ty, b| a | b);
            check_binary("xor", &values, |a: $ty, b| a ^ b);
            let count = |b: $ty| i128::from(b).rem_euclid(i128::from(bits)) as u32;
            check_binary("shl", &values, |a: $ty, b| ((a as u128) << count(b)) as $ty);
            check_binary("shr", &values, |a: $ty, b| (i128::from(a) >> count(b)) as $ty);
            check_binary("umulhi", &values, |a: $ty, b| {
                ((u128::from(a as $unsigned) * u128::from(b as $unsigned)) >> bits) as $ty
            });
            let unary = |op: &str| elements::<$ty>(&map(&format!("{op} %a"), vec![values.clone().into()], DType::from_name(stringify!($ty)).unwrap()));
            let abs: Vec<$ty> = values.iter().map(|&a| i128::from(a).unsigned_abs() as $ty).collect();
            assert_eq!(unary("abs"), abs);
            let not: Vec<$ty> = values.iter().map(|&a| !a).collect();
            assert_eq!(unary("not"), not);
            if $ty::MIN != 0 {
                let neg: Vec<$ty> = values.iter().map(|&a| (-i128::from(a)) as $ty).collect();
                assert_eq!(unary("neg"), neg);
            }
        }
    )*};
}

macro_rules! edges {
    ($ty:ident) => {{
        let mut values = vec![0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 100];
        values.extend([$ty::MAX, $ty::MAX - 1, $ty::MIN, $ty::MIN + 1, $ty::MAX / 2, $ty::MAX / 2 + 1, $ty::MIN / 2]);
        values.extend([1, 2, 3, 31, 33].map(|x: $ty| x.wrapping_neg()));
        values
    }};
}

integer_tables! {
    arithmetic_of_i8: i8, u8, (i8::MIN..=i8::MAX).collect();
    arithmetic_of_u8: u8, u8, (u8::MIN..=u8::MAX).collect();
    arithmetic_of_i16: i16, u16, edges!(i16);
    arithmetic_of_u16: u16, u16, edges!(u16);
    arithmetic_of_i32: i32, u32, edges!(i32);
    arithmetic_of_u32: u32, u32, edges!(u32);
    arithmetic_of_i64: i64, u64, edges!(i64);
    arithmetic_of_u64: u64, u64, edges!(u64);
}

#[test]
fn comparisons_of_integers_and_floats() {
    let (a, b) = pairs(&[-1i8, 0, 1, i8::MIN, i8::MAX]);
    let (x, y) = pairs(&[f32::NAN, -0.0, 0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY]);
    macro_rules! check {
        ($($name:literal $op:tt;)*) => {$(
            let op = concat!("cmp.", $name, " %a, %b");
            let got = map(op, vec![a.clone().into(), b.clone().into()], DType::Bool);
            let want: Vec<bool> = a.iter().zip(&b).map(|(a, b)| a $op b).collect();
            assert_eq!(elements::<bool>(&got), want, "{op}");
            let want: Vec<bool> = x.iter().zip(&y).map(|(a, b)| a $op b).collect();
            let got = map(op, vec![x.clone().into(), y.clone().into()], DType::Bool);
            assert_eq!(elements::<bool>(&got), want, "{op}");
            let halves = |v: &[f32]| HostBuffer::from(v.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>());
            assert_eq!(elements::<bool>(&map(op, vec![halves(&x), halves(&y)], DType::Bool)), want, "{op}");
        )*};
    }
    check! { "eq" ==; "ne" !=; "lt" <; "le" <=; "gt" >; "ge" >=; }
}

#[test]
fn minimum_and_maximum_with_nan_and_zeros() {
    let values = [f32::NAN, -0.0, 0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY];
    let (a, b) = pairs(&values);
    let apply =
        |op: &str| elements::<f32>(&map(&format!("{op} %a, %b"), vec![a.clone().into(), b.clone().into()], DType::F32));
    // NaN is ignored; -0 is less than +0.
    let smaller = |a: f32, b: f32| if a.total_cmp(&b).is_lt() { a } else { b };
    let larger = |a: f32, b: f32| if a.total_cmp(&b).is_lt() { b } else { a };
    for (i, (&a, &b)) in a.iter().zip(&b).enumerate() {
        let ignoring = |f: &dyn Fn(f32, f32) -> f32| {
            if a.is_nan() {
                b
            } else if b.is_nan() {
                a
            } else {
                f(a, b)
            }
        };
        let keeping = |f: &dyn Fn(f32, f32) -> f32| if a.is_nan() || b.is_nan() { f32::NAN } else { f(a, b) };
        let same = |got: f32, want: f32| got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
        assert!(same(apply("minimum")[i], ignoring(&smaller)), "minimum {a}, {b}");
        assert!(same(apply("maximum")[i], ignoring(&larger)), "maximum {a}, {b}");
        assert!(same(apply("minimum_nan")[i], keeping(&smaller)), "minimum_nan {a}, {b}");
        assert!(same(apply("maximum_nan")[i], keeping(&larger)), "maximum_nan {a}, {b}");
    }
}

#[test]
fn float_arithmetic_is_that_of_rust() {
    let values = [0.0f32, -0.0, 1.5, -2.75, 1e30, 1e-30, 1e-45, f32::MAX, f32::INFINITY, 7.0, 0.1];
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    let (a, b) = pairs(&values);
    for (op, f) in [
        ("add", (|a, b| a + b) as fn(f32, f32) -> f32),
        ("sub", |a, b| a - b),
        ("mul", |a, b| a * b),
        ("div", |a, b| a / b),
        ("div_rn", |a, b| a / b),
        ("rem", |a, b| a % b),
    ] {
        let got = elements::<f32>(&map(&format!("{op} %a, %b"), vec![a.clone().into(), b.clone().into()], DType::F32));
        for (i, got) in got.into_iter().enumerate() {
            assert!(same(got, f(a[i], b[i])), "{op} {}, {}: {got}", a[i], b[i]);
        }
        // f16 goes through f32 and rounds once.
        let half = |v: &[f32]| v.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>();
        let (ha, hb) = (half(&a), half(&b));
        let got =
            elements::<f16>(&map(&format!("{op} %a, %b"), vec![ha.clone().into(), hb.clone().into()], DType::F16));
        for (i, got) in got.into_iter().enumerate() {
            let want = f16::from_f32(f(ha[i].to_f32(), hb[i].to_f32()));
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{op} {}, {}", ha[i], hb[i]);
        }
    }
}

#[test]
fn fma_rounds_once() {
    // (1 + e)² = 1 + 2e + e², of which a product that rounds loses e².
    let e = f32::EPSILON;
    let fma = |a: f32, c: f32| {
        elements::<f32>(&map("fma %a, %b, %c", vec![vec![a].into(), vec![a].into(), vec![c].into()], DType::F32))
    };
    assert_eq!(fma(1.0 + e, -(1.0 + 2.0 * e)), [e * e]);
    let wide = vec![vec![1.0 + f64::EPSILON].into(), vec![1.0 - f64::EPSILON].into(), vec![-1.0].into()];
    assert_eq!(elements::<f64>(&map("fma %a, %b, %c", wide, DType::F64)), [-f64::EPSILON * f64::EPSILON]);
    // f16 goes through the fma of f32.
    let [a, c] = [1.0 + 2f64.powi(-10), -1.0 - 2f64.powi(-9)].map(f16::from_f64);
    let got = elements::<f16>(&map("fma %a, %b, %c", vec![vec![a].into(), vec![a].into(), vec![c].into()], DType::F16));
    assert_eq!(got, [f16::from_f64(2f64.powi(-20))]);
}

/// Of every dtype, values at which conversions go wrong.
fn edge_values(dtype: DType) -> HostBuffer {
    let ints = |of: DType| {
        let mut v: Vec<i128> = vec![0, 1, 2, 100, 127, 128, 255, 256, 2047, 2049, 65519, 65520, 16_777_217];
        v.extend([i128::from(i32::MAX), 1 << 32, (1 << 53) + 1, (1 << 60) + (1 << 52) + 1, (1 << 60) + (1 << 36) + 1]);
        v.extend([i128::from(i64::MAX), i128::from(u64::MAX), (1 << 63) + (1 << 39) + 1]);
        let negative: Vec<i128> = v.iter().map(|x| -x).collect();
        v.extend(negative);
        v.extend([of.int_min(), of.int_max()]);
        v.retain(|x| (of.int_min()..=of.int_max()).contains(x));
        v
    };
    let floats = || {
        let mut v =
            vec![0.0f64, 0.3, 0.5, 0.9, 1.0, 1.5, 2.5, 127.5, 128.0, 255.5, 256.0, 32767.9, 65535.5, 65519.9, 65520.0];
        v.extend([2147483647.0, 2147483648.0, 4294967296.0, 9.3e18, 1.9e19, 1e30, 1e300, 1e-30, 1e-300, 6e-8, 2.9e-8]);
        v.extend([f64::INFINITY, f64::NAN, f64::MAX, 1.0 + f64::EPSILON, 1.0 + 2f64.powi(-11) + 2f64.powi(-40)]);
        v.extend([1.0 + 2f64.powi(-8) + 2f64.powi(-40), 1.0 + 2f64.powi(-24) + 2f64.powi(-50), 3.4028236e38]);
        let negative: Vec<f64> = v.iter().map(|x| -x).collect();
        v.extend(negative);
        v
    };
    macro_rules! of {
        ($ty:ty) => {
            HostBuffer::from(ints(dtype).into_iter().map(|x| x as $ty).collect::<Vec<_>>())
        };
    }
    match dtype {
        DType::Bool => vec![false, true].into(),
        DType::I8 => of!(i8),
        DType::I16 => of!(i16),
        DType::I32 => of!(i32),
        DType::I64 => of!(i64),
        DType::U8 => of!(u8),
        DType::U16 => of!(u16),
        DType::U32 => of!(u32),
        DType::U64 => of!(u64),
        DType::F8E4M3 => (0..=255).map(F8E4M3::from_bits).collect::<Vec<_>>().into(),
        DType::F8E5M2 => (0..=255).map(F8E5M2::from_bits).collect::<Vec<_>>().into(),
        DType::F16 => floats().into_iter().map(f16::from_f64).collect::<Vec<_>>().into(),
        DType::BF16 => floats().into_iter().map(bf16::from_f64).collect::<Vec<_>>().into(),
        DType::F32 => floats().into_iter().map(|x| x as f32).collect::<Vec<_>>().into(),
        DType::F64 => floats().into(),
    }
}

/// The bits of every element.
fn bits(buffer: &HostBuffer) -> Vec<u64> {
    fn of<T: HostElement>(v: &[T]) -> Vec<u64> {
        let mask = if size_of::<T>() == 8 { u64::MAX } else { (1 << (8 * size_of::<T>())) - 1 };
        v.iter().map(|x| x.bits() & mask).collect()
    }
    match buffer {
        HostBuffer::Bool(v) => of(v),
        HostBuffer::I8(v) => of(v),
        HostBuffer::I16(v) => of(v),
        HostBuffer::I32(v) => of(v),
        HostBuffer::I64(v) => of(v),
        HostBuffer::U8(v) => of(v),
        HostBuffer::U16(v) => of(v),
        HostBuffer::U32(v) => of(v),
        HostBuffer::U64(v) => of(v),
        HostBuffer::F8E4M3(v) => of(v),
        HostBuffer::F8E5M2(v) => of(v),
        HostBuffer::F16(v) => of(v),
        HostBuffer::BF16(v) => of(v),
        HostBuffer::F32(v) => of(v),
        HostBuffer::F64(v) => of(v),
    }
}

/// Whether these are the bits of a NaN.
fn is_nan(bits: u64, dtype: DType) -> bool {
    match dtype {
        DType::F8E4M3 => F8E4M3::from_bits(bits as u8).is_nan(),
        DType::F8E5M2 => F8E5M2::from_bits(bits as u8).is_nan(),
        DType::F16 => f16::from_bits(bits as u16).is_nan(),
        DType::BF16 => bf16::from_bits(bits as u16).is_nan(),
        DType::F32 => f32::from_bits(bits as u32).is_nan(),
        DType::F64 => f64::from_bits(bits).is_nan(),
        _ => false,
    }
}

/// The exact arithmetic on constants, which shares no code with the interpreter, says what a conversion gives.
#[test]
fn casts_between_all_dtypes_agree_with_exact_arithmetic() {
    for from in DType::ALL {
        let input = edge_values(from);
        for to in DType::ALL {
            let got = bits(&map("cast %a", vec![input.clone()], to));
            for (source, got) in bits(&input).into_iter().zip(got) {
                let value = num::from_bits(source, from);
                let want = if from == to { value } else { num::cast(value, to) };
                let want = num::to_bits(want, to).unwrap_or_else(|| panic!("{value:?} of {from} as {to}"));
                // Conversions to 8-bit floats give one NaN.
                let both_nan = (!to.is_fp8() || from == to) && is_nan(got, to) && is_nan(want, to);
                assert!(both_nan || got == want, "{value:?} of {from} as {to}: {got:#x}, want {want:#x}");
            }
        }
    }
}

#[test]
fn casts_that_rust_has_agree_with_rust() {
    macro_rules! check {
        ($($from:ident => $($to:ident)*;)*) => {$($(
            let input = edge_values(DType::from_name(stringify!($from)).unwrap());
            let to = DType::from_name(stringify!($to)).unwrap();
            let want: HostBuffer = elements::<$from>(&input).into_iter().map(|x| x as $to).collect::<Vec<_>>().into();
            let got = map("cast %a", vec![input], to);
            for (got, want) in bits(&got).into_iter().zip(bits(&want)) {
                assert!(got == want || is_nan(got, to) && is_nan(want, to), "{} as {to}: {got:#x} {want:#x}", stringify!($from));
            }
        )*)*};
    }
    check! {
        i8 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
        i16 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
        i32 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
        i64 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
        u8 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
        u16 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
        u32 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
        u64 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
        f32 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
        f64 => i8 i16 i32 i64 u8 u16 u32 u64 f32 f64;
    }
}

#[test]
fn bitcasts_keep_bits() {
    let got = map("bitcast %a", vec![vec![1.0f32, -0.0, f32::NAN].into()], DType::U32);
    assert_eq!(elements::<u32>(&got), [0x3f80_0000, 0x8000_0000, f32::NAN.to_bits()]);
    let got = map("bitcast %a", vec![vec![-1i16, 1].into()], DType::BF16);
    assert_eq!(bits(&got), [0xffff, 1]);
    // A formula's bits too.
    let got = map("bitcast %ix", vec![vec![0f32; 4].into()], DType::F32);
    assert_eq!(bits(&got), [0, 1, 2, 3]);
}

#[test]
fn select_of_every_width() {
    let condition = vec![true, false, true, false];
    for (a, b) in [
        (HostBuffer::from(vec![1i8; 4]), HostBuffer::from(vec![2i8; 4])),
        (vec![1u16; 4].into(), vec![2u16; 4].into()),
        (vec![1f32; 4].into(), vec![2f32; 4].into()),
        (vec![1i64; 4].into(), vec![2i64; 4].into()),
    ] {
        let dtype = a.dtype();
        let (one, two) = (bits(&a)[0], bits(&b)[0]);
        let got = map("select %a, %b, %c", vec![condition.clone().into(), a, b], dtype);
        assert_eq!(bits(&got), [one, two, one, two]);
    }
}

#[test]
fn functions_of_two_arguments_are_those_of_math() {
    use kernel_core::math::{BinaryMathFn, FloatIntFn, evaluate_binary_f32, evaluate_float_int_f32};
    let (xs, ys) = (vec![0.5f32, -2.0, 1e30, f32::NAN], vec![2.5f32, 3.0, -0.0, 1.0]);
    let ns = vec![3i32, -1, 40, 0];
    let same = |got: f32, want: f32| got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
    for &f in BinaryMathFn::ALL {
        let values = vec![xs.clone().into(), ys.clone().into()];
        let got = elements::<f32>(&map(&format!("{} %a, %b", f.name()), values, DType::F32));
        for i in 0..4 {
            assert!(same(got[i], evaluate_binary_f32(f, xs[i], ys[i])), "{f:?} {}", xs[i]);
        }
    }
    for &f in FloatIntFn::ALL {
        let values = vec![xs.clone().into(), ns.clone().into()];
        let got = elements::<f32>(&map(&format!("{} %a, %b", f.name()), values, DType::F32));
        for i in 0..4 {
            assert!(same(got[i], evaluate_float_int_f32(f, xs[i], ns[i])), "{f:?} {}", xs[i]);
        }
    }
    let values = vec![vec![1.0f32, 0.0, -0.0, f32::MAX].into(), vec![2.0f32, -1.0, 0.0, f32::INFINITY].into()];
    let got = elements::<f32>(&map("nextafter %a, %b", values, DType::F32));
    let want = [1.0f32.next_up(), -f32::from_bits(1), 0.0, f32::INFINITY];
    assert_eq!(got.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), want.map(f32::to_bits));
    let values = vec![vec![f16::ONE, f16::NAN].into(), vec![f16::ZERO, f16::ONE].into()];
    let got = elements::<f16>(&map("nextafter %a, %b", values, DType::F16));
    assert_eq!(got[0].to_bits(), f16::ONE.to_bits() - 1);
    assert!(got[1].is_nan());
}

#[test]
fn elementary_functions_are_those_of_math() {
    use kernel_core::math::{MathFn, evaluate_f32, evaluate_f64};
    let xs: Vec<f32> = vec![0.0, -0.0, 0.1, 1.0, -1.0, 2.5, 30.0, -30.0, 1e5, 88.8, f32::INFINITY, f32::NAN];
    for &f in MathFn::ALL {
        let op = f.name();
        let got = elements::<f32>(&map(&format!("{op} %a"), vec![xs.clone().into()], DType::F32));
        for (&x, got) in xs.iter().zip(got) {
            let want = evaluate_f32(f, x);
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{op} {x}: {got} {want}");
        }
        let wide: Vec<f64> = xs.iter().map(|&x| f64::from(x)).collect();
        let got = elements::<f64>(&map(&format!("{op} %a"), vec![wide.clone().into()], DType::F64));
        for (&x, got) in wide.iter().zip(got) {
            let want = evaluate_f64(f, x);
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{op} {x}: {got} {want}");
        }
        let half: Vec<f16> = xs.iter().map(|&x| f16::from_f32(x)).collect();
        let got = elements::<f16>(&map(&format!("{op} %a"), vec![half.clone().into()], DType::F16));
        for (x, got) in half.into_iter().zip(got) {
            let want = f16::from_f32(evaluate_f32(f, x.to_f32()));
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{op} {x}: {got} {want}");
        }
    }
    let got = elements::<f32>(&map("floor %a", vec![vec![1.5f32, -1.5, -0.5].into()], DType::F32));
    assert_eq!(got, [1.0, -2.0, -1.0]);
    let got = elements::<bf16>(&map("ceil %a", vec![vec![bf16::from_f32(1.5)].into()], DType::BF16));
    assert_eq!(got, [bf16::from_f32(2.0)]);
}
