//! Passes over the placed IR, where tiles have layouts.

pub(crate) mod accumulator_banks;
mod axes;
mod carry;
pub(crate) mod delays;
pub(crate) mod dependent_launch;
pub(crate) mod dot_operands;
pub(crate) mod exchanges;
pub(crate) mod late_waits;
pub(crate) mod membar;
pub(crate) mod own_parts;
pub(crate) mod peel_masked_tail;
pub(crate) mod residency;
pub(crate) mod software_pipeline;
pub(crate) mod stored_blocks;
pub(crate) mod tensor_copies;
pub(crate) mod turns;
pub(crate) mod unroll;
pub(crate) mod warp_specialize;
