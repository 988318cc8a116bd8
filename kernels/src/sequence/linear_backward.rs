//! The gradient of gated linear attention.

use super::check_input;
use super::gates::least;
use super::linear::{Inputs, Sizes};
use crate::general::{Real, write_zeros};
use crate::workspace::{Memory, product};
use crate::{Context, Tensor, TensorView, TensorViewMut};
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, ViewMut};

/// `dq[t] = scale h[t] dy[t]`, chunk by chunk with the states computed again, for `BV` channels of the values, which add up.
#[kernel]
fn attend_back_queries<T: Float, A: Float, const C: usize, const BK: usize, const BV: usize>(
    k: Ptr<T>,
    v: Ptr<T>,
    gate: Ptr<A>,
    initial: Option<Ptr<A>>,
    dy: Ptr<T>,
    dlast: Option<Ptr<A>>,
    dq: PtrMut<A>,
    at_end: PtrMut<A>,
    scale: A,
    len: i32,
    heads: i32,
    keys: i32,
    values: i32,
) {
    let (head, batch) = (program_id(1), program_id(2) as i64);
    let (i, j) = (arange(0, BK), program_id(0) * BV + arange(0, BV));
    let of_head = batch * heads as i64 + head as i64;
    let of_state = of_head * (keys as i64 * values as i64) + ((i * values)[(.., None)] + j) as i64;
    let state_mask = (i < keys)[(.., None)] & (j < values);
    let mut state = if let Some(initial) = initial {
        load(initial + of_state, mask = state_mask) as T::Acc
    } else {
        zeros::<T::Acc>([BK, BV])
    };
    let order = arange(0, C);
    let earlier = order[(.., None)] >= order[(None, ..)];
    for first in (0..len).step_by(C) {
        let t = first + order;
        let row = (batch * len as i64 + t as i64) * heads as i64 + head as i64;
        let key_mask = (t < len)[(.., None)] & (i < keys);
        let of_key = (row * keys as i64)[(.., None)] + i as i64;
        let value_mask = (t < len)[(.., None)] & (j < values);
        let of_value = (row * values as i64)[(.., None)] + j as i64;
        let g = maximum(load(gate + of_key, mask = key_mask) as T::Acc, least::<T::Acc>(), propagate_nan = true);
        let (reach, total) = (cumsum(g, axis = 0), sum(g, axis = 0));
        let ks = load(k + of_key, mask = key_mask) as T::Acc;
        let (vs, ys) = (load(v + of_value, mask = value_mask), load(dy + of_value, mask = value_mask));
        let alike = dot(ys, vs.trans(), acc = zeros::<T::Acc>([C, C]), precision = tf32x3);
        let alike = select(earlier, alike, 0.0);
        let between = exp(minimum(reach[(.., None, ..)] - reach[(None, .., ..)], 0.0));
        let inner = sum(alike[(.., .., None)] * ks[(None, .., ..)] * between, axis = 1);
        let outer = dot(ys, (state as T).trans(), acc = zeros::<T::Acc>([C, BK]), precision = tf32x3);
        let result = (inner + outer * exp(reach)) * scale as T::Acc;
        atomic_add(dq + of_key, result as A, mask = key_mask, order = relaxed);
        let kept = (ks * exp(total[(None, ..)] - reach)) as T;
        state = dot(kept.trans(), vs, acc = state * exp(total)[(.., None)], precision = tf32x3);
    }
    // What the last gate has of the gradient of the last state.
    if let Some(dlast) = dlast {
        let last = sum(state * load(dlast + of_state, mask = state_mask) as T::Acc, axis = 1);
        atomic_add(at_end + (of_head * keys as i64 + i as i64), last as A, mask = i < keys, order = relaxed);
    }
}

