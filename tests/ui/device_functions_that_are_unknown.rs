//! Functions that rustc does not find as such.

use tilewright::prelude::*;

mod private {
    use tilewright::prelude::*;

    #[device]
    fn hidden(x: i32) -> i32 {
        x
    }
}

fn ordinary(x: i32) -> i32 {
    x
}

#[kernel]
fn calls_an_ordinary_function(out: PtrMut<i32>) {
    store(out, ordinary(1));
}

#[kernel]
fn calls_nothing(out: PtrMut<i32>) {
    store(out, missing(1));
}

#[kernel]
fn calls_a_private_function(out: PtrMut<i32>) {
    store(out, private::hidden(1));
}

#[device]
fn one(x: i32) -> i32 {
    other(x)
}

#[device]
fn other(x: i32) -> i32 {
    one(x)
}

fn main() {
    // The launchers are there nevertheless.
    let device = Device::cpu();
    let mut out = device.zeros::<i32>(1).unwrap();
    calls_an_ordinary_function(&mut out).grid(1).launch(&device).unwrap();
    let _ = CallsNothingConsts {}.compile(Target::sm_90a());
}
