//! Methods of structs of this crate and of another.

use tilewright::Target;
use tilewright::prelude::*;
use tilewright_tests::devices::check;
use tilewright_tests::functions::online::{self, Softmax};

mod first {
    use tilewright::prelude::*;

    #[device(methods)]
    pub(super) struct Counter {
        pub(super) value: i32,
    }

    #[device]
    impl Counter {
        pub(super) fn next(&mut self) -> i32 {
            self.value += 1;
            self.value
        }
    }
}

mod second {
    // The impl may stand in front of its struct.
    use tilewright::prelude::*;

    #[device]
    impl<T: Int> Counter<T> {
        pub(super) fn from(value: T) -> Self {
            Self { value, steps: 0 }
        }

        /// Halves until a limit, and says how often.
        pub(super) fn halve<const LIMIT: usize>(&mut self) -> i32 {
            for _ in 0..64 {
                if self.value <= LIMIT as T {
                    return self.steps;
                }
                self.step();
            }
            -1
        }

        fn step(&mut self) {
            *self = Self { value: self.value / 2, steps: self.steps + 1 };
        }
    }

    #[device(methods)]
    pub(super) struct Counter<T: Int> {
        pub(super) value: T,
        pub(super) steps: i32,
    }
}

#[kernel]
fn counts(out: PtrMut<i32>, wide: PtrMut<i64>, n: i32) {
    let mut counter = first::Counter { value: n };
    let first = counter.next();
    let mut pair = (counter, second::Counter::<i64>::from(40));
    if n > 3 {
        let _ = pair.0.next();
    }
    store(out, first + 100 * pair.0.value + 10000 * counter.value);
    store(out + 1, pair.1.halve::<3>());
    store(wide, pair.1.value);
    let mut other = second::Counter::from(n);
    store(out + 2, other.halve::<5>() * 100 + other.value);
}

#[test]
fn methods_change_the_variables_that_they_are_called_on() {
    check(|device| {
        for n in [0, 3, 7, 100] {
            let (mut out, mut wide) = (device.zeros::<i32>(3)?, device.zeros::<i64>(1)?);
            counts(&mut out, &mut wide, n).grid(1).launch(device)?;
            let pair = if n > 3 { n + 2 } else { n + 1 };
            let (mut value, mut steps) = (n, 0);
            while value > 5 {
                (value, steps) = (value / 2, steps + 1);
            }
            assert_eq!(out.to_vec()?, [n + 1 + 100 * pair + 10000 * (n + 1), 4, steps * 100 + value], "n = {n}");
            assert_eq!(wide.to_vec()?, [2]);
        }
        Ok(())
    });
}

#[kernel]
fn softmax<T: Float, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = arange(0, N);
    let mut state = Softmax::<T, N>::new();
    for i in 0..n {
        state.update(load(x + i * N + offsets));
    }
    for i in 0..n {
        store(out + i * N + offsets, state.weight(load(x + i * N + offsets)));
    }
    let one: Softmax<T, N> = online::of_one(load(x + offsets));
    store(out + n * N + offsets, one.weight(load(x + offsets)));
    store(out + (n + 1) * N + offsets, online::Softmax::<T, N>::new().weight(load(x + offsets)));
}

/// With variables of its own.
mod separate {
    use tilewright::prelude::*;

    const EPS: f32 = 0.5;

    #[kernel]
    pub(super) fn softmax<T: Float, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
        let offsets = arange(0, N);
        let mut largest = full([N], T::NEG_INFINITY);
        let mut sum = zeros::<T>([N]);
        for i in 0..n {
            let piece = load(x + i * N + offsets);
            let max = maximum(largest, piece);
            sum = sum * exp(largest - max) + exp(piece - max);
            largest = max;
        }
        for i in 0..n {
            let piece = load(x + i * N + offsets);
            store(out + i * N + offsets, exp(piece - largest) / (sum + (EPS as f32 as T)));
        }
    }
}

mod joint {
    use tilewright::prelude::*;
    use tilewright_tests::functions::online::Softmax;

    #[device]
    fn weight<T: Float, const N: usize>(of: Softmax<T, N>, piece: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
        exp(piece - of.max) / (of.sum + (0.5 as f32 as T))
    }

    #[kernel]
    pub(super) fn softmax<T: Float, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
        let offsets = arange(0, N);
        let mut state = Softmax::<T, N>::new();
        for i in 0..n {
            state.update(load(x + i * N + offsets));
        }
        for i in 0..n {
            store(out + i * N + offsets, weight(state, load(x + i * N + offsets)));
        }
    }
}

#[test]
fn methods_of_another_crate_compute_what_plain_rust_does() {
    check(|device| {
        for n in [1usize, 5] {
            let values: Vec<f32> = (0..n * 16).map(|i| (i * 7 % 23) as f32 / 4.0 - 3.0).collect();
            let (x, mut out) = (device.upload(&values)?, device.zeros::<f32>((n + 2) * 16)?);
            softmax::<_, 16>(&x, &mut out, n as i32).grid(1).launch(device)?;
            let found = out.to_vec()?;
            for column in 0..16 {
                let row: Vec<f64> = (0..n).map(|i| f64::from(values[i * 16 + column])).collect();
                let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = row.iter().map(|v| (v - max).exp()).sum::<f64>() + 0.5;
                let mut wanted: Vec<f64> = row.iter().map(|v| (v - max).exp() / sum).collect();
                wanted.extend([1.0 / 1.5, 0.0]);
                for (i, want) in wanted.into_iter().enumerate() {
                    let found = f64::from(found[i * 16 + column]);
                    // A few roundings of numbers up to 5 + 0.5, and of two exponentials.
                    assert!((found - want).abs() <= 32.0 * f64::from(f32::EPSILON), "{found} instead of {want}");
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_kernel_with_methods_is_the_kernel_with_variables() {
    let (separate, joint) = (separate::SoftmaxConsts { N: 128 }, joint::SoftmaxConsts { N: 128 });
    for target in [Target::sm_80(), Target::sm_90a()] {
        let separate = separate.compile::<f32>(target).unwrap_or_else(|error| panic!("{error}"));
        let joint = joint.compile::<f32>(target).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(separate.ptx(), joint.ptx());
    }
}
