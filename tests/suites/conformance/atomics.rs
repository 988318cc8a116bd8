//! Atomics.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![read_modify_write(), tiles(), access_patterns(), compare_and_swap(), zeros_and_dtypes()]
}

/// The orders, of which the first is what is taken without one.
const ORDERS: [&str; 5] = ["default", "relaxed", "acquire", "release", "acq_rel"];

/// A module with one operation in all orders.
macro_rules! updates {
    ($name:ident) => {
        mod $name {
            use tilewright::prelude::*;

            #[kernel]
            pub fn updated<T: Num, const ORDER: i32>(x: Ptr<T>, z: PtrMut<T>) {
                let v = load(x + program_id(0));
                if ORDER == 0 {
                    $name(z, v);
                } else if ORDER == 1 {
                    $name(z, v, order = relaxed);
                } else if ORDER == 2 {
                    $name(z, v, order = acquire);
                } else if ORDER == 3 {
                    $name(z, v, order = release);
                } else {
                    $name(z, v, order = acq_rel);
                }
            }
        }
    };
}
updates!(atomic_add);
updates!(atomic_max);
updates!(atomic_min);

const OPS: [&str; 3] = ["add", "max", "min"];
const MODES: [&str; 4] = ["all_neg", "all_pos", "min_neg", "max_pos"];

/// The powers of two, changed as the mode says; negative unsigned numbers wrap.
fn updates<T: Element>(mode: usize) -> Vec<T> {
    let value = |i: usize| match (mode, i) {
        (0, _) => -(1i128 << i),
        (2, 3) => -17,
        (3, 3) => 17,
        _ => 1 << i,
    };
    (0..5).map(|i| T::from_int(value(i))).collect()
}

fn combined<T: Element>(op: usize, a: T, b: T) -> T {
    let less = if T::IS_FLOAT { a.to_f64() < b.to_f64() } else { a.to_int() < b.to_int() };
    match op {
        0 if T::IS_FLOAT => T::from_f64(a.to_f64() + b.to_f64()),
        0 => T::from_int(a.to_int() + b.to_int()),
        1 => {
            if less {
                b
            } else {
                a
            }
        }
        _ => {
            if less {
                a
            } else {
                b
            }
        }
    }
}

fn update<T: Element>(device: &Device, op: usize, order: i32, mode: usize) -> Outcome {
    let x = updates::<T>(mode);
    let neutral = match op {
        0 => T::from_int(0),
        1 if T::IS_FLOAT => T::from_f64(f64::NEG_INFINITY),
        2 if T::IS_FLOAT => T::from_f64(f64::INFINITY),
        _ => x[2],
    };
    let (xs, mut z) = (device.upload(&x)?, device.full(1, neutral)?);
    match op {
        0 => atomic_add::UpdatedConsts { ORDER: order }.call(&xs, &mut z).grid(5).launch(device)?,
        1 => atomic_max::UpdatedConsts { ORDER: order }.call(&xs, &mut z).grid(5).launch(device)?,
        _ => atomic_min::UpdatedConsts { ORDER: order }.call(&xs, &mut z).grid(5).launch(device)?,
    }
    equal(&z.to_vec()?, &[x.into_iter().fold(neutral, |a, b| combined(op, a, b))])
}

/// The code of an operation carries its order.
fn update_code<T: Element>(op: usize, order: i32) -> Outcome {
    let target = Target::sm_90a();
    let compiled = match op {
        0 => atomic_add::UpdatedConsts { ORDER: order }.compile::<T>(target)?,
        1 => atomic_max::UpdatedConsts { ORDER: order }.compile::<T>(target)?,
        _ => atomic_min::UpdatedConsts { ORDER: order }.compile::<T>(target)?,
    };
    let order = if order == 0 { "acq_rel" } else { ORDERS[order as usize] };
    carries(compiled.ptx(), order)
}

fn carries(ptx: &str, order: &str) -> Outcome {
    let found = ["atom", "red"].iter().any(|name| ptx.contains(&format!("{name}.{order}.gpu.global.")));
    if found { Ok(()) } else { Err(Failure(format!("no `{order}`:\n{ptx}"))) }
}

