//! What would overflow the stack of a compiler is refused.

use tilewright::prelude::*;

#[kernel]
fn deep(out: PtrMut<i32>) {
    let a =
        ((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((
        ((((((((((((((((((((((((((((((1))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))))));
    store(out, a);
}

#[kernel]
fn long(out: PtrMut<i32>, n: i32) {
    let sum = n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n
        + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n + n;
    store(out, sum);
}

fn main() {}
