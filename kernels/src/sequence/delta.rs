//! The gated delta rule.

use super::gates::least;
use super::{check_input, check_state};
use crate::general::Real;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::Result;
use tilewright::launch::MaybeView;
use tilewright::prelude::*;

/// Steps of a chunk, 32 at most: fewer for f32, which is multiplied in three parts, so that registers suffice.
fn chunk(bytes: usize) -> usize {
    if bytes > 2 { 16 } else { 32 }
}

/// Warps of a program.
const WARPS: u32 = 8;
/// Channels of the values of a program, so that its state fits into registers beside the matrices of a chunk.
fn block_values(keys: usize, bytes: usize) -> usize {
    let state = if bytes > 2 { 2048 } else { 4096 };
    (state / keys).min(64)
}

/// `(I + m)^-1` of a strictly lower triangular `m` of at most 32 rows, whose power `C` is 0:
/// `(I - m)(I + m^2)(I + m^4)(I + m^8)(I + m^16)`, up to the last power that is not.
#[device]
fn inverse<A: Float, const C: usize>(m: Tile<A, { [C, C] }>) -> Tile<A, { [C, C] }> {
    let order = arange(0, C);
    let one = select(order[(.., None)] == order[(None, ..)], full([C, C], 1 as A), 0 as A);
    let mut result = one - m;
    let mut power = m;
    #[unroll]
    for step in 1..5 {
        if (1 << step) < C {
            power = dot(power, power, acc = zeros::<A>([C, C]), precision = tf32x3);
            result = dot(result, power, acc = result, precision = tf32x3);
        }
    }
    result
}

/// One head of a sequence, chunk by chunk, for `BV` channels of the values. Within a chunk the state is
/// `d[t] h + sum over s <= t of (d[t] / d[s]) k[s] w[s]^T`, where `d` are products of decays from its beginning; the `w` solve
/// a triangular system (the WY form: Bischof and Van Loan, 1987).
#[kernel]
fn delta_rule<T: Float, A: Float, const C: usize, const BK: usize, const BV: usize>(
    q: Ptr<T>,
    k: Ptr<T>,
    v: Ptr<T>,
    gate: Ptr<A>,
    beta: Ptr<A>,
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
    let before = order[(.., None)] > order[(None, ..)];
    for first in (0..len).step_by(C) {
        let t = first + order;
        let row = (batch * len as i64 + t as i64) * heads as i64 + head as i64;
        let key_mask = (t < len)[(.., None)] & (i < keys);
        let of_key = (row * keys as i64)[(.., None)] + i as i64;
        let value_mask = (t < len)[(.., None)] & (j < values);
        let of_value = (row * values as i64)[(.., None)] + j as i64;
        let g = maximum(load(gate + row, mask = t < len) as T::Acc, least::<T::Acc>(), propagate_nan = true);
        let rate = load(beta + row, mask = t < len) as T::Acc;
        let qs = load(q + of_key, mask = key_mask);
        let ks = load(k + of_key, mask = key_mask);
        let vs = load(v + of_value, mask = value_mask) as T::Acc;
        let reach = cumsum(g, axis = 0);
        let total = sum(g, axis = 0);
        let decay = exp(select(earlier, reach[(.., None)] - reach[(None, ..)], 0.0));

        // What multiplies the keys, then what multiplies the queries: their parts are in registers for as long as that.
        let alike = dot(ks, ks.trans(), acc = zeros::<T::Acc>([C, C]), precision = tf32x3);
        let known = dot(ks, state as T, acc = zeros::<T::Acc>([C, BV]), precision = tf32x3);
        let pairs = dot(qs, ks.trans(), acc = zeros::<T::Acc>([C, C]), precision = tf32x3);
        let result = dot(qs, state as T, acc = zeros::<T::Acc>([C, BV]), precision = tf32x3) * exp(reach)[(.., None)];
        let m = select(before, alike * decay * rate[(.., None)], 0.0);
        let pairs = select(earlier, pairs * decay, 0.0) as T;
        let new = (vs - known * exp(reach)[(.., None)]) * rate[(.., None)];
        let w = dot(inverse(m), new, acc = zeros::<T::Acc>([C, BV]), precision = tf32x3) as T;

        let result = dot(pairs, w, acc = result, precision = tf32x3) * scale as T::Acc;
        store(y + of_value, result as T, mask = value_mask);
        let kept = (ks as T::Acc * exp(total - reach)[(.., None)]) as T;
        state = dot(kept.trans(), w, acc = state * exp(total), precision = tf32x3);
    }
    store(last + of_state, state as A, mask = state_mask);
}

