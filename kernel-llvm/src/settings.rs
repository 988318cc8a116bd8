//! What the environment says. Every environment variable that this crate reads is read here.

use std::path::PathBuf;

/// Names the LLVM to load: a library, or a folder that holds one (itself or in its `lib`).
pub(crate) const LLVM_VARIABLE: &str = "TILEWRIGHT_LLVM";

/// The value of [`LLVM_VARIABLE`], if it is set and not empty.
pub(crate) fn llvm() -> Option<PathBuf> {
    std::env::var_os(LLVM_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}
