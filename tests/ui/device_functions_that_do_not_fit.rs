//! Functions of this crate and of another, with arguments that they do not take: the caller hears of it.

use tilewright::prelude::*;
use tilewright_tests::functions::{activations::silu, even};

mod shapes {
    use tilewright::prelude::*;

    #[device]
    pub fn sums<T: Num, const M: usize, const N: usize>(x: Tile<T, { [M, N] }>, y: Tile<T, { [N] }>) -> Tile<T, { [M] }> {
        sum(x * y[(None, ..)], axis = 1)
    }

    #[device]
    pub fn spread<const N: usize>(x: f32) -> Tile<f32, { [N] }> {
        full([N], x)
    }
}

use shapes::{spread, sums};

#[kernel]
fn arguments<const M: usize, const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let tile = zeros::<f32>([M, N]);
    let a = silu(arange(0, N));
    let b = silu(tile);
    let c = sums(tile, zeros::<f32>([M]));
    let d = sums(tile);
    let e = sums(tile, x);
    let f = even(arange(0, 1));
    let g = spread(1.0);
    let h = spread::<N>(n);
    store(out, a);
}

fn main() {}
