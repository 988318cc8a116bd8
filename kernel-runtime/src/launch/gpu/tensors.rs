//! Launches of kernels that make tensors themselves: the host makes them first.
//!
//! A variant takes it for granted that the hardware's tensor copies can use such a tensor. Where that is not so, another
//! variant runs, which takes nothing for granted of that tensor.

use super::super::invocation::{Dispatch, Invocation};
use super::super::made::{For, Outcome};
use super::caches::Ready;
use super::{meets_conditions, ready, ready_checked, submit};
use crate::error::{Error, Result};
use crate::graph::capture;
use crate::tensor::Inner;
use kernel_core::backend::Checks;

/// Launches the kernel, whose variant is `fast` if its tensors are as it takes them to be.
#[inline(never)]
pub(super) fn launch(call: &mut Invocation<'_>, dispatch: &Dispatch<'_>, mut fast: &'static Ready) -> Result<()> {
    let mut refused = false;
    loop {
        let (definition, rough) = (call.kernel.definition(), call.tuning.rough_tensors);
        let rough = match fast.variant.made.make(definition, &call.args, rough, For::Gpu)? {
            Outcome::Rough(bits) => bits,
            Outcome::Tensors(tensors) => match submit(call, dispatch, fast, &tensors) {
                // Of a tensor whose map the driver refuses, the recipes say so the next time.
                Err(Error::Unsupported { .. }) if !refused && tensors.iter().any(|tensor| tensor.maps.is_refused()) => {
                    refused = true;
                    0
                }
                result => return result,
            },
        };
        call.tuning.rough_tensors |= rough;
        fast = ready(call, &call.args, dispatch, Checks::AtLaunch)?;
    }
}

fn submit(call: &Invocation<'_>, dispatch: &Dispatch<'_>, fast: &'static Ready, tensors: &[Inner<'_>]) -> Result<()> {
    let args = fast.variant.made.extend(&call.args, tensors);
    let ready = match !fast.plan.has_conditions() || meets_conditions(fast, &call.args, dispatch.grid) {
        true => fast,
        false => ready_checked(call, dispatch)?,
    };
    match capture::is_active() {
        false => submit::launch(call, &args, ready, dispatch),
        true => submit::record(call, &args, ready, dispatch),
    }
}
