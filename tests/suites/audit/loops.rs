//! Loops that are left early, and ranges up to the ends of their dtypes, beside the same loops in Rust.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// The most iterations of a loop that is left early.
const LIMIT: i32 = 9;

macro_rules! walks {
    ($name:ident[$($generics:tt)*], $t:ident, |$lo:ident, $hi:ident, $step:ident| $($slot:literal: $range:expr,)*) => {
        /// A number for each order: of all that a loop counts, if `all`, and of the first ones.
        #[kernel]
        fn $name<$($generics)*>(out: PtrMut<i64>, $lo: $t, $hi: $t, $step: $t, all: i32) {
            $({
                let (mut hash, mut count) = (0_i64, 0);
                for i in $range {
                    if count == LIMIT {
                        break;
                    }
                    count += 1;
                    hash = hash * 31 + (i as i64) + 1;
                }
                store(out + 2 * $slot, hash);
                if all != 0 {
                    let mut hash = 0_i64;
                    for i in $range {
                        hash = hash * 31 + (i as i64) + 1;
                    }
                    store(out + 2 * $slot + 1, hash);
                }
            })*
        }
    };
}

macro_rules! every_order {
    ($name:ident[$($generics:tt)*], $t:ident) => {
        walks! { $name[$($generics)*], $t, |lo, hi, step|
            0: lo..hi,
            1: (lo..hi).rev(),
            2: (lo..hi).step_by(step),
            3: (lo..hi).step_by(step).rev(),
            4: (lo..hi).rev().step_by(step),
            5: lo..=hi,
            6: (lo..=hi).rev(),
            7: (lo..=hi).step_by(step),
            8: (lo..=hi).step_by(step).rev(),
            9: (lo..=hi).rev().step_by(step),
        }
    };
}

/// The first numbers of a loop, by the definition: without wrapping, none if the step is not positive.
fn numbers(order: usize, lo: i128, hi: i128, step: i128, most: i128) -> Vec<i128> {
    let hi = if order < 5 { hi } else { hi + 1 };
    let step = if order % 5 < 2 { 1 } else { step };
    let count = if step <= 0 || lo >= hi { 0 } else { (hi - lo + step - 1) / step };
    let number = |k| match order % 5 {
        0 | 2 => lo + k * step,
        3 => lo + (count - 1 - k) * step,
        _ => hi - 1 - k * step,
    };
    (0..count.min(most)).map(number).collect()
}

fn hash(numbers: &[i128]) -> i64 {
    numbers.iter().fold(0, |hash: i64, &i| hash.wrapping_mul(31).wrapping_add(i as i64).wrapping_add(1))
}

/// Bounds and steps that go wrong easily.
fn bounds(min: i128, max: i128) -> Vec<[i128; 3]> {
    let mut all = Vec::new();
    for (lo, hi) in
        [(0, 0), (0, 7), (3, 2), (max, max), (max - 6, max), (min, min), (min, min + 5), (max, min), (min, max)]
    {
        all.extend([1, 2, 5, max].map(|step| [lo, hi, step]));
    }
    all.push([0, 7, 0]);
    if min < 0 {
        all.extend([[-4, 4, 3], [0, 7, -1], [0, 7, min]]);
    }
    all
}

macro_rules! test_ranges {
    ($test:ident, $known:ident, $t:ident) => {
        every_order!($known[], $t);

        #[test]
        fn $test() {
            check(|device| {
                for [lo, hi, step] in bounds($t::MIN.into(), $t::MAX.into()) {
                    // All numbers of a small dtype; those of a greater one would take long.
                    let all = hi - lo < 300;
                    let mut expected = Vec::new();
                    for order in 0..10 {
                        expected.push(hash(&numbers(order, lo, hi, step, LIMIT.into())));
                        expected.push(if all { hash(&numbers(order, lo, hi, step, i128::MAX)) } else { 0 });
                    }
                    let what = format!("{lo} to {hi} by {step}");
                    let (lo, hi, step) = (lo as $t, hi as $t, step as $t);
                    let mut out = device.zeros::<i64>(20)?;
                    $known(&mut out, lo, hi, step, all.into()).grid(1).launch(device)?;
                    assert_eq!(out.to_vec()?, expected, "{what}");
                    let mut out = device.zeros::<i64>(20)?;
                    of_any_dtype::<$t>(&mut out, lo, hi, step, all.into()).grid(1).launch(device)?;
                    assert_eq!(out.to_vec()?, expected, "{what}, of a dtype parameter");
                }
                Ok(())
            });
        }
    };
}

