//! Variants in archives: where code comes from before anything is compiled, and where it goes.
//!
//! | module | what it is |
//! |---|---|
//! | `identity` | which variant a launch asks for, as archives name it |
//! | `entry` | from a variant to an entry of an archive, and back |
//! | `keeping` | writing down what was compiled, beside the driver's work |
//! | `shelf` | the cache on disk, and the archive that is recorded |
//! | `shipped` | archives that a program embeds or loads |
//! | `machines` | machine code in the cache |
//! | `missing` | what to say where there is neither code nor a compiler |
//!
//! A launch asks, in this order: archives of the program, the cache on disk, the compiler. Where there is no compiler, it
//! takes a variant of the program's archives that takes less for granted, and is slower.

#[cfg(test)]
#[path = "tests/anywhere.rs"]
mod anywhere;
mod entry;
mod identity;
mod keeping;
pub(super) mod machines;
mod missing;
mod shelf;
pub(crate) mod shipped;
#[cfg(all(test, jit))]
mod tests;

use super::super::definition::Definition;
use super::super::spec::{Spec, Tuning};
use super::super::target::Target;
use super::compiler;
use super::machine::ptxas::Ptxas;
use super::variant::{Texts, Variant};
use crate::error::{Error, Result};
#[cfg(all(test, jit))]
pub(super) use entry::read;
pub(super) use keeping::Keeping;
use kernel_archive::{Entry, Head, Maker};
use kernel_core::backend::{Checks, Timings};
use kernel_core::ir::Bound;
pub(super) use machines::machines;

/// Which runtimes can use each other's archives: those that are made of the same sources.
pub(in super::super) const RUNTIME: &str = env!("TILEWRIGHT_RUNTIME");

/// The variant for a launch. If it was compiled, it is being [kept](Variant::wait_until_kept).
pub(super) fn find_or_compile(
    kernel: &'static Definition,
    spec: &Spec<'_>,
    target: Target,
    checks: Checks,
) -> Result<&'static Variant> {
    let wanted = Wanted { kernel, spec, target, checks };
    // Those of a process are as many as it launches.
    let leaked = |variant| &*Box::leak(Box::new(variant));
    let mut timings = Timings::default();
    if let Some(entry) = timings.stage("archive", || shipped::exact(&wanted).or_else(|| shelf::find(&wanted))) {
        shelf::record(|| Some(entry.clone()));
        if let Some(variant) = entry::read(kernel, entry) {
            log::debug!("found code of kernel `{}` for {}: {timings}", kernel.name(), target.name());
            return Ok(leaked(variant));
        }
    }
    if shipped::any() && !compiler::is_available() {
        return less_special(&wanted).map(leaked);
    }
    let (variant, bound) = Variant::compile(&wanted, Texts::Dropped)?;
    log::debug!("compiled kernel `{}` for {}: {}", kernel.name(), target.name(), variant.timings);
    let variant = leaked(variant);
    if shelf::is_wanted()
        && let Some(maker) = maker().filter(|_| compiler::is_as_fingerprinted())
    {
        let identity = wanted.identity();
        let entry = move || entry::without_machine_code(kernel, identity, variant, &bound, maker);
        variant.keeping.begin(move || shelf::keep(entry));
    }
    Ok(variant)
}

/// A variant of the program's archives that takes less for granted than the launch allows.
fn less_special(wanted: &Wanted<'_>) -> Result<Variant> {
    let found = shipped::serving(wanted).and_then(|entry| entry::read(wanted.kernel, entry));
    let variant = found.ok_or_else(|| missing::error(wanted))?;
    log::debug!("kernel `{}` runs code that knows less of its arguments than there is to know", wanted.kernel.name());
    Ok(variant)
}

/// What the archives of a program have for a launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shipped {
    /// The variant that runs where the launch meets its conditions, and behind it the one that checks every access, if there
    /// are conditions. They are named as [`ArchiveBuilder::variants`](crate::archive::ArchiveBuilder::variants) does.
    pub variants: Vec<String>,
    /// Whether each is compiled for just what is known of the arguments, so that no compiler would make a faster one.
    pub is_exact: bool,
}

