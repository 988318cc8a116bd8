#![allow(unused_variables)]

use tilewright_ffi::prelude::*;

#[op(out(y: like(x)))]
pub fn types_that_are_none(x: &TensorRef<'_>, y: TensorMut<'_>, n: i32, eps: f32, name: String) -> Result<()> {
    Ok(())
}

#[op(out(y: like(x)))]
pub fn a_generic_operator<T>(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    Ok(())
}

#[op(out(y: like(x)))]
pub fn nothing_returned(x: TensorRef<'_>, y: TensorMut<'_>) {}

#[op(out(y: like(x)))]
pub fn something_else_returned(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<usize> {
    Ok(x.len() + y.len())
}

#[op(out(y: like(x)))]
pub async fn another_kind_of_function(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    Ok(())
}

#[op]
pub fn no_tensor(n: i64) -> Result<()> {
    Ok(())
}

#[op(out(y: like(x)))]
pub fn words_of_python(x: TensorRef<'_>, y: TensorMut<'_>, lambda: f64, _hidden: i64) -> Result<()> {
    Ok(())
}

#[op(out(y: like(x)))]
pub fn defaults_of_other_types(
    x: TensorRef<'_>,
    y: TensorMut<'_>,
    #[default(1.0)] n: i64,
    #[default(1)] eps: f64,
    #[default("yes")] flag: bool,
    #[default(f64::NAN)] other: f64,
) -> Result<()> {
    Ok(())
}

#[op(out(y: like(x)))]
pub fn a_default_in_the_middle(x: TensorRef<'_>, y: TensorMut<'_>, #[default(1)] n: i64, m: i64) -> Result<()> {
    Ok(())
}

#[op(out(y: like(x)))]
pub fn a_default_of_a_tensor(#[default(0)] x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    Ok(())
}

fn main() {}
