//! One variant of a kernel, compiled for one target.

use super::super::bind::{bind, compile_error, shown_values};
use super::super::definition::Definition;
use super::super::fault::FaultAt;
use super::super::loads::Loads;
use super::super::made::Recipes;
use super::super::spec::Spec;
use super::super::target::Target;
use super::super::tile_size::LargestTile;
use super::compiler::Compiler;
use super::module::{self, Loaded};
use super::stored::{self, Keeping, Wanted};
use crate::device::Device;
use crate::error::{Access, Error, Result};
use crate::report_slot::{LaunchRecord, ReportSource};
use cudarc::driver::CudaContext;
use kernel_archive::Machine;
use kernel_core::backend::nvidia::{AbiParam, Options, Ptx};
use kernel_core::backend::{Artifact, Backend, Checks, CompileError, Site, SiteKind, Timings};
use kernel_core::diag::Diagnostic;
use kernel_core::ir::{Bound, Func, MemoryOp, Op, ParamId, Span};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The code, and what its reports mean.
pub(super) struct Variant {
    pub(super) artifact: Artifact<Ptx>,
    /// How it was compiled.
    pub(super) options: Options,
    /// Makes errors of what programs report. `None` if nothing can fail.
    pub(super) reports: Option<Arc<dyn ReportSource>>,
    pub(super) facts: SiteFacts,
    /// The parameters that it loads from.
    pub(super) loads: Loads,
    /// The tensors that launches make for it.
    pub(super) made: Recipes,
    pub(super) timings: Timings,
    /// Whether it comes from an archive or the cache, so that it was compiled before.
    pub(super) is_stored: bool,
    /// Machine code, if an archive has it or it was made beforehand.
    pub(super) machine: OnceLock<Machine>,
    /// Keeping it for other processes, if it was compiled.
    pub(super) keeping: Keeping,
    /// By context. Few, so a list.
    loaded: Mutex<Vec<Arc<Loaded>>>,
}

impl Variant {
    /// Binds and compiles; gives the bound kernel too.
    pub(super) fn compile(wanted: &Wanted<'_>, texts: Texts) -> Result<(Variant, Bound)> {
        let Wanted { kernel, spec, target, .. } = *wanted;
        let mut timings = Timings::default();
        let bound = bind(kernel, spec, Some(target), &mut timings)?;
        let (artifact, options) = generate(wanted, &bound, texts, &mut timings)?;
        let func = bound.func();
        let (atomics, names) = (atomic_spans(func), names(func));
        let atomics = artifact.sites.iter().map(|site| atomics.contains(&site.span)).collect();
        let variant =
            Variant::new(kernel, artifact, options, SiteFacts { atomics, names }, Loads::of(func), Recipes::of(func));
        let variant = Variant { timings, ..variant };
        // In tests and debug builds, whatever is compiled is seen to be the same when it comes from a file.
        if cfg!(debug_assertions) {
            stored::check(wanted, &variant, &bound)?;
        }
        Ok((variant, bound))
    }

    pub(super) fn new(
        kernel: &'static Definition,
        artifact: Artifact<Ptx>,
        options: Options,
        facts: SiteFacts,
        loads: Loads,
        made: Recipes,
    ) -> Variant {
        let reports = (!artifact.sites.is_empty()).then(|| -> Arc<dyn ReportSource> {
            Arc::new(Reports { kernel, sites: artifact.sites.clone(), facts: facts.clone() })
        });
        Variant {
            artifact,
            options,
            reports,
            facts,
            loads,
            made,
            timings: Timings::default(),
            is_stored: false,
            machine: OnceLock::new(),
            keeping: Keeping::default(),
            loaded: Mutex::default(),
        }
    }

    /// Whether the code depends on what is known of buffers' lengths.
    pub(super) fn uses_lengths(&self) -> bool {
        self.artifact.code.abi.iter().any(|param| matches!(param, AbiParam::Length(_)))
    }

    /// Waits until other processes can find the variant, if this one has compiled it and keeps it.
    pub(super) fn wait_until_kept(&self) {
        self.keeping.wait();
    }

    /// The variant in a context.
    pub(super) fn load(&self, kernel: &Definition, device: &Device, ctx: &Arc<CudaContext>) -> Result<Arc<Loaded>> {
        // Held while the driver compiles, which it does for one caller at a time anyway.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = loaded.iter().find(|loaded| loaded.is_in(ctx)) {
            return Ok(found.clone());
        }
        let new = self.load_anew(kernel, device, ctx);
        self.wait_until_kept();
        let new = Arc::new(new?);
        loaded.push(new.clone());
        Ok(new)
    }

    /// The variant in a context, loaded for the caller alone.
    pub(super) fn load_anew(&self, kernel: &Definition, device: &Device, ctx: &Arc<CudaContext>) -> Result<Loaded> {
        let shelf = stored::machines(device, self.is_stored);
        let own = self.machine.get().filter(|own| shelf.is_for(own));
        module::load(kernel, &self.artifact.code, own, &shelf, (device, ctx))
    }
}

/// Whether the texts of the stages inside LLVM are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Texts {
    Kept,
    Dropped,
}

