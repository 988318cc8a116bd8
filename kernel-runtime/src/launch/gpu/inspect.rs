//! Compiling a kernel to look at it.

use super::super::bind::bind;
use super::super::compiled::CompiledKernel;
use super::super::definition::Definition;
use super::super::spec::Spec;
use super::super::target::Target;
use super::variant::{Texts, generate};
use super::{module, target_of};
use crate::device::Device;
use crate::error::Result;
use kernel_core::backend::nvidia::{Ptx, with_min_programs};
use kernel_core::backend::{Artifact, Checks, Timings};
use kernel_core::ir::Bound;
use kernel_core::text;

/// Compiles for a target, without a GPU.
pub(in super::super) fn compile(
    kernel: &'static Definition,
    spec: &Spec<'_>,
    target: Target,
) -> Result<CompiledKernel> {
    let (bound, artifact, timings) = generated(kernel, spec, target)?;
    let report = artifact.code.report.report(None);
    Ok(stages(kernel, &bound, artifact, report, timings))
}

/// Compiles for a GPU and loads the code there.
pub(in super::super) fn compile_on(
    kernel: &'static Definition,
    spec: &Spec<'_>,
    device: &Device,
) -> Result<CompiledKernel> {
    let (bound, mut artifact, mut timings) = generated(kernel, spec, target_of(kernel, device)?)?;
    let code = &mut artifact.code;
    let report = match device.cuda_context() {
        Some(ctx) => {
            let loaded = timings.stage("driver", || module::load(kernel, code, device, ctx))?;
            code.text = with_min_programs(&code.text, loaded.usage().min_programs);
            code.report.report(Some(loaded.usage()))
        }
        None => code.report.report(None),
    };
    Ok(stages(kernel, &bound, artifact, report, timings))
}

fn generated(kernel: &'static Definition, spec: &Spec<'_>, target: Target) -> Result<(Bound, Artifact<Ptx>, Timings)> {
    let mut timings = Timings::default();
    let bound = bind(kernel, spec, Some(target), &mut timings)?;
    let artifact = generate(kernel, spec, &bound, target, Checks::AtLaunch, Texts::Kept, &mut timings)?;
    kernel.count_compilation();
    Ok((bound, artifact, timings))
}

fn stages(
    kernel: &'static Definition,
    bound: &Bound,
    artifact: Artifact<Ptx>,
    report: String,
    timings: Timings,
) -> CompiledKernel {
    let text = |stage| artifact.stages.iter().find(|(name, _)| *name == stage).map(|(_, text)| text.clone());
    let text = |stage| text(stage).unwrap_or_default();
    CompiledKernel {
        name: kernel.name(),
        tile_ir: kernel.source().ir,
        bound_ir: text::print(bound.func()),
        placed_ir: text("placed"),
        lowered_ir: text("lowered"),
        llvm_ir: text("llvm"),
        ptx: artifact.code.text,
        report,
        timings,
    }
}
