//! Kernels on GPUs: the driver's compiler and launches of what the backend for GPUs has made.
//!
//! | module | what it is |
//! |---|---|
//! | `compiler` | the backend, or what stands in for it in builds without |
//! | `stored` | variants in archives: kept on disk, recorded, shipped with a program |
//! | `variant` | one variant compiled for one target, with what its reports mean |
//! | `module` | a variant loaded by the driver into one context |
//! | `machine` | machine code: where it comes from, and where it goes |
//! | `observed` | loaded code as profiles know it |
//! | `caches` | both, by what launches ask for |
//! | `plan` | what a launch reads of both |
//! | `memo` | the last launch that met its conditions |
//! | `submit` | a launch: addresses and values as the code takes them, the call of the driver |
//! | `tensors` | launches for which the host makes tensors |
//! | `inspect` | compiling to look at the stages |
//! | `ahead` | what a kernel takes, and compiling it before it is launched |

mod ahead;
pub(super) mod caches;
mod compiler;
mod inspect;
pub(crate) mod machine;
mod memo;
mod module;
mod observed;
mod plan;
pub(crate) mod stored;
mod submit;
mod tensors;
#[cfg(all(test, jit))]
mod tests;
mod variant;

use super::args::Arg;
use super::definition::Definition;
use super::invocation::{Dispatch, Invocation};
use super::kernel::Kernel;
use super::key::{Digest, Key, Words};
use super::spec::Spec;
use super::target::Target;
use crate::device::Device;
use crate::driver::CaptureMode;
use crate::error::{Error, Result};
use crate::graph::capture;
use caches::Ready;
use cudarc::driver::CudaContext;
use kernel_core::backend::{Checks, LaunchConditions, Timings};
use memo::Memo;
use plan::Plan;
use std::borrow::Borrow;
use std::sync::Arc;
use variant::Variant;

pub(super) use ahead::{compile_ahead, estimate};
pub(crate) use compiler::{MISSING as MISSING_COMPILER, compiler_name};
pub(super) use inspect::{compile, compile_call, compile_on};
pub use stored::Shipped;
pub(super) use stored::of_archives as shipped;

/// Marks the key of a variant whose code knows nothing of lengths.
const ANY_LENGTHS: u64 = 1 << 32;

/// As [`launch`], for calls that do not come here directly.
#[inline(never)]
pub(super) fn launch_cold(call: &mut Invocation<'_>, dispatch: &Dispatch<'_>) -> Result<()> {
    launch(call, dispatch)
}

/// Launches the kernel, with its fast variant if the launch meets the conditions for it.
#[inline(always)]
pub(super) fn launch(call: &mut Invocation<'_>, dispatch: &Dispatch<'_>) -> Result<()> {
    match launch_variant(call, dispatch) {
        Ok(()) => Ok(()),
        Err(error) => retry_without_maps(call, dispatch, error),
    }
}

/// After an error: once more if it is that the driver has refused to encode the map of a tensor, before anything was
/// launched. Code that accesses the tensor under masks needs no map.
#[cold]
fn retry_without_maps(call: &mut Invocation<'_>, dispatch: &Dispatch<'_>, error: Error) -> Result<()> {
    if !matches!(error, Error::Unsupported { .. }) || !has_refused_maps(call) {
        return Err(error);
    }
    call.refresh_args();
    relaunch_without_maps(call, dispatch)
}

/// Whether the driver has refused a map since the call's key was made.
fn has_refused_maps(call: &Invocation<'_>) -> bool {
    call.args.iter().any(|arg| arg.as_desc().is_some_and(|tensor| tensor.maps.is_refused()))
}

#[inline(never)]
fn relaunch_without_maps(call: &mut Invocation<'_>, dispatch: &Dispatch<'_>) -> Result<()> {
    launch_variant(call, dispatch)
}

#[inline(always)]
fn launch_variant(call: &mut Invocation<'_>, dispatch: &Dispatch<'_>) -> Result<()> {
    let fast = ready(call, &call.args, dispatch, Checks::AtLaunch)?;
    if fast.plan.makes_tensors() {
        return tensors::launch(call, dispatch, fast);
    }
    let (call, args) = (&*call, call.args.as_slice());
    let ready = match !fast.plan.has_conditions() || meets_conditions(fast, args, dispatch.grid) {
        true => fast,
        false => ready_checked(call, dispatch)?,
    };
    match capture::is_active() {
        false => submit::launch(call, args, ready, dispatch),
        true => submit::record(call, args, ready, dispatch),
    }
}

