//! State-space duality: the scan of Mamba-2, chunk by chunk with matrix products.

use super::{check_input, check_state};
use crate::general::Real;
use crate::{Context, Tensor, TensorView, check};
use tilewright::Result;
use tilewright::launch::MaybeView;
use tilewright::prelude::*;

/// Steps of a chunk.
const CHUNK: usize = 64;
/// Elements of states that a program passes on.
const PASSED: usize = 1024;

/// What each chunk adds to the state, `[n, p]`, and by what it multiplies it.
#[kernel]
fn chunk_states<T: Float, A: Float, const Q: usize, const BN: usize, const BP: usize>(
    x: Ptr<T>,
    dt: Ptr<A>,
    a: Ptr<A>,
    b: Ptr<T>,
    states: PtrMut<A>,
    decays: PtrMut<A>,
    len: i32,
    heads: i32,
    groups: i32,
    n: i32,
    p: i32,
) {
    let (chunk, head, batch) = (program_id(0), program_id(1), program_id(2) as i64);
    let t = chunk * Q + arange(0, Q);
    let (i, j) = (arange(0, BN), arange(0, BP));
    let token = batch * len as i64 + t as i64;
    let step = load(dt + (token * heads as i64 + head as i64), mask = t < len) as T::Acc;
    let log_decay = step * load(a + head) as T::Acc;
    let total = sum(log_decay, axis = 0);
    let weight = exp(total - cumsum(log_decay, axis = 0)) * step;
    let group = (head / (heads / groups)) as i64;
    let b_row = (token * groups as i64 + group) * n as i64;
    let bs = load(b + (b_row[(.., None)] + i as i64), mask = (t < len)[(.., None)] & (i < n));
    let x_row = (token * heads as i64 + head as i64) * p as i64;
    let xs = load(x + (x_row[(.., None)] + j as i64), mask = (t < len)[(.., None)] & (j < p));
    let weighted = (bs as T::Acc * weight[(.., None)]) as T;
    let state = dot(weighted.trans(), xs, acc = zeros::<T::Acc>([BN, BP]), precision = tf32x3);
    let place = (batch * num_programs(0) as i64 + chunk as i64) * heads as i64 + head as i64;
    let to = place * (n as i64 * p as i64) + ((i * p)[(.., None)] + j) as i64;
    store(states + to, state as A, mask = (i < n)[(.., None)] & (j < p));
    store(decays + place, exp(total) as A);
}

/// Replaces what chunks add to the state by the state before them.
#[kernel]
fn pass_states<A: Float, const BLOCK: usize>(
    states: PtrMut<A>,
    decays: Ptr<A>,
    initial: Option<Ptr<A>>,
    last: PtrMut<A>,
    chunks: i32,
    heads: i32,
    size: i32,
) {
    let at = program_id(0) * BLOCK + arange(0, BLOCK);
    let (head, batch) = (program_id(1), program_id(2) as i64);
    let mask = at < size;
    let own = (batch * heads as i64 + head as i64) * size as i64;
    let mut state =
        if let Some(initial) = initial { load(initial + own + at as i64, mask = mask) } else { zeros::<A>([BLOCK]) };
    for chunk in 0..chunks {
        let place = (batch * chunks as i64 + chunk as i64) * heads as i64 + head as i64;
        let to = states + place * size as i64 + at as i64;
        let added = load(to, mask = mask);
        store(to, state, mask = mask);
        state = load(decays + place) * state + added;
    }
    store(last + own + at as i64, state, mask = mask);
}

