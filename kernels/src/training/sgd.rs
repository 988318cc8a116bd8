//! Stochastic gradient descent with momentum.

use crate::arguments::{maybe, maybe_mut, packed, vector};
use crate::{Context, TensorView, TensorViewMut};
use tilewright::Result;
use tilewright::prelude::*;

/// The numbers of [`sgd`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sgd {
    /// The learning rate.
    pub rate: f32,
    /// How much of the last step is taken again.
    pub momentum: f32,
    /// The decay of weights, which is added to gradients.
    pub decay: f32,
}

#[kernel]
pub(super) fn sgd_step<T: Float, G: Float, const BLOCK: usize>(
    parameters: PtrMut<T>,
    gradients: Ptr<G>,
    velocities: Option<PtrMut<f32>>,
    scale: Option<Ptr<f32>>,
    n: i64,
    rate: f32,
    momentum: f32,
    decay: f32,
) {
    let at = program_id(0) as i64 * BLOCK as i64 + arange(0, BLOCK) as i64;
    let mask = at < n;
    let before = load(parameters + at, mask = mask) as f32;
    let gradient = load(gradients + at, mask = mask) as f32;
    let gradient = if let Some(scale) = scale { gradient * load(scale) } else { gradient };
    let step = gradient + decay * before;
    let step = if let Some(velocities) = velocities {
        let velocity = momentum * load(velocities + at, mask = mask) + step;
        store(velocities + at, velocity, mask = mask);
        velocity
    } else {
        step
    };
    store(parameters + at, (before - rate * step) as T, mask = mask);
}

/// One step of stochastic gradient descent, in place, with momentum if there is a velocity (Sutskever et al., "On the
/// Importance of Initialization and Momentum in Deep Learning", 2013): `v = momentum v + (g + decay x)`, `x = x - rate v`.
///
/// # Shapes
///
/// `parameters`, `gradients` and `velocity` are `[n]`, of any floats; the velocity is zero before the first step. `scale` is
/// `[1]`: what gradients are multiplied by first.
///
/// # Numerics
///
/// Computed in f32, and rounded once.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes differ or there are gaps; those of a launch.
pub fn sgd<'a, 'b, T: Float, G: Float>(
    cx: &Context,
    parameters: impl Into<TensorViewMut<'a, T, 1>>,
    gradients: impl Into<TensorView<'b, G, 1>>,
    velocity: Option<TensorViewMut<'_, f32, 1>>,
    options: &Sgd,
    scale: Option<TensorView<'_, f32, 1>>,
) -> Result<()> {
    let (parameters, gradients) = (parameters.into(), gradients.into());
    let len = parameters.len();
    packed("parameters", parameters.is_contiguous())?;
    vector("gradients", &gradients, len)?;
    velocity.as_ref().map_or(Ok(()), |velocity| vector("velocity", &velocity.as_view(), len))?;
    scale.as_ref().map_or(Ok(()), |scale| vector("scale", scale, 1))?;
    let (velocity, scale) = (maybe_mut(velocity), maybe(scale));
    let Sgd { rate, momentum, decay } = *options;
    SgdStepConsts { BLOCK: 1024 }
        .call(parameters.elements(), gradients.elements(), velocity, scale, len as i64, rate, momentum, decay)
        .grid(len.div_ceil(1024))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}
