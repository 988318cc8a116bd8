//! Operations on whole tiles.

use std::cmp::Ordering;

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, equal};
use crate::for_numbers;
use crate::runner::{Failure, Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![histograms(), sorts(), turns(), gathers(), reductions_in_loops()]
}

#[kernel]
fn counted<T: Int, const M: usize, const BINS: usize, const FORM: i32>(x: Ptr<T>, out: PtrMut<i32>) {
    let i = arange(0, M);
    let bins = arange(0, BINS);
    if FORM == 0 {
        store(out + bins, histogram(load(x + i), BINS));
    } else if FORM == 1 {
        store(out + bins, load(x + i).histogram(BINS));
    } else {
        // Twice as many lanes as there are elements.
        let lanes = arange(0, 2 * M);
        store(out + bins, histogram(load(x + lanes, mask = lanes < M), BINS, mask = lanes < M));
    }
}

fn histograms() -> Row {
    fn case<T: Element + Int>(device: &Device, [m, bins]: [usize; 2], form: i32, warps: u32) -> Outcome {
        // Some values have no bin.
        let x: Vec<T> =
            Random::new(35).small(m, if T::from_int(-1).to_int() < 0 { -1 } else { 0 }, bins.min(100) as i128);
        let mut out = device.full(bins, 7)?;
        let consts = CountedConsts { M: m, BINS: bins, FORM: form };
        let buffer = device.upload(&x)?;
        let call = consts.call(&buffer, &mut out);
        call.grid(1).num_warps(warps).launch(device)?;
        let count = |bin: usize| x.iter().filter(|x| x.to_int() == bin as i128).count() as i32;
        equal(&out.to_vec()?, &(0..bins).map(count).collect::<Vec<i32>>())
    }
    let mut row = Row::new("C35", "test_histogram, test_histogram_mask, test_histogram_silent_data_corruption")
        .remarks("values that have no bin are not counted");
    const SIZES: [[usize; 2]; 7] = [[2048, 2], [1024, 8], [1024, 128], [256, 512], [32, 512], [8, 512], [8, 2]];
    macro_rules! each {
        ($($t:ident)*) => {$(
            for size in SIZES {
                for (form, name) in (0..).zip(["function", "method", "mask"]) {
                    for warps in [4, 8] {
                        let name = format!("{} {size:?}, {name}, {warps} warps", $t::NAME);
                        row.case(name, move |device| case::<$t>(device, size, form, warps));
                    }
                }
            }
        )*};
    }
    each!(i32 u32 i64 i8);
    row
}

#[kernel]
fn ordered<T: Num, const M: usize, const N: usize, const K: usize, const OP: i32, const DOWN: bool>(
    x: Ptr<T>,
    out: PtrMut<T>,
    place: PtrMut<i32>,
) {
    let rows = arange(0, M)[(.., None)];
    let (at, few) = (rows * N + arange(0, N), rows * K + arange(0, K));
    let v = load(x + at);
    if OP == 0 {
        if DOWN {
            store(out + at, sort(v, descending = true));
        } else {
            store(out + at, v.sort());
        }
    } else if OP == 1 {
        if DOWN {
            let (values, indices) = topk(v, K, return_indices = true);
            store(out + few, values);
            store(place + few, indices);
        } else {
            let (values, indices) = topk(v, K, axis = -1, smallest = true, return_indices = true);
            store(out + few, values);
            store(place + few, indices);
        }
    } else if OP == 2 {
        if DOWN {
            store(place + at, argsort(v, axis = 1, descending = true));
        } else {
            store(place + at, argsort(v));
        }
    } else {
        if DOWN {
            store(out + at, sort(v, axis = 0, descending = true));
        } else {
            store(out + at, sort(v, axis = 0));
        }
    }
}

/// The order of sorting: that of the numbers, `-0.0` below `0.0`, NaN above all else.
fn order<T: Element>(a: T, b: T) -> Ordering {
    if !T::IS_FLOAT {
        return a.to_int().cmp(&b.to_int());
    }
    let (a, b) = (a.to_f64(), b.to_f64());
    a.is_nan().cmp(&b.is_nan()).then(if a.is_nan() { Ordering::Equal } else { a.total_cmp(&b) })
}

