//! Pointers, masks and values of accesses.

use tilewright::prelude::*;

#[kernel]
fn pointers(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = arange(0, 16);
    store(x + i, 1.0);
    let a = load(n);
    let b = load(i);
    store(load(x), 1.0);
    let c = *x;
    *out = 1.0;
    let d = x[i];
    out[i] = 1.0;
    let e = &x;
    let f = exp(x);
    let g = x as i64;
    let h = x + 0.5;
    let j = x * 2;
    let k = x - out;
    let l = x == out;
    let m = if n > 0 { x } else { out };
    let o = select(n > 0, x, out);
    let p = -x;
    store(out, x);
}

#[kernel]
fn masks<const M: usize, const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let (i, j) = (arange(0, M), arange(0, N));
    let a = load(x + i, mask = j < n);
    let b = load(x + i, mask = i < n, other = j);
    let c = load(x, mask = i < n);
    let d = load(x + i, other = 0.0);
    let e = load(x + i, mask = n);
    let f = load(x + i[(.., None)] + j, mask = i < n);
    store(out + i, load(x + j));
    store(out, load(x + i));
    store(out + i, load(x + i), mask = j[(.., None)] < n);
    store(out + i, load(x + i), mask = i);
}

#[kernel]
fn options(x: Ptr<f32>, out: PtrMut<f32>) {
    let a = load(x, cache = cgg);
    let b = load(x, cache = wb);
    let c = load(x, eviction = first);
    let d = load(x, eviction = "evict_first");
    store(out, a, cache = ca, other = 0.0);
    let e = load(x, mask, 0.0);
    let f = load(x, true);
}

fn main() {}
