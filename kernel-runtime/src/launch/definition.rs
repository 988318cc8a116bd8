//! What a kernel is, whatever it is run on: its tile IR as `#[kernel]` embedded it.

use super::lines;
use super::spec::Tuning;
use crate::error::{Error, Result};
use crate::profile::Place;
use crate::settings;
use kernel_archive::Places;
use kernel_core::backend::nvidia::LineInfo;
use kernel_core::diag::Diagnostic;
use kernel_core::ir::{CallId, ConstOrigin, ConstParam, FileId, Files, Func, Generic, Span};
use kernel_core::text;
use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What `#[kernel]` embeds in the program.
#[derive(Debug, Clone, Copy)]
pub struct KernelSource {
    /// The kernel's name.
    pub name: &'static str,
    /// The module it is in.
    pub module: &'static str,
    /// The source files: the kernel's own, then those of functions that were inlined into it.
    pub files: &'static [SourceFile],
    /// The text form of the generic tile IR.
    pub ir: &'static str,
    /// `#[kernel(num_warps = ..)]`.
    pub num_warps: Option<u32>,
    /// `#[kernel(num_stages = ..)]`.
    pub num_stages: Option<u32>,
    /// `#[kernel(max_registers = ..)]`.
    pub max_registers: Option<u32>,
}

/// A source file of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct SourceFile {
    /// Its name, as rustc and the tile IR give it.
    pub name: &'static str,
    /// Lines that the kernel is made from with their numbers, for error messages.
    pub lines: &'static [(u32, &'static str)],
}

impl KernelSource {
    /// The file that the kernel itself is in.
    pub fn file(&self) -> &'static str {
        self.files.first().map_or("", |file| file.name)
    }

    /// The options of the kernel's attribute.
    pub(super) fn tuning(&self) -> Tuning {
        let KernelSource { num_warps, num_stages, max_registers, .. } = *self;
        Tuning { num_warps, num_stages, max_registers, ..Tuning::default() }
    }
}

/// A kernel without its variants.
pub(super) struct Definition {
    source: KernelSource,
    generic: OnceLock<Result<Generic>>,
    places: OnceLock<Places<'static>>,
    compilations: AtomicUsize,
}

impl Definition {
    /// A kernel that has not been looked at yet.
    pub(super) const fn new(source: KernelSource) -> Self {
        Definition { source, generic: OnceLock::new(), places: OnceLock::new(), compilations: AtomicUsize::new(0) }
    }

    /// What `#[kernel]` embedded.
    pub(super) fn source(&self) -> &KernelSource {
        &self.source
    }

    /// The kernel's name.
    pub(super) fn name(&self) -> &'static str {
        self.source.name
    }

    /// The places of the tile IR, and its hash without them.
    pub(super) fn places(&self) -> &Places<'static> {
        self.places.get_or_init(|| Places::of(self.source.ir))
    }

    /// The source files of the kernel, and the calls of functions that were inlined.
    pub(super) fn files(&self) -> Cow<'_, Files> {
        match self.generic() {
            Ok(generic) => Cow::Borrowed(&generic.func().files),
            Err(_) => Cow::Owned(Files::new(self.source.file())),
        }
    }

    /// Where it stands in the source: the line of its first parameter, else of its first operation.
    pub(super) fn place(&self) -> Place {
        let first = |func: &Func| {
            let is_own = |span: &&Span| span.line > 0 && span.file == FileId::OWN && span.call == CallId::NONE;
            let operations = func.ops.iter().map(|operation| &operation.span).filter(is_own);
            let params = func.params.iter().map(|param| &param.span).filter(is_own);
            params.map(|span| span.line).min().or_else(|| operations.map(|span| span.line).min())
        };
        let line = self.generic().ok().and_then(|generic| first(generic.func())).unwrap_or(0);
        Place { file: self.source.file(), line }
    }

    /// The options of a call with what it leaves open: what the kernel's attribute says, then the environment.
    pub(super) fn tuning(&self, call: Tuning) -> Result<Tuning> {
        let line_info = Some(call.line_info.map_or_else(settings::line_info, Ok)?);
        Tuning { line_info, ..call.or(self.source.tuning()) }.check()
    }

    /// What line information says of the kernel, besides places.
    pub(super) fn line_info(&self) -> LineInfo {
        let files = self.source.files.iter().map(|file| lines::path(file.name)).collect();
        let functions = self.files().calls().iter().map(|call| lines::called(&self.source, *call)).collect();
        LineInfo { files, functions }
    }

    /// How many variants have been compiled so far, or taken from an archive.
    pub(super) fn compilations(&self) -> usize {
        self.compilations.load(Ordering::Relaxed)
    }

    pub(super) fn count_compilation(&self) {
        self.compilations.fetch_add(1, Ordering::Relaxed);
    }

    /// The generic tile IR, read on first use. Binding verifies it.
    pub(super) fn generic(&self) -> Result<&Generic> {
        self.generic.get_or_init(|| self.parse()).as_ref().map_err(Error::clone)
    }

    /// Whether the kernel's code depends on the number of warps.
    pub(super) fn asks_for_warps(&self) -> bool {
        let asks = |param: &ConstParam| param.origin == ConstOrigin::NumWarps;
        self.generic().is_ok_and(|generic| generic.func().const_params.iter().any(asks))
    }

    fn parse(&self) -> Result<Generic> {
        let invalid = |reason: String| {
            Diagnostic::new(format!("the tile IR of kernel `{}` cannot be read: {reason}", self.name()), "", 0, 0).help(
                "`tilewright` and `tilewright-macros` must be of the same version; run `cargo clean` and build again",
            )
        };
        let mut func = text::parse(self.source.ir).map_err(|error| invalid(error.to_string()))?;
        // The macro does not know what rustc calls the file, so the text leaves it out.
        func.files.set_own(self.source.file());
        let generic = Generic::new(func).map_err(|func| invalid(format!("it is at level {:?}", func.level)))?;
        Ok(generic)
    }

    /// The diagnostic with the line that it is about, if that is known.
    pub(super) fn with_source(&self, diagnostic: Diagnostic) -> Diagnostic {
        let file = self.source.files.iter().find(|file| *file.name == *diagnostic.file);
        let lines = file.map_or(&[] as &[_], |file| file.lines);
        match lines.iter().find(|(line, _)| *line == diagnostic.line) {
            Some((_, text)) => {
                let width = diagnostic.width;
                diagnostic.snippet(*text, width)
            }
            None => diagnostic,
        }
    }
}

/// The names of the parameters that a caller passes, hidden ones excluded.
pub(super) fn user_params(func: &Func) -> impl Iterator<Item = &kernel_core::ir::Param> {
    func.params.iter().filter(|param| !param.kind.is_hidden())
}
