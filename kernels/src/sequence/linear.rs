//! Gated linear attention.

use super::gates::least;
use super::{check_input, check_state};
use crate::general::Real;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::launch::MaybeView;
use tilewright::prelude::*;

/// Steps of a chunk: pairs of them are weighed for each channel of the keys, which makes a tile of `CHUNK^2 * keys`.
const CHUNK: usize = 16;
/// Channels of the values of a program, so that its state fits into registers beside the pairs of a chunk.
fn block_values(keys: usize, bytes: usize) -> usize {
    if keys > 64 && bytes > 2 { 32 } else { 64 }
}

/// One head of a sequence, chunk by chunk, for `BV` channels of the values. Decays of pairs are `exp` of sums of log decays
/// between them, which are at most 0: nothing overflows, whatever the gates.
#[kernel]
fn attend<T: Float, A: Float, const C: usize, const BK: usize, const BV: usize>(
    q: Ptr<T>,
    k: Ptr<T>,
    v: Ptr<T>,
    gate: Ptr<A>,
    initial: Option<Ptr<A>>,
    y: PtrMut<T>,
    last: PtrMut<A>,
    scale: A,
    len: i32,
    heads: i32,
    keys: i32,
    values: i32,
) {
    let (head, batch) = (program_id(1), program_id(2) as i64);
    let (i, j) = (arange(0, BK), program_id(0) * BV + arange(0, BV));
    let own = (batch * heads as i64 + head as i64) * (keys as i64 * values as i64);
    let of_state = own + ((i * values)[(.., None)] + j) as i64;
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
        let reach = cumsum(g, axis = 0);
        let total = sum(g, axis = 0);
        let qs = load(q + of_key, mask = key_mask) as T::Acc * scale as T::Acc;
        let ks = load(k + of_key, mask = key_mask) as T::Acc;
        let vs = load(v + of_value, mask = value_mask);

        let between = minimum(reach[(.., None, ..)] - reach[(None, .., ..)], 0.0);
        let pairs = sum(qs[(.., None, ..)] * ks[(None, .., ..)] * exp(between), axis = 2);
        let pairs = select(earlier, pairs, 0.0);
        let reached = (qs * exp(reach)) as T;
        let result = dot(reached, state as T, acc = zeros::<T::Acc>([C, BV]), precision = tf32x3);
        let result = dot(pairs as T, vs, acc = result, precision = tf32x3);
        store(y + of_value, result as T, mask = value_mask);
        let kept = (ks * exp(total[(None, ..)] - reach)) as T;
        state = dot(kept.trans(), vs, acc = state * exp(total)[(.., None)], precision = tf32x3);
    }
    store(last + of_state, state as A, mask = state_mask);
}

/// The inputs of gated linear attention.
pub(super) struct Inputs<'a, T: Real> {
    pub q: TensorView<'a, T, 4>,
    pub k: TensorView<'a, T, 4>,
    pub v: TensorView<'a, T, 4>,
    pub gate: TensorView<'a, T::Sums, 4>,
    pub scale: T::Sums,
    pub initial: Option<TensorView<'a, T::Sums, 4>>,
}

/// Its sizes.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub batch: usize,
    pub len: usize,
    pub heads: usize,
    pub keys: usize,
    pub values: usize,
}

impl Sizes {
    /// The shape of a state.
    pub(super) fn state(&self) -> [usize; 4] {
        [self.batch, self.heads, self.keys, self.values]
    }
}

impl<T: Real> Inputs<'_, T> {
    pub(super) fn check(&self) -> Result<Sizes> {
        let ([batch, len, heads, keys], [_, _, _, values]) = (self.q.shape(), self.v.shape());
        check_state("q", keys)?;
        check_state("v", values)?;
        if keys > 128 {
            return Err(check::invalid("q", format!("has {keys} keys"), "there are at most 128"));
        }
        check::packed("q", &self.q)?;
        check_input("k", &self.k, [batch, len, heads, keys])?;
        check_input("v", &self.v, [batch, len, heads, values])?;
        check_input("gate", &self.gate, [batch, len, heads, keys])?;
        self.initial.map(|initial| check_input("initial", &initial, [batch, heads, keys, values])).transpose()?;
        check::size("q", len)?;
        Ok(Sizes { batch, len, heads, keys, values })
    }
}

