//! Reductions.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, close, equal};
use crate::for_numbers;
use crate::runner::{Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![one_dimension(), several_dimensions(), dtypes_of_sums(), nans(), zeros_are_kept(), welford(), chains()]
}

/// The reductions of the kernels, by number.
const OPS: [&str; 7] = ["sum", "max", "min", "argmax", "argmin", "reduce", "prod"];

#[kernel]
fn along_a_line<T: Num, const OP: i32, const N: usize>(x: Ptr<T>, out: PtrMut<T>, place: PtrMut<i32>) {
    let t = load(x + arange(0, N));
    if OP == 0 {
        store(out, sum(t));
    } else if OP == 1 {
        store(out, max(t));
    } else if OP == 2 {
        store(out, min(t));
    } else if OP == 3 {
        store(place, argmax(t));
    } else if OP == 4 {
        store(place, argmin(t));
    } else if OP == 5 {
        store(out, reduce(t, axis = 0, |a, b| maximum(a, b)));
    } else {
        store(out, prod(t));
    }
}

fn line_case<T: Element, const N: usize>(device: &Device, op: i32) -> Outcome {
    let mut random = Random::new(25 + N as u64);
    // Sums of small numbers are exact; products are of ones and a few twos.
    let x: Vec<T> = match op {
        0 => random.small(N, 0, 3),
        6 => (0..N).map(|i| T::from_int(if i % (N / 4) == 1 { 2 } else { 1 })).collect(),
        _ => random.elements(N),
    };
    let (mut out, mut place) = (device.zeros::<T>(1)?, device.zeros::<i32>(1)?);
    let consts = AlongALineConsts { OP: op, N };
    consts.call(&device.upload(&x)?, &mut out, &mut place).grid(1).launch(device)?;
    let best = |largest: bool| {
        let better = |a: &T, b: &T| {
            let order = match T::IS_FLOAT {
                true => a.to_f64().total_cmp(&b.to_f64()),
                false => a.to_int().cmp(&b.to_int()),
            };
            if largest { order.is_gt() } else { order.is_lt() }
        };
        (1..N).fold(0, |at, i| if better(&x[i], &x[at]) { i } else { at })
    };
    match op {
        3 | 4 => equal(&place.to_vec()?, &[best(op == 3) as i32]),
        1 | 2 | 5 => equal(&out.to_vec()?, &[x[best(op != 2)]]),
        0 => close(&out.to_vec()?, &[T::from_int(x.iter().map(|x| x.to_int()).sum())], 1e-2, 0.0),
        _ => equal(&out.to_vec()?, &[T::from_int(x.iter().map(|x| x.to_int()).product())]),
    }
}

fn one_dimension() -> Row {
    let mut row = Row::new("C25", "test_reduce1d");
    macro_rules! sizes {
        ($t:ident: $($n:literal)*) => {$(
            for (op, name) in (0..).zip(OPS) {
                let name = format!("{name} of {} {}", $n, $t::NAME);
                row.case(name, move |device| line_case::<$t, $n>(device, op));
            }
        )*};
    }
    macro_rules! each {
        ($t:ident) => {
            sizes!($t: 32 64 128 256 512);
        };
    }
    for_numbers!(each);
    row
}

#[kernel]
fn of_a_block<
    T: Num,
    const OP: i32,
    const AXIS: i32,
    const KEEP: bool,
    const M: usize,
    const N: usize,
    const K: usize,
