//! GPU passes, by the level of the kernels that they take, each in a file of its own.

pub(crate) mod bound;
pub(crate) mod list;
pub(crate) mod pass;
pub(crate) mod placed;
