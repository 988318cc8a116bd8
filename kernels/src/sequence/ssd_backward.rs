//! The gradient of the scan of Mamba-2.

use super::check_input;
use super::gates::least;
use super::ssd::{CHUNK, Inputs, Passing, Sizes, States, pass, states};
use crate::general::{Real, write_zeros};
use crate::workspace::{Memory, part, room};
use crate::{Context, Tensor, TensorView, TensorViewMut};
use tilewright::launch::{MaybeView, MaybeViewMut};
use tilewright::prelude::*;
use tilewright::{Result, View};

/// The gradients of a chunk, from the state before it and the gradient of the state behind it. With `e` for the decays
/// between pairs of steps, results are `((c b^T) e dt) x + exp(reach) c state`, and the state behind is
/// `exp(total) state + b^T (exp(total - reach) dt x)`: each line below is the derivative of one of their factors.
#[kernel]
fn scan_chunks_back<T: Float, A: Float, const Q: usize, const BN: usize, const BP: usize>(
    x: Ptr<T>,
    dt: Ptr<A>,
    a: Ptr<A>,
    b: Ptr<T>,
    c: Ptr<T>,
    skip: Option<Ptr<A>>,
    states: Ptr<A>,
    gradients: Ptr<A>,
    dy: Ptr<T>,
    dx: PtrMut<T>,
    ddt: PtrMut<A>,
    da: PtrMut<A>,
    db: PtrMut<A>,
    dc: PtrMut<A>,
    dskip: Option<PtrMut<A>>,
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
    let of_step = token * heads as i64 + head as i64;
    let step = load(dt + of_step, mask = t < len) as T::Acc;
    let factor = load(a + head) as T::Acc;
    let log_decay = maximum(step * factor, least::<T::Acc>(), propagate_nan = true);
    let reach = cumsum(log_decay, axis = 0);
    let total = sum(log_decay, axis = 0);
    let of_b = ((token * groups as i64 + (head / (heads / groups)) as i64) * n as i64)[(.., None)] + i as i64;
    let b_mask = (t < len)[(.., None)] & (i < n);
    let (bs, cs) = (load(b + of_b, mask = b_mask), load(c + of_b, mask = b_mask));
    let of_x = (of_step * p as i64)[(.., None)] + j as i64;
    let x_mask = (t < len)[(.., None)] & (j < p);
    let (xs, ys) = (load(x + of_x, mask = x_mask), load(dy + of_x, mask = x_mask));
    if let Some(dskip) = dskip {
        atomic_add(dskip + head, sum(ys as T::Acc * xs as T::Acc) as A, order = relaxed);
    }
    let place = (batch * num_programs(0) as i64 + chunk as i64) * heads as i64 + head as i64;
    let of_state = place * (n as i64 * p as i64) + ((i * p)[(.., None)] + j) as i64;
    let state_mask = (i < n)[(.., None)] & (j < p);
    let state = load(states + of_state, mask = state_mask);
    let gradient = load(gradients + of_state, mask = state_mask);
    // Here, so that both are kept in the dtype of products from here on.
    let by_state = exp(total) * sum(state as T::Acc * gradient as T::Acc);
    let (state, gradient) = (state as T, gradient as T);

    // Pairs of steps of the chunk.
    let order = arange(0, Q);
    let earlier = order[(.., None)] >= order[(None, ..)];
    let decay = exp(select(earlier, reach[(.., None)] - reach[(None, ..)], 0.0));
    let decay = select(earlier, decay, 0.0);
    let scores = dot(cs, bs.trans(), acc = zeros::<T::Acc>([Q, Q]), precision = tf32x3) * decay;
    let dpairs = dot(ys, xs.trans(), acc = zeros::<T::Acc>([Q, Q]), precision = tf32x3);
    let by_step = sum(dpairs * scores, axis = 0);
    let by_reach = sum(dpairs * scores * step[(None, ..)], axis = 1) - by_step * step;
    let dscores = (dpairs * decay * step[(None, ..)]) as T;
    let pairs = (scores * step[(None, ..)]) as T;
    let left = exp(total - reach);
    let outer = dot(bs, gradient, acc = zeros::<T::Acc>([Q, BP]), precision = tf32x3);
    let grad_x = dot(pairs.trans(), ys, acc = outer * (left * step)[(.., None)], precision = tf32x3);
    let grad_x = if let Some(skip) = skip { grad_x + ys as T::Acc * load(skip + head) as T::Acc } else { grad_x };
    store(dx + of_x, grad_x as T, mask = x_mask);

    // The state before the chunk.
    let through_state = dot(ys, state.trans(), acc = zeros::<T::Acc>([Q, BN]), precision = tf32x3);
    let through_state = through_state * exp(reach)[(.., None)];
    let by_reach = by_reach + sum(through_state * cs as T::Acc, axis = 1);
    let grad_c = dot(dscores, bs, acc = through_state, precision = tf32x3);
    atomic_add(dc + of_b, grad_c as A, mask = b_mask, order = relaxed);

    // The state behind it.
    let through_gradient = dot(xs, gradient.trans(), acc = zeros::<T::Acc>([Q, BN]), precision = tf32x3);
    let kept = sum(through_gradient * bs as T::Acc, axis = 1) * left;
    let grad_b = dot(dscores.trans(), cs, acc = through_gradient * (left * step)[(.., None)], precision = tf32x3);
    atomic_add(db + of_b, grad_b as A, mask = b_mask, order = relaxed);
    let by_reach = by_reach - kept * step;
    let by_total = sum(kept * step, axis = 0) + by_state;

    // `reach` and `total` are sums of `a dt`, or of the least that it counts as.
    let by_decay = cumsum(by_reach, axis = 0, reverse = true) + by_total;
    let by_decay = select(log_decay == least::<T::Acc>(), 0.0, by_decay);
    store(ddt + of_step, (by_step + kept + by_decay * factor) as A, mask = t < len);
    atomic_add(da + head, sum(by_decay * step, axis = 0) as A, order = relaxed);
}