every_order!(of_any_dtype[T: Int], T);
test_ranges!(ranges_of_i8, of_i8, i8);
test_ranges!(ranges_of_u8, of_u8, u8);
test_ranges!(ranges_of_i16, of_i16, i16);
test_ranges!(ranges_of_u16, of_u16, u16);
test_ranges!(ranges_of_i32, of_i32, i32);
test_ranges!(ranges_of_u32, of_u32, u32);
test_ranges!(ranges_of_i64, of_i64, i64);
test_ranges!(ranges_of_u64, of_u64, u64);

/// Sums over ranges that end at a constexpr: of a dtype parameter, of `i64`, and of an unrolled loop.
#[kernel]
fn up_to<T: Int, const N: i64>(out: PtrMut<i64>, lo: T, wide: i64) {
    let (mut hash, mut stepped, mut last) = (0_i64, 0_i64, 0_i64);
    for i in lo..=N {
        hash = hash * 31 + (i as i64) + 1;
    }
    #[unroll(2)]
    for i in (lo..=N).step_by(2).rev() {
        stepped = stepped * 31 + (i as i64) + 1;
    }
    for i in wide..=N {
        last = last * 31 + i + 1;
    }
    store(out, hash);
    store(out + 1, stepped);
    store(out + 2, last);
}

#[test]
fn ranges_end_at_the_greatest_constexprs() {
    check(|device| {
        macro_rules! up_to {
            ($($t:ident)*) => {$(
                let max = $t::MAX.min(i64::MAX as $t);
                for below in [0, 1, 5, 100] {
                    let (lo, wide) = (max - below, max as i64 - below as i64);
                    let mut out = device.zeros::<i64>(3)?;
                    UpToConsts { N: max as i64 }.call(&mut out, lo, wide).grid(1).launch(device)?;
                    let (lo, hi) = (lo as i128, max as i128);
                    let all = hash(&numbers(5, lo, hi, 1, i128::MAX));
                    let stepped = hash(&numbers(8, lo, hi, 2, i128::MAX));
                    assert_eq!(out.to_vec()?, [all, stepped, all], "{lo}..={hi} of {}", stringify!($t));
                }
            )*};
        }
        up_to! { i8 u8 i16 u16 i32 u32 i64 u64 }
        Ok(())
    });
}

#[kernel]
fn unrolled_down<T: Int, const N: usize>(out: PtrMut<T>, lo: T) {
    let mut count = 0;
    #[unroll]
    for i in (T::MIN..T::MIN + N as T).rev().step_by(3) {
        store(out + count, i - T::MIN + lo);
        count += 1;
    }
    #[unroll]
    for i in (N as T)..=N {
        store(out + count, i + lo);
    }
}

#[test]
fn unrolled_ranges_of_dtype_parameters() {
    check(|device| {
        let mut out = device.zeros::<i8>(4)?;
        unrolled_down::<_, 7>(&mut out, 10).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [16, 13, 10, 17]);
        Ok(())
    });
}

/// Runs a kernel and a function of Rust on the same data, and compares what they leave.
fn same(
    run: impl Fn(&Device, &Buffer<i32>, &mut Buffer<i32>, i32) -> Result<(), tilewright::Error>,
    expected: impl Fn(&[i32], &mut [i32], i32),
) {
    check(|device| {
        let mut state = 1_u32;
        for round in 0..60 {
            let data: Vec<i32> = (0..32)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as i32 % 12 - 2
                })
                .collect();
            let n = round % 17;
            let (x, mut out) = (device.upload(&data)?, device.zeros::<i32>(32)?);
            run(device, &x, &mut out, n)?;
            let mut own = vec![0; 32];
            expected(&data, &mut own, n);
            assert_eq!(out.to_vec()?, own, "round {round}: n = {n}, data {data:?}");
        }
        Ok(())
    });
}

#[kernel]
fn sums(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let mut total = 0;
    for i in 0..n {
        let v = load(x + i);
        if v < 0 {
            continue;
        }
        if v == 9 {
            break;
        }
        total += v;
        store(out + 1 + i, total);
    }
    store(out, total);
}

