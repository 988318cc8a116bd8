//! A value that nothing uses is a mistake.

use tilewright::prelude::*;

#[kernel]
fn unused(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    load(x);
    n + 1;
    1.0;
    (n, n);
    if n > 0 {
        n
    } else {
        4
    };
    if n > 0 {
        load(x)
    } else {
        load(x)
    }
    n == 4;
    exp(load(x))
}

fn main() {}
