//! Mixtures of experts: each token goes through a few of many experts, which a router chooses.
//!
//! [`moe`] is all of it. Its parts, which all run on the device: [`route`] chooses experts, [`Groups::new`] sorts tokens by
//! expert, [`gather`] brings their rows together, [`matmul`] and [`matmul_gated`] multiply the rows of each expert with a matrix
//! of its own, and [`combine`] adds up what the experts of each token say.

#[cfg(test)]
mod code_tests;
mod groups;
mod kernels;
mod products;
mod route;

pub use groups::{Groups, combine, gather};
pub use products::{GroupedConfig, matmul, matmul_blocks, matmul_gated, weights_gradient};
pub use route::{Routing, route};

use super::{Activation, fp8};
use crate::{Context, Tensor, TensorView, check};
use products::Rest;
use tilewright::Result;
use tilewright::prelude::*;

/// The output of a mixture of gated experts (Shazeer, "GLU variants improve transformer", 2020; Fedus, Zoph and Shazeer,
/// "Switch transformers", 2021):
/// `y[t] = sum over the experts e of token t of weight[t, e] * (activation(x[t] @ gate[e]) * (x[t] @ up[e])) @ down[e]`.
///
/// # Shapes
///
/// | tensor | shape |
/// |---|---|
/// | `x` | `[tokens, hidden]` |
/// | `gate_up` | `[experts, hidden, 2 * inner]`, the columns of `gate` first |
/// | `down` | `[experts, inner, hidden]` |
/// | result | `[tokens, hidden]` |
///
/// Of the weights' matrices either dimension may be the contiguous one: weights that are stored as `[experts, outputs, inputs]`
/// are given as `w.view().transpose(1, 2)?`.
///
/// # Numerics
///
/// Sums are in f32; activations are rounded to `F` between both products, and once for each expert before the weighted sum,
/// which is in f32, in the order of the router's choice.
///
/// # Memory
///
/// Beside the result: rows of `x`, activations and results for each chosen expert of each token, rounded up to whole blocks
/// for each expert.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes do not fit, [`Error::OutOfMemory`], those of a launch.
pub fn moe<'a, 'b, 'c, F: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    routing: &Routing,
    gate_up: impl Into<TensorView<'b, F, 3>>,
    down: impl Into<TensorView<'c, F, 3>>,
    activation: Activation,
) -> Result<Tensor<F, 2>> {
    let (x, gate_up, down) = (x.into(), gate_up.into(), down.into());
    check_experts(x.shape(), routing, gate_up.shape(), down.shape())?;
    let groups = Groups::new(cx, &routing.experts, gate_up.shape()[0])?;
    let rows = gather(cx, x, &groups)?;
    // Each product reads the blocks that are used, and the sum the rows of pairs.
    let inner: Tensor<F, 2> = products::gated(cx, rows.view(), gate_up, &groups, activation, Rest::Unread)?;
    let outer = products::matmul_used(cx, &inner, down, &groups)?;
    combine(cx, &outer, &routing.weights, &groups)
}

/// Weights of experts as 8-bit floats, with a scale for each 128 by 128 of them.
#[derive(Debug, Clone, Copy)]
pub struct Scaled<'a> {
    /// `[experts, k, n]`; the fastest if `k` is the contiguous dimension.
    pub weights: TensorView<'a, F8E4M3, 3>,
    /// `[experts, ceil(k / 128), ceil(n / 128)]`.
    pub scales: TensorView<'a, f32, 3>,
}

/// [`moe`] with weights of 8-bit floats; rows and activations are made 8-bit floats with a scale for each 128 neighbours
/// ([`fp8::quantise_blocks`]).
///
/// # Errors
///
/// As [`moe`].
pub fn moe_fp8<'a, F: Float>(
    cx: &Context,
    x: impl Into<TensorView<'a, F, 2>>,
    routing: &Routing,
    gate_up: Scaled<'_>,
    down: Scaled<'_>,
    activation: Activation,
) -> Result<Tensor<F, 2>> {
    let x = x.into();
    check_experts(x.shape(), routing, gate_up.weights.shape(), down.weights.shape())?;
    let groups = Groups::new(cx, &routing.experts, gate_up.weights.shape()[0])?;
    let (rows, scales) = fp8::quantise_blocks(cx, x)?;
    let (rows, scales) = (gather(cx, &rows, &groups)?, gather(cx, &scales, &groups)?);
    let both: Tensor<F, 2> = products::scaled(cx, rows.view(), scales.view(), gate_up, &groups, Rest::Unread)?;
    let inner = groups::gated(cx, &both, &groups, activation)?;
    let (inner, scales) = fp8::quantise_blocks(cx, &inner)?;
    let outer: Tensor<F, 2> = products::scaled(cx, inner.view(), scales.view(), down, &groups, Rest::Unread)?;
    combine(cx, &outer, &routing.weights, &groups)
}

fn check_experts([tokens, hidden]: [usize; 2], routing: &Routing, gate_up: [usize; 3], down: [usize; 3]) -> Result<()> {
    let ([experts, _, both], [_, chosen]) = (gate_up, routing.experts.shape());
    check::shape("routing.experts", routing.experts.shape(), [tokens, chosen])?;
    check::shape("routing.weights", routing.weights.shape(), [tokens, chosen])?;
    check::shape("gate_up", gate_up, [experts, hidden, both / 2 * 2])?;
    check::shape("down", down, [experts, both / 2, hidden])
}
