//! Assertions at run time and at compile time.

use tilewright::prelude::*;

#[kernel]
fn assertions<const M: usize, const N: usize>(out: PtrMut<i32>, n: i32) {
    assert!(n);
    assert!(n > 0, "n is {}", n);
    static_assert!(n > 0);
    static_assert!(1 > 2);
    assert_eq!(n, 1);
    if n > 0 {
        static_assert!(M == N);
    }
    // What holds in a branch only says nothing here.
    store(out + arange(0, M), arange(0, N));
}

fn main() {}
