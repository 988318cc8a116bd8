#![allow(unused_variables)]

use tilewright_ffi::prelude::*;

#[op(output(y: like(x)))]
pub fn an_unknown_option(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    Ok(())
}

#[op(vmap = batched)]
pub fn an_unknown_way_to_map(x: TensorRef<'_>) -> Result<()> {
    Ok(())
}

#[op(out(y: like(x)), out(y: like(x)))]
pub fn an_option_twice(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    Ok(())
}

#[op]
pub struct NotAFunction;

export!(library: an_unknown_option, an_unknown_way_to_map, an_option_twice);

fn main() {}
