//! The GPU backend of a build without the feature `jit`: it says so.

use super::compiled::CompiledKernel;
use super::invocation::{Invocation, Place};
use super::kernel::Kernel;
use super::spec::Spec;
use super::target::Target;
use crate::device::Device;
use crate::error::{Error, Result};

pub(super) fn launch(call: &mut Invocation<'_>, place: &Place<'_>) -> Result<()> {
    log::debug!("a launch on {} fails, the code generator is not there", place.device);
    Err(missing(call.kernel))
}

pub(super) use launch as launch_late;

pub(super) fn compile(kernel: &'static Kernel, _: &Spec<'_>, _: Target) -> Result<CompiledKernel> {
    Err(missing(kernel))
}

pub(super) fn compile_on(kernel: &'static Kernel, _: &Spec<'_>, _: &Device) -> Result<CompiledKernel> {
    Err(missing(kernel))
}

fn missing(kernel: &Kernel) -> Error {
    Error::Unsupported {
        what: format!("compiling kernel `{}` for a GPU", kernel.name()).into(),
        reason: "this program was built without the code generator; turn on the feature `jit` of `tilewright`, \
                 or run on `Device::cpu()`"
            .into(),
    }
}