/// The results of a chunk: those of the state before it, and those of its own steps.
#[kernel]
fn scan_chunks<T: Float, A: Float, const Q: usize, const BN: usize, const BP: usize>(
    x: Ptr<T>,
    dt: Ptr<A>,
    a: Ptr<A>,
    b: Ptr<T>,
    c: Ptr<T>,
    skip: Option<Ptr<A>>,
    states: Ptr<A>,
    y: PtrMut<T>,
    len: i32,
    heads: i32,
    groups: i32,
    n: i32,
    p: i32,
) {
    let (chunk, head, batch) = (program_id(0), program_id(1), program_id(2) as i64);
    let t = chunk * Q + arange(0, Q);
    let (i, j) = (arange(0, BN), arange(0, BP));
    let token = batch * len as i64 + t as i64;
    let step = load(dt + (token * heads as i64 + head as i64), mask = t < len) as T::Acc;
    let reach = cumsum(step * load(a + head) as T::Acc, axis = 0);
    let group = (head / (heads / groups)) as i64;
    let row = (token * groups as i64 + group) * n as i64;
    let mask = (t < len)[(.., None)] & (i < n);
    let bs = load(b + (row[(.., None)] + i as i64), mask = mask);
    let cs = load(c + (row[(.., None)] + i as i64), mask = mask);
    let x_row = (token * heads as i64 + head as i64) * p as i64;
    let x_mask = (t < len)[(.., None)] & (j < p);
    let xs = load(x + (x_row[(.., None)] + j as i64), mask = x_mask);

    let place = (batch * num_programs(0) as i64 + chunk as i64) * heads as i64 + head as i64;
    let from = place * (n as i64 * p as i64) + ((i * p)[(.., None)] + j) as i64;
    let state = load(states + from, mask = (i < n)[(.., None)] & (j < p));
    let result = dot(cs, state as T, acc = zeros::<T::Acc>([Q, BP]), precision = tf32x3) * exp(reach)[(.., None)];

    let scores = dot(cs, bs.trans(), acc = zeros::<T::Acc>([Q, Q]), precision = tf32x3);
    let order = arange(0, Q);
    let earlier = order[(.., None)] >= order[(None, ..)];
    let decay = exp(select(earlier, reach[(.., None)] - reach[(None, ..)], 0.0)) * step[(None, ..)];
    let weights = select(earlier, scores * decay, 0.0);
    let result = dot(weights as T, xs, acc = result, precision = tf32x3);
    let result = if let Some(skip) = skip { result + xs as T::Acc * load(skip + head) as T::Acc } else { result };
    store(y + (x_row[(.., None)] + j as i64), result as T, mask = x_mask);
}

