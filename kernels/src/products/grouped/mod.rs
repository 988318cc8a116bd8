//! Mixtures of experts: each token goes through a few of many experts, which a router chooses.
//!
//! [`moe`] is all of it. Its parts, which all run on the device: [`route`] chooses experts, [`Groups::new`] sorts tokens by
//! expert, [`gather`] brings their rows together, [`matmul`] and [`matmul_gated`] multiply the rows of each expert with a matrix
//! of its own, and [`combine`] adds up what the experts of each token say.
//!
//! A graph has memory for all of it:
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright_kernels::products::Activation;
//! use tilewright_kernels::products::grouped::{self, MoeWorkspace};
//! use tilewright_kernels::{Context, Tensor};
//!
//! # fn main() -> Result<(), Error> {
//! let device = Device::best()?;
//! let cx = Context::new(&device);
//! let zeros = |shape| Tensor::<f16, 3>::zeros(&device, shape);
//! let (gate_up, down) = (zeros([4, 64, 32])?, zeros([4, 16, 64])?); // 4 experts
//! let (x, logits) = (Tensor::zeros(&device, [8, 64])?, Tensor::<f16, 2>::zeros(&device, [8, 4])?);
//!
//! let mut routing = grouped::route(&cx, &logits, 2, true)?;
//! let room = grouped::moe_workspace(&cx, x.shape(), 2, gate_up.shape())?;
//! let (mut rows, mut places) = (Tensor::empty(&device, [room.rows])?, Tensor::empty(&device, [room.places])?);
//! let mut y = Tensor::empty(&device, x.shape())?;
//! let stream = device.new_stream()?;
//! let graph = stream.capture(|stream| {
//!     let cx = cx.clone().with_stream(stream);
//!     grouped::route_into(&cx, &logits, 2, true, &mut routing.weights, &mut routing.experts)?;
//!     let workspace = MoeWorkspace { rows: rows.view_mut(), places: places.view_mut() };
//!     grouped::moe_into_with(&cx, &x, &routing, &gate_up, &down, Activation::Silu, &mut y, workspace)
//! })?;
//! graph.replay()?;
//! assert_eq!(y.to_vec()?, [f16::ZERO; 8 * 64]);
//! # Ok(())
//! # }
//! ```

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
pub(crate) use products::Kind;
pub use products::{
    GroupedConfig, matmul, matmul_blocks, matmul_blocks_into, matmul_gated, matmul_gated_into, matmul_into,
    weights_gradient, weights_gradient_into,
};
pub use route::{Routing, route, route_into};
pub use rows::{combine, combine_into, gather, gather_into};

use super::Activation;