/// The indices of a line in order, of equal elements the first one first.
fn sorted<T: Element>(line: &[T], down: bool) -> Vec<usize> {
    let mut places: Vec<usize> = (0..line.len()).collect();
    places.sort_by(|&i, &j| if down { order(line[j], line[i]) } else { order(line[i], line[j]) });
    places
}

fn sort_case<T: Element>(device: &Device, [m, n, k]: [usize; 3], op: i32, down: bool) -> Outcome {
    let mut random = Random::new(36);
    let mut x: Vec<T> = random.elements(m * n);
    // Equal elements, and those that are in no order with others.
    for i in (0..m * n).step_by(3) {
        x[i] = T::from_int(i128::from(random.below(4)));
    }
    if T::IS_FLOAT && n > 4 {
        [-0.0, f64::INFINITY, f64::NAN, 0.0].map(T::from_f64).into_iter().enumerate().for_each(|(i, v)| x[i] = v);
    }
    let (mut out, mut place) = (device.zeros::<T>(m * n)?, device.zeros::<i32>(m * n)?);
    let consts = OrderedConsts { M: m, N: n, K: k, OP: op, DOWN: down };
    consts.call(&device.upload(&x)?, &mut out, &mut place).grid(1).launch(device)?;
    if op == 3 {
        let mut want = x.clone();
        for column in 0..n {
            let line: Vec<T> = (0..m).map(|row| x[row * n + column]).collect();
            sorted(&line, down).into_iter().enumerate().for_each(|(row, from)| want[row * n + column] = line[from]);
        }
        return equal(&out.to_vec()?, &want);
    }
    let kept = if op == 1 { k } else { n };
    let lines: Vec<(&[T], Vec<usize>)> = x.chunks(n).map(|line| (line, sorted(line, down)[..kept].to_vec())).collect();
    let places: Vec<i32> = lines.iter().flat_map(|(_, order)| order.iter().map(|&i| i as i32)).collect();
    let values: Vec<T> = lines.iter().flat_map(|(line, order)| order.iter().map(|&i| line[i])).collect();
    if op != 2 {
        equal(&out.to_vec()?[..m * kept], &values)?;
    }
    if op == 0 { Ok(()) } else { equal(&place.to_vec()?[..m * kept], &places) }
}

fn sorts() -> Row {
    let mut row = Row::new("C36", "test_sort").remarks("along any axis; `argsort`, and the indices of `topk`");
    const SIZES: [[usize; 3]; 5] = [[1, 1, 1], [1, 512, 8], [8, 64, 8], [256, 16, 8], [512, 8, 8]];
    macro_rules! each {
        ($t:ident) => {
            for size in SIZES {
                for (op, name) in (0..).zip(["sort", "topk", "argsort", "sort along 0"]) {
                    for (down, way) in [(false, "ascending"), (true, "descending")] {
                        let name = format!("{name} {way} of {} {size:?}", $t::NAME);
                        row.case(name, move |device| sort_case::<$t>(device, size, op, down));
                    }
                }
            }
        };
    }
    for_numbers!(each);
    row
}

#[kernel]
fn turned<T: Num, const M: usize, const N: usize, const FORM: i32>(x: Ptr<T>, out: PtrMut<T>) {
    let at = arange(0, M)[(.., None)] * N + arange(0, N);
    let v = load(x + at);
    if FORM == 0 {
        store(out + at, flip(v));
    } else if FORM == 1 {
        store(out + at, v.flip(axis = 0));
    } else if FORM == 2 {
        // What `ravel` does.
        store(out + arange(0, M * N), reshape(v, [M * N]));
    } else {
        // What `unsqueeze` and `squeeze` do.
        store(out + at, reshape(reshape(v, [1, M, 1, N]) + zeros::<T>([1, 1, 1, 1]), [M, N]));
    }
}

/// Where an element of a matrix is if groups of `group` rows are walked through column by column.
#[device]
fn swizzled(i: i32, j: i32, rows: i32, columns: i32, group: i32) -> (i32, i32) {
    let place = i * columns + j;
    let first = place / (group * columns) * group;
    let height = minimum(rows - first, group);
    let inner = place % (group * columns);
    (first + inner % height, inner / height)
}

