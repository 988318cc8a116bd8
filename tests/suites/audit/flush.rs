//! Kernels that flush: subnormal numbers of f32 are zeros in arithmetic, on every device.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

#[kernel(flush = true)]
fn arithmetic<const BLOCK: usize>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = i < n;
    let a = load(x + i, mask = mask);
    let b = load(y + i, mask = mask);
    store(out + i, a + b, mask = mask);
    store(out + n + i, a - b, mask = mask);
    store(out + 2 * n + i, a * b, mask = mask);
    store(out + 3 * n + i, div_rn(a, b), mask = mask);
    store(out + 4 * n + i, fma(a, b, b), mask = mask);
    store(out + 5 * n + i, minimum(a, b), mask = mask);
    store(out + 6 * n + i, sqrt_rn(abs(a)), mask = mask);
    store(out + 7 * n + i, select(a < b, a, b), mask = mask);
    store(out + 8 * n + i, -a, mask = mask);
    store(out + 9 * n + i, ceil(a), mask = mask);
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() { 0.0_f32.copysign(x) } else { x }
}

/// What each line of `arithmetic` gives.
fn expected(line: usize, a: f32, b: f32) -> f32 {
    let (x, y) = (flush(a), flush(b));
    match line {
        0 => flush(x + y),
        1 => flush(x - y),
        2 => flush(x * y),
        3 => flush(x / y),
        4 => flush(x.mul_add(y, y)),
        // The smaller zero is the negative one.
        5 if x == y => f32::from_bits(x.to_bits() | y.to_bits()),
        5 => x.min(y),
        6 => x.abs().sqrt(),
        7 => {
            if x < y {
                a
            } else {
                b
            }
        }
        8 => -a,
        _ => x.ceil(),
    }
}

/// Numbers around the smallest normal one, whose products and quotients are around it too, with both signs. None has a
/// result just below the smallest normal number, which rounding would make normal.
fn numbers() -> Vec<f32> {
    let mut numbers = Vec::new();
    for exponent in [-149, -140, -130, -127, -126, -125, -124, -80, -64, -63, -62, -1, 0, 1, 62, 64, 100] {
        for fraction in [1.0, 1.25, 1.5, 1.875] {
            let magnitude = (fraction * 2.0_f64.powi(exponent)) as f32;
            numbers.extend([magnitude, -magnitude]);
        }
    }
    numbers.extend([0.0, -0.0]);
    numbers
}

#[test]
fn arithmetic_takes_subnormal_numbers_for_zeros() {
    let numbers = numbers();
    let pairs: Vec<(f32, f32)> = numbers.iter().flat_map(|&a| numbers.iter().map(move |&b| (a, b))).collect();
    let (xs, ys): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
    check(|device| {
        let n = pairs.len();
        let mut out = device.zeros::<f32>(10 * n)?;
        arithmetic::<256>(&device.upload(&xs)?, &device.upload(&ys)?, &mut out, n as i32)
            .grid(n.div_ceil(256))
            .launch(device)?;
        for (at, got) in out.to_vec()?.into_iter().enumerate() {
            let (line, (a, b)) = (at / n, pairs[at % n]);
            let want = expected(line, a, b);
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "line {line} of {a:e} and {b:e} is {got:e}, not {want:e}");
        }
        Ok(())
    });
}

#[kernel(flush = true)]
fn functions(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = program_id(0) * 128 + arange(0, 128);
    let mask = i < n;
    let v = load(x + i, mask = mask);
    store(out + i, exp(v), mask = mask);
    store(out + n + i, log(v), mask = mask);
    store(out + 2 * n + i, sqrt(v), mask = mask);
    store(out + 3 * n + i, 1.0 / v, mask = mask);
    store(out + 4 * n + i, exp2(v), mask = mask);
    store(out + 5 * n + i, log2(v), mask = mask);
}

#[test]
fn functions_are_accurate_where_nothing_is_subnormal_and_zero_or_infinite_elsewhere() {
    // The smallest normal number, results beside it, numbers that are subnormal, and ordinary ones.
    let xs =
        [1e-40, 1.1754944e-38, 3e-38, 1e-20, 0.5, 1.0, 2.0, 80.0, -80.0, -87.0, -90.0, -100.0, -125.5, -127.5, 1e38];
    check(|device| {
        let n = xs.len();
        let mut out = device.zeros::<f32>(6 * n)?;
        functions(&device.upload(&xs)?, &mut out, n as i32).grid(1).launch(device)?;
        for (at, got) in out.to_vec()?.into_iter().enumerate() {
            let x = f64::from(flush(xs[at % n]));
            let want = [f64::exp, f64::ln, f64::sqrt, f64::recip, f64::exp2, f64::log2][at / n](x);
            let subnormal = want.abs() < f64::from(f32::MIN_POSITIVE);
            let near = (f64::from(got) - want).abs() <= 1e-4 * want.abs() || f64::from(got) == want;
            let right = if want.is_nan() {
                got.is_nan()
            } else if subnormal {
                got == 0.0
            } else {
                near
            };
            assert!(
                right || want > f64::from(f32::MAX) && got == f32::INFINITY,
                "{} of {x:e} is {got:e}, not {want:e}",
                at / n
            );
        }
        Ok(())
    });
}

#[kernel(flush = true)]
fn others(h: Ptr<f16>, d: Ptr<f64>, half: PtrMut<f16>, double: PtrMut<f64>) {
    let i = arange(0, 64);
    store(half + i, load(h + i) * 0.5);
    store(double + i, load(d + i) * 0.5);
}

#[test]
fn f64_and_f16_keep_theirs() {
    let halves: Vec<f16> = (1..=64).map(|i| f16::from_bits(2 * i)).collect();
    let doubles: Vec<f64> = (1..=64).map(|i| f64::from_bits(2 * i)).collect();
    check(|device| {
        let (mut half, mut double) = (device.zeros::<f16>(64)?, device.zeros::<f64>(64)?);
        others(&device.upload(&halves)?, &device.upload(&doubles)?, &mut half, &mut double).grid(1).launch(device)?;
        assert!(half.to_vec()?.iter().zip(1..).all(|(h, i)| h.to_bits() == i));
        assert!(double.to_vec()?.iter().zip(1..).all(|(d, i)| d.to_bits() == i));
        Ok(())
    });
}
