//! Batches of products whose right factors are unpacked in the threads that multiply them: each batch has warps of its own, and
//! a part of the sums, which are added up in the end.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

const M: usize = 16;

/// `x @ w`, where words of `w` have 8 rows of a column in 4 bits each. Rows and columns are multiplied in the order in which a
/// thread has all of its words.
#[kernel]
fn words<const PARTS: usize, const K: usize, const N: usize>(
    x: Ptr<f16>,
    words: Ptr<i32>,
    out: PtrMut<f32>,
    k: i32,
    n: i32,
) {
    static_assert!(K % 32 == 0);
    static_assert!(N % 4 == 0);
    let (i, j) = (arange(0, M), program_id(0) * N + arange(0, N));
    let mut sums = zeros::<f32>([PARTS, M, N]);
    for begin in (0..k).step_by(PARTS * K) {
        let parts = (begin + arange(0, PARTS) * K)[(.., None)];
        let along = parts + arange(0, K);
        let left = load(x + (i[(.., None)] * k + along[(.., None, ..)]), mask = (along < k)[(.., None, ..)]);
        let down = parts / 8 + arange(0, K / 8);
        let mask = (down < k / 8)[(.., .., None)] & (j < n);
        let word = load(words + (down[(.., .., None)] * n + j), mask = mask);
        let number = (word[(.., .., .., None)] >> (arange(0, 8) * 4) & 15) as f16;
        let number = reshape(number, [PARTS, K / 32, 4, N / 4, 4, 2, 2, 2]);
        let right = reshape(permute(number, [0, 1, 6, 7, 2, 5, 4, 3]), [PARTS, K, N]);
        let left = permute(reshape(left, [PARTS, M, K / 32, 4, 2, 2, 2]), [0, 1, 2, 5, 6, 3, 4]);
        sums += dot(reshape(left, [PARTS, M, K]), right);
    }
    let columns = permute(reshape(sum(sums, axis = 0), [M, 4, N / 4]), [0, 2, 1]);
    store(out + i[(.., None)] * n + j, reshape(columns, [M, N]), mask = (j < n)[(None, ..)]);
}

#[test]
fn batches_of_unpacked_factors() {
    for (k, n) in [(64, 64), (512, 128), (416, 72)] {
        let x: Vec<f16> = (0..M * k).map(|at| f16::from_f32(((at * 7 + at / k) % 9) as f32 - 4.0)).collect();
        let bits: Vec<i32> =
            (0..(k / 8 * n) as u32).map(|at| (at.wrapping_mul(2_654_435_761) ^ at << 7) as i32).collect();
        let mut expected = vec![0f32; M * n];
        for (at, sum) in expected.iter_mut().enumerate() {
            let (i, j) = (at / n, at % n);
            let number = |row: usize| (bits[row / 8 * n + j] >> (row % 8 * 4) & 15) as f32;
            *sum = (0..k).map(|row| x[i * k + row].to_f32() * number(row)).sum();
        }
        check(|device| {
            let (x, bits) = (device.upload(&x)?, device.upload(&bits)?);
            for (parts, columns, warps) in [(1, 64, 2), (2, 32, 4), (4, 64, 8), (4, 32, 8), (2, 64, 1)] {
                let mut out = device.upload(&vec![f32::NAN; M * n])?;
                let call =
                    WordsConsts { PARTS: parts, K: 64, N: columns }.call(&x, &bits, &mut out, k as i32, n as i32);
                let call = call.grid(n.div_ceil(columns)).num_warps(warps);
                let compiled = call.compile(Target::sm_90a())?;
                call.launch(device)?;
                let what = format!("{k} x {n} in {parts} parts of {columns} columns by {warps} warps");
                assert_eq!(out.to_vec()?, expected, "{what}");
                // Words are copied ahead, 16 bytes at a time, and numbers do not change threads.
                let report = compiled.report();
                assert!(report.contains("`words` by cp.async"), "{what}: {report}");
                assert!(!report.contains("`words` is accessed by"), "{what}: {report}");
            }
            Ok(())
        });
    }
}
