//! Names that a kernel does not know, with what was meant.

use tilewright::prelude::*;

#[kernel]
fn misspelt<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let value = laod(x + offsets, mask = offsets < n);
    store(out + offsts, value.sqr(), msk = offsets < n);
}

#[kernel]
fn foreign(x: Ptr<f32>, out: PtrMut<f32>) {
    let value = load(x);
    store(out, powf(value, 2.0) + where_(value > 0.0, value, 1.0));
    store(out, f32::MXA + f32(value));
}

fn main() {}
