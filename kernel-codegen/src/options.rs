//! What a caller may choose about how a kernel is compiled.

use crate::check::Checks;

/// Where the hardware's tensor copies move the blocks of descriptors, on targets that have them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
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
pub struct Options {
    /// Warps per program: a power of two up to 32.
    pub num_warps: u32,
    /// Depth of software pipelines.
    pub num_stages: u32,
    /// Which bounds checks the kernel has.
    pub checks: Checks,
    /// Where tensor copies are used.
    pub tensor_copies: TensorCopies,
    /// Names of optimisation passes to leave out (see [`crate::optional_passes`]).
    pub disabled_passes: Vec<String>,
    /// Whether to keep the text of the LLVM IR, before and after optimisation.
    pub keep_llvm_ir: bool,
    /// A seed of random delays around every asynchronous operation, arrival and wait, for tests of such kernels: results
    /// must not depend on them. `None` has no delays.
    pub jitter: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            num_warps: 4,
            num_stages: 3,
            checks: Checks::default(),
            tensor_copies: TensorCopies::default(),
            disabled_passes: Vec::new(),
            keep_llvm_ir: false,
            jitter: None,
        }
    }
}

impl Options {
    /// Whether the pass of that name runs.
    pub(crate) fn runs(&self, pass: &str) -> bool {
        !self.disabled_passes.iter().any(|name| name == pass)
    }
}
