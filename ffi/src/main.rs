//! `tilewright-ffi`: Python packages and wheels around libraries of operators.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use tilewright_ffi::package::Package;

const USAGE: &str = "\
Python packages around a library of operators, which `tilewright_ffi::export!` makes.

    tilewright-ffi wheel LIBRARY FOLDER      writes a wheel into the folder
    tilewright-ffi package LIBRARY FOLDER    writes the package as a folder into the folder
    tilewright-ffi describe LIBRARY          prints the operators as JSON

LIBRARY is the `cdylib`, such as target/release/libmy_ops.so.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["wheel", library, folder] => {
            Package::of_library(Path::new(library)).and_then(|package| package.write_wheel(Path::new(folder)))
        }
        ["package", library, folder] => {
            Package::of_library(Path::new(library)).and_then(|package| package.write(Path::new(folder)))
        }
        ["describe", library] => match Package::of_library(Path::new(library)) {
            Ok(package) => {
                return print(&serde_json::to_string_pretty(package.library()).unwrap_or_default());
            }
            Err(error) => Err(error),
        },
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match done {
        Ok(path) => print(&path.display().to_string()),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a text. Whoever reads it may have read enough.
fn print(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
