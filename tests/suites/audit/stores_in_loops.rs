//! Loops that store blocks of tensors: iterations that store to the same elements, and products by groups of warps.

use super::descriptors::{Tensor, moved, numbers, positions};
use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// Iteration `i` copies twice the block at row `i * M` to row `first + i * step`, and `i * shift` columns further
/// right.
#[kernel]
fn one_after_another<const M: usize, const N: usize>(
    x: TensorDesc<f32, { [M, N] }>,
    out: TensorDescMut<f32, { [M, N] }>,
    iterations: i32,
    first: i32,
    step: i32,
    shift: i32,
) {
    let column = program_id(0) * N;
    for i in 0..iterations {
        let block = x.load([i * M, column]);
        out.store([first + i * step, column + i * shift], block * 2.0);
    }
}

/// Whatever iterations store, each element is in the end what the last of them stored there: nobody has said of these
/// loops that their iterations are independent.
#[test]
fn iterations_that_store_to_the_same_elements() {
    const BLOCK: [usize; 2] = [16, 32];
    check(|device| {
        // Blocks that the hardware could copy whole, and ones that it could not.
        for (size, stride) in [([64usize, 96usize], 96), ([61, 96], 100), ([64, 90], 92), ([47, 67], 67), ([5, 3], 3)] {
            // None, all, most and few elements in common, downwards and upwards; disjoint; with gaps.
            for (iterations, first, step) in
                [(4, 0, 0), (5, -3, 1), (4, 2, 7), (6, 40, -5), (4, 0, 15), (4, 0, 16), (3, 1, 20)]
            {
                for (programs, shift) in [(size[1].div_ceil(BLOCK[1]), 0), (1, 9), (1, -32)] {
                    let x = Tensor::new(numbers(6 * BLOCK[0] * stride), &[6 * BLOCK[0], size[1]], &[stride, 1]);
                    let mut want = Tensor::new(vec![-1.5; size[0] * stride], &size, &[stride, 1]);
                    for iteration in 0..iterations {
                        for at in positions(&[BLOCK[0], programs * BLOCK[1]]) {
                            let value = x.get(&moved(&at, &[iteration * BLOCK[0] as i64, 0]), 0.0) * 2.0;
                            want.set(&moved(&at, &[first + iteration * step, iteration * shift]), |_| value);
                        }
                    }
                    let (input, mut out) = (device.upload(&x.data)?, device.full(want.data.len(), -1.5f32)?);
                    let from = TensorDesc::with_strides(&input, [6 * BLOCK[0], size[1]], [stride, 1])?;
                    let mut to = TensorDescMut::with_strides(&mut out, size, [stride, 1])?;
                    let [count, first, step, shift] = [iterations, first, step, shift].map(|number| number as i32);
                    one_after_another::<16, 32>(&from, &mut to, count, first, step, shift)
                        .grid(programs)
                        .launch(device)?;
                    assert_eq!(out.to_vec()?, want.data, "{size:?} {stride} {iterations} {first} {step} {shift}");
                }
            }
        }
        Ok(())
    });
}

/// As `one_after_another`, of products, which take a loop of their own.
#[kernel]
fn products_one_after_another<const M: usize, const N: usize, const K: usize>(
    a: TensorDesc<f16, { [M, K] }>,
    b: TensorDesc<f16, { [K, N] }>,
    out: TensorDescMut<f32, { [M, N] }>,
    iterations: i32,
    depth: i32,
    step: i32,
) {
    let column = program_id(0) * N;
    for i in 0..iterations {
        let mut acc = zeros::<f32>([M, N]);
        for k in (0..depth).step_by(K) {
            acc = dot(a.load([i * M, k]), b.load([k, column]), acc);
        }
        out.store([i * step, column], acc);
    }
}

