//! Products of factors with scales, and of f32 by terms of bf16, as users write them: in pipelined loops and outside, on
//! sizes that are no multiples of the blocks, by all numbers of warps.

use tilewright::prelude::*;
use tilewright_tests::devices::check;

/// The numbers of e2m1.
const E2M1: [f64; 16] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Both factors and their scales are loaded in the loop; the second lies transposed, `[n, k / 2]`.
#[kernel]
fn scaled_matmul<const M: usize, const N: usize, const K: usize>(
    a: Ptr<f8e4m3>,
    a_scale: Ptr<u8>,
    b: Ptr<u8>,
    b_scale: Ptr<u8>,
    c: PtrMut<f32>,
    m: i32,
    n: i32,
    k: i32,
) {
    let rows = (program_id(0) * M + arange(0, M))[(.., None)];
    let columns = (program_id(1) * N + arange(0, N))[(.., None)];
    let (inner, bytes, blocks) = (arange(0, K), arange(0, K / 2), arange(0, K / 32));
    let mut acc = zeros([M, N]);
    for step in (0..k).step_by(K) {
        let x = load(a + rows * k + (step + inner), mask = (rows < m) & (step + inner < k));
        let y = load(b + columns * (k / 2) + (step / 2 + bytes), mask = (columns < n) & (step / 2 + bytes < k / 2));
        let block = step / 32 + blocks;
        let s = load(a_scale + rows * (k / 32) + block, mask = (rows < m) & (block < k / 32));
        let t = load(b_scale + columns * (k / 32) + block, mask = (columns < n) & (block < k / 32));
        acc = dot_scaled(x, y.trans(), a_scale = s, b_scale = t, b_format = e2m1, acc = acc);
    }
    let columns = program_id(1) * N + arange(0, N);
    store(c + rows * n + columns, acc, mask = (rows < m) & (columns < n));
}

fn numbers(len: usize, seed: usize, of: usize) -> Vec<usize> {
    (0..len).map(|i| (i * 7 + seed * 13 + i / 5 + i * i / 11) % of).collect()
}

/// Small numbers, whose sums are exact.
struct Matrices {
    a: Vec<f64>,
    a_scale: Vec<u8>,
    b: Vec<f64>,
    b_bytes: Vec<u8>,
    b_scale: Vec<u8>,
}

impl Matrices {
    fn new([m, n, k]: [usize; 3]) -> Matrices {
        let a = numbers(m * k, 1, 9).into_iter().map(|x| x as f64 * 0.5 - 2.0).collect();
        let halves = numbers(n * k, 2, 16);
        let scale = |len, seed| numbers(len, seed, 4).into_iter().map(|x| 126 + x as u8).collect();
        Matrices {
            a,
            a_scale: scale(m * k / 32, 3),
            b: halves.iter().map(|&half| E2M1[half]).collect(),
            b_bytes: halves.chunks(2).map(|pair| (pair[0] | pair[1] << 4) as u8).collect(),
            b_scale: scale(n * k / 32, 4),
        }
    }

    fn product(&self, [m, n, k]: [usize; 3]) -> Vec<f32> {
        let power = |scale: u8| 2f64.powi(i32::from(scale) - 127);
        let scaled = |values: &[f64], scales: &[u8]| -> Vec<f64> {
            values.iter().enumerate().map(|(i, x)| x * power(scales[i / 32])).collect()
        };
        let (a, b) = (scaled(&self.a, &self.a_scale), scaled(&self.b, &self.b_scale));
        let sum = |i: usize| (0..k).map(|j| a[i / n * k + j] * b[i % n * k + j]).sum::<f64>() as f32;
        (0..m * n).map(sum).collect()
    }
}

macro_rules! run_scaled {
    ($device:expr, $size:expr, [$($consts:literal),*], $warps:expr, $stages:expr) => {{
        let ([m, n, k], device): ([usize; 3], &Device) = ($size, $device);
        let matrices = Matrices::new([m, n, k]);
        let a: Vec<F8E4M3> = matrices.a.iter().map(|&x| F8E4M3::from_f64(x)).collect();
        let (a, a_scale) = (device.upload(&a)?, device.upload(&matrices.a_scale)?);
        let (b, b_scale) = (device.upload(&matrices.b_bytes)?, device.upload(&matrices.b_scale)?);
        let mut c = device.zeros::<f32>(m * n)?;
        let [rows, columns, _] = [$($consts),*];
        scaled_matmul::<$($consts),*>(&a, &a_scale, &b, &b_scale, &mut c, m as i32, n as i32, k as i32)
            .grid((m.div_ceil(rows), n.div_ceil(columns)))
            .num_warps($warps)
            .num_stages($stages)
            .launch(device)?;
        assert_eq!(c.to_vec()?, matrices.product([m, n, k]), "{m}x{n}x{k} by {} warps on {device}", $warps);
    }};
}

#[test]
fn loops_load_factors_and_scales() {
    check(|device| {
        run_scaled!(device, [64, 64, 256], [64, 64, 64], 4, 3);
        run_scaled!(device, [70, 33, 224], [64, 32, 64], 4, 2);
        run_scaled!(device, [128, 64, 192], [128, 64, 32], 8, 4);
        run_scaled!(device, [17, 9, 160], [16, 16, 128], 1, 3);
        run_scaled!(device, [16, 200, 96], [16, 64, 64], 2, 1);
        Ok(())
    });
}

