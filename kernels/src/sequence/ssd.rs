//! State-space duality: the scan of Mamba-2, chunk by chunk with matrix products.

use super::gates::least;
use super::{check_input, check_state};
use crate::general::Real;
use crate::workspace::{Memory, part, product, room};
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::MaybeView;
use tilewright::prelude::*;
use tilewright::{Result, ViewMut};

/// Steps of a chunk.
pub(super) const CHUNK: usize = 64;
/// Elements of states that a program passes on.
const PASSED: usize = 1024;

/// What each chunk adds to the state, `[n, p]`, and by what it multiplies it. From the last chunk to the first (`BACK`), of `c`
/// and the gradient of the results: what it adds to the gradient of the state before it.
#[kernel]
fn chunk_states<T: Float, A: Float, const BACK: bool, const Q: usize, const BN: usize, const BP: usize>(
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
    let log_decay = maximum(step * load(a + head) as T::Acc, least::<T::Acc>(), propagate_nan = true);
    let total = sum(log_decay, axis = 0);
    let reach = cumsum(log_decay, axis = 0);
    let weight = if BACK { exp(reach) } else { exp(total - reach) * step };
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

/// Replaces what chunks add to the state by the state before them, or, from the last to the first (`BACK`), by the gradient of
/// the state behind them.
#[kernel]
fn pass_states<A: Float, const BACK: bool, const BLOCK: usize>(
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
    for step in 0..chunks {
        let chunk = if BACK { chunks - 1 - step } else { step };
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
    let log_decay = maximum(step * load(a + head) as T::Acc, least::<T::Acc>(), propagate_nan = true);
    let reach = cumsum(log_decay, axis = 0);
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

/// The inputs of the scan.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a, T: Real> {
    pub x: TensorView<'a, T, 4>,
    pub dt: TensorView<'a, T::Sums, 3>,
    pub a: TensorView<'a, T::Sums, 1>,
    pub b: TensorView<'a, T, 4>,
    pub c: TensorView<'a, T, 4>,
    pub skip: Option<TensorView<'a, T::Sums, 1>>,
    pub initial: Option<TensorView<'a, T::Sums, 4>>,
}

/// Its sizes.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub batch: usize,
    pub len: usize,
    pub heads: usize,
    pub groups: usize,
    pub n: usize,
    pub p: usize,
}

impl Sizes {
    /// Heads, groups, `n` and `p`, as kernels take them.
    pub(super) fn numbers(&self) -> [i32; 4] {
        [self.heads, self.groups, self.n, self.p].map(|size| size as i32)
    }

    /// Elements of [`States`].
    pub(super) fn lens(&self) -> [usize; 2] {
        let each = [self.batch, self.chunks(), self.heads];
        [product(&[product(&each), self.n, self.p]), product(&each)]
    }

    /// Chunks of a sequence.
    pub(super) fn chunks(&self) -> usize {
        self.len.div_ceil(CHUNK)
    }

    /// The shape of a state.
    pub(super) fn state(&self) -> [usize; 4] {
        [self.batch, self.heads, self.n, self.p]
    }

    pub(super) fn block_n(&self) -> usize {
        self.n.next_power_of_two().max(16)
    }

    pub(super) fn block_p(&self) -> usize {
        self.p.next_power_of_two().max(16)
    }

    pub(super) fn warps(&self) -> u32 {
        if self.block_n() * self.block_p() > 8192 { 8 } else { 4 }
    }
}

impl<T: Real> Inputs<'_, T> {
    pub(super) fn check(&self) -> Result<Sizes> {
        let ([batch, len, heads, p], [_, _, groups, n]) = (self.x.shape(), self.b.shape());
        check_state("x", p)?;
        check_state("b", n)?;
        if groups == 0 || heads % groups != 0 {
            return Err(check::invalid("b", format!("has {groups} groups"), format!("they divide the {heads} heads")));
        }
        check::packed("x", &self.x)?;
        check_input("dt", &self.dt, [batch, len, heads])?;
        check_input("a", &self.a, [heads])?;
        check_input("b", &self.b, [batch, len, groups, n])?;
        check_input("c", &self.c, [batch, len, groups, n])?;
        self.skip.map(|skip| check_input("skip", &skip, [heads])).transpose()?;
        self.initial.map(|initial| check_input("initial", &initial, [batch, heads, n, p])).transpose()?;
        check::size("x", len)?;
        Ok(Sizes { batch, len, heads, groups, n, p })
    }
}

