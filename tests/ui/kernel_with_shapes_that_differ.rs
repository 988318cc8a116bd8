//! Shapes are checked symbolically.

use tilewright::prelude::*;

#[kernel]
fn shapes<const M: usize, const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let rows = arange(0, M);
    let columns = arange(0, N);
    let sum = rows + columns;
    let tile = load(x + rows[(.., None)] * n + columns) + load(x + rows);
    let value = load(x + rows, mask = columns < n);
    store(out + rows, load(x + columns));
    store(out, load(x + columns));
    let rest = reshape(columns, [N / 2, 2]);
    let annotated: Tile<f32, { [M, N] }> = zeros([N, M]);
}

#[kernel]
fn sizes(out: PtrMut<f32>, n: i32) {
    store(out + arange(0, 100), 0.0);
    let large = zeros::<f32>([2048, 1024]);
    let late = zeros::<f32>([n]);
    let scalar = zeros::<f32>(16);
}

fn main() {}
