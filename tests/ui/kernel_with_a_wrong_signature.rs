//! Parameters of kernels.

use tilewright::prelude::*;

#[kernel]
fn host_width(n: usize) {}

#[kernel]
fn slice(x: &[f32], y: &mut [f32], z: *const f32) {}

#[kernel]
fn unbounded<T>(x: Ptr<T>) {}

#[kernel]
fn foreign_bound<T: Numb>(x: Ptr<T>) {}

#[kernel]
fn lifetime<'a>(x: Ptr<f32>) {}

#[kernel]
fn clause<T: Num>(x: Ptr<T>) where T: Copy {}

#[kernel]
fn returns(x: Ptr<f32>) -> f32 {
    load(x)
}

#[kernel]
fn tile(x: Tile<f32, { [4] }>, y: Ptr<f33>, z: String) {}

#[kernel]
fn pattern((a, b): (i32, i32)) {}

#[kernel]
async fn later() {}

#[kernel]
struct NoFunction;

struct Owner;

impl Owner {
    #[kernel]
    fn method(&self) {}
}

fn main() {}
