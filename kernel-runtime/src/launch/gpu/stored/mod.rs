//! Variants in archives: where code comes from before anything is compiled, and where it goes.
//!
//! | module | what it is |
//! |---|---|
//! | `identity` | which variant a launch asks for, as archives name it |
//! | `entry` | from a variant to an entry of an archive, and back |
//! | `shelf` | the cache on disk, and the archive that is recorded |
//! | `shipped` | archives that a program embeds or loads |
//! | `missing` | what to say where there is neither code nor a compiler |
//!
//! A launch asks, in this order: archives of the program, the cache on disk, the compiler. Where there is no compiler, it
//! takes a variant of the program's archives that takes less for granted, and is slower.

#[cfg(test)]
#[path = "tests/anywhere.rs"]
mod anywhere;
mod entry;
mod identity;
mod missing;
mod shelf;
pub(crate) mod shipped;
#[cfg(all(test, jit))]
mod tests;

use super::super::definition::Definition;
use super::super::spec::Spec;
use super::super::target::Target;
use super::compiler;
use super::variant::{Texts, Variant};
use crate::error::{Error, Result};
use kernel_archive::{Entry, Maker};
use kernel_core::backend::{Checks, Timings};
use kernel_core::ir::Bound;

/// Which runtimes can use each other's archives: those that are made of the same sources.
pub(in super::super) const RUNTIME: &str = env!("TILEWRIGHT_RUNTIME");

/// The variant for a launch.
pub(super) fn find_or_compile(
    kernel: &'static Definition,
    spec: &Spec<'_>,
    target: Target,
    checks: Checks,
) -> Result<Variant> {
    let wanted = Wanted { kernel, spec, target, checks };
    let mut timings = Timings::default();
    if let Some(entry) = timings.stage("archive", || shipped::exact(&wanted).or_else(|| shelf::find(&wanted))) {
        shelf::record(|| Some(entry.clone()));
        if let Some(variant) = entry::read(kernel, entry) {
            log::debug!("found code of kernel `{}` for {}: {timings}", kernel.name(), target.name());
            return Ok(variant);
        }
    }
    if shipped::any() && !compiler::is_available() {
        return less_special(&wanted);
    }
    let (variant, bound) = Variant::compile(&wanted, Texts::Dropped)?;
    log::debug!("compiled kernel `{}` for {}: {}", kernel.name(), target.name(), variant.timings);
    let maker = || maker().filter(|_| compiler::is_as_fingerprinted());
    shelf::keep(|| entry::write(&wanted, &variant, &bound, maker()?));
    Ok(variant)
}

/// A variant of the program's archives that takes less for granted than the launch allows.
fn less_special(wanted: &Wanted<'_>) -> Result<Variant> {
    let found = shipped::serving(wanted).and_then(|entry| entry::read(wanted.kernel, entry));
    let variant = found.ok_or_else(|| missing::error(wanted))?;
    log::debug!("kernel `{}` runs code that knows less of its arguments than there is to know", wanted.kernel.name());
    Ok(variant)
}

/// What a launch asks for.
pub(super) struct Wanted<'w> {
    pub(super) kernel: &'static Definition,
    pub(super) spec: &'w Spec<'w>,
    pub(super) target: Target,
    pub(super) checks: Checks,
}

/// Whether a variant is the same when it has been written down and read again.
///
/// # Errors
/// [`Error::Internal`] with what differs.
pub(super) fn check(wanted: &Wanted<'_>, variant: &Variant, bound: &Bound) -> Result<()> {
    let problem = |what: &str| Error::Internal {
        message: format!("the code of kernel `{}` cannot be kept: {what}", wanted.kernel.name()).into(),
    };
    let maker = Maker { runtime: RUNTIME.to_string(), compiler: String::new() };
    let written = entry::write(wanted, variant, bound, maker.clone());
    let written = written.ok_or_else(|| problem("it names a place that is not in its tile IR"))?;
    let decoded = kernel_archive::entry::decode(&kernel_archive::entry::encode(&written));
    let decoded = decoded.map_err(|error| problem(&error.to_string()))?;
    if decoded != written {
        return Err(problem("what is read is not what was written"));
    }
    let read = entry::read(wanted.kernel, decoded).ok_or_else(|| problem("it is not sound"))?;
    if read.artifact.sites != variant.artifact.sites {
        return Err(problem("places have changed"));
    }
    match entry::write(wanted, &read, bound, maker) {
        Some(again) if again == written => Ok(()),
        _ => Err(problem("what was read is written another way")),
    }
}

/// Who makes variants in this process; `None` if that cannot be said.
pub(super) fn maker() -> Option<Maker> {
    Some(Maker { runtime: RUNTIME.to_string(), compiler: compiler::fingerprint()?.to_string() })
}

/// Compiles variants for an archive: the one for launches that meet its conditions, and if it has some, the one that
/// checks everything itself.
pub(in super::super) fn compile_entries(
    kernel: &'static Definition,
    spec: &Spec<'_>,
    target: Target,
    checks: Checks,
) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut next = Some(checks);
    while let Some(checks) = next {
        let wanted = Wanted { kernel, spec, target, checks };
        let (variant, bound) = Variant::compile(&wanted, Texts::Dropped)?;
        kernel.count_compilation();
        let has_other = checks == Checks::AtLaunch && !variant.artifact.conditions.is_empty();
        next = has_other.then_some(Checks::EveryAccess);
        let maker = Maker {
            runtime: RUNTIME.to_string(),
            compiler: compiler::fingerprint().unwrap_or("a compiler without a name").to_string(),
        };
        entries.extend(entry::write(&wanted, &variant, &bound, maker));
    }
    Ok(entries)
}
