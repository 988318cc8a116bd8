//! Batches of matrix products, long sums, accumulators.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::products::{contains, integers, multiplied};
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![batches(), dimensions(), long_sums(), accumulators()]
}

#[kernel]
fn batch<T: Num, A: Num, const B: usize, const M: usize, const N: usize, const K: usize, const TRANSPOSED: bool>(
    x: Ptr<T>,
    y: Ptr<T>,
    out: PtrMut<A>,
) {
    let b = arange(0, B)[(.., None, None)];
    let (i, j, k) = (arange(0, M), arange(0, N), arange(0, K));
    let left = load(x + (b * (M * K) + i[(.., None)] * K + k));
    let right = if TRANSPOSED {
        load(y + (b * (N * K) + j[(.., None)] * K + k)).trans()
    } else {
        load(y + (b * (K * N) + k[(.., None)] * N + j))
    };
    store(out + (b * (M * N) + i[(.., None)] * N + j), dot(left, right, out = A));
}

/// The products of the matrices of two batches. The second factors may lie transposed.
fn products(a: &[f64], b: &[f64], [m, n, k]: [usize; 3], turned: bool) -> Vec<f64> {
    let pairs = a.chunks(m * k).zip(b.chunks(k * n));
    let one = |(a, b): (&[f64], &[f64])| {
        let rows: Vec<f64> = (0..k * n).map(|i| if turned { b[i % n * k + i / n] } else { b[i] }).collect();
        multiplied(a, &rows, [m, n, k])
    };
    pairs.flat_map(one).collect()
}

fn batches() -> Row {
    fn case<T: Element, A: Element>(device: &Device, form: [usize; 4], turned: bool, warps: u32) -> Outcome {
        let ([count, m, n, k], mut random) = (form, Random::new(59));
        let ((a, plain_a), (b, plain_b)) =
            (integers::<T>(&mut random, count * m * k), integers::<T>(&mut random, count * k * n));
        let mut out = device.zeros::<A>(count * m * n)?;
        let (x, y) = (device.upload(&a)?, device.upload(&b)?);
        let consts = BatchConsts { B: count, M: m, N: n, K: k, TRANSPOSED: turned };
        consts.call(&x, &y, &mut out).grid(1).num_warps(warps).launch(device)?;
        let want = products(&plain_a, &plain_b, [m, n, k], turned);
        equal(&out.to_vec()?, &want.into_iter().map(A::from_f64).collect::<Vec<A>>())
    }
    let mut row = Row::new("C59", "test_dot3d");
    macro_rules! each {
        ($($t:ident $a:ident)*) => {$(
            for count in [1, 2, 4, 8] {
                for [m, n, k] in [[32, 32, 32], [16, 32, 16], [64, 16, 16]] {
                    for turned in [false, true] {
                        for warps in [1, 4, 8] {
                            let (form, order) = ([count, m, n, k], if turned { ", transposed" } else { "" });
                            let name = format!("{} to {} {form:?}{order}, {warps} warps", $t::NAME, $a::NAME);
                            row.case(name, move |device| case::<$t, $a>(device, form, turned, warps));
                        }
                    }
                }
            }
        )*};
    }
    each!(i8 i32 f16 f16 f16 f32 bf16 f32 f32 f32);
    row
}

macro_rules! ranks {
    ($($rank:literal $name:ident $consts:ident $count:literal [$($dim:literal)*];)*) => {
        $(
            #[kernel]
            fn $name<T: Float, const TURN_A: bool, const TURN_B: bool>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<f32>) {
                let all = arange(0, $count);
                let (a, b) = (reshape(load(x + all), [$($dim),*]), reshape(load(y + all), [$($dim),*]));
                let (a, b) = (if TURN_A { a.trans() } else { a }, if TURN_B { b.trans() } else { b });
                store(out + all, reshape(dot(a, b), [$count]));
            }
        )*

        fn launch_of_rank<T: Element + Float>(
            device: &Device,
            rank: usize,
            [turn_a, turn_b]: [bool; 2],
            [x, y]: [&[T]; 2],
        ) -> Result<Vec<f32>, Failure> {
            let mut out = device.zeros::<f32>(x.len())?;
            let (x, y) = (device.upload(x)?, device.upload(y)?);
            match rank {
                $($rank => {
                    let consts = $consts { TURN_A: turn_a, TURN_B: turn_b };
                    consts.call(&x, &y, &mut out).grid(1).launch(device)?;
                })*
                other => return Err(Failure(format!("no kernel is of rank {other}"))),
            }
            Ok(out.to_vec()?)
        }
    };
}
ranks! {
    2 two TwoConsts 256 [16 16];
    3 three ThreeConsts 512 [2 16 16];
    4 four FourConsts 1024 [2 2 16 16];
    5 five FiveConsts 2048 [2 2 2 16 16];
    6 six SixConsts 4096 [2 2 2 2 16 16];
}

fn dimensions() -> Row {
    fn case<T: Element + Float>(device: &Device, rank: usize, turned: [bool; 2]) -> Outcome {
        let (count, mut random) = (1 << (rank - 2), Random::new(60));
        let ((a, plain_a), (b, plain_b)) =
            (integers::<T>(&mut random, count * 256), integers::<T>(&mut random, count * 256));
        let out = launch_of_rank(device, rank, turned, [&a, &b])?;
        let turn = |i: usize| i / 256 * 256 + i % 16 * 16 + i / 16 % 16;
        let left: Vec<f64> = (0..count * 256).map(|i| plain_a[if turned[0] { turn(i) } else { i }]).collect();
        let want = products(&left, &plain_b, [16; 3], turned[1]);
        equal(&out, &want.into_iter().map(|x| x as f32).collect::<Vec<f32>>())
    }
    let mut row = Row::new("C60", "test_dot_multidim");
    macro_rules! each {
        ($($t:ident)*) => {$(
            for rank in 2..=6 {
                for turned in [[false, false], [false, true], [true, false], [true, true]] {
                    let name = format!("{} of rank {rank}, transposed {turned:?}", $t::NAME);
                    row.case(name, move |device| case::<$t>(device, rank, turned));
                }
            }
        )*};
    }
    each!(f16 bf16 f32);
    row
}

