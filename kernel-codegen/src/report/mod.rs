//! What the code generator decided and what it costs, for a person to read.
//!
//! ```
//! use kernel_codegen::{Options, Target, Usage, compile};
//! use kernel_core::ir::Bound;
//! let text = r#"
//! kernel sum "sum.rs" unsafe bound {
//!   param %x x: ptr f32 {div = 16}
//!   param %out out: ptr_mut f32 {div = 16}
//!   %i: i32[1024] = arange {lo = 0, hi = 1024}
//!   %xs: *x[1024] = splat %x
//!   %p: *x[1024] = add_ptr %xs, %i
//!   %a: f32[1024] = load %p
//!   %sum: f32 = reduce %a {axis = 0} (%l: f32, %r: f32) {
//!     %s: f32 = add contract %l, %r
//!     yield %s
//!   }
//!   store %out, %sum
//!   return
//! }"#;
//! let kernel = Bound::new(kernel_core::text::parse(text).expect("it parses")).expect("it is bound");
//! # if kernel_llvm::load().is_err() { return }
//! let mut report = compile(&kernel, &Target::sm_90a(), &Options::default()).expect("it compiles").report();
//! // The driver fills these in when it loads the kernel.
//! report.usage = Some(Usage { registers: 22, min_programs: Some(8), ..Usage::default() });
//! let expected = "\
//! kernel sum for sm_90a: 4 warps, 16 bytes of shared memory, 1 barrier
//!   22 registers per thread, no spills; ptxas was asked for room for 8 programs
//!   occupancy: 16 programs per multiprocessor, 64 of 64 warps, limited by threads (by registers 21, shared memory 202, programs 32)
//!   sum.rs: load `x`: 2 x 16 bytes per thread (4 elements each), layout #0
//!   sum.rs: store `out`: 1 x 4 bytes per thread, scalar
//!   no conversions between layouts
//! ";
//! assert!(report.to_string().starts_with(expected), "{report}");
//! ```
//!
//! Registers and spills are the driver's to choose. Before it has, the report says so, and the occupancy is what
//! everything else allows.

mod collect;
mod reasons;
mod shared;

use std::fmt;

use kernel_core::backend::nvidia::Usage;
use kernel_core::ir::{Files, LayoutId, ParamId, Span};

pub(crate) use collect::{Notes, Reported};
pub use reasons::{Narrow, StayReport, WaitReport};
pub use shared::SharedReport;

use crate::checks::{AccessKind, Class, Promise};
use crate::occupancy::{Need, Occupancy};
use kernel_core::target::Target;

/// Who moves the elements of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mover {
    /// Each thread its own.
    Threads,
    /// A tensor copy, which one thread asks for.
    TensorCopy,
}

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
    /// Who moves the elements; of a tensor copy, what follows is of boxes and of the thread that asks.
    pub mover: Mover,
    /// Elements per instruction of a thread.
    pub vector: u32,
    /// Bytes per instruction of a thread.
    pub bytes: u32,
    /// What keeps an instruction from accessing 16 bytes, if anything does.
    pub narrow: Option<Narrow>,
    /// Instructions of a thread.
    pub instructions: u32,
    /// Whether lanes can be masked off.
    pub masked: bool,
    /// The layout of the tile; `None` for a scalar.
    pub layout: Option<LayoutId>,
}

/// What became of a loop whose loads could run ahead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoopReport {
    /// The loop.
    pub span: Span,
    /// What was done, or why nothing was.
    pub what: String,
}

