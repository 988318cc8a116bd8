//! Functions of rows, in bf16, against Triton's kernels for the same work.

pub mod divergence;
pub mod embedding;
pub mod gated;
pub mod group_norm;
pub mod loss;
pub mod norm;
pub mod norm_backward;
pub mod rotary;
pub mod softmax;