/// The gradients of [`ssd`](super::ssd), each of its input's shape. Those of what several heads or steps share are f32 (f64
/// for f64), as are those of `dt` and states.
#[derive(Debug)]
pub struct SsdGradients<T: Real> {
    /// Of `x`.
    pub x: Tensor<T, 4>,
    /// Of `dt`.
    pub dt: Tensor<T::Sums, 3>,
    /// Of `a`.
    pub a: Tensor<T::Sums, 1>,
    /// Of `b`.
    pub b: Tensor<T::Sums, 4>,
    /// Of `c`.
    pub c: Tensor<T::Sums, 4>,
    /// Of the skip, if there is one.
    pub skip: Option<Tensor<T::Sums, 1>>,
    /// Of the initial state, or of the zeros in its place.
    pub initial: Tensor<T::Sums, 4>,
}

impl<T: Real> SsdGradients<T> {
    /// All of them, to write.
    pub fn view_mut(&mut self) -> SsdGradientsMut<'_, T> {
        SsdGradientsMut {
            x: self.x.view_mut(),
            dt: self.dt.view_mut(),
            a: self.a.view_mut(),
            b: self.b.view_mut(),
            c: self.c.view_mut(),
            skip: self.skip.as_mut().map(|skip| skip.view_mut()),
            initial: self.initial.view_mut(),
        }
    }
}

/// Where gradients of [`ssd`](super::ssd) are written, each of its input's shape and in row-major order without gaps.
#[derive(Debug)]
pub struct SsdGradientsMut<'a, T: Real> {
    /// Of `x`.
    pub x: TensorViewMut<'a, T, 4>,
    /// Of `dt`.
    pub dt: TensorViewMut<'a, T::Sums, 3>,
    /// Of `a`.
    pub a: TensorViewMut<'a, T::Sums, 1>,
    /// Of `b`.
    pub b: TensorViewMut<'a, T::Sums, 4>,
    /// Of `c`.
    pub c: TensorViewMut<'a, T::Sums, 4>,
    /// Of the skip, if it is wanted.
    pub skip: Option<TensorViewMut<'a, T::Sums, 1>>,
    /// Of the initial state, or of the zeros in its place.
    pub initial: TensorViewMut<'a, T::Sums, 4>,
}

impl<T: Real> SsdGradientsMut<'_, T> {
    fn check(&self, inputs: &Inputs<'_, T>, sizes: &Sizes) -> Result<()> {
        check_input("gradients.x", &self.x.as_view(), inputs.x.shape())?;
        check_input("gradients.dt", &self.dt.as_view(), inputs.dt.shape())?;
        check_input("gradients.a", &self.a.as_view(), inputs.a.shape())?;
        check_input("gradients.b", &self.b.as_view(), inputs.b.shape())?;
        check_input("gradients.c", &self.c.as_view(), inputs.c.shape())?;
        if let Some(skip) = &self.skip {
            check_input("gradients.skip", &skip.as_view(), [sizes.heads])?;
        }
        check_input("gradients.initial", &self.initial.as_view(), sizes.state())
    }

    /// Zeros in those that programs add to.
    fn clear(&mut self, cx: &Context) -> Result<()> {
        write_zeros(cx, self.a.elements_mut())?;
        write_zeros(cx, self.b.elements_mut())?;
        write_zeros(cx, self.c.elements_mut())?;
        self.skip.as_mut().map_or(Ok(()), |skip| write_zeros(cx, skip.elements_mut()))
    }
}

