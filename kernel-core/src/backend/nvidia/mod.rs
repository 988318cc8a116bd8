//! Kernels for NVIDIA GPUs: what can be chosen, and PTX with what a launch must know of it.

mod abi;
mod header;
mod inline_ptx;
mod placement;

use std::fmt;

pub use abi::{AbiParam, MapSwizzle, TensorMap};
pub use header::with_min_programs;
pub use inline_ptx::{RefusedText, refused_text, text_marker};
pub use placement::{LaunchShape, Placement, Work};

use super::Checks;
use crate::target::WARP_SIZE;

/// Where the hardware's tensor copies move the blocks of descriptors, on targets that have them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum TensorCopies {
    /// Where a block feeds a matrix product, or is the result of one.
    #[default]
    NearProducts,
    /// Wherever the tensor's address, its strides and its blocks allow it.
    Always,
    /// Nowhere.
    Never,
}

/// How to compile a kernel. Part of the cache key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Options {
    /// Warps per program: a power of two up to 32.
    pub num_warps: u32,
    /// The elements of the largest tile, where that has decided how many warps there are: for the report.
    pub warps_by_tile: Option<i64>,
    /// Depth of software pipelines.
    pub num_stages: u32,
    /// The most registers of a thread; without it ptxas decides, and the number of programs that it is asked to make
    /// room for.
    pub max_registers: Option<u32>,
    /// Which bounds checks the kernel has.
    pub checks: Checks,
    /// Where tensor copies are used.
    pub tensor_copies: TensorCopies,
    /// Whether launches may begin before those before them in the stream have ended: the kernel then waits before its
    /// first access to memory. Targets that do not have this leave it out.
    pub dependent_launch: bool,
    /// Names of optimisation passes to leave out (see `kernel_codegen::optional_passes`).
    pub disabled_passes: Vec<String>,
    /// Whether to keep the texts of the stages, those of the LLVM IR among them.
    pub keep_llvm_ir: bool,
    /// The seed of the pass `delays`, which puts random delays around every asynchronous operation, arrival and wait, for
    /// tests of such kernels: results must not depend on them. Without a seed the pass does not run.
    pub delays: Option<u64>,
    /// Whether the PTX says which lines of the source it is from, and what of them the kernel itself does not say.
    pub line_info: Option<LineInfo>,
}

/// What line information says besides places.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LineInfo {
    /// The names of files as tools shall find them: the kernel's own, then the others of its
    /// [`Files`](crate::ir::Files), whose names stand for those that are missing.
    pub files: Vec<String>,
    /// The names of the functions that were inlined, by call; the places of calls stand for those that are missing.
    pub functions: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            num_warps: 4,
            warps_by_tile: None,
            num_stages: 3,
            max_registers: None,
            checks: Checks::default(),
            tensor_copies: TensorCopies::default(),
            dependent_launch: false,
            disabled_passes: Vec::new(),
            keep_llvm_ir: false,
            delays: None,
            line_info: None,
        }
    }
}

impl Options {
    /// Whether the pass of that name runs.
    pub fn runs(&self, pass: &str) -> bool {
        !self.disabled_passes.iter().any(|name| name == pass)
    }
}

/// A kernel as PTX.
#[derive(Debug)]
pub struct Ptx {
    /// The name of the kernel's entry.
    pub entry: String,
    /// The PTX.
    pub text: String,
    /// Dynamic shared memory that each program needs, in bytes.
    pub shared_bytes: u32,
    /// Warps per program, with those that only fetch: the block has 32 times as many threads, in x.
    pub num_warps: u32,
    /// For how many programs per multiprocessor the PTX asks ptxas to make room; `None` if it decides alone.
    /// [`with_min_programs`] changes it.
    pub min_programs: Option<u32>,
    /// Whether the PTX itself says how many registers threads have: the options limit them, or groups of warps change
    /// them, for which they need a multiprocessor of their own.
    pub sets_registers: bool,
    /// Whether a launch may begin before those before it in the stream have ended: the kernel waits for them.
    pub dependent_launch: bool,
    /// The kernel's parameters, in order.
    pub abi: Vec<AbiParam>,
    /// What was decided.
    pub report: Box<dyn Explain>,
}

impl Ptx {
    /// Threads per program.
    pub fn threads(&self) -> u32 {
        self.num_warps * WARP_SIZE
    }

    /// What to try, one after the other, as long as the PTX makes the driver spill registers: to ask it for no number
    /// of programs, as a kernel may need more registers than the wanted number leaves, and to ask for one, as ptxas
    /// gives up on large kernels and takes few registers. Gives what is asked for and the PTX.
    pub fn alternatives(&self) -> impl Iterator<Item = (Option<u32>, String)> {
        alternatives(&self.text, self.min_programs, self.sets_registers)
    }
}

/// [`Ptx::alternatives`] of a text that asks for room for so many programs.
pub fn alternatives(
    ptx: &str,
    min_programs: Option<u32>,
    sets_registers: bool,
) -> impl Iterator<Item = (Option<u32>, String)> {
    let others =
        [None, Some(1)].into_iter().filter(move |_| !sets_registers).filter(move |other| *other != min_programs);
    others.map(move |programs| (programs, with_min_programs(ptx, programs)))
}

/// What the code generator decided about a kernel and what it costs, for a person to read.
pub trait Explain: fmt::Debug + Send + Sync {
    /// The report, with what the driver's compiler made of the kernel if that is known.
    fn report(&self, usage: Option<&Usage>) -> String;
}

/// What the driver's compiler made of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of local memory per thread: registers that were spilled.
    pub local_bytes: u32,
    /// Bytes of shared memory per program, besides what the launch gives.
    pub static_shared_bytes: u32,
    /// For how many programs per multiprocessor the code that was kept makes room, if it was asked to.
    pub min_programs: Option<u32>,
    /// What the compiler said.
    pub log: String,
}
