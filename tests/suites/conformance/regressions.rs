//! Kernels that Triton once compiled wrongly.

use half::f16;
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::products::{integers, multiplied};
use crate::runner::{Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![regressions()]
}

#[kernel]
fn chained<const M: usize, const N: usize, const K: usize>(
    a: Ptr<f16>,
    b: Ptr<f16>,
    c: Ptr<f16>,
    out: PtrMut<f32>,
    n: i32,
) {
    let (i, k) = (program_id(0) * M + arange(0, M), arange(0, K));
    let x = load(a + (i[(.., None)] * K + k));
    let mut acc = zeros::<f32>([M, K]);
    for first in (0..n).step_by(N) {
        let j = (first + arange(0, N))[(.., None)] * K + k;
        let z = dot(x, load(b + j).trans());
        acc = dot(z as f16, load(c + j), acc = acc);
    }
    store(out + (i[(.., None)] * K + k), acc);
}

/// `a @ b.T @ c`, a block of columns at a time.
fn chained_matmul(device: &Device, block: usize, stages: u32) -> Outcome {
    let ([m, n, k], mut random) = ([64, 128, 16], Random::new(106));
    let ((a, plain_a), (b, plain_b)) = (integers::<f16>(&mut random, m * k), integers::<f16>(&mut random, n * k));
    let (c, plain_c) = integers::<f16>(&mut random, n * k);
    let (x, y, z, mut out) = (device.upload(&a)?, device.upload(&b)?, device.upload(&c)?, device.zeros::<f32>(m * k)?);
    let call = ChainedConsts { M: 32, N: block, K: k }.call(&x, &y, &z, &mut out, n as i32);
    call.grid(m / 32).num_warps(4).num_stages(stages).launch(device)?;
    let across: Vec<f64> = (0..k * n).map(|i| plain_b[i % n * k + i / n]).collect();
    let want = multiplied(&multiplied(&plain_a, &across, [m, n, k]), &plain_c, [m, k, n]);
    equal(&out.to_vec()?, &want.into_iter().map(|x| x as f32).collect::<Vec<f32>>())
}

#[kernel]
fn vector_times_matrix<T: Num, const N: usize, const K: usize>(a: Ptr<T>, x: Ptr<T>, out: PtrMut<T>, n: i32, k: i32) {
    let j = program_id(0) * N + arange(0, N);
    let mut acc = zeros::<T>([N]);
    for first in (0..k).step_by(K) {
        let inner = first + arange(0, K);
        let block = load(a + (inner[(.., None)] * n + j));
        acc += sum(load(x + inner)[(.., None)] * block, axis = 0);
    }
    store(out + j, acc);
}

fn vecmat<T: Element>(device: &Device, warps: u32) -> Outcome {
    let ([n, k], mut random) = ([128, 128], Random::new(107));
    let ((a, plain_a), (x, plain_x)) = (integers::<T>(&mut random, n * k), integers::<T>(&mut random, k));
    let (matrix, vector, mut out) = (device.upload(&a)?, device.upload(&x)?, device.zeros::<T>(n)?);
    let call = VectorTimesMatrixConsts { N: 32, K: 16 }.call(&matrix, &vector, &mut out, n as i32, k as i32);
    call.grid(n / 32).num_warps(warps).launch(device)?;
    let want = multiplied(&plain_x, &plain_a, [1, n, k]);
    equal(&out.to_vec()?, &want.into_iter().map(T::from_f64).collect::<Vec<T>>())
}

/// Where the addresses of an iteration come from: before the loads, behind them, both, or iterations before.
const FROM: [&str; 5] = ["before", "behind", "mixed", "two iterations before", "three iterations before"];

#[kernel]
fn of_the_counter<const FROM: i32>(a: Ptr<f16>, b: Ptr<f16>, c: PtrMut<f32>, k: i32) {
    let (i, inner) = (arange(0, 64), arange(0, 32));
    let (first_a, first_b) = (a + (i[(.., None)] * k + inner), b + (inner[(.., None)] * 64 + i));
    let (mut pa, mut pb) = (first_a, first_b);
    let (mut next_a, mut next_b) = (first_a + 32, first_b + 32 * 64);
    let (mut third_a, mut third_b) = (first_a + 64, first_b + 64 * 64);
    let mut acc = zeros::<f32>([64, 64]);
    for step in 0..k / 32 {
        if FROM == 0 {
            pa = first_a + step * 32;
            pb = first_b + step * (32 * 64);
        } else if FROM == 2 {
            pa = first_a + step * 32;
        }
        let inside = step * 32 + inner < k;
        let (x, y) = (load(pa, mask = inside), load(pb, mask = inside[(.., None)]));
        acc = dot(x, y, acc = acc);
        if FROM == 1 {
            pa = first_a + (step + 1) * 32;
            pb = first_b + (step + 1) * (32 * 64);
        } else if FROM == 2 {
            pb = first_b + (step + 1) * (32 * 64);
        } else if FROM == 3 {
            pa = next_a;
            pb = next_b;
            next_a = first_a + (step + 2) * 32;
            next_b = first_b + (step + 2) * (32 * 64);
        } else if FROM == 4 {
            pa = next_a;
            pb = next_b;
            next_a = third_a;
            next_b = third_b;
            third_a = first_a + (step + 3) * 32;
            third_b = first_b + (step + 3) * (32 * 64);
        }
    }
    store(c + (i[(.., None)] * 64 + i), acc);
}