#[test]
fn iterations_that_store_products_to_the_same_elements() {
    const TRIPS: usize = 3;
    check(|device| {
        let small = |salt: usize| move |i: usize| f16::from_f32(((i * 31 + salt) % 7) as f32 - 3.0);
        for (columns, depth, stride) in [(128usize, 96usize, 128), (100, 40, 104), (67, 33, 67)] {
            // Whole rows of both factors, so that the hardware can fetch them where it can at all.
            let (ahead, beside) = (depth.next_multiple_of(8), columns.next_multiple_of(8));
            let a: Vec<f16> = (0..TRIPS * 128 * ahead).map(small(1)).collect();
            let b: Vec<f16> = (0..depth * beside).map(small(5)).collect();
            let at = |values: &[f16], i: usize| values[i].to_f32();
            let products: Vec<f32> = (0..TRIPS * 128 * columns)
                .map(|i| (i / columns, i % columns))
                .map(|(i, j)| (0..depth).map(|k| at(&a, i * ahead + k) * at(&b, k * beside + j)).sum())
                .collect();
            let (on_device, other) = (device.upload(&a)?, device.upload(&b)?);
            let left = TensorDesc::with_strides(&on_device, [TRIPS * 128, depth], [ahead, 1])?;
            let right = TensorDesc::with_strides(&other, [depth, columns], [beside, 1])?;
            for step in [0, 1, 50, 128, 130] {
                let rows = 300;
                let mut want = Tensor::new(vec![-1.5; rows * stride], &[rows, columns], &[stride, 1]);
                for i in 0..TRIPS * 128 {
                    for j in 0..columns {
                        let row = (i / 128 * step + i % 128) as i64;
                        want.set(&[row, j as i64], |_| products[i * columns + j]);
                    }
                }
                let mut out = device.full(want.data.len(), -1.5f32)?;
                let mut to = TensorDescMut::with_strides(&mut out, [rows, columns], [stride, 1])?;
                let (iterations, depth, step) = (TRIPS as i32, depth as i32, step as i32);
                products_one_after_another::<128, 128, 32>(&left, &right, &mut to, iterations, depth, step)
                    .num_warps(8)
                    .grid(columns.div_ceil(128))
                    .launch(device)?;
                assert_eq!(out.to_vec()?, want.data, "{columns} {depth} {stride} {step}");
            }
        }
        Ok(())
    });
}

/// A product that warps of its own feed, where it may be made at all.
#[kernel(num_warps = 4)]
fn asserted_product<const M: usize, const N: usize, const K: usize>(
    a: TensorDesc<f16, { [M, K] }>,
    b: TensorDesc<f16, { [K, N] }>,
    out: TensorDescMut<f32, { [M, N] }>,
    depth: i32,
    limit: i32,
) {
    let row = program_id(0);
    assert!(row % 3 < limit, "this row is not wanted");
    let mut acc = zeros::<f32>([M, N]);
    #[warp_specialize]
    for k in (0..depth).step_by(K) {
        acc = dot(a.load([row * M, k]), b.load([k, 0]), acc);
    }
    out.store([row * M, 0], acc);
}

/// Programs whose assertion fails end before their warps part, so that none of them waits for another.
#[test]
fn failed_assertions_of_programs_with_groups_of_warps() {
    check(|device| {
        let (programs, depth) = (7, 128);
        let a = device.full(programs * 64 * depth, f16::from_f32(1.0))?;
        let b = device.full(depth * 64, f16::from_f32(0.5))?;
        let a = TensorDesc::new(&a, [programs * 64, depth])?;
        let b = TensorDesc::new(&b, [depth, 64])?;
        for limit in 0..4 {
            let mut out = device.full(programs * 64 * 64, -1.0f32)?;
            let mut sums = TensorDescMut::new(&mut out, [programs * 64, 64])?;
            asserted_product::<64, 64, 32>(&a, &b, &mut sums, depth as i32, limit).grid(programs).launch(device)?;
            match out.to_vec() {
                Ok(_) => assert_eq!(limit, 3),
                Err(Error::AssertFailed { program_id: [program, 0, 0], .. }) => assert!(program as i32 % 3 >= limit),
                Err(other) => return Err(other),
            }
            let want = |program: usize| if (program % 3) < limit as usize { 64.0 } else { -1.0 };
            let all: Vec<f32> = (0..programs).flat_map(|program| [want(program); 64 * 64]).collect();
            // On the CPU programs that come after one that has failed may not run.
            if device.is_cuda() || limit == 3 {
                assert_eq!(out.to_vec()?, all, "{limit}");
            }
        }
        Ok(())
    });
}
