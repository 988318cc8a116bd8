//! Operations that Triton has, and kernels write in a line.

use tilewright::prelude::*;

#[kernel]
fn operations<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>) {
    let a = load(x + arange(0, N));
    let j = a.ravel();
    let k = fdiv(a, 2.0);
    store(out + arange(0, N), a);
}

fn main() {}
