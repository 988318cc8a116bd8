//! What the code generator returns.

use std::time::Duration;

use kernel_core::ir::{DType, ParamId, Placed, Span};

use crate::check::LaunchConditions;
use crate::directive::with_min_programs;
use crate::report::Report;
use crate::target::Target;

/// One parameter of the compiled kernel, in the order of the launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AbiParam {
    /// The address of a buffer (u64).
    Buffer(ParamId),
    /// A scalar, by value; `bool` is one byte, 0 or 1.
    Scalar(ParamId, DType),
    /// The length of a buffer in elements (i64).
    Length(ParamId),
    /// The address (u64) of the launch's report record, as the GPU sees it.
    ReportSlot,
    /// The address (u64) of scratch memory.
    Scratch,
}

/// What a check guards.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SiteKind {
    /// An access to the buffer of that parameter.
    Bounds {
        /// The buffer.
        param: ParamId,
        /// Whether it is written.
        store: bool,
    },
    /// An `assert!` with that message.
    Assert(String),
}

/// What a report's site number (an index into [`Compiled::sites`]) means.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Site {
    /// Where it is in the source.
    pub span: Span,
    /// What is checked.
    pub kind: SiteKind,
}

/// How long the stages of one compilation took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timings {
    /// Bounds checks, target-independent passes, axis analysis.
    pub analyse: Duration,
    /// Layouts for every tile.
    pub place: Duration,
    /// LLVM IR for one thread.
    pub lower: Duration,
    /// LLVM's optimiser.
    pub optimise: Duration,
    /// PTX.
    pub emit: Duration,
}

impl Timings {
    /// All stages together.
    pub fn total(&self) -> Duration {
        self.analyse + self.place + self.lower + self.optimise + self.emit
    }
}

/// The text of a module before and after LLVM's optimiser.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LlvmIr {
    /// As lowered.
    pub lowered: String,
    /// As optimised.
    pub optimised: String,
}

/// A kernel compiled for one target.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The name of the kernel's entry in the PTX.
    pub entry: String,
    /// The PTX.
    pub ptx: String,
    /// What it was compiled for.
    pub target: Target,
    /// The kernel with layouts, as it was lowered.
    pub placed: Placed,
    /// The LLVM IR, if the options asked for it.
    pub llvm_ir: Option<LlvmIr>,
    /// Dynamic shared memory that each program needs, in bytes.
    pub shared_bytes: u32,
    /// Warps per program: the block has 32 times as many threads, in x.
    pub num_warps: u32,
    /// For how many programs per multiprocessor the PTX asks ptxas to make room; `None` if it decides alone.
    /// [`crate::with_min_programs`] changes it.
    pub min_programs: Option<u32>,
    /// The kernel's parameters, in order.
    pub abi: Vec<AbiParam>,
    /// What the site numbers of reports mean.
    pub sites: Vec<Site>,
    /// What a launch must meet to run this variant.
    pub conditions: LaunchConditions,
    /// What was decided, for a person to read.
    pub report: Report,
    /// How long it took.
    pub timings: Timings,
}

impl Compiled {
    /// Threads per program.
    pub fn threads(&self) -> u32 {
        self.num_warps * kernel_core::layout::WARP_SIZE
    }

    /// What to try, one after the other, as long as the PTX makes the driver spill registers: to ask it for no number
    /// of programs, as a kernel may need more registers than the wanted number leaves, and to ask for one, as ptxas
    /// gives up on large kernels and takes few registers. Gives what is asked for and the PTX.
    pub fn alternatives(&self) -> impl Iterator<Item = (Option<u32>, String)> {
        let others = [None, Some(1)].into_iter().filter(|other| *other != self.min_programs);
        others.map(|programs| (programs, with_min_programs(&self.ptx, programs)))
    }

    /// The text form of the kernel with layouts.
    pub fn placed_ir(&self) -> String {
        kernel_core::text::print(self.placed.func())
    }
}
