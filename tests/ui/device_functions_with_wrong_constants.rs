//! Constants of functions: rustc checks their types where the function stands.

use tilewright::prelude::*;

const HALF: f32 = 0.5;
const WIDTH: usize = 16;

#[device]
fn of_another_type(x: i32) -> i32 {
    x + HALF
}

#[device]
fn in_a_shape() -> Tile<i32, { [WIDTH] }> {
    zeros([WIDTH])
}

#[device]
fn of_any_type<T: Float>(x: T) -> T {
    x * HALF
}

#[kernel]
fn calls(out: PtrMut<i32>) {
    store(out, of_another_type(1) + sum(in_a_shape()));
}

fn main() {}