/// Gated linear attention (Yang, Wang, Shen, Panda and Kim, "Gated Linear Attention Transformers with Hardware-Efficient
/// Training", 2023): for each sequence and head,
///
/// `h = diag(exp(gate[t])) h + k[t] v[t]^T`, from `initial` or 0, and `y[t] = scale h^T q[t]`. Returns `y` and the last `h`.
///
/// # Shapes
///
/// `q` and `k` are `[batch, len, heads, keys]`, `v` and `y` are `[batch, len, heads, values]`, `gate` (logarithms, at most 0)
/// has the shape of `k`, `h` and `initial` are `[batch, heads, keys, values]`, with 1 to 128 keys and 1 to 256 values; all in
/// row-major order without gaps. Gates and states are f32 (f64 for f64).
///
/// # Numerics
///
/// In chunks of 16 steps. Sums are f32 (f64 for f64); products of matrices take factors in the dtype of `q`, to which states
/// and weights are rounded, and f32 is multiplied as `tf32x3`.
///
/// Gates may be of any size below 0, `-inf` too: below -104 (-746 for f64) they count as that, of which `exp` is 0 already.
/// Decays between steps of a chunk are `exp` of differences of sums of its gates, so that their relative error is some units
/// of the last place of these sums: about 2<sup>-17</sup> (2<sup>-43</sup>) behind a gate that forgets everything.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if shapes do not fit or a tensor has gaps; [`tilewright::Error::OutOfMemory`]; those of
/// a launch.
#[allow(clippy::too_many_arguments)]
pub fn gated_linear_attention<'a, T: Real>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    gate: impl Into<TensorView<'a, T::Sums, 4>>,
    scale: T::Sums,
    initial: Option<TensorView<'a, T::Sums, 4>>,
) -> Result<(Tensor<T, 4>, Tensor<T::Sums, 4>)> {
    let inputs = Inputs { q: q.into(), k: k.into(), v: v.into(), gate: gate.into(), scale, initial };
    let sizes = inputs.check()?;
    let mut y = Tensor::empty(cx.device(), inputs.v.shape())?;
    let mut last = Tensor::empty(cx.device(), sizes.state())?;
    run(cx, &inputs, y.view_mut(), last.view_mut())?;
    Ok((y, last))
}

/// [`gated_linear_attention`], into tensors of the shapes of its results, in row-major order without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`gated_linear_attention`], and if shapes of `y` and `last` do not fit or they have gaps.
#[allow(clippy::too_many_arguments)]
pub fn gated_linear_attention_into<'a, 'b, T: Real>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    gate: impl Into<TensorView<'a, T::Sums, 4>>,
    scale: T::Sums,
    initial: Option<TensorView<'a, T::Sums, 4>>,
    y: impl Into<TensorViewMut<'b, T, 4>>,
    last: impl Into<TensorViewMut<'b, T::Sums, 4>>,
) -> Result<()> {
    let inputs = Inputs { q: q.into(), k: k.into(), v: v.into(), gate: gate.into(), scale, initial };
    run(cx, &inputs, y.into(), last.into())
}

fn run<T: Real>(
    cx: &Context,
    inputs: &Inputs<'_, T>,
    y: TensorViewMut<'_, T, 4>,
    last: TensorViewMut<'_, T::Sums, 4>,
) -> Result<()> {
    let sizes = inputs.check()?;
    let Sizes { batch, len, heads, keys, values } = sizes;
    check_input("y", &y.as_view(), inputs.v.shape())?;
    check_input("last", &last.as_view(), sizes.state())?;
    if batch * heads == 0 {
        return Ok(());
    }
    let bk = keys.next_power_of_two().max(16);
    let bv = values.next_power_of_two().clamp(16, block_values(bk, size_of::<T>()));
    AttendConsts { C: CHUNK, BK: bk, BV: bv }
        .call(
            inputs.q.elements(),
            inputs.k.elements(),
            inputs.v.elements(),
            inputs.gate.elements(),
            MaybeView::from(inputs.initial.map(|initial| initial.elements())),
            y.elements(),
            last.elements(),
            inputs.scale,
            len as i32,
            heads as i32,
            keys as i32,
            values as i32,
        )
        .grid((values.div_ceil(bv), heads, batch))
        .num_warps(if bk > 64 { 8 } else { 4 })
        .stream(cx.stream())
        .launch(cx.device())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn chunks_fit_into_registers() {
        for (keys, warps) in [(64, 4), (128, 8)] {
            let consts = |bytes| AttendConsts { C: CHUNK, BK: keys, BV: block_values(keys, bytes) };
            let compiled = consts(2).request::<bf16, f32>(false).num_warps(warps).compile(Target::sm_90a());
            check_instructions(&format!("gated linear attention, {keys} keys"), compiled, &["mma"]);
            let compiled = consts(4).request::<f32, f32>(false).num_warps(warps).compile(Target::sm_90a());
            check_instructions(&format!("gated linear attention, {keys} keys, f32"), compiled, &["mma"]);
        }
    }
}