/// Whether no access of the launch leaves its buffer, as far as that does not depend on data.
#[inline]
fn meets_conditions(fast: &Ready, args: &[Arg<'_>], grid: [u32; 3]) -> bool {
    fast.memo.holds(args, grid) || evaluate_conditions(&fast.variant.artifact.conditions, &fast.memo, args, grid)
}

#[cold]
fn evaluate_conditions(conditions: &LaunchConditions, memo: &Memo, args: &[Arg<'_>], grid: [u32; 3]) -> bool {
    let holds = submit::conditions_hold(conditions, args, grid);
    if holds {
        memo.note(args, grid);
    }
    holds
}

/// The variant for a launch, compiled and loaded if nobody has.
#[inline(always)]
fn ready(call: &Invocation<'_>, args: &[Arg<'_>], dispatch: &Dispatch<'_>, checks: Checks) -> Result<&'static Ready> {
    // A context that is in a key is kept alive by what was loaded into it, so its name stands for it.
    let context = dispatch.device.context_number();
    let digest = call.key_digest(context, checks);
    match call.kernel.gpu.ready.get_hot(digest, |words| call.has_key(words, args, context, checks)) {
        Some(ready) => Ok(ready),
        None => ready_slow(call, dispatch, checks, digest),
    }
}

/// The variant that checks everything.
#[inline(never)]
fn ready_checked(call: &Invocation<'_>, dispatch: &Dispatch<'_>) -> Result<&'static Ready> {
    ready(call, &call.args, dispatch, Checks::EveryAccess)
}

/// As `ready`, of what was not asked for lately.
#[cold]
fn ready_slow(
    call: &Invocation<'_>,
    dispatch: &Dispatch<'_>,
    checks: Checks,
    digest: Digest,
) -> Result<&'static Ready> {
    let mut words = Words::default();
    call.key(&mut words, dispatch.device.context_number(), checks);
    if let Some(ready) = call.kernel.gpu.ready.get_slow(digest, words.as_slice()) {
        return Ok(ready);
    }
    // Nothing is compiled for a launch that will be refused.
    call.check_buffers(dispatch.stream)?;
    let Some(ctx) = dispatch.device.cuda_context() else {
        return Err(no_code(call.kernel.definition(), dispatch.device));
    };
    call.with_spec(call.tuning()?, |spec| make_ready(call.kernel, spec, dispatch.device, ctx, &Key::of(&words), checks))
}

#[cold]
fn make_ready(
    kernel: &'static Kernel,
    spec: &Spec<'_>,
    device: &Device,
    ctx: &Arc<CudaContext>,
    key: &Key,
    checks: Checks,
) -> Result<&'static Ready> {
    kernel.gpu.ready.get_or_make(key, || {
        // Somebody may be capturing a stream, which code that is loaded does not disturb.
        let _mode = CaptureMode::relaxed();
        let target = target_of(kernel.definition(), device)?;
        let variant = variant(kernel, spec, target, checks)?;
        let mut timings = Timings::default();
        let loaded = timings.stage("driver", || variant.load(kernel.definition(), device, ctx))?;
        log::debug!("loaded kernel `{}` on {device}: {timings}", kernel.name());
        observed::note(kernel, variant, &loaded);
        Ok(Ready { plan: Plan::new(variant, &loaded), memo: Memo::default(), variant, loaded })
    })
}

/// What to compile for on `device`.
fn target_of(kernel: &Definition, device: &Device) -> Result<Target> {
    device.target().ok_or_else(|| no_code(kernel, device))
}

fn no_code(kernel: &Definition, device: &Device) -> Error {
    let reason = match device.compute_capability() {
        None => "the CPU interprets kernels, nothing is compiled for it; name a target, such as `Target::sm_90a()`",
        Some(_) => "it is older than compute capability 8.0 (Ampere); use a newer GPU or `Device::cpu()`",
    };
    Error::Unsupported {
        what: format!("compiling kernel `{}` for {device} ({})", kernel.name(), device.name()).into(),
        reason: reason.into(),
    }
}

/// The variant for a target, compiled if nobody has.
fn variant(kernel: &'static Kernel, spec: &Spec<'_>, target: Target, checks: Checks) -> Result<&'static Variant> {
    let place = target_number(target);
    let variants = &kernel.gpu.variants;
    // Lengths vary more than everything else, and code without checks per lane does not use what
    // is known of them: such a variant serves all lengths.
    let params: super::spec::ParamSpecs = spec.params.iter().map(|param| param.without_length()).collect();
    let any_lengths = Key::new(&Spec { params: &params, ..*spec }, place | ANY_LENGTHS, checks);
    if let Some(variant) = variants.get(any_lengths.borrow()) {
        return Ok(*variant);
    }
    let variant = *variants.get_or_make(&Key::new(spec, place, checks), || {
        let variant = stored::find_or_compile(kernel.definition(), spec, target, checks)?;
        kernel.definition().count_compilation();
        Ok(variant)
    })?;
    if !variant.uses_lengths() {
        variants.get_or_make(&any_lengths, || Ok(variant))?;
    }
    Ok(variant)
}

/// What stands for a target in a key: the digits of its name, and its suffix.
fn target_number(target: Target) -> u64 {
    let name = target.name().trim_start_matches("sm_");
    name.bytes().fold(0, |number, byte| (number << 8 | u64::from(byte)) & (ANY_LENGTHS - 1))
}