/// What goes into states or their gradients: keys and values, what is first, and where what is last goes.
pub(super) struct Passing<'a, T: Real> {
    pub keys: TensorView<'a, T, 4>,
    pub values: TensorView<'a, T, 4>,
    pub first: Option<TensorView<'a, T::Sums, 4>>,
    pub last: ViewMut<'a, T::Sums>,
}

/// What passing takes: the states before each chunk, `[batch, chunks, heads, n, p]`, and by what each multiplies them.
pub(super) struct States<'a, T: DType> {
    pub states: ViewMut<'a, T>,
    pub decays: ViewMut<'a, T>,
}

impl<'a, T: DType> States<'a, T> {
    /// In memory of [`Sizes::lens`].
    pub(super) fn of(memory: ViewMut<'a, T>, sizes: &Sizes) -> Result<Self> {
        let [states, decays] = sizes.lens();
        let (states, rest) = part(memory, states)?;
        Ok(States { states, decays: part(rest, decays)?.0 })
    }
}

/// The states before each chunk.
pub(super) fn states<T: Real>(
    cx: &Context,
    inputs: &Inputs<'_, T>,
    sizes: &Sizes,
    last: ViewMut<'_, T::Sums>,
    to: &mut States<'_, T::Sums>,
) -> Result<()> {
    pass(cx, inputs, sizes, false, Passing { keys: inputs.b, values: inputs.x, first: inputs.initial, last }, to)
}

/// The states before each chunk, or (`back`) the gradients of those behind them.
pub(super) fn pass<T: Real>(
    cx: &Context,
    inputs: &Inputs<'_, T>,
    sizes: &Sizes,
    back: bool,
    passing: Passing<'_, T>,
    States { states, decays }: &mut States<'_, T::Sums>,
) -> Result<()> {
    let (device, chunks, [h, g, n, p]) = (cx.device(), sizes.chunks(), sizes.numbers());
    let size = sizes.n * sizes.p;
    ChunkStatesConsts { BACK: back, Q: CHUNK, BN: sizes.block_n(), BP: sizes.block_p() }
        .call(
            passing.values.elements(),
            inputs.dt.elements(),
            inputs.a.elements(),
            passing.keys.elements(),
            states.reborrow(),
            decays.reborrow(),
            sizes.len as i32,
            h,
            g,
            n,
            p,
        )
        .grid((chunks, sizes.heads, sizes.batch))
        .num_warps(sizes.warps())
        .stream(cx.stream())
        .launch(device)?;
    let block = size.next_power_of_two().min(PASSED);
    PassStatesConsts { BACK: back, BLOCK: block }
        .call(
            states.reborrow(),
            decays.as_view(),
            MaybeView::from(passing.first.map(|first| first.elements())),
            passing.last,
            chunks as i32,
            h,
            size as i32,
        )
        .grid((size.div_ceil(block), sizes.heads, sizes.batch))
        .num_warps((block / 256).max(1) as u32)
        .stream(cx.stream())
        .launch(device)
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
/// are rounded; f32 is multiplied as `tf32x3`. `dt a` is at most 0, or `exp` may overflow; it may be of any size below, and counts
/// as gates of [`gated_linear_attention`](super::gated_linear_attention) do.
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
    let inputs = Inputs { x: x.into(), dt: dt.into(), a: a.into(), b: b.into(), c: c.into(), skip, initial };
    let sizes = inputs.check()?;
    let mut y = Tensor::empty(cx.device(), inputs.x.shape())?;
    let mut last = Tensor::empty(cx.device(), sizes.state())?;
    run(cx, &inputs, None, y.view_mut(), last.view_mut())?;
    Ok((y, last))
}

/// [`ssd`], into tensors of the shapes of its results, in row-major order without gaps. The states of all chunks are allocated
/// for the call.
///
/// # Errors
///
/// As [`ssd`], and if shapes of `y` and `last` do not fit or they have gaps.
#[allow(clippy::too_many_arguments)]
pub fn ssd_into<'a, 'b, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    dt: impl Into<TensorView<'a, T::Sums, 3>>,
    a: impl Into<TensorView<'a, T::Sums, 1>>,
    b: impl Into<TensorView<'a, T, 4>>,
    c: impl Into<TensorView<'a, T, 4>>,
    skip: Option<TensorView<'a, T::Sums, 1>>,
    initial: Option<TensorView<'a, T::Sums, 4>>,
    y: impl Into<TensorViewMut<'b, T, 4>>,
    last: impl Into<TensorViewMut<'b, T::Sums, 4>>,
) -> Result<()> {
    let inputs = Inputs { x: x.into(), dt: dt.into(), a: a.into(), b: b.into(), c: c.into(), skip, initial };
    run(cx, &inputs, None, y.into(), last.into())
}

