//! Positional arguments, named ones, dtypes in a turbofish.

use tilewright::prelude::*;

#[kernel]
fn counts(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = arange(0, 16);
    let a = load();
    let b = load(x, i, n);
    store(out);
    let c = arange(16);
    let d = program_id();
    let e = program_id(3);
    let f = program_id(n);
    let g = exp(load(x), load(x));
    let h = load(x).exp(1);
    let j = select(i < 4, i);
    let k = maximum(i);
    let l = max(load(x), 0.0);
    let m = load(x).max();
    let o = zeros();
}

#[kernel]
fn named(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = arange(0, 16);
    let v = load(x + i);
    let w = load(x + i, msk = i < n);
    let a = load(x + i, mask = i < n, mask = i < 4);
    let b = load(pointer = x);
    let c = sum(v, axes = 0);
    let d = sum(v, 0);
    let e = exp(v, fast = true);
    let f = sum(v, axis = 0, keep_dims = n);
    let g = sum(v, axis = n);
    let h = sum(v, axis = 1);
    let j = sum(v, axis = -2);
    let k = arange(start = 0, end = 16);
    let l = maximum(v, v, propagate_nan = 1);
}

#[kernel]
fn turbofish(x: Ptr<f32>, out: PtrMut<f32>) {
    let a = load::<f32>(x);
    let b = load(x).to();
    let c = load(x).to::<f32, f16>();
    let d = bitcast(load(x));
    let e = zeros::<4>([4]);
    let f = zeros::<usize>([4]);
    let g = load(x).exp::<f32>();
    let h = bitcast::<f46>(load(x));
}

fn main() {}
