//! The GPU backend of a build without the code generator: it says so.

use super::NO_CODE_GENERATOR;
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
        reason: NO_CODE_GENERATOR.into(),
    }
}
