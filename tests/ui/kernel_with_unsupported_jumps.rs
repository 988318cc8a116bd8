//! What jumps, and what to write instead.

use tilewright::prelude::*;

#[kernel]
fn jumps(x: Ptr<i32>, out: PtrMut<i32>, n: i32) {
    if n > 0 {
        break;
    }
    for i in 0..n {
        if load(x + i) == 0 {
            break i;
        }
        if load(x + i) == 1 {
            continue 'rows;
        }
    }
    #[stages(3)]
    'row: for i in 0..n {
        for j in 0..i {
            if load(x + j) == 0 {
                break 'rows;
            }
            if load(x + j) == 1 {
                break 'row;
            }
        }
    }
    while {
        if n > 3 {
            continue;
        }
        n > 2
    } {}
    let value = loop {
        if n > 4 {
            break 1;
        }
        break (1, 2);
    };
    let never = 1 + loop {};
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
