//! Reductions.

use half::{bf16, f16};
use tilewright::prelude::*;

use crate::elements::{Element, Random, close, equal};
use crate::for_numbers;
use crate::runner::{Outcome, Row};

/// The rows of this module.
pub fn rows() -> Vec<Row> {
    vec![one_dimension()]
}

const OPS: [&str; 7] = ["sum", "max", "min", "argmax", "argmin", "xor_sum", "prod"];

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
        1 | 2 => equal(&out.to_vec()?, &[x[best(op == 1)]]),
        0 => close(&out.to_vec()?, &[T::from_int(x.iter().map(|x| x.to_int()).sum())], 1e-2, 0.0),
        _ => equal(&out.to_vec()?, &[T::from_int(x.iter().map(|x| x.to_int()).product())]),
    }
}

fn one_dimension() -> Row {
    let mut row = Row::new("C25", "test_reduce1d");
    macro_rules! sizes {
        ($t:ident: $($n:literal)*) => {$(
            for (op, name) in (0..).zip(OPS) {
                if name != "xor_sum" {
                    let name = format!("{name} of {} {}", $n, $t::NAME);
                    row.case(name, move |device| line_case::<$t, $n>(device, op));
                }
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
