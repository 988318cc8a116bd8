//! `verify`: the kernel keeps the rules of the verifier.

use super::Failure;
use kernel_core::ir::Func;

/// The stage.
pub fn run(func: Func, _arguments: &[&str]) -> Result<Func, Failure> {
    kernel_core::verify::verify(&func).map_err(Failure::Kernel)?;
    Ok(func)
}