/// The gradients of [`ssd`](super::ssd) for its inputs, from those of its results: `dy`, and `dlast` of the last state, zeros
/// if there is none.
///
/// # Shapes
///
/// Those of [`ssd`](super::ssd); `dy` has the shape of `x`, `dlast` that of a state.
///
/// # Method
///
/// The states before chunks are computed again, the gradients of those behind them are passed from the last chunk to the first
/// in the same way, and then all chunks are taken at once. States and gradients of all chunks are allocated for the call.
///
/// # Numerics
///
/// As [`ssd`](super::ssd). Gradients of `a`, `b`, `c` and skip are added in memory atomically, in no certain order: they may
/// differ from call to call in their last digits.
///
/// # Errors
///
/// Those of [`ssd`](super::ssd).
#[allow(clippy::too_many_arguments)]
pub fn ssd_backward<'a, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    dt: impl Into<TensorView<'a, T::Sums, 3>>,
    a: impl Into<TensorView<'a, T::Sums, 1>>,
    b: impl Into<TensorView<'a, T, 4>>,
    c: impl Into<TensorView<'a, T, 4>>,
    skip: Option<TensorView<'a, T::Sums, 1>>,
    initial: Option<TensorView<'a, T::Sums, 4>>,
    dy: impl Into<TensorView<'a, T, 4>>,
    dlast: Option<TensorView<'a, T::Sums, 4>>,
) -> Result<SsdGradients<T>> {
    let inputs = Inputs { x: x.into(), dt: dt.into(), a: a.into(), b: b.into(), c: c.into(), skip, initial };
    let (sizes, device) = (inputs.check()?, cx.device());
    let mut gradients = SsdGradients::<T> {
        x: Tensor::empty(device, inputs.x.shape())?,
        dt: Tensor::empty(device, inputs.dt.shape())?,
        a: Tensor::empty(device, inputs.a.shape())?,
        b: Tensor::empty(device, inputs.b.shape())?,
        c: Tensor::empty(device, inputs.c.shape())?,
        skip: skip.map(|skip| Tensor::empty(device, skip.shape())).transpose()?,
        initial: Tensor::empty(device, sizes.state())?,
    };
    run(cx, &inputs, (dy.into(), dlast), gradients.view_mut(), None)?;
    Ok(gradients)
}

/// [`ssd_backward`], into tensors. States and gradients of all chunks are allocated for the call.
///
/// # Errors
///
/// As [`ssd_backward`], and if shapes of gradients do not fit or they have gaps.
#[allow(clippy::too_many_arguments)]
pub fn ssd_backward_into<'a, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    dt: impl Into<TensorView<'a, T::Sums, 3>>,
    a: impl Into<TensorView<'a, T::Sums, 1>>,
    b: impl Into<TensorView<'a, T, 4>>,
    c: impl Into<TensorView<'a, T, 4>>,
    skip: Option<TensorView<'a, T::Sums, 1>>,
    initial: Option<TensorView<'a, T::Sums, 4>>,
    dy: impl Into<TensorView<'a, T, 4>>,
    dlast: Option<TensorView<'a, T::Sums, 4>>,
    gradients: SsdGradientsMut<'_, T>,
) -> Result<()> {
    let inputs = Inputs { x: x.into(), dt: dt.into(), a: a.into(), b: b.into(), c: c.into(), skip, initial };
    run(cx, &inputs, (dy.into(), dlast), gradients, None)
}

