//! What a training step does beside forward and backward passes: optimisers, norms of gradients, clipping.
//!
//! # Many tensors in one launch
//!
//! A kernel takes a fixed number of buffers, and memory holds no addresses. One launch over many tensors is one launch
//! over one buffer that holds them all: a [`Pack`] lays tensors out one after another and gives each as a view. Models
//! whose parameters, gradients and moments live in packs are updated by one launch for all of them; what
//! differs between tensors (weight decay) is a table of numbers, by [`Pack::per_tensor`].

mod adamw;
mod clip;
#[cfg(all(test, feature = "jit"))]
mod code;
mod pack;
mod sgd;

pub use adamw::{AdamW, AdamWState, Step, adamw};
pub use clip::{clip_factor, clip_factor_into, global_norm, global_norm_into, scale_in_place};
pub use pack::{Pack, Packed};
pub use sgd::{Sgd, sgd};