/// What became of a tensor that the kernel makes itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorReport {
    /// Where it is made.
    pub span: Span,
    /// Its name.
    pub name: String,
    /// Why each program accesses it through pointers; `None` if the host makes it at each launch.
    pub by_pointers: Option<String>,
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The kernel's name.
    pub kernel: String,
    /// The source files.
    pub files: Files,
    /// The target.
    pub target: Target,
    /// Warps per program.
    pub num_warps: u32,
    /// Bytes of shared memory per program.
    pub shared_bytes: u32,
    /// Barriers of all threads in the code, counted once per place.
    pub barriers: u32,
    /// For how many programs per multiprocessor ptxas is asked to make room, if it is.
    pub min_programs: Option<u32>,
    /// The most registers of a thread, if that was asked for.
    pub max_registers: Option<u32>,
    /// The elements of the largest tile, if that has decided how many warps there are, as nobody else has.
    pub warps_by_tile: Option<i64>,
    /// What the kernel needs, if it is asked differently for that.
    pub need: Option<Need>,
    /// Registers and spills, once a driver has compiled the kernel.
    pub usage: Option<Usage>,
    /// Every access to global memory, in program order.
    pub accesses: Vec<AccessReport>,
    /// Every hint and assertion of a safe kernel, and why it holds.
    pub promises: Vec<Promise>,
    /// Every access of threads to tiles in shared memory, in program order. The text does not have them.
    pub shared: Vec<SharedReport>,
    /// Every conversion between layouts.
    pub conversions: Vec<ConversionReport>,
    /// The loops that asked to be pipelined, or that multiply matrices.
    pub loops: Vec<LoopReport>,
    /// The tensors that the kernel makes itself.
    pub tensors: Vec<TensorReport>,
    /// Loads of tiles in loops that are not fetched in an iteration before, and why.
    pub stays: Vec<StayReport>,
    /// Matrix products that are waited for where they stand, and why.
    pub waits: Vec<WaitReport>,
    /// Names of the parameters.
    pub params: Vec<String>,
    /// The layouts, by number.
    pub layouts: Vec<String>,
}

impl Report {
    /// How many programs a multiprocessor of the target holds at once. As long as the registers are not known, it is
    /// what the other resources allow.
    pub fn occupancy(&self) -> Occupancy {
        let more = self.usage.as_ref().map_or(0, |usage| usage.static_shared_bytes);
        let registers = self.usage.as_ref().map(|usage| usage.registers);
        Occupancy::new(self.target, self.num_warps, self.shared_bytes + more, registers)
    }

    fn place(&self, span: Span) -> String {
        self.files.place(span)
    }

    /// How an access is kept inside its buffer, in words.
    pub fn kept_inside(&self, class: Class) -> String {
        let name = |param: ParamId| self.params.get(param.index()).map_or("?", String::as_str).to_string();
        class.words(&name, &|span| self.place(span))
    }

    fn write_resources(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = |programs: u32| format!("for room for {programs} program{}", if programs == 1 { "" } else { "s" });
        match &self.usage {
            Some(usage) => {
                write!(f, "  {} registers per thread, ", usage.registers)?;
                match usage.local_bytes {
                    0 => write!(f, "no spills")?,
                    bytes => write!(f, "{bytes} bytes of them spilled to memory")?,
                }
                match (self.min_programs, usage.min_programs) {
                    (None, None) => writeln!(f)?,
                    (_, Some(kept)) => writeln!(f, "; ptxas was asked {}", asked(kept))?,
                    (Some(first), None) => writeln!(f, "; asked {}, ptxas spilled more", asked(first))?,
                }
            }
            None => {
                write!(f, "  registers per thread: not known before a GPU has loaded the kernel")?;
                match self.min_programs {
                    Some(programs) => writeln!(f, "; ptxas is asked {}", asked(programs))?,
                    None => writeln!(f)?,
                }
            }
        }
        if let Some(most) = self.max_registers {
            writeln!(f, "  at most {most} registers per thread, as `max_registers` says")?;
        }
        self.write_need(f)?;
        writeln!(f, "  occupancy: {}", self.occupancy())
    }

    /// Why ptxas is asked for this room.
    fn write_need(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(Need { registers, span, instead_of }) = self.need else { return Ok(()) };
        write!(f, "  {registers} registers are alive at once at {}: ", self.place(span))?;
        match instead_of {
            Some(programs) => writeln!(f, "with room for {programs} programs, ptxas would spill some"),
            None => writeln!(f, "left alone, ptxas might take few and spill the others"),
        }
    }

