//! Operations on whole tiles, of tiles that they do not take.

use tilewright::prelude::*;

#[kernel]
fn operations<const N: usize>(x: Ptr<f32>, ids: Ptr<i32>, out: PtrMut<f32>) {
    let a = load(x + arange(0, N));
    let ids = load(ids + arange(0, 16));
    let (b, c) = split(a);
    let d = sort(load(x));
    let e = sort(x + arange(0, N));
    let f = topk(a, 0);
    let g = gather(reshape(a, [N, 1]), ids);
    let h = gather(a, a);
    let i = a.histogram(4);
    let j = argsort(a, axis = 1);
    store(out + arange(0, N), a);
}

fn main() {}
