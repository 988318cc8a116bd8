//! Axes and indices of tiles.

use tilewright::prelude::*;

#[kernel]
fn axes<const M: usize, const N: usize>(out: PtrMut<f32>, n: i32) {
    let tile = zeros::<f32>([M, N]);
    let beyond = sum(tile, axis = 2);
    let late = sum(tile, axis = n);
    let scalar = sum(n);
    let element = tile[0];
    let too_few = tile[(.., None)];
    let row = trans(arange(0, N));
    let twice = permute(tile, [0, 0]);
    let outside = expand_dims(tile, 4);
}

fn main() {}