/// [`ssd_into`], with a workspace. Nothing is allocated.
///
/// `workspace` is for the states of all chunks: without gaps, with as many elements as [`ssd_workspace`] says, or more, of the
/// dtype of states. What it holds does not matter.
///
/// # Errors
///
/// As [`ssd_into`], and if the workspace has gaps or is too small.
#[allow(clippy::too_many_arguments)]
pub fn ssd_into_with<'a, 'b, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    dt: impl Into<TensorView<'a, T::Sums, 3>>,
    a: impl Into<TensorView<'a, T::Sums, 1>>,
    b: impl Into<TensorView<'a, T, 4>>,
    c: impl Into<TensorView<'a, T, 4>>,
    skip: Option<TensorView<'a, T::Sums, 1>>,
    initial: Option<TensorView<'a, T::Sums, 4>>,
    y: impl Into<TensorViewMut<'b, T, 4>>,
    last: impl Into<TensorViewMut<'b, T::Sums, 4>>,
    workspace: impl Into<TensorViewMut<'b, T::Sums, 1>>,
) -> Result<()> {
    let inputs = Inputs { x: x.into(), dt: dt.into(), a: a.into(), b: b.into(), c: c.into(), skip, initial };
    run(cx, &inputs, Some(workspace.into()), y.into(), last.into())
}

/// How many elements [`ssd_into_with`] needs as its workspace for `x` of this shape, `[batch, len, heads, p]`, with states of `n` by
/// `p`, whatever the device: of each head and each 64 steps a state, and one number more.
pub fn ssd_workspace([batch, len, heads, p]: [usize; 4], n: usize) -> usize {
    room(&Sizes { batch, len, heads, groups: 1, n, p }.lens())
}

fn run<T: Real>(
    cx: &Context,
    inputs: &Inputs<'_, T>,
    workspace: Option<TensorViewMut<'_, T::Sums, 1>>,
    y: TensorViewMut<'_, T, 4>,
    mut last: TensorViewMut<'_, T::Sums, 4>,
) -> Result<()> {
    let sizes = inputs.check()?;
    check_input("y", &y.as_view(), inputs.x.shape())?;
    check_input("last", &last.as_view(), sizes.state())?;
    let mut memory = Memory::of(cx, "workspace", workspace, room(&sizes.lens()))?;
    if sizes.batch * sizes.heads == 0 {
        return Ok(());
    }
    let mut before = States::of(memory.view_mut(), &sizes)?;
    states(cx, inputs, &sizes, last.elements_mut(), &mut before)?;
    let [h, g, n, p] = sizes.numbers();
    ScanChunksConsts { Q: CHUNK, BN: sizes.block_n(), BP: sizes.block_p() }
        .call(
            inputs.x.elements(),
            inputs.dt.elements(),
            inputs.a.elements(),
            inputs.b.elements(),
            inputs.c.elements(),
            MaybeView::from(inputs.skip.map(|skip| skip.elements())),
            before.states.as_view(),
            y.elements(),
            sizes.len as i32,
            h,
            g,
            n,
            p,
        )
        .grid((sizes.chunks(), sizes.heads, sizes.batch))
        .num_warps(sizes.warps())
        .stream(cx.stream())
        .launch(cx.device())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn chunks_are_multiplied_on_tensor_cores() {
        let target = Target::sm_90a();
        for (n, p, warps) in [(128, 64, 4), (128, 128, 8), (256, 64, 8)] {
            let states = ChunkStatesConsts { BACK: false, Q: CHUNK, BN: n, BP: p };
            check_instructions(
                "states of chunks",
                states.request::<bf16, f32>().num_warps(warps).compile(target),
                &["wgmma"],
            );
            let scan = ScanChunksConsts { Q: CHUNK, BN: n, BP: p };
            check_instructions(
                "scan of chunks",
                scan.request::<bf16, f32>(true).num_warps(warps).compile(target),
                &["wgmma"],
            );
        }
        let pass = PassStatesConsts { BACK: false, BLOCK: PASSED };
        check_instructions("passed states", pass.request::<f32>(false).num_warps(4).compile(target), &["ld.global.v4"]);
    }
}
