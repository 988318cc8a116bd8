//! The selective scan of Mamba.

use super::{check_input, check_state};
use crate::general::Real;
use crate::{Context, Tensor, TensorView, TensorViewMut, check};
use tilewright::launch::{MaybeView, MaybeViewMut};
use tilewright::prelude::*;
use tilewright::{Result, ViewMut};

/// Time steps of a tile: what the gradient keeps a state for.
pub(super) const BLOCK: usize = 64;

/// `log(1 + exp(x))`, without overflow.
#[device]
pub(super) fn softplus<A: Float, const N: usize, const L: usize>(x: Tile<A, { [N, L] }>) -> Tile<A, { [N, L] }> {
    select(x > 20.0, x, log1p(exp(minimum(x, 20.0))))
}

/// `BD` channels of a sequence, `BL` steps at a time. The recurrence `h' = a h + b` is a scan of pairs (Blelloch, 1990), with
/// the state as a carry. States before each tile go to `states` for the gradient.
#[kernel]
fn scan_channels<T: Float, A: Float, const SOFTPLUS: bool, const BD: usize, const BN: usize, const BL: usize>(
    u: Ptr<T>,
    delta: Ptr<T>,
    a: Ptr<A>,
    b: Ptr<T>,
    c: Ptr<T>,
    skip: Option<Ptr<A>>,
    bias: Option<Ptr<A>>,
    y: PtrMut<T>,
    states: Option<PtrMut<A>>,
    last: PtrMut<A>,
    channels: i32,
    len: i32,
    state: i32,
) {
    let d = program_id(0) * BD + arange(0, BD);
    let (batch, n) = (program_id(1) as i64, arange(0, BN));
    let (some_d, some_n) = (d < channels, n < state);
    let row = (batch * channels as i64 + d as i64) * len as i64;
    let factors = load(a + (d * state)[(.., None)] + n, mask = some_d[(.., None)] & some_n) as T::Acc;
    let (b, c) = (b + batch * state as i64 * len as i64, c + batch * state as i64 * len as i64);
    let tiles = cdiv(len, BL);
    let mut h = zeros::<T::Acc>([BD, BN]);
    for tile in 0..tiles {
        if let Some(states) = states {
            let place = ((batch * channels as i64 + d as i64) * tiles as i64 + tile as i64) * state as i64;
            store(states + (place[(.., None)] + n as i64), h as A, mask = some_d[(.., None)] & some_n);
        }
        let t = tile * BL + arange(0, BL);
        let mask = some_d[(.., None)] & (t < len);
        let place = row[(.., None)] + t as i64;
        let step = load(delta + place, mask = mask) as T::Acc;
        let step =
            if let Some(bias) = bias { step + (load(bias + d, mask = some_d) as T::Acc)[(.., None)] } else { step };
        // Steps of 0 behind the end leave the state as it is.
        let step = select(mask, if SOFTPLUS { softplus(step) } else { step }, 0.0);
        let input = load(u + place, mask = mask) as T::Acc;
        let of_time = (n * len)[(.., None)] + t;
        let time_mask = some_n[(.., None)] & (t < len);
        let (bs, cs) = (load(b + of_time, mask = time_mask) as T::Acc, load(c + of_time, mask = time_mask) as T::Acc);
        let decay = exp(step[(.., None, ..)] * factors[(.., .., None)]);
        let gain = (step * input)[(.., None, ..)] * bs[(None, .., ..)];
        let (decays, gains) = associative_scan((decay, gain), axis = 2, |(a, b), (c, d)| (a * c, b * c + d));
        let all = decays * h[(.., .., None)] + gains;
        let result = sum(all * cs[(None, .., ..)], axis = 1);
        let result = if let Some(skip) = skip {
            result + input * (load(skip + d, mask = some_d) as T::Acc)[(.., None)]
        } else {
            result
        };
        store(y + place, result as T, mask = mask);
        let is_last = (arange(0, BL) == BL as i32 - 1)[(None, None, ..)];
        h = sum(select(is_last, all, 0.0), axis = 2);
    }
    let place = (batch * channels as i64 + d as i64) * state as i64;
    store(last + (place[(.., None)] + n as i64), h as A, mask = some_d[(.., None)] & some_n);
}