>(
    x: Ptr<T>,
    out: PtrMut<T>,
    place: PtrMut<i32>,
) {
    let (i, j, k) = (arange(0, M), arange(0, N), arange(0, K));
    let t = load(x + (i[(.., None, None)] * (N * K) + j[(None, .., None)] * K + k[(None, None, ..)]));
    if AXIS == 0 {
        let places = j[(.., None)] * K + k[(None, ..)];
        if OP == 0 {
            if KEEP {
                store(out + places[(None, .., ..)], sum(t, axis = 0, keep_dims = true));
            } else {
                store(out + places, sum(t, axis = 0));
            }
        } else if OP == 1 {
            store(out + places, max(t, axis = 0));
        } else if OP == 2 {
            store(out + places, t.min(axis = -3));
        } else if OP == 3 {
            let (value, index) = max(t, axis = 0, return_indices = true);
            store(out + places, value);
            store(place + places, index);
        } else {
            store(place + places, argmin(t, axis = 0));
        }
    } else if AXIS == 1 {
        let places = i[(.., None)] * K + k[(None, ..)];
        if OP == 0 {
            if KEEP {
                store(out + places[(.., None, ..)], sum(t, axis = 1, keep_dims = true));
            } else {
                store(out + places, sum(t, axis = 1));
            }
        } else if OP == 1 {
            store(out + places, max(t, axis = 1));
        } else if OP == 2 {
            store(out + places, t.min(axis = -2));
        } else if OP == 3 {
            let (value, index) = max(t, axis = 1, return_indices = true);
            store(out + places, value);
            store(place + places, index);
        } else {
            store(place + places, argmin(t, axis = 1));
        }
    } else {
        let places = i[(.., None)] * N + j[(None, ..)];
        if OP == 0 {
            if KEEP {
                store(out + places[(.., .., None)], sum(t, axis = 2, keep_dims = true));
            } else {
                store(out + places, sum(t, axis = 2));
            }
        } else if OP == 1 {
            store(out + places, max(t, axis = 2));
        } else if OP == 2 {
            store(out + places, t.min(axis = -1));
        } else if OP == 3 {
            let (value, index) = max(t, axis = 2, return_indices = true);
            store(out + places, value);
            store(place + places, index);
        } else {
            store(place + places, argmin(t, axis = 2));
        }
    }
}

const BLOCK_OPS: [&str; 5] = ["sum", "max", "min", "max with indices", "argmin"];

/// What a reduction gives for each line of a block along an axis: the value, or the index.
fn lines<T: Element>(x: &[T], dims: [usize; 3], axis: usize) -> Vec<Vec<T>> {
    let strides = [dims[1] * dims[2], dims[2], 1];
    let others: Vec<usize> = (0..3).filter(|&d| d != axis).collect();
    let mut all = Vec::new();
    for a in 0..dims[others[0]] {
        for b in 0..dims[others[1]] {
            let start = a * strides[others[0]] + b * strides[others[1]];
            all.push((0..dims[axis]).map(|i| x[start + i * strides[axis]]).collect());
        }
    }
    all
}

/// The index of the largest or smallest element, of equal ones the first.
fn extreme<T: Element>(line: &[T], largest: bool) -> usize {
    let better = |a: &T, b: &T| {
        let (a, b) = if largest { (a, b) } else { (b, a) };
        if T::IS_FLOAT { a.to_f64() > b.to_f64() } else { a.to_int() > b.to_int() }
    };
    (1..line.len()).fold(0, |at, i| if better(&line[i], &line[at]) { i } else { at })
}

fn block_case<T: Element, const M: usize, const N: usize, const K: usize>(
    device: &Device,
    (op, axis, keep): (i32, usize, bool),
    warps: u32,
) -> Outcome {
    // Few values, so that extremes are found more than once.
    let x: Vec<T> = Random::new(26).small(M * N * K, 0, 12);
    let expected = lines(&x, [M, N, K], axis);
    let (mut out, mut place) = (device.zeros::<T>(expected.len())?, device.zeros::<i32>(expected.len())?);
    let consts = OfABlockConsts { OP: op, AXIS: axis as i32, KEEP: keep, M, N, K };
    let buffer = device.upload(&x)?;
    let call = consts.call(&buffer, &mut out, &mut place);
    call.grid(1).num_warps(warps).launch(device)?;
    let values = |largest: bool| expected.iter().map(|line| line[extreme(line, largest)]).collect::<Vec<T>>();
    let places = |largest: bool| expected.iter().map(|line| extreme(line, largest) as i32).collect::<Vec<i32>>();
    match op {
        0 => {
            let total = |line: &Vec<T>| T::from_int(line.iter().map(|x| x.to_int()).sum());
            close(&out.to_vec()?, &expected.iter().map(total).collect::<Vec<T>>(), 1e-2, 0.0)
        }
        1 => equal(&out.to_vec()?, &values(true)),
        2 => equal(&out.to_vec()?, &values(false)),
        3 => equal(&out.to_vec()?, &values(true)).and_then(|()| equal(&place.to_vec()?, &places(true))),
        _ => equal(&place.to_vec()?, &places(false)),
    }
}

