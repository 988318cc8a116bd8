//! Constants of 128 bits that become a dtype parameter: seen by `cargo check`.

use tilewright::prelude::*;

const WIDE: u128 = 1 << 64;
const DEEP: i128 = -(1 << 63) - 1;
const ALL: u128 = u128::MAX;
/// These fit.
const LARGEST: u128 = u64::MAX as u128;
const LEAST: i128 = i64::MIN as i128;
const FLOAT: f64 = 1e300;

#[device]
fn deep<T: Num>() -> T {
    DEEP as T
}

#[kernel]
fn wide<T: Num>(out: PtrMut<T>) {
    store(out, WIDE as T);
    store(out, ALL as T + deep::<T>());
    store(out, LARGEST as T + LEAST as T + FLOAT as T);
}

fn main() {}
