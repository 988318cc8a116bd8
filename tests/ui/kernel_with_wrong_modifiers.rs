//! What functions have and kernels do not.

use tilewright::prelude::*;

#[kernel]
const fn constant() {}

#[kernel]
async fn asynchronous() {}

#[kernel]
extern "C" fn external() {}

#[kernel]
fn bounds<T>(x: Ptr<T>)
where
    T: Num,
{
}

#[kernel]
fn result(x: Ptr<f32>) -> f32 {
    load(x)
}

#[kernel]
fn lifetimes<'a, T: Num>(x: Ptr<T>) {}

pub struct Owner;

impl Owner {
    #[kernel]
    fn method(&self, x: Ptr<f32>) {}
}

fn main() {}
