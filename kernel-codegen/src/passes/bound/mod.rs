//! Passes over the bound IR, before tiles have layouts.

pub(crate) mod assertions;
pub(crate) mod bounds;
pub(crate) mod choose_products;
pub(crate) mod descriptors;
pub(crate) mod hoist_loads;
pub(crate) mod no_wrap;
pub(crate) mod nonzero_trip;
pub(crate) mod pointers;
pub(crate) mod promises;
pub(crate) mod split_products;
pub(crate) mod unsigned_division;