fn read_modify_write() -> Row {
    let mut row = Row::new("C50", "test_atomic_rmw").remarks("`atom.{order}.gpu.global`, as PTX orders its suffixes");
    macro_rules! each {
        ($op:literal: $($t:ident)*) => {$(
            for (order, ordered) in (0..).zip(ORDERS) {
                for (mode, named) in MODES.into_iter().enumerate() {
                    let name = format!("{} of {}, {ordered}, {named}", OPS[$op], $t::NAME);
                    row.case(name, move |device| update::<$t>(device, $op, order, mode));
                }
                let name = format!("code of {} of {}, {ordered}", OPS[$op], $t::NAME);
                row.host(name, move || update_code::<$t>($op, order));
            }
        )*};
    }
    each!(0: f16 bf16 u32 i32 f32 u64 i64 f64);
    each!(1: u32 i32 f32 u64 i64 f64);
    each!(2: u32 i32 f32 u64 i64 f64);
    row
}

#[kernel]
fn only_some(x: PtrMut<i32>) {
    let value = program_id(0);
    if value < 64 {
        atomic_max(x, value);
    }
}

#[kernel]
fn added_sums<T: Num, const M: usize, const N: usize, const AXIS: i32>(z: PtrMut<T>, x: Ptr<T>, old: PtrMut<T>) {
    let (i, j) = (arange(0, M), arange(0, N));
    let t = load(x + i[(.., None)] * N + j[(None, ..)]);
    if AXIS == 1 {
        store(old + i, atomic_add(z + i, sum(t, axis = 1)));
    } else {
        store(old + j, atomic_add(z + j, sum(t, axis = 0)));
    }
}

#[kernel]
fn least(x: PtrMut<f32>) {
    let at = arange(0, 8)[(.., None)] * 8 + arange(0, 8)[(None, ..)];
    atomic_min(x + at, at as f32);
}

#[kernel]
fn in_pairs<T: Num, const N: usize>(x: PtrMut<T>, values: Ptr<T>) {
    let at = arange(0, N)[(.., None)] * N + arange(0, N)[(None, ..)];
    atomic_add(x + at / 2, load(values + at));
}

fn tiles() -> Row {
    fn sums<T: Element>(device: &Device, m: usize, n: usize, axis: i32) -> Outcome {
        let mut random = Random::new(51);
        let len = if axis == 1 { m } else { n };
        // Sums of 64 of them are exact in 16 bits too.
        let (x, z): (Vec<T>, Vec<T>) = (random.small(m * n, -8, 8), random.small(len, -8, 8));
        let (mut out, mut old) = (device.upload(&z)?, device.zeros::<T>(len)?);
        let consts = AddedSumsConsts { M: m, N: n, AXIS: axis };
        consts.call(&mut out, &device.upload(&x)?, &mut old).grid(1).launch(device)?;
        let mut want = z.clone();
        for (at, &x) in x.iter().enumerate() {
            let line = if axis == 1 { at / n } else { at % n };
            want[line] = combined(0, want[line], x);
        }
        equal(&out.to_vec()?, &want)?;
        equal(&old.to_vec()?, &z)
    }
    fn pairs<T: Element>(device: &Device, n: usize) -> Outcome {
        let values: Vec<T> = Random::new(52).elements(n * n);
        let mut out = device.zeros::<T>(n * n / 2)?;
        let consts = InPairsConsts { N: n };
        // 16384 elements are 512 for each thread of a warp.
        consts.call(&mut out, &device.upload(&values)?).num_warps(1).grid(1).launch(device)?;
        equal(&out.to_vec()?, &values.chunks(2).map(|pair| combined(0, pair[0], pair[1])).collect::<Vec<T>>())
    }
    let upstream = "test_atomic_rmw_predicate, test_tensor_atomic_rmw, _rmw_block, _add_non_exclusive_offset";
    let mut row = Row::new("C51", upstream);
    row.case("predicate", |device| {
        let mut x = device.zeros::<i32>(1)?;
        only_some(&mut x).grid(4096).launch(device)?;
        equal(&x.to_vec()?, &[63])
    });
    macro_rules! each {
        ($($t:ident)*) => {$(
            for (m, n) in [(2, 2), (2, 8), (8, 2), (8, 8), (32, 32), (64, 64)] {
                for axis in [0, 1] {
                    let name = format!("sums of [{m}, {n}] {} along {axis}", $t::NAME);
                    row.case(name, move |device| sums::<$t>(device, m, n, axis));
                }
            }
        )*};
    }
    each!(f16 f32 u64 i64 f64);
    row.case("two programs, one minimum", |device| {
        let mut x = device.full(64, 1.0f32)?;
        least(&mut x).grid(2).launch(device)?;
        equal(&x.to_vec()?, &(0..64).map(|i| if i == 0 { 0.0 } else { 1.0 }).collect::<Vec<f32>>())
    });
    macro_rules! pairs {
        ($($t:ident)*) => {$(
            for n in [2, 4, 8, 32, 64, 128] {
                row.case(format!("pairs of {n} x {n} {}", $t::NAME), move |device| pairs::<$t>(device, n));
            }
        )*};
    }
    pairs!(f16 f32);
    row
}

