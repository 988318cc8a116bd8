//! Which experts a token goes to.

use crate::arguments::packed;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::prelude::*;

/// The experts of each token, the likeliest first, and how much each counts.
#[derive(Debug)]
pub struct Routing {
    /// `[tokens, k]`.
    pub weights: Tensor<f32, 2>,
    /// `[tokens, k]`, numbers of experts.
    pub experts: Tensor<i32, 2>,
}

/// Softmax of some rows, and the `K` largest of each. Of `K`, a power of two, the first `k` count.
#[kernel]
fn choose_experts<T: Float, const ROWS: usize, const E: usize, const K: usize>(
    logits: Ptr<T>,
    weights: PtrMut<f32>,
    experts: PtrMut<i32>,
    tokens: i32,
    count: i32,
    k: i32,
    stride: i64,
    normalise: bool,
) {
    let row = program_id(0) * ROWS + arange(0, ROWS)[(.., None)];
    let (expert, slot) = (arange(0, E), arange(0, K));
    let mask = (row < tokens) & (expert < count);
    let x = load(logits + (row as i64 * stride + expert as i64), mask = mask, other = T::NEG_INFINITY) as f32;
    // f8e4m3 has no infinity.
    let x = if T == f8e4m3 { select(mask, x, f32::NEG_INFINITY) } else { x };
    // Rows that are not there have no infinity minus infinity.
    let x = select(row < tokens, x, 0.0);
    let likely = softmax(x, axis = 1);
    // What is no expert comes behind all that are.
    let (values, indices) = topk(select(expert < count, likely, -1.0), K, axis = 1, return_indices = true);
    let total = sum(select(slot < k, values, 0.0), axis = 1, keep_dims = true);
    let values = if normalise { values / total } else { values };
    let to = row as i64 * k as i64 + slot as i64;
    let mask = (row < tokens) & (slot < k);
    store(weights + to, values, mask = mask);
    store(experts + to, indices, mask = mask);
}

/// The `k` experts of each token: the largest of `softmax(logits)`, of equal ones the first. With `normalise` their weights
/// are divided by their sum.
///
/// # Shapes
///
/// `logits` is `[tokens, experts]`, weights and experts are `[tokens, k]`. Any float, computed in f32.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if rows have gaps, or there are fewer experts than `k` or more than 1024; [`Error::OutOfMemory`],
/// those of a launch.
pub fn route<'a, T: Float>(
    cx: &Context,
    logits: impl Into<TensorView<'a, T, 2>>,
    k: usize,
    normalise: bool,
) -> Result<Routing> {
    let logits = logits.into();
    check_choice(logits.shape(), k)?;
    let shape = [logits.shape()[0], k];
    let mut routing =
        Routing { weights: Tensor::empty(cx.device(), shape)?, experts: Tensor::empty(cx.device(), shape)? };
    route_into(cx, logits, k, normalise, &mut routing.weights, &mut routing.experts)?;
    Ok(routing)
}

/// [`route`], into tensors of the shape `[tokens, k]`, without gaps: those of a [`Routing`], for example. Nothing is allocated.
///
/// # Errors
///
/// As [`route`], and [`Error::InvalidTensor`] if `weights` or `experts` have another shape or gaps.
pub fn route_into<'a, 'b, 'c, T: Float>(
    cx: &Context,
    logits: impl Into<TensorView<'a, T, 2>>,
    k: usize,
    normalise: bool,
    weights: impl Into<TensorViewMut<'b, f32, 2>>,
    experts: impl Into<TensorViewMut<'c, i32, 2>>,
) -> Result<()> {
    let (logits, weights, chosen) = (logits.into(), weights.into(), experts.into());
    let [tokens, experts] = logits.shape();
    check_choice(logits.shape(), k)?;
    let stride = logits.rows("logits")?.stride;
    check::shape("weights", weights.shape(), [tokens, k])?;
    check::shape("experts", chosen.shape(), [tokens, k])?;
    packed("weights", weights.is_contiguous())?;
    packed("experts", chosen.is_contiguous())?;
    if chosen.is_empty() {
        return Ok(());
    }
    let wide = experts.next_power_of_two();
    let rows = (1024 / wide).clamp(1, 16);
    ChooseExpertsConsts { ROWS: rows, E: wide, K: k.next_power_of_two() }
        .call(
            logits.elements(),
            weights.elements(),
            chosen.elements(),
            check::size("logits", tokens)?,
            experts as i32,
            k as i32,
            stride as i64,
            normalise,
        )
        .grid(tokens.div_ceil(rows))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Refuses to choose more experts than there are, and to have more than a program sorts.
fn check_choice([_, experts]: [usize; 2], k: usize) -> Result<()> {
    if k > experts || experts > 1024 {
        let problem = format!("has {experts} experts, of which {k} are chosen");
        return Err(check::invalid("logits", problem, "choose no more than there are, of at most 1024"));
    }
    Ok(())
}