fn several_dimensions() -> Row {
    let mut row =
        Row::new("C26", "test_reduce").remarks("`axis = [0, 2]` and no axis at all are in the suite `audit` too");
    macro_rules! shapes {
        ($t:ident: $($m:literal $n:literal $k:literal)*) => {$(
            for axis in 0..3 {
                for (op, name) in (0..).zip(BLOCK_OPS) {
                    for keep in [false, true] {
                        if keep && op != 0 {
                            continue;
                        }
                        for warps in [1, 4] {
                            let shape = [$m, $n, $k];
                            let kept = if keep { ", kept" } else { "" };
                            let name = format!("{name} of {} {shape:?} along {axis}{kept}, {warps} warps", $t::NAME);
                            row.case(name, move |device| {
                                block_case::<$t, $m, $n, $k>(device, (op, axis, keep), warps)
                            });
                        }
                    }
                }
            }
        )*};
    }
    macro_rules! each {
        ($t:ident) => {
            shapes!($t: 1 4 32 2 32 16 32 2 16);
        };
    }
    for_numbers!(each);
    shapes!(f32: 1 64 128 1 8 512 1 512 8 16 16 16);
    row
}

#[kernel]
fn wrapping_sum<T: Num, U: Num, const N: usize>(x: Ptr<T>, own: PtrMut<T>, wide: PtrMut<U>) {
    let t = load(x + arange(0, N));
    store(own, sum(t));
    store(wide, sum(t as U));
}

fn dtypes_of_sums() -> Row {
    let mut row =
        Row::new("C27", "test_sum_dtype").remarks("a sum has the dtype of its tile; a wider one is asked for by `as`");
    macro_rules! each {
        ($($t:ident $u:ident)*) => {$(
            row.case(format!("{} and {}", stringify!($t), stringify!($u)), |device| {
                let x: Vec<$t> = Random::new(27).elements(256);
                let (mut own, mut wide) = (device.zeros::<$t>(1)?, device.zeros::<$u>(1)?);
                wrapping_sum::<$t, $u, 256>(&device.upload(&x)?, &mut own, &mut wide).grid(1).launch(device)?;
                equal(&own.to_vec()?, &[x.iter().fold(0, |a: $t, &b| a.wrapping_add(b))])?;
                equal(&wide.to_vec()?, &[x.iter().fold(0, |a: $u, &b| a.wrapping_add(b as $u))])
            });
        )*};
    }
    each!(u8 u32 i8 i32 u16 u32 i16 i32 i32 i64 u32 u64 u8 i32 i64 i32);
    row.case("256 ones", |device| {
        let x = vec![1u8; 256];
        let (mut own, mut wide) = (device.upload(&[9u8])?, device.zeros::<u32>(1)?);
        wrapping_sum::<u8, u32, 256>(&device.upload(&x)?, &mut own, &mut wide).grid(1).launch(device)?;
        equal(&own.to_vec()?, &[0])?;
        equal(&wide.to_vec()?, &[256])
    });
    row
}

fn nans() -> Row {
    fn case<T: Element>(device: &Device, op: i32, all: bool) -> Outcome {
        let mut x: Vec<T> = Random::new(28).elements(128);
        let nans = if all { 0..128 } else { 40..43 };
        x[nans].fill(T::from_f64(f64::NAN));
        let (mut out, mut place) = (device.zeros::<T>(1)?, device.zeros::<i32>(1)?);
        let consts = AlongALineConsts { OP: op, N: 128 };
        consts.call(&device.upload(&x)?, &mut out, &mut place).grid(1).launch(device)?;
        let numbers: Vec<usize> = (0..128).filter(|&i| !x[i].to_f64().is_nan()).collect();
        let order = |a: &usize, b: &usize| x[*a].to_f64().total_cmp(&x[*b].to_f64());
        let best =
            if op % 2 == 1 { numbers.iter().copied().max_by(order) } else { numbers.iter().copied().min_by(order) };
        match (op, best) {
            (1 | 2, best) => equal(&out.to_vec()?, &[best.map_or(T::from_f64(f64::NAN), |at| x[at])]),
            (_, Some(at)) => equal(&place.to_vec()?, &[at as i32]),
            (_, None) => equal(&place.to_vec()?, &[0]),
        }
    }
    let mut row = Row::new("C28", "test_max_min_with_nan, test_argmax_argmin_with_nan");
    macro_rules! each {
        ($($t:ident)*) => {$(
            for (op, name) in (1..).zip(&OPS[1..5]) {
                row.case(format!("{name} {}", $t::NAME), move |device| case::<$t>(device, op, false));
                if op < 3 {
                    row.case(format!("{name} {}, nothing else", $t::NAME), move |device| case::<$t>(device, op, true));
                }
            }
        )*};
    }
    each!(f16 bf16 f32 f64);
    row
}