#[kernel]
fn walked(out: PtrMut<i32>, rows: i32, columns: i32, group: i32) {
    for i in 0..rows {
        for j in 0..columns {
            let (r, c) = swizzled(i, j, rows, columns, group);
            store(out + (r * columns + c), i * columns + j);
        }
    }
}

fn turns() -> Row {
    fn turn<T: Element>(device: &Device, [m, n]: [usize; 2], form: i32) -> Outcome {
        let mut x: Vec<T> = Random::new(37).elements(m * n);
        if T::IS_FLOAT {
            x[0] = T::from_f64(f64::INFINITY);
        }
        let mut out = device.zeros::<T>(m * n)?;
        TurnedConsts { M: m, N: n, FORM: form }.call(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        let want: Vec<T> = match form {
            0 => x.chunks(n).flat_map(|line| line.iter().rev().copied()).collect(),
            1 => x.chunks(n).rev().flatten().copied().collect(),
            _ => x,
        };
        equal(&out.to_vec()?, &want)
    }
    fn walk(device: &Device, [rows, columns, group]: [usize; 3]) -> Outcome {
        let mut out = device.zeros::<i32>(rows * columns)?;
        walked(&mut out, rows as i32, columns as i32, group as i32).grid(1).launch(device)?;
        let (mut want, mut count) = (vec![0; rows * columns], 0);
        for first in (0..rows).step_by(group) {
            for column in 0..columns {
                for row in first..rows.min(first + group) {
                    want[row * columns + column] = count;
                    count += 1;
                }
            }
        }
        equal(&out.to_vec()?, &want)
    }
    let mut row = Row::new("C37", "test_flip, test_flip_inf, test_ravel, test_squeeze, test_unsqueeze, test_swizzle2d")
        .remarks("`reshape` is `ravel` and `squeeze`; `swizzle2d` is a function of four lines");
    macro_rules! each {
        ($t:ident) => {
            for size in [[1, 512], [8, 64], [256, 16], [512, 8]] {
                for (form, name) in (0..).zip(["flip", "flip along 0", "ravel", "squeeze"]) {
                    row.case(format!("{name} {} {size:?}", $t::NAME), move |device| turn::<$t>(device, size, form));
                }
            }
        };
    }
    for_numbers!(each);
    for size in [[5, 7, 3], [8, 8, 4], [1, 9, 2], [9, 1, 2], [4, 6, 1], [4, 6, 16]] {
        row.case(format!("swizzle2d {size:?}"), move |device| walk(device, size));
    }
    row
}

#[kernel]
fn looked_up<T: Num, I: Int, const M: usize, const N: usize, const P: usize, const AXIS: i32>(
    x: Ptr<T>,
    index: Ptr<I>,
    out: PtrMut<T>,
) {
    let v = load(x + (arange(0, M)[(.., None)] * N + arange(0, N)));
    if AXIS == 0 {
        let at = arange(0, P)[(.., None)] * N + arange(0, N);
        store(out + at, gather(v, load(index + at), axis = 0));
    } else {
        let at = arange(0, M)[(.., None)] * P + arange(0, P);
        store(out + at, v.gather(load(index + at), axis = 1));
    }
}

fn gathers() -> Row {
    fn case<T: Element, I: Element + Int>(device: &Device, [m, n, p]: [usize; 3], axis: usize, warps: u32) -> Outcome {
        let mut random = Random::new(38);
        let (size, len) = if axis == 0 { (m, p * n) } else { (n, m * p) };
        let (x, index): (Vec<T>, Vec<I>) = (random.elements(m * n), random.small(len, 0, size as i128 - 1));
        let mut out = device.zeros::<T>(len)?;
        let (values, indices) = (device.upload(&x)?, device.upload(&index)?);
        let consts = LookedUpConsts { M: m, N: n, P: p, AXIS: axis as i32 };
        consts.call(&values, &indices, &mut out).grid(1).num_warps(warps).launch(device)?;
        let want = index.iter().enumerate().map(|(i, at)| {
            let at = at.to_int() as usize;
            if axis == 0 { x[at * n + i % n] } else { x[i / p * n + at] }
        });
        equal(&out.to_vec()?, &want.collect::<Vec<T>>())
    }
    let mut row = Row::new("C38", "test_gather, test_gather_warp_shuffle");
    macro_rules! each {
        ($($t:ident $i:ident)*) => {$(
            for (size, axis) in [
                ([4, 4, 8], 0), ([32, 32, 16], 0), ([128, 64, 256], 0), ([128, 64, 128], 1), ([32, 2, 32], 1), ([1, 64, 64], 1),
            ] {
                for warps in [1, 4] {
                    if warps == 1 && size[0] * size[1] > 4096 {
                        continue;
                    }
                    let name = format!("{} by {}, {size:?} along {axis}, {warps} warps", $t::NAME, $i::NAME);
                    row.case(name, move |device| case::<$t, $i>(device, size, axis, warps));
                }
            }
        )*};
    }
    each!(f32 i32 f16 i32 i8 i32 i64 i32 f32 i64 f32 u8);
    row
}

#[kernel]
fn total_in_loop<const M: usize, const N: usize, const OP: i32>(x: Ptr<f32>, out: PtrMut<f32>, columns: i32) {
    let (rows, start) = (arange(0, M), program_id(0) * columns);
    let mut total = full(
        [M],
        if OP == 1 {
            f32::NEG_INFINITY
        } else if OP == 2 {
            f32::INFINITY
        } else {
            0.0
        },
    );
    let mut parts = zeros::<f32>([M, N]);
    for first in (start..start + columns).step_by(N) {
        let v = load(x + (rows[(.., None)] * (columns * num_programs(0)) + (first + arange(0, N))));
        if OP == 0 {
            total += sum(v, axis = 1);
        } else if OP == 1 {
            total = maximum(total, max(v, axis = 1));
        } else if OP == 2 {
            total = minimum(total, min(v, axis = 1));
        } else {
            parts += v;
        }
    }
    store(out + program_id(0) * M + rows, if OP == 3 { sum(parts, axis = 1) } else { total });
}

fn reductions_in_loops() -> Row {
    fn case(device: &Device, op: i32, block: usize, columns: usize, programs: usize) -> Outcome {
        const M: usize = 32;
        let x: Vec<f32> = Random::new(39).small(M * columns, -100, 100);
        let (mut out, each) = (device.zeros::<f32>(M * programs)?, columns / programs);
        let consts = TotalInLoopConsts { M, N: block, OP: op };
        consts.call(&device.upload(&x)?, &mut out, each as i32).grid(programs).launch(device)?;
        let want = (0..M * programs).map(|i| {
            let line = &x[i % M * columns + i / M * each..][..each];
            match op {
                1 => line.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                2 => line.iter().copied().fold(f32::INFINITY, f32::min),
                _ => line.iter().sum(),
            }
        });
        equal(&out.to_vec()?, &want.collect::<Vec<f32>>())
    }
    let mut row = Row::new("C39", "test_optimize_thread_locality")
        .remarks(
            "no pass moves a reduction out of its loop: the kernel keeps partial results in a tile and reduces that behind it, \
             whose code is asserted; exact, where Triton allows 1 %",
        );
    for (op, name) in (0..).zip(["sum", "max", "min", "partial sums"]) {
        for block in [32, 64, 128] {
            for columns in [512, 1024, 2048] {
                for programs in [2, 4] {
                    let name = format!("{name} of 32 x {columns} in blocks of {block}, {programs} programs");
                    row.case(name, move |device| case(device, op, block, columns, programs));
                }
            }
        }
    }
    row.host("threads do not meet in the loop of partial sums", || {
        let compiled = TotalInLoopConsts { M: 32, N: 128, OP: 3 }.compile(Target::sm_90a())?;
        let lines: Vec<&str> = compiled.ptx().lines().collect();
        let last_jump = lines.iter().rposition(|line| line.contains("bra"));
        let first_meeting = lines.iter().position(|line| line.contains("shfl.sync") || line.contains("bar.sync"));
        if last_jump < first_meeting { Ok(()) } else { Err(Failure(format!("{last_jump:?}, {first_meeting:?}"))) }
    });
    row
}
