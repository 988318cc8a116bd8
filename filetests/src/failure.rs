//! What can go wrong in a stage.

use kernel_core::diag::Diagnostic;

/// Why a stage made nothing.
pub enum Failure {
    /// The kernel is wrong: what `; error:` lines expect.
    Kernel(Vec<Diagnostic>),
    /// The test is wrong.
    Test(String),
}