/// `dk[t] = g v[t]` and `dv[t] = g^T k[t]` with the gradient of the state, `g = diag(exp(gate[t + 1])) g + scale q[t] dy[t]^T`, from
/// the last chunk to the first.
#[kernel]
fn attend_back_keys<T: Float, A: Float, const C: usize, const BK: usize, const BV: usize>(
    q: Ptr<T>,
    k: Ptr<T>,
    v: Ptr<T>,
    gate: Ptr<A>,
    dy: Ptr<T>,
    dlast: Option<Ptr<A>>,
    dk: PtrMut<A>,
    dv: PtrMut<T>,
    dinitial: PtrMut<A>,
    scale: A,
    len: i32,
    heads: i32,
    keys: i32,
    values: i32,
) {
    let (head, batch) = (program_id(1), program_id(2) as i64);
    let (i, j) = (arange(0, BK), program_id(0) * BV + arange(0, BV));
    let of_head = batch * heads as i64 + head as i64;
    let of_state = of_head * (keys as i64 * values as i64) + ((i * values)[(.., None)] + j) as i64;
    let state_mask = (i < keys)[(.., None)] & (j < values);
    let mut gradient = if let Some(dlast) = dlast {
        load(dlast + of_state, mask = state_mask) as T::Acc
    } else {
        zeros::<T::Acc>([BK, BV])
    };
    let order = arange(0, C);
    let earlier = order[(.., None)] >= order[(None, ..)];
    let chunks = cdiv(len, C);
    for back in 0..chunks {
        let t = (chunks - 1 - back) * C + order;
        let row = (batch * len as i64 + t as i64) * heads as i64 + head as i64;
        let key_mask = (t < len)[(.., None)] & (i < keys);
        let of_key = (row * keys as i64)[(.., None)] + i as i64;
        let value_mask = (t < len)[(.., None)] & (j < values);
        let of_value = (row * values as i64)[(.., None)] + j as i64;
        let g = maximum(load(gate + of_key, mask = key_mask) as T::Acc, least::<T::Acc>(), propagate_nan = true);
        let (reach, total) = (cumsum(g, axis = 0), sum(g, axis = 0));
        let qs = load(q + of_key, mask = key_mask) as T::Acc * scale as T::Acc;
        let ks = load(k + of_key, mask = key_mask) as T::Acc;
        let (vs, ys) = (load(v + of_value, mask = value_mask), load(dy + of_value, mask = value_mask));
        let between = exp(minimum(reach[(.., None, ..)] - reach[(None, .., ..)], 0.0));
        let reaching = qs[(.., None, ..)] * between;
        let pairs = select(earlier, sum(reaching * ks[(None, .., ..)], axis = 2), 0.0) as T;
        let alike = dot(ys, vs.trans(), acc = zeros::<T::Acc>([C, C]), precision = tf32x3);
        let left = exp(total[(None, ..)] - reach);
        let outer = dot(vs, (gradient as T).trans(), acc = zeros::<T::Acc>([C, BK]), precision = tf32x3);
        let inner = sum(select(earlier, alike, 0.0)[(.., .., None)] * reaching, axis = 0);
        atomic_add(dk + of_key, (inner + outer * left) as A, mask = key_mask, order = relaxed);
        let values_back = dot((ks * left) as T, gradient as T, acc = zeros::<T::Acc>([C, BV]), precision = tf32x3);
        let values_back = dot(pairs.trans(), ys, acc = values_back, precision = tf32x3);
        store(dv + of_value, values_back as T, mask = value_mask);
        let reached = (qs * exp(reach)) as T;
        gradient = dot(reached.trans(), ys, acc = gradient * exp(total)[(.., None)], precision = tf32x3);
    }
    store(dinitial + of_state, gradient as A, mask = state_mask);
}

/// `dgate[t] = sum over s >= t of q[s] dq[s] - k[s] dk[s]`, and what the last state has of it (as in the paper's appendix).
#[kernel]
fn attend_back_gates<T: Float, A: Float, const C: usize, const BK: usize>(
    q: Ptr<T>,
    k: Ptr<T>,
    dq: Ptr<A>,
    dk: Ptr<A>,
    at_end: Ptr<A>,
    dgate: PtrMut<A>,
    len: i32,
    width: i32,
) {
    let (batch, i) = (program_id(1) as i64, program_id(0) * BK + arange(0, BK));
    let mut carry = load(at_end + (batch * width as i64 + i as i64), mask = i < width);
    let chunks = cdiv(len, C);
    for back in 0..chunks {
        let t = (chunks - 1 - back) * C + arange(0, C);
        let place = ((batch * len as i64 + t as i64) * width as i64)[(.., None)] + i as i64;
        let mask = (t < len)[(.., None)] & (i < width);
        let (qs, ks) = (load(q + place, mask = mask) as A, load(k + place, mask = mask) as A);
        let own = qs * load(dq + place, mask = mask) - ks * load(dk + place, mask = mask);
        store(dgate + place, cumsum(own, axis = 0, reverse = true) + carry[(None, ..)], mask = mask);
        carry += sum(own, axis = 0);
    }
}

