//! Where the elements of a tensor are: shape, strides, padding, and what they mean for code.

use crate::dtype::ElementType;
use crate::error::{Error, Result};
pub use kernel_core::ir::MAX_TENSOR_RANK as MAX_RANK;

/// The most elements along a dimension: coordinates are i32.
const MAX_SIZE: u64 = i32::MAX as u64;

/// Addresses and strides that the hardware's tensor copies can use, and the widest access of a thread, in bytes.
const UNIT: u64 = 16;

/// Strides that the hardware's tensor copies can use are smaller, in bytes.
const MAX_STRIDE: u64 = 1 << 40;

/// What elements outside a tensor read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Padding {
    Zero,
    Nan,
}

/// Shape and strides in elements, outermost dimension first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TensorLayout {
    element: ElementType,
    rank: u8,
    padding: Padding,
    shape: [u64; MAX_RANK],
    strides: [u64; MAX_RANK],
}

/// What code may know of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TensorFacts {
    pub(crate) rank: u8,
    pub(crate) padding: Padding,
    /// All strides but the innermost are multiples of 16 bytes.
    pub(crate) strides: bool,
    /// The innermost dimension is a multiple of 16 bytes.
    pub(crate) rows: bool,
    /// No other rule keeps the hardware's tensor copies from it.
    pub(crate) copies: bool,
}

impl TensorFacts {
    /// Of a tensor that is not there.
    pub(crate) const NOTHING: TensorFacts =
        TensorFacts { rank: 0, padding: Padding::Zero, strides: false, rows: false, copies: false };

    /// What is left when nothing is known of the argument but what it means.
    pub(crate) fn unknown(self) -> TensorFacts {
        TensorFacts { rank: self.rank, padding: self.padding, ..TensorFacts::NOTHING }
    }
}

impl TensorLayout {
    /// A tensor in a buffer of `len` elements; without strides it has no gaps.
    pub(crate) fn new(element: ElementType, len: usize, shape: &[usize], strides: Option<&[usize]>) -> Result<Self> {
        let refuse = |problem: String, hint: String| Error::InvalidTensor {
            tensor: match strides {
                Some(strides) => format!("a tensor of shape {shape:?} and strides {strides:?}").into(),
                None => format!("a tensor of shape {shape:?}").into(),
            },
            problem: problem.into(),
            hint: hint.into(),
        };
        let rank = shape.len();
        if !(1..=MAX_RANK).contains(&rank) {
            let problem = format!("has {rank} dimensions, 1 to {MAX_RANK} are possible");
            return Err(refuse(problem, "merge dimensions that are adjacent in memory".into()));
        }
        if let Some(axis) = shape.iter().position(|&size| size as u64 > MAX_SIZE) {
            let problem =
                format!("has {} elements along dimension {axis}, at most {MAX_SIZE} can be addressed", shape[axis]);
            return Err(refuse(problem, "split the dimension".into()));
        }
        let mut layout = TensorLayout {
            element,
            rank: rank as u8,
            padding: Padding::Zero,
            shape: [1; MAX_RANK],
            strides: [0; MAX_RANK],
        };
        for (to, size) in layout.shape.iter_mut().zip(shape) {
            *to = *size as u64;
        }
        match strides {
            Some(strides) => {
                let innermost = strides.last().copied().unwrap_or(1);
                if innermost != 1 && shape.last().is_some_and(|&size| size > 1) {
                    let problem = format!("has an innermost stride of {innermost}, it must be 1");
                    let hint = "order the dimensions so that neighbours along the last one are adjacent";
                    return Err(refuse(problem, hint.into()));
                }
                for (to, stride) in layout.strides.iter_mut().zip(strides) {
                    *to = *stride as u64;
                }
            }
            None => {
                let mut stride = 1u64;
                for axis in (0..rank).rev() {
                    layout.strides[axis] = stride;
                    // What is too large to count does not fit the buffer, as is found below.
                    stride = stride.saturating_mul(layout.shape[axis].max(1));
                }
            }
        }
        layout.settle();
        let needed = layout.extent();
        if needed.is_none_or(|needed| needed > len as u64) {
            let needs = needed.map_or("more elements than can be counted".to_string(), |n| format!("{n} elements"));
            return Err(refuse(format!("needs {needs}, its buffer has {len}"), layout.nearest(len as u64)));
        }
        Ok(layout)
    }

    /// Strides that no element is moved by are set to what is best for the hardware.
    fn settle(&mut self) {
        let rank = usize::from(self.rank);
        self.strides[rank - 1] = 1;
        for axis in 0..rank - 1 {
            if self.shape[axis] <= 1 {
                self.strides[axis] = self.shape[rank - 1].max(1).next_multiple_of(UNIT);
            }
        }
    }

    /// How many elements the buffer must have; `None` if that overflows.
    fn extent(&self) -> Option<u64> {
        if self.shape().contains(&0) {
            return Some(0);
        }
        let mut dims = self.shape().iter().zip(self.strides());
        dims.try_fold(1u64, |sum, (size, stride)| sum.checked_add((size - 1).checked_mul(*stride)?))
    }

