//! Parameters are buffers and scalars.

use tilewright::prelude::*;

#[kernel]
fn sizes(n: usize, m: isize) {}

#[kernel]
fn slices(x: &[f32], out: &mut [f32], p: *const f32, q: *mut i32) {}

#[kernel]
fn others(a: Vec<f32>, b: [f32; 4], c: (i32, i32), d: Tile<f32, { [4] }>, e: flaot, f: impl Copy) {}

#[kernel]
fn pointers(a: Ptr, b: PtrMut<>, c: Ptr<f32, i32>, d: Ptr<usize>, e: Ptr<Ptr<f32>>, f: Const<T>) {}

#[kernel]
fn patterns((a, b): (i32, i32), _: i32, &c: &i32) {}

#[kernel]
fn duplicates<const N: usize>(x: Ptr<f32>, x: PtrMut<f32>, N: i32) {}

fn main() {}
