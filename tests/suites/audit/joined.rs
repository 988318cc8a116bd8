//! Loops under `#[unroll(4)]`, which join iterations.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// Sums of rows, one after the other: `total = total * 3 + max(row)`, in which the order of rows counts.
#[kernel]
fn rows<const N: usize>(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let mut total = 0;
    #[unroll(4)]
    for row in 0..n {
        total = total * 3 + max(load(x + row * N + arange(0, N)), axis = 0);
    }
    store(out, total);
}

/// Ranges of every kind, with steps and ends that the launch says.
#[kernel]
fn ranges(out: PtrMut<i64>, lo: i32, hi: i32, step: i32, last: i64) {
    let (mut up, mut down, mut closed, mut from_end) = (0i64, 0i64, 0i64, 0i64);
    #[unroll(3)]
    for i in (lo..hi).step_by(step) {
        up = up * 7 + i as i64;
    }
    #[unroll(2)]
    for i in (lo..hi).step_by(step).rev() {
        down = down * 7 + i as i64;
    }
    #[unroll(4)]
    for i in lo..=hi {
        closed = closed * 7 + i as i64;
    }
    #[unroll(5)]
    for i in (0..last).rev().step_by(3) {
        #[unroll(1)]
        for j in 0..i {
            from_end = from_end * 7 + i - j;
        }
    }
    store(out, up);
    store(out + 1, down);
    store(out + 2, closed);
    store(out + 3, from_end);
}

#[kernel(num_warps = 4)]
fn matmul<const M: usize, const N: usize, const K: usize, const BY: bool>(
    a: Ptr<f16>,
    b: Ptr<f16>,
    c: PtrMut<f32>,
    k: i32,
) {
    let (rows, columns) = (arange(0, M), arange(0, N));
    let mut acc = zeros([M, N]);
    if BY {
        #[unroll(2)]
        for step in (0..k).step_by(K) {
            let inner = step + arange(0, K);
            let x = load(a + rows[(.., None)] * k + inner, mask = inner < k);
            let y = load(b + inner[(.., None)] * N + columns, mask = (inner < k)[(.., None)]);
            acc = dot(x, y, acc = acc);
        }
    } else {
        for step in (0..k).step_by(K) {
            let inner = step + arange(0, K);
            let x = load(a + rows[(.., None)] * k + inner, mask = inner < k);
            let y = load(b + inner[(.., None)] * N + columns, mask = (inner < k)[(.., None)]);
            acc = dot(x, y, acc = acc);
        }
    }
    store(c + rows[(.., None)] * N + columns, acc);
}

/// Lanes that go their own ways.
#[kernel]
fn lanes<const N: usize>(x: Ptr<i32>, out: PtrMut<i32>) {
    let at = arange(0, N);
    let sums = map_elementwise(load(x + at), |n| {
        let mut sum = 0;
        #[unroll(3)]
        for i in 0..n {
            sum = sum * 5 + i;
        }
        sum
    });
    store(out + at, sums);
}

#[test]
fn joined_rows_are_those_of_one_after_the_other() {
    check(|device| {
        let x: Vec<i32> = (0..11 * 64).map(|i| i * 7919 % 1000).collect();
        let data = device.upload(&x)?;
        for n in 0..=11 {
            let mut out = device.zeros::<i32>(1)?;
            rows::<64>(&data, &mut out, n).grid(1).launch(device)?;
            let maxima = x.chunks(64).take(n as usize).map(|row| row.iter().max().copied().unwrap_or(0));
            assert_eq!(out.to_vec()?, [maxima.fold(0i32, |total, row| total * 3 + row)], "{n} rows");
        }
        Ok(())
    });
}

