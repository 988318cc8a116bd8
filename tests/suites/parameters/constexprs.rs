//! Constexprs as values: what nothing else gives a dtype has that of their declaration, as in Rust.

#![allow(clippy::identity_op, reason = "kernels are compared with the same source in Rust")]

use tilewright::prelude::*;
use tilewright_tests::devices::check;

#[device]
fn bits<T: Int>(_: T) -> i32 {
    T::BITS
}

#[device]
fn turned<const R: u16>() -> i32 {
    leading_zeros(R) as i32
}

#[kernel]
fn typed<const A: u8, const L: i64, const M: u64>(bytes: PtrMut<u8>, counts: PtrMut<u32>, wide: PtrMut<i64>) {
    store(bytes, !A);
    store(bytes + 1, A << 4);
    store(bytes + 2, rotate_left(A, 3));
    store(bytes + 3, reverse_bits(A));
    store(bytes + 4, saturating_add(A, 100));
    let (sum, wraps) = overflowing_add(A, 100);
    store(bytes + 5, sum);
    store(bytes + 6, wraps as u8);
    let copy = A;
    store(bytes + 7, !copy);
    let mut variable = A;
    variable += 100;
    store(bytes + 8, variable);
    store(counts, leading_zeros(A));
    store(counts + 1, count_ones(!M));
    store(counts + 2, leading_zeros(L));
    store(counts + 3, (A << 4) as u32);
    store(counts + 4, ((A << 4) >> 2) as u32);
    store(counts + 5, (!(A >> 1)) as u32);
    store(wide, L >> 33);
    store(wide + 1, !L);
    store(wide + 2, bits(A) as i64);
    store(wide + 3, bits(L) as i64);
    store(wide + 4, (!A) as i64);
    store(wide + 5, turned::<7>() as i64);
    // The type of a count says nothing of what is shifted.
    store(wide + 6, (1 << (A >> 5)) as i64);
    let mut last = 0;
    for i in A..A + 3 {
        last = leading_zeros(i) as i64;
    }
    store(wide + 7, last);
}

#[test]
fn constexprs_have_the_dtype_of_their_declaration() {
    const A: u8 = 201;
    const L: i64 = 0x1234_5678_9abc;
    const M: u64 = 5;
    check(|device| {
        let (mut bytes, mut counts, mut wide) = (device.zeros(9)?, device.zeros(6)?, device.zeros(8)?);
        typed::<A, L, M>(&mut bytes, &mut counts, &mut wide).grid(1).launch(device)?;
        let (sum, wraps) = A.overflowing_add(100);
        let saturated = A.saturating_add(100);
        let turned = A.rotate_left(3);
        let bytes_of = [!A, A << 4, turned, A.reverse_bits(), saturated, sum, u8::from(wraps), !A, sum];
        assert_eq!(bytes.to_vec()?, bytes_of);
        let shifted = A << 4;
        let ones = (!M).count_ones();
        let counted =
            [A.leading_zeros(), ones, L.leading_zeros(), shifted.into(), (shifted >> 2).into(), (!(A >> 1)).into()];
        assert_eq!(counts.to_vec()?, counted);
        assert_eq!(wide.to_vec()?, [L >> 33, !L, 8, 64, i64::from(!A), 13, 1 << (A >> 5), 0]);
        Ok(())
    });
}

#[kernel]
fn number<const BITS: u32>(out: PtrMut<f32>) {
    store(out, bitcast::<f32>(BITS));
}

#[test]
fn bits_of_constexprs_are_those_of_their_dtype() {
    check(|device| {
        let mut out = device.zeros(1)?;
        number::<0xc000_0000>(&mut out).grid(1).launch(device)?;
        assert_eq!(out.to_vec()?, [f32::from_bits(0xc000_0000)]);
        Ok(())
    });
}

#[kernel]
fn beyond<const A: u8>(bytes: PtrMut<u8>) {
    store(bytes, A + 100);
}

#[test]
fn what_a_dtype_does_not_hold_is_an_error() {
    check(|device| {
        let mut bytes = device.zeros(1)?;
        beyond::<100>(&mut bytes).grid(1).launch(device)?;
        assert_eq!(bytes.to_vec()?, [200]);
        let error = beyond::<201>(&mut bytes).grid(1).launch(device).expect_err("301 is no u8").to_string();
        assert!(error.contains("301"), "{error}");
        Ok(())
    });
}

