//! The backend that compiles for GPUs, which some builds lack.
//!
//! Everything else of the runtime is the same in all builds: where there is no code generator, compiling is refused, and so
//! nothing is loaded or launched.

#[cfg(jit)]
pub(super) use kernel_codegen::Nvptx as Compiler;
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
        "this program was built without the code generator; turn on the feature `jit` of `tilewright`, embed an archive of \
         compiled kernels (`tilewright::embed_archive!`), or run on `Device::cpu()`",
    )
};

/// What a kernel takes, and costs at a launch, by the code generator's own estimate.
#[cfg(jit)]
pub(super) fn estimate(
    kernel: &kernel_core::ir::Bound,
    target: kernel_core::target::Target,
    options: &kernel_core::backend::nvidia::Options,
    launch: &kernel_core::backend::nvidia::LaunchShape,
) -> Result<kernel_core::backend::nvidia::Placement, kernel_core::backend::CompileError> {
    Ok(kernel_codegen::estimate(kernel, target, options, launch)?)
}

/// What tells the compiler of this build, with its LLVM, from others; `None` if there is none, or that cannot be said
/// without loading LLVM. Asked once, before LLVM is loaded, so that it is the LLVM that will be.
#[cfg(jit)]
pub(super) fn fingerprint() -> Option<&'static str> {
    static FOUND: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let find = || Some(format!("{}, {}", env!("TILEWRIGHT_COMPILER"), kernel_llvm::fingerprint()?));
    FOUND.get_or_init(find).as_deref()
}

/// What tells the compiler of this process from others as well as can be said; the runtime's own name where there is none.
pub(crate) fn compiler_name() -> &'static str {
    fingerprint().unwrap_or(env!("TILEWRIGHT_COMPILER"))
}

/// Whether what was compiled in this process is what [`fingerprint`] says.
#[cfg(jit)]
pub(super) fn is_as_fingerprinted() -> bool {
    kernel_llvm::fingerprint().is_some()
}

/// Whether kernels can be compiled: LLVM is there, and is loaded if it has not been.
#[cfg(jit)]
pub(super) fn is_available() -> bool {
    kernel_llvm::load().is_ok()
}

#[cfg(not(jit))]
pub(super) use missing::{fingerprint, is_as_fingerprinted, is_available};

#[cfg(not(jit))]
mod missing {
    use kernel_core::backend::nvidia::{LaunchShape, Options, Placement, Ptx};
    use kernel_core::backend::{Artifact, Backend, CompileError};
    use kernel_core::ir::Bound;
    use kernel_core::target::Target;

    pub(in super::super) fn fingerprint() -> Option<&'static str> {
        None
    }

    pub(in super::super) fn is_as_fingerprinted() -> bool {
        false
    }

    pub(in super::super) fn is_available() -> bool {
        false
    }

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
