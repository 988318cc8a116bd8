//! Runs the cases of a folder's files.

use std::path::{Path, PathBuf};

use kernel_core::ir::Func;
use kernel_core::text::print_without_spans;

use crate::case::{Case, split_cases};
use crate::failure::Failure;
use crate::{check, roundtrip};

/// The `.tile` files of a folder, in the order of their names.
///
/// # Panics
/// If there is no such folder, or no file in it.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry of the folder").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "tile"));
    files.sort();
    assert!(!files.is_empty(), "no file tests in {}", folder.display());
    files
}

/// Has `stages` make its kernel of every case of every file of a folder, and compares it with what the case expects.
/// Expected outputs are written anew where the environment says `TILEWRIGHT_BLESS`.
///
/// # Panics
/// With all that went wrong.
pub fn run_folder(folder: &Path, stages: impl Fn(&Case<'_>) -> Result<Func, Failure>) {
    let mut failures = Vec::new();
    for file in files(folder) {
        run_file(&file, &stages, &mut failures);
    }
    assert!(failures.is_empty(), "{} cases failed\n\n{}", failures.len(), failures.join("\n\n"));
}

fn run_file(file: &Path, stages: &impl Fn(&Case<'_>) -> Result<Func, Failure>, failures: &mut Vec<String>) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let bless = std::env::var_os("TILEWRIGHT_BLESS").is_some();
    let mut blessed = String::new();
    let cases = split_cases(&text);
    assert!(!cases.is_empty(), "{} has no `; test` line", file.display());
    for case in &cases {
        let result = run_case(case, stages, bless);
        if let Err(message) = &result {
            failures.push(format!("{}:{}: {message}", file.display(), case.line));
        }
        case.write(&mut blessed, result.ok().flatten().as_deref().filter(|_| bless));
    }
    if bless && blessed != text {
        std::fs::write(file, blessed).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

/// Runs a case; returns the output to bless.
fn run_case(
    case: &Case<'_>,
    stages: &impl Fn(&Case<'_>) -> Result<Func, Failure>,
    bless: bool,
) -> Result<Option<String>, String> {
    let output = match stages(case) {
        Err(Failure::Test(message)) => return Err(message),
        Err(Failure::Kernel(errors)) => return check::errors(case, &errors).map(|()| None),
        Ok(_) if !case.errors.is_empty() => return Err("errors were expected, but there are none".to_string()),
        Ok(func) => func,
    };
    roundtrip::check(&output)?;
    let output = print_without_spans(&output);
    check::lines(case, &output)?;
    let Some(expected) = &case.output else { return Ok(None) };
    if !bless && *expected != output {
        return Err(format!("the output is not the expected one (TILEWRIGHT_BLESS=1 accepts it):\n{output}"));
    }
    Ok(Some(output))
}
