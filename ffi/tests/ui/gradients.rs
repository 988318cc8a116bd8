#![allow(unused_variables)]

use tilewright_ffi::prelude::*;

#[op(out(y: like(x)), backward = unknown_backward)]
pub fn a_gradient_that_is_unknown(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    let _ = (x, y);
    Ok(())
}

#[op(out(y: like(x)), backward = takes_something_else)]
pub fn a_gradient_that_takes_something_else(x: TensorRef<'_>, y: TensorMut<'_>, n: i64) -> Result<()> {
    let _ = (x, y, n);
    Ok(())
}

#[op(out(d_x: like(x)))]
pub fn takes_something_else(d_y: TensorRef<'_>, x: TensorRef<'_>, z: TensorRef<'_>, d_x: TensorMut<'_>) -> Result<()> {
    let _ = (d_y, x, z, d_x);
    Ok(())
}

#[op(out(y: like(x)), backward = gives_something_else)]
pub fn a_gradient_that_gives_something_else(x: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    let _ = (x, y);
    Ok(())
}

#[op(out(d_w: like(x)))]
pub fn gives_something_else(d_y: TensorRef<'_>, x: TensorRef<'_>, d_w: TensorMut<'_>) -> Result<()> {
    let _ = (d_y, x, d_w);
    Ok(())
}

#[op(out(y: like(x)), backward = shared_with_what_may_be_missing)]
pub fn a_gradient_that_is_shared(x: TensorRef<'_>, r: Option<TensorRef<'_>>, y: TensorMut<'_>) -> Result<()> {
    let _ = (x, r, y);
    Ok(())
}

#[op(out(d_x_and_r: like(d_y)))]
pub fn shared_with_what_may_be_missing(d_y: TensorRef<'_>, d_x_and_r: TensorMut<'_>) -> Result<()> {
    let _ = (d_y, d_x_and_r);
    Ok(())
}

#[op(out(y: like(x)), backward = given_twice)]
pub fn a_gradient_that_is_given_twice(x: TensorRef<'_>, r: TensorRef<'_>, y: TensorMut<'_>) -> Result<()> {
    let _ = (x, r, y);
    Ok(())
}

#[op(out(d_x_and_r: like(d_y), d_x: like(d_y)))]
pub fn given_twice(d_y: TensorRef<'_>, d_x_and_r: TensorMut<'_>, d_x: TensorMut<'_>) -> Result<()> {
    let _ = (d_y, d_x_and_r, d_x);
    Ok(())
}

#[op(out(y: like(x)), backward = of_another_type)]
pub fn a_gradient_with_another_type(x: TensorRef<'_>, y: TensorMut<'_>, n: i64) -> Result<()> {
    let _ = (x, y, n);
    Ok(())
}

#[op(out(d_x: like(d_y)))]
pub fn of_another_type(d_y: TensorRef<'_>, d_x: TensorMut<'_>, n: f64) -> Result<()> {
    let _ = (d_y, d_x, n);
    Ok(())
}

#[op(out(y: like(x)), backward = needs_the_weight)]
pub fn a_gradient_that_needs_what_is_optional(x: TensorRef<'_>, w: Option<TensorRef<'_>>, y: TensorMut<'_>) -> Result<()> {
    let _ = (x, w, y);
    Ok(())
}

#[op(out(d_x: like(w)))]
pub fn needs_the_weight(d_y: TensorRef<'_>, w: TensorRef<'_>, d_x: TensorMut<'_>) -> Result<()> {
    let _ = (d_y, w, d_x);
    Ok(())
}

#[op(backward = of_an_update)]
pub fn a_gradient_of_what_is_written(x: TensorMut<'_>) -> Result<()> {
    let _ = x;
    Ok(())
}

#[op(out(d_x: like(x)))]
pub fn of_an_update(x: TensorRef<'_>, d_x: TensorMut<'_>) -> Result<()> {
    let _ = (x, d_x);
    Ok(())
}

#[op(out(y: like(x), z: like(w)), backward = needs_the_second_gradient)]
pub fn a_gradient_that_needs_that_of_what_is_optional(
    x: TensorRef<'_>,
    w: Option<TensorRef<'_>>,
    y: TensorMut<'_>,
    z: Option<TensorMut<'_>>,
) -> Result<()> {
    let _ = (x, w, y, z);
    Ok(())
}

#[op(out(d_x: like(d_y)))]
pub fn needs_the_second_gradient(d_y: TensorRef<'_>, d_z: TensorRef<'_>, d_x: TensorMut<'_>) -> Result<()> {
    let _ = (d_y, d_z, d_x);
    Ok(())
}

fn main() {}
