//! Shapes and strides, and what they say about each other. Nothing here touches memory.

use tilewright::{Error, Result};

/// Where the elements of a tensor are: a size and a stride, in elements, for each dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout<const R: usize> {
    pub(crate) shape: [usize; R],
    pub(crate) strides: [usize; R],
}

/// Dimensions that one index can run over: `size` steps of `stride` elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) size: usize,
    pub(crate) stride: usize,
}

/// The strides of a tensor whose last dimension is contiguous and which has no gaps.
pub(crate) fn packed<const R: usize>(shape: [usize; R]) -> [usize; R] {
    let mut strides = [1usize; R];
    for axis in (1..R).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

/// Dimensions that one index can run over, if there is such a stride: dimension `i` steps over all of dimension `i + 1`.
/// Dimensions of size 1 have no say.
pub(crate) fn collapse(shape: &[usize], strides: &[usize]) -> Option<Run> {
    let mut run = Run { size: 1, stride: 1 };
    let mut first = true;
    for (&size, &stride) in shape.iter().zip(strides).rev().filter(|(size, _)| **size != 1) {
        if first {
            run = Run { size, stride };
            first = false;
        } else if size == 0 || run.size == 0 || stride == run.stride.checked_mul(run.size)? {
            // More than can be counted is so beside a dimension without elements alone.
            run.size = run.size.saturating_mul(size);
        } else {
            return None;
        }
    }
    Some(run)
}

impl<const R: usize> Layout<R> {
    pub(crate) fn packed(shape: [usize; R]) -> Self {
        Layout { shape, strides: packed(shape) }
    }

    /// The number of elements, if it is a number.
    pub(crate) fn elements(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, &size| product.checked_mul(size))
    }

    /// One more than the largest offset of an element; 0 without elements.
    pub(crate) fn span(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let mut last = 0usize;
        for (size, stride) in self.shape.iter().zip(self.strides) {
            last = last.checked_add((size - 1).checked_mul(stride)?)?;
        }
        last.checked_add(1)
    }

    /// Whether the elements lie in row-major order without gaps.
    pub(crate) fn is_packed(&self) -> bool {
        collapse(&self.shape, &self.strides).is_some_and(|run| run.size < 2 || run.stride == 1)
    }

    /// Whether no two elements share memory, as far as strides in order show it: each steps over all that smaller ones
    /// reach.
    pub(crate) fn is_injective(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let mut dimensions: Vec<(usize, usize)> =
            self.strides.into_iter().zip(self.shape).filter(|(_, size)| *size > 1).collect();
        dimensions.sort_unstable();
        let mut reach = 1usize;
        for (stride, size) in dimensions {
            if stride < reach {
                return false;
            }
            reach = reach.saturating_add(stride.saturating_mul(size - 1));
        }
        true
    }

    /// The error that says what is wrong with a tensor of this layout.
    pub(crate) fn invalid(&self, problem: impl Into<Box<str>>, hint: impl Into<Box<str>>) -> Error {
        let tensor = format!("a tensor of shape {:?} and strides {:?}", self.shape, self.strides);
        Error::InvalidTensor { tensor: tensor.into(), problem: problem.into(), hint: hint.into() }
    }

    /// Checks that all elements are inside a buffer of `len`.
    pub(crate) fn check(&self, len: usize) -> Result<()> {
        match self.span() {
            Some(span) if span <= len && self.elements().is_some() => Ok(()),
            Some(span) => Err(self.invalid(
                format!("reaches over {span} elements, the buffer has {len}"),
                "give a smaller shape, smaller strides or a longer buffer",
            )),
            None => Err(self.invalid("has more elements than can be counted", "give a smaller shape")),
        }
    }

    /// Checks that `axis` is one of the dimensions.
    pub(crate) fn check_axis(&self, axis: usize) -> Result<()> {
        if axis < R {
            return Ok(());
        }
        Err(self
            .invalid(format!("has no dimension {axis}"), format!("dimensions are numbered from 0 to {}", R.max(1) - 1)))
    }

    /// The layout with another order of dimensions: dimension `i` of the result is dimension `order[i]` of this.
    pub(crate) fn permuted(&self, order: [usize; R]) -> Result<Self> {
        let mut seen = [false; R];
        for &axis in &order {
            self.check_axis(axis)?;
            if std::mem::replace(&mut seen[axis], true) {
                return Err(self.invalid(
                    format!("cannot take the order {order:?}: dimension {axis} comes twice"),
                    "name each dimension once",
                ));
            }
        }
        Ok(Layout { shape: order.map(|axis| self.shape[axis]), strides: order.map(|axis| self.strides[axis]) })
    }

    /// The same elements under another shape, where strides can say it.
    pub(crate) fn reshaped<const S: usize>(&self, shape: [usize; S]) -> Result<Layout<S>> {
        let wanted = Layout::packed(shape);
        if wanted.elements().is_none() || wanted.elements() != self.elements() {
            return Err(self.invalid(
                format!("cannot take the shape {shape:?}: the numbers of elements differ"),
                "give a shape with as many elements",
            ));
        }
        if self.elements() == Some(0) {
            return Ok(wanted);
        }
        self.regrouped(shape).ok_or_else(|| {
            self.invalid(
                format!("cannot take the shape {shape:?} without a copy"),
                "copy it with `contiguous` first, or keep the dimensions that do not follow each other apart",
            )
        })
    }

    /// Walks both shapes from the last dimension, and gives each group of dimensions of equal size its strides.
    fn regrouped<const S: usize>(&self, shape: [usize; S]) -> Option<Layout<S>> {
        let mut strides = [1; S];
        let (mut old, mut new) = (R, S);
        while new > 0 || old > 0 {
            let (old_end, new_end) = (old, new);
            let (mut a, mut b) = (1usize, 1usize);
            // One dimension at least of a side that has some, then the smaller side catches up.
            loop {
                if a <= b && old > 0 && (a < b || old == old_end) {
                    old -= 1;
                    a *= self.shape[old];
                } else if (b < a || new == new_end) && new > 0 {
                    new -= 1;
                    b *= shape[new];
                } else {
                    break;
                }
            }
            let run = collapse(&self.shape[old..old_end], &self.strides[old..old_end])?;
            let mut stride = run.stride;
            for axis in (new..new_end).rev() {
                strides[axis] = stride;
                stride *= shape[axis];
            }
        }
        // A dimension of one element has the stride of the one around it, as in a tensor without gaps, so that it is a multiple
        // of what that is a multiple of: kernels are compiled for it. The last ones have 1.
        let last = shape.iter().rposition(|&size| size != 1);
        for axis in (0..S).rev().filter(|&axis| shape[axis] == 1) {
            let around = (0..axis).rev().find(|&outer| shape[outer] != 1);
            strides[axis] = match around {
                _ if last.is_none_or(|last| axis > last) => 1,
                Some(outer) => strides[outer],
                None => strides[axis + 1].saturating_mul(shape[axis + 1]),
            };
        }
        Some(Layout { shape, strides })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_collapse_where_they_follow_each_other() {
        assert_eq!(collapse(&[2, 3, 4], &[12, 4, 1]), Some(Run { size: 24, stride: 1 }));
        assert_eq!(collapse(&[2, 3], &[8, 2]), None);
        assert_eq!(collapse(&[2, 1, 3], &[6, 999, 2]), Some(Run { size: 6, stride: 2 }));
        assert_eq!(collapse(&[1, 1], &[5, 7]), Some(Run { size: 1, stride: 1 }));
    }

    #[test]
    fn shapes_change_without_a_copy_where_strides_can_say_it() {
        let padded = Layout { shape: [4, 6], strides: [8, 1] };
        assert_eq!(padded.reshaped([2, 2, 6]).unwrap().strides, [16, 8, 1]);
        assert_eq!(padded.reshaped([4, 2, 3]).unwrap().strides, [8, 3, 1]);
        assert_eq!(padded.reshaped([4, 1, 6, 1]).unwrap().shape, [4, 1, 6, 1]);
        assert!(padded.reshaped([24]).is_err());
        assert!(padded.reshaped([3, 8]).is_err());
        assert!(padded.reshaped([5, 5]).is_err());
        assert_eq!(Layout::packed([2, 3, 4]).reshaped([24]).unwrap().strides, [1]);
        assert_eq!(Layout::packed([1]).reshaped([]).unwrap().shape, [0usize; 0]);
    }

    #[test]
    fn dimensions_of_one_element_have_strides_of_others() {
        let packed = Layout::packed([2, 3, 1, 8]);
        assert_eq!(packed.reshaped([1, 2, 3, 1, 8]).unwrap(), Layout::packed([1, 2, 3, 1, 8]));
        assert_eq!(packed.reshaped([6, 1, 1, 8, 1]).unwrap(), Layout::packed([6, 1, 1, 8, 1]));
        let padded = Layout { shape: [4, 6], strides: [8, 1] };
        assert_eq!(padded.reshaped([1, 4, 1, 6]).unwrap().strides, [32, 8, 8, 1]);
        let column = Layout { shape: [4, 1], strides: [8, 1] };
        assert_eq!(column.reshaped([1, 2, 2, 1]).unwrap().strides, [32, 16, 8, 1]);
        // Whatever the stride of such a dimension was.
        let odd = Layout { shape: [4, 1, 8], strides: [8, 1, 1] };
        assert_eq!(odd.reshaped([1, 4, 1, 8]).unwrap(), Layout::packed([1, 4, 1, 8]));
    }

    #[test]
    fn overlap_is_seen() {
        assert!(Layout { shape: [3, 4], strides: [1, 3] }.is_injective());
        assert!(!Layout { shape: [3, 4], strides: [2, 1] }.is_injective());
        assert!(!Layout { shape: [3, 4], strides: [0, 1] }.is_injective());
        assert!(Layout { shape: [1, 4], strides: [0, 1] }.is_injective());
        assert!(Layout { shape: [4, 0], strides: [0, 1] }.is_injective());
    }
}
