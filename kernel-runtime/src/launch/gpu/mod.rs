//! The GPU backend: code generation, the driver's compiler, launches.
//!
//! | module | what it is |
//! |---|---|
//! | `variant` | one variant compiled for one target, with what its reports mean |
//! | `module` | a variant loaded by the driver into one context |
//! | `submit` | a launch: addresses and values as the code takes them, the call of the driver |
//! | `inspect` | compiling to look at the stages |

mod inspect;
mod module;
mod submit;
mod variant;

use super::args::Arg;
use super::cache::Cache;
use super::invocation::Place;
use super::kernel::Kernel;
use super::spec::{Checking, Key, Spec};
use super::target::Target;
use super::timing::Timings;
use crate::device::Device;
use crate::error::{Error, Result};
use module::Loaded;
use std::sync::Arc;
use variant::Variant;

pub(super) use inspect::{compile, compile_on};

/// The variants of a kernel on GPUs.
pub(super) struct GpuCaches {
    /// Ready to run, by context.
    ready: Cache<Ready>,
    /// Compiled, by target.
    variants: Cache<Variant>,
}

impl GpuCaches {
    pub(super) const fn new() -> Self {
        GpuCaches { ready: Cache::new(), variants: Cache::new() }
    }
}

/// A variant in a context.
struct Ready {
    variant: Arc<Variant>,
    loaded: Arc<Loaded>,
}

/// Marks the key of a variant whose code knows nothing of lengths.
const ANY_LENGTHS: u64 = 1 << 32;

/// Launches the kernel, with its fast variant if the launch meets the conditions for it.
pub(super) fn launch(kernel: &'static Kernel, spec: &Spec<'_>, args: &mut [Arg<'_>], place: &Place<'_>) -> Result<()> {
    let ready = ready(kernel, spec, place.device, Checking::AtLaunch)?;
    let conditions = &ready.variant.compiled.conditions;
    if conditions.is_empty() || submit::conditions_hold(conditions, args, place.grid) {
        return submit::launch(kernel, &ready, args, place);
    }
    let checked = self::ready(kernel, spec, place.device, Checking::Everywhere)?;
    submit::launch(kernel, &checked, args, place)
}

/// The variant for a launch on `device`, compiled and loaded if nobody has.
fn ready(kernel: &'static Kernel, spec: &Spec<'_>, device: &Device, checking: Checking) -> Result<Arc<Ready>> {
    let ctx = device.cuda_context().ok_or_else(|| no_code(kernel, device))?;
    // A context that is in a key is kept alive by what was loaded into it, so its address stands
    // for it.
    let key = Key::new(spec, ctx.cu_ctx() as u64, checking);
    if let Some(ready) = kernel.gpu.ready.get(&key) {
        return Ok(ready);
    }
    kernel.gpu.ready.get_or_make(&key, || {
        let target = target_of(kernel, device)?;
        let variant = variant(kernel, spec, target, checking)?;
        let mut timings = Timings::default();
        let loaded = timings.stage("driver", || variant.load(kernel, device, ctx))?;
        log::debug!("loaded kernel `{}` on {device}: {timings}", kernel.name());
        Ok(Arc::new(Ready { variant, loaded }))
    })
}

/// What to compile for on `device`.
fn target_of(kernel: &Kernel, device: &Device) -> Result<Target> {
    device.target().ok_or_else(|| no_code(kernel, device))
}

fn no_code(kernel: &Kernel, device: &Device) -> Error {
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
fn variant(kernel: &'static Kernel, spec: &Spec<'_>, target: Target, checking: Checking) -> Result<Arc<Variant>> {
    let place = target_number(target);
    let variants = &kernel.gpu.variants;
    // Lengths vary more than everything else, and code without checks per lane does not use what
    // is known of them: such a variant serves all lengths.
    let params: super::spec::ParamSpecs = spec.params.iter().map(|param| param.without_length()).collect();
    let any_lengths = Key::new(&Spec { params: &params, ..*spec }, place | ANY_LENGTHS, checking);
    if let Some(variant) = variants.get(&any_lengths) {
        return Ok(variant);
    }
    let variant = variants.get_or_make(&Key::new(spec, place, checking), || {
        let variant = Variant::compile(kernel, spec, target, checking)?;
        kernel.count_compilation();
        log::debug!("compiled kernel `{}` for {}: {}", kernel.name(), target.name(), variant.timings);
        Ok(Arc::new(variant))
    })?;
    if !variant.uses_lengths() {
        return variants.get_or_make(&any_lengths, || Ok(variant));
    }
    Ok(variant)
}

/// What stands for a target in a key: the digits of its name, and its suffix.
fn target_number(target: Target) -> u64 {
    let name = target.name().trim_start_matches("sm_");
    name.bytes().fold(0, |number, byte| (number << 8 | u64::from(byte)) & (ANY_LENGTHS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_numbers_of_their_own() {
        let numbers = Target::all().map(target_number);
        for (index, number) in numbers.iter().enumerate() {
            assert_eq!(numbers.iter().position(|other| other == number), Some(index));
            assert_eq!(number & ANY_LENGTHS, 0);
        }
    }
}