/// The gated delta rule (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024): for each sequence and head,
///
/// `h = exp(gate[t]) (I - beta[t] k[t] k[t]^T) h + beta[t] k[t] v[t]^T`, from `initial` or 0, and `y[t] = scale h^T q[t]`. Returns
/// `y` and the last `h`. With gates of 0 it is the delta rule.
///
/// # Shapes
///
/// `q` and `k` are `[batch, len, heads, keys]`, `v` and `y` are `[batch, len, heads, values]`, `gate` (logarithms, at most 0)
/// and `beta` are `[batch, len, heads]`, `h` and `initial` are `[batch, heads, keys, values]`, with 1 to 128 keys and 1 to 256
/// values; all in row-major order without gaps. Gates, `beta` and states are f32 (f64 for f64).
///
/// # Numerics
///
/// In chunks of 32 steps, or 16 of f32 and f64. Sums are f32 (f64 for f64); products of matrices take factors in the dtype of `q`, to which states
/// and weights are rounded, and f32 is multiplied as `tf32x3`; the triangular system is solved in f32 by powers of its matrix,
/// which is accurate for `beta |k|^2` of at most 1, where the recurrence is stable too. f32 with more than 64 keys is slow: its
/// products do not fit into registers. Gates count as those of
/// [`gated_linear_attention`](super::gated_linear_attention) do, `-inf` too.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if shapes do not fit or a tensor has gaps; [`tilewright::Error::OutOfMemory`]; those of
/// a launch.
#[allow(clippy::too_many_arguments)]
pub fn gated_delta_rule<'a, T: Real>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    gate: impl Into<TensorView<'a, T::Sums, 3>>,
    beta: impl Into<TensorView<'a, T::Sums, 3>>,
    scale: T::Sums,
    initial: Option<TensorView<'a, T::Sums, 4>>,
) -> Result<(Tensor<T, 4>, Tensor<T::Sums, 4>)> {
    let inputs = Inputs { q: q.into(), k: k.into(), v: v.into(), gate: gate.into(), beta: beta.into(), scale, initial };
    let mut y = Tensor::empty(cx.device(), inputs.v.shape())?;
    let mut last = Tensor::empty(cx.device(), inputs.check()?)?;
    run(cx, &inputs, y.view_mut(), last.view_mut())?;
    Ok((y, last))
}

/// [`gated_delta_rule`], into tensors of the shapes of its results, in row-major order without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`gated_delta_rule`], and if shapes of `y` and `last` do not fit or they have gaps.
#[allow(clippy::too_many_arguments)]
pub fn gated_delta_rule_into<'a, 'b, T: Real>(
    cx: &Context,
    q: impl Into<TensorView<'a, T, 4>>,
    k: impl Into<TensorView<'a, T, 4>>,
    v: impl Into<TensorView<'a, T, 4>>,
    gate: impl Into<TensorView<'a, T::Sums, 3>>,
    beta: impl Into<TensorView<'a, T::Sums, 3>>,
    scale: T::Sums,
    initial: Option<TensorView<'a, T::Sums, 4>>,
    y: impl Into<TensorViewMut<'b, T, 4>>,
    last: impl Into<TensorViewMut<'b, T::Sums, 4>>,
) -> Result<()> {
    let inputs = Inputs { q: q.into(), k: k.into(), v: v.into(), gate: gate.into(), beta: beta.into(), scale, initial };
    run(cx, &inputs, y.into(), last.into())
}

/// The inputs of the rule.
struct Inputs<'a, T: Real> {
    q: TensorView<'a, T, 4>,
    k: TensorView<'a, T, 4>,
    v: TensorView<'a, T, 4>,
    gate: TensorView<'a, T::Sums, 3>,
    beta: TensorView<'a, T::Sums, 3>,
    scale: T::Sums,
    initial: Option<TensorView<'a, T::Sums, 4>>,
}

impl<T: Real> Inputs<'_, T> {
    /// Checks shapes, and gives that of a state.
    fn check(&self) -> Result<[usize; 4]> {
        let Inputs { q, k, v, gate, beta, initial, .. } = self;
        let ([batch, len, heads, keys], [_, _, _, values]) = (q.shape(), v.shape());
        check_state("q", keys)?;
        check_state("v", values)?;
        if keys > 128 {
            return Err(check::invalid("q", format!("has {keys} keys"), "there are at most 128"));
        }
        check::packed("q", q)?;
        check_input("k", k, [batch, len, heads, keys])?;
        check_input("v", v, [batch, len, heads, values])?;
        check_input("gate", gate, [batch, len, heads])?;
        check_input("beta", beta, [batch, len, heads])?;
        initial.map(|initial| check_input("initial", &initial, [batch, heads, keys, values])).transpose()?;
        check::size("q", len)?;
        Ok([batch, heads, keys, values])
    }
}

fn run<T: Real>(
    cx: &Context,
    inputs: &Inputs<'_, T>,
    y: TensorViewMut<'_, T, 4>,
    last: TensorViewMut<'_, T::Sums, 4>,
) -> Result<()> {
    let state @ [batch, heads, keys, values] = inputs.check()?;
    check_input("y", &y.as_view(), inputs.v.shape())?;
    check_input("last", &last.as_view(), state)?;
    if batch * heads == 0 {
        return Ok(());
    }
    let bk = keys.next_power_of_two().max(16);
    let bv = values.next_power_of_two().clamp(16, block_values(bk, size_of::<T>()));
    DeltaRuleConsts { C: chunk(size_of::<T>()), BK: bk, BV: bv }
        .call(
            inputs.q.elements(),
            inputs.k.elements(),
            inputs.v.elements(),
            inputs.gate.elements(),
            inputs.beta.elements(),
            MaybeView::from(inputs.initial.map(|initial| initial.elements())),
            y.elements(),
            last.elements(),
            inputs.scale,
            inputs.q.shape()[1] as i32,
            heads as i32,
            keys as i32,
            values as i32,
        )
        .grid((values.div_ceil(bv), heads, batch))
        .num_warps(WARPS)
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
        // f32 of 128 keys does not, whatever the block: its products of three parts are unrolled over all keys.
        for keys in [64, 128] {
            let consts = |bytes: usize| DeltaRuleConsts { C: chunk(bytes), BK: keys, BV: block_values(keys, bytes) };
            let compiled = consts(2).request::<bf16, f32>(false).num_warps(WARPS).compile(Target::sm_90a());
            check_instructions(&format!("gated delta rule, {keys} keys"), compiled, &["mma"]);
        }
        let consts = DeltaRuleConsts { C: chunk(4), BK: 64, BV: block_values(64, 4) };
        let compiled = consts.request::<f32, f32>(false).num_warps(WARPS).compile(Target::sm_90a());
        check_instructions("gated delta rule, 64 keys, f32", compiled, &["mma"]);
    }
}
