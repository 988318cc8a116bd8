//! Products with a factor that does not change in the loops around them: it is stored to shared memory before those,
//! and stays there while blocks are fetched beside it.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

use super::held_factors::{KEYS, Numbers, ROWS};

/// `out = (q * k) * v`, in loops of many kinds; with `flag`, scores above the diagonal count for nothing in iterations
/// that end behind it.
macro_rules! kept {
    ($name:ident, |$first:ident, $i:ident, $q:ident, $k:ident, $v:ident, $acc:ident, $len:ident, $flag:ident| { $($body:tt)* }) => {
        #[kernel]
        #[allow(unused_variables, reason = "not every loop needs all of them")]
        fn $name<const D: usize, const M: usize, const N: usize>(
            $q: TensorDesc<f16, { [M, D] }>,
            $k: TensorDesc<f16, { [N, D] }>,
            $v: TensorDesc<f16, { [N, D] }>,
            out: PtrMut<f32>,
            $len: i32,
            $flag: i32,
        ) {
            let $first = program_id(0) * M;
            let $i = $first + arange(0, M);
            let mut $acc = zeros::<f32>([M, D]);
            $($body)*
            store(out + $i[(.., None)] * D + arange(0, D), $acc);
        }
    };
}
kept!(plain, |first, i, q, k, v, acc, len, flag| {
    let x = q.load([first, 0]);
    for start in (0..len).step_by(N) {
        let mut s = dot(x, k.load([start, 0]).trans());
        if start + N > flag {
            s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
        }
        acc = dot(s as f16, v.load([start, 0]), acc = acc);
    }
});
kept!(divided, |first, i, q, k, v, acc, len, flag| {
    let x = q.load([first, 0]);
    #[warp_specialize]
    for start in (0..len).step_by(N) {
        let mut s = dot(x, k.load([start, 0]).trans());
        if start + N > flag {
            s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
        }
        acc = dot(s as f16, v.load([start, 0]), acc = acc);
    }
});
// One after the other, with the same factor, and a shorter second one.
kept!(in_turn, |first, i, q, k, v, acc, len, flag| {
    let x = q.load([first, 0]);
    for start in (0..flag).step_by(N) {
        let s = dot(x, k.load([start, 0]).trans());
        acc = dot(s as f16, v.load([start, 0]), acc = acc);
    }
    for start in (flag..len).step_by(N) {
        let s = select(i[(.., None)] >= start + arange(0, N), dot(x, k.load([start, 0]).trans()), 0.0);
        acc = dot(s as f16, v.load([start, 0]), acc = acc);
    }
});
// Two loops that one ring feeds, the second of which may have no iterations, in a loop around both.
kept!(in_turn_and_divided, |first, i, q, k, v, acc, len, flag| {
    #[warp_specialize]
    for half in 0..2 {
        let x = q.load([first, 0]);
        for start in (half * N..flag).step_by(2 * N) {
            let s = dot(x, k.load([start, 0]).trans());
            acc = dot(s as f16, v.load([start, 0]), acc = acc);
        }
        let begin = flag + (half * N + flag) % (2 * N);
        for start in (begin..len).step_by(2 * N) {
            let s = select(i[(.., None)] >= start + arange(0, N), dot(x, k.load([start, 0]).trans()), 0.0);
            acc = dot(s as f16, v.load([start, 0]), acc = acc);
        }
    }
});
// The outer loop changes nothing of the factor, and takes every second block.
kept!(nested, |first, i, q, k, v, acc, len, flag| {
    let x = q.load([first, 0]) + q.load([first, 0]);
    for half in 0..2 {
        for start in (half * N..len).step_by(2 * N) {
            let mut s = dot(x, k.load([start, 0]).trans()) * 0.5;
            if start + N > flag {
                s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
            }
            acc = dot(s as f16, v.load([start, 0]), acc = acc);
        }
    }
});
// The outer loop changes the factor, so that it is stored anew while others may still read the last one.
kept!(renewed, |first, i, q, k, v, acc, len, flag| {
    for half in 0..2 {
        let x = q.load([first, 0]) * (half + 1) as f16;
        for start in (half * N..len).step_by(2 * N) {
            let mut s = dot(x, k.load([start, 0]).trans()) / (half + 1) as f32;
            if start + N > flag {
                s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
            }
            acc = dot(s as f16, v.load([start, 0]), acc = acc);
        }
    }
});
kept!(renewed_and_divided, |first, i, q, k, v, acc, len, flag| {
    #[warp_specialize]
    for half in 0..2 {
        let x = q.load([first, 0]);
        for start in (half * N..len).step_by(2 * N) {
            let mut s = dot(x, k.load([start, 0]).trans());
            if start + N > flag {
                s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
            }
            acc = dot(s as f16, v.load([start, 0]), acc = acc);
        }
    }
});
// A condition stands between the loop and the product, and a branch has another product with the same factor.
kept!(conditional, |first, i, q, k, v, acc, len, flag| {
    let x = q.load([first, 0]);
    for start in (0..len).step_by(N) {
        if start + N > flag {
            let s = select(i[(.., None)] >= start + arange(0, N), dot(x, k.load([start, 0]).trans()), 0.0);
            acc = dot(s as f16, v.load([start, 0]), acc = acc);
        } else {
            acc = dot(dot(x, k.load([start, 0]).trans()) as f16, v.load([start, 0]), acc = acc);
        }
    }
});
// The right factor is the one that stays.
kept!(right, |first, i, q, k, v, acc, len, flag| {
    let x = q.load([first, 0]).trans();
    for start in (0..len).step_by(N) {
        let mut s = dot(k.load([start, 0]), x).trans();
        if start + N > flag {
            s = select(i[(.., None)] >= start + arange(0, N), s, 0.0);
        }
        acc = dot(s as f16, v.load([start, 0]), acc = acc);
    }
});

