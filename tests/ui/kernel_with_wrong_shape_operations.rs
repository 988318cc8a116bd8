//! Axes and orders of axes.

use tilewright::prelude::*;

#[kernel]
fn axes<const M: usize, const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let t = zeros::<f32>([M, N]);
    let v = arange(0, M);
    let a = expand_dims(v, 3);
    let b = v.expand_dims(n);
    let c = trans(v);
    let d = permute(t, [0, 0]);
    let e = permute(t, [0]);
    let f = permute(t, [1, 2]);
    let g = permute(t, (1, 0));
    let h = v[(.., ..)];
    let i = v[None];
    let j = v[0];
    let k = v[(.., 1..3)];
    let l = t[(.., None)];
    let m = v[n];
    let o = trans(1.0);
    let p = broadcast_to(v, M);
    let q = sum(t, axis = 2);
    let r = t[(.., .., None)] + v[(.., None, None, None)];
}

fn main() {}
