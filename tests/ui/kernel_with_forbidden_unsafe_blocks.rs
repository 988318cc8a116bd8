//! Hints are believed in `unsafe` blocks only, and a crate may forbid those.
#![forbid(unsafe_code)]

use tilewright::prelude::*;

#[kernel]
fn blocks<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, stride: i32) {
    let i = arange(0, N);
    let stride = unsafe { multiple_of(stride, 16) };
    store(out + stride + i, load(x + i));
}

fn main() {}
