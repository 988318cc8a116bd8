#![allow(unused_variables)]

use tilewright_ffi::prelude::*;

#[op(out(y: like(x)), backward = scale_backward)]
pub fn scale(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    let _ = (x, y);
    Ok(())
}

#[op(out(d_x: like(d_y)))]
pub fn scale_backward(d_y: TensorRef<'_>, d_x: TensorMut<'_>) -> Result<()> {
    let _ = (d_y, d_x);
    Ok(())
}

pub struct NotAnOperator;

mod without_its_gradient {
    tilewright_ffi::export!(library: super::scale);
}

mod twice {
    tilewright_ffi::export!(library: super::scale, super::scale_backward, super::scale);
}

mod something_else {
    tilewright_ffi::export!(library: super::NotAnOperator);
}

pub fn silu(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    let _ = (x, y);
    Ok(())
}

mod a_function_without_op {
    tilewright_ffi::export!(library: super::scale_backward, super::silu);
}

fn main() {}