/// One block, without a loop: e2m1 on both sides, one scale only, onto an accumulator.
#[kernel]
fn one_block<const M: usize, const N: usize, const K: usize>(a: Ptr<u8>, a_scale: Ptr<u8>, b: Ptr<u8>, c: PtrMut<f32>) {
    let (rows, columns, bytes) = (arange(0, M)[(.., None)], arange(0, N), arange(0, K / 2));
    let x = load(a + rows * (K / 2) + bytes);
    let y = load(b + bytes[(.., None)] * N + columns);
    let s = load(a_scale + rows * (K / 32) + arange(0, K / 32));
    let at = c + rows * N + columns;
    store(at, dot_scaled(x, y, a_scale = s, a_format = e2m1, b_format = e2m1, acc = load(at)));
}

fn check_one_block<const M: usize, const N: usize, const K: usize>(device: &Device, warps: u32) -> Result<(), Error> {
    let (a, b) = (numbers(M * K, 5, 16), numbers(K * N, 6, 16));
    let scales: Vec<u8> = numbers(M * K / 32, 7, 4).into_iter().map(|x| 126 + x as u8).collect();
    let a_bytes: Vec<u8> = a.chunks(2).map(|pair| (pair[0] | pair[1] << 4) as u8).collect();
    // A byte holds two rows of a column.
    let pair = |i: usize| (b[i / N * 2 * N + i % N] | b[(i / N * 2 + 1) * N + i % N] << 4) as u8;
    let b_bytes: Vec<u8> = (0..K / 2 * N).map(pair).collect();
    let start: Vec<f32> = numbers(M * N, 8, 7).into_iter().map(|x| x as f32 - 3.0).collect();
    let mut c = device.upload(&start)?;
    let (x, s, y) = (device.upload(&a_bytes)?, device.upload(&scales)?, device.upload(&b_bytes)?);
    one_block::<M, N, K>(&x, &s, &y, &mut c).grid(1).num_warps(warps).launch(device)?;
    let scale = |row: usize, i: usize| 2f64.powi(i32::from(scales[row * (K / 32) + i / 32]) - 127);
    let sum = |at: usize| {
        let (row, column) = (at / N, at % N);
        let products = (0..K).map(|i| E2M1[a[row * K + i]] * scale(row, i) * E2M1[b[i * N + column]]);
        (f64::from(start[at]) + products.sum::<f64>()) as f32
    };
    assert_eq!(c.to_vec()?, (0..M * N).map(sum).collect::<Vec<_>>(), "{M}x{N}x{K} by {warps} warps on {device}");
    Ok(())
}

#[test]
fn single_blocks() {
    check(|device| {
        for warps in [1, 4, 8] {
            check_one_block::<64, 64, 64>(device, warps)?;
            check_one_block::<128, 32, 128>(device, warps)?;
            check_one_block::<16, 8, 32>(device, warps)?;
            check_one_block::<1, 64, 32>(device, warps)?;
        }
        Ok(())
    });
}

/// f32 by terms of bf16, in a loop of which another value depends on the product too.
#[kernel]
fn split_matmul<const M: usize, const N: usize, const K: usize, const SIX: bool>(
    a: Ptr<f32>,
    b: Ptr<f32>,
    c: PtrMut<f32>,
    m: i32,
    n: i32,
    k: i32,
) {
    let rows = (program_id(0) * M + arange(0, M))[(.., None)];
    let columns = program_id(1) * N + arange(0, N);
    let mut acc = zeros([M, N]);
    for step in (0..k).step_by(K) {
        let inner = step + arange(0, K);
        let x = load(a + rows * k + inner, mask = (rows < m) & (inner < k));
        let y = load(b + inner[(.., None)] * n + columns, mask = (inner < k)[(.., None)] & (columns < n));
        if SIX {
            acc = dot(x, y, acc = acc, precision = bf16x6);
        } else {
            acc += dot(x, y, precision = bf16x3);
        }
    }
    store(c + rows * n + columns, acc, mask = (rows < m) & (columns < n));
}

fn check_split<const SIX: bool>(device: &Device, [m, n, k]: [usize; 3], warps: u32) -> Result<(), Error> {
    let values = |len: usize, seed: usize| -> Vec<f32> {
        numbers(len, seed, 10007).into_iter().map(|x| (x as f32 - 5003.0) / 3001.0).collect()
    };
    let (a, b) = (values(m * k, 1), values(k * n, 2));
    let (x, y, mut c) = (device.upload(&a)?, device.upload(&b)?, device.zeros::<f32>(m * n)?);
    split_matmul::<64, 64, 32, SIX>(&x, &y, &mut c, m as i32, n as i32, k as i32)
        .grid((m.div_ceil(64), n.div_ceil(64)))
        .num_warps(warps)
        .launch(device)?;
    let unit = |bits: i32| 2f64.powi(-bits);
    // What the terms leave out, and one rounding (tensor cores cut off) for each of the sums.
    let left_out = if SIX { 1.01 * unit(24) } else { 1.01 * unit(15) };
    let allowed = left_out + 1.1 * 2.0 * (k + 2 + k.div_ceil(32)) as f64 * unit(24);
    for (at, found) in c.to_vec()?.into_iter().enumerate() {
        let products = (0..k).map(|i| f64::from(a[at / n * k + i]) * f64::from(b[i * n + at % n]));
        let (sum, size) = products.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
        let error = (f64::from(found) - sum).abs();
        assert!(error <= allowed * size, "{m}x{n}x{k} by {warps} warps on {device}: {found} is not {sum}");
    }
    Ok(())
}

#[test]
fn products_of_bf16_terms() {
    check(|device| {
        for warps in [1, 4, 8] {
            check_split::<false>(device, [64, 64, 32], warps)?;
            check_split::<true>(device, [70, 65, 100], warps)?;
            check_split::<false>(device, [3, 129, 70], warps)?;
            check_split::<true>(device, [64, 64, 1], warps)?;
        }
        Ok(())
    });
}
