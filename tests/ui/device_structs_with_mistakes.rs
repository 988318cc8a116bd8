//! Structs of this crate and of another that are declared, made and used wrongly.

use tilewright::prelude::*;
use tilewright_tests::functions::statistics::{Stats, extended};

#[device]
struct Pair(f32, f32);

#[derive(Clone, Copy)]
struct Ordinary {
    x: f32,
}

#[device]
struct Large {
    a: f64,
    b: usize,
}

#[kernel]
fn makes<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let row = load(x + arange(0, N));
    let a = Stats { max: row, sum: row };
    let b = Stats { max: row, sum: 1.0, count: 0 };
    let c = Stats { max: row, sum: row, cnt: 0 };
    let mut d = Stats { max: row, sum: row, count: 0 };
    d.count = 1.5;
    d = extended(d, zeros::<f16>([N]));
    store(out, d.mean);
}

#[kernel]
fn names_an_ordinary_struct(out: PtrMut<f32>) {
    let ordinary = Ordinary { x: 1.0 };
    store(out, ordinary.x);
}

#[kernel]
fn takes(stats: Stats<f32, 16>, out: PtrMut<f32>) {
    store(out, stats.max);
}

fn main() {
    let ordinary = Ordinary { x: 1.0 };
    let stats = Stats { max: 1.0 };
}
