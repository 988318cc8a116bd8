//! Attention: forward and backward, over packed sequences, over caches and pages, and the merging of partial results.

mod backward;
#[cfg(test)]
mod code;
mod device;
mod forward;
mod merge;
mod mla;
mod options;
mod serving;
mod shape;

pub use backward::{BackwardConfig, Gradients, Saved, SavedPacked, backward, backward_into, backward_packed};
pub use forward::{ForwardConfig, forward, forward_into, forward_packed};
pub use merge::{merge, merge_into, merge_states};
pub use mla::{LatentCache, MlaConfig, mla_decode};
pub use options::Attention;
pub use serving::{DecodeConfig, PagedCache, PrefillConfig, decode, paged_decode, paged_prefill};
