//! What a caller may choose about how a kernel is compiled.

use crate::check::Checks;

/// The most warps of one program: 1024 threads.
pub const MAX_WARPS: u32 = 32;

/// How to compile a kernel. Part of the cache key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// Warps per program: a power of two up to 32.
    pub num_warps: u32,
    /// Depth of software pipelines.
    pub num_stages: u32,
    /// Which bounds checks the kernel has.
    pub checks: Checks,
    /// Names of optimisation passes to leave out (see [`crate::PASSES`]).
    pub disabled_passes: Vec<String>,
    /// Whether to keep the text of the LLVM IR, before and after optimisation.
    pub keep_llvm_ir: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            num_warps: 4,
            num_stages: 3,
            checks: Checks::default(),
            disabled_passes: Vec::new(),
            keep_llvm_ir: false,
        }
    }
}

impl Options {
    /// Whether the pass of that name runs.
    pub(crate) fn runs(&self, pass: &str) -> bool {
        !self.disabled_passes.iter().any(|name| name == pass)
    }
}
