//! A compiled kernel to look at: every stage of its way, as text.

use super::chosen::LaunchVariant;
use kernel_core::backend::Timings;
use std::fmt;

/// The stages of a kernel that was compiled for a GPU.
#[derive(Clone, PartialEq, Eq)]
pub struct CompiledKernel {
    pub(super) name: &'static str,
    pub(super) tile_ir: &'static str,
    pub(super) bound_ir: String,
    pub(super) placed_ir: String,
    pub(super) lowered_ir: String,
    pub(super) llvm_ir: String,
    pub(super) ptx: String,
    pub(super) report: String,
    pub(super) timings: Timings,
    pub(super) variant: LaunchVariant,
}

impl CompiledKernel {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        self.name
    }

    /// The generic tile IR: shapes and dtypes are symbolic. This is what the program contains.
    pub fn tile_ir(&self) -> &str {
        self.tile_ir
    }

    /// The tile IR with constexprs, dtypes and what is known of the arguments put in.
    pub fn bound_ir(&self) -> &str {
        &self.bound_ir
    }

    /// The tile IR with checks and a layout for every tile.
    pub fn placed_ir(&self) -> &str {
        &self.placed_ir
    }

    /// The LLVM IR for one thread, as it was made from the placed IR.
    pub fn lowered_llvm_ir(&self) -> &str {
        &self.lowered_ir
    }

    /// The LLVM IR for one thread, after LLVM's optimiser.
    pub fn llvm_ir(&self) -> &str {
        &self.llvm_ir
    }

    /// The PTX that the driver is given.
    pub fn ptx(&self) -> &str {
        &self.ptx
    }

    /// What was decided and what it costs: launch options, shared memory, how many programs a
    /// multiprocessor holds at once, every access with how it is kept inside its buffer, every
    /// conversion between layouts with its bank conflicts; registers and spills too, if it was
    /// loaded on a GPU. And why: which launch conditions fail where every access is checked, what
    /// keeps accesses below 16 bytes, loads in loops from being fetched in an iteration before, and
    /// matrix products from going on while others begin.
    ///
    /// ```text
    /// kernel softmax for sm_90a: 8 warps, 64 bytes of shared memory, 2 barriers
    ///   40 registers per thread, no spills; ptxas was asked for room for 4 programs
    ///   occupancy: 6 programs per multiprocessor, 48 of 64 warps, limited by registers (by shared memory 202, threads 8, programs 32)
    ///   src/softmax.rs:11:15: load `x`: 2 x 16 bytes per thread (8 elements each), masked, decided at launch, layout #0
    ///   src/softmax.rs:13:5: store `out`: 2 x 16 bytes per thread (8 elements each), masked, decided at launch, layout #0
    ///   no conversions between layouts
    ///   layout #0: register: [1] [2] [4] [2048]; lane: [8] [16] [32] [64] [128]; warp: [256] [512] [1024] -> (dim0:4096)
    /// ```
    pub fn report(&self) -> &str {
        &self.report
    }

    /// Which variant of the kernel this is, and of a call with a grid, why a launch runs it.
    pub fn variant(&self) -> &LaunchVariant {
        &self.variant
    }

    /// How long the stages took.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }
}

impl fmt::Debug for CompiledKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompiledKernel({}, {} bytes of PTX)", self.name, self.ptx.len())
    }
}
