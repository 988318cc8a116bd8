//! Reductions, scans and their closures.

use tilewright::prelude::*;

#[kernel]
fn reductions(x: Ptr<f32>, out: PtrMut<f32>) {
    let v = load(x + arange(0, 16));
    let w = load(x + arange(0, 8));
    let a = sum(load(x), axis = 0);
    let b = argmax(1.0);
    let c = reduce(v, axis = 0);
    let d = reduce(v, |a, b| a + b, axis = 0, 4);
    let e = reduce(v, axis = 0, sum);
    let f = reduce(v, axis = 0, |a| a);
    let g = reduce(v, axis = 0, |a, b, c| a);
    let h = reduce(v, axis = 0, |a, b| a < b);
    let i = reduce(v, axis = 0, |a, b| (a, b));
    let j = reduce((v, w), axis = 0, |(a, b), (c, d)| (a, b));
    let k = reduce((v, v), axis = 0, |a, b| a);
    let l = reduce((v, v), axis = 0, |(a, b), (c, d)| a);
    let m = reduce(v, axis = 0, |a, b| a + load(x));
    let nn = reduce((v, v), axis = 0, |a| a);
    let no = reduce(v, axis = 0, |a, b| { return; a });
    let n = reduce(v, axis = 0, |a, b| a + v);
    let o = reduce(v, axis = 0, |a, b| full([4], a));
    let p = reduce(x + arange(0, 4), axis = 0, |a, b| a);
    let q = reduce(v, axis = 0, |a, b| { for i in 0..4 {} a });
    let r = reduce(v, axis = 0, |a, b| { while a < b {} a });
    let s = reduce(v, axis = 0, |a, b| { store(out, a); a });
    let mut t = 1.0;
    let u = reduce(v, axis = 0, |a, b| { t = a; a + t });
}

#[kernel]
fn scans(x: Ptr<f32>, b: Ptr<bool>, out: PtrMut<f32>) {
    let v = load(x + arange(0, 4)[(.., None)] + arange(0, 8));
    let a = cumsum(v);
    let c = cumsum(load(x));
    let d = cumsum(load(b + arange(0, 4)));
    let e = cumsum(v, axis = 2);
    let f = cumsum(v, axis = 0, reverse = 1);
    let g = associative_scan(v, axis = 0);
    let h = associative_scan(v, |a, b| a + b);
    let i = associative_scan(v, axis = 1, |a, b| a < b);
    let j = scan(v, axis = 0, |a, b| a + b);
}

fn main() {}