/// What archives have for a launch, without looking elsewhere.
pub(in super::super) fn of_archives(kernel: &'static Definition, spec: &Spec<'_>, target: Target) -> Result<Shipped> {
    let mut shipped = Shipped { variants: Vec::new(), is_exact: true };
    for checks in [Checks::AtLaunch, Checks::EveryAccess] {
        let wanted = Wanted { kernel, spec, target, checks };
        let exact = shipped::exact(&wanted);
        shipped.is_exact &= exact.is_some();
        let entry = exact.or_else(|| shipped::serving(&wanted)).ok_or_else(|| missing::error(&wanted))?;
        shipped.variants.push(entry.head.identity.to_string());
        if entry.head.code.conditions.is_empty() {
            break;
        }
    }
    Ok(shipped)
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
/// checks everything itself. Of a kernel that makes tensors, the same again for tensors of which nothing is known: what a
/// request assumes is about arguments, and which tensors come of them, a launch says.
pub(in super::super) fn compile_entries(
    kernel: &'static Definition,
    spec: &Spec<'_>,
    target: Target,
    checks: Checks,
    ptxas: Option<&Ptxas>,
) -> Result<Vec<Entry>> {
    let wanted = Wanted { kernel, spec, target, checks };
    let (mut entries, made) = entries_by_checks(&wanted, ptxas)?;
    let rough_tensors = spec.tuning.rough_tensors | made;
    if rough_tensors != spec.tuning.rough_tensors {
        let spec = Spec { tuning: Tuning { rough_tensors, ..spec.tuning }, ..*spec };
        entries.extend(entries_by_checks(&Wanted { spec: &spec, ..wanted }, ptxas)?.0);
    }
    Ok(entries)
}

/// A variant and the one that checks what the launch does not, with the bits of the tensors that launches make for them.
fn entries_by_checks(wanted: &Wanted<'_>, ptxas: Option<&Ptxas>) -> Result<(Vec<Entry>, u32)> {
    let Wanted { kernel, spec, target, checks } = *wanted;
    let (mut entries, mut made) = (Vec::new(), 0);
    let mut next = Some(checks);
    while let Some(checks) = next {
        let wanted = Wanted { kernel, spec, target, checks };
        let (variant, bound) = Variant::compile(&wanted, Texts::Dropped)?;
        kernel.count_compilation();
        made |= variant.made.bits();
        let has_other = checks == Checks::AtLaunch && !variant.artifact.conditions.is_empty();
        next = has_other.then_some(Checks::EveryAccess);
        if let Some(ptxas) = ptxas {
            let machine = ptxas.assemble(&variant.artifact.code, target, target.capability())?;
            drop(variant.machine.set(machine));
        }
        let maker = Maker {
            runtime: RUNTIME.to_string(),
            compiler: compiler::fingerprint().unwrap_or("a compiler without a name").to_string(),
        };
        entries.extend(entry::write(&wanted, &variant, &bound, maker));
    }
    Ok((entries, made))
}

/// The variants of an archive, with machine code where there is an assembler and they have none.
///
/// # Errors
/// If it is no archive that this version can use, and what the assembler refuses.
pub(crate) fn entries_of(bytes: &[u8], name: &str, ptxas: Option<&Ptxas>) -> Result<Vec<Entry>> {
    let refuse = |reason: String| Error::Archive { archive: name.into(), reason: reason.into() };
    let mut entries = kernel_archive::read(bytes).map_err(|error| refuse(error.to_string()))?;
    for entry in &mut entries {
        let Head { identity, maker, code, .. } = &entry.head;
        shipped::check_runtime(maker).map_err(refuse)?;
        let target = Target::named(&identity.target).filter(|_| entry.machine.is_empty());
        if let (Some(ptxas), Some(target)) = (ptxas, target) {
            let code = entry::ptx(code.clone(), entry.texts.clone());
            entry.machine.push(ptxas.assemble(&code, target, target.capability())?);
        }
    }
    Ok(entries)
}