    /// Whether two elements might be one in memory: dimensions, from the smallest stride on, do not each begin behind the end of
    /// those before them.
    fn may_overlap(&self) -> bool {
        let mut dims: [(u64, u64); MAX_RANK] = std::array::from_fn(|axis| (self.strides[axis], self.shape[axis]));
        dims.sort_unstable();
        let mut last = 0u64;
        dims.into_iter().filter(|(_, size)| *size > 1).any(|(stride, size)| {
            let overlaps = stride <= last;
            last = last.saturating_add(stride.saturating_mul(size - 1));
            overlaps
        })
    }

    /// Whether a kernel that writes such a tensor has to keep the order of its stores: copies of the hardware end in any.
    pub(crate) fn keeps_order(&self, written: bool) -> bool {
        written && self.may_overlap()
    }

    /// What fits into a buffer of `len` elements.
    fn nearest(&self, len: u64) -> String {
        let mut inner = *self;
        inner.shape[0] = 1;
        match inner.extent() {
            Some(one) if one <= len && self.strides[0] > 0 => {
                format!("the outermost dimension can have at most {}", 1 + (len - one) / self.strides[0])
            }
            Some(_) | None => "pass a larger buffer, or a smaller shape".to_string(),
        }
    }

    pub(crate) fn shape(&self) -> &[u64] {
        &self.shape[..usize::from(self.rank)]
    }

    pub(crate) fn strides(&self) -> &[u64] {
        &self.strides[..usize::from(self.rank)]
    }

    /// The shape with a 1 for each dimension that is not there.
    pub(crate) fn all_shape(&self) -> [u64; MAX_RANK] {
        self.shape
    }

    /// The strides with a 0 for each dimension that is not there.
    pub(crate) fn all_strides(&self) -> [u64; MAX_RANK] {
        self.strides
    }

    pub(crate) fn padding(&self) -> Padding {
        self.padding
    }

    pub(super) fn pad_with_nan(&mut self) {
        self.padding = Padding::Nan;
    }

    pub(crate) fn set_padding(&mut self, padding: Padding) {
        self.padding = padding;
    }

    pub(super) fn element(&self) -> ElementType {
        self.element
    }

    /// What code may know of it.
    #[inline]
    pub(crate) fn facts(&self) -> TensorFacts {
        let rank = usize::from(self.rank);
        let bytes = self.element.size() as u64;
        let outer = &self.strides[..rank - 1];
        TensorFacts {
            rank: self.rank,
            padding: self.padding,
            strides: outer.iter().all(|stride| stride.wrapping_mul(bytes).is_multiple_of(UNIT)),
            rows: (self.shape[rank - 1] * bytes).is_multiple_of(UNIT),
            copies: outer.iter().all(|stride| *stride > 0 && *stride < MAX_STRIDE / bytes)
                && !self.shape().contains(&0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(element: ElementType, shape: &[usize], strides: &[usize]) -> TensorFacts {
        let layout = TensorLayout::new(element, usize::MAX, shape, Some(strides)).expect("it fits");
        layout.facts()
    }

    #[test]
    fn elements_that_share_memory_are_found() {
        let overlap = |shape: &[usize], strides: &[usize]| {
            TensorLayout::new(ElementType::F16, usize::MAX, shape, Some(strides)).expect("it fits").may_overlap()
        };
        assert!(!overlap(&[8, 64], &[64, 1]) && !overlap(&[8, 64], &[100, 1]) && !overlap(&[64], &[1]));
        assert!(!overlap(&[2, 8, 64], &[64, 128, 1]), "halves of rows");
        assert!(!overlap(&[1, 64], &[0, 1]) && !overlap(&[3, 1, 64], &[64, 1, 1]));
        assert!(overlap(&[8, 64], &[63, 1]) && overlap(&[2, 64], &[0, 1]) && overlap(&[2, 8, 64], &[8, 64, 1]));
    }

    #[test]
    fn facts_are_in_bytes() {
        let both = |facts: TensorFacts| (facts.strides, facts.rows, facts.copies);
        assert_eq!(both(facts(ElementType::F32, &[8, 64], &[64, 1])), (true, true, true));
        assert_eq!(both(facts(ElementType::F32, &[8, 63], &[64, 1])), (true, false, true));
        assert_eq!(both(facts(ElementType::F16, &[8, 8], &[12, 1])), (false, true, true));
        assert_eq!(both(facts(ElementType::F32, &[8, 8], &[12, 1])), (true, true, true));
        assert_eq!(both(facts(ElementType::F32, &[8, 8], &[0, 1])), (true, true, false));
        assert_eq!(both(facts(ElementType::F32, &[0, 8], &[8, 1])), (true, true, false));
        assert_eq!(both(facts(ElementType::F32, &[2, 8], &[1 << 38, 1])), (true, true, false));
        assert_eq!(both(facts(ElementType::F32, &[1, 8], &[7, 1])), (true, true, true), "of one row no stride matters");
        assert_eq!(both(facts(ElementType::U8, &[5], &[1])), (true, false, true));
    }
}
