//! What the code generator returns.

use std::time::Duration;

use kernel_core::ir::{DType, ParamId, Placed, Span};

use crate::analysis::warp_groups::sets_registers;
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
    /// A tensor as the hardware's tensor copies read it: 128 bytes, aligned to 64.
    TensorMap(TensorMap),
    /// The elements of a tensor along a dimension (i64), the outermost being 0.
    Shape(ParamId, u8),
    /// How far neighbours along a dimension of a tensor are apart (i64), in elements.
    Stride(ParamId, u8),
}

/// The most dimensions of a tensor.
const MAX_RANK: usize = 5;

/// How shared memory holds a copied box: units of 16 bytes in each line of so many bytes are swapped by the number of
/// the line, so that accesses along columns meet no bank twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MapSwizzle {
    /// As it is.
    None,
    /// Lines of 32 bytes.
    Bytes32,
    /// Lines of 64 bytes.
    Bytes64,
    /// Lines of 128 bytes.
    Bytes128,
}

/// Which boxes of a tensor the kernel copies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TensorMap {
    /// The tensor.
    pub param: ParamId,
    rank: u8,
    /// The elements of a box, outermost dimension first.
    shape: [u16; MAX_RANK],
    /// How shared memory holds it.
    pub swizzle: MapSwizzle,
}

impl TensorMap {
    /// Boxes of 1 to 5 dimensions with up to 256 elements each; `None` if they are others.
    pub fn new(param: ParamId, shape: &[i64], swizzle: MapSwizzle) -> Option<TensorMap> {
        let mut sizes = [1; MAX_RANK];
        if shape.is_empty() || shape.len() > MAX_RANK {
            return None;
        }
        for (to, size) in sizes.iter_mut().zip(shape) {
            *to = u16::try_from(*size).ok().filter(|size| (1..=256).contains(size))?;
        }
        Some(TensorMap { param, rank: shape.len() as u8, shape: sizes, swizzle })
    }

    /// The elements of a box along each dimension, outermost first.
    pub fn shape(&self) -> &[u16] {
        &self.shape[..usize::from(self.rank)]
    }

    /// Whether these are the same boxes, of whatever tensor.
    pub fn is_like(&self, other: &TensorMap) -> bool {
        self.rank == other.rank && self.shape == other.shape && self.swizzle == other.swizzle
    }
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
    /// Warps per program, with those that only fetch: the block has 32 times as many threads, in x.
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
        // Groups of warps that change their numbers of registers need a multiprocessor of their own.
        let fixed = sets_registers(self.placed.func());
        let others = [None, Some(1)].into_iter().filter(move |_| !fixed).filter(|other| *other != self.min_programs);
        others.map(|programs| (programs, with_min_programs(&self.ptx, programs)))
    }

    /// The text form of the kernel with layouts.
    pub fn placed_ir(&self) -> String {
        kernel_core::text::print(self.placed.func())
    }
}
