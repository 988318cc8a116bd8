//! Control flow that kernels do not have, each with what to write instead.

use tilewright::prelude::*;

#[kernel]
fn flow(out: PtrMut<i32>, n: i32) {
    for i in (0..n).step_by(0) {
        store(out, i);
    }
    'block: {
        store(out, 1);
    }
    while let 1 = n {
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
