//! `unsafe` blocks are rustc's to judge: one in which nothing is unsafe, and one inside another.
#![deny(unused_unsafe)]

use tilewright::prelude::*;

#[kernel]
fn blocks<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, stride: i32) {
    let i = arange(0, N);
    let value = unsafe { load(x + i) };
    let stride = unsafe {
        let start = unsafe { multiple_of(stride, 16) };
        start + 16
    };
    #[allow(unused_unsafe)]
    unsafe {
        store(out + stride + i, value);
    }
}

fn main() {}
