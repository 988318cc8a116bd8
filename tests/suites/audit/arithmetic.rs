//! Operators and functions mean what Rust means by them.

use kernel_core::ir::{BinaryOp, DType, UnaryOp};
use kernel_core::math::{BinaryMathFn, FloatIntFn};
use tilewright::prelude::*;
use tilewright_tests::data::{self, Data};
use tilewright_tests::devices::{check, on_every_device};
use tilewright_tests::expect::{Answer, compare};
use tilewright_tests::{reference, samples};

#[kernel]
fn integers<T: Int, const BLOCK: usize>(
    x: Ptr<T>,
    y: Ptr<T>,
    quotient: PtrMut<T>,
    remainder: PtrMut<T>,
    left: PtrMut<T>,
    right: PtrMut<T>,
    high: PtrMut<T>,
    less: PtrMut<bool>,
    n: i32,
) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = i < n;
    let a = load(x + i, mask = mask);
    let b = load(y + i, mask = mask);
    store(quotient + i, a / b, mask = mask);
    store(remainder + i, a % b, mask = mask);
    store(left + i, a << b, mask = mask);
    store(right + i, a >> b, mask = mask);
    store(high + i, umulhi(a, b), mask = mask);
    store(less + i, a < b, mask = mask);
}

trait Element: Int {
    const DTYPE: kernel_core::ir::DType;
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

macro_rules! elements {
    ($($ty:ident $name:ident)*) => {$(
        impl Element for $ty {
            const DTYPE: kernel_core::ir::DType = kernel_core::ir::DType::$name;
            fn of(bits: u64) -> $ty { bits as $ty }
            fn bits(self) -> u64 { self as u64 & data::mask(Self::DTYPE) }
        }
    )*};
}
elements! { i8 I8 i16 I16 i32 I32 i64 I64 u8 U8 u16 U16 u32 U32 u64 U64 }

fn check_integers<T: Element>(device: &Device) -> Result<(), Error> {
    let (a, b) = samples::pairs(T::DTYPE, 200, 30);
    let upload = |data: &Data| device.upload(&data.bits.iter().map(|&v| T::of(v)).collect::<Vec<_>>());
    let (x, y, n) = (upload(&a)?, upload(&b)?, a.len());
    let mut results = (0..5).map(|_| device.zeros::<T>(n)).collect::<Result<Vec<_>, _>>()?;
    let mut less = device.zeros::<bool>(n)?;
    let [quotient, remainder, left, right, high] = results.as_mut_slice() else { panic!("five buffers") };
    integers::<T, 128>(&x, &y, quotient, remainder, left, right, high, &mut less, n as i32)
        .grid(n.div_ceil(128))
        .launch(device)?;
    let ops = [BinaryOp::Div, BinaryOp::Rem, BinaryOp::Shl, BinaryOp::Shr, BinaryOp::Umulhi];
    for (op, result) in ops.into_iter().zip(&results) {
        let want: Vec<Answer> = (0..n).map(|i| reference::binary(op, T::DTYPE, a.bits[i], b.bits[i])).collect();
        let got: Vec<u64> = result.to_vec()?.into_iter().map(T::bits).collect();
        let inputs = |i: usize| format!(" {} {}", data::show(T::DTYPE, a.bits[i]), data::show(T::DTYPE, b.bits[i]));
        compare(T::DTYPE, &got, &want, &inputs)
            .unwrap_or_else(|wrong| panic!("{} of {}: {wrong}", op.name(), T::DTYPE));
    }
    for (i, got) in less.to_vec()?.into_iter().enumerate() {
        let (x, y) = (data::to_int(T::DTYPE, a.bits[i]), data::to_int(T::DTYPE, b.bits[i]));
        assert_eq!(got, x < y, "{x} < {y} as {}", T::DTYPE);
    }
    Ok(())
}

#[test]
fn division_truncates_shifts_wrap_and_unsigned_is_unsigned() {
    check(|device| {
        check_integers::<i8>(device)?;
        check_integers::<i16>(device)?;
        check_integers::<i32>(device)?;
        check_integers::<i64>(device)?;
        check_integers::<u8>(device)?;
        check_integers::<u16>(device)?;
        check_integers::<u32>(device)?;
        check_integers::<u64>(device)
    });
}

/// Every function of one float, as functions and as methods, two outputs each.
macro_rules! float_functions {
    ($($kernel:ident: $name:ident;)*) => {$(
        #[kernel]
        fn $kernel(x: Ptr<f32>, function: PtrMut<f32>, method: PtrMut<f32>, n: i32) {
            let i = program_id(0) * 128 + arange(0, 128);
            let mask = i < n;
            let v = load(x + i, mask = mask);
            store(function + i, $name(v), mask = mask);
            store(method + i, v.$name(), mask = mask);
        }

        #[test]
        fn $name() {
            check(|device| {
                let run = |x: &Buffer<f32>, a: &mut Buffer<f32>, b: &mut Buffer<f32>, n: i32| {
                    $kernel(x, a, b, n).grid((n as u32).div_ceil(128)).launch(device)
                };
                check_function(device, stringify!($name), run)
            });
        }
    )*};
}

fn check_function(
    device: &Device,
    name: &str,
    run: impl Fn(&Buffer<f32>, &mut Buffer<f32>, &mut Buffer<f32>, i32) -> Result<(), Error>,
) -> Result<(), Error> {
    let op = UnaryOp::from_name(name).unwrap_or_else(|| panic!("no operation is called {name}"));
    let input = samples::one(kernel_core::ir::DType::F32, 500, 31);
    let x = device.upload(&input.bits.iter().map(|&b| f32::from_bits(b as u32)).collect::<Vec<_>>())?;
    let (mut function, mut method) = (device.zeros(input.len())?, device.zeros(input.len())?);
    run(&x, &mut function, &mut method, input.len() as i32)?;
    let want: Vec<Answer> = input.bits.iter().map(|&x| reference::unary(op, input.dtype, x)).collect();
    for (spelling, result) in [("function", function), ("method", method)] {
        let got: Vec<u64> = result.to_vec()?.into_iter().map(|v| u64::from(v.to_bits())).collect();
        let inputs = |i: usize| format!(" {}", data::show(input.dtype, input.bits[i]));
        compare(input.dtype, &got, &want, &inputs).unwrap_or_else(|wrong| panic!("{name} as a {spelling}: {wrong}"));
    }
    Ok(())
}

float_functions! {
    run_exp: exp;
    run_exp2: exp2;
    run_expm1: expm1;
    run_log: log;
    run_log2: log2;
    run_log1p: log1p;
    run_sqrt: sqrt;
    run_sqrt_rn: sqrt_rn;
    run_rsqrt: rsqrt;
    run_cbrt: cbrt;
    run_sin: sin;
    run_cos: cos;
    run_exp10: exp10;
    run_log10: log10;
    run_tan: tan;
    run_asin: asin;
    run_acos: acos;
    run_atan: atan;
    run_sinh: sinh;
    run_cosh: cosh;
    run_asinh: asinh;
    run_acosh: acosh;
    run_atanh: atanh;
    run_tanh: tanh;
    run_erf: erf;
    run_erfc: erfc;
    run_erfinv: erfinv;
    run_lgamma: lgamma;
    run_tgamma: tgamma;
    run_sigmoid: sigmoid;
    run_floor: floor;
    run_trunc: trunc;
    run_round: round;
    run_round_ties_even: round_ties_even;
    run_ceil: ceil;
    run_abs: abs;
}

#[kernel]
fn classes(x: Ptr<f32>, y: Ptr<f32>, fraction: PtrMut<f32>, signed: PtrMut<f32>, classes: PtrMut<i32>, n: i32) {
    let i = program_id(0) * 128 + arange(0, 128);
    let mask = i < n;
    let v = load(x + i, mask = mask);
    store(fraction + i, fract(v), mask = mask);
    store(signed + i, copysign(v, load(y + i, mask = mask)), mask = mask);
    let class = is_nan(v) as i32 + 2 * is_infinite(v) as i32 + 4 * v.is_finite() as i32;
    store(classes + i, class, mask = mask);
}

#[test]
fn fractions_signs_and_classes_of_floats_are_rusts() {
    let (a, b) = samples::pairs(kernel_core::ir::DType::F32, 200, 32);
    let floats = |data: &Data| data.bits.iter().map(|&v| f32::from_bits(v as u32)).collect::<Vec<_>>();
    let (xs, ys) = (floats(&a), floats(&b));
    on_every_device(|device| {
        let run = || {
            let (x, y) = (device.upload(&xs)?, device.upload(&ys)?);
            let (mut fraction, mut signed) = (device.zeros::<f32>(xs.len())?, device.zeros::<f32>(xs.len())?);
            let mut class = device.zeros::<i32>(xs.len())?;
            classes(&x, &y, &mut fraction, &mut signed, &mut class, xs.len() as i32)
                .grid(xs.len().div_ceil(128))
                .launch(device)?;
            Ok::<_, Error>((fraction.to_vec()?, signed.to_vec()?, class.to_vec()?))
        };
        let (fraction, signed, class) = run().unwrap_or_else(|error| panic!("{error}"));
        for (i, (&x, &y)) in xs.iter().zip(&ys).enumerate() {
            let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(same(fraction[i], x.fract()), "fract({x:e}) is {:e}", fraction[i]);
            assert!(same(signed[i], x.copysign(y)), "copysign({x:e}, {y:e}) is {:e}", signed[i]);
            let want = i32::from(x.is_nan()) + 2 * i32::from(x.is_infinite()) + 4 * i32::from(x.is_finite());
            assert_eq!(class[i], want, "{x:e}");
        }
    });
}

#[kernel]
fn small_floats_are_classified(x: Ptr<f8e4m3>, classes: PtrMut<i32>) {
    let v = load(x + arange(0, 256));
    store(classes + arange(0, 256), is_nan(v) as i32 + 2 * is_infinite(v) as i32 + 4 * is_finite(v) as i32);
}

#[test]
fn a_dtype_without_infinities_has_none() {
    on_every_device(|device| {
        let bytes: Vec<F8E4M3> = (0..=255u8).map(F8E4M3::from_bits).collect();
        let run = || {
            let mut classes = device.zeros::<i32>(256)?;
            small_floats_are_classified(&device.upload(&bytes)?, &mut classes).grid(1).launch(device)?;
            classes.to_vec()
        };
        let classes = run().unwrap_or_else(|error| panic!("{error}"));
        for (bits, class) in classes.into_iter().enumerate() {
            assert_eq!(class, if bits & 0x7f == 0x7f { 1 } else { 4 }, "{bits:#x}");
        }
    });
}

#[kernel]
fn of_two<T: Float>(x: Ptr<T>, y: Ptr<T>, k: Ptr<i32>, out: PtrMut<T>, n: i32) {
    let i = program_id(0) * 128 + arange(0, 128);
    let mask = i < n;
    let a = load(x + i, mask = mask);
    let b = load(y + i, mask = mask);
    let count = load(k + i, mask = mask);
    store(out + i, pow(a, b), mask = mask);
    store(out + n + i, a.atan2(b), mask = mask);
    store(out + 2 * n + i, hypot(a, b), mask = mask);
    store(out + 3 * n + i, nextafter(a, b), mask = mask);
    store(out + 4 * n + i, fdim(a, b), mask = mask);
    store(out + 5 * n + i, a.powi(count), mask = mask);
    store(out + 6 * n + i, ldexp(a, count), mask = mask);
}

fn check_of_two<T: Float>(device: &Device, dtype: DType, of: fn(u64) -> T, bits: fn(T) -> u64) -> Result<(), Error> {
    let (a, b) = samples::pairs(dtype, 300, 37);
    let n = a.len();
    let counts: Vec<i32> = (0..n as i32).map(|i| i * 37 % 301 - 150).collect();
    let upload = |data: &Data| device.upload(&data.bits.iter().map(|&v| of(v)).collect::<Vec<_>>());
    let mut out = device.zeros::<T>(7 * n)?;
    of_two(&upload(&a)?, &upload(&b)?, &device.upload(&counts)?, &mut out, n as i32)
        .grid(n.div_ceil(128))
        .launch(device)?;
    let out = out.to_vec()?;
    let difference = |i: usize| {
        let (x, y) = (data::to_f64(dtype, a.bits[i]), data::to_f64(dtype, b.bits[i]));
        Answer::Exactly(data::from_f64(dtype, if x <= y { 0.0 } else { x - y }))
    };
    let binary = |op, i: usize| reference::binary(op, dtype, a.bits[i], b.bits[i]);
    let with_int = |op, i: usize| reference::float_int(op, dtype, a.bits[i], counts[i]);
    for k in 0..7 {
        let want: Vec<Answer> = (0..n)
            .map(|i| match k {
                0 => binary(BinaryOp::Math(BinaryMathFn::Pow), i),
                1 => binary(BinaryOp::Math(BinaryMathFn::Atan2), i),
                2 => binary(BinaryOp::Math(BinaryMathFn::Hypot), i),
                3 => binary(BinaryOp::NextAfter, i),
                4 => difference(i),
                5 => with_int(FloatIntFn::Powi, i),
                _ => with_int(FloatIntFn::Ldexp, i),
            })
            .collect();
        let got: Vec<u64> = out[k * n..(k + 1) * n].iter().map(|&v| bits(v)).collect();
        let inputs =
            |i: usize| format!(" {} {} {}", data::show(dtype, a.bits[i]), data::show(dtype, b.bits[i]), counts[i]);
        compare(dtype, &got, &want, &inputs).unwrap_or_else(|wrong| panic!("function {k} of {dtype}: {wrong}"));
    }
    Ok(())
}

#[test]
fn functions_of_two_arguments_are_within_their_bounds() {
    check(|device| {
        check_of_two::<f32>(device, DType::F32, |v| f32::from_bits(v as u32), |v| u64::from(v.to_bits()))?;
        check_of_two::<f64>(device, DType::F64, f64::from_bits, f64::to_bits)?;
        check_of_two::<f16>(device, DType::F16, |v| f16::from_bits(v as u16), |v| u64::from(v.to_bits()))?;
        check_of_two::<bf16>(device, DType::BF16, |v| bf16::from_bits(v as u16), |v| u64::from(v.to_bits()))
    });
}

#[kernel]
fn bits_of<T: Int>(x: Ptr<T>, y: Ptr<T>, counts: PtrMut<u32>, words: PtrMut<T>, n: i32) {
    let i = program_id(0) * 128 + arange(0, 128);
    let mask = i < n;
    let a = load(x + i, mask = mask);
    let b = load(y + i, mask = mask);
    store(counts + i, count_ones(a), mask = mask);
    store(counts + n + i, a.leading_zeros(), mask = mask);
    store(counts + 2 * n + i, trailing_zeros(a), mask = mask);
    store(words + i, reverse_bits(a), mask = mask);
    store(words + n + i, a.rotate_left(b), mask = mask);
    store(words + 2 * n + i, rotate_right(a, b), mask = mask);
    store(words + 3 * n + i, a.saturating_add(b), mask = mask);
    store(words + 4 * n + i, saturating_sub(a, b), mask = mask);
    store(words + 5 * n + i, mulhi(a, b), mask = mask);
    store(words + 6 * n + i, saturating_mul(a, b), mask = mask);
    let (sum, carry) = overflowing_add(a, b);
    let (difference, borrow) = a.overflowing_sub(b);
    let (product, wide) = overflowing_mul(a, b);
    store(words + 7 * n + i, sum, mask = mask);
    store(words + 8 * n + i, difference, mask = mask);
    store(words + 9 * n + i, product, mask = mask);
    store(counts + 3 * n + i, carry as u32 + 2 * (borrow as u32) + 4 * (wide as u32), mask = mask);
}

macro_rules! bits_are_rusts {
    ($device:expr; $($ty:ty)*) => {$({
        let (a, b) = samples::pairs(<$ty as Element>::DTYPE, 200, 33);
        let values = |data: &Data| data.bits.iter().map(|&v| v as $ty).collect::<Vec<_>>();
        let (xs, ys) = (values(&a), values(&b));
        let n = xs.len();
        let (mut counts, mut words) = ($device.zeros::<u32>(4 * n)?, $device.zeros::<$ty>(10 * n)?);
        bits_of(&$device.upload(&xs)?, &$device.upload(&ys)?, &mut counts, &mut words, n as i32)
            .grid(n.div_ceil(128))
            .launch($device)?;
        let (counts, words) = (counts.to_vec()?, words.to_vec()?);
        for (i, (&x, &y)) in xs.iter().zip(&ys).enumerate() {
            let got = [counts[i], counts[n + i], counts[2 * n + i]];
            assert_eq!(got, [x.count_ones(), x.leading_zeros(), x.trailing_zeros()], "{x}");
            let count = y as u32 % <$ty>::BITS;
            let high = (x as i128).wrapping_mul(y as i128) >> <$ty>::BITS;
            let got: Vec<$ty> = (0..10).map(|k| words[k * n + i]).collect();
            let want = [
                x.reverse_bits(),
                x.rotate_left(count),
                x.rotate_right(count),
                x.saturating_add(y),
                x.saturating_sub(y),
                high as $ty,
                x.saturating_mul(y),
                x.wrapping_add(y),
                x.wrapping_sub(y),
                x.wrapping_mul(y),
            ];
            assert_eq!(got, want, "{x} and {y}");
            let [carry, borrow, wide] = [x.overflowing_add(y).1, x.overflowing_sub(y).1, x.overflowing_mul(y).1];
            let want = u32::from(carry) + 2 * u32::from(borrow) + 4 * u32::from(wide);
            assert_eq!(counts[3 * n + i], want, "overflows of {x} and {y}");
        }
    })*};
}

#[test]
fn bits_are_counted_and_moved_and_sums_saturate_as_in_rust() {
    check(|device| {
        bits_are_rusts!(device; i8 i16 i32 i64 u8 u16 u32 u64);
        Ok(())
    });
}

#[kernel]
fn mixture(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>, ints: PtrMut<i32>, bits: PtrMut<i32>) {
    let i = arange(0, 64);
    let a = load(x + i);
    let b = load(y + i);
    store(out + i, minimum(a, b));
    store(out + 64 + i, maximum(a, b));
    store(out + 128 + i, a.min(b) + a.max(b));
    store(out + 192 + i, clamp(a, -1.0, 1.0));
    store(out + 256 + i, select(a < b, a, 0.0));
    store(out + 320 + i, -a);
    store(out + 384 + i, div_rn(a, b));
    store(out + 448 + i, fma(a, b, 1.0));
    store(ints + i, (a * 1e9) as i32);
    store(ints + 64 + i, (a < 0.0) as i32);
    store(ints + 128 + i, a as i64 as i32);
    store(bits + i, bitcast::<i32>(a));
}

#[test]
fn other_functions_and_casts() {
    let xs: Vec<f32> = (0..64).map(|i| (i as f32 - 31.5) / 7.0).collect();
    let ys: Vec<f32> = (0..64).map(|i| ((i * 29) % 64) as f32 / 9.0 - 3.0 + 0.01).collect();
    on_every_device(|device| {
        let run = || {
            let (x, y) = (device.upload(&xs)?, device.upload(&ys)?);
            let (mut out, mut ints, mut bits) = (device.zeros(512)?, device.zeros(192)?, device.zeros(64)?);
            mixture(&x, &y, &mut out, &mut ints, &mut bits).grid(1).launch(device)?;
            Ok::<_, Error>((out.to_vec()?, ints.to_vec()?, bits.to_vec()?))
        };
        let (out, ints, bits) = run().unwrap_or_else(|error| panic!("{error}"));
        for i in 0..64 {
            let (a, b) = (xs[i], ys[i]);
            let want = [
                a.min(b),
                a.max(b),
                a.min(b) + a.max(b),
                a.clamp(-1.0, 1.0),
                if a < b { a } else { 0.0 },
                -a,
                a / b,
                a.mul_add(b, 1.0),
            ];
            let got: Vec<f32> = (0..8).map(|k| out[64 * k + i]).collect();
            assert_eq!(got, want, "for {a} and {b}");
            assert_eq!([ints[i], ints[64 + i], ints[128 + i]], [(a * 1e9) as i32, i32::from(a < 0.0), a as i32]);
            assert_eq!(bits[i], a.to_bits() as i32);
        }
    });
}

#[kernel]
fn limits<T: Signed>(out: PtrMut<T>) {
    store(out, T::MIN);
    store(out + 1, T::MAX);
    store(out + 2, 1 as T);
    store(out + 3, -(1 as T) + 2 as T);
}

#[kernel]
fn half_sum<T: Float, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>) {
    store(out, sum(load(x + arange(0, BLOCK)), axis = 0));
}