#[kernel]
fn counted<const N: usize>(bytes: PtrMut<u8>, words: PtrMut<i32>, wide: PtrMut<u64>) {
    #[unroll]
    for i in 1_u8..3 {
        store(bytes + i, !i);
    }
    #[unroll]
    for i in (4_u64..=5).rev() {
        store(wide + i, rotate_right(i, 1));
    }
    // Of `usize` nobody knows the width.
    #[unroll]
    for i in 0..N {
        store(words + i, !i);
    }
}

#[test]
fn counters_of_unrolled_loops_have_the_dtype_of_their_range() {
    check(|device| {
        let (mut bytes, mut words, mut wide) = (device.zeros(3)?, device.zeros(2)?, device.zeros(6)?);
        counted::<2>(&mut bytes, &mut words, &mut wide).grid(1).launch(device)?;
        assert_eq!(bytes.to_vec()?, [0, !1, !2]);
        assert_eq!(words.to_vec()?, [!0, !1]);
        assert_eq!(wide.to_vec()?[4..], [4u64.rotate_right(1), 5u64.rotate_right(1)]);
        Ok(())
    });
}

#[kernel]
fn shifted<const N: usize, const C: u32>(words: PtrMut<i32>, wide: PtrMut<i64>, small: PtrMut<i8>, x: i32, y: i8) {
    let a: i32 = 1 << N;
    store(words, a);
    store(words + 1, x & (1 << 31));
    let k = 1 << N;
    store(words + 2, x & k);
    store(words + 3, plus_one(1 << C));
    store(words + 4, x & (1 << C));
    store(wide, (1 << N) as i64);
    let b: i64 = 1 << 40;
    store(wide + 1, b);
    store(wide + 2, (1 << 31) as i64);
    store(wide + 3, k as i64);
    store(wide + 4, (1 << N) & load(wide + 4));
    store(small, y & (1 << 7));
    store(small + 1, y ^ (85 << 1));
    store(small + 2 + arange(0, 1 << 2), full([1 << 2], y));
}

#[device]
fn plus_one(x: i32) -> i32 {
    x + 1
}

#[test]
fn numbers_are_shifted_in_the_dtype_that_they_have() {
    const N: usize = 31;
    check(|device| {
        let (x, y) = (-3i32, -3i8);
        let (mut words, mut small) = (device.zeros(5)?, device.zeros(6)?);
        let mut wide = device.upload(&[0, 0, 0, 0, -1i64])?;
        shifted::<N, 31>(&mut words, &mut wide, &mut small, x, y).grid(1).launch(device)?;
        assert_eq!(words.to_vec()?, [1 << N, x & (1 << 31), x & (1 << N), i32::MIN + 1, x & (1 << 31)]);
        let least = i64::from(i32::MIN);
        assert_eq!(wide.to_vec()?, [least, 1 << 40, least, least, 1 << N]);
        assert_eq!(small.to_vec()?, [y & (1 << 7), y ^ (85 << 1), y, y, y, y]);
        Ok(())
    });
}

/// The Walsh-Hadamard transform of a row: in step `s` neighbours are `2^s` apart.
#[kernel]
fn hadamard<const N: usize>(x: PtrMut<f32>) {
    let at = program_id(0) * N + arange(0, N);
    let mut v = load(x + at);
    #[unroll]
    for s in 0..31 - leading_zeros(N) {
        let (a, b) = split(trans(reshape(v, [N / (2 << s), 2, 1 << s])));
        v = reshape(trans(join(a + b, a - b)), [N]);
    }
    store(x + at, v);
}

#[test]
fn loops_are_unrolled_up_to_the_logarithm_of_a_constexpr() {
    check(|device| {
        let numbers: Vec<f32> = (0..16u8).map(|i| f32::from(i * 7 % 5)).collect();
        let mut x = device.upload(&numbers)?;
        hadamard::<16>(&mut x).grid(1).launch(device)?;
        let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
        let want: Vec<f32> =
            (0..16).map(|i| numbers.iter().enumerate().map(|(j, number)| sign(i, j) * number).sum()).collect();
        assert_eq!(x.to_vec()?, want);
        Ok(())
    });
}
