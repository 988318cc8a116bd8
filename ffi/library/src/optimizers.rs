//! Optimizers.

use crate::views::{context, same_shape};
use tilewright::prelude::*;
use tilewright_ffi::Error;
use tilewright_ffi::prelude::*;
use tilewright_kernels::training::{self, AdamW, AdamWState, Step};
use tilewright_kernels::{TensorView, TensorViewMut};

/// One step of AdamW, in place: `step` is 1 for the first, before which `mean` and `square` are zero. Tensors have one shape and no
/// gaps. The state has the dtype of the parameter, or f32; what it is computed in is f32. Attributes are constants where JAX
/// traces, so that a jitted function is compiled anew for each step: it is for PyTorch, and for JAX outside of `jit`.
#[op]
#[allow(clippy::too_many_arguments)]
pub fn adamw_step(
    parameter: TensorMut<'_>,
    gradient: TensorRef<'_>,
    mean: TensorMut<'_>,
    square: TensorMut<'_>,
    step: i64,
    #[default(1e-3)] lr: f64,
    #[default(0.9)] beta1: f64,
    #[default(0.999)] beta2: f64,
    #[default(1e-8)] eps: f64,
    #[default(0.01)] weight_decay: f64,
) -> Result<()> {
    for tensor in [&parameter, &mean, &square] {
        same_shape(&tensor.as_ref(), &gradient)?;
    }
    let number = u64::try_from(step).ok().filter(|&step| step > 0);
    let number = number.ok_or_else(|| Error::argument("step", format!("is {step}"), "1 for the first step"))?;
    let options = AdamW {
        rate: lr as f32,
        beta1: beta1 as f32,
        beta2: beta2 as f32,
        eps: eps as f32,
        decay: weight_decay as f32,
    };
    let (cx, len) = (context(&gradient), [gradient.len()]);
    dispatch!(parameter.dtype() => T in [f32, f16, bf16] {
        let gradient = TensorView::new(gradient.flat::<T>()?, len)?;
        let (parameter, step) = (TensorViewMut::new(parameter.flat_mut::<T>()?, len)?, Step::new(number));
        let stepped = if mean.dtype() == f32::ELEMENT {
            training::adamw(&cx, parameter, gradient, state::<f32>(mean, square)?, &options, step)
        } else {
            training::adamw(&cx, parameter, gradient, state::<T>(mean, square)?, &options, step)
        };
        Ok(stepped?)
    })
}

fn state<'a, S: Float>(mean: TensorMut<'a>, square: TensorMut<'a>) -> Result<AdamWState<'a, S>> {
    let len = [mean.len()];
    Ok(AdamWState {
        mean: TensorViewMut::new(mean.flat_mut::<S>()?, len)?,
        square: TensorViewMut::new(square.flat_mut::<S>()?, len)?,
        master: None,
    })
}