/// The gradients of [`gated_linear_attention`](super::gated_linear_attention), each of its input's shape. Those of queries, keys,
/// gates and states are f32 (f64 for f64).
#[derive(Debug)]
pub struct GatedLinearAttentionGradients<T: Real> {
    /// Of `q`.
    pub q: Tensor<T::Sums, 4>,
    /// Of `k`.
    pub k: Tensor<T::Sums, 4>,
    /// Of `v`.
    pub v: Tensor<T, 4>,
    /// Of the gates.
    pub gate: Tensor<T::Sums, 4>,
    /// Of the initial state, or of the zeros in its place.
    pub initial: Tensor<T::Sums, 4>,
}

impl<T: Real> GatedLinearAttentionGradients<T> {
    /// All of them, to write.
    pub fn view_mut(&mut self) -> GatedLinearAttentionGradientsMut<'_, T> {
        GatedLinearAttentionGradientsMut {
            q: self.q.view_mut(),
            k: self.k.view_mut(),
            v: self.v.view_mut(),
            gate: self.gate.view_mut(),
            initial: self.initial.view_mut(),
        }
    }
}

/// Where gradients of [`gated_linear_attention`](super::gated_linear_attention) are written, each of its input's shape and in
/// row-major order without gaps.
#[derive(Debug)]
pub struct GatedLinearAttentionGradientsMut<'a, T: Real> {
    /// Of `q`.
    pub q: TensorViewMut<'a, T::Sums, 4>,
    /// Of `k`.
    pub k: TensorViewMut<'a, T::Sums, 4>,
    /// Of `v`.
    pub v: TensorViewMut<'a, T, 4>,
    /// Of the gates.
    pub gate: TensorViewMut<'a, T::Sums, 4>,
    /// Of the initial state, or of the zeros in its place.
    pub initial: TensorViewMut<'a, T::Sums, 4>,
}

impl<T: Real> GatedLinearAttentionGradientsMut<'_, T> {
    fn check(&self, inputs: &Inputs<'_, T>, sizes: &Sizes) -> Result<()> {
        check_input("gradients.q", &self.q.as_view(), inputs.q.shape())?;
        check_input("gradients.k", &self.k.as_view(), inputs.k.shape())?;
        check_input("gradients.v", &self.v.as_view(), inputs.v.shape())?;
        check_input("gradients.gate", &self.gate.as_view(), inputs.gate.shape())?;
        check_input("gradients.initial", &self.initial.as_view(), sizes.state())
    }
}

/// The gradients of [`gated_linear_attention`](super::gated_linear_attention) for its inputs, from those of its results: `dy`,
/// and `dlast` of the last state, zeros if there is none.
///
/// # Shapes
///
/// Those of [`gated_linear_attention`](super::gated_linear_attention); `dy` has the shape of `v`, `dlast` that of a state.
///
/// # Numerics
///
/// As [`gated_linear_attention`](super::gated_linear_attention). Gradients of `q` and `k` are sums over blocks of values, added
/// in memory atomically, in no certain order.
///
/// # Errors
///
/// Those of [`gated_linear_attention`](super::gated_linear_attention).
#[allow(clippy::too_many_arguments)]
pub fn gated_linear_attention_backward<'a, T: Real>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    gate: impl Into<TensorView<'a, T::Sums, 4>>,
    scale: T::Sums,
    initial: Option<TensorView<'a, T::Sums, 4>>,
    dy: impl Into<TensorView<'a, T, 4>>,
    dlast: Option<TensorView<'a, T::Sums, 4>>,
) -> Result<GatedLinearAttentionGradients<T>> {
    let inputs = Inputs { q: q.into(), k: k.into(), v: v.into(), gate: gate.into(), scale, initial };
    let (sizes, device) = (inputs.check()?, cx.device());
    let mut gradients = GatedLinearAttentionGradients::<T> {
        q: Tensor::empty(device, inputs.q.shape())?,
        k: Tensor::empty(device, inputs.k.shape())?,
        v: Tensor::empty(device, inputs.v.shape())?,
        gate: Tensor::empty(device, inputs.gate.shape())?,
        initial: Tensor::empty(device, sizes.state())?,
    };
    run(cx, &inputs, (dy.into(), dlast), gradients.view_mut(), None)?;
    Ok(gradients)
}