/// What is fetched once is read in two orders, and by two products in the second: `k` is its own `v`.
#[kernel]
fn two_orders<const D: usize, const M: usize, const N: usize, const DIVIDED: bool>(
    q: TensorDesc<f16, { [M, D] }>,
    k: TensorDesc<f16, { [N, D] }>,
    out: PtrMut<f32>,
    len: i32,
) {
    let x = q.load([program_id(0) * M, 0]);
    let mut acc = zeros::<f32>([M, D]);
    if DIVIDED {
        #[warp_specialize]
        for start in (0..len).step_by(N) {
            let block = k.load([start, 0]);
            let s = dot(x, block.trans());
            acc = dot(s as f16, block, acc = acc);
            acc = dot((s + s) as f16, block, acc = acc);
        }
    } else {
        for start in (0..len).step_by(N) {
            let block = k.load([start, 0]);
            let s = dot(x, block.trans());
            acc = dot(s as f16, block, acc = acc);
            acc = dot((s + s) as f16, block, acc = acc);
        }
    }
    store(out + (program_id(0) * M + arange(0, M))[(.., None)] * D + arange(0, D), acc);
}

macro_rules! run_two_orders {
    ($device:expr, $([$D:literal, $M:literal, $N:literal, $warps:literal])*) => {$({
        let Numbers { q, k, .. } = Numbers::new($D);
        let numbers = Numbers { q, v: k.iter().map(|x| 3 * x).collect(), k };
        let upload = |values: &[i32]| $device.upload(&values.iter().map(|&x| f16::from_f32(x as f32)).collect::<Vec<f16>>());
        let (q, k) = (upload(&numbers.q)?, upload(&numbers.k)?);
        let (q, k) = (TensorDesc::new(&q, [ROWS, $D])?, TensorDesc::new(&k, [KEYS, $D])?);
        let wanted = numbers.sums($D, $N, KEYS, 0);
        macro_rules! form {
            ($divided:literal) => {
                let mut out = $device.zeros::<f32>(ROWS * $D)?;
                let call = two_orders::<$D, $M, $N, $divided>(&q, &k, &mut out, KEYS as i32);
                call.grid(ROWS / $M).num_warps($warps).num_stages(2).launch($device)?;
                let found: Vec<f64> = out.to_vec()?.into_iter().map(f64::from).collect();
                assert!(found == wanted, "{}x{}x{}, divided {} on {}", $M, $N, $D, $divided, $device);
            };
        }
        form!(true);
        form!(false);
    })*};
}

