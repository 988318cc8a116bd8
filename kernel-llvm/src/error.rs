//! What can go wrong, each with what was found and what to do.

use std::fmt;
use std::path::PathBuf;

/// A version of LLVM: major, minor, patch.
pub type Version = (u32, u32, u32);

/// Why no LLVM could be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// `TILEWRIGHT_LLVM` is set, so nothing else was tried, and what it names is unusable.
    #[error(
        "TILEWRIGHT_LLVM is set to `{}`, which cannot be used: {why}\n{ADVICE_SETTING}",
        path.display()
    )]
    Setting {
        /// The value of the variable.
        path: PathBuf,
        /// What is wrong with it.
        why: Rejection,
    },
    /// None of the places where an LLVM may be had a usable one.
    #[error("found no LLVM 22 or 23 to compile kernels with; looked at:\n{}{ADVICE}", List(looked))]
    NotFound {
        /// Every place, in the order tried, and what was wrong with it.
        looked: Vec<Rejected>,
    },
    /// The file given to [`check`](crate::check) is not a usable LLVM.
    #[error("`{}` is not an LLVM to compile kernels with: {why}\n{ADVICE_SETTING}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: Rejection,
    },
    /// LLVM was loaded but gave no machine for NVIDIA GPUs.
    #[error(
        "the LLVM {} at `{}` cannot generate code for nvptx64-nvidia-cuda: {message}\n{ADVICE_SETTING}",
        Dotted(*version), path.display()
    )]
    NoMachine {
        /// The library.
        path: PathBuf,
        /// Its version.
        version: Version,
        /// What LLVM said.
        message: String,
    },
    /// LLVM was loaded but did not take the option that makes shared-memory pointers 32 bits wide,
    /// for example because code in this process used the same LLVM earlier.
    #[error(
        "the LLVM {} at `{}` ignored --nvptx-short-ptr: its data layout is `{layout}`, and generated \
         code relies on 32-bit shared-memory pointers (p3:32:32)\nCall kernel_llvm::load() before \
         anything else in the process uses that LLVM, or name another one with TILEWRIGHT_LLVM.",
        Dotted(*version), path.display()
    )]
    LongPointers {
        /// The library.
        path: PathBuf,
        /// Its version.
        version: Version,
        /// The data layout that it gave.
        layout: String,
    },
}

const ADVICE: &str = "Install a Rust toolchain with rustup, whose LLVM serves \
    (`rustup toolchain install 1.95.0`), or set TILEWRIGHT_LLVM to a libLLVM 22 or 23, or to a folder \
    that holds one.";
const ADVICE_SETTING: &str = "Set TILEWRIGHT_LLVM to a libLLVM 22 or 23 or to a folder that holds one \
    (`<rustup toolchain>/lib`), or unset it to use the Rust toolchain's own.";

/// One place that was looked at in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The file or folder, or the bare name given to the dynamic linker.
    pub path: PathBuf,
    /// What was wrong with it.
    pub why: Rejection,
}

/// What is wrong with a candidate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// There is nothing of that name.
    #[error("it does not exist")]
    Missing,
    /// It exists but could not be read.
    #[error("it cannot be read ({0})")]
    Unreadable(String),
    /// The `rustc` on the path, if there is one, did not say where its toolchain is.
    #[error("there is no such program on the path, or it names no sysroot")]
    NoSysroot,
    /// A folder in which, or in whose `lib`, no file is called `libLLVM*`.
    #[error("no libLLVM is in that folder or in its `lib`")]
    EmptyFolder,
    /// A file, but no shared library.
    #[error("it is not a shared library (no ELF header)")]
    NotElf,
    /// The dynamic linker refused it.
    #[error("the dynamic linker refused it ({0})")]
    Refused(String),
    /// A shared library without LLVM's C functions.
    #[error("it is a shared library but does not export LLVM's C API ({0} is missing)")]
    NotLlvm(&'static str),
    /// An LLVM so old that it cannot say which it is.
    #[error("it is LLVM 15 or older, and only 22 and 23 are known to work")]
    TooOld,
    /// An LLVM of a version that this crate does not know.
    #[error("it is LLVM {}, and only 22 and 23 are known to work", Dotted(*.0))]
    Version(Version),
    /// An LLVM built without code generation for NVIDIA GPUs.
    #[error("it is LLVM {} built without the NVPTX target", Dotted(*.0))]
    NoNvptx(Version),
}

/// Why LLVM could not turn a module into PTX.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No LLVM.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// LLVM knows no such machine.
    #[error("LLVM has no machine for cpu `{cpu}` with features `{features}`: {message}")]
    Machine {
        /// The processor asked for, such as `sm_90a`.
        cpu: String,
        /// The features asked for, such as `+ptx80`.
        features: String,
        /// What LLVM said.
        message: String,
    },
    /// The module breaks LLVM's rules, which means that the generator of it is wrong.
    #[error("LLVM's verifier refuses module `{module}` ({stage}); this is a bug in Tilewright:\n{message}")]
    Invalid {
        /// The module's name.
        module: String,
        /// Before which step the verifier ran.
        stage: &'static str,
        /// The verifier's findings.
        message: String,
    },
    /// A step failed, or reported errors while it ran.
    #[error("LLVM failed while {stage} module `{module}`:\n{message}")]
    Failed {
        /// The module's name.
        module: String,
        /// What LLVM was doing.
        stage: &'static str,
        /// What it said.
        message: String,
    },
    /// The loaded LLVM does not know an intrinsic, or not with those types.
    #[error(
        "the loaded LLVM has no intrinsic `{name}` with {types} overload types; Tilewright is tested \
         with LLVM 22.1 and 23.1"
    )]
    Intrinsic {
        /// The intrinsic's name.
        name: String,
        /// How many overload types were given.
        types: usize,
    },
    /// The builder refused an instruction.
    #[error("LLVM's builder refused an instruction: {0}")]
    Builder(String),
}

impl From<inkwell::builder::BuilderError> for Error {
    fn from(error: inkwell::builder::BuilderError) -> Self {
        Error::Builder(error.to_string())
    }
}

/// Prints a version as `22.1.2`.
pub(crate) struct Dotted(pub(crate) Version);

impl fmt::Display for Dotted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// Prints one line per rejected place.
struct List<'a>(&'a [Rejected]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Rejected { path, why } in self.0 {
            writeln!(f, "  - `{}`: {why}", path.display())?;
        }
        Ok(())
    }
}
