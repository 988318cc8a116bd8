//! Programs that must not compile, in `tests/ui`, each with the message that rustc prints.
//!
//! `TRYBUILD=overwrite cargo test -p tilewright-tests --test diagnostics` writes the messages anew.

use std::path::{Path, PathBuf};

/// Words of the inside, which mean nothing to a user. Names that start with two underscores count too.
const INTERNAL: &[&str] = &[
    "kernel_runtime::",
    "kernel_core::",
    "kernel_macros::",
    "kernel_codegen::",
    "Invocation",
    "KernelSource",
    "SourceFile",
    "CompileRequest",
    "BufferArg",
    "ValueId",
    "TypeError",
    "proc_macro",
    "panicked",
    "error: error",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ui")
}

/// The files of the folder that end like that, in order.
fn files(extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap_or_else(|error| panic!("{}: {error}", folder().display()));
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == extension));
    files.sort();
    files
}

#[test]
fn messages_are_as_written() {
    assert!(!files("rs").is_empty(), "no cases in {}", folder().display());
    trybuild::TestCases::new().compile_fail("ui/*.rs");
}

#[test]
fn every_case_has_its_message() {
    let names = |extension: &str| -> Vec<PathBuf> { files(extension).iter().map(|f| f.with_extension("")).collect() };
    assert_eq!(names("rs"), names("stderr"));
}

#[test]
fn messages_show_no_internal_names() {
    for file in files("stderr") {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for (number, line) in text.lines().enumerate() {
            let place = format!("{}:{}: {line}", file.display(), number + 1);
            // rustc's words for a constant assertion that fails; the macro itself has not panicked.
            let line = line.replacen("error[E0080]: evaluation panicked: ", "", 1);
            for word in INTERNAL {
                assert!(!line.contains(word), "`{word}` in {place}");
            }
            // rustc underlines several lines with `|_____^`.
            let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
            let hidden = words.filter(|word| word.starts_with("__") && word.contains(char::is_alphanumeric)).count();
            assert_eq!(hidden, 0, "a hidden name in {place}");
        }
    }
}

/// The arrows point into the case itself: at the user's kernel or the user's call, never at the attribute or a macro.
#[test]
fn messages_point_at_the_users_source() {
    for file in files("stderr") {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let source_file = file.with_extension("rs");
        let source = std::fs::read_to_string(&source_file).unwrap_or_default();
        let name = source_file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        assert!(!text.contains("this error originates in the attribute macro"), "{}", file.display());
        let mut primary = None;
        for line in text.lines() {
            if line.starts_with("error") {
                primary = Some(line);
            }
            let (Some(message), Some(at)) = (primary, line.trim_start().strip_prefix("--> ")) else { continue };
            let place: Vec<&str> = at.rsplitn(3, ':').collect();
            let &[_, line_number, path] = place.as_slice() else { panic!("{}: {at}", file.display()) };
            assert!(path.ends_with(&name), "{}: `{message}` points at {at}", file.display());
            let number: usize = line_number.parse().unwrap_or_else(|_| panic!("{}: {at}", file.display()));
            let pointed = source.lines().nth(number - 1).unwrap_or_default();
            assert!(pointed.trim() != "#[kernel]", "{}: `{message}` points at the attribute", file.display());
            primary = None;
        }
    }
}
