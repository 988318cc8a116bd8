//! Names that are nearly right, or that belong to other languages.

use tilewright::prelude::*;

pub const LIMIT: i32 = 4;

#[kernel]
fn variables<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offests < n;
    let size = BLOKC * 2;
    store(out + offsets, load(x + offsets, mask = mask), mask = size < nothing_like_it);
}

#[kernel]
fn operations(x: Ptr<f32>, out: PtrMut<f32>) {
    let i = arange(0, 16);
    let a = laod(x + i);
    let b = i.helper();
    let c = x.lenght();
    let d = load(x + i).transpose();
    let e = load(x + i).arange(0, 4);
    let f = tl.load(x + i);
    let g = std::cmp::max(1, 2);
    let h = i(4);
    let ha = inner::load(x);
    let j = f32(i);
    let k = foo::bar + zeros;
    let l = where_(i < 4, i, 0);
    let m = (|a| a)(4);
    store(out + i, a);
}

#[kernel]
fn dtypes<T: Float>(x: Ptr<T>, out: PtrMut<T>) {
    let a = load(x) as f23;
    let b = load(x) as String;
    let c = T::INFINITI;
    let d = i32::NAN;
    let e = f32;
    let f = zeros::<Float>([4]);
    store(out, a + f32::BIG);
}

#[kernel]
fn module_constants(out: PtrMut<i32>) {
    store(out, LIMIT + LIMITS);
}

fn main() {}