#[kernel]
fn long<T: Float, A: Float, const M: usize, const N: usize, const K: usize>(
    x: Ptr<T>,
    y: Ptr<T>,
    out: PtrMut<A>,
    k: i32,
) {
    let (i, j) = (arange(0, M), arange(0, N));
    let mut sums = zeros::<A>([M, N]);
    for first in (0..k).step_by(K) {
        let inner = first + arange(0, K);
        sums = dot(load(x + (i[(.., None)] * k + inner)), load(y + (inner[(.., None)] * N + j)), acc = sums);
    }
    store(out + (i[(.., None)] * N + j), sums);
}

fn long_sums() -> Row {
    fn case<T: Float>(device: &Device, [m, n, block]: [usize; 3], from_f64: fn(f64) -> T) -> Outcome {
        let (k, mut random) = (256, Random::new(61));
        // Partial sums stay below 2^10, which the tensor cores of Hopper hold.
        let ((_, a), (_, b)) = (integers::<i8>(&mut random, m * k), integers::<i8>(&mut random, k * n));
        let upload = |x: &[f64]| device.upload(&x.iter().map(|&x| from_f64(x)).collect::<Vec<T>>());
        let mut out = device.zeros::<f32>(m * n)?;
        let (x, y) = (upload(&a)?, upload(&b)?);
        let consts = LongConsts { M: m, N: n, K: block };
        consts.call(&x, &y, &mut out, k as i32).grid(1).num_warps(4).launch(device)?;
        equal(&out.to_vec()?, &multiplied(&a, &b, [m, n, k]).into_iter().map(|x| x as f32).collect::<Vec<f32>>())
    }
    let mut row = Row::new("C61", "test_dot_max_num_imprecise_acc")
        .remarks("no `max_num_imprecise_acc`: Hopper sums products of 8-bit floats with 13 bits of fraction, `acc += dot(a, b)` adds in f32");
    for size in [[64, 64, 32], [64, 64, 128], [64, 32, 64], [16, 16, 32]] {
        row.case(format!("f8e4m3 {size:?}"), move |device| case(device, size, F8E4M3::from_f64));
        row.case(format!("f8e5m2 {size:?}"), move |device| case(device, size, F8E5M2::from_f64));
    }
    row.host("sums stay in the tensor cores", || {
        let compiled = LongConsts { M: 64, N: 64, K: 128 }.compile::<F8E5M2, f32>(Target::sm_90a())?;
        if compiled.ptx().contains("add.f32") { Err(Failure(compiled.ptx().to_string())) } else { Ok(()) }
    });
    row
}

#[kernel]
fn of_constants<T: Num, A: Num, const M: usize, const N: usize, const K: usize>(out: PtrMut<A>) {
    let (a, b) = (full([M, K], 1 as T), full([K, N], 2 as T));
    store(out + (arange(0, M)[(.., None)] * N + arange(0, N)), dot(a, b, acc = full([M, N], 3 as A)));
}

fn accumulators() -> Row {
    fn without_load<T: Element, A: Element>(device: &Device, [m, n, k]: [usize; 3]) -> Outcome {
        let mut out = device.zeros::<A>(m * n)?;
        OfConstantsConsts { M: m, N: n, K: k }.call::<T, A>(&mut out).grid(1).launch(device)?;
        equal(&out.to_vec()?, &vec![A::from_int(2 * k as i128 + 3); m * n])
    }
    fn halves(device: &Device, [m, n, block]: [usize; 3]) -> Outcome {
        let (k, mut random) = (128, Random::new(62));
        let ((a, plain_a), (b, plain_b)) = (integers::<f16>(&mut random, m * k), integers::<f16>(&mut random, k * n));
        let mut out = device.zeros::<f16>(m * n)?;
        let (x, y) = (device.upload(&a)?, device.upload(&b)?);
        LongConsts { M: m, N: n, K: block }.call(&x, &y, &mut out, k as i32).grid(1).launch(device)?;
        let want = multiplied(&plain_a, &plain_b, [m, n, k]);
        equal(&out.to_vec()?, &want.into_iter().map(f16::from_f64).collect::<Vec<f16>>())
    }
    let mut row = Row::new("C62", "test_dot_fp16_accumulator, test_dot_without_load");
    for size in [[32, 32, 32], [64, 64, 64], [16, 16, 16]] {
        row.case(format!("constants f16 to f16 {size:?}"), move |device| without_load::<f16, f16>(device, size));
        row.case(format!("constants f16 {size:?}"), move |device| without_load::<f16, f32>(device, size));
        row.case(format!("constants f32 {size:?}"), move |device| without_load::<f32, f32>(device, size));
        row.case(format!("constants i8 {size:?}"), move |device| without_load::<i8, i32>(device, size));
        row.case(format!("f16 sums {size:?}"), move |device| halves(device, size));
    }
    row.host("instructions of f16 sums", || {
        let (wide, narrow) = (LongConsts { M: 64, N: 64, K: 64 }, LongConsts { M: 32, N: 32, K: 32 });
        contains(wide.compile::<f16, f16>(Target::sm_90a())?.ptx(), &["m16n8k16.row.col.f16.f16.f16.f16"])?;
        contains(narrow.compile::<f16, f16>(Target::sm_80())?.ptx(), &["m16n8k16.row.col.f16.f16.f16.f16"])
    });
    row
}
