//! Structs: what kernels compute with them, and that they cost nothing.

use tilewright::Target;
use tilewright::prelude::*;
use tilewright_tests::devices::check;
use tilewright_tests::functions::statistics::{Stats, extended, nothing};

/// A struct of a struct, a tuple and a pointer.
#[device]
struct Job<T: Float, const N: usize> {
    stats: Stats<T, N>,
    to: (PtrMut<T>, Tile<i32, { [N] }>),
    rows: i32,
}

#[device]
fn finished<T: Float, const N: usize>(Job { stats, to: (out, offsets), .. }: Job<T, N>) {
    store(out + offsets, stats.max * stats.sum / stats.count as T);
}

#[kernel]
fn jobs<T: Float, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32, limit: i32) {
    let offsets = arange(0, N);
    let mut job = Job { stats: nothing::<T, N>(), to: (out, offsets), rows: 0 };
    for row in 0..n {
        job.stats = extended(job.stats, load(x + row * N + offsets));
        job.rows += 1;
        if job.rows > limit {
            // Starts anew.
            job = Job { stats: nothing::<T, N>(), ..job };
            job.to.1 += N;
            job.rows = 0;
        }
    }
    finished(job);
}

#[test]
fn structs_compute_what_plain_rust_does() {
    check(|device| {
        for (n, limit) in [(1usize, 9), (5, 9), (7, 2)] {
            let values: Vec<f32> = (0..n * 16).map(|i| (i * 7 % 23) as f32 - 11.0).collect();
            let (x, mut out) = (device.upload(&values)?, device.zeros::<f32>(64)?);
            jobs::<_, 16>(&x, &mut out, n as i32, limit).grid(1).launch(device)?;
            let restarts = n / (limit as usize + 1);
            let rows = restarts * (limit as usize + 1)..n;
            let mut wanted = vec![0.0f32; 64];
            for column in 0..16 {
                let values: Vec<f32> = rows.clone().map(|row| values[row * 16 + column]).collect();
                let largest = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                wanted[restarts * 16 + column] = largest * values.iter().sum::<f32>() / values.len() as f32;
            }
            let tolerance = |want: f32| want.abs() * 4.0 * f32::EPSILON;
            for (found, want) in out.to_vec()?.into_iter().zip(wanted) {
                assert!((found - want).abs() <= tolerance(want), "{found} instead of {want}, n = {n}");
            }
        }
        Ok(())
    });
}

/// With variables of their own.
mod separate {
    use tilewright::prelude::*;

    #[kernel]
    pub(super) fn rows<T: Float, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
        let offsets = arange(0, N);
        let mut max = full([N], T::NEG_INFINITY);
        let mut sum = zeros::<T>([N]);
        let mut count = 0;
        for row in 0..n {
            let values = load(x + row * N + offsets);
            max = maximum(max, values);
            sum += values;
            count += 1;
        }
        store(out + offsets, max * sum / count as T);
    }
}

/// With a struct.
mod joined {
    use tilewright::prelude::*;
    use tilewright_tests::functions::statistics;

    #[kernel]
    pub(super) fn rows<T: Float, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
        let offsets = arange(0, N);
        let mut stats: statistics::Stats<T, N> = statistics::nothing::<T, N>();
        for row in 0..n {
            stats = statistics::extended(stats, load(x + row * N + offsets));
        }
        let statistics::Stats { max, sum, count } = stats;
        store(out + offsets, max * sum / count as T);
    }
}

#[test]
fn a_kernel_with_structs_is_the_kernel_with_variables() {
    let target = Target::sm_90a();
    let separate = separate::RowsConsts { N: 128 }.compile::<f32>(target).unwrap_or_else(|error| panic!("{error}"));
    let joined = joined::RowsConsts { N: 128 }.compile::<f32>(target).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(separate.ptx(), joined.ptx());
}