#[test]
fn blocks_that_are_read_in_two_orders() {
    check(|device| {
        run_two_orders!(device, [64, 64, 64, 4] [128, 64, 64, 4] [64, 128, 128, 8] [128, 128, 32, 8]);
        Ok(())
    });
}

/// Where warp groups have columns of the same rows, each holds a part of the left factor of the second product, with which it
/// begins: two groups, four, and two times two.
#[test]
fn parts_of_factors_that_warp_groups_hold() {
    check(|device| {
        run_two_orders!(device, [64, 64, 64, 8] [128, 64, 32, 8] [128, 64, 128, 8] [128, 64, 64, 16] [128, 128, 64, 16]);
        Ok(())
    });
}

/// `out = sum of (q[rows] * k) * k` over blocks of rows, of which `k` is the same for all.
#[kernel]
fn by_one_block<const D: usize, const M: usize, const N: usize>(q: Ptr<f16>, k: Ptr<f16>, out: PtrMut<f32>, len: i32) {
    let (row, column) = (arange(0, M), arange(0, D));
    let block = load(k + arange(0, N)[(.., None)] * D + column);
    let mut acc = zeros::<f32>([M, D]);
    for start in (0..len).step_by(M) {
        let x = load(q + (start + row)[(.., None)] * D + column);
        let s = dot(x, block.trans());
        acc = dot(s as f16, block, acc = acc);
    }
    store(out + row[(.., None)] * D + column, acc);
}

macro_rules! run_by_one_block {
    ($device:expr, $([$D:literal, $M:literal, $N:literal, $warps:literal])*) => {$({
        let Numbers { q, k, .. } = Numbers::new($D);
        let upload = |values: &[i32]| $device.upload(&values.iter().map(|&x| f16::from_f32(x as f32)).collect::<Vec<f16>>());
        let mut out = $device.zeros::<f32>($M * $D)?;
        let (x, y) = (upload(&q)?, upload(&k)?);
        let call = by_one_block::<$D, $M, $N>(&x, &y, &mut out, ROWS as i32);
        call.grid(1).num_warps($warps).num_stages(2).launch($device)?;
        let at = |values: &[i32], row: usize, column: usize| values[row * $D + column];
        let score = |row: usize, key: usize| (0..$D).map(|d| at(&q, row, d) * at(&k, key, d)).sum::<i32>();
        for row in 0..$M {
            let scores: Vec<i32> = (0..$N).map(|key| (row..ROWS).step_by($M).map(|row| score(row, key)).sum()).collect();
            for column in 0..$D {
                let wanted: i32 = scores.iter().enumerate().map(|(key, score)| score * at(&k, key, column)).sum();
                let found = out.to_vec()?[row * $D + column];
                assert!(found == wanted as f32, "{row}, {column}: {found}, not {wanted}, {} warps on {}", $warps, $device);
            }
        }
    })*};
}

#[test]
fn parts_of_factors_with_one_block_from_memory() {
    check(|device| {
        run_by_one_block!(device, [64, 64, 64, 8] [128, 64, 32, 8] [64, 64, 64, 16]);
        Ok(())
    });
}

