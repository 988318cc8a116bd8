//! Loads and stores.

use tilewright::prelude::*;

#[kernel]
fn accesses<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = arange(0, N);
    store(x + i, 1.0);
    let value = load(n);
    let masked = load(x + i, i < n);
    let other = load(x + i, other = 0.0);
    let integer = load(x + i, mask = i < n, other = 0);
    let cached = load(x, cache = wb);
    let evicted = load(x, eviction = evict_frist);
    let number = load(x, mask = n);
    let mixed = x + out;
    let scaled = x * 2;
    let fraction = load(x + 0.5);
    out[n] = 1.0;
    *out = 1.0;
}

fn main() {}
