//! Which experts a token goes to.

use crate::{Context, Tensor, TensorView, check};
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
    let [tokens, experts] = logits.shape();
    if k > experts || experts > 1024 {
        let problem = format!("has {experts} experts, of which {k} are chosen");
        return Err(check::invalid("logits", problem, "choose no more than there are, of at most 1024"));
    }
    let stride = logits.rows("logits")?.stride;
    let mut routing = Routing {
        weights: Tensor::empty(cx.device(), [tokens, k])?,
        experts: Tensor::empty(cx.device(), [tokens, k])?,
    };
    if routing.experts.is_empty() {
        return Ok(routing);
    }
    let wide = experts.next_power_of_two();
    let rows = (1024 / wide).clamp(1, 16);
    ChooseExpertsConsts { ROWS: rows, E: wide, K: k.next_power_of_two() }
        .call(
            logits.elements(),
            routing.weights.buffer_mut(),
            routing.experts.buffer_mut(),
            check::size("logits", tokens)?,
            experts as i32,
            k as i32,
            stride as i64,
            normalise,
        )
        .grid(tokens.div_ceil(rows))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())?;
    Ok(routing)
}