#[test]
fn sums_that_skip_and_stop() {
    same(
        |device, x, out, n| sums(x, out, n).grid(1).launch(device),
        |x, out, n| {
            let mut total = 0;
            for i in 0..n as usize {
                if x[i] < 0 {
                    continue;
                }
                if x[i] == 9 {
                    break;
                }
                total += x[i];
                out[1 + i] = total;
            }
            out[0] = total;
        },
    );
}

#[kernel]
fn pairs(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let mut seen = 0;
    'rows: for i in 0..n {
        for j in 0..=i {
            let (a, b) = (load(x + i), load(x + j));
            if a + b == 3 {
                continue 'rows;
            }
            if a - b > 7 {
                break 'rows;
            }
            if a == -2 {
                store(out, -1);
                return;
            }
            seen += 1;
        }
        store(out + 1 + i, seen);
    }
    store(out, seen);
}

#[test]
fn labels_and_returns() {
    same(
        |device, x, out, n| pairs(x, out, n).grid(1).launch(device),
        |x, out, n| {
            let mut seen = 0;
            'rows: for i in 0..n as usize {
                for j in 0..=i {
                    let (a, b) = (x[i], x[j]);
                    if a + b == 3 {
                        continue 'rows;
                    }
                    if a - b > 7 {
                        break 'rows;
                    }
                    if a == -2 {
                        out[0] = -1;
                        return;
                    }
                    seen += 1;
                }
                out[1 + i] = seen;
            }
            out[0] = seen;
        },
    );
}

#[kernel]
fn values(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let mut i = 0;
    let (found, at) = loop {
        let v = load(x + i);
        if v > n {
            break (v, i);
        }
        i += 1;
        if i == 20 {
            break (-1, i);
        }
    };
    store(out, found);
    store(out + 1, at);
    // The condition of a `while` changes variables, and reads memory.
    let mut k = 0;
    while {
        k += 1;
        load(x + k) != 3 && k < 30
    } {
        store(out + 2, load(x + k));
    }
    store(out + 3, k);
}

#[test]
fn values_of_loops_and_conditions_with_effects() {
    same(
        |device, x, out, n| values(x, out, n).grid(1).launch(device),
        |x, out, n| {
            let mut i = 0;
            let (found, at) = loop {
                if x[i] > n {
                    break (x[i], i as i32);
                }
                i += 1;
                if i == 20 {
                    break (-1, 20);
                }
            };
            (out[0], out[1]) = (found, at);
            let mut k = 0;
            while {
                k += 1;
                x[k] != 3 && k < 30
            } {
                out[2] = x[k];
            }
            out[3] = k as i32;
        },
    );
}

#[kernel]
fn unrolled<const N: usize>(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let lanes = arange(0, N);
    let mut acc = zeros::<i32>([N]);
    #[unroll]
    for i in 0..=N {
        if load(x + i) > n {
            break;
        }
        acc += load(x + i + lanes);
    }
    store(out + lanes, acc);
    // A tile is carried through a loop that ends when its sum says so.
    let mut halves = load(x + lanes);
    loop {
        if sum(abs(halves), axis = 0) <= n {
            break;
        }
        halves = halves / 2;
    }
    store(out + N + lanes, halves);
}

#[test]
fn unrolled_loops_that_stop_and_tiles_in_endless_ones() {
    same(
        |device, x, out, n| unrolled::<8>(x, out, n).grid(1).launch(device),
        |x, out, n| {
            for i in 0..=8 {
                if x[i] > n {
                    break;
                }
                (0..8).for_each(|lane| out[lane] += x[i + lane]);
            }
            let mut halves = x[..8].to_vec();
            while halves.iter().map(|v| v.abs()).sum::<i32>() > n {
                halves.iter_mut().for_each(|v| *v /= 2);
            }
            out[8..16].copy_from_slice(&halves);
        },
    );
}

#[kernel]
fn first_of_row(x: Ptr<i32>, out: PtrMut<i32>, columns: i32) {
    let row = program_id(0);
    for column in 0..columns {
        if load(x + row * columns + column) > 5 {
            store(out + row, column);
            return;
        }
    }
    store(out + row, -1);
}

#[test]
fn each_program_returns_by_itself() {
    same(
        |device, x, out, _| first_of_row(x, out, 4).grid(8).launch(device),
        |x, out, _| {
            for row in 0..8 {
                let found = (0..4).find(|column| x[row * 4 + column] > 5);
                out[row] = found.map_or(-1, |column| column as i32);
            }
        },
    );
}
