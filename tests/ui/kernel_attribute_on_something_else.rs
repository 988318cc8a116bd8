//! The attribute belongs on functions.

use tilewright::prelude::*;

#[kernel]
struct Add {
    x: f32,
}

#[kernel]
const N: usize = 4;

#[kernel("num_warps = 4")]
fn text() {}

pub trait Kernels {
    #[kernel]
    fn add(x: Ptr<f32>);
}

fn main() {}