#[test]
fn joined_ranges_have_the_numbers_of_rusts() {
    let fold =
        |numbers: &mut dyn Iterator<Item = i64>| numbers.fold(0i64, |sum, i| sum.wrapping_mul(7).wrapping_add(i));
    check(|device| {
        for (lo, hi, step) in
            [(0, 0, 1), (0, 1, 1), (0, 12, 1), (-5, 9, 2), (7, 3, 1), (0, 10, 4), (i32::MAX - 7, i32::MAX, 3)]
        {
            let mut out = device.zeros::<i64>(4)?;
            let last = i64::from(hi) - i64::from(lo);
            ranges(&mut out, lo, hi, step, last).grid(1).launch(device)?;
            let range = || (lo..hi).step_by(step as usize).map(i64::from);
            let expected = [
                fold(&mut range()),
                fold(&mut range().rev()),
                fold(&mut (lo..=hi).map(i64::from)),
                fold(&mut (0..last).rev().step_by(3).flat_map(|i| (0..i).map(move |j| i - j))),
            ];
            assert_eq!(out.to_vec()?, expected, "{lo}..{hi} by {step}");
        }
        Ok(())
    });
}

#[test]
fn joined_products_are_those_of_the_plain_loop() {
    check(|device| {
        for k in [0, 32, 64, 96, 160, 176] {
            let number = |i: usize| f16::from_f32((i * 31 % 17) as f32 - 8.0);
            let a = device.upload(&(0..64 * k).map(number).collect::<Vec<f16>>())?;
            let b = device.upload(&(0..k * 64).map(|i| number(i + 5)).collect::<Vec<f16>>())?;
            let (mut plain, mut joined) = (device.zeros::<f32>(64 * 64)?, device.zeros::<f32>(64 * 64)?);
            matmul::<64, 64, 32, false>(&a, &b, &mut plain, k as i32).grid(1).launch(device)?;
            matmul::<64, 64, 32, true>(&a, &b, &mut joined, k as i32).grid(1).launch(device)?;
            // Sums of integers below 2^24 are exact in any order.
            assert_eq!(plain.to_vec()?, joined.to_vec()?, "k = {k}");
        }
        Ok(())
    });
}

#[test]
fn lanes_join_iterations_of_their_own() {
    check(|device| {
        let n: Vec<i32> = (0..32).map(|i| i % 9 - 1).collect();
        let mut out = device.zeros::<i32>(32)?;
        lanes::<32>(&device.upload(&n)?, &mut out).grid(1).launch(device)?;
        let expected: Vec<i32> = n.iter().map(|&n| (0..n).fold(0, |sum, i| sum * 5 + i)).collect();
        assert_eq!(out.to_vec()?, expected);
        Ok(())
    });
}

/// The loop over joined iterations has the body four times, and that over the rest once.
#[test]
fn the_code_has_the_body_as_often_as_asked() -> Result<(), tilewright::Error> {
    for target in [Target::sm_80(), Target::sm_90a()] {
        let ptx = RowsConsts { N: 4096 }.compile(target)?.ptx().to_string();
        let bodies: Vec<&str> = ptx.split("$L__BB").filter(|block| block.contains("bar.sync")).collect();
        let of = |what: &str| bodies.iter().map(|body| body.matches(what).count()).collect::<Vec<_>>();
        for what in ["mad.lo", "st.shared", "ld.global"] {
            let counts = of(what);
            assert!(counts.len() == 2 && counts[1] > 0 && counts[0] == 4 * counts[1], "{what}: {counts:?}:\n{ptx}");
        }
    }
    Ok(())
}

#[test]
fn too_many_copies_are_an_error_of_the_loop() {
    #[kernel]
    fn nested(out: PtrMut<i32>, n: i32) {
        #[unroll(64)]
        for i in 0..n {
            #[unroll]
            for j in 0..300 {
                store(out + i, i * j);
                store(out + j, i * j);
            }
        }
    }
    let error = NestedConsts {}.compile(Target::sm_90a()).expect_err("too large").to_string();
    assert!(error.contains("unrolling this loop"), "{error}");
}
