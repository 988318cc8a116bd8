//! What becomes of tensors on their way into launches.

use crate::check::{self, Rows};
use crate::{TensorView, TensorViewMut};
use tilewright::launch::{BufferArg, InPlaceArg, MaybeView, MaybeViewMut, PtrArg};
use tilewright::prelude::*;
use tilewright::{Result, View};

/// What a kernel reads through a parameter `#[in_place(out)]`: memory of its own, or that of `out`.
pub(crate) struct Source<'a, T: DType>(pub(crate) Option<View<'a, T>>);

impl<'a, T: DType> InPlaceArg<'a, T> for Source<'a, T> {
    fn into_arg_or_none(self) -> Option<BufferArg<'a>> {
        self.0.map(PtrArg::into_arg)
    }
}

/// An optional tensor as an argument of a launch.
pub(crate) fn maybe<'a, T: DType, const R: usize>(tensor: Option<TensorView<'a, T, R>>) -> MaybeView<'a, T> {
    MaybeView::from(tensor.map(|tensor| tensor.elements()))
}

/// An optional tensor that is written, as an argument of a launch.
pub(crate) fn maybe_mut<'a, T: DType, const R: usize>(tensor: Option<TensorViewMut<'a, T, R>>) -> MaybeViewMut<'a, T> {
    MaybeViewMut::from(tensor.map(|tensor| tensor.elements()))
}

/// Checks a tensor that has one element for each column: without gaps, and of that length.
pub(crate) fn vector<T: DType>(argument: &str, tensor: &TensorView<'_, T, 1>, len: usize) -> Result<()> {
    check::shape(argument, tensor.shape(), [len])?;
    packed(argument, tensor.is_contiguous())
}

/// Refuses a tensor whose elements do not follow each other.
pub(crate) fn packed(argument: &str, is_contiguous: bool) -> Result<()> {
    if is_contiguous {
        return Ok(());
    }
    Err(check::invalid(argument, "has gaps between its elements", "copy it with `general::contiguous` first"))
}

/// The blocks that a kernel of single elements divides tensors of one shape into: a grid of rows times blocks of a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    /// Elements of a row.
    pub(crate) columns: i32,
    /// Blocks of a row.
    pub(crate) per_row: usize,
    /// Programs.
    pub(crate) programs: usize,
}

impl Blocks {
    /// Where all tensors are without gaps, they are one long row, so that only its end is masked, whatever the width.
    /// Their strides are 0 then.
    pub(crate) fn of<const N: usize>(tensors: &mut [Rows; N], block: usize) -> Result<Blocks> {
        let (rows, columns) = (tensors[0].rows, tensors[0].columns);
        let packed = tensors.iter().all(|tensor| rows == 1 || tensor.stride == columns);
        let (rows, columns) = match rows.checked_mul(columns) {
            Some(all) if packed && i32::try_from(all).is_ok() => {
                tensors.iter_mut().for_each(|tensor| tensor.stride = 0);
                (1, all)
            }
            _ => (rows, columns),
        };
        let per_row = columns.div_ceil(block);
        Ok(Blocks { columns: check::size("x", columns)?, per_row, programs: rows * per_row })
    }
}
