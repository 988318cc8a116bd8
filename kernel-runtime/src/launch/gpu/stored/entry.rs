//! From a variant to an entry of an archive, and back.

use super::super::super::definition::Definition;
use super::super::super::loads::Loads;
use super::super::super::made::Recipes;
use super::super::variant::{SiteFacts, Variant};
use super::Wanted;
use kernel_archive::{Code, Entry, Head, Identity, Maker, Site, Texts};
use kernel_core::backend::nvidia::{Explain, Options, Ptx, Usage};
use kernel_core::backend::{self, Artifact, Timings};
use kernel_core::ir::Bound;
use kernel_core::text;

/// The entry of a variant, with the machine code that it has; `None` if it names a place in the source that the kernel's text
/// does not.
pub(super) fn write(wanted: &Wanted<'_>, variant: &Variant, bound: &Bound, maker: Maker) -> Option<Entry> {
    let machine = variant.machine.get().cloned().into_iter().collect();
    let entry = without_machine_code(wanted.kernel, wanted.identity(), variant, bound, maker)?;
    Some(Entry { machine, ..entry })
}

/// As [`write`], of the variant of that identity, without machine code.
pub(super) fn without_machine_code(
    kernel: &'static Definition,
    identity: Identity,
    variant: &Variant,
    bound: &Bound,
    maker: Maker,
) -> Option<Entry> {
    let places = kernel.places();
    let Artifact { code, conditions, sites, .. } = &variant.artifact;
    let site = |(site, atomic): (&backend::Site, &bool)| {
        Some(Site { place: places.number(site.span)?, atomic: *atomic, kind: site.kind.clone() })
    };
    let sites: Option<Vec<Site>> = sites.iter().zip(&variant.facts.atomics).map(site).collect();
    let written = Code {
        entry: code.entry.clone(),
        shared_bytes: code.shared_bytes,
        num_warps: code.num_warps,
        min_programs: code.min_programs,
        sets_registers: code.sets_registers,
        dependent_launch: code.dependent_launch,
        abi: code.abi.clone(),
        nodes: conditions.nodes().to_vec(),
        conditions: conditions.conditions().to_vec(),
        sites: sites?,
        names: variant.facts.names.iter().map(|name| name.to_string()).collect(),
        loads: variant.loads.bits(),
        made: variant.made.written(places)?,
    };
    // Code that does not look at lengths serves all of them.
    let identity = if variant.uses_lengths() { identity } else { identity.for_all_lengths() };
    let texts = Texts { ptx: code.text.clone(), bound_ir: text::print(bound.func()), report: code.report.report(None) };
    let options = Options { keep_llvm_ir: false, ..variant.options.clone() };
    Some(Entry { head: Head { identity, maker, options, code: written }, texts, machine: Vec::new() })
}

/// The variant of an entry; `None` if it is not sound, which its checksum says of none that was written here.
pub(in super::super) fn read(kernel: &'static Definition, entry: Entry) -> Option<Variant> {
    let Entry { head: Head { code, options, .. }, texts, machine } = entry;
    let places = kernel.places();
    let conditions = code.launch_conditions()?;
    let facts = SiteFacts {
        atomics: code.sites.iter().map(|site| site.atomic).collect(),
        names: code.names.iter().map(|name| name.as_str().into()).collect(),
    };
    let site = |site: Site| backend::Site { span: places.span(site.place), kind: site.kind };
    let sites = code.sites.iter().cloned().map(site).collect();
    let (loads, made) = (Loads::from_bits(code.loads), Recipes::read(code.made.clone(), places));
    let (stages, timings) = (Vec::new(), Timings::default());
    let artifact = Artifact { conditions, sites, stages, timings, code: ptx(code, texts) };
    let mut variant = Variant::new(kernel, artifact, options, facts, loads, made);
    variant.is_stored = true;
    // An entry is of one target; of several codes, the one for its own GPUs comes first.
    machine.into_iter().take(1).for_each(|machine| drop(variant.machine.set(machine)));
    Some(variant)
}

/// The PTX of an entry.
pub(super) fn ptx(code: Code, texts: Texts) -> Ptx {
    Ptx {
        entry: code.entry,
        text: texts.ptx,
        shared_bytes: code.shared_bytes,
        num_warps: code.num_warps,
        min_programs: code.min_programs,
        sets_registers: code.sets_registers,
        dependent_launch: code.dependent_launch,
        abi: code.abi,
        report: Box::new(Kept(texts.report)),
    }
}

/// A report that was made when the kernel was compiled.
#[derive(Debug)]
struct Kept(String);

impl Explain for Kept {
    fn report(&self, _: Option<&Usage>) -> String {
        self.0.clone()
    }
}
