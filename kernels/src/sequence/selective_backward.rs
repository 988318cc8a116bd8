//! The gradient of the selective scan.

use super::check_input;
use super::selective::{BLOCK, Inputs, SelectiveScan, run, softplus};
use crate::general::{Real, write_zeros};
use crate::workspace::{Memory, part, product, room};
use crate::{Context, Tensor, TensorView, TensorViewMut};
use tilewright::Result;
use tilewright::launch::{MaybeView, MaybeViewMut};
use tilewright::prelude::*;

/// Tiles of a sequence from the last to the first: the states of a tile are computed again from the one before it, and the
/// gradient of the state, `g[t] = c[t] dy[t] + a[t + 1] g[t + 1]`, is a scan in the other direction.
#[kernel]
fn scan_channels_back<T: Float, A: Float, const SOFTPLUS: bool, const BD: usize, const BN: usize, const BL: usize>(
    u: Ptr<T>,
    delta: Ptr<T>,
    a: Ptr<A>,
    b: Ptr<T>,
    c: Ptr<T>,
    skip: Option<Ptr<A>>,
    bias: Option<Ptr<A>>,
    dy: Ptr<T>,
    states: Ptr<A>,
    du: PtrMut<T>,
    ddelta: PtrMut<T>,
    da: PtrMut<A>,
    db: PtrMut<A>,
    dc: PtrMut<A>,
    dskip: Option<PtrMut<A>>,
    dbias: Option<PtrMut<A>>,
    channels: i32,
    len: i32,
    state: i32,
) {
    let d = program_id(0) * BD + arange(0, BD);
    let (batch, n) = (program_id(1) as i64, arange(0, BN));
    let (some_d, some_n) = (d < channels, n < state);
    let row = (batch * channels as i64 + d as i64) * len as i64;
    let factors = load(a + (d * state)[(.., None)] + n, mask = some_d[(.., None)] & some_n) as T::Acc;
    let of_batch = batch * state as i64 * len as i64;
    let skips = if let Some(skip) = skip { load(skip + d, mask = some_d) as T::Acc } else { zeros::<T::Acc>([BD]) };
    let biases = if let Some(bias) = bias { load(bias + d, mask = some_d) as T::Acc } else { zeros::<T::Acc>([BD]) };
    let tiles = cdiv(len, BL);
    let mut carry = zeros::<T::Acc>([BD, BN]);
    let mut total_a = zeros::<T::Acc>([BD, BN]);
    let mut total_skip = zeros::<T::Acc>([BD, BL]);
    let mut total_bias = zeros::<T::Acc>([BD, BL]);
    for back in 0..tiles {
        let tile = tiles - 1 - back;
        let t = tile * BL + arange(0, BL);
        let mask = some_d[(.., None)] & (t < len);
        let place = row[(.., None)] + t as i64;
        let raw = load(delta + place, mask = mask) as T::Acc + biases[(.., None)];
        let step = select(mask, if SOFTPLUS { softplus(raw) } else { raw }, 0.0);
        let next_mask = some_d[(.., None)] & (t + 1 < len);
        let next = load(delta + (place + 1), mask = next_mask) as T::Acc + biases[(.., None)];
        let next = select(next_mask, if SOFTPLUS { softplus(next) } else { next }, 0.0);
        let input = load(u + place, mask = mask) as T::Acc;
        let grad = load(dy + place, mask = mask) as T::Acc;
        let of_time = of_batch + ((n * len)[(.., None)] + t) as i64;
        let time_mask = some_n[(.., None)] & (t < len);
        let (bs, cs) = (load(b + of_time, mask = time_mask) as T::Acc, load(c + of_time, mask = time_mask) as T::Acc);

        let before = ((batch * channels as i64 + d as i64) * tiles as i64 + tile as i64) * state as i64;
        let h = load(states + (before[(.., None)] + n as i64), mask = some_d[(.., None)] & some_n) as T::Acc;
        let decay = exp(step[(.., None, ..)] * factors[(.., .., None)]);
        let gain = (step * input)[(.., None, ..)] * bs[(None, .., ..)];
        let (decays, gains) = associative_scan((decay, gain), axis = 2, |(a, b), (c, d)| (a * c, b * c + d));
        let all = decays * h[(.., .., None)] + gains;

        let following = exp(next[(.., None, ..)] * factors[(.., .., None)]);
        let own = grad[(.., None, ..)] * cs[(None, .., ..)];
        let (falls, own) =
            associative_scan((following, own), axis = 2, reverse = true, |(a, b), (c, d)| (a * c, b * c + d));
        let g = falls * carry[(.., .., None)] + own;
        carry = sum(select((arange(0, BL) == 0)[(None, None, ..)], g, 0.0), axis = 2);

        // What the step before left of the state, times the gradient.
        let kept = g * (all - gain);
        total_a += sum(kept * step[(.., None, ..)], axis = 2);
        let through_b = sum(g * bs[(None, .., ..)], axis = 1);
        let dstep = sum(kept * factors[(.., .., None)], axis = 1) + through_b * input;
        let draw = select(mask, if SOFTPLUS { dstep * sigmoid(raw) } else { dstep }, 0.0);
        store(ddelta + place, draw as T, mask = mask);
        total_bias += draw;
        store(du + place, (through_b * step + skips[(.., None)] * grad) as T, mask = mask);
        total_skip += grad * input;
        let of_b = sum(g * (step * input)[(.., None, ..)], axis = 0);
        atomic_add(db + of_time, of_b as A, mask = time_mask, order = relaxed);
        let of_c = sum(all * grad[(.., None, ..)], axis = 0);
        atomic_add(dc + of_time, of_c as A, mask = time_mask, order = relaxed);
    }
    atomic_add(da + (d * state)[(.., None)] + n, total_a as A, mask = some_d[(.., None)] & some_n, order = relaxed);
    if let Some(dskip) = dskip {
        atomic_add(dskip + d, sum(total_skip, axis = 1) as A, mask = some_d, order = relaxed);
    }
    if let Some(dbias) = dbias {
        atomic_add(dbias + d, sum(total_bias, axis = 1) as A, mask = some_d, order = relaxed);
    }
}

