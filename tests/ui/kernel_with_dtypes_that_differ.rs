//! dtypes are not mixed.

use tilewright::prelude::*;

#[kernel]
fn operators<T: Num, U: Num>(x: Ptr<f32>, n: Ptr<i32>, d: Ptr<f64>, t: Ptr<T>, u: Ptr<U>, out: PtrMut<f32>) {
    let i = arange(0, 16);
    let a = load(x + i) + load(n + i);
    let b = load(d + i) * load(x + i);
    let c = load(t + i) - load(u + i);
    let e = load(n + i) < load(x + i);
    let f = (i < 4) + i;
    let g = i & (i < 4);
    let mut h = load(x + i);
    h += i;
    let j = load(x) + true;
    store(out + i, load(n + i));
}

#[kernel]
fn calls(x: Ptr<f32>, n: Ptr<i32>, wide: Ptr<i64>, out: PtrMut<f32>) {
    let i = arange(0, 16);
    let a = maximum(load(x + i), load(n + i));
    let b = select(i, load(x + i), 0.0);
    let c = select(i < 4, load(x + i), i);
    let d = fma(load(x + i), 2.0, load(n + i));
    let e = clamp(load(n + i), 0, 10.0);
    let f = full::<i32>([16], 1.5);
    let g = load(x + i, mask = i < 4, other = 0);
    let h = load(n + i) + load(wide + i);
    let j = cdiv(1.0, 2.0);
    let k = load(x + i, mask = load(x + i));
}

fn main() {}
