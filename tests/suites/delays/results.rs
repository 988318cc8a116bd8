//! The bits that come out, on a GPU.

use std::ops::RangeInclusive;

use tilewright::prelude::*;
use tilewright_tests::devices::gpu;
use tilewright_tests::samples::Rng;

use super::kernels::{CONFIGS, Config, Form, MOST_TRIPS, Matrices, Task, call};

/// Of the product: neither is divided by tiles, rows are multiples of 16 bytes.
const SHAPES: [(usize, usize); 3] = [(200, 136), (72, 392), (384, 256)];
/// Tiles along K.
const TRIPS: [usize; 4] = [0, 1, 2, MOST_TRIPS];
/// Differently delayed builds of each kernel.
const SEEDS: RangeInclusive<u64> = 1..=8;

/// What the factors are filled with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Numbers {
    /// From -2 to 2: all sums are exact.
    Integers,
    /// Standard normal.
    Normal,
}

impl Numbers {
    fn fill(self, rng: &mut Rng, len: usize) -> Vec<f16> {
        let unit = |rng: &mut Rng| ((rng.bits() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let number = |rng: &mut Rng| match self {
            Numbers::Integers => rng.below(5) as f64 - 2.0,
            // Box and Muller's way from two uniform numbers.
            Numbers::Normal => (-2.0 * unit(rng).ln()).sqrt() * (std::f64::consts::TAU * unit(rng)).cos(),
        };
        (0..len).map(|_| f16::from_f64(number(rng))).collect()
    }
}

/// The bits of a product whose place held NaN before.
fn product(
    device: &Device,
    (form, config): (Form, Config),
    delays: Option<u64>,
    matrices: &mut Matrices,
    k: usize,
) -> Result<Vec<u16>, Error> {
    matrices.c = device.full(matrices.m * matrices.n, f16::NAN)?;
    call(form, config, delays, matrices, k, Task::Launch(device))?;
    Ok(matrices.c.to_vec()?.into_iter().map(f16::to_bits).collect())
}

/// The product of small integers.
fn expected(xs: &[f16], ys: &[f16], (m, n): (usize, usize), depth: usize, k: usize) -> Vec<f32> {
    let mut sums = vec![0.0f32; m * n];
    for (row, sums) in sums.chunks_exact_mut(n).enumerate() {
        for (x, ys) in xs[row * depth..][..k].iter().zip(ys.chunks_exact(n)) {
            let x = x.to_f32();
            for (sum, y) in sums.iter_mut().zip(ys) {
                *sum += x * y.to_f32();
            }
        }
    }
    sums
}

/// Products of these shapes, without delays and with those of these seeds.
fn check_config(
    device: &Device,
    (form, config): (Form, Config),
    numbers: Numbers,
    shapes: &[(usize, usize)],
    seeds: RangeInclusive<u64>,
) -> Result<(), Error> {
    let mut rng = Rng::new(form as u64 + 1);
    let depth = MOST_TRIPS * config.bk;
    for &(m, n) in shapes {
        let (xs, ys) = (numbers.fill(&mut rng, m * depth), numbers.fill(&mut rng, depth * n));
        let (a, b, c) = (device.upload(&xs)?, device.upload(&ys)?, device.zeros(m * n)?);
        let mut matrices = Matrices { a, b, c, m, n, depth };
        for k in TRIPS.map(|iterations| iterations * config.bk) {
            let what = format!("{form:?} with {config:?}, {m} x {n} x {k}, {numbers:?}");
            let plain = product(device, (form, config), None, &mut matrices, k)?;
            if numbers == Numbers::Integers {
                let want = expected(&xs, &ys, (m, n), depth, k);
                let wrong = (0..m * n).find(|&at| f16::from_bits(plain[at]).to_f32() != want[at]);
                assert_eq!(wrong, None, "{what}: wrong without delays");
            }
            for seed in seeds.clone() {
                let delayed = product(device, (form, config), Some(seed), &mut matrices, k)?;
                let wrong = (0..m * n).find(|&at| plain[at] != delayed[at]);
                assert_eq!(wrong.map(|at| (at / n, at % n)), None, "{what}: other bits with delays from seed {seed}");
            }
        }
    }
    Ok(())
}

fn check(form: Form) -> Result<(), Error> {
    // A device of its own, so that the errors of one test are not those of another.
    let Some(_) = gpu() else { return Ok(()) };
    let device = Device::cuda(0)?;
    for config in CONFIGS {
        for numbers in [Numbers::Integers, Numbers::Normal] {
            check_config(&device, (form, config), numbers, &SHAPES, SEEDS)?;
        }
    }
    Ok(())
}

#[test]
fn copies_by_threads_may_take_any_time() -> Result<(), Error> {
    check(Form::Pointers)
}

#[test]
fn copies_by_the_hardware_may_take_any_time() -> Result<(), Error> {
    check(Form::Descriptors)
}

#[test]
fn divided_warps_may_take_any_time() -> Result<(), Error> {
    check(Form::Persistent)
}

#[test]
fn the_cpu_knows_no_delays() -> Result<(), Error> {
    for form in [Form::Pointers, Form::Descriptors, Form::Persistent] {
        for numbers in [Numbers::Integers, Numbers::Normal] {
            check_config(&Device::cpu(), (form, CONFIGS[0]), numbers, &[(72, 136)], 1..=1)?;
        }
    }
    Ok(())
}
