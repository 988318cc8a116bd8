//! Hints about values that have no such properties.

use tilewright::prelude::*;

#[kernel]
fn hints<const N: usize>(x: Ptr<f32>, out: PtrMut<i32>, n: i32, s: f32) {
    let i = arange(0, N);
    let a = multiple_of(s, 4);
    let b = multiple_of(x, 4);
    let c = multiple_of(n, n);
    let d = multiple_of(n, 0);
    let e = max_contiguous(n, 4);
    let f = max_contiguous(i, 6);
    let g = max_constancy(i, 4, axis = 1);
    let h = max_constancy(i, 4, multiple_of = 4);
    assume(i < n);
    multiple_of(n, 16);
    store(out + i, i);
}

fn main() {}
