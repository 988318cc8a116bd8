//! Compares what came out with what a case expects.

use kernel_core::diag::Diagnostic;

use crate::case::Case;

/// Whether the output has the lines of `; check:` in order, and none of `; check-not:`.
pub(crate) fn lines(case: &Case<'_>, output: &str) -> Result<(), String> {
    let mut rest = output.lines();
    for &(wanted, text) in &case.checks {
        if !wanted {
            if output.contains(text) {
                return Err(format!("`{text}` is in the output:\n{output}"));
            }
        } else if !rest.any(|line| line.contains(text)) {
            return Err(format!("`{text}` is not in the output, or not there:\n{output}"));
        }
    }
    Ok(())
}

/// Whether the errors are the ones that the case names, each at its line.
pub(crate) fn errors(case: &Case<'_>, errors: &[Diagnostic]) -> Result<(), String> {
    let mut expected = case.errors.clone();
    let mut surplus = Vec::new();
    for error in errors {
        let line = if error.line == 0 { case.kernel_line } else { error.line };
        let help = error.help.as_ref().map(|help| format!("; help: {help}")).unwrap_or_default();
        let message = format!("{}{help}", error.message);
        match expected.iter().position(|(at, text)| *at == line && message.contains(text)) {
            Some(found) => drop(expected.remove(found)),
            None => surplus.push(format!("line {line}: not expected: {message}")),
        }
    }
    surplus.extend(expected.iter().map(|(line, text)| format!("line {line}: not reported: {text}")));
    if surplus.is_empty() { Ok(()) } else { Err(surplus.join("\n")) }
}
