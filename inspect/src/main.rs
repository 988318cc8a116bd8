//! The program: see the library's documentation for how it is called.

use std::path::Path;
use std::process::ExitCode;

use tilewright_inspect::{InspectError, page, read, terminal, variant};

const USAGE: &str = "\
inspect ARCHIVE                          lists the variants
inspect ARCHIVE NUMBER                   shows what a variant is, and its report
inspect ARCHIVE NUMBER STAGE             shows a stage: bound, a pass, placed, lowered, llvm, ptx, report; or all `passes`
inspect diff OLD NUMBER NEW NUMBER STAGE compares a stage of two variants
inspect ARCHIVE --html PAGE              writes one page with everything
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // As a subcommand of its own name too.
    let arguments = arguments.strip_prefix(&["inspect"]).unwrap_or(&arguments);
    match run(arguments) {
        Ok(Some(text)) => {
            use std::io::Write;
            // Whoever reads may stop when it has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(None) => {
            eprint!("{USAGE}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// What to print; `None` if the arguments mean nothing.
fn run(arguments: &[&str]) -> Result<Option<String>, InspectError> {
    let open = |path: &str| read(Path::new(path));
    Ok(match *arguments {
        ["diff", old, from, new, to, stage] => {
            let (old, new) = (open(old)?, open(new)?);
            Some(terminal::compare(variant(&old, from)?, variant(&new, to)?, stage)?)
        }
        [path] if !path.starts_with('-') => Some(terminal::list(&open(path)?)),
        [path, "--html", page] => {
            let text = page::page(path, &open(path)?);
            std::fs::write(page, text).map_err(|error| InspectError::File { path: page.to_string(), error })?;
            Some(format!("{page}\n"))
        }
        [path, number] => Some(terminal::summary(variant(&open(path)?, number)?)),
        [path, number, stage] => Some(terminal::stage(variant(&open(path)?, number)?, stage)?),
        _ => None,
    })
}
