//! What the code generator decided, for a person to read.

use std::fmt;

use kernel_core::ir::{Func, LayoutId, ParamId, Span};

use crate::check::{AccessKind, Class};

/// One access to global memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessReport {
    /// Where it is.
    pub span: Span,
    /// What it does.
    pub kind: AccessKind,
    /// The buffer.
    pub param: ParamId,
    /// How it is kept inside the buffer, if that was asked.
    pub class: Option<Class>,
    /// Elements per instruction of a thread.
    pub vector: u32,
    /// Bytes per instruction of a thread.
    pub bytes: u32,
    /// Instructions of a thread.
    pub instructions: u32,
    /// Whether lanes can be masked off.
    pub masked: bool,
    /// The layout of the tile; `None` for a scalar.
    pub layout: Option<LayoutId>,
}

/// How values get from one layout to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConversionKind {
    /// Within each thread.
    Registers,
    /// Between the lanes of a warp, with that many shuffles per thread.
    Shuffles(u32),
    /// Through shared memory.
    Shared {
        /// Bytes of shared memory.
        bytes: u32,
        /// Extra wavefronts per store because of bank conflicts.
        store_conflicts: u32,
        /// Extra wavefronts per load because of bank conflicts.
        load_conflicts: u32,
    },
}

/// One conversion between layouts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConversionReport {
    /// The operation whose result is converted.
    pub span: Span,
    /// From which layout.
    pub from: LayoutId,
    /// To which layout.
    pub to: LayoutId,
    /// How.
    pub kind: ConversionKind,
}

/// What was decided about a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The kernel's name.
    pub kernel: String,
    /// The source file.
    pub file: String,
    /// The target's name.
    pub target: String,
    /// Warps per program.
    pub num_warps: u32,
    /// Bytes of shared memory per program.
    pub shared_bytes: u32,
    /// Barriers of all threads in the code, counted once per place.
    pub barriers: u32,
    /// Every access to global memory, in program order.
    pub accesses: Vec<AccessReport>,
    /// Every conversion between layouts.
    pub conversions: Vec<ConversionReport>,
    /// Names of the parameters.
    pub params: Vec<String>,
    /// The layouts, by number.
    pub layouts: Vec<String>,
}

impl Report {
    /// An empty report of a placed kernel.
    pub(crate) fn new(func: &Func, target: &str, num_warps: u32) -> Report {
        Report {
            kernel: func.name.clone(),
            file: func.file.clone(),
            target: target.to_string(),
            num_warps,
            params: func.params.iter().map(|param| param.name.clone()).collect(),
            layouts: func.layouts.iter().map(ToString::to_string).collect(),
            ..Report::default()
        }
    }

    fn place(&self, span: Span) -> String {
        if span.line == 0 { self.file.clone() } else { format!("{}:{}:{}", self.file, span.line, span.column) }
    }
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AccessKind::Load => "load",
            AccessKind::Store => "store",
            AccessKind::Atomic => "atomic",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "kernel {} for {}: {} warps, {} bytes of shared memory, {} barriers",
            self.kernel, self.target, self.num_warps, self.shared_bytes, self.barriers
        )?;
        for access in &self.accesses {
            let param = self.params.get(access.param.index()).map_or("?", String::as_str);
            write!(
                f,
                "  {}: {} `{param}`: {} x {} bytes per thread",
                self.place(access.span),
                access.kind,
                access.instructions,
                access.bytes
            )?;
            if access.vector > 1 {
                write!(f, " ({} elements each)", access.vector)?;
            }
            if access.masked {
                write!(f, ", masked")?;
            }
            if let Some(class) = access.class {
                write!(f, ", {}", class.name())?;
            }
            match access.layout {
                Some(layout) => writeln!(f, ", layout #{}", layout.index())?,
                None => writeln!(f, ", scalar")?,
            }
        }
        for conversion in &self.conversions {
            write!(
                f,
                "  {}: conversion from #{} to #{}",
                self.place(conversion.span),
                conversion.from.index(),
                conversion.to.index()
            )?;
            match &conversion.kind {
                ConversionKind::Registers => writeln!(f, " in registers")?,
                ConversionKind::Shuffles(count) => writeln!(f, " with {count} shuffles")?,
                ConversionKind::Shared { bytes, store_conflicts, load_conflicts } => writeln!(
                    f,
                    " through {bytes} bytes of shared memory, extra wavefronts {store_conflicts} per store and \
                     {load_conflicts} per load"
                )?,
            }
        }
        for (index, layout) in self.layouts.iter().enumerate() {
            writeln!(f, "  layout #{index}: {layout}")?;
        }
        Ok(())
    }
}