#[kernel]
fn scattered<T: Num>(x: Ptr<T>, places: Ptr<i32>, out: PtrMut<T>, rows: i32, columns: i32, step: i32) {
    let i = program_id(0) * 64 + arange(0, 64);
    let mask = (i < rows * columns) & (i % step != 0);
    let row = columns * (i / columns);
    let (place, value) = (load(places + i, mask = mask), load(x + i, mask = mask));
    atomic_add(out + row + place, value, mask = mask, order = relaxed);
}

/// Where the elements of row `row` go.
fn order_of(pattern: usize, n: usize, row: usize, random: &mut Random) -> Vec<usize> {
    match pattern {
        0 => (0..n).flat_map(|i| vec![i; row + 1]).take(n).collect(),
        1 => (0..n).rev().flat_map(|i| vec![i; row + 1]).take(n).collect(),
        2 => {
            let mut all: Vec<usize> = (0..n).collect();
            (1..n).for_each(|i| all.swap(i, random.below(i as u64 + 1) as usize));
            all
        }
        _ => (0..n).map(|_| random.below(n as u64) as usize).collect(),
    }
}

fn access_patterns() -> Row {
    fn case<T: Element>(device: &Device, n: usize, pattern: usize, step: usize) -> Outcome {
        let mut random = Random::new(52);
        let places: Vec<usize> = (0..n).flat_map(|row| order_of(pattern, n, row, &mut random)).collect();
        let (x, mut want): (Vec<T>, Vec<T>) = (random.small(n * n, -8, 8), random.small(n * n, -8, 8));
        let mut out = device.upload(&want)?;
        for (at, &value) in x.iter().enumerate().filter(|(at, _)| at % step != 0) {
            let to = at / n * n + places[at];
            want[to] = combined(0, want[to], value);
        }
        let indices: Vec<i32> = places.iter().map(|&place| place as i32).collect();
        let (xs, indices, size) = (device.upload(&x)?, device.upload(&indices)?, n as i32);
        scattered(&xs, &indices, &mut out, size, size, step as i32).grid(1).launch(device)?;
        equal(&out.to_vec()?, &want)
    }
    let mut row =
        Row::new("C52", "test_tensor_atomic_add_access_patterns").remarks("whole numbers, whose sums are exact");
    macro_rules! each {
        ($($t:ident)*) => {$(
            for n in [2, 4, 5, 6, 8] {
                for (pattern, named) in ["increase", "decrease", "random_no_duplication", "random"].iter().enumerate() {
                    for step in 1..5 {
                        let name = format!("[{n}, {n}] {}, {named}, step {step}", $t::NAME);
                        row.case(name, move |device| case::<$t>(device, n, pattern, step));
                    }
                }
            }
        )*};
    }
    each!(bf16 f16 f32);
    row
}

#[kernel]
fn lock(x: PtrMut<i32>) {
    atomic_cas(x, 0, 1);
}

#[kernel]
fn one_at_a_time<const ORDER: i32>(data: PtrMut<f32>, lock: PtrMut<i32>) {
    if ORDER == 0 {
        while atomic_cas(lock, 0, 1) == 1 {}
    } else if ORDER == 1 {
        while atomic_cas(lock, 0, 1, order = relaxed) == 1 {}
    } else if ORDER == 2 {
        while atomic_cas(lock, 0, 1, order = acquire) == 1 {}
    } else if ORDER == 3 {
        while atomic_cas(lock, 0, 1, order = release) == 1 {}
    } else {
        while atomic_cas(lock, 0, 1, order = acq_rel) == 1 {}
    }
    let at = data + arange(0, 128);
    if ORDER == 1 || ORDER == 3 {
        // Such an order does not show what the last owner of the lock stored.
        atomic_add(at, 1.0, order = relaxed);
    } else {
        store(at, load(at) + 1.0);
    }
    atomic_exchange(lock, 0);
}

