//! Attention: forward and backward, over packed sequences, over caches and pages, and the merging of partial results.

mod backward;
#[cfg(test)]
mod code;
mod device;
mod forward;
mod options;
mod shape;

pub use backward::{BackwardConfig, Gradients, Saved, SavedPacked, backward, backward_into, backward_packed};
pub use forward::{ForwardConfig, forward, forward_into, forward_packed};
pub use options::Attention;