/// [`gated_linear_attention_backward`], into tensors. One number for each sequence, head and key is allocated for the call.
///
/// # Errors
///
/// As [`gated_linear_attention_backward`], and if shapes of gradients do not fit or they have gaps.
#[allow(clippy::too_many_arguments)]
pub fn gated_linear_attention_backward_into<'a, T: Real>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    gate: impl Into<TensorView<'a, T::Sums, 4>>,
    scale: T::Sums,
    initial: Option<TensorView<'a, T::Sums, 4>>,
    dy: impl Into<TensorView<'a, T, 4>>,
    dlast: Option<TensorView<'a, T::Sums, 4>>,
    gradients: GatedLinearAttentionGradientsMut<'_, T>,
) -> Result<()> {
    let inputs = Inputs { q: q.into(), k: k.into(), v: v.into(), gate: gate.into(), scale, initial };
    run(cx, &inputs, (dy.into(), dlast), gradients, None)
}

/// [`gated_linear_attention_backward_into`], with a workspace for what gates have of the gradients of last states: without gaps,
/// with as many elements as [`gated_linear_attention_backward_workspace`] says, or more, of the dtype of states. What it holds
/// does not matter. Nothing is allocated.
///
/// # Errors
///
/// As [`gated_linear_attention_backward_into`], and if the workspace has gaps or is too small.
#[allow(clippy::too_many_arguments)]
pub fn gated_linear_attention_backward_into_with<'a, 'b, T: Real>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    gate: impl Into<TensorView<'a, T::Sums, 4>>,
    scale: T::Sums,
    initial: Option<TensorView<'a, T::Sums, 4>>,
    dy: impl Into<TensorView<'a, T, 4>>,
    dlast: Option<TensorView<'a, T::Sums, 4>>,
    gradients: GatedLinearAttentionGradientsMut<'_, T>,
    workspace: impl Into<TensorViewMut<'b, T::Sums, 1>>,
) -> Result<()> {
    let inputs = Inputs { q: q.into(), k: k.into(), v: v.into(), gate: gate.into(), scale, initial };
    run(cx, &inputs, (dy.into(), dlast), gradients, Some(workspace.into()))
}

/// How many elements [`gated_linear_attention_backward_into_with`] needs as its workspace for `q` of this shape,
/// `[batch, len, heads, keys]`, whatever the device: one for each sequence, head and key.
pub fn gated_linear_attention_backward_workspace([batch, _, heads, keys]: [usize; 4]) -> usize {
    product(&[batch, heads, keys])
}

