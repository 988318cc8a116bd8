//! What is no Rust, and forms of Python.

use tilewright::prelude::*;

#[kernel]
fn statements(x: Ptr<f32>, out: PtrMut<f32>) {
    let a = load(x) load(x);
}

#[kernel]
fn numpy(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange(0, 16);
    store(out + i, where(i < 4, load(x + i), 0.0));
}

#[kernel]
fn slices(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange(0, 16);
    let a = i[:, None];
}

#[kernel]
fn power(x: Ptr<f32>, out: PtrMut<f32>) {
    store(out, load(x) ** 2);
}

#[kernel]
fn lambda(x: Ptr<f32>, out: PtrMut<f32>) {
    store(out, load(x) if true else 0.0);
}

fn main() {}
