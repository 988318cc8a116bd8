//! New shapes, and tiles that are made.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::for_numbers;
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![broadcasts(), indices(), permutations(), reshapes(), joins(), ranges(), fills()]
}

#[kernel]
fn repeated<T: Num, const M: usize, const N: usize, const FORM: i32>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>) {
    let (r, c) = (arange(0, M), arange(0, N));
    let place = r[(.., None)] * N + c[(None, ..)];
    let (a, b) = (load(x + r), load(y + c));
    if FORM == 0 {
        store(out + place, a[(.., None)] + b[(None, ..)]);
    } else if FORM == 1 {
        store(out + place, broadcast_to(expand_dims(a, 1), [M, N]) + expand_dims(b, 0));
    } else if FORM == 2 {
        store(out + place, a.expand_dims(-1).broadcast_to([M, N]) + broadcast_to(b[(None, ..)], [M, N]));
    } else {
        // A value is repeated by the store.
        store(out + place, b[(None, ..)]);
    }
}

fn broadcasts() -> Row {
    fn case<T: Element, const M: usize, const N: usize>(device: &Device, form: i32) -> Outcome {
        let mut random = Random::new(18);
        let (x, y): (Vec<T>, Vec<T>) = (random.small(M, 0, 50), random.small(N, 0, 50));
        let mut out = device.zeros::<T>(M * N)?;
        let consts = RepeatedConsts { M, N, FORM: form };
        consts.call(&device.upload(&x)?, &device.upload(&y)?, &mut out).grid(1).launch(device)?;
        let one = |i: usize| {
            let left = if form == 3 { 0 } else { x[i / N].to_int() };
            T::from_int(left + y[i % N].to_int())
        };
        equal(&out.to_vec()?, &(0..M * N).map(one).collect::<Vec<T>>())
    }
    let mut row = Row::new("C18", "test_broadcast, test_expand_dims")
        .elsewhere(6, "`kernel-macros/tests/messages/shapes.txt` (axes that are none)");
    macro_rules! each {
        ($t:ident) => {
            for form in 0..4 {
                row.case(format!("{}, form {form}, 32 x 64", $t::NAME), move |d| case::<$t, 32, 64>(d, form));
                row.case(format!("{}, form {form}, 1 x 128", $t::NAME), move |d| case::<$t, 1, 128>(d, form));
                row.case(format!("{}, form {form}, 64 x 1", $t::NAME), move |d| case::<$t, 64, 1>(d, form));
            }
        };
    }
    for_numbers!(each);
    row
}

#[kernel]
fn indexed<T: Num, const N: usize>(x: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, N);
    let v = load(x + i);
    store(out + i[(None, ..)], v[(None, ..)]);
    store(out + N + i[(.., None)], v[(.., None)]);
    store(out + 2 * N + i[(None, .., None)], v[(None, .., None)]);
    store(out + 3 * N + i, reshape(v[(.., None)] + v[(None, ..)], [N * N]).reshape([N, N]).max(axis = 1) - max(v));
}

fn indices() -> Row {
    fn case<T: Element, const N: usize>(device: &Device) -> Outcome {
        let x: Vec<T> = Random::new(19).small(N, 0, 50);
        let mut out = device.zeros::<T>(4 * N)?;
        indexed::<T, N>(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        equal(&out.to_vec()?, &x.repeat(4))
    }
    let mut row = Row::new("C19", "test_index1d, test_invalid_slice");
    macro_rules! each {
        ($t:ident) => {
            row.case(format!("{} 32", $t::NAME), |device| case::<$t, 32>(device));
            row.case(format!("{} 4", $t::NAME), |device| case::<$t, 4>(device));
        };
    }
    for_numbers!(each);
    row
}

/// Orders of four axes.
const ORDERS: [[usize; 4]; 24] = {
    let mut all = [[0; 4]; 24];
    let (mut at, mut code) = (0, 0);
    while code < 256 {
        let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3];
        let mut seen = 0;
        let mut axis = 0;
        while axis < 4 {
            seen |= 1 << order[axis];
            axis += 1;
        }
        if seen == 15 {
            all[at] = order;
            at += 1;
        }
        code += 1;
    }
    all
};

#[kernel]
fn permuted<T: Num, const M: usize, const N: usize, const FORM: i32>(x: Ptr<T>, out: PtrMut<T>) {
    let v = load(x + arange(0, M)[(.., None)] * N + arange(0, N)[(None, ..)]);
    let place = arange(0, N)[(.., None)] * M + arange(0, M)[(None, ..)];
    if FORM == 0 {
        store(out + place, trans(v));
    } else if FORM == 1 {
        store(out + place, permute(v, [1, 0]));
    } else {
        store(out + place, v.trans());
    }
}