fn run<T: Real>(
    cx: &Context,
    inputs: &Inputs<'_, T>,
    (dy, dlast): (TensorView<'_, T, 4>, Option<TensorView<'_, T::Sums, 4>>),
    mut gradients: GatedLinearAttentionGradientsMut<'_, T>,
    workspace: Option<TensorViewMut<'_, T::Sums, 1>>,
) -> Result<()> {
    let sizes = inputs.check()?;
    check_input("dy", &dy, inputs.v.shape())?;
    dlast.map(|dlast| check_input("dlast", &dlast, sizes.state())).transpose()?;
    gradients.check(inputs, &sizes)?;
    let needed = gated_linear_attention_backward_workspace(inputs.q.shape());
    let mut at_end = Memory::of(cx, "workspace", workspace, needed)?;
    // Programs add to these.
    write_zeros(cx, gradients.q.elements_mut())?;
    write_zeros(cx, gradients.k.elements_mut())?;
    write_zeros(cx, at_end.view_mut())?;
    let Sizes { batch, len, heads, keys, .. } = sizes;
    if batch * heads == 0 {
        return Ok(());
    }
    queries_and_keys(cx, inputs, &sizes, (dy, dlast), &mut gradients, at_end.view_mut())?;
    let width = heads * keys;
    let block = width.next_power_of_two().min(32);
    AttendBackGatesConsts { C: 64, BK: block }
        .call(
            inputs.q.elements(),
            inputs.k.elements(),
            gradients.q.as_view().elements(),
            gradients.k.as_view().elements(),
            at_end.view(),
            gradients.gate.elements(),
            len as i32,
            width as i32,
        )
        .grid((width.div_ceil(block), batch))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}

/// All gradients but those of gates, and what the last gates have of that of the last state, `[batch, heads, keys]`, which is added
/// to `at_end`.
fn queries_and_keys<T: Real>(
    cx: &Context,
    inputs: &Inputs<'_, T>,
    sizes: &Sizes,
    (dy, dlast): (TensorView<'_, T, 4>, Option<TensorView<'_, T::Sums, 4>>),
    gradients: &mut GatedLinearAttentionGradientsMut<'_, T>,
    at_end: ViewMut<'_, T::Sums>,
) -> Result<()> {
    let Sizes { batch, len, heads, keys, values } = *sizes;
    let bk = keys.next_power_of_two().max(16);
    let bv = values.next_power_of_two().clamp(16, VALUES);
    let grid = (values.div_ceil(bv), heads, batch);
    let [len, heads, keys, values] = [len, heads, keys, values].map(|size| size as i32);
    let dlast = dlast.map(|dlast| dlast.elements());
    AttendBackQueriesConsts { C: chunk(bk), BK: bk, BV: bv }
        .call(
            inputs.k.elements(),
            inputs.v.elements(),
            inputs.gate.elements(),
            MaybeView::from(inputs.initial.map(|initial| initial.elements())),
            dy.elements(),
            MaybeView::from(dlast),
            gradients.q.elements_mut(),
            at_end,
            inputs.scale,
            len,
            heads,
            keys,
            values,
        )
        .grid(grid)
        .num_warps(WARPS)
        .stream(cx.stream())
        .launch(cx.device())?;
    AttendBackKeysConsts { C: chunk(bk), BK: bk, BV: bv }
        .call(
            inputs.q.elements(),
            inputs.k.elements(),
            inputs.v.elements(),
            inputs.gate.elements(),
            dy.elements(),
            MaybeView::from(dlast),
            gradients.k.elements_mut(),
            gradients.v.elements_mut(),
            gradients.initial.elements_mut(),
            inputs.scale,
            len,
            heads,
            keys,
            values,
        )
        .grid(grid)
        .num_warps(WARPS)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Steps of a chunk, so that the pairs of a chunk fit into registers, of which there are two for each channel of the keys.
fn chunk(keys: usize) -> usize {
    if keys > 64 { 8 } else { 16 }
}

/// Channels of the values of a program.
const VALUES: usize = 32;
/// Warps of a program.
const WARPS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn gradients_fit_into_registers() {
        let target = Target::sm_90a();
        for keys in [64, 128] {
            let consts = AttendBackQueriesConsts { C: chunk(keys), BK: keys, BV: VALUES };
            let compiled = consts.request::<bf16, f32>(false, true).num_warps(WARPS).compile(target);
            check_instructions(&format!("gradient of queries, {keys} keys"), compiled, &["mma"]);
            let consts = AttendBackKeysConsts { C: chunk(keys), BK: keys, BV: VALUES };
            let compiled = consts.request::<bf16, f32>(true).num_warps(WARPS).compile(target);
            check_instructions(&format!("gradient of keys, {keys} keys"), compiled, &["mma"]);
        }
    }
}
