//! AdamW.

use super::Pack;
use crate::arguments::{maybe, maybe_mut, packed, vector};
use crate::{Context, TensorView, TensorViewMut};
use tilewright::prelude::*;
use tilewright::{Error, Result};

/// The numbers of [`adamw`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// The learning rate.
    pub rate: f32,
    /// How slowly the mean of gradients forgets.
    pub beta1: f32,
    /// How slowly the mean of their squares forgets.
    pub beta2: f32,
    /// What is added to the root of the mean square.
    pub eps: f32,
    /// The decay of weights, times the learning rate.
    pub decay: f32,
}

/// A rate of 1e-3, betas of 0.9 and 0.999, an epsilon of 1e-8 and a decay of 0.01.
impl Default for AdamW {
    fn default() -> Self {
        AdamW { rate: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.01 }
    }
}

/// What an optimiser remembers of its parameters: tensors of their length, zero before the first step. In f32, or in 16 bits
/// to take less memory and time.
#[derive(Debug)]
pub struct AdamWState<'a, S: Float = f32> {
    /// The mean of gradients.
    pub mean: TensorViewMut<'a, S, 1>,
    /// The mean of their squares.
    pub square: TensorViewMut<'a, S, 1>,
    /// The parameters in f32, of which those of 16 bits are rounded copies. Without them, the parameters themselves are
    /// updated, and small steps of 16-bit parameters are lost to rounding.
    pub master: Option<TensorViewMut<'a, f32, 1>>,
}

/// Which step it is, and what else changes with it.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    number: u64,
    scale: Option<TensorView<'a, f32, 1>>,
    decays: Option<TensorView<'a, f32, 1>>,
}

impl<'a> Step<'a> {
    /// Step `number`, 1 for the first.
    pub fn new(number: u64) -> Self {
        Step { number, scale: None, decays: None }
    }

    /// What gradients are multiplied by first, `[1]`, as by [`clip_factor`](super::clip_factor): the host need not know it.
    pub fn scale(mut self, scale: impl Into<TensorView<'a, f32, 1>>) -> Self {
        self.scale = Some(scale.into());
        self
    }

    /// The weight decay of each tensor of a pack, as [`Pack::per_tensor`] gives it, in place of that of the options.
    pub fn decays(mut self, decays: impl Into<TensorView<'a, f32, 1>>) -> Self {
        self.decays = Some(decays.into());
        self
    }
}

/// One step for a block of parameters. `decays` has a number for each block.
#[kernel]
pub(super) fn adamw_step<T: Float, G: Float, S: Float, const BLOCK: usize>(
    parameters: PtrMut<T>,
    gradients: Ptr<G>,
    means: PtrMut<S>,
    squares: PtrMut<S>,
    master: Option<PtrMut<f32>>,
    scale: Option<Ptr<f32>>,
    decays: Option<Ptr<f32>>,
    n: i64,
    rate: f32,
    beta1: f32,
    beta2: f32,
    one_minus_beta1: f32,
    one_minus_beta2: f32,
    eps: f32,
    decay: f32,
    correction1: f32,
    root_correction2: f32,
) {
    let at = program_id(0) as i64 * BLOCK as i64 + arange(0, BLOCK) as i64;
    let mask = at < n;
    let gradient = load(gradients + at, mask = mask) as f32;
    let gradient = if let Some(scale) = scale { gradient * load(scale) } else { gradient };
    let decay = if let Some(decays) = decays { load(decays + program_id(0)) } else { decay };
    let before = if let Some(master) = master {
        load(master + at, mask = mask)
    } else {
        load(parameters + at, mask = mask) as f32
    };
    let mean = beta1 * load(means + at, mask = mask) as f32 + one_minus_beta1 * gradient;
    let square = beta2 * load(squares + at, mask = mask) as f32 + one_minus_beta2 * gradient * gradient;
    let step = mean * correction1 / (sqrt(square) * root_correction2 + eps);
    let after = before - rate * decay * before - rate * step;
    store(means + at, mean as S, mask = mask);
    store(squares + at, square as S, mask = mask);
    if let Some(master) = master {
        store(master + at, after, mask = mask);
    }
    store(parameters + at, after as T, mask = mask);
}

/// Parameters of a program: 8 a thread, 32 bytes of a state in f32, 16 of one in 16 bits. A pack's tensors begin at multiples of
/// it.
const BLOCK: usize = Pack::ALIGNMENT;

/// One step of AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019), in place:
///
/// ```text
/// mean   = beta1 mean   + (1 - beta1) g
/// square = beta2 square + (1 - beta2) g^2
/// x = x - rate (decay x + (mean / (1 - beta1^step)) / (sqrt(square / (1 - beta2^step)) + eps))
/// ```
///
/// All tensors of a [`Packed`](super::Packed) take it in one launch: give `all_mut()` and `all()`.
///
/// # Shapes
///
/// `parameters` and `gradients` are `[n]`, of any floats, and so are the tensors of the state.
///
/// # Numerics
///
/// Computed in f32. With `master`, the parameters are its values, rounded once. A step uses its mean and mean square before
/// they are rounded to the dtype of the state. Rounded to 16 bits, a mean square that changes by less than half a unit in
/// its last place, 1/512 of it in bf16, stays as it is; in f16 one below 2^-25 is zero, so that steps of gradients
/// below 1e-3 are too large, and one above 65,504 is infinite, so that there are none. `1 - beta^step` is computed in f64 on the host:
/// a captured graph repeats the step that it was captured with.
///
/// # Errors
///
/// [`Error::InvalidTensor`] if shapes differ or there are gaps, [`Error::InvalidSetting`] if the step is 0; those of a launch.
pub fn adamw<'a, 'b, T: Float, G: Float, S: Float>(
    cx: &Context,
    parameters: impl Into<TensorViewMut<'a, T, 1>>,
    gradients: impl Into<TensorView<'b, G, 1>>,
    state: AdamWState<'_, S>,
    options: &AdamW,
    step: Step<'_>,
) -> Result<()> {
    let (parameters, gradients) = (parameters.into(), gradients.into());
    let len = parameters.len();
    packed("parameters", parameters.is_contiguous())?;
    vector("gradients", &gradients, len)?;
    vector("mean", &state.mean.as_view(), len)?;
    vector("square", &state.square.as_view(), len)?;
    state.master.as_ref().map_or(Ok(()), |master| vector("master", &master.as_view(), len))?;
    step.scale.as_ref().map_or(Ok(()), |scale| vector("scale", scale, 1))?;
    step.decays.as_ref().map_or(Ok(()), |decays| vector("decays", decays, len.div_ceil(BLOCK)))?;
    if step.number == 0 {
        let expected = "1 for the first step".into();
        return Err(Error::InvalidSetting { name: "the step of adamw".into(), value: "0".into(), expected });
    }
    // 1 - 0.999^t in f32 would have lost four digits at the first step.
    let (beta1, beta2) = (f64::from(options.beta1), f64::from(options.beta2));
    let correction = |beta: f64| 1.0 / (1.0 - beta.powf(step.number as f64));
    AdamwStepConsts { BLOCK }
        .call(
            parameters.elements(),
            gradients.elements(),
            state.mean.elements(),
            state.square.elements(),
            maybe_mut(state.master),
            maybe(step.scale),
            maybe(step.decays),
            len as i64,
            options.rate,
            options.beta1,
            options.beta2,
            (1.0 - beta1) as f32,
            (1.0 - beta2) as f32,
            options.eps,
            options.decay,
            correction(beta1) as f32,
            correction(beta2).sqrt() as f32,
        )
        .grid(len.div_ceil(BLOCK))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}
