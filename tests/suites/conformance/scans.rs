//! Scans.

use half::bf16;
use tilewright::prelude::*;

use crate::elements::{Element, Random, close, equal};
use crate::runner::{Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![checked_sums(), two_dimensions(), one_dimension()]
}

/// A module with the scans along an axis, in one direction.
macro_rules! scans {
    ($name:ident, $axis:literal, $reverse:literal) => {
        mod $name {
            use tilewright::prelude::*;

            #[kernel]
            pub fn scanned<T: Num, const M: usize, const N: usize, const OP: i32>(
                x: Ptr<T>,
                y: Ptr<T>,
                out: PtrMut<T>,
                places: PtrMut<i64>,
            ) {
                let at = arange(0, M)[(.., None)] * N + arange(0, N)[(None, ..)];
                let (a, b) = (load(x + at), load(y + at));
                if OP == 0 {
                    store(out + at, cumsum(a, axis = $axis, reverse = $reverse));
                } else if OP == 1 {
                    store(out + at, cumprod(a, axis = $axis, reverse = $reverse));
                } else if OP == 2 {
                    store(out + at, associative_scan(a, axis = $axis, reverse = $reverse, |first, _next| first));
                } else if OP == 3 {
                    let (_, sums) =
                        associative_scan((a, b), axis = $axis, reverse = $reverse, |(a, b), (c, d)| (a * c, b * c + d));
                    store(out + at, sums);
                } else if OP == 4 {
                    let place = if $axis == 0 { at / N } else { at % N };
                    let (values, found) =
                        associative_scan((a, place as i64), axis = $axis, reverse = $reverse, |(v, i), (w, j)| {
                            if v > w { (v, i) } else { (w, j) }
                        });
                    store(out + at, values);
                    store(places + at, found);
                } else {
                    let (ones, none) = (full([M, N], 1 as T), zeros::<T>([M, N]));
                    let (_, last, _) = associative_scan(
                        (ones, none, a),
                        axis = $axis,
                        reverse = $reverse,
                        |(n, _last, before), (k, last, now)| (n + k, select(k == 1 as T, before, 0 as T) + last, now),
                    );
                    store(out + at, last);
                }
            }
        }
    };
}
scans!(down, 0, false);
scans!(up, 0, true);
scans!(right, 1, false);
scans!(left, 1, true);

const OPS: [&str; 6] = ["cumsum", "cumprod", "get_first_element", "linear_recurrence", "cummax", "roll"];
const SHAPES: [(usize, usize); 7] = [(8, 32), (16, 32), (32, 16), (2, 1024), (1024, 2), (32, 32), (1, 1024)];

/// One choice of the parameters.
#[derive(Clone, Copy)]
struct Scan {
    op: i32,
    shape: (usize, usize),
    axis: usize,
    reverse: bool,
    warps: u32,
}

impl Scan {
    /// The places of each line, in the order of the scan.
    fn lines(self) -> Vec<Vec<usize>> {
        let (m, n) = self.shape;
        let mut lines: Vec<Vec<usize>> = match self.axis {
            0 => (0..n).map(|column| (0..m).map(|row| row * n + column).collect()).collect(),
            _ => (0..m).map(|row| (0..n).map(|column| row * n + column).collect()).collect(),
        };
        if self.reverse {
            lines.iter_mut().for_each(|line| line.reverse());
        }
        lines
    }

    /// Numbers whose running combinations are exact, but for sums of 16-bit floats.
    fn data<T: Element>(self) -> (Vec<T>, Vec<T>) {
        let (mut random, n) = (Random::new(33 + self.op as u64), self.shape.0 * self.shape.1);
        let x = match (self.op, T::IS_FLOAT) {
            (3, _) => random.small(n, -1, 1),
            (0, true) => random.small(n, 0, 3),
            (1, true) => (0..n).map(|_| T::from_f64([1.0, 2.0, 0.5, -1.0][random.below(4) as usize])).collect(),
            _ => random.elements(n),
        };
        (x, random.small(n, -1, 1))
    }

    /// Values and places of a line.
    fn want<T: Element>(self, x: &[T], y: &[T], line: &[usize]) -> (Vec<T>, Vec<usize>) {
        let (mut values, mut places) = (Vec::new(), Vec::new());
        let mut best = line[0];
        let (mut float, mut int) = if self.op == 1 { (1.0, 1i128) } else { (0.0, 0) };
        for (at, &i) in line.iter().enumerate() {
            let (f, g) = (x[i].to_f64(), y[i].to_f64());
            let (a, b) = (x[i].to_int(), y[i].to_int());
            (float, int) = match self.op {
                0 => (float + f, int + a),
                1 => (float * f, T::from_int(int.wrapping_mul(a)).to_int()),
                _ => (float * f + g, T::from_int(int * a + b).to_int()),
            };
            let greater = if T::IS_FLOAT { x[best].to_f64() > f } else { x[best].to_int() > a };
            best = if greater { best } else { i };
            places.push(if self.axis == 0 { best / self.shape.1 } else { best % self.shape.1 });
            values.push(match self.op {
                2 => x[line[0]],
                4 => x[best],
                5 if at == 0 => T::from_int(0),
                5 => x[line[at - 1]],
                _ if T::IS_FLOAT => T::from_f64(float),
                _ => T::from_int(int),
            });
        }
        (values, places)
    }

