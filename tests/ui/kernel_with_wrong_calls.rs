//! Arguments of operations.

use tilewright::prelude::*;

#[kernel]
fn calls<const N: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let s = load(x);
    let axis = program_id(3);
    let larger = max(s, 1.0);
    let missing = clamp(s, 0.0);
    let width = bitcast::<i64>(s);
    let untyped = bitcast(s);
    let generic = exp::<f32>(s);
    let positional = sum(arange(0, N), 0);
    let flag = maximum(s, 1.0, propagate_nan = n);
    let pointer = x as i32;
    let truth = n as bool;
    store(out + arange(0, N), 1.0, mask = n > 0, mask = n > 1);
}

#[kernel]
fn open<const N: usize>() {
    let tile = zeros([N]);
}

fn main() {}