/// The gradients of a selective scan, each of its input's shape. Those of what all channels or all sequences share are f32
/// (f64 for f64).
#[derive(Debug)]
pub struct SelectiveScanGradients<T: Real> {
    /// Of `u`.
    pub u: Tensor<T, 3>,
    /// Of `delta`, before its bias and softplus.
    pub delta: Tensor<T, 3>,
    /// Of `a`.
    pub a: Tensor<T::Sums, 2>,
    /// Of `b`.
    pub b: Tensor<T::Sums, 3>,
    /// Of `c`.
    pub c: Tensor<T::Sums, 3>,
    /// Of the skip, if there is one.
    pub skip: Option<Tensor<T::Sums, 1>>,
    /// Of the bias, if there is one.
    pub bias: Option<Tensor<T::Sums, 1>>,
}

impl<T: Real> SelectiveScanGradients<T> {
    /// All of them, to write.
    pub fn view_mut(&mut self) -> SelectiveScanGradientsMut<'_, T> {
        SelectiveScanGradientsMut {
            u: self.u.view_mut(),
            delta: self.delta.view_mut(),
            a: self.a.view_mut(),
            b: self.b.view_mut(),
            c: self.c.view_mut(),
            skip: self.skip.as_mut().map(|skip| skip.view_mut()),
            bias: self.bias.as_mut().map(|bias| bias.view_mut()),
        }
    }
}

/// Where gradients of a selective scan are written, each of its input's shape and in row-major order without gaps.
#[derive(Debug)]
pub struct SelectiveScanGradientsMut<'a, T: Real> {
    /// Of `u`.
    pub u: TensorViewMut<'a, T, 3>,
    /// Of `delta`, before its bias and softplus.
    pub delta: TensorViewMut<'a, T, 3>,
    /// Of `a`.
    pub a: TensorViewMut<'a, T::Sums, 2>,
    /// Of `b`.
    pub b: TensorViewMut<'a, T::Sums, 3>,
    /// Of `c`.
    pub c: TensorViewMut<'a, T::Sums, 3>,
    /// Of the skip, if it is wanted.
    pub skip: Option<TensorViewMut<'a, T::Sums, 1>>,
    /// Of the bias, if it is wanted.
    pub bias: Option<TensorViewMut<'a, T::Sums, 1>>,
}

