//! Control flow that kernels do not have, each with what to write instead.

use tilewright::prelude::*;

#[kernel]
fn flow(out: PtrMut<i32>, n: i32) {
    for i in 0..=n {
        store(out + i, i);
    }
    for i in (0..n).step_by(0) {
        break;
    }
    'outer: while n > 0 {
        continue;
    }
    for i in 0..n {
        if i > 3 {
            return;
        }
    }
    loop {
        store(out, 1);
    }
    let value = match n {
        0 => 1,
        _ => 2,
    };
    #[unrol]
    for i in arange(0, 16) {}
    #[stages(99)]
    for (i, j) in 0..n {}
    return n;
}

fn main() {}
