//! Loops run over ranges of integers.

use tilewright::prelude::*;

#[kernel]
fn ranges<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32, m: i64, f: f32) {
    for i in 0..=f {}
    for i in ..=n {}
    for i in n {}
    for i in 0.. {}
    for i in ..n {}
    for i in [1, 2, 3] {}
    for i in 0.0..1.0 {}
    for i in 0..f {}
    for i in n..m {}
    for i in arange(0, N) {}
    for i in 0..arange(0, N) {}
    for i in (0..n).step_by(0) {}
    for i in (0..n).step_by(-1) {}
    for i in (0..n).step_by(2).step_by(2) {}
    for i in (0..n).rev().step_by(2).rev() {}
    for i in (0..n).map(|x| x) {}
    for i in (0..n).step_by(m) {}
    for (i, j) in 0..n {}
    for mut i in 0..n {}
    for i in (0..=n).step_by(0) {}
    for i in range(0, n) {}
}

#[kernel]
fn attributes(out: PtrMut<f32>, n: i32) {
    #[stages(0)]
    for i in 0..n {}
    #[stages]
    for i in 0..n {}
    #[unroll(400)]
    for i in 0..n {}
    #[unrol]
    for i in 0..n {}
    #[inline]
    for i in 0..n {}
    #[cfg(debug_assertions)]
    for i in 0..n {}
    #[unroll]
    while n > 0 {}
    #[stages(2)]
    let a = 1;
    #[cfg(debug_assertions)]
    store(out, 1.0);
}

fn main() {}