/// Runs the backend.
fn generate(
    wanted: &Wanted<'_>,
    bound: &Bound,
    texts: Texts,
    timings: &mut Timings,
) -> Result<(Artifact<Ptx>, Options)> {
    let Wanted { kernel, spec, target, checks } = *wanted;
    let options = Options { keep_llvm_ir: texts == Texts::Kept, ..options(kernel, spec, bound, checks)? };
    let mut artifact =
        Compiler.compile(bound, target, &options).map_err(|error| refusal(kernel, spec, target, error))?;
    timings.append(std::mem::take(&mut artifact.timings));
    Ok((artifact, options))
}

/// What the backend is asked for.
pub(super) fn options(kernel: &Definition, spec: &Spec<'_>, bound: &Bound, checks: Checks) -> Result<Options> {
    let defaults = Options::default();
    let largest = LargestTile::of(bound);
    largest.check(kernel, &bound.func().files, spec.tuning.num_warps, || shown_values(kernel, spec))?;
    Ok(Options {
        num_warps: spec.tuning.num_warps.unwrap_or_else(|| largest.default_warps()),
        warps_by_tile: spec.tuning.num_warps.is_none().then(|| largest.elements()),
        num_stages: spec.tuning.num_stages.unwrap_or(defaults.num_stages),
        max_registers: spec.tuning.max_registers,
        checks,
        delays: spec.tuning.delays,
        dependent_launch: spec.tuning.dependent_launch,
        line_info: spec.tuning.line_info.unwrap_or_default().then(|| kernel.line_info()),
        ..defaults
    })
}

/// The backend's error as ours.
pub(super) fn refusal(kernel: &Definition, spec: &Spec<'_>, target: Target, error: CompileError) -> Error {
    let refusal = match error {
        CompileError::Refused(refusal) => refusal,
        CompileError::Internal(internal) => return Error::Internal { message: internal.to_string().into() },
        CompileError::Unavailable(reason) => {
            return Error::Unsupported {
                what: format!("compiling kernel `{}` for a GPU", kernel.name()).into(),
                reason: reason.into(),
            };
        }
        other => return Error::Llvm { message: other.to_string().into() },
    };
    if let (Some(needed), Some(limit)) = (refusal.needed, refusal.limit) {
        let hint = refusal.help.unwrap_or_else(|| "use smaller tiles, fewer stages or fewer warps".to_string());
        return Error::Resources {
            kernel: kernel.name().into(),
            what: format!("{} ({}:{}:{})", refusal.what, refusal.file, refusal.span.line, refusal.span.column).into(),
            needed,
            limit,
            hint: hint.into(),
        };
    }
    let values = shown_values(kernel, spec);
    let message = format!("this cannot be compiled for {}: {}", target.name(), refusal.what);
    let diagnostic = Diagnostic::new(message, refusal.file, refusal.span.line, refusal.span.column);
    let diagnostic = Diagnostic { width: u32::from(refusal.span.len).max(1), ..diagnostic };
    let diagnostic = refusal.help.into_iter().fold(diagnostic, Diagnostic::help);
    compile_error(kernel, vec![diagnostic], &values)
}

/// What the sites of a kernel do not say themselves.
#[derive(Clone)]
pub(super) struct SiteFacts {
    /// Which sites are of atomics, whose checks the code does not tell from those of stores.
    pub(super) atomics: Box<[bool]>,
    /// The names of the parameters.
    pub(super) names: Box<[Box<str>]>,
}

/// Makes errors of records that the GPU has written.
struct Reports {
    kernel: &'static Definition,
    sites: Vec<Site>,
    facts: SiteFacts,
}

fn names(func: &Func) -> Box<[Box<str>]> {
    func.params.iter().map(|param| param.name.as_str().into()).collect()
}

fn atomic_spans(func: &Func) -> Vec<Span> {
    let is_atomic = |op: &Op| matches!(op, Op::Memory(MemoryOp::AtomicRmw { .. } | MemoryOp::AtomicCas { .. }));
    func.ops.iter().filter(|operation| is_atomic(&operation.op)).map(|operation| operation.span).collect()
}

impl ReportSource for Reports {
    fn error(&self, record: &LaunchRecord) -> Error {
        let index = record.site as usize;
        let (site, files) = (self.sites.get(index), self.kernel.files());
        let name = |param: ParamId| self.facts.names.get(param.index()).map_or("", |name| name);
        let span = site.map_or(Span::UNKNOWN, |site| site.span);
        let at = FaultAt { kernel: self.kernel, files: &files, span, program_id: record.program_id };
        match site.map(|site| &site.kind) {
            Some(SiteKind::Bounds { param, store }) => {
                let access = match store {
                    true if self.facts.atomics.get(index) == Some(&true) => Access::Atomic,
                    true => Access::Store,
                    false => Access::Load,
                };
                at.out_of_bounds(name(*param), access, record.offset, record.len)
            }
            Some(SiteKind::Assert(message)) => at.assertion(message),
            // The record is written by the GPU, which an `unsafe` kernel beside it may have let
            // run wild; that something failed is certain.
            None => at.out_of_bounds("", Access::Load, record.offset, record.len),
        }
    }
}
