//! The memory that arguments of a launch stand for: buffers, and tensors in them.

use std::ptr;

use crate::ir::MAX_TENSOR_RANK;

use super::affine::Rows;

/// The memory of a buffer parameter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    pub ptr: *mut u8,
    /// Length in elements.
    pub len: usize,
    /// Whether the kernel may write it.
    pub mutable: bool,
}

impl Buffer {
    pub(super) const EMPTY: Buffer = Buffer { ptr: ptr::null_mut(), len: 0, mutable: false };

    /// Whether both ends of a row lie inside.
    pub(super) fn holds(&self, start: i64, rows: Rows) -> bool {
        let last = i128::from(start) + i128::from(rows.step) * (rows.len as i128 - 1);
        let inside = |offset: i128| offset >= 0 && offset < self.len as i128;
        inside(i128::from(start)) && inside(last)
    }

    pub(super) fn contains(&self, offset: i64) -> bool {
        usize::try_from(offset).is_ok_and(|offset| offset < self.len)
    }
}

/// A tensor of 1 to 5 dimensions in memory: the argument of a `TensorDesc` parameter.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    /// The element with all coordinates zero, aligned to the size of an element.
    pub ptr: *mut u8,
    /// How many dimensions there are.
    pub rank: usize,
    /// Their sizes, outermost first; the first `rank` count.
    pub shape: [u64; MAX_TENSOR_RANK],
    /// The distances of neighbours along them, in elements.
    pub strides: [u64; MAX_TENSOR_RANK],
    /// Whether elements outside read as NaN, where their dtype has one, instead of as zero.
    pub pads_with_nan: bool,
}

impl Tensor {
    /// The number of elements from the first to the last in memory; 0 if there are none.
    pub fn span(&self) -> usize {
        let dims = || self.shape.iter().zip(&self.strides).take(self.rank);
        if dims().any(|(&size, _)| size == 0) {
            return 0;
        }
        let last = dims().fold(0u64, |last, (&size, &stride)| last.saturating_add((size - 1).saturating_mul(stride)));
        usize::try_from(last.saturating_add(1)).unwrap_or(usize::MAX)
    }
}

/// A tensor with what the kernel may do to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorMemory {
    pub tensor: Tensor,
    pub mutable: bool,
}

// SAFETY: as of buffers: the memory is written with atomics only, or not at all, while threads share it.
unsafe impl Send for TensorMemory {}
// SAFETY: as above.
unsafe impl Sync for TensorMemory {}
