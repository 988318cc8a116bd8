//! `pass NAME`: runs one pass, and the verifier behind it.

use kernel_core::ir::Func;
use kernel_core::passes::PASSES;

use crate::failure::Failure;

/// The stage.
pub(crate) fn run(func: Func, arguments: &[&str]) -> Result<Func, Failure> {
    let mut func = crate::verify::run(func, &[])?;
    for name in arguments {
        let pass = PASSES.iter().find(|pass| pass.name == *name);
        let pass = pass.ok_or_else(|| Failure::Test(format!("there is no pass `{name}`")))?;
        (pass.run)(&mut func).map_err(Failure::Kernel)?;
        func = crate::verify::run(func, &[])?;
    }
    Ok(func)
}
