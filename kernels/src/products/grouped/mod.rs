//! Mixtures of experts: each token goes through a few of many experts, which a router chooses.
//!
//! [`moe`] is all of it. Its parts, which all run on the device: [`route`] chooses experts, [`Groups::new`] sorts tokens by
//! expert, [`gather`] brings their rows together, [`matmul`] and [`matmul_gated`] multiply the rows of each expert with a matrix
//! of its own, and [`combine`] adds up what the experts of each token say.

#[cfg(test)]
mod code_tests;
mod groups;
mod kernels;
mod mixture;
mod mixture_fp8;
mod products;
mod route;
mod rows;

pub use groups::{Groups, sort_into, sort_into_with, sort_workspace};
pub use mixture::{MoeRoom, MoeWorkspace, moe, moe_into, moe_into_with, moe_workspace};
pub use mixture_fp8::{
    MoeFp8Room, MoeFp8Workspace, Scaled, moe_fp8, moe_fp8_into, moe_fp8_into_with, moe_fp8_workspace,
};
pub use products::{
    GroupedConfig, matmul, matmul_blocks, matmul_blocks_into, matmul_gated, matmul_gated_into, matmul_into,
    weights_gradient, weights_gradient_into,
};
pub use route::{Routing, route, route_into};
pub use rows::{combine, combine_into, gather, gather_into};

use super::Activation;
