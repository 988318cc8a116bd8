//! Functions and closures that return early.

use tilewright::Target;
use tilewright::prelude::*;
use tilewright_tests::devices::check;

mod early {
    use tilewright::prelude::*;

    /// The first index from `from` on where `x` is zero.
    #[device]
    pub(super) fn first_zero(x: Ptr<i32>, from: i32, n: i32) -> i32 {
        for i in from..n {
            if load(x + i) == 0 {
                return i;
            }
        }
        -1
    }

    /// From two loops, a branch of a branch, and the end.
    #[device]
    pub(super) fn classified(x: Ptr<i32>, n: i32, limit: i32) -> (i32, f32) {
        if n > 20 {
            if n > 40 {
                return (1, 1.5);
            }
            if limit < 0 {
                return (2, 2.5);
            }
        }
        let mut total = 0;
        for i in 0..n {
            let first = first_zero(x, i, n);
            if first < 0 {
                return (3, total as f32);
            }
            let mut j = i;
            loop {
                total += load(x + j);
                if total > limit {
                    return (4, j as f32);
                }
                j += 1;
                if j >= first {
                    break;
                }
            }
        }
        (5, total as f32)
    }

    /// Writes unless there is nothing to write.
    #[device]
    pub(super) fn write(out: PtrMut<i32>, value: i32) {
        if value < 0 {
            return;
        }
        store(out, value);
    }

    /// A dimension decides which way is taken.
    #[device]
    pub(super) fn total<const N: usize>(x: Tile<i32, { [N] }>) -> i32 {
        if N == 1 {
            return sum(x) + 100;
        }
        sum(x)
    }

    #[device]
    pub(super) fn larger(a: i32, b: i32) -> i32 {
        if a > b {
            return a;
        }
        b
    }
}

use early::{classified, larger, total, write};

#[kernel]
fn classify(x: Ptr<i32>, ways: PtrMut<i32>, values: PtrMut<f32>, limit: i32) {
    let n = program_id(0);
    let (way, value) = classified(x, n, limit);
    store(ways + n, way);
    store(values + n, value);
}

/// What `classified` gives, in Rust.
fn model(x: &[i32], n: i32, limit: i32) -> (i32, f32) {
    if n > 20 {
        if n > 40 {
            return (1, 1.5);
        }
        if limit < 0 {
            return (2, 2.5);
        }
    }
    let mut total = 0i32;
    for i in 0..n {
        let Some(first) = (i..n).find(|&i| x[i as usize] == 0) else { return (3, total as f32) };
        let mut j = i;
        loop {
            total += x[j as usize];
            if total > limit {
                return (4, j as f32);
            }
            j += 1;
            if j >= first {
                break;
            }
        }
    }
    (5, total as f32)
}

#[test]
fn every_way_out_gives_its_value() {
    check(|device| {
        let x: Vec<i32> = (0..64).map(|i| if i % 9 == 4 { 0 } else { i % 5 - 1 }).collect();
        for limit in [-1, 3, 10, 1000] {
            let (mut ways, mut values) = (device.zeros::<i32>(48)?, device.zeros::<f32>(48)?);
            let x_on = device.upload(&x)?;
            classify(&x_on, &mut ways, &mut values, limit).grid(48).launch(device)?;
            let found: Vec<(i32, f32)> = ways.to_vec()?.into_iter().zip(values.to_vec()?).collect();
            let wanted: Vec<(i32, f32)> = (0..48).map(|n| model(&x, n, limit)).collect();
            assert_eq!(found, wanted, "limit {limit}");
        }
        Ok(())
    });
}

#[kernel]
fn ends_functions_only<const N: usize>(out: PtrMut<i32>, n: i32) {
    write(out, n);
    let clamped = |x| {
        if x < 0 {
            return 0;
        }
        if x > 9 {
            return 9;
        }
        x
    };
    store(out + 1, clamped(n) + 10 * clamped(n * 3));
    store(out + 2, total(arange(0, N)));
    store(out + 3, total(arange(5, 6)));
    store(out + 4, reduce(arange(0, N) * n, axis = 0, |a, b| larger(a, b)));
}

#[test]
fn a_return_ends_the_function_and_not_the_kernel() {
    check(|device| {
        for n in [-3, 0, 2, 7, 20] {
            let mut out = device.upload(&[-7; 5])?;
            ends_functions_only::<16>(&mut out, n).grid(1).launch(device)?;
            let first = if n < 0 { -7 } else { n };
            let clamped = n.clamp(0, 9) + 10 * (n * 3).clamp(0, 9);
            assert_eq!(out.to_vec()?, [first, clamped, 120, 105, (15 * n).max(0)], "n = {n}");
        }
        Ok(())
    });
}

mod whole {
    use tilewright::prelude::*;

    #[kernel]
    pub(super) fn chosen<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
        let i = program_id(0) * N + arange(0, N);
        let x = load(x + i, mask = i < n);
        let value = if n < 100 {
            x * 2.0
        } else {
            let scale = sum(x);
            if scale > 1.0 { x / scale } else { x }
        };
        store(out + i, value, mask = i < n);
    }
}

mod split {
    use tilewright::prelude::*;

    #[device]
    fn scaled<const N: usize>(x: Tile<f32, { [N] }>, n: i32) -> Tile<f32, { [N] }> {
        if n < 100 {
            return x * 2.0;
        }
        let scale = sum(x);
        if scale > 1.0 {
            return x / scale;
        }
        x
    }

    #[kernel]
    pub(super) fn chosen<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
        let i = program_id(0) * N + arange(0, N);
        let value = scaled(load(x + i, mask = i < n), n);
        store(out + i, value, mask = i < n);
    }
}

#[test]
fn an_early_return_is_compiled_to_the_code_of_branches() {
    let (whole, split) = (whole::ChosenConsts { N: 128 }, split::ChosenConsts { N: 128 });
    for target in [Target::sm_80(), Target::sm_90a()] {
        let whole = whole.compile(target).unwrap_or_else(|error| panic!("{error}"));
        let split = split.compile(target).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(whole.ptx(), split.ptx());
    }
}