#[kernel]
fn swapped<T: Num, const ORDER: i32>(x: PtrMut<T>, old: PtrMut<T>) {
    let i = program_id(0) * 4 + arange(0, 4);
    let (none, two) = (zeros::<T>([4]), full([4], 2 as T));
    if ORDER == 0 {
        store(old + i, atomic_cas(x + i, none, two));
    } else if ORDER == 1 {
        store(old + i, atomic_cas(x + i, none, two, order = relaxed));
    } else if ORDER == 2 {
        store(old + i, atomic_cas(x + i, none, two, order = acquire));
    } else if ORDER == 3 {
        store(old + i, atomic_cas(x + i, none, two, order = release));
    } else {
        store(old + i, atomic_cas(x + i, none, two, order = acq_rel));
    }
}

fn compare_and_swap() -> Row {
    /// How many programs take the lock, one after the other.
    const PROGRAMS: u32 = 2000;
    fn swap<T: Element>(device: &Device, order: i32) -> Outcome {
        let list = |values: [i128; 8]| values.map(T::from_int);
        let before = list([0, 1, 0, 1, 0, 1, 0, 1]);
        let (mut x, mut old) = (device.upload(&before)?, device.zeros::<T>(8)?);
        SwappedConsts { ORDER: order }.call(&mut x, &mut old).grid(2).launch(device)?;
        equal(&x.to_vec()?, &list([2, 1, 2, 1, 2, 1, 2, 1]))?;
        equal(&old.to_vec()?, &before)
    }
    let mut row = Row::new("C53", "test_atomic_cas, test_tensor_atomic_cas")
        .remarks("a lock taken by `relaxed` or `release` shows no stores: there the data is added to atomically");
    row.case("lock", |device| {
        let mut x = device.zeros::<i32>(1)?;
        lock(&mut x).grid(1).launch(device)?;
        equal(&x.to_vec()?, &[1])
    });
    for (order, ordered) in (0..).zip(ORDERS) {
        row.case(format!("one at a time, {ordered}"), move |device| {
            let (mut data, mut lock) = (device.zeros::<f32>(128)?, device.zeros::<i32>(1)?);
            OneAtATimeConsts { ORDER: order }.call(&mut data, &mut lock).grid(PROGRAMS).launch(device)?;
            equal(&data.to_vec()?, &[PROGRAMS as f32; 128])
        });
        row.host(format!("code of one at a time, {ordered}"), move || {
            let compiled = OneAtATimeConsts { ORDER: order }.compile(Target::sm_90a())?;
            carries(compiled.ptx(), if order == 0 { "acq_rel" } else { ORDERS[order as usize] })
        });
    }
    macro_rules! each {
        ($($t:ident)*) => {$(
            for (order, ordered) in (0..).zip(ORDERS) {
                row.case(format!("tile of {}, {ordered}", $t::NAME), move |device| swap::<$t>(device, order));
            }
        )*};
    }
    each!(i16 u16 f16 bf16 i32 u32 f32 i64 u64 f64);
    row
}

#[kernel]
fn extremes<T: Num>(x: Ptr<T>, most: PtrMut<T>, least: PtrMut<T>) {
    let i = program_id(0);
    let v = load(x + i);
    atomic_max(most + i, v);
    atomic_min(least + i, v);
}

fn zeros_and_dtypes() -> Row {
    fn case<T: Element>(device: &Device) -> Outcome {
        let x = [T::from_f64(-0.0), T::from_int(0)];
        let mut most = device.full(2, T::from_f64(f64::NEG_INFINITY))?;
        let mut least = device.full(2, T::from_f64(f64::INFINITY))?;
        extremes(&device.upload(&x)?, &mut most, &mut least).grid(2).launch(device)?;
        equal(&most.to_vec()?, &x)?;
        equal(&least.to_vec()?, &x)
    }
    let mut row = Row::new("C54", "test_atomic_min_max_neg_zero, test_atomic_unsupported_type")
        .elsewhere(1, "`kernel-macros/tests/messages/atomics_and_scans.txt` (`PtrMut<u8>`)");
    row.case("f32 zeros", case::<f32>);
    row.case("f64 zeros", case::<f64>);
    macro_rules! refused {
        ($($t:ident)*) => {$(
            row.host(format!("{} is refused", $t::NAME), || {
                let consts = atomic_add::UpdatedConsts { ORDER: 0 };
                match consts.compile::<$t>(Target::sm_90a()) {
                    Err(Error::Compile(_)) => Ok(()),
                    other => Err(Failure(format!("{other:?}"))),
                }
            });
        )*};
    }
    refused!(i8 u8);
    row
}
