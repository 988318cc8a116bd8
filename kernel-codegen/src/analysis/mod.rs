//! Facts about values and memory that placement, passes and lowering rely on.

pub(crate) mod addresses;
pub(crate) mod allocation;
pub(crate) mod apart;
pub mod axis;
pub(crate) mod banks;
pub(crate) mod beside;
pub(crate) mod control;
pub(crate) mod exchange;
mod facts;
pub(crate) mod held_factors;
mod info;
pub(crate) mod intervals;
pub(crate) mod lanes;
pub(crate) mod pressure;
mod rules;
#[cfg(test)]
mod tests;
pub(crate) mod undef_lanes;
pub(crate) mod vectors;
pub(crate) mod warp_groups;
