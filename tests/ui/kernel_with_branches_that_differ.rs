//! Branches of an `if` and values of a variable have one type.

use tilewright::prelude::*;

#[kernel]
fn branches<const N: usize>(x: Ptr<f32>, h: Ptr<f16>, out: PtrMut<f32>, n: i32) {
    let dtype = if n > 0 { load(x) } else { n };
    let shape = if n > 0 { load(x) } else { full([N], 1.0) };
    let count = if n > 0 { (1, 2) } else { (1, 2, 3) };
    let buffer = if n > 0 { x } else { h };
    let none = if n > 0 { 1 };
    let partly = if n > 0 {
        if n > 5 {
            return;
        }
        1
    } else {
        2
    };
    let mut sum = 0.0;
    for i in 0..n {
        sum += load(x + i + arange(0, N));
    }
    let mut tile = zeros::<f32>([N]);
    tile = 0.0;
    let mut float = 1.0;
    float = n;
}

fn main() {}
