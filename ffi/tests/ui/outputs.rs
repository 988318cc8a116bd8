#![allow(unused_variables)]

use tilewright_ffi::prelude::*;

#[op(out(z: like(x)))]
pub fn an_output_that_is_no_parameter(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    Ok(())
}

#[op(out(x: like(x)))]
pub fn an_output_that_is_read(x: TensorRef<'_>) -> Result<()> {
    Ok(())
}

#[op(out(y: like(w)))]
pub fn an_unknown_tensor(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    Ok(())
}

#[op(out(y: like(z), z: like(x)))]
pub fn the_shape_of_an_output(x: TensorRef<'_>, y: TensorMut<'_>, z: TensorMut<'_>) -> Result<()> {
    Ok(())
}

#[op(out(y: float[x.shape[0]]))]
pub fn an_unknown_dtype(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    Ok(())
}

#[op(out(y: x.dtype[n * 2, eps]))]
pub fn sizes_that_are_none(x: TensorRef<'_>, y: TensorMut<'_>, eps: f64) -> Result<()> {
    Ok(())
}

#[op(out(y: x.dtype[x.shape[n]]))]
pub fn a_dimension_that_is_no_number(x: TensorRef<'_>, y: TensorMut<'_>, n: i64) -> Result<()> {
    Ok(())
}

#[op(out(y: x.dtype[x.shape[0] << 1, x.len()]))]
pub fn other_expressions(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    Ok(())
}

#[op(out(y: x.type[x.shape[0]]))]
pub fn a_word_that_is_misspelt(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    Ok(())
}

#[op(out(y: like(w)))]
pub fn an_output_of_an_optional_tensor(x: TensorRef<'_>, w: Option<TensorRef<'_>>, y: TensorMut<'_>) -> Result<()> {
    Ok(())
}

#[op(out(y: like(x)))]
pub fn an_optional_output(x: TensorRef<'_>, y: Option<TensorMut<'_>>) -> Result<()> {
    Ok(())
}

fn main() {}
