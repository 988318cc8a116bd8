//! What is wrong in a function is said once, where it is declared.

use tilewright::prelude::*;

#[device]
fn wrong_body<T: Num, const N: usize>(x: Tile<T, { [N] }>) -> Tile<T, { [N] }> {
    exp(x) + unknown
}

#[device]
fn wrong_result<T: Num, const N: usize>(x: Tile<T, { [N] }>) -> T {
    x
}

#[device]
async fn wrong_signature(x: i32) -> i32 {
    x
}

#[device]
fn calls_it(x: i32) -> i32 {
    wrong_signature(x)
}

#[device]
fn repeats(x: i32) -> i32 {
    repeats(x)
}

#[device(num_warps = 4)]
enum Function {}

#[kernel]
fn kernel<const N: usize>(out: PtrMut<i32>) {
    store(out + arange(0, N), wrong_body(arange(0, N)) + wrong_result(arange(0, N)) + calls_it(1));
}

fn main() {
    let _ = wrong_result(1.0);
}