macro_rules! run {
    ($device:expr, [$D:literal, $M:literal, $N:literal, $warps:literal, $stages:literal], $($kernel:ident)*) => {$({
        let numbers = Numbers::new($D);
        let upload = |values: &[i32]| $device.upload(&values.iter().map(|&x| f16::from_f32(x as f32)).collect::<Vec<f16>>());
        let (q, k, v) = (upload(&numbers.q)?, upload(&numbers.k)?, upload(&numbers.v)?);
        let q = TensorDesc::new(&q, [ROWS, $D])?;
        let (k, v) = (TensorDesc::new(&k, [KEYS, $D])?, TensorDesc::new(&v, [KEYS, $D])?);
        let mut out = $device.zeros::<f32>(ROWS * $D)?;
        let what = format!("{} {}x{}x{}, {} warps, {} stages", stringify!($kernel), $M, $N, $D, $warps, $stages);
        let call = $kernel::<$D, $M, $N>(&q, &k, &v, &mut out, KEYS as i32, 128);
        call.grid(ROWS / $M).num_warps($warps).num_stages($stages).launch($device)?;
        let found: Vec<f64> = out.to_vec()?.into_iter().map(f64::from).collect();
        assert!(found == numbers.sums($D, $N, 128, 0), "{what} on {}", $device);
    })*};
}

#[test]
fn factors_that_stay_in_shared_memory() {
    check(|device| {
        run!(device, [64, 64, 64, 4, 2], plain divided in_turn in_turn_and_divided nested renewed renewed_and_divided conditional right);
        run!(device, [64, 64, 32, 4, 3], plain divided in_turn in_turn_and_divided nested renewed renewed_and_divided conditional);
        run!(device, [128, 128, 64, 8, 2], plain divided in_turn in_turn_and_divided renewed renewed_and_divided);
        run!(device, [32, 64, 128, 4, 1], plain in_turn nested conditional right);
        Ok(())
    });
}

/// One block as the left factor of one product and as the right factor of another, in loops in two branches.
#[kernel]
fn both_ways<const N: usize>(
    q: TensorDesc<f16, { [N, N] }>,
    k: TensorDesc<f16, { [N, N] }>,
    out: PtrMut<f32>,
    len: i32,
    flag: i32,
) {
    let x = q.load([program_id(0) * N, 0]);
    let mut acc = zeros::<f32>([N, N]);
    if flag > 0 {
        for start in (0..len).step_by(N) {
            acc = dot(x, k.load([start, 0]), acc = acc);
        }
    } else {
        for start in (0..len).step_by(N) {
            acc = dot(x, k.load([start, 0]), acc = acc);
            acc = dot(k.load([start, 0]), x, acc = acc);
        }
    }
    let at = program_id(0) * N + arange(0, N);
    store(out + at[(.., None)] * N + arange(0, N), acc);
}

#[test]
fn a_factor_of_two_orders_in_two_branches() {
    check(|device| {
        const N: usize = 64;
        let numbers = Numbers::new(N);
        let upload =
            |values: &[i32]| device.upload(&values.iter().map(|&x| f16::from_f32(x as f32)).collect::<Vec<f16>>());
        let (q, k) = (upload(&numbers.q)?, upload(&numbers.k)?);
        let (q, k) = (TensorDesc::new(&q, [ROWS, N])?, TensorDesc::new(&k, [KEYS, N])?);
        for flag in [1, 0] {
            let mut out = device.zeros::<f32>(ROWS * N)?;
            let call = both_ways::<N>(&q, &k, &mut out, KEYS as i32, flag);
            call.grid(ROWS / N).num_warps(4).launch(device)?;
            let at = |values: &[i32], row: usize, column: usize| values[row * N + column];
            let want = |row: usize, column: usize| {
                let (block, row) = (row / N * N, row % N);
                let mut sum = 0;
                for (start, d) in (0..KEYS / N).flat_map(|start| (0..N).map(move |d| (start * N, d))) {
                    sum += at(&numbers.q, block + row, d) * at(&numbers.k, start + d, column);
                    if flag == 0 {
                        sum += at(&numbers.k, start + row, d) * at(&numbers.q, block + d, column);
                    }
                }
                sum as f32
            };
            let wanted: Vec<f32> = (0..ROWS * N).map(|i| want(i / N, i % N)).collect();
            assert!(out.to_vec()? == wanted, "{flag} on {device}");
        }
        Ok(())
    });
}