/// [`ssd_backward_into`], with a workspace for states and gradients of all chunks: without gaps, with as many elements as
/// [`ssd_backward_workspace`] says, or more, of the dtype of states. What it holds does not matter. Nothing is allocated.
///
/// # Errors
///
/// As [`ssd_backward_into`], and if the workspace has gaps or is too small.
#[allow(clippy::too_many_arguments)]
pub fn ssd_backward_into_with<'a, 'b, T: Real>(
    cx: &Context,
    x: impl Into<TensorView<'a, T, 4>>,
    dt: impl Into<TensorView<'a, T::Sums, 3>>,
    a: impl Into<TensorView<'a, T::Sums, 1>>,
    b: impl Into<TensorView<'a, T, 4>>,
    c: impl Into<TensorView<'a, T, 4>>,
    skip: Option<TensorView<'a, T::Sums, 1>>,
    initial: Option<TensorView<'a, T::Sums, 4>>,
    dy: impl Into<TensorView<'a, T, 4>>,
    dlast: Option<TensorView<'a, T::Sums, 4>>,
    gradients: SsdGradientsMut<'_, T>,
    workspace: impl Into<TensorViewMut<'b, T::Sums, 1>>,
) -> Result<()> {
    let inputs = Inputs { x: x.into(), dt: dt.into(), a: a.into(), b: b.into(), c: c.into(), skip, initial };
    run(cx, &inputs, (dy.into(), dlast), gradients, Some(workspace.into()))
}

/// How many elements [`ssd_backward_into_with`] needs as its workspace for `x` of this shape, `[batch, len, heads, p]`, with states
/// of `n` by `p`, whatever the device: twice those of [`ssd_workspace`](super::ssd_workspace), and up to 15 between.
pub fn ssd_backward_workspace([batch, len, heads, p]: [usize; 4], n: usize) -> usize {
    room(&parts(&Sizes { batch, len, heads, groups: 1, n, p }))
}

/// Elements of states, and of their gradients.
fn parts(sizes: &Sizes) -> [usize; 2] {
    [room(&sizes.lens()); 2]
}

fn run<T: Real>(
    cx: &Context,
    inputs: &Inputs<'_, T>,
    (dy, dlast): (TensorView<'_, T, 4>, Option<TensorView<'_, T::Sums, 4>>),
    mut gradients: SsdGradientsMut<'_, T>,
    workspace: Option<TensorViewMut<'_, T::Sums, 1>>,
) -> Result<()> {
    let sizes = inputs.check()?;
    check_input("dy", &dy, inputs.x.shape())?;
    dlast.map(|dlast| check_input("dlast", &dlast, sizes.state())).transpose()?;
    gradients.check(inputs, &sizes)?;
    let [states_len, gradients_len] = parts(&sizes);
    let mut memory = Memory::of(cx, "workspace", workspace, room(&[states_len, gradients_len]))?;
    gradients.clear(cx)?;
    if sizes.batch * sizes.heads == 0 {
        return Ok(());
    }
    let (before, behind) = part(memory.view_mut(), states_len)?;
    let mut before = States::of(before, &sizes)?;
    let mut behind = States::of(behind, &sizes)?;
    // The last state is not asked for: the gradient of the first one takes its place.
    states(cx, inputs, &sizes, gradients.initial.elements_mut(), &mut before)?;
    let passing = Passing { keys: inputs.c, values: dy, first: dlast, last: gradients.initial.elements_mut() };
    pass(cx, inputs, &sizes, true, passing, &mut behind)?;
    launch(cx, inputs, &sizes, (before.states.as_view(), behind.states.as_view()), dy, gradients)
}

fn launch<T: Real>(
    cx: &Context,
    inputs: &Inputs<'_, T>,
    sizes: &Sizes,
    (before, behind): (View<'_, T::Sums>, View<'_, T::Sums>),
    dy: TensorView<'_, T, 4>,
    gradients: SsdGradientsMut<'_, T>,
) -> Result<()> {
    let [h, g, n, p] = sizes.numbers();
    ScanChunksBackConsts { Q: CHUNK, BN: sizes.block_n(), BP: sizes.block_p() }
        .call(
            inputs.x.elements(),
            inputs.dt.elements(),
            inputs.a.elements(),
            inputs.b.elements(),
            inputs.c.elements(),
            MaybeView::from(inputs.skip.map(|skip| skip.elements())),
            before,
            behind,
            dy.elements(),
            gradients.x.elements(),
            gradients.dt.elements(),
            gradients.a.elements(),
            gradients.b.elements(),
            gradients.c.elements(),
            MaybeViewMut::from(gradients.skip.map(|skip| skip.elements())),
            sizes.len as i32,
            h,
            g,
            n,
            p,
        )
        .grid((sizes.chunks(), sizes.heads, sizes.batch))
        .num_warps(WARPS)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Warps of a program.
const WARPS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn gradients_of_chunks_fit_into_registers() {
        let consts = ScanChunksBackConsts { Q: CHUNK, BN: 128, BP: 64 };
        let request = consts.request::<bf16, f32>(true, true).num_warps(WARPS);
        check_instructions("gradients of chunks", request.compile(Target::sm_90a()), &["mma"]);
    }
}
