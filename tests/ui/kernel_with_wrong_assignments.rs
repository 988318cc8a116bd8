//! Only `let mut` variables are assigned to.

use tilewright::prelude::*;

#[kernel]
fn immutable<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32, eps: Const<f32>) {
    let a = 1.0;
    a = 2.0;
    n += 1;
    N = 4;
    eps *= 2.0;
    let t = (1, 2);
    t = (3, 4);
    for i in 0..4 {
        i += 1;
    }
    x += 1;
    undeclared = 4;
    undeclared += 4;
    load(x) = 1.0;
    a + 1.0 = 2.0;
    let mut pair = (1, 2);
    let (mut c, mut d) = (1, 2);
    (c, d) = (d, c, c);
    (c, d) = 1;
    c = (1, 2);
    let mut e;
    e = 1;
    let f = (c = 4);
}

fn main() {}