/// What a selective scan has beside its inputs.
#[derive(Debug, Clone, Copy)]
pub struct SelectiveScan<'a, T: Real> {
    pub(super) skip: Option<TensorView<'a, T::Sums, 1>>,
    pub(super) bias: Option<TensorView<'a, T::Sums, 1>>,
    pub(super) softplus: bool,
}

impl<T: Real> Default for SelectiveScan<'_, T> {
    fn default() -> Self {
        SelectiveScan { skip: None, bias: None, softplus: false }
    }
}

impl<'a, T: Real> SelectiveScan<'a, T> {
    /// Adds `skip[d] u[.., d, t]` to the result (`D` in the paper).
    pub fn skip(mut self, skip: impl Into<TensorView<'a, T::Sums, 1>>) -> Self {
        self.skip = Some(skip.into());
        self
    }

    /// Adds `bias[d]` to `delta`.
    pub fn bias(mut self, bias: impl Into<TensorView<'a, T::Sums, 1>>) -> Self {
        self.bias = Some(bias.into());
        self
    }

    /// Takes `log(1 + exp(delta + bias))` for `delta`.
    pub fn softplus(mut self) -> Self {
        self.softplus = true;
        self
    }
}

/// The inputs of a selective scan.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a, T: Real> {
    pub u: TensorView<'a, T, 3>,
    pub delta: TensorView<'a, T, 3>,
    pub a: TensorView<'a, T::Sums, 2>,
    pub b: TensorView<'a, T, 3>,
    pub c: TensorView<'a, T, 3>,
}

impl<T: Real> Inputs<'_, T> {
    /// Checks shapes, and gives channels, steps and states as kernels take them.
    pub(super) fn check(&self, options: &SelectiveScan<'_, T>) -> Result<[i32; 3]> {
        let ([batch, channels, len], [_, state]) = (self.u.shape(), self.a.shape());
        check_state("a", state)?;
        check::packed("u", &self.u)?;
        check_input("delta", &self.delta, [batch, channels, len])?;
        check_input("a", &self.a, [channels, state])?;
        check_input("b", &self.b, [batch, state, len])?;
        check_input("c", &self.c, [batch, state, len])?;
        if let Some(skip) = &options.skip {
            check_input("skip", skip, [channels])?;
        }
        if let Some(bias) = &options.bias {
            check_input("bias", bias, [channels])?;
        }
        check::size("u", channels.saturating_mul(state))?;
        check::size("b", len.saturating_mul(state))?;
        Ok([check::size("u", channels)?, check::size("u", len)?, state as i32])
    }

    /// Tensors for the results.
    pub(super) fn results(&self, cx: &Context) -> Result<(Tensor<T, 3>, Tensor<T::Sums, 3>)> {
        let ([batch, channels, _], [_, state]) = (self.u.shape(), self.a.shape());
        Ok((Tensor::empty(cx.device(), self.u.shape())?, Tensor::empty(cx.device(), [batch, channels, state])?))
    }

    /// Channels and states of a tile.
    pub(super) fn block(&self) -> (usize, usize) {
        let states = self.a.shape()[1].next_power_of_two();
        ((64 / states).clamp(1, 4), states)
    }
}

/// Runs a scan; `states` has the states before each tile.
pub(super) fn run<T: Real>(
    cx: &Context,
    inputs: Inputs<'_, T>,
    options: SelectiveScan<'_, T>,
    states: Option<ViewMut<'_, T::Sums>>,
    (y, last): (TensorViewMut<'_, T, 3>, TensorViewMut<'_, T::Sums, 3>),
) -> Result<()> {
    let [channels, len, state] = inputs.check(&options)?;
    let [batch, ..] = inputs.u.shape();
    check_input("y", &y.as_view(), inputs.u.shape())?;
    check_input("last", &last.as_view(), [batch, channels as usize, state as usize])?;
    // Of no steps the last state is zero.
    if last.is_empty() {
        return Ok(());
    }
    let (bd, bn) = inputs.block();
    ScanChannelsConsts { SOFTPLUS: options.softplus, BD: bd, BN: bn, BL: BLOCK }
        .call(
            inputs.u.elements(),
            inputs.delta.elements(),
            inputs.a.elements(),
            inputs.b.elements(),
            inputs.c.elements(),
            MaybeView::from(options.skip.map(|skip| skip.elements())),
            MaybeView::from(options.bias.map(|bias| bias.elements())),
            y.elements(),
            MaybeViewMut::from(states),
            last.elements(),
            channels,
            len,
            state,
        )
        .grid(((channels as usize).div_ceil(bd), batch))
        .num_warps((bd * bn * BLOCK / 512).clamp(1, 8) as u32)
        .stream(cx.stream())
        .launch(cx.device())
}

