//! `optimise [-NAME ..]`: runs all passes but those named.

use kernel_core::ir::{Bound, Func};
use kernel_core::passes::{PassOptions, optimise};

use crate::failure::Failure;

/// The stage.
pub(crate) fn run(func: Func, arguments: &[&str]) -> Result<Func, Failure> {
    let mut bound = Bound::new(func).map_err(|_| Failure::Test("`optimise` takes a bound kernel".to_string()))?;
    let disabled = arguments.iter().map(|name| name.trim_start_matches('-').to_string()).collect();
    optimise(&mut bound, &PassOptions { disabled, verify: true }).map_err(Failure::Kernel)?;
    Ok(bound.into_func())
}