impl<T: Real> SelectiveScanGradientsMut<'_, T> {
    fn check(&self, inputs: &Inputs<'_, T>) -> Result<()> {
        check_input("gradients.u", &self.u.as_view(), inputs.u.shape())?;
        check_input("gradients.delta", &self.delta.as_view(), inputs.u.shape())?;
        check_input("gradients.a", &self.a.as_view(), inputs.a.shape())?;
        check_input("gradients.b", &self.b.as_view(), inputs.b.shape())?;
        check_input("gradients.c", &self.c.as_view(), inputs.c.shape())?;
        for (name, vector) in [("gradients.skip", &self.skip), ("gradients.bias", &self.bias)] {
            vector.as_ref().map_or(Ok(()), |vector| check_input(name, &vector.as_view(), [inputs.u.shape()[1]]))?;
        }
        Ok(())
    }

    /// Zeros in those that programs add to.
    fn clear(&mut self, cx: &Context) -> Result<()> {
        write_zeros(cx, self.a.elements_mut())?;
        write_zeros(cx, self.b.elements_mut())?;
        write_zeros(cx, self.c.elements_mut())?;
        for vector in [&mut self.skip, &mut self.bias].into_iter().flatten() {
            write_zeros(cx, vector.elements_mut())?;
        }
        Ok(())
    }
}

/// The gradients of [`selective_scan`](super::selective_scan) for its inputs, from that of its result, `dy`.
///
/// # Shapes
///
/// Those of [`selective_scan`](super::selective_scan); `dy` is `[batch, channels, len]`.
///
/// # Method
///
/// The scan runs once more and keeps the state of every 64th step (allocated for the call); then tiles are taken from the last
/// to the first, and their states computed again.
///
/// # Numerics
///
/// In f32 (f64 for f64). Gradients of `a`, `b`, `c`, skip and bias are added in memory atomically, in no certain order: they
/// may differ from call to call in their last digits.
///
/// # Errors
///
/// Those of [`selective_scan`](super::selective_scan).
#[allow(clippy::too_many_arguments)]
pub fn selective_scan_backward<'a, T: Real>(
    cx: &Context,
    u: impl Into<TensorView<'a, T, 3>>,
    delta: impl Into<TensorView<'a, T, 3>>,
    a: impl Into<TensorView<'a, T::Sums, 2>>,
    b: impl Into<TensorView<'a, T, 3>>,
    c: impl Into<TensorView<'a, T, 3>>,
    options: SelectiveScan<'a, T>,
    dy: impl Into<TensorView<'a, T, 3>>,
) -> Result<SelectiveScanGradients<T>> {
    let inputs = Inputs { u: u.into(), delta: delta.into(), a: a.into(), b: b.into(), c: c.into() };
    let (dy, device) = (dy.into(), cx.device());
    inputs.check(&options)?;
    let vector = |given: bool| given.then(|| Tensor::empty(device, [inputs.u.shape()[1]])).transpose();
    let mut gradients = SelectiveScanGradients::<T> {
        u: Tensor::empty(device, inputs.u.shape())?,
        delta: Tensor::empty(device, inputs.u.shape())?,
        a: Tensor::empty(device, inputs.a.shape())?,
        b: Tensor::empty(device, inputs.b.shape())?,
        c: Tensor::empty(device, inputs.c.shape())?,
        skip: vector(options.skip.is_some())?,
        bias: vector(options.bias.is_some())?,
    };
    run_back(cx, inputs, options, dy, gradients.view_mut(), None)?;
    Ok(gradients)
}

/// [`selective_scan_backward`], into tensors. The states of every 64th step and the last one are allocated for the call.
///
/// # Errors
///
/// As [`selective_scan_backward`], and if shapes of gradients do not fit or they have gaps.
#[allow(clippy::too_many_arguments)]
pub fn selective_scan_backward_into<'a, T: Real>(
    cx: &Context,
    u: impl Into<TensorView<'a, T, 3>>,
    delta: impl Into<TensorView<'a, T, 3>>,
    a: impl Into<TensorView<'a, T::Sums, 2>>,
    b: impl Into<TensorView<'a, T, 3>>,
    c: impl Into<TensorView<'a, T, 3>>,
    options: SelectiveScan<'a, T>,
    dy: impl Into<TensorView<'a, T, 3>>,
    gradients: SelectiveScanGradientsMut<'_, T>,
) -> Result<()> {
    let inputs = Inputs { u: u.into(), delta: delta.into(), a: a.into(), b: b.into(), c: c.into() };
    run_back(cx, inputs, options, dy.into(), gradients, None)
}

