//! dtypes are never converted silently.

use tilewright::prelude::*;

#[kernel]
fn mixed(x: Ptr<f32>, h: Ptr<f16>, out: PtrMut<f32>, n: i32) {
    store(out, load(x) + n);
    store(out, load(x) + 1);
    store(out, load(h));
    store(out, n + 1.5);
    store(out, exp(n));
    store(out, !load(x));
    if n {
        store(out, 0.0);
    }
}

#[kernel]
fn generic<T: Num>(x: Ptr<T>, out: PtrMut<T>) {
    store(out, load(x) + 1);
    store(out, load(x) * 0.5);
    store(out, load(x).exp());
    store(out, T::NEG_INFINITY);
}

#[kernel]
fn literals(out: PtrMut<u8>) {
    store(out, 256);
    store(out, -1);
}

fn main() {}
