//! The proof that LLVM is loaded.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Version;

/// The LLVM of this process, ready for use. Having a reference to it is the proof that every
/// function of `inkwell` and `llvm_sys` may be called.
#[derive(Debug, Clone)]
pub struct Llvm {
    pub(crate) version: Version,
    pub(crate) path: PathBuf,
    pub(crate) missing: Vec<&'static str>,
    pub(crate) load_time: Duration,
}

impl Llvm {
    /// The version: major, minor, patch.
    pub fn version(&self) -> (u32, u32, u32) {
        self.version
    }

    /// The library it was loaded from: a path, or the bare name that the dynamic linker found. Empty
    /// when LLVM was linked (feature `link-llvm`).
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The functions of the C API that `llvm_sys` declares and this LLVM does not export. Calling
    /// one ends the process with a message that names it.
    pub fn missing_functions(&self) -> &[&'static str] {
        &self.missing
    }

    /// How long loading took, from the search to the check of the data layout.
    pub fn load_time(&self) -> Duration {
        self.load_time
    }
}
