//! Rust has no float const generics; the rewrite is a folded parameter.

use tilewright::prelude::*;

#[kernel]
fn norm<const EPS: f32>(x: Ptr<f32>, out: PtrMut<f32>) {
    store(out, rsqrt(load(x) + EPS));
}

fn main() {}
