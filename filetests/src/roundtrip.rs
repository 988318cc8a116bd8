//! `roundtrip`: print, parse, print is the identity. Done for every kernel of every case anyway.

use kernel_core::ir::Func;
use kernel_core::text::{parse, print};

use crate::failure::Failure;

/// The stage.
pub(crate) fn run(func: Func, _arguments: &[&str]) -> Result<Func, Failure> {
    check(&func).map_err(Failure::Test)?;
    Ok(func)
}

/// Prints, parses and prints.
pub(crate) fn check(func: &Func) -> Result<(), String> {
    let text = print(func);
    let again = parse(&text).map_err(|e| format!("what was printed cannot be parsed: {e}\n{text}"))?;
    let second = print(&again);
    if text == second { Ok(()) } else { Err(format!("printing gives another text:\n{text}\n{second}")) }
}