fn zeros_are_kept() -> Row {
    let mut row = Row::new("C29", "test_max_returns_zero");
    macro_rules! each {
        ($t:ident) => {
            for (op, name) in [(1, "max"), (2, "min"), (0, "sum")] {
                row.case(format!("{name} {}", $t::NAME), move |device| {
                    let (mut out, mut place) = (device.upload(&[$t::from_int(5)])?, device.zeros::<i32>(1)?);
                    let x = device.upload(&[$t::from_int(0); 32])?;
                    AlongALineConsts { OP: op, N: 32 }.call(&x, &mut out, &mut place).grid(1).launch(device)?;
                    equal(&out.to_vec()?, &[$t::from_int(0)])
                });
            }
        };
    }
    for_numbers!(each);
    row
}

/// Mean, sum of squared differences and weight of each column (Welford 1962; combined as by Chan et al. 1979).
#[kernel]
fn moments<const M: usize, const N: usize>(x: Ptr<f32>, mean: PtrMut<f32>, squares: PtrMut<f32>) {
    let places = arange(0, M)[(.., None)] * N + arange(0, N)[(None, ..)];
    let t = load(x + places);
    let ones = full([M, N], 1.0f32);
    let (m, s, _) = reduce((t, zeros::<f32>([M, N]), ones), axis = 0, |(m, s, w), (n, r, v)| {
        let (delta, total) = (n - m, w + v);
        let part = v / total;
        (m + delta * part, s + r + delta * delta * w * part, total)
    });
    store(mean + arange(0, N), m);
    store(squares + arange(0, N), s);
}

fn welford() -> Row {
    fn case<const M: usize, const N: usize>(device: &Device, warps: u32) -> Outcome {
        let x: Vec<f32> = Random::new(30).elements(M * N);
        let (mut mean, mut squares) = (device.zeros::<f32>(N)?, device.zeros::<f32>(N)?);
        let buffer = device.upload(&x)?;
        let call = moments::<M, N>(&buffer, &mut mean, &mut squares);
        call.grid(1).num_warps(warps).launch(device)?;
        let column = |c: usize| (0..M).map(move |r| r * N + c);
        let means: Vec<f64> = (0..N).map(|c| column(c).map(|i| f64::from(x[i])).sum::<f64>() / M as f64).collect();
        let spread = |c: usize| column(c).map(|i| (f64::from(x[i]) - means[c]).powi(2)).sum::<f64>() as f32;
        close(&mean.to_vec()?, &means.iter().map(|&m| m as f32).collect::<Vec<f32>>(), 1e-4, 1e-5)?;
        close(&squares.to_vec()?, &(0..N).map(spread).collect::<Vec<f32>>(), 1e-4, 1e-5)
    }
    let mut row = Row::new("C30", "test_generic_reduction");
    for warps in [1, 4, 8] {
        row.case(format!("32 x 64, {warps} warps"), move |device| case::<32, 64>(device, warps));
        row.case(format!("128 x 16, {warps} warps"), move |device| case::<128, 16>(device, warps));
        row.case(format!("1024 x 1, {warps} warps"), move |device| case::<1024, 1>(device, warps));
    }
    row
}

#[kernel]
fn one_after_another<const FORM: i32>(x: Ptr<i32>, out: PtrMut<i32>) {
    let t = reshape(load(x + arange(0, 4096)), [2, 16, 8, 2, 8]);
    if FORM == 0 {
        let a = sum(sum(sum(sum(t, axis = 0), axis = 0), axis = 0), axis = 0);
        store(out + arange(0, 8), a);
    } else if FORM == 1 {
        store(out + arange(0, 16), sum(sum(sum(sum(t, axis = 4), axis = 3), axis = 2), axis = 0));
    } else {
        store(out + arange(0, 16), sum(t, axis = [0, 2, 3, 4]));
    }
}

fn chains() -> Row {
    let mut row = Row::new("C31", "test_chained_reductions");
    for form in 0..3 {
        for warps in [1, 4, 8] {
            row.case(format!("form {form}, {warps} warps"), move |device| {
                let x: Vec<i32> = Random::new(31).elements(4096);
                let mut out = device.zeros::<i32>(16)?;
                let buffer = device.upload(&x)?;
                let call = OneAfterAnotherConsts { FORM: form }.call(&buffer, &mut out);
                call.grid(1).num_warps(warps).launch(device)?;
                let mut want = vec![0i32; 16];
                for (i, &x) in x.iter().enumerate() {
                    let place = if form == 0 { i % 8 } else { i / 128 % 16 };
                    want[place] = want[place].wrapping_add(x);
                }
                equal(&out.to_vec()?, &want)
            });
        }
    }
    row
}
