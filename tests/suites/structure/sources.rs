//! What the sources of some crates must not contain.

use tilewright_tests::sources::{self, SourceFile, workspace};

/// The lines of code that hold one of the words, as `path:line: text`.
fn with_words(files: &[SourceFile], words: &[&str]) -> Vec<String> {
    let lines = files.iter().flat_map(|file| file.code().map(move |(number, line)| (file, number, line)));
    // Messages show the user a call in backticks.
    let code = |line: &str| line.split('`').step_by(2).collect::<String>();
    let found = lines.filter(|(.., line)| words.iter().any(|word| code(line).contains(word)));
    found.map(|(file, number, line)| format!("{}:{number}: {}", file.path, line.trim())).collect()
}

#[test]
fn the_ir_and_the_front_end_do_no_io() {
    let files = sources::of_libraries(&["kernel-core/src", "kernel-macros/src"]);
    assert!(files.len() > 150, "only {} sources", files.len());
    let io = ["std::fs", "std::io", "std::net", "std::process", "std::env", "std::os", "print!(", "println!(", "dbg!("];
    let libraries = ["inkwell", "llvm_sys", "kernel_llvm", "cudarc", "libloading", "extern \"C\""];
    let found = with_words(&files, &[io.as_slice(), libraries.as_slice()].concat());
    assert!(found.is_empty(), "{found:#?}");
    for package in ["kernel-core", "kernel-macros"] {
        let manifest = std::fs::read_to_string(workspace().join(package).join("Cargo.toml")).expect("a manifest");
        for library in ["inkwell", "llvm-sys", "tilewright-llvm", "cudarc", "libloading"] {
            assert!(!manifest.contains(library), "{package} depends on {library}");
        }
    }
}

/// Names of architectures stand in the table of targets only. `kernel-llvm` is given them, and asks LLVM for one to see
/// whether it works.
#[test]
fn only_the_table_of_targets_names_architectures() {
    let folders = ["kernel-core/src", "kernel-macros/src", "kernel-codegen/src", "kernel-runtime/src", "src"];
    let mut files = sources::of_libraries(&folders);
    files.retain(|file| file.path != "kernel-core/src/target.rs");
    assert!(files.len() > 300, "only {} sources", files.len());
    let mut found = Vec::new();
    for file in &files {
        for (number, line) in file.code() {
            let code: String = line.split('`').step_by(2).collect();
            let names =
                |name: &str| code.split(name).skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            if names("sm_") || names("Sm") {
                found.push(format!("{}:{number}: {}", file.path, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn only_one_module_of_the_runtime_depends_on_the_code_generator() {
    let mut files = sources::all(&["kernel-runtime/src"]);
    files.retain(|file| file.path != "kernel-runtime/src/launch/gpu/compiler.rs");
    let mut found =
        with_words(&files, &["cfg(jit", "(jit)", "cfg!(jit", "feature = \"jit\"", "kernel_codegen", ", jit)"]);
    found.retain(|line| !line.contains("#[cfg(all(test, jit))]"));
    assert!(found.is_empty(), "{found:#?}");
}

/// Names in quotes that look like variables of the environment. `PATH`, `HOME` and their kind, which every program has, have
/// no `_`.
fn quoted_variables(line: &str) -> impl Iterator<Item = &str> {
    let is_name = |text: &&str| text.contains('_') && text.chars().all(|c| matches!(c, 'A'..='Z' | '0'..='9' | '_'));
    line.split('"').skip(1).step_by(2).filter(is_name)
}

#[test]
fn the_table_of_environment_variables_is_that_of_the_settings() {
    let mut files = sources::of_libraries(&["kernel-runtime/src", "kernel-llvm/src"]);
    files.retain(|file| {
        ["kernel-runtime", "kernel-llvm"].iter().any(|name| file.path == format!("{name}/src/settings.rs"))
    });
    let code = files.iter().flat_map(SourceFile::code);
    let mut read: Vec<&str> = code.flat_map(|(_, line)| quoted_variables(line)).collect();
    let text = std::fs::read_to_string(workspace().join("CONTRIBUTING.md")).expect("the document");
    let (_, section) = text.split_once("## Environment variables").expect("it has the section");
    let rows = section.split("\n## ").next().unwrap_or_default().lines().filter(|line| line.starts_with("| `"));
    let mut told: Vec<&str> = Vec::new();
    for row in rows {
        let mut cells = row.split(" | ");
        let (names, readers) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        if readers.contains("programs") {
            told.extend(names.split('`').skip(1).step_by(2));
        }
    }
    for names in [&mut read, &mut told] {
        names.sort_unstable();
        names.dedup();
    }
    assert!(read.len() > 10, "{read:?}");
    assert_eq!(read, told, "the settings, and the rows of CONTRIBUTING.md that programs read");
}

#[test]
fn environment_variables_are_read_by_the_settings() {
    let folders = [
        "kernel-core/src",
        "kernel-macros/src",
        "kernel-codegen/src",
        "kernel-llvm/src",
        "kernel-archive/src",
        "kernel-runtime/src",
        "src",
    ];
    let files = sources::of_libraries(&folders);
    let found = with_words(&files, &["env::var", "env::vars", "env::set_var", "getenv"]);
    // One place each, which every variable goes through: an empty value is none.
    let settings = ["kernel-runtime/src/settings.rs:", "kernel-llvm/src/settings.rs:"];
    assert!(
        found.len() == 2 && settings.iter().all(|path| found.iter().any(|line| line.starts_with(path))),
        "one place of the runtime and one of the loader read variables, and nothing else does: {found:#?}"
    );
}