macro_rules! four_axes {
    ($($name:ident [$($axis:literal)*];)*) => {
        $(
            #[kernel]
            fn $name<T: Num>(x: Ptr<T>, out: PtrMut<T>) {
                let v = reshape(load(x + arange(0, 512)), [2, 4, 8, 8]);
                store(out + arange(0, 512), reshape(permute(v, [$($axis),*]), [512]));
            }
        )*

        fn permute_four<T: Element>(device: &Device, order: [usize; 4]) -> Outcome {
            let x: Vec<T> = Random::new(20).elements(512);
            let mut out = device.zeros::<T>(512)?;
            let buffer = device.upload(&x)?;
            match order {
                $([$($axis),*] => $name(&buffer, &mut out).grid(1).launch(device)?,)*
                other => return Err(Failure(format!("there is no kernel for {other:?}"))),
            }
            let dims = [2, 4, 8, 8];
            let strides = [256, 64, 8, 1];
            let mut want = Vec::new();
            let at = |axis: usize| order[axis];
            for a in 0..dims[at(0)] {
                for b in 0..dims[at(1)] {
                    for c in 0..dims[at(2)] {
                        for d in 0..dims[at(3)] {
                            let place = a * strides[at(0)] + b * strides[at(1)] + c * strides[at(2)] + d * strides[at(3)];
                            want.push(x[place]);
                        }
                    }
                }
            }
            equal(&out.to_vec()?, &want)
        }
    };
}
four_axes! {
    p0 [0 1 2 3]; p1 [0 1 3 2]; p2 [0 2 1 3]; p3 [0 2 3 1]; p4 [0 3 1 2]; p5 [0 3 2 1];
    p6 [1 0 2 3]; p7 [1 0 3 2]; p8 [1 2 0 3]; p9 [1 2 3 0]; p10 [1 3 0 2]; p11 [1 3 2 0];
    p12 [2 0 1 3]; p13 [2 0 3 1]; p14 [2 1 0 3]; p15 [2 1 3 0]; p16 [2 3 0 1]; p17 [2 3 1 0];
    p18 [3 0 1 2]; p19 [3 0 2 1]; p20 [3 1 0 2]; p21 [3 1 2 0]; p22 [3 2 0 1]; p23 [3 2 1 0];
}