/// The scan of Mamba-2 (Dao and Gu, "Transformers are SSMs", 2024): for each sequence and head,
///
/// `h = exp(dt[t] a) h + dt[t] b[t] x[t]^T`, from `initial` or 0, and `y[t] = h^T c[t] + skip x[t]`. Returns `y` and the last
/// `h`.
///
/// # Shapes
///
/// `x` and `y` are `[batch, len, heads, p]`, `dt` is `[batch, len, heads]`, `a` and `skip` are `[heads]`, `b` and `c` are
/// `[batch, len, groups, n]`, where head `h` has group `h / (heads / groups)`, `h` and `initial` are
/// `[batch, heads, n, p]`, with `n` and `p` from 1 to 256; all in row-major order without gaps. `dt`, `a`, `skip` and states
/// are f32 (f64 for f64).
///
/// # Method
///
/// In chunks of 64 steps: what each adds to the state, then the states before them, one after the other, then the results.
/// States of all chunks are allocated for the call.
///
/// # Numerics
///
/// Sums are f32 (f64 for f64). Products take factors in the dtype of `x`, to which weighted `b`, states and weights of pairs
/// are rounded; f32 is multiplied as `tf32x3`. `dt a` is at most 0, or `exp` may overflow.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if shapes do not fit or a tensor has gaps; [`tilewright::Error::OutOfMemory`]; those of
/// a launch.
#[allow(clippy::too_many_arguments)]
pub fn ssd<'a, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    dt: impl Into<TensorView<'a, T::Sums, 3>>,
    a: impl Into<TensorView<'a, T::Sums, 1>>,
    b: impl Into<TensorView<'a, T, 4>>,
    c: impl Into<TensorView<'a, T, 4>>,
    skip: Option<TensorView<'a, T::Sums, 1>>,
    initial: Option<TensorView<'a, T::Sums, 4>>,
) -> Result<(Tensor<T, 4>, Tensor<T::Sums, 4>)> {
    let (x, dt, a, b, c) = (x.into(), dt.into(), a.into(), b.into(), c.into());
    let ([batch, len, heads, p], [_, _, groups, n]) = (x.shape(), b.shape());
    check_state("x", p)?;
    check_state("b", n)?;
    if groups == 0 || heads % groups != 0 {
        return Err(check::invalid("b", format!("has {groups} groups"), format!("they divide the {heads} heads")));
    }
    check::packed("x", &x)?;
    check_input("dt", &dt, [batch, len, heads])?;
    check_input("a", &a, [heads])?;
    check_input("b", &b, [batch, len, groups, n])?;
    check_input("c", &c, [batch, len, groups, n])?;
    skip.map(|skip| check_input("skip", &skip, [heads])).transpose()?;
    initial.map(|initial| check_input("initial", &initial, [batch, heads, n, p])).transpose()?;
    let steps = check::size("x", len)?;
    let (device, sizes) = (cx.device(), [heads, groups, n, p].map(|size| size as i32));
    let [h, g, n32, p32] = sizes;
    let mut y = Tensor::zeros(device, x.shape())?;
    let mut last = Tensor::zeros(device, [batch, heads, n, p])?;
    if batch * heads == 0 {
        return Ok((y, last));
    }
    let chunks = len.div_ceil(CHUNK);
    let mut states = device.zeros::<T::Sums>(batch * chunks * heads * n * p)?;
    let mut decays = device.zeros::<T::Sums>(batch * chunks * heads)?;
    let (bn, bp) = (n.next_power_of_two().max(16), p.next_power_of_two().max(16));
    let warps = if bn * bp > 8192 { 8 } else { 4 };
    ChunkStatesConsts { Q: CHUNK, BN: bn, BP: bp }
        .call(x.elements(), dt.elements(), a.elements(), b.elements(), &mut states, &mut decays, steps, h, g, n32, p32)
        .grid((chunks, heads, batch))
        .num_warps(warps)
        .stream(cx.stream())
        .launch(device)?;
    let block = (n * p).next_power_of_two().min(PASSED);
    PassStatesConsts { BLOCK: block }
        .call(
            &mut states,
            &decays,
            MaybeView::from(initial.map(|initial| initial.elements())),
            last.buffer_mut(),
            chunks as i32,
            h,
            n32 * p32,
        )
        .grid(((n * p).div_ceil(block), heads, batch))
        .num_warps((block / 256).max(1) as u32)
        .stream(cx.stream())
        .launch(device)?;
    ScanChunksConsts { Q: CHUNK, BN: bn, BP: bp }
        .call(
            x.elements(),
            dt.elements(),
            a.elements(),
            b.elements(),
            c.elements(),
            MaybeView::from(skip.map(|skip| skip.elements())),
            &states,
            y.buffer_mut(),
            steps,
            h,
            g,
            n32,
            p32,
        )
        .grid((chunks, heads, batch))
        .num_warps(warps)
        .stream(cx.stream())
        .launch(device)?;
    Ok((y, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::general::code::check;
    use tilewright::Target;

    #[test]
    fn chunks_are_multiplied_on_tensor_cores() {
        let target = Target::sm_90a();
        let states = ChunkStatesConsts { Q: CHUNK, BN: 128, BP: 64 };
        check("states of chunks", states.request::<bf16, f32>().num_warps(4).compile(target), &["wgmma"]);
        let scan = ScanChunksConsts { Q: CHUNK, BN: 128, BP: 64 };
        check("scan of chunks", scan.request::<bf16, f32>(true).num_warps(4).compile(target), &["wgmma"]);
        let pass = PassStatesConsts { BLOCK: PASSED };
        check("passed states", pass.request::<f32>(false).num_warps(4).compile(target), &["ld.global.v4"]);
    }
}
