//! Conditions and messages of assertions.

use tilewright::prelude::*;

#[kernel]
fn assertions<const M: usize, const N: usize>(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    assert!();
    assert!(n);
    assert!(n > 0, "n is {}", n);
    assert!(n > 0, n);
    assert!(n > 0; "n");
    let a = assert!(n > 0);
    static_assert!(n > 0);
    static_assert!(N);
    static_assert!(4 > 5, "five is more");
    static_assert!(arange(0, N) > 0);
    static_assert!(program_id(0) == 0);
    static_assert!();
    store(out, reduce(arange(0, 4), axis = 0, |a, b| { assert!(a > b); a }));
    store(out, reduce(arange(0, 4), axis = 0, |a, b| { static_assert!(N > 4); a }));
}

fn main() {}
