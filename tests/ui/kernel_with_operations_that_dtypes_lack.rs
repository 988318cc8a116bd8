//! Operations ask for dtypes.

use tilewright::prelude::*;

#[kernel]
fn known(x: Ptr<f32>, n: Ptr<i32>, u: Ptr<u32>, b: Ptr<bool>, out: PtrMut<f32>) {
    let i = arange(0, 16);
    let a = exp(load(n + i));
    let c = load(u + i).sqrt();
    let d = -load(u + i);
    let e = !load(x + i);
    let f = load(x + i) & load(x + i);
    let g = load(x + i) << 2;
    let h = load(b + i) + load(b + i);
    let j = load(b + i) < load(b + i);
    let k = abs(load(b + i));
    let l = umulhi(load(x + i), load(x + i));
    let m = fma(load(n + i), 2, 3);
    let o = div_rn(load(n + i), 2);
    let p = sum(load(b + i), axis = 0);
    let q = argmax(load(b + i), axis = 0);
    let r = cdiv(load(x + i), 2.0);
    let s = -true;
    let t = exp(i < 4);
}

#[kernel]
fn bounded<D: DType, N: Num, I: Int>(d: Ptr<D>, n: Ptr<N>, i: Ptr<I>, out: PtrMut<N>) {
    let a = load(d) + load(d);
    let b = exp(load(n));
    let c = -load(n);
    let e = load(n) & load(n);
    let f = -load(i);
    let g = exp(load(i));
    let h = N::NAN;
    let j = D::MAX;
    let k = d + load(n);
    let l = !load(d);
}

#[kernel]
fn open_literals(out: PtrMut<i32>) {
    let a = 2.0;
    let b = exp(a);
    store(out, a);
}

fn main() {}
