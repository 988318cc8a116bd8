//! Functions over tensors of any shape.

mod copy;

pub use copy::{contiguous, copy_into};
