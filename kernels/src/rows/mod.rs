//! Functions of rows: what the last dimension of a tensor holds.
//!
//! The dimensions before the last may have any strides that let one index run over them; the last is contiguous.
//! [`crate::general::contiguous`] makes a copy that is so.

mod softmax;

pub use softmax::{SoftmaxConfig, softmax, softmax_backward, softmax_backward_into, softmax_into};
