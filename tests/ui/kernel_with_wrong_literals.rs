//! Literals fit their dtype.

use tilewright::prelude::*;

#[kernel]
fn ranges<T: Num, U: Int>(out: PtrMut<i8>, unsigned: PtrMut<u32>, t: PtrMut<T>, u: PtrMut<U>) {
    store(out, 200);
    store(out, -129);
    store(unsigned, -1);
    store(t, 1);
    store(t, 0.5);
    store(u, 3);
    store(u, 300);
    let a = 5_000_000_000;
    let b = 99999999999999999999999999999999999999999;
    let c = 1 + 5_000_000_000_i32;
    let d = 18446744073709551616;
    store(unsigned, 18446744073709551615);
}

#[kernel]
fn suffixes(out: PtrMut<f32>) {
    store(out, 1_f32 + 2f32);
    store(out, 1i128);
    store(out, 1.0f8);
    store(out, 1u4);
}

#[kernel]
fn classes(x: Ptr<f32>, n: Ptr<i32>, out: PtrMut<f32>) {
    store(out, load(x) + 1);
    store(out, load(n) * 1.5);
    store(out, 1);
    store(out, 1 + 0.5);
    store(out, 1e39);
    store(out, exp(2));
}

#[kernel]
fn texts(out: PtrMut<f32>) {
    let a = "text";
    let b = 'c';
    let c = b'c';
    let d = b"bytes";
}

fn main() {}
