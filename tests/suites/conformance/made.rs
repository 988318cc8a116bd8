//! Tensor descriptors that kernels make: cases of the rows of `descriptors`.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::products::{contains, integers, multiplied};
use crate::runner::{Outcome, Row};

/// `FORM` 0 loads through a descriptor, 1 stores, 2 does both; 3 does both with tensors that each program has for itself.
#[kernel]
fn copied<T: DType, const M: usize, const N: usize, const FORM: i32>(
    x: Ptr<T>,
    out: PtrMut<T>,
    rows: i32,
    columns: i32,
) {
    let (row, column) = (program_id(0) * M, program_id(1) * N);
    let at = (row + arange(0, M))[(.., None)] * columns + (column + arange(0, N));
    if FORM == 0 {
        let from = tensor_desc(x, [rows, columns], [columns, 1], [M, N]);
        store(out + at, from.load([row, column]));
    } else if FORM == 1 {
        let to = tensor_desc(out, [rows, columns], [columns, 1], [M, N]);
        to.store([row, column], load(x + at));
    } else if FORM == 2 {
        let from = tensor_desc(x, [rows, columns], [columns, 1], [M, N]);
        let to = tensor_desc(out, [rows, columns], [columns, 1], [M, N]);
        to.store([row, column], from.load([row, column]));
    } else {
        let from = tensor_desc(x + row * columns, [rows - row, columns], [columns, 1], [M, N]);
        let to = tensor_desc(out + row * columns, [rows - row, columns], [columns, 1], [M, N]);
        to.store([0, column], from.load([0, column]));
    }
}

fn copy<T: Element>(device: &Device, [m, n]: [usize; 2], form: i32) -> Outcome {
    let (rows, columns) = (2 * m, 2 * n);
    let x: Vec<T> = Random::new(92).elements(rows * columns);
    let (from, mut out) = (device.upload(&x)?, device.zeros::<T>(rows * columns)?);
    let consts = CopiedConsts { M: m, N: n, FORM: form };
    consts.call(&from, &mut out, rows as i32, columns as i32).grid((2, 2)).launch(device)?;
    equal(&out.to_vec()?, &x)
}

macro_rules! ranks {
    ($($rank:literal $name:ident [$($dim:literal)*] [$($size:literal)*] [$($zero:literal)*] [$($stride:ident)*];)*) => {$(
        /// One block, which ends outside a tensor without gaps.
        mod $name {
            use super::*;

            #[kernel]
            fn block<T: DType, const N: usize>(x: Ptr<T>, out: PtrMut<T>, n: i32 $(, $stride: i32)*) {
                let from = tensor_desc(x, [$($size,)* n], [$($stride,)* 1], [$($dim,)* N]);
                let to = tensor_desc(out, [$($size,)* n], [$($stride,)* 1], [$($dim,)* N]);
                to.store([$($zero,)* 0], from.load([$($zero,)* 0]));
            }

            pub fn case<T: Element>(device: &Device, width: usize) -> Outcome {
                let shape: [usize; $rank] = [$($size,)* width - 3];
                let mut strides = [1usize; $rank];
                for axis in (0..$rank - 1).rev() {
                    strides[axis] = strides[axis + 1] * shape[axis + 1];
                }
                let x: Vec<T> = Random::new(94).elements(shape.iter().product());
                let (from, mut out) = (device.upload(&x)?, device.zeros::<T>(x.len())?);
                let [$($stride,)* _] = strides.map(|stride| stride as i32);
                BlockConsts { N: width }.call(&from, &mut out, width as i32 - 3 $(, $stride)*).grid(1).launch(device)?;
                equal(&out.to_vec()?, &x)
            }
        }
    )*};
}
ranks! {
    1 one [] [] [] [];
    2 two [8] [7] [0] [s];
    3 three [4 8] [3 7] [0 0] [s t];
    4 four [2 4 8] [1 3 7] [0 0 0] [s t u];
    5 five [2 2 4 8] [1 1 3 7] [0 0 0 0] [s t u v];
}

/// Adds the cases of C92.
pub fn add_blocks(row: &mut Row) {
    macro_rules! each {
        ($($t:ident)*) => {$(
            for size in [[2, 16], [8, 16], [8, 32], [8, 128], [512, 32], [1, 1024]] {
                for (form, name) in (0..).zip(["load", "store", "both", "both by pointers"]) {
                    let name = format!("made: {name} {} {size:?}", $t::NAME);
                    row.case(name, move |device| copy::<$t>(device, size, form));
                }
            }
            for n in [16, 32, 128] {
                row.case(format!("made: {} of rank 1, {n}", $t::NAME), move |device| one::case::<$t>(device, n));
                row.case(format!("made: {} of rank 2, {n}", $t::NAME), move |device| two::case::<$t>(device, n));
                row.case(format!("made: {} of rank 3, {n}", $t::NAME), move |device| three::case::<$t>(device, n));
                row.case(format!("made: {} of rank 4, {n}", $t::NAME), move |device| four::case::<$t>(device, n));
                row.case(format!("made: {} of rank 5, {n}", $t::NAME), move |device| five::case::<$t>(device, n));
            }
        )*};
    }
    each!(i8 i16 i32 u8 u16 u32 f16 bf16 f32);
}

