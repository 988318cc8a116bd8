//! `unsafe` blocks follow the rules of blocks.

use tilewright::prelude::*;

#[kernel]
fn blocks<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, stride: i32) {
    let i = arange(0, N);
    let a = unsafe { assume(stride > 0); };
    let b = unsafe { multiple_of(stride, 0) };
    #[cfg(debug_assertions)]
    unsafe {
        let inner = multiple_of(stride, 16);
    }
    store(out + inner + i, load(x + i));
    unsafe { multiple_of(stride, 16) };
    let c = unsafe { *x };
    store(out, abs(unsafe { return }));
}

fn main() {}
