//! Patterns are names and tuples.

use tilewright::prelude::*;

#[kernel]
fn patterns(out: PtrMut<f32>, n: i32) {
    let (a, b) = (1, 2, 3);
    let (c, d) = n;
    let (e, f) = store(out, 1.0);
    let [g, h] = arange(0, 2);
    let Some(i) = n;
    let ref j = n;
    let k @ _ = n;
    let 4 = n;
    let mut l = (1, 2);
    let (m, ..) = (1, 2);
    let mut o = store(out, 1.0);
    let p = store(out, 1.0);
    let q = p + 1;
    let (r, (s, t)) = (1, 2);
}

fn main() {}
