//! What a kernel takes, and compiling it before it is launched, on any thread.

use super::super::bind::bind;
use super::super::kernel::Kernel;
use super::super::loads::Loads;
use super::super::spec::Spec;
use super::super::target::Target;
use super::compiler;
use super::machine::assembler::Assembler;
use super::variant::{options, refusal};
use crate::error::Result;
use kernel_core::backend::nvidia::{LaunchShape, Placement};
use kernel_core::backend::{Checks, Timings};

/// Binds and places the kernel of a launch.
pub(in super::super) fn estimate(
    kernel: &Kernel,
    spec: &Spec<'_>,
    target: Target,
    launch: &LaunchShape,
) -> Result<(Placement, Loads)> {
    let definition = kernel.definition();
    let bound = bind(definition, spec, Some(target), &mut Timings::default())?;
    let options = options(definition, spec, &bound, Checks::AtLaunch)?;
    let placement = compiler::estimate(&bound, target, &options, launch);
    let placement = placement.map_err(|error| refusal(definition, spec, target, error))?;
    Ok((placement, Loads::of(bound.func())))
}

/// Compiles the fast variant, which a launch then finds. Without an assembler the driver still has to compile it.
pub(in super::super) fn compile_ahead(
    kernel: &'static Kernel,
    spec: &Spec<'_>,
    target: Target,
    assembler: Option<&Assembler>,
) -> Result<()> {
    let variant = super::variant(kernel, spec, target, Checks::AtLaunch)?;
    if let Some(assembler) = assembler {
        assembler.assemble(variant);
    }
    // It may never be launched.
    variant.wait_until_kept();
    Ok(())
}