/// [`selective_scan_backward_into`], with a workspace for the states of every 64th step and the last one: without gaps, with as
/// many elements as [`selective_scan_backward_workspace`] says, or more, of the dtype of states. What it holds does not matter.
/// Nothing is allocated.
///
/// # Errors
///
/// As [`selective_scan_backward_into`], and if the workspace has gaps or is too small.
#[allow(clippy::too_many_arguments)]
pub fn selective_scan_backward_into_with<'a, 'b, T: Real>(
    cx: &Context,
    u: impl Into<TensorView<'a, T, 3>>,
    delta: impl Into<TensorView<'a, T, 3>>,
    a: impl Into<TensorView<'a, T::Sums, 2>>,
    b: impl Into<TensorView<'a, T, 3>>,
    c: impl Into<TensorView<'a, T, 3>>,
    options: SelectiveScan<'a, T>,
    dy: impl Into<TensorView<'a, T, 3>>,
    gradients: SelectiveScanGradientsMut<'_, T>,
    workspace: impl Into<TensorViewMut<'b, T::Sums, 1>>,
) -> Result<()> {
    let inputs = Inputs { u: u.into(), delta: delta.into(), a: a.into(), b: b.into(), c: c.into() };
    run_back(cx, inputs, options, dy.into(), gradients, Some(workspace.into()))
}

/// How many elements [`selective_scan_backward_into_with`] needs as its workspace for `u` of this shape, `[batch, channels, len]`,
/// whatever the device: for each channel a state for every 64 steps, and one more.
pub fn selective_scan_backward_workspace(u: [usize; 3], state: usize) -> usize {
    room(&parts(u, state))
}

/// Elements of the states before each tile, and of the last ones.
fn parts([batch, channels, len]: [usize; 3], state: usize) -> [usize; 2] {
    let last = product(&[batch, channels, state]);
    [product(&[last, len.div_ceil(BLOCK)]), last]
}

fn run_back<T: Real>(
    cx: &Context,
    inputs: Inputs<'_, T>,
    options: SelectiveScan<'_, T>,
    dy: TensorView<'_, T, 3>,
    mut gradients: SelectiveScanGradientsMut<'_, T>,
    workspace: Option<TensorViewMut<'_, T::Sums, 1>>,
) -> Result<()> {
    let [channels, len, state] = inputs.check(&options)?;
    check_input("dy", &dy, inputs.u.shape())?;
    gradients.check(&inputs)?;
    let lens = parts(inputs.u.shape(), state as usize);
    let mut memory = Memory::of(cx, "workspace", workspace, room(&lens))?;
    gradients.clear(cx)?;
    if dy.is_empty() {
        return Ok(());
    }
    let [batch, ..] = inputs.u.shape();
    let (mut states, last) = part(memory.view_mut(), lens[0])?;
    let last = TensorViewMut::new(part(last, lens[1])?.0, [batch, channels as usize, state as usize])?;
    // The results are not asked for: the gradient of `u` takes their place.
    run(cx, inputs, options, Some(states.reborrow()), (gradients.u.reborrow(), last))?;
    let (bd, bn) = inputs.block();
    // Half as many channels as the scan: the gradient has about twice as much in registers.
    let bd = bd.div_ceil(2);
    ScanChannelsBackConsts { SOFTPLUS: options.softplus, BD: bd, BN: bn, BL: BLOCK }
        .call(
            inputs.u.elements(),
            inputs.delta.elements(),
            inputs.a.elements(),
            inputs.b.elements(),
            inputs.c.elements(),
            MaybeView::from(options.skip.map(|skip| skip.elements())),
            MaybeView::from(options.bias.map(|bias| bias.elements())),
            dy.elements(),
            states.as_view(),
            gradients.u.elements(),
            gradients.delta.elements(),
            gradients.a.elements(),
            gradients.b.elements(),
            gradients.c.elements(),
            MaybeViewMut::from(gradients.skip.map(|skip| skip.elements())),
            MaybeViewMut::from(gradients.bias.map(|bias| bias.elements())),
            channels,
            len,
            state,
        )
        .grid(((channels as usize).div_ceil(bd), batch))
        .num_warps((bd * bn * BLOCK / 256).clamp(1, 8) as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn a_gradient_fits_into_registers() {
        let consts = ScanChannelsBackConsts { SOFTPLUS: true, BD: 2, BN: 16, BL: BLOCK };
        let request = consts.request::<bf16, f32>(true, true, true, true).num_warps(8);
        check_instructions("selective scan, gradient", request.compile(Target::sm_90a()), &["ld.global.nc"]);
    }
}
