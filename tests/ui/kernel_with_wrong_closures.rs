//! Closures of reductions see their arguments only.

use tilewright::prelude::*;

#[kernel]
fn closures<const N: usize>(x: PtrMut<i32>, n: i32) {
    let tile = arange(0, N);
    let captured = reduce(tile, axis = 0, |a, b| a + b * n);
    let loaded = reduce(tile, axis = 0, |a, b| load(x + a) + b);
    let other = reduce(tile, axis = 0, |a, b| a < b);
    let one = reduce(tile, axis = 0, |a| a);
    let pairs = reduce(tile, axis = 0, |(a, i), (b, j)| a);
    let single = reduce((tile, tile), axis = 0, |(a, i), (b, j)| a);
    let none = reduce(tile, axis = 0);
    let looping = reduce(tile, axis = 0, |a, b| {
        for i in 0..3 {}
        a
    });
}

fn main() {}