fn permutations() -> Row {
    fn two<T: Element, const M: usize, const N: usize>(device: &Device, form: i32) -> Outcome {
        let x: Vec<T> = Random::new(21).elements(M * N);
        let mut out = device.zeros::<T>(M * N)?;
        PermutedConsts { M, N, FORM: form }.call(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        equal(&out.to_vec()?, &(0..M * N).map(|i| x[i % M * N + i / M]).collect::<Vec<T>>())
    }
    let mut row = Row::new("C20", "test_transpose, test_trans_2d, test_trans_4d, test_permute");
    macro_rules! each {
        ($($t:ident)*) => {$(
            for form in 0..3 {
                row.case(format!("{} 64 x 64, form {form}", $t::NAME), move |d| two::<$t, 64, 64>(d, form));
                row.case(format!("{} 32 x 128, form {form}", $t::NAME), move |d| two::<$t, 32, 128>(d, form));
                row.case(format!("{} 2 x 256, form {form}", $t::NAME), move |d| two::<$t, 2, 256>(d, form));
            }
            for order in ORDERS {
                row.case(format!("{} {order:?}", $t::NAME), move |device| permute_four::<$t>(device, order));
            }
        )*};
    }
    each!(i32 i8 f16 f32);
    for form in 0..3 {
        row.host(format!("16-byte accesses on both sides, form {form}"), move || {
            let compiled = PermutedConsts { M: 128, N: 128, FORM: form }.compile::<f16>(Target::sm_90a())?;
            let text = compiled.ptx();
            let wide = ["ld.global", "st.global"]
                .map(|op| text.lines().filter(|line| line.contains(op)).all(|line| line.contains(".v4")));
            if wide == [true, true] { Ok(()) } else { Err(Failure(format!("narrow accesses: {wide:?}"))) }
        });
    }
    row
}

#[kernel]
fn reshaped<T: Num, const FORM: i32>(x: Ptr<T>, out: PtrMut<T>) {
    let v = load(x + arange(0, 256));
    if FORM == 0 {
        store(out + arange(0, 16)[(.., None)] * 16 + arange(0, 16)[(None, ..)], reshape(v, [16, 16]));
    } else if FORM == 1 {
        store(out + arange(0, 256), reshape(v, [2, 8, 4, 4]).reshape([32, 8]).reshape([256]));
    } else {
        // What is transposed, and then read in rows.
        store(out + arange(0, 256), reshape(trans(reshape(v, [8, 32])), [256]));
    }
}

fn reshapes() -> Row {
    fn case<T: Element>(device: &Device, form: i32) -> Outcome {
        let x: Vec<T> = Random::new(22).elements(256);
        let mut out = device.zeros::<T>(256)?;
        ReshapedConsts { FORM: form }.call(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        let turned = |i: usize| if form == 2 { x[i % 8 * 32 + i / 8] } else { x[i] };
        equal(&out.to_vec()?, &(0..256).map(turned).collect::<Vec<T>>())
    }
    let mut row = Row::new("C21", "test_reshape, test_trans_reshape");
    macro_rules! each {
        ($t:ident) => {
            for form in 0..3 {
                row.case(format!("{}, form {form}", $t::NAME), move |device| case::<$t>(device, form));
            }
        };
    }
    for_numbers!(each);
    row
}

#[kernel]
fn joined<T: Num, const N: usize, const FORM: i32>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>) {
    let (i, both) = (arange(0, N), arange(0, 2 * N));
    let (a, b) = (load(x + i), load(y + i));
    let places = i[(.., None)] * 2 + arange(0, 2);
    if FORM == 0 {
        store(out + places, join(a, b));
    } else if FORM == 1 {
        store(out + both, a.join(b).reshape([2 * N]));
    } else if FORM == 2 {
        store(out + both, interleave(a, b));
    } else if FORM == 3 {
        // Scalars are joined as tiles of one element.
        store(out + arange(0, 2), join(full([1], load(x)), full([1], load(y))).reshape([2]));
    } else {
        store(out + both, cat(a, b));
    }
}

#[kernel]
fn divided<T: Num, const N: usize, const FORM: i32>(x: Ptr<T>, out: PtrMut<T>) {
    let i = arange(0, N);
    if FORM == 0 {
        let (a, b) = split(load(x + (i[(.., None)] * 2 + arange(0, 2))));
        store(out + i, a);
        store(out + N + i, b);
    } else if FORM == 1 {
        let (a, b) = reshape(load(x + arange(0, 2 * N)), [N, 2]).split();
        store(out + i, a);
        store(out + N + i, b);
    } else {
        let (a, b) = split(reshape(join(load(x + i), load(x + N + i)), [N, 2]));
        store(out + 2 * i, a);
        store(out + (2 * i + 1), b);
    }
}

#[kernel]
fn behind<T: Num, const M: usize, const N: usize, const AXIS: i32>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>) {
    let at = arange(0, M)[(.., None)] * N + arange(0, N);
    let (a, b) = (load(x + at), load(y + at));
    if AXIS == 0 {
        store(out + (arange(0, 2 * M)[(.., None)] * N + arange(0, N)), cat(a, b, axis = 0));
    } else {
        store(out + (arange(0, M)[(.., None)] * (2 * N) + arange(0, 2 * N)), a.cat(b, axis = 1));
    }
}

#[kernel]
fn joined_factor(x: Ptr<f16>, y: Ptr<f16>, w: Ptr<f16>, out: PtrMut<f32>) {
    let (i, j) = (arange(0, 32), arange(0, 16));
    let at = i[(.., None)] * 16 + j;
    let left = reshape(join(load(x + at), load(y + at)), [32, 32]);
    store(out + (i[(.., None)] * 32 + i), dot(left, load(w + (i[(.., None)] * 32 + i))));
}

/// The elements of two lists in turn.
fn in_turn<T: Element>(x: &[T], y: &[T]) -> Vec<T> {
    x.iter().zip(y).flat_map(|(&a, &b)| [a, b]).collect()
}

