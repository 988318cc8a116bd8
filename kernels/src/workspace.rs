//! Memory for what lies between launches: given by the caller, or allocated where it is not.

use crate::{Context, TensorViewMut, check};
use tilewright::{Buffer, DType, Float, Result, View, ViewMut};

/// The beginnings of parts are this many elements apart or a multiple, 16 bytes at least: launches access a part as wide as
/// memory of its own.
const ALIGNMENT: usize = 16;

/// The elements of a shape. More than can be counted is more than any memory has.
pub(crate) fn product(sizes: &[usize]) -> usize {
    sizes.iter().fold(1, |all: usize, size| all.saturating_mul(*size))
}

/// How many elements parts of these lengths need, one behind the other. More than can be counted is more than any memory has.
pub(crate) fn room(parts: &[usize]) -> usize {
    let aligned = |len: usize| len.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
    parts.iter().fold(0, |before, part| aligned(before).saturating_add(*part))
}

/// The first `len` elements of a workspace, and where the next part begins.
pub(crate) fn part<T: DType>(memory: ViewMut<'_, T>, len: usize) -> Result<(ViewMut<'_, T>, ViewMut<'_, T>)> {
    let (part, behind) = memory.split_at_mut(len)?;
    let gap = (len.next_multiple_of(ALIGNMENT) - len).min(behind.len());
    Ok((part, behind.slice_mut(gap..)?))
}

/// The first elements of a workspace, in two parts.
pub(crate) fn both<T: DType>(memory: ViewMut<'_, T>, [first, second]: [usize; 2]) -> Result<[ViewMut<'_, T>; 2]> {
    let (one, rest) = part(memory, first)?;
    Ok([one, part(rest, second)?.0])
}

/// Refuses a workspace whose elements do not follow each other.
pub(crate) fn contiguous<'a, T: DType>(
    argument: &str,
    workspace: TensorViewMut<'a, T, 1>,
) -> Result<TensorViewMut<'a, T, 1>> {
    if workspace.is_contiguous() {
        return Ok(workspace);
    }
    Err(check::invalid(argument, "is not contiguous", "give a tensor without gaps"))
}

/// Refuses a workspace of another dtype `P` than sums of `T` are kept in: others lose digits, or are not what kernels expect.
pub(crate) fn dtype_of_sums<T: Float, P: Float>(argument: &str) -> Result<()> {
    let sums = if T::ELEMENT == f64::ELEMENT { f64::ELEMENT } else { f32::ELEMENT };
    if P::ELEMENT == sums {
        return Ok(());
    }
    let hint = format!("sums of {} are kept in {sums}: give a tensor of {sums}", T::ELEMENT);
    Err(check::invalid(argument, format!("has the dtype {}", P::ELEMENT), hint))
}

/// The elements that a function works in.
pub(crate) enum Memory<'a, T: DType> {
    Given(ViewMut<'a, T>),
    Own(Buffer<T>),
}

impl<'a, T: DType> Memory<'a, T> {
    /// The first elements of a workspace, or memory of its own where there is none.
    pub(crate) fn of(
        cx: &Context,
        argument: &str,
        workspace: Option<TensorViewMut<'a, T, 1>>,
        needed: usize,
    ) -> Result<Self> {
        let Some(workspace) = workspace else { return Ok(Memory::Own(cx.device().empty(needed)?)) };
        let workspace = contiguous(argument, workspace)?;
        if workspace.len() < needed {
            let problem = format!("has {} elements", workspace.len());
            return Err(check::invalid(argument, problem, format!("give it {needed} elements or more")));
        }
        Ok(Memory::Given(workspace.elements().slice_mut(..needed)?))
    }

    pub(crate) fn view(&self) -> View<'_, T> {
        match self {
            Memory::Given(view) => view.as_view(),
            Memory::Own(buffer) => buffer.as_view(),
        }
    }

    pub(crate) fn view_mut(&mut self) -> ViewMut<'_, T> {
        match self {
            Memory::Given(view) => view.reborrow(),
            Memory::Own(buffer) => buffer.as_view_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright::Device;

    #[test]
    fn parts_begin_at_multiples_of_their_alignment() {
        assert_eq!([room(&[]), room(&[5]), room(&[5, 0, 3]), room(&[16, 1])], [0, 5, 19, 17]);
        assert_eq!(room(&[usize::MAX, 1]), usize::MAX);
        let mut buffer = Device::cpu().zeros::<i32>(room(&[5, 0, 3])).unwrap();
        let (first, rest) = part(buffer.as_view_mut(), 5).unwrap();
        let (none, rest) = part(rest, 0).unwrap();
        let (last, rest) = part(rest, 3).unwrap();
        assert_eq!([first.len(), none.len(), last.len(), rest.len()], [5, 0, 3, 0]);
    }
}
