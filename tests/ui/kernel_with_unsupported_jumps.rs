//! What jumps, and what to write instead.

use tilewright::prelude::*;

#[kernel]
fn jumps(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    for i in 0..n {
        if load(x + i) == 0 {
            break;
        }
        if load(x + i) == 1 {
            continue;
        }
        if load(x + i) == 2 {
            return;
        }
    }
    while n > 0 {
        return;
    }
    loop {
        store(out, 1);
    }
    if n > 0 {
        return 1;
    }
    let a = if n > 3 { return } else { 4 };
    let b = 1 + return;
    store(out, reduce(arange(0, 4), axis = 0, |a, b| return));
}

#[kernel]
fn a_value_and_a_return(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    let a = if n > 0 {
        if n > 1 {
            return;
        }
        1
    } else {
        2
    };
    store(out, a);
}

fn main() {}
