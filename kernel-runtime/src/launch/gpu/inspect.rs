//! Compiling a kernel to look at it.

use super::super::chosen::{self, LaunchVariant};
use super::super::compiled::CompiledKernel;
use super::super::definition::Definition;
use super::super::invocation::Invocation;
use super::super::spec::Spec;
use super::super::target::Target;
use super::machine::NoShelf;
use super::stored::Wanted;
use super::submit::Launch;
use super::variant::{Texts, Variant};
use super::{module, target_of};
use crate::device::Device;
use crate::error::Result;
use kernel_core::backend::nvidia::{Ptx, with_min_programs};
use kernel_core::backend::{Artifact, Checks, Timings};
use kernel_core::ir::Bound;
use kernel_core::text;

/// What is compiled, before it is shown.
struct Looked {
    bound: Bound,
    artifact: Artifact<Ptx>,
    timings: Timings,
    variant: LaunchVariant,
}

/// Compiles for a target, without arguments.
pub(in super::super) fn compile(
    kernel: &'static Definition,
    spec: &Spec<'_>,
    target: Target,
    checks: Checks,
) -> Result<CompiledKernel> {
    let (bound, artifact, timings) = generated(kernel, spec, target, checks)?;
    let variant = match checks {
        Checks::EveryAccess => LaunchVariant::Checked(Vec::new()),
        Checks::AtLaunch if artifact.conditions.is_empty() => LaunchVariant::Fast,
        Checks::AtLaunch => LaunchVariant::Undecided,
    };
    let report = artifact.code.report.report(None);
    Ok(stages(kernel, Looked { bound, artifact, timings, variant }, report))
}

/// Compiles what a launch runs, without a GPU.
pub(in super::super) fn compile_call(
    call: &Invocation<'_>,
    spec: &Spec<'_>,
    target: Target,
    grid: Option<[u32; 3]>,
) -> Result<CompiledKernel> {
    let looked = chosen(call, spec, target, grid)?;
    let report = looked.artifact.code.report.report(None);
    Ok(stages(call.kernel.definition(), looked, report))
}

/// Compiles what a launch runs on a GPU and loads the code there.
pub(in super::super) fn compile_on(
    call: &Invocation<'_>,
    spec: &Spec<'_>,
    device: &Device,
    grid: Option<[u32; 3]>,
) -> Result<CompiledKernel> {
    let kernel = call.kernel.definition();
    let mut looked = chosen(call, spec, target_of(kernel, device)?, grid)?;
    let code = &mut looked.artifact.code;
    let report = match device.cuda_context() {
        Some(ctx) => {
            let loaded =
                looked.timings.stage("driver", || module::load(kernel, code, None, &NoShelf, (device, ctx)))?;
            code.text = with_min_programs(&code.text, loaded.usage().min_programs);
            code.report.report(Some(loaded.usage()))
        }
        None => code.report.report(None),
    };
    Ok(stages(kernel, looked, report))
}

/// The variant that a launch with this grid runs; the fast one if the grid is not known.
fn chosen(call: &Invocation<'_>, spec: &Spec<'_>, target: Target, grid: Option<[u32; 3]>) -> Result<Looked> {
    let kernel = call.kernel.definition();
    let (bound, artifact, timings) = generated(kernel, spec, target, Checks::AtLaunch)?;
    let variant = match grid {
        _ if artifact.conditions.is_empty() => LaunchVariant::Fast,
        None => LaunchVariant::Undecided,
        Some(grid) => {
            let launch = Launch { args: &call.args, grid };
            match artifact.conditions.hold(&launch) {
                true => LaunchVariant::Fast,
                false => LaunchVariant::Checked(chosen::failed(kernel, bound.func(), &artifact.conditions, &launch)),
            }
        }
    };
    if let LaunchVariant::Checked(_) = variant {
        let (bound, artifact, timings) = generated(kernel, spec, target, Checks::EveryAccess)?;
        return Ok(Looked { bound, artifact, timings, variant });
    }
    Ok(Looked { bound, artifact, timings, variant })
}

fn generated(
    kernel: &'static Definition,
    spec: &Spec<'_>,
    target: Target,
    checks: Checks,
) -> Result<(Bound, Artifact<Ptx>, Timings)> {
    let (variant, bound) = Variant::compile(&Wanted { kernel, spec, target, checks }, Texts::Kept)?;
    kernel.count_compilation();
    Ok((bound, variant.artifact, variant.timings))
}

/// The report of a variant that checks every access, with why a launch runs it.
fn with_reasons(report: String, variant: &LaunchVariant) -> String {
    let LaunchVariant::Checked(failed) = variant else { return report };
    let reasons: Vec<String> = match failed.as_slice() {
        [] => vec!["  checks every access, as asked for".to_string()],
        failed => failed.iter().map(|failed| format!("  checks every access: {failed}")).collect(),
    };
    let (head, rest) = report.split_once('\n').unwrap_or((&report, ""));
    format!("{head}\n{}\n{rest}", reasons.join("\n"))
}

fn stages(kernel: &'static Definition, looked: Looked, report: String) -> CompiledKernel {
    let Looked { bound, artifact, timings, variant } = looked;
    let report = with_reasons(report, &variant);
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
        variant,
    }
}
