//! Conditions are scalar `bool`s.

use tilewright::prelude::*;

#[kernel]
fn conditions(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let i = arange(0, 16);
    if i < n {
        store(out, 1.0);
    }
    if n {
        store(out, 1.0);
    }
    while load(x) {
        store(out, 1.0);
    }
    while i < n {
        store(out, 1.0);
    }
    let a = i < n && i > 2;
    let b = n || true;
    let c = n > 0 && load(x + i) > 0.0;
    let e = !load(x);
    let f = !n > 0;
    if x {}
    if let Some(y) = n {}
    while let Some(y) = n {}
}

fn main() {}