#[kernel]
fn padded<T: Float, const NAN: bool>(x: Ptr<T>, out: PtrMut<T>, n: i32) {
    let (i, j) = (program_id(0) * 32, program_id(1) * 32);
    let at = (i + arange(0, 32))[(.., None)] * 64 + (j + arange(0, 32));
    if NAN {
        let block = tensor_desc(x, [n, n], [n, 1], [32, 32], padding = nan);
        store(out + at, block.load([i, j]));
    } else {
        let block = tensor_desc(x, [n, n], [n, 1], [32, 32]);
        store(out + at, block.load([i, j]));
    }
}

/// Adds the cases of C93.
pub fn add_padding(row: &mut Row) {
    fn case<T: Element + Float>(device: &Device, nan: bool) -> Outcome {
        let x: Vec<T> = Random::new(95).elements(48 * 48);
        let (from, mut out) = (device.upload(&x)?, device.zeros::<T>(64 * 64)?);
        PaddedConsts { NAN: nan }.call(&from, &mut out, 48).grid((2, 2)).launch(device)?;
        let outside = T::from_f64(if nan { f64::NAN } else { 0.0 });
        let one = |i: usize| if i / 64 < 48 && i % 64 < 48 { x[i / 64 * 48 + i % 64] } else { outside };
        equal(&out.to_vec()?, &(0..64 * 64).map(one).collect::<Vec<T>>())
    }
    macro_rules! each {
        ($($t:ident)*) => {$(
            for (nan, name) in [(false, "zeros"), (true, "NaN")] {
                row.case(format!("made: {} {name}", $t::NAME), move |device| case::<$t>(device, nan));
            }
        )*};
    }
    each!(f16 bf16 f32 f64);
}

#[kernel]
fn matmul<T: Float, const M: usize, const N: usize, const K: usize, const TRANSPOSED: bool>(
    x: Ptr<T>,
    y: Ptr<T>,
    out: PtrMut<T>,
    m: i32,
    n: i32,
    k: i32,
) {
    let a = tensor_desc(x, [m, k], [k, 1], [M, K]);
    let b = tensor_desc(y, [k, n], [n, 1], [K, N]);
    let turned = tensor_desc(y, [n, k], [k, 1], [N, K]);
    let c = tensor_desc(out, [m, n], [n, 1], [M, N]);
    let (i, j) = (program_id(0) * M, program_id(1) * N);
    let mut acc = zeros::<f32>([M, N]);
    for first in (0..k).step_by(K) {
        let y = if TRANSPOSED { turned.load([j, first]).trans() } else { b.load([first, j]) };
        acc = dot(a.load([i, first]), y, acc = acc);
    }
    c.store([i, j], acc as T);
}

/// Adds the cases of C94.
pub fn add_matmuls(row: &mut Row) {
    fn case<T: Element + Float>(device: &Device, tile: [usize; 3], stages: u32, turned: bool) -> Outcome {
        let ([m, n, k], mut random) = ([100, 72, 80], Random::new(96));
        let ((a, plain_a), (b, plain_b)) = (integers::<T>(&mut random, m * k), integers::<T>(&mut random, k * n));
        let across: Vec<T> = (0..k * n).map(|i| b[i % k * n + i / k]).collect();
        let (x, y) = (device.upload(&a)?, device.upload(if turned { &across } else { &b })?);
        let mut out = device.zeros::<T>(m * n)?;
        let consts = MatmulConsts { M: tile[0], N: tile[1], K: tile[2], TRANSPOSED: turned };
        let call = consts.call(&x, &y, &mut out, m as i32, n as i32, k as i32);
        call.grid((m.div_ceil(tile[0]), n.div_ceil(tile[1]))).num_stages(stages).launch(device)?;
        let want = multiplied(&plain_a, &plain_b, [m, n, k]);
        equal(&out.to_vec()?, &want.into_iter().map(T::from_f64).collect::<Vec<T>>())
    }
    macro_rules! each {
        ($($t:ident)*) => {$(
            for tile in [[128, 128, 16], [128, 64, 32], [64, 64, 64], [64, 32, 32], [32, 32, 16]] {
                for stages in [1, 4] {
                    for turned in [false, true] {
                        let order = if turned { ", transposed" } else { "" };
                        let name = format!("made: {} by {tile:?}, {stages} stages{order}", $t::NAME);
                        row.case(name, move |device| case::<$t>(device, tile, stages, turned));
                    }
                }
            }
        )*};
    }
    each!(f16 bf16 f32);
    row.host("made: the hardware copies blocks", || {
        let (device, n) = (Device::cpu(), 256);
        let (x, mut out) = (device.zeros::<f16>(n * n)?, device.zeros::<f16>(n * n)?);
        let consts = MatmulConsts { M: 128, N: 128, K: 64, TRANSPOSED: false };
        let call = consts.call(&x, &x, &mut out, n as i32, n as i32, n as i32);
        let compiled = call.num_warps(8).compile(Target::sm_90a())?;
        let load = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes";
        contains(compiled.ptx(), &[load, "cp.async.bulk.tensor.2d.global.shared::cta", "wgmma.mma_async"])
    });
}

