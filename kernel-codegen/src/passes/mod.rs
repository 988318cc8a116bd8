//! GPU passes over the bound IR, each in a file of its own.

pub(crate) mod descriptors;
pub(crate) mod hoist_loads;