#[test]
fn sums_of_half_precision_accumulate_in_f32() {
    check(|device| {
        // Added one by one in f16 these stop growing at 2048, in bf16 at 256.
        let (halves, brains) = (device.full(4096, f16::ONE)?, device.full(4096, bf16::ONE)?);
        let (mut a, mut b) = (device.zeros(1)?, device.zeros(1)?);
        half_sum::<f16, 4096>(&halves, &mut a).grid(1).launch(device)?;
        half_sum::<bf16, 4096>(&brains, &mut b).grid(1).launch(device)?;
        assert_eq!(a.to_vec()?, [f16::from_f32(4096.0)]);
        assert_eq!(b.to_vec()?, [bf16::from_f32(4096.0)]);
        // A mean of 0.1: one rounding of the f32 sum. 1024 roundings in f16 would be off by far more.
        let tenth = device.full(1024, f16::from_f32(0.1))?;
        half_sum::<f16, 1024>(&tenth, &mut a).grid(1).launch(device)?;
        let exact = f16::from_f64(f16::from_f32(0.1).to_f64() * 1024.0);
        assert_eq!(a.to_vec()?, [exact]);
        Ok(())
    });
}

#[test]
fn limits_of_dtype_parameters() {
    on_every_device(|device| {
        macro_rules! check {
            ($($ty:ty)*) => {$({
                let mut out = device.zeros::<$ty>(4).unwrap();
                limits(&mut out).grid(1).launch(device).unwrap();
                assert_eq!(out.to_vec().unwrap(), [<$ty>::MIN, <$ty>::MAX, 1 as $ty, 1 as $ty]);
            })*};
        }
        check!(i8 i16 i32 i64 f32 f64);
        let mut out = device.zeros::<f16>(4).unwrap();
        limits(&mut out).grid(1).launch(device).unwrap();
        assert_eq!(out.to_vec().unwrap(), [f16::MIN, f16::MAX, f16::ONE, f16::ONE]);
    });
}
