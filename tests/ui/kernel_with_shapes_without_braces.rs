//! Shapes in types, without the braces that Rust wants.

use tilewright::prelude::*;

#[kernel]
fn parameters<const M: usize, const N: usize>(a: TensorDesc<f32, [M, N]>, b: TensorDescMut<f32, [64, 2 * N]>) {
    b.store([0, 0], a.load([0, 0]));
}

#[kernel]
fn annotation<const M: usize>(out: PtrMut<f32>) {
    let a: Tile<f32, [M, M]> = zeros([M, M]);
    store(out, sum(a));
}

#[kernel]
fn no_type(out: PtrMut<f32>, n: 3) {
    store(out, 1.0);
}

fn main() {}
