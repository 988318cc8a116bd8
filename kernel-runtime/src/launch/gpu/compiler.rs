//! The backend that compiles for GPUs, which some builds lack.
//!
//! Everything else of the runtime is the same in all builds: where there is no code generator, compiling is refused, and so
//! nothing is loaded or launched.

#[cfg(jit)]
pub(super) use kernel_codegen::{Nvptx as Compiler, estimate};
#[cfg(not(jit))]
pub(super) use missing::{Missing as Compiler, estimate};

/// Why there is no code generator in this build, and what to do.
pub(crate) const MISSING: Option<&str> = if cfg!(jit) {
    None
} else if cfg!(feature = "jit") {
    Some(
        "the compiler loads the LLVM of the Rust toolchain, which works on x86-64 and aarch64 Linux only; here, build with \
         the feature `link-llvm` of `tilewright` and an installed LLVM 22, or run on `Device::cpu()`",
    )
} else {
    Some(
        "this program was built without the code generator; turn on the feature `jit` of `tilewright`, or run on \
         `Device::cpu()`",
    )
};

#[cfg(not(jit))]
mod missing {
    use kernel_core::backend::nvidia::{LaunchShape, Options, Placement, Ptx};
    use kernel_core::backend::{Artifact, Backend, CompileError};
    use kernel_core::ir::Bound;
    use kernel_core::target::Target;

    /// Refuses to compile.
    pub(in super::super) struct Missing;

    impl Backend for Missing {
        type Target = Target;
        type Options = Options;
        type Code = Ptx;

        fn compile(&self, _: &Bound, _: Target, _: &Options) -> Result<Artifact<Ptx>, CompileError> {
            Err(CompileError::Unavailable(super::MISSING.unwrap_or_default().to_string()))
        }
    }

    /// Refuses too.
    pub(in super::super) fn estimate(
        _: &Bound,
        _: Target,
        _: &Options,
        _: &LaunchShape,
    ) -> Result<Placement, CompileError> {
        Err(CompileError::Unavailable(super::MISSING.unwrap_or_default().to_string()))
    }
}
