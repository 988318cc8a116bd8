//! GPU passes over the bound IR, and over the placed IR, each in a file of its own.

pub(crate) mod accumulator_banks;
mod axes;
pub(crate) mod bound;
mod carry;
pub(crate) mod delays;
pub(crate) mod dots;
pub(crate) mod exchanges;
pub(crate) mod list;
pub(crate) mod membar;
pub(crate) mod pipeline;
pub(crate) mod residency;
pub(crate) mod stored_blocks;
pub(crate) mod tensor_copies;
pub(crate) mod warp_specialize;
pub(crate) mod whole_trips;
