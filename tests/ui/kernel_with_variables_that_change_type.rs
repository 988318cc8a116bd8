//! A variable keeps its dtype, its shape and its buffer.

use tilewright::prelude::*;

#[kernel]
fn carried<const M: usize, const N: usize>(x: Ptr<f32>, y: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = arange(0, N);
    let mut total = 0.0;
    for k in 0..n {
        total += load(x + i);
    }
    let mut tile = zeros::<f32>([N]);
    for k in 0..n {
        tile = sum(tile, axis = 0);
    }
    let mut wide = zeros::<f32>([N]);
    while n > 0 {
        wide = zeros::<f32>([M]);
    }
    let mut count = 0;
    for k in 0..n {
        count = load(x);
    }
    let mut pointer = x;
    for k in 0..n {
        pointer = y + k;
    }
    let mut value = 1.0;
    if n > 4 {
        value = x;
    }
    let mut number = load(x);
    number = number as f64;
    let mut flag = false;
    flag = 1;
}

#[kernel]
fn summed(x: Ptr<f32>, n: i32) {
    let mut total = 0;
    let mut largest = i32::MIN;
    for i in 0..n {
        total = total + load(x + i);
        largest = maximum(largest, load(x + i));
    }
}

fn main() {}
