//! Checks of arguments, before anything is launched or allocated.

use crate::tensor::layout::{Layout, Run, collapse};
use crate::tensor::{TensorView, TensorViewMut};
use tilewright::launch::GRID_LIMITS;
use tilewright::{DType, Error, Result};

/// The most programs along the second axis of a grid, and along the third.
pub(crate) const MOST_PROGRAMS: usize = GRID_LIMITS[1] as usize;

/// The error of an argument that does not fit: what it is, what is wrong with it, and what would be right.
pub(crate) fn invalid(argument: &str, problem: impl Into<Box<str>>, hint: impl Into<Box<str>>) -> Error {
    Error::InvalidTensor { tensor: format!("`{argument}`").into(), problem: problem.into(), hint: hint.into() }
}

/// Checks that an argument has the shape that others ask for.
pub(crate) fn shape<const R: usize>(argument: &str, actual: [usize; R], expected: [usize; R]) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    Err(invalid(argument, format!("has the shape {actual:?}"), format!("the other arguments ask for {expected:?}")))
}

/// The most elements of a dimension. Kernels count in `i32`, block by block, and the last block may end behind the elements.
pub(crate) const LONGEST: usize = i32::MAX as usize - 65_535;

/// A size as the `i32` that kernels compute with.
pub(crate) fn size(argument: &str, size: usize) -> Result<i32> {
    let fitting = i32::try_from(size).ok().filter(|_| size <= LONGEST);
    fitting.ok_or_else(|| {
        let hint = format!("dimensions have at most {LONGEST} elements, as have those that are gone over as one");
        invalid(argument, format!("has a dimension of {size}"), hint)
    })
}

/// A tensor as rows: all dimensions but the last as one, the last contiguous.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    /// How many there are.
    pub rows: usize,
    /// Elements of each.
    pub columns: usize,
    /// Elements from the beginning of one to the next.
    pub stride: usize,
}

impl Rows {
    /// The last dimension of at least one, as rows.
    pub(crate) fn of<const R: usize>(argument: &str, layout: Layout<R>) -> Result<Rows> {
        const { assert!(R > 0, "a tensor of rows has at least one dimension") }
        let columns = layout.shape[R - 1];
        if columns > 1 && layout.strides[R - 1] != 1 {
            return Err(apart(argument, &layout, "its last dimension is not contiguous"));
        }
        match collapse(&layout.shape[..R - 1], &layout.strides[..R - 1]) {
            Some(Run { size, stride }) => Ok(Rows { rows: size, columns, stride }),
            None => Err(apart(argument, &layout, "its rows do not follow each other at one distance")),
        }
    }
}

/// A tensor around one of its dimensions: `outer` times `len` times `inner`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around {
    pub outer: Run,
    pub axis: Run,
    pub inner: Run,
}

impl Around {
    pub(crate) fn of<const R: usize>(argument: &str, layout: Layout<R>, axis: usize) -> Result<Around> {
        layout.check_axis(axis)?;
        let run = |range: std::ops::Range<usize>| {
            collapse(&layout.shape[range.clone()], &layout.strides[range]).ok_or_else(|| {
                apart(argument, &layout, &format!("the dimensions on one side of {axis} do not follow each other"))
            })
        };
        Ok(Around { outer: run(0..axis)?, axis: run(axis..axis + 1)?, inner: run(axis + 1..R)? })
    }
}

fn apart<const R: usize>(argument: &str, layout: &Layout<R>, problem: &str) -> Error {
    let Layout { shape, strides } = layout;
    invalid(
        argument,
        format!("has the shape {shape:?} and strides {strides:?}: {problem}"),
        "copy it with `general::contiguous` first",
    )
}

/// Checks that a tensor lies in row-major order without gaps.
pub(crate) fn packed<T: DType, const R: usize>(argument: &str, tensor: &TensorView<'_, T, R>) -> Result<()> {
    if tensor.is_contiguous() {
        return Ok(());
    }
    Err(apart(argument, &tensor.layout(), "it is not in row-major order without gaps"))
}

impl<T: DType, const R: usize> TensorView<'_, T, R> {
    /// The tensor as rows of its last dimension.
    pub(crate) fn rows(&self, argument: &str) -> Result<Rows> {
        Rows::of(argument, self.layout())
    }
}

impl<T: DType, const R: usize> TensorViewMut<'_, T, R> {
    /// The tensor as rows of its last dimension.
    pub(crate) fn rows(&self, argument: &str) -> Result<Rows> {
        Rows::of(argument, self.layout())
    }
}
