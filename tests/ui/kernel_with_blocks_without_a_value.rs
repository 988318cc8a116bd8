//! Where a value is needed.

use tilewright::prelude::*;

#[kernel]
fn blocks(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let a = {};
    let b = {
        load(x);
    };
    let c = {
        let d = 4;
    };
    let e = if n > 0 {
        1.0;
    } else {
        2.0
    };
    let f = if n > 0 { 1.0 } else if n > 1 { 2.0 };
    let g = { return };
    store(out, store(out, 1.0));
    let h = 1 + store(out, 1.0);
    store(out, (1.0, 2.0));
    let i = (1, 2) + (3, 4);
}

fn main() {}