    fn run<T: Element>(self, device: &Device) -> Outcome {
        let (x, y) = self.data::<T>();
        let (m, n) = self.shape;
        let (mut out, mut places) = (device.zeros::<T>(m * n)?, device.zeros::<i64>(m * n)?);
        let (xs, ys) = (device.upload(&x)?, device.upload(&y)?);
        macro_rules! launch {
            ($name:ident) => {
                $name::ScannedConsts { M: m, N: n, OP: self.op }
                    .call(&xs, &ys, &mut out, &mut places)
                    .num_warps(self.warps)
                    .grid(1)
                    .launch(device)?
            };
        }
        match (self.axis, self.reverse) {
            (0, false) => launch!(down),
            (0, true) => launch!(up),
            (_, false) => launch!(right),
            (_, true) => launch!(left),
        }
        let (mut want, mut found) = (x.clone(), vec![0i64; m * n]);
        for line in self.lines() {
            let (values, places) = self.want(&x, &y, &line);
            for (at, &i) in line.iter().enumerate() {
                (want[i], found[i]) = (values[at], places[at] as i64);
            }
        }
        // Each sum of 16-bit floats is rounded to 8 bits, and so may be those that it is made of.
        close(&out.to_vec()?, &want, if self.op == 0 && T::BITS == 16 { 1e-2 } else { 0.0 }, 0.0)?;
        if self.op == 4 { equal(&places.to_vec()?, &found) } else { Ok(()) }
    }
}

fn two_dimensions() -> Row {
    let mut row = Row::new("C33", "test_scan2d")
        .remarks("all is compared exactly, but sums of `bf16`, to 1e-2; recurrences and maxima of `bf16` too");
    macro_rules! each {
        ($t:ident) => {
            for (op, name) in (0..).zip(OPS) {
                for shape in SHAPES {
                    for (axis, reverse) in [(1, true), (1, false), (0, true), (0, false)] {
                        for warps in [4, 16] {
                            let scan = Scan { op, shape, axis, reverse, warps };
                            let way = if reverse { "backwards" } else { "forwards" };
                            let name = format!("{name} of {} {shape:?}, axis {axis}, {way}, {warps} warps", $t::NAME);
                            row.case(name, move |device| scan.run::<$t>(device));
                        }
                    }
                }
            }
        };
    }
    each!(i32);
    each!(f32);
    each!(bf16);
    row
}

#[kernel]
fn checked<const N: usize>(x: Ptr<i32>, out: PtrMut<i32>) {
    let i = arange(0, N);
    let sums = associative_scan(load(x + i) as i64, |a, b| a + b);
    assert!((sums >= i32::MIN as i64) & (sums <= i32::MAX as i64), "the sum fits");
    store(out + i, sums as i32);
}

fn checked_sums() -> Row {
    let mut row = Row::new("C32", "test_side_effectful_scan").remarks(
        "a closure has no effects, as which elements meet is open, and `assert!` in it is refused: what it combined is \
             asserted behind it, in 64 bits",
    );
    fn case(device: &Device, large: i32) -> Outcome {
        let x: Vec<i32> = (0..512).map(|i| if i < 300 { large } else { 0 }).collect();
        let mut out = device.zeros::<i32>(512)?;
        checked::<512>(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
        let fits = large.checked_mul(300).is_some();
        match out.to_vec() {
            Ok(got) if fits => equal(&got, &(1..=512).map(|i| large * i.min(300)).collect::<Vec<i32>>()),
            Err(Error::AssertFailed { .. }) if !fits => Ok(()),
            other => Err(format!("{other:?}").into()),
        }
    }
    for large in [32, -32, 7_158_278, 7_158_279, -7_158_279] {
        row.case(format!("300 times {large}"), move |device| case(device, large));
    }
    row
}

#[kernel]
fn repeated<const M: usize, const N: usize>(x: Ptr<i32>, out: PtrMut<i32>) {
    let sums = broadcast_to(reshape(cumsum(load(x + arange(0, M))), [1, M]), [N, M]);
    store(out + arange(0, M * N), reshape(sums, [M * N]));
}

#[kernel]
fn counted(x: Ptr<bool>, out: PtrMut<i32>) {
    let i = arange(0, 4);
    store(out + i, cumsum(load(x + i) as i32));
}

fn one_dimension() -> Row {
    let mut row = Row::new("C34", "test_scan_1d, test_cumsum_dtype").remarks("`bool`s are converted explicitly");
    for (m, n) in [(1usize, 64usize), (2, 32), (4, 16), (8, 8), (16, 4), (32, 2), (64, 1)] {
        row.case(format!("{m} sums, {n} times"), move |device| {
            let x: Vec<i32> = Random::new(34).small(m, -100, 99);
            let mut out = device.zeros::<i32>(m * n)?;
            RepeatedConsts { M: m, N: n }.call(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
            let sums: Vec<i32> = (0..m).map(|i| x[..=i].iter().sum()).collect();
            equal(&out.to_vec()?, &sums.repeat(n))
        });
    }
    for (name, x) in [("true", [true; 4]), ("mixed", [true, false, true, true])] {
        row.case(format!("sums of bools, {name}"), move |device| {
            let mut out = device.zeros::<i32>(4)?;
            counted(&device.upload(&x)?, &mut out).grid(1).launch(device)?;
            let sums: Vec<i32> = (0..4).map(|i| x[..=i].iter().map(|&x| i32::from(x)).sum()).collect();
            equal(&out.to_vec()?, &sums)
        });
    }
    row
}