    fn write_access(&self, f: &mut fmt::Formatter<'_>, access: &AccessReport) -> fmt::Result {
        let param = self.params.get(access.param.index()).map_or("?", String::as_str);
        let place = self.place(access.span);
        write!(f, "  {place}: {} `{param}`: {} x {} bytes", access.kind, access.instructions, access.bytes)?;
        match access.mover {
            Mover::Threads => write!(f, " per thread")?,
            Mover::TensorCopy => write!(f, " by tensor copy")?,
        }
        if access.vector > 1 {
            write!(f, " ({} elements each)", access.vector)?;
        }
        if access.masked {
            write!(f, ", masked")?;
        }
        if let Some(class) = access.class {
            write!(f, ", {}", self.kept_inside(class))?;
        }
        match access.layout {
            Some(layout) => writeln!(f, ", layout #{}", layout.index()),
            None if access.mover == Mover::TensorCopy => writeln!(f),
            None => writeln!(f, ", scalar"),
        }
    }

    /// What is not as fast as it could be, and why.
    fn write_reasons(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |param: ParamId| self.params.get(param.index()).map_or("?", String::as_str);
        for access in &self.accesses {
            let Some(why) = access.narrow else { continue };
            let (place, param) = (self.place(access.span), name(access.param));
            writeln!(f, "  {place}: `{param}` is accessed by {} bytes at once, not 16: {why}", access.bytes)?;
        }
        for StayReport { span, param, why } in &self.stays {
            writeln!(f, "  {}: `{}` is not fetched ahead: {why}", self.place(*span), name(*param))?;
        }
        for WaitReport { span, why } in &self.waits {
            writeln!(f, "  {}: the product is waited for at once: {why}", self.place(*span))?;
        }
        Ok(())
    }

    fn write_conversion(&self, f: &mut fmt::Formatter<'_>, conversion: &ConversionReport) -> fmt::Result {
        let (from, to) = (conversion.from.index(), conversion.to.index());
        write!(f, "  {}: conversion from #{from} to #{to}", self.place(conversion.span))?;
        match &conversion.kind {
            ConversionKind::Registers => writeln!(f, " in registers"),
            ConversionKind::Shuffles(count) => writeln!(f, " with {count} shuffles"),
            ConversionKind::Shared { bytes, store_conflicts, load_conflicts } => {
                write!(f, " through {bytes} bytes of shared memory, ")?;
                match (store_conflicts, load_conflicts) {
                    (0, 0) => writeln!(f, "without bank conflicts"),
                    _ => writeln!(
                        f,
                        "bank conflicts: {store_conflicts} extra wavefronts per store, {load_conflicts} per load"
                    ),
                }
            }
        }
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
        let (target, warps) = (self.target.name(), self.num_warps);
        write!(f, "kernel {} for {target}: {warps} warp{}", self.kernel, if warps == 1 { "" } else { "s" })?;
        let barriers = if self.barriers == 1 { "barrier" } else { "barriers" };
        writeln!(f, ", {} bytes of shared memory, {} {barriers}", self.shared_bytes, self.barriers)?;
        if let Some(elements) = self.warps_by_tile {
            writeln!(f, "  warps: the largest tile, of {elements} elements, decides, as nobody has said how many")?;
        }
        self.write_resources(f)?;
        for access in &self.accesses {
            self.write_access(f, access)?;
        }
        self.write_reasons(f)?;
        for Promise { span, what, kept, .. } in &self.promises {
            writeln!(f, "  {}: {what}, {}", self.place(*span), kept.name())?;
        }
        for TensorReport { span, name, by_pointers } in &self.tensors {
            write!(f, "  {}: tensor `{name}`: ", self.place(*span))?;
            match by_pointers {
                Some(why) => writeln!(f, "accessed through pointers: {why}")?,
                None => writeln!(f, "made by the host at each launch")?,
            }
        }
        for one in &self.loops {
            writeln!(f, "  {}: loop {}", self.place(one.span), one.what)?;
        }
        if self.conversions.is_empty() {
            writeln!(f, "  no conversions between layouts")?;
        }
        for conversion in &self.conversions {
            self.write_conversion(f, conversion)?;
        }
        for (index, layout) in self.layouts.iter().enumerate() {
            writeln!(f, "  layout #{index}: {layout}")?;
        }
        let log = self.usage.iter().flat_map(|usage| usage.log.lines());
        for line in log.map(str::trim_end).filter(|line| !line.is_empty()) {
            writeln!(f, "  driver: {line}")?;
        }
        Ok(())
    }
}
