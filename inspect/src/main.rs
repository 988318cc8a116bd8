//! The program: see the library's documentation for how it is called.

use std::path::Path;
use std::process::ExitCode;

use tilewright_inspect::machine::Tools;
use tilewright_inspect::panes::Look;
use tilewright_inspect::source::Roots;
use tilewright_inspect::{InspectError, page, read, terminal, variant};

const USAGE: &str = "\
inspect ARCHIVE                            lists the variants
inspect ARCHIVE NUMBER                     shows what a variant is, and its report
inspect ARCHIVE NUMBER STAGE               shows a stage: bound, a pass, placed, lowered, llvm, ptx, sass, report
inspect ARCHIVE NUMBER VIEW                passes, layouts, shared, lines; line:9 shows what line 9 becomes in each stage
inspect diff OLD NEW                       compares the variants of two archives
inspect diff OLD NUMBER NEW NUMBER [STAGE] compares two variants, or a stage of them
inspect ARCHIVE --html PAGE                writes one page with everything

--source FOLDER                            where the source files are, if not in this folder or one around it
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // As a subcommand of its own name too.
    let arguments = arguments.strip_prefix(&["inspect"]).unwrap_or(&arguments);
    if arguments.iter().any(|argument| ["--help", "-h"].contains(argument)) {
        return print(USAGE);
    }
    let (rest, folder) = without_source(arguments);
    match run(&rest, &Roots::new(folder.map(Path::new))) {
        Ok(Some(text)) => print(&text),
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

fn print(text: &str) -> ExitCode {
    use std::io::Write;
    // Whoever reads may stop when it has seen enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// The arguments without `--source FOLDER`, and the folder.
fn without_source<'a>(arguments: &[&'a str]) -> (Vec<&'a str>, Option<&'a str>) {
    match arguments.iter().position(|argument| *argument == "--source") {
        Some(at) if at + 1 < arguments.len() => {
            ([&arguments[..at], &arguments[at + 2..]].concat(), Some(arguments[at + 1]))
        }
        Some(_) | None => (arguments.to_vec(), None),
    }
}

/// What to print; `None` if the arguments mean nothing.
fn run(arguments: &[&str], roots: &Roots) -> Result<Option<String>, InspectError> {
    let open = |path: &str| read(Path::new(path));
    let tools = Tools::find();
    Ok(match *arguments {
        ["diff", old, new] => Some(terminal::compare_archives(&open(old)?, &open(new)?, &tools)),
        ["diff", old, from, new, to] => {
            let (old, new) = (open(old)?, open(new)?);
            Some(terminal::compare_all((variant(&old, from)?, variant(&new, to)?), &tools))
        }
        ["diff", old, from, new, to, stage] => {
            let (old, new) = (open(old)?, open(new)?);
            Some(terminal::compare((variant(&old, from)?, variant(&new, to)?), stage, &tools, roots)?)
        }
        ["diff", ..] => return Err(InspectError::NotTwo),
        [path] if !path.starts_with('-') => Some(terminal::list(&open(path)?)),
        [path, "--html", page] => {
            let text = page::page(path, &open(path)?, &tools, roots);
            std::fs::write(page, text).map_err(|error| InspectError::File { path: page.to_string(), error })?;
            Some(format!("{page}\n"))
        }
        [path, number] => {
            let entries = open(path)?;
            let entry = variant(&entries, number)?;
            let look = Look::at(entry, &tools, roots);
            Some(terminal::notes(&look) + &terminal::overview(entry, &look))
        }
        [path, number, stage] => Some(terminal::stage(variant(&open(path)?, number)?, stage, &tools, roots)?),
        _ => None,
    })
}
