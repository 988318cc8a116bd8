//! Atomic sums of subnormal numbers: a GPU takes those of f32 for zeros, and adds others exactly, as the CPU does.

use std::fmt::Debug;

use tilewright::prelude::*;
use tilewright_tests::devices::check;

#[kernel]
fn sums<T: Float>(x: Ptr<T>, used: PtrMut<T>, before: PtrMut<T>, unused: PtrMut<T>) {
    let i = arange(0, 256);
    let value = load(x + i);
    store(before + i, atomic_add(used + i, value));
    atomic_add(unused + i, value, order = relaxed);
}

/// Multiples of the smallest normal number.
const SOME: [f64; 16] = [0.0, 0.25, 0.5, 0.75, -0.25, -0.5, 1.0, -1.0, 1.5, -1.5, 2.0, 3.25, 64.0, -0.75, 0.125, -64.0];

fn check_sums<T: Float + PartialEq + Debug>(least: f64, number: fn(f64) -> T, gpu: fn(f64) -> f64) {
    let at = |place: usize| SOME[place] * least;
    let (held, added): (Vec<f64>, Vec<f64>) = (0..256).map(|i| (at(i / 16), at(i % 16))).unzip();
    let numbers = |of: &[f64]| of.iter().map(|&x| number(x)).collect::<Vec<T>>();
    let exact: Vec<f64> = held.iter().zip(&added).map(|(a, b)| a + b).collect();
    let flushed: Vec<f64> = held.iter().zip(&added).map(|(&a, &b)| gpu(gpu(a) + gpu(b))).collect();
    check(|device| {
        let (mut used, mut unused) = (device.upload(&numbers(&held))?, device.upload(&numbers(&held))?);
        let (x, mut before) = (device.upload(&numbers(&added))?, device.zeros::<T>(256)?);
        sums(&x, &mut used, &mut before, &mut unused).grid(1).launch(device)?;
        let want = numbers(if device.is_cuda() { &flushed } else { &exact });
        assert_eq!(before.to_vec()?, numbers(&held));
        assert_eq!(used.to_vec()?, want);
        assert_eq!(unused.to_vec()?, want);
        Ok(())
    });
}

#[test]
fn sums_of_f32_take_subnormal_numbers_for_zeros_on_a_gpu() {
    let least = f64::from(f32::MIN_POSITIVE);
    check_sums(least, |x| x as f32, |x| if x.abs() < f64::from(f32::MIN_POSITIVE) { 0.0 } else { x });
}

#[test]
fn sums_of_other_dtypes_are_exact() {
    check_sums(f64::MIN_POSITIVE, |x| x, |x| x);
    check_sums(f16::MIN_POSITIVE.to_f64(), f16::from_f64, |x| x);
    check_sums(bf16::MIN_POSITIVE.to_f64(), bf16::from_f64, |x| x);
}