fn iv_dependent_matmul(device: &Device, from: i32, stages: u32) -> Outcome {
    let (k, mut random) = (256, Random::new(108));
    let ((a, plain_a), (b, plain_b)) = (integers::<f16>(&mut random, 64 * k), integers::<f16>(&mut random, 64 * k));
    let (x, y, mut out) = (device.upload(&a)?, device.upload(&b)?, device.zeros::<f32>(64 * 64)?);
    let call = OfTheCounterConsts { FROM: from }.call(&x, &y, &mut out, k as i32);
    call.grid(1).num_warps(4).num_stages(stages).launch(device)?;
    let want = multiplied(&plain_a, &plain_b, [64, 64, k]);
    equal(&out.to_vec()?, &want.into_iter().map(|x| x as f32).collect::<Vec<f32>>())
}

#[kernel]
fn reversed<T: Num, const N: usize>(x: Ptr<T>, out: PtrMut<T>) {
    store(out + arange(0, N), load(x + (N as i32 - arange(0, N))));
}

fn reverse_range<T: Element>(device: &Device, n: usize) -> Outcome {
    let x: Vec<T> = Random::new(109).elements(n + 1);
    let mut out = device.zeros::<T>(n)?;
    ReversedConsts { N: n }.call(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
    equal(&out.to_vec()?, &x[1..].iter().rev().copied().collect::<Vec<T>>())
}

#[kernel]
fn running_maximum<const N: usize>(x: Ptr<bool>, out: PtrMut<i32>, place: PtrMut<i64>) {
    let i = arange(0, N);
    let (value, at) = associative_scan((load(x + i), i as i64), axis = 0, |(a, p), (b, q)| {
        let keep = (a as i32 > b as i32) | ((a == b) & (p > q));
        (if keep { a } else { b }, if keep { p } else { q })
    });
    store(out + i, value as i32);
    store(place + i, at);
}

fn cummax_bool(device: &Device, warps: u32) -> Outcome {
    const N: usize = 512;
    let mut random = Random::new(110);
    // The first true one comes late.
    let x: Vec<bool> = (0..N).map(|i| i > 70 && random.below(8) == 0).collect();
    let (mut out, mut place) = (device.zeros::<i32>(N)?, device.zeros::<i64>(N)?);
    let buffer = device.upload(&x)?;
    let call = RunningMaximumConsts { N }.call(&buffer, &mut out, &mut place);
    call.grid(1).num_warps(warps).launch(device)?;
    let last = |i: usize| (0..=i).rev().find(|&j| x[j]).unwrap_or(i);
    equal(&out.to_vec()?, &(0..N).map(|i| i32::from(x[last(i)])).collect::<Vec<i32>>())?;
    equal(&place.to_vec()?, &(0..N).map(|i| last(i) as i64).collect::<Vec<i64>>())
}

#[kernel]
fn bytes_permuted<T: Num>(x: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, 512);
    let v = permute(reshape(load(x + i), [4, 2, 2, 2, 4, 4]), [1, 4, 3, 0, 5, 2]);
    store(out + i, reshape(v, [512]));
}

fn permutation<T: Element>(device: &Device, warps: u32) -> Outcome {
    let x: Vec<T> = Random::new(111).elements(512);
    let mut out = device.zeros::<T>(512)?;
    bytes_permuted::<T>(&device.upload(&x)?, &mut out).grid(1).num_warps(warps).launch(device)?;
    let (dims, order) = ([4, 2, 2, 2, 4, 4], [1, 4, 3, 0, 5, 2]);
    let from = |i: usize| {
        let (mut rest, mut at) = (i, [0; 6]);
        for axis in order.into_iter().rev() {
            at[axis] = rest % dims[axis];
            rest /= dims[axis];
        }
        at.iter().zip(dims).fold(0, |place, (i, dim)| place * dim + i)
    };
    equal(&out.to_vec()?, &(0..512).map(|i| x[from(i)]).collect::<Vec<T>>())
}

fn regressions() -> Row {
    let mut row = Row::new(
        "C106",
        "test_chained_matmul, test_vecmat, test_iv_dependent_matmul, test_reverse_range, test_inductor_cummax_bool, \
         test_permutation_ptxas_bug",
    );
    for stages in [1, 2, 4] {
        for block in [16, 32, 64] {
            row.case(format!("chained, blocks of {block}, {stages} stages"), move |d| chained_matmul(d, block, stages));
        }
        for (from, name) in (0..).zip(FROM) {
            row.case(format!("addresses from {name}, {stages} stages"), move |d| iv_dependent_matmul(d, from, stages));
        }
    }
    for warps in [1, 4, 8] {
        row.case(format!("vector times matrix f32, {warps} warps"), move |device| vecmat::<f32>(device, warps));
        row.case(format!("vector times matrix i32, {warps} warps"), move |device| vecmat::<i32>(device, warps));
        row.case(format!("running maximum of bool, {warps} warps"), move |device| cummax_bool(device, warps));
        row.case(format!("permutation of i8, {warps} warps"), move |device| permutation::<i8>(device, warps));
        row.case(format!("permutation of f16, {warps} warps"), move |device| permutation::<f16>(device, warps));
        row.case(format!("permutation of f32, {warps} warps"), move |device| permutation::<f32>(device, warps));
    }
    for n in [4, 32, 512] {
        row.case(format!("backwards f32 {n}"), move |device| reverse_range::<f32>(device, n));
        row.case(format!("backwards i8 {n}"), move |device| reverse_range::<i8>(device, n));
        row.case(format!("backwards i64 {n}"), move |device| reverse_range::<i64>(device, n));
    }
    row
}
