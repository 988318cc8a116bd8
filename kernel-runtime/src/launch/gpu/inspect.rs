//! Compiling a kernel to look at it.

use super::super::bind::bind;
use super::super::compiled::CompiledKernel;
use super::super::kernel::Kernel;
use super::super::spec::{Checking, Spec};
use super::super::target::Target;
use super::super::timing::Timings;
use super::variant::{Texts, generate};
use super::{module, target_of};
use crate::device::Device;
use crate::error::Result;
use kernel_codegen::{Compiled, with_min_programs};
use kernel_core::ir::BoundFunc;
use kernel_core::text;

/// Compiles for a target, without a GPU.
pub(in super::super) fn compile(kernel: &'static Kernel, spec: &Spec<'_>, target: Target) -> Result<CompiledKernel> {
    let (bound, compiled, timings) = generated(kernel, spec, target)?;
    let report = compiled.report.to_string();
    Ok(stages(kernel, &bound, compiled, report, timings))
}

/// Compiles for a GPU and loads the code there.
pub(in super::super) fn compile_on(
    kernel: &'static Kernel,
    spec: &Spec<'_>,
    device: &Device,
) -> Result<CompiledKernel> {
    let (bound, mut compiled, mut timings) = generated(kernel, spec, target_of(kernel, device)?)?;
    if let Some(ctx) = device.cuda_context() {
        let loaded = timings.stage("driver", || module::load(kernel, &compiled, device, ctx))?;
        let usage = loaded.usage();
        compiled.ptx = with_min_programs(&compiled.ptx, usage.min_programs);
        compiled.report.usage = Some(usage.clone());
    }
    let report = compiled.report.to_string();
    Ok(stages(kernel, &bound, compiled, report, timings))
}

fn generated(kernel: &'static Kernel, spec: &Spec<'_>, target: Target) -> Result<(BoundFunc, Compiled, Timings)> {
    let mut timings = Timings::default();
    let bound = bind(kernel, spec, &mut timings)?;
    let compiled = generate(kernel, spec, &bound, target, Checking::AtLaunch, Texts::Kept, &mut timings)?;
    kernel.count_compilation();
    Ok((bound, compiled, timings))
}

fn stages(
    kernel: &'static Kernel,
    bound: &BoundFunc,
    compiled: Compiled,
    report: String,
    timings: Timings,
) -> CompiledKernel {
    let placed_ir = compiled.placed_ir();
    let (lowered_ir, llvm_ir) = compiled.llvm_ir.map(|ir| (ir.lowered, ir.optimised)).unwrap_or_default();
    CompiledKernel {
        name: kernel.name(),
        tile_ir: kernel.source().ir,
        bound_ir: text::print(bound.func()),
        placed_ir,
        lowered_ir,
        llvm_ir,
        ptx: compiled.ptx,
        report,
        timings,
    }
}