/// The selective scan of Mamba (Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023):
///
/// `h[d, n] = exp(delta[d, t] a[d, n]) h[d, n] + delta[d, t] b[n, t] u[d, t]`, from 0, and
/// `y[d, t] = sum over n of c[n, t] h[d, n]`, for each sequence of the batch. Returns `y` and the last `h`.
///
/// # Shapes
///
/// `u`, `delta` and `y` are `[batch, channels, len]`, `a` is `[channels, state]`, `b` and `c` are `[batch, state, len]`, `h` is
/// `[batch, channels, state]`, with 1 to 256 states; all in row-major order without gaps. `a` and `h` are f32 (f64 for f64).
///
/// # Numerics
///
/// In f32 (f64 for f64), 64 steps at a time in a tree; `y` is rounded once.
///
/// # Errors
///
/// [`tilewright::Error::InvalidTensor`] if shapes do not fit or a tensor has gaps; [`tilewright::Error::OutOfMemory`]; those of
/// a launch.
pub fn selective_scan<'a, T: Real>(
    cx: &Context,
    u: impl Into<TensorView<'a, T, 3>>,
    delta: impl Into<TensorView<'a, T, 3>>,
    a: impl Into<TensorView<'a, T::Sums, 2>>,
    b: impl Into<TensorView<'a, T, 3>>,
    c: impl Into<TensorView<'a, T, 3>>,
    options: SelectiveScan<'a, T>,
) -> Result<(Tensor<T, 3>, Tensor<T::Sums, 3>)> {
    let inputs = Inputs { u: u.into(), delta: delta.into(), a: a.into(), b: b.into(), c: c.into() };
    inputs.check(&options)?;
    let (mut y, mut last) = inputs.results(cx)?;
    run(cx, inputs, options, None, (y.view_mut(), last.view_mut()))?;
    Ok((y, last))
}

/// [`selective_scan`], into tensors of the shapes of its results, in row-major order without gaps. Nothing is allocated.
///
/// # Errors
///
/// As [`selective_scan`], and if shapes of `y` and `last` do not fit or they have gaps.
#[allow(clippy::too_many_arguments)]
pub fn selective_scan_into<'a, 'b, T: Real>(
    cx: &Context,
    u: impl Into<TensorView<'a, T, 3>>,
    delta: impl Into<TensorView<'a, T, 3>>,
    a: impl Into<TensorView<'a, T::Sums, 2>>,
    b: impl Into<TensorView<'a, T, 3>>,
    c: impl Into<TensorView<'a, T, 3>>,
    options: SelectiveScan<'a, T>,
    y: impl Into<TensorViewMut<'b, T, 3>>,
    last: impl Into<TensorViewMut<'b, T::Sums, 3>>,
) -> Result<()> {
    let inputs = Inputs { u: u.into(), delta: delta.into(), a: a.into(), b: b.into(), c: c.into() };
    run(cx, inputs, options, None, (y.into(), last.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::Target;

    #[test]
    fn a_scan_fits_into_registers() {
        let consts = ScanChannelsConsts { SOFTPLUS: true, BD: 4, BN: 16, BL: BLOCK };
        let request = consts.request::<bf16, f32>(true, true, false).num_warps(8);
        check_instructions("selective scan", request.compile(Target::sm_90a()), &["ld.global.nc"]);
    }
}