#[kernel]
fn combined<const M: usize, const N: usize, const KIND: i32>(x: Ptr<i32>, out: PtrMut<i32>, columns: i32) {
    let v = load(x + (arange(0, M)[(.., None)] * N + arange(0, N)));
    let to = tensor_desc(out, [M, columns], [columns, 1], [M, N]);
    if KIND == 0 {
        to.atomic_add([program_id(0), 3], v);
    } else if KIND == 1 {
        to.atomic_min([program_id(0), 3], v);
    } else if KIND == 2 {
        to.atomic_max([program_id(0), 3], v);
    } else if KIND == 3 {
        to.atomic_and([program_id(0), 3], v);
    } else if KIND == 4 {
        to.atomic_or([program_id(0), 3], v);
    } else {
        to.atomic_xor([program_id(0), 3], v);
    }
}

/// Adds the cases of C95.
pub fn add_atomics(row: &mut Row) {
    fn case(device: &Device, [m, n]: [usize; 2], kind: i32) -> Outcome {
        let (mut random, columns) = (Random::new(97), n - 2);
        let (x, before): (Vec<i32>, Vec<i32>) = (random.elements(m * n), random.elements(m * columns));
        let mut want = before.clone();
        for (first, i) in (0..2).flat_map(|first| (0..m * n).map(move |i| (first, i))) {
            let (row, column) = (first + i / n, 3 + i % n);
            if row < m && column < columns {
                let element = &mut want[row * columns + column];
                *element = match kind {
                    0 => element.wrapping_add(x[i]),
                    1 => x[i].min(*element),
                    2 => x[i].max(*element),
                    3 => *element & x[i],
                    4 => *element | x[i],
                    _ => *element ^ x[i],
                };
            }
        }
        let (from, mut out) = (device.upload(&x)?, device.upload(&before)?);
        let consts = CombinedConsts { M: m, N: n, KIND: kind };
        consts.call(&from, &mut out, columns as i32).grid(2).launch(device)?;
        equal(&out.to_vec()?, &want)
    }
    for size in [[2, 16], [8, 32], [64, 32], [1, 1024]] {
        for (kind, name) in (0..).zip(["add", "min", "max", "and", "or", "xor"]) {
            row.case(format!("made: {name} i32 {size:?}"), move |device| case(device, size, kind));
        }
    }
}

#[kernel]
fn picked<T: DType, const R: usize, const N: usize>(
    index: Ptr<i32>,
    x: Ptr<T>,
    out: PtrMut<T>,
    rows: i32,
    columns: i32,
    column: i32,
) {
    let numbers = load(index + arange(0, R));
    let from = tensor_desc(x, [rows, columns], [columns, 1], [1, N]);
    let to = tensor_desc(out, [rows, columns], [columns, 1], [1, N]);
    to.scatter(numbers, column, from.gather(numbers, column));
}

/// Adds the cases of C96.
pub fn add_rows_by_number(row: &mut Row) {
    fn case<T: Element>(device: &Device, [rows, columns, count, width]: [usize; 4], column: i32) -> Outcome {
        let x: Vec<T> = Random::new(98).elements(rows * columns);
        let index: Vec<i32> = (0..count as i32).map(|i| (i * 37 + 5) % 64).collect();
        let mut want = vec![T::from_int(0); x.len()];
        for i in 0..count * width {
            let (r, c) = (index[i / width] as usize, i64::from(column) + (i % width) as i64);
            if r < rows && (0..columns as i64).contains(&c) {
                want[r * columns + c as usize] = x[r * columns + c as usize];
            }
        }
        let (from, numbers, mut out) = (device.upload(&x)?, device.upload(&index)?, device.zeros::<T>(x.len())?);
        let consts = PickedConsts { R: count, N: width };
        consts.call(&numbers, &from, &mut out, rows as i32, columns as i32, column).grid(1).launch(device)?;
        equal(&out.to_vec()?, &want)
    }
    macro_rules! each {
        ($($t:ident)*) => {$(
            for size in [[64, 128, 8, 32], [48, 100, 16, 128], [64, 8, 4, 8], [16, 40, 64, 16]] {
                for column in [0, 16, -5] {
                    let name = format!("made: {} {size:?} from {column}", $t::NAME);
                    row.case(name, move |device| case::<$t>(device, size, column));
                }
            }
        )*};
    }
    each!(i8 f16 f32 f64);
}
