//! `verify`: the kernel keeps the rules of the verifier.

use kernel_core::ir::Func;

use crate::failure::Failure;

/// The stage.
pub(crate) fn run(func: Func, _arguments: &[&str]) -> Result<Func, Failure> {
    kernel_core::verify::verify(&func).map_err(Failure::Kernel)?;
    Ok(func)
}
