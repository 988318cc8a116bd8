//! Shapes broadcast as in NumPy, for all values of the constexprs.

use tilewright::prelude::*;

#[kernel]
fn operators<const M: usize, const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let (m, n) = (arange(0, M), arange(0, N));
    let a = m + n;
    let b = m[(.., None)] * 10 + n;
    let c = load(x + b) + load(x + m);
    let mut d = zeros::<f32>([M, N]);
    d += load(x + m);
    let e = arange(0, M / 2) + arange(0, M);
    let f = arange(0, M * 2) + arange(0, M + M);
    let g = full([8], 1.0) + full([16], 1.0);
    let h = full([8, 4], 1) + arange(0, 8);
}

#[kernel]
fn calls<const M: usize, const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let (m, n) = (arange(0, M), arange(0, N));
    let a = select(m < 4, load(x + n), 0.0);
    let b = maximum(m, n);
    let c = fma(load(x + m), 2.0, load(x + n));
    let d = broadcast_to(m, [N, 4]);
    let e = broadcast_to(full([M, N], 1), [N]);
    let f = reshape(m, [N, 2]);
    let g = reshape(full([M, N], 1), [N, M]);
    let h = reshape(full([4, 4], 1), [8]);
    let j = reshape(m, [M / 2, 2]);
    let k: Tile<i32, { [N] }> = m;
}

#[kernel]
fn products<const A: usize, const B: usize, const C: usize, const D: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let t = load(x + arange(0, A)[(.., None)] * B + arange(0, B));
    store(out + arange(0, C)[(.., None)] * D + arange(0, D), reshape(t, [C, D]));
    let u = t + zeros([2 * C, B]);
    store(out, sum(reshape(t, [A / 2, B])));
}

/// As the help says.
#[kernel]
fn products_that_agree<const A: usize, const B: usize, const C: usize, const D: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    static_assert!(A == 2 * C && D == 2 * B);
    let t = load(x + arange(0, A)[(.., None)] * B + arange(0, B));
    store(out + arange(0, C)[(.., None)] * D + arange(0, D), reshape(t, [C, D]));
    store(out, sum(t + zeros([2 * C, B])));
}

fn main() {}