fn joins() -> Row {
    fn join<T: Element>(device: &Device, n: usize, form: i32) -> Outcome {
        let mut random = Random::new(23);
        let (x, y): (Vec<T>, Vec<T>) = (random.elements(n), random.elements(n));
        let count = if form == 3 { 2 } else { 2 * n };
        let mut out = device.zeros::<T>(count)?;
        let consts = JoinedConsts { N: n, FORM: form };
        consts.call(&device.upload(&x)?, &device.upload(&y)?, &mut out).grid(1).launch(device)?;
        let want = if form == 4 { [x, y].concat() } else { in_turn(&x, &y) };
        equal(&out.to_vec()?, &want[..count])
    }
    fn split<T: Element>(device: &Device, n: usize, form: i32) -> Outcome {
        let x: Vec<T> = Random::new(24).elements(2 * n);
        let mut out = device.zeros::<T>(2 * n)?;
        DividedConsts { N: n, FORM: form }.call(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        let (low, high) = x.split_at(n);
        let part = |from: usize| x.iter().skip(from).step_by(2).copied();
        let want = if form == 2 { in_turn(low, high) } else { part(0).chain(part(1)).collect() };
        equal(&out.to_vec()?, &want)
    }
    fn cat<T: Element>(device: &Device, [m, n]: [usize; 2], axis: i32, warps: u32) -> Outcome {
        let mut random = Random::new(25);
        let (x, y): (Vec<T>, Vec<T>) = (random.elements(m * n), random.elements(m * n));
        let mut out = device.zeros::<T>(2 * m * n)?;
        let (left, right) = (device.upload(&x)?, device.upload(&y)?);
        let consts = BehindConsts { M: m, N: n, AXIS: axis };
        consts.call(&left, &right, &mut out).grid(1).num_warps(warps).launch(device)?;
        let rows = x.chunks(n).zip(y.chunks(n));
        let want = if axis == 0 { [x, y].concat() } else { rows.flat_map(|(a, b)| [a, b].concat()).collect() };
        equal(&out.to_vec()?, &want)
    }
    fn product(device: &Device) -> Outcome {
        let mut random = Random::new(26);
        let (x, y): (Vec<f16>, Vec<f16>) = (random.small(512, -2, 2), random.small(512, -2, 2));
        let w: Vec<f16> = random.small(1024, -2, 2);
        let mut out = device.zeros::<f32>(1024)?;
        let (left, right) = (device.upload(&x)?, device.upload(&y)?);
        joined_factor(&left, &right, &device.upload(&w)?, &mut out).grid(1).launch(device)?;
        let both = in_turn(&x, &y);
        let sum = |i: usize| (0..32).map(|k| both[i / 32 * 32 + k].to_f32() * w[k * 32 + i % 32].to_f32()).sum();
        equal(&out.to_vec()?, &(0..1024).map(sum).collect::<Vec<f32>>())
    }
    let mut row = Row::new("C22", "test_join, test_split, test_interleave, test_cat, test_cat_nd")
        .remarks("scalars are joined as tiles of one element; `cat` keeps the order of the elements");
    macro_rules! each {
        ($t:ident) => {
            for n in [1, 128] {
                for (form, name) in (0..).zip(["join", "join and reshape", "interleave", "scalars", "cat"]) {
                    row.case(format!("{name} {} {n}", $t::NAME), move |device| join::<$t>(device, n, form));
                }
                for (form, name) in (0..).zip(["split", "reshape and split", "join and split"]) {
                    row.case(format!("{name} {} {n}", $t::NAME), move |device| split::<$t>(device, n, form));
                }
            }
            for axis in 0..2 {
                for size in [[4, 32], [128, 1], [1, 256], [64, 64]] {
                    for warps in [1, 4] {
                        let name = format!("cat {} {size:?} along {axis}, {warps} warps", $t::NAME);
                        row.case(name, move |device| cat::<$t>(device, size, axis, warps));
                    }
                }
            }
        };
    }
    for_numbers!(each);
    row.case("product of what is joined", product);
    row
}

#[kernel]
fn counted<const START: i32, const N: usize>(out: PtrMut<i32>) {
    store(out + arange(0, N), arange(START, START + N));
}

fn ranges() -> Row {
    let mut row = Row::new("C23", "test_arange");
    for start in [0, 1, 7, 16, -5] {
        row.case(format!("from {start}"), move |device| {
            let mut out = device.zeros::<i32>(128)?;
            CountedConsts { START: start, N: 128 }.call(&mut out).grid(1).launch(device)?;
            equal(&out.to_vec()?, &(start..start + 128).collect::<Vec<i32>>())
        });
    }
    row
}

#[kernel]
fn filled<T: Num, const N: usize, const FORM: i32>(value: T, out: PtrMut<T>) {
    if FORM == 0 {
        store(out + arange(0, N), full([N], value));
    } else if FORM == 1 {
        store(out + arange(0, N), zeros::<T>([N]));
    } else {
        store(out, value);
    }
}

fn fills() -> Row {
    fn case<T: Element + tilewright::launch::Scalar, const N: usize>(device: &Device, form: i32) -> Outcome {
        let value = T::from_int(3);
        let mut out = device.upload(&[T::from_int(7); N])?;
        FilledConsts { N, FORM: form }.call(value, &mut out).grid(1).launch(device)?;
        let want = (0..N).map(|i| match form {
            0 => value,
            1 => T::from_int(0),
            _ => T::from_int(if i == 0 { 3 } else { 7 }),
        });
        equal(&out.to_vec()?, &want.collect::<Vec<T>>())
    }
    let mut row = Row::new("C24", "test_full, test_zeros").remarks("a scalar instead of the shape `()`");
    macro_rules! each {
        ($t:ident) => {
            for (form, name) in (0..).zip(["full", "zeros", "scalar"]) {
                row.case(format!("{name} {} 1", $t::NAME), move |device| case::<$t, 1>(device, form));
                row.case(format!("{name} {} 128", $t::NAME), move |device| case::<$t, 128>(device, form));
            }
        };
    }
    for_numbers!(each);
    row
}
