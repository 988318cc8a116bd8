//! Tensors of frameworks as those of the library.

use tilewright::DType;
use tilewright_ffi::Error;
use tilewright_ffi::prelude::*;
use tilewright_kernels::{Context, TensorView, TensorViewMut};

/// Runs with a constant in place of the number of dimensions, which views have in their type.
macro_rules! with_rank {
    ($tensor:expr, $rank:ident => $body:expr) => {
        match $tensor.rank() {
            1 => {
                const $rank: usize = 1;
                $body
            }
            2 => {
                const $rank: usize = 2;
                $body
            }
            3 => {
                const $rank: usize = 3;
                $body
            }
            4 => {
                const $rank: usize = 4;
                $body
            }
            5 => {
                const $rank: usize = 5;
                $body
            }
            _ => {
                const $rank: usize = 6;
                $body
            }
        }
    };
}

/// Where the library's functions run for a call. They go to the stream of the tensor's device.
pub fn context(tensor: &TensorRef<'_>) -> Context {
    Context::new(tensor.device())
}

fn rows_are_apart(name: &str, shape: &[usize]) -> Error {
    let given = format!("has shape {shape:?} and rows that do not follow each other at one distance");
    Error::argument(
        name,
        given,
        "elements of a row one after the other, and rows at one distance (copy it with `.contiguous()`)",
    )
}

/// A tensor as rows of its last dimension, `[rows, columns]`.
///
/// # Errors
///
/// If it has another dtype, or no two strides say that.
pub fn rows<'a, T: DType>(x: &TensorRef<'a>) -> Result<TensorView<'a, T, 2>> {
    let (rows, columns) = x.rows();
    if x.is_contiguous() {
        return Ok(TensorView::new(x.flat::<T>()?, [rows, columns])?);
    }
    let view = with_rank!(x, R => x.view::<T, R>()?.reshape([rows, columns]));
    let view = view.map_err(|_| rows_are_apart(x.name(), x.shape()))?;
    if columns > 1 && view.strides()[1] != 1 {
        return Err(rows_are_apart(x.name(), x.shape()));
    }
    Ok(view)
}

/// The same of a tensor that is written.
pub fn rows_mut<'a, T: DType>(x: TensorMut<'a>) -> Result<TensorViewMut<'a, T, 2>> {
    let (name, shape, (rows, columns)) = (x.name(), x.shape(), x.rows());
    if x.is_contiguous() {
        return Ok(TensorViewMut::new(x.flat_mut::<T>()?, [rows, columns])?);
    }
    let view = with_rank!(x, R => x.view_mut::<T, R>()?.reshape([rows, columns]));
    let view = view.map_err(|_| rows_are_apart(name, shape))?;
    if columns > 1 && view.strides()[1] != 1 {
        return Err(rows_are_apart(name, shape));
    }
    Ok(view)
}

/// An optional tensor of one dimension.
pub fn vector<'a, T: DType>(x: Option<TensorRef<'a>>) -> Result<Option<TensorView<'a, T, 1>>> {
    x.map(|x| x.view::<T, 1>()).transpose()
}

/// An optional tensor of one dimension that is written.
pub fn vector_mut<'a, T: DType>(x: Option<TensorMut<'a>>) -> Result<Option<TensorViewMut<'a, T, 1>>> {
    x.map(|x| x.view_mut::<T, 1>()).transpose()
}

/// The last `R` dimensions and one more before them, that of all others: `[.., a, b]` as `[all, a, b]`, which is `R` of 3.
pub fn last<'a, T: DType, const R: usize>(x: &TensorRef<'a>) -> Result<TensorView<'a, T, R>> {
    let shape = last_shape::<R>(x.name(), x.shape())?;
    with_rank!(x, N => x.view::<T, N>()?.reshape(shape)).map_err(|_| rows_are_apart(x.name(), x.shape()))
}

/// The same of a tensor that is written.
pub fn last_mut<'a, T: DType, const R: usize>(x: TensorMut<'a>) -> Result<TensorViewMut<'a, T, R>> {
    let (name, whole) = (x.name(), x.shape());
    let shape = last_shape::<R>(name, whole)?;
    with_rank!(x, N => x.view_mut::<T, N>()?.reshape(shape)).map_err(|_| rows_are_apart(name, whole))
}

fn last_shape<const R: usize>(name: &str, shape: &[usize]) -> Result<[usize; R]> {
    let few = shape.len() + 1 < R;
    if few {
        let given = format!("has shape {shape:?}");
        return Err(Error::argument(name, given, format_args!("{} dimensions or more", R - 1)));
    }
    let first = shape.len() + 1 - R;
    let mut result = [1; R];
    result[0] = shape[..first].iter().product();
    result[1..].copy_from_slice(&shape[first..]);
    Ok(result)
}

/// Checks that two tensors have the same dimensions before their last `inner` ones, where the library sees only how many elements
/// they make.
pub fn same_outer(x: &TensorRef<'_>, other: &TensorRef<'_>, inner: usize) -> Result<()> {
    same_outer_of(x, inner, other, inner)
}

/// The dimensions before the last `inner` ones.
fn outer<'a>(x: &TensorRef<'a>, inner: usize) -> Option<&'a [usize]> {
    Some(&x.shape()[..x.rank().checked_sub(inner)?])
}

/// The same before the last `inner` dimensions of one and the last `other_inner` ones of the other.
pub fn same_outer_of(x: &TensorRef<'_>, inner: usize, other: &TensorRef<'_>, other_inner: usize) -> Result<()> {
    if outer(x, inner).is_some_and(|shape| outer(other, other_inner) == Some(shape)) {
        return Ok(());
    }
    let given = format!("has shape {:?}", x.shape());
    let accepted = format!(
        "before its last {inner} the dimensions that `{}`, {:?}, has before its last {other_inner}",
        other.name(),
        other.shape()
    );
    Err(Error::argument(x.name(), given, accepted))
}

/// Checks that two tensors have one shape, where the library sees only rows of them.
pub fn same_shape(x: &TensorRef<'_>, other: &TensorRef<'_>) -> Result<()> {
    if x.shape() == other.shape() {
        return Ok(());
    }
    let given = format!("has shape {:?}", x.shape());
    Err(Error::argument(x.name(), given, format_args!("that of `{}`, {:?}", other.name(), other.shape())))
}
