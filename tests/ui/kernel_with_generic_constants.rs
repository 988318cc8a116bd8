//! Constants of the module have one type, which rustc checks.

use tilewright::prelude::*;

const WIDE: i64 = 4;
const SCALE: f64 = 0.5;
const NAME: &str = "name";
const SIZE: i32 = 16;
const LENGTH: usize = 16;

mod inner {
    pub const LIMIT: u8 = 4;
}

#[kernel]
fn wrong_types(x: Ptr<i32>, y: Ptr<f32>, out: PtrMut<i32>) {
    store(out, load(x) + WIDE);
    store(out, (load(y) * SCALE) as i32);
    store(out, NAME);
    store(out, inner::LIMIT);
    store(out, inner::NOTHING);
}

#[kernel]
fn shapes(out: PtrMut<f32>) {
    store(out + arange(0, SIZE), 1.0);
}

#[kernel]
fn generic<T: Num>(x: Ptr<T>, out: PtrMut<T>) {
    store(out, load(x) + WIDE);
}

#[kernel]
fn right(out: PtrMut<i32>) {
    store(out + arange(0, LENGTH), inner::LIMIT as i32);
}

fn main() {}
