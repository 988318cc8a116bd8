//! Constants of functions: rustc checks their types where the function stands.

use tilewright::prelude::*;

const HALF: f32 = 0.5;
const WIDTH: usize = 16;

#[device]
fn of_another_type(x: i32) -> i32 {
    x + HALF
}

mod elsewhere {
    use tilewright::prelude::*;

    const WIDTH: usize = 32;

    #[device]
    pub fn in_a_shape() -> Tile<i32, { [WIDTH] }> {
        zeros([WIDTH])
    }
}

#[device]
fn of_two_widths(x: Tile<i32, { [WIDTH] }>) -> Tile<i32, { [WIDTH] }> {
    x + elsewhere::in_a_shape()
}

#[device]
fn of_any_type<T: Float>(x: T) -> T {
    x * HALF
}

#[kernel]
fn calls(out: PtrMut<i32>) {
    store(out, of_another_type(1) + sum(of_two_widths(zeros([WIDTH]))));
}

fn main() {}
