//! Runs `.tile` file tests.
//!
//! A file holds cases. A case starts with a line `; test COMMAND`, then comes a kernel:
//!
//! ```text
//! ; test bind BLOCK=64 | pass fold | pass dce
//! ; check: const 64
//! ; check-not: const_expr
//! kernel k "k.rs" safe generic {
//!   const BLOCK: usize
//!   %0: i32 = const_expr BLOCK
//!   ..
//! ```
//!
//! - Commands are stages joined by `|`; each gets the kernel that the one before it made.
//!   `roundtrip`, `verify`, `bind NAME=VALUE ..`, `pass NAME`, `optimise [-NAME ..]`. One file of `cases` each.
//! - `; check: TEXT`: a line of the output contains the text, below the line that the check before it found.
//!   `; check-not: TEXT`: no line contains it.
//! - `; run: ARGUMENTS => RESULTS`: runs the kernel in the interpreter, before and after every pass; `cases/line.rs`
//!   says how it is written. `kernel-codegen` runs the same lines in generated code, and the package of the whole
//!   project's tests launches them, on a GPU if there is one.
//! - `; error: TEXT` at the end of the line that is to blame; on the line `kernel ..` if no operation is.
//!   All errors must be named, and a case that names errors must fail with exactly those.
//! - `; output:` behind the kernel starts the exact output, each line behind `;   `.
//!   `TILEWRIGHT_BLESS=1 cargo test` writes it anew.
//!
//! Whatever a case tests, its kernel and every output are also printed and parsed again.

mod cases;
mod check;
mod run;

use std::path::{Path, PathBuf};

use cases::{Case, Failure, roundtrip, split_cases};
use kernel_core::text::print_without_spans;

/// Runs every case of every file of a folder, and panics with all that went wrong.
pub fn run_folder(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests").join(name);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.expect("an entry of the folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "tile"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no file tests in {}", folder.display());
    let mut failures = Vec::new();
    for file in files {
        run_file(&file, &mut failures);
    }
    assert!(failures.is_empty(), "{} cases failed\n\n{}", failures.len(), failures.join("\n\n"));
}

fn run_file(file: &Path, failures: &mut Vec<String>) {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let bless = std::env::var_os("TILEWRIGHT_BLESS").is_some();
    let mut blessed = String::new();
    let cases = split_cases(&text);
    assert!(!cases.is_empty(), "{} has no `; test` line", file.display());
    for case in &cases {
        let result = run_case(case);
        if let Err(message) = &result
            && !(bless && case.output.is_some())
        {
            failures.push(format!("{}:{}: {message}", file.display(), case.line));
        }
        case.write(&mut blessed, result.ok().flatten().as_deref().filter(|_| bless));
    }
    if bless && blessed != text {
        std::fs::write(file, blessed).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    }
}

/// Runs a case; returns the output to bless.
fn run_case(case: &Case<'_>) -> Result<Option<String>, String> {
    let outcome = case.run_stages();
    let output = match outcome {
        Err(Failure::Test(message)) => return Err(message),
        Err(Failure::Kernel(errors)) => return check::errors(case, &errors).map(|()| None),
        Ok(_) if !case.errors.is_empty() => return Err("errors were expected, but there are none".to_string()),
        Ok(func) => func,
    };
    roundtrip::check(&output)?;
    for line in &case.runs {
        run::check(&output, line)?;
    }
    let output = print_without_spans(&output);
    check::lines(case, &output)?;
    let Some(expected) = &case.output else { return Ok(None) };
    if std::env::var_os("TILEWRIGHT_BLESS").is_none() && *expected != output {
        return Err(format!("the output is not the expected one (TILEWRIGHT_BLESS=1 accepts it):\n{output}"));
    }
    Ok(Some(output))
}
